"""All series of the process: the operator's own by subject, those of hooks, and what belongs to no other subject.

Source: contract.md 2.15.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from addon_operator.metrics.bindings import BindingMetrics
from addon_operator.metrics.config import ConfigMetrics
from addon_operator.metrics.helm import HelmMetrics
from addon_operator.metrics.hook_runs import HookRunMetrics
from addon_operator.metrics.hooks import HookMetrics
from addon_operator.metrics.kube import KubeMetrics
from addon_operator.metrics.modules import ModuleMetrics
from addon_operator.metrics.queues import QueueMetrics
from addon_operator.metrics.registry import MetricsRegistry


class Metrics:
    """Everything that `/metrics` shows.

    Attributes:
        hook_runs: runs of hooks.
        modules: module runs and converges.
        helm: releases.
        kube: requests and watches.
        bindings: `kubernetes` bindings and their snapshots.
        queues: task queues.
        config: the ConfigMap.
        hooks: the series that hooks make.
    """

    def __init__(self, prefix: str = "addon_operator_", *, max_hook_series: int = 10_000) -> None:
        """Declares every series.

        Args:
            prefix: in front of each name of the operator's own.
            max_hook_series: how many series the metrics of one hook may have.
        """
        registry = self._registry = MetricsRegistry(prefix)
        self.hook_runs = HookRunMetrics(registry)
        self.modules = ModuleMetrics(registry)
        self.helm = HelmMetrics(registry)
        self.kube = KubeMetrics(registry)
        self.bindings = BindingMetrics(registry)
        self.queues = QueueMetrics(registry)
        self.config = ConfigMetrics(registry)
        self._live_ticks = registry.counter("live_ticks", "Grows by one every 10 seconds.")
        self.hooks = HookMetrics(registry.kinds, max_series=max_hook_series)

    def live_tick(self) -> None:
        """Records that the process lives; to be called every 10 seconds."""
        self._live_ticks.add(1)

    def read_log(self, dropped: Callable[[], int]) -> None:
        """Declares how many lines were dropped since the start because nobody read the log. Called once."""
        text = "Lines of the log that were dropped because nobody read it."
        self._registry.live_value("log_lines_dropped_total", text, dropped, "counter")

    def blocks(self) -> Iterator[bytes]:
        """Writes all series as Prometheus text: the operator's own at once, those of hooks in small pieces.

        Those of hooks are of the moment when the first of them is written.
        """
        yield self._registry.render()
        yield from self.hooks.blocks()

    def render(self) -> bytes:
        """Writes all series at once."""
        return b"".join(self.blocks())
