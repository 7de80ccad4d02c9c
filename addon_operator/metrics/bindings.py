"""What `kubernetes` bindings watch, filter and keep. Source: contract.md 2.15."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Final

from addon_operator.metrics.registry import FINE_BUCKETS, MetricsRegistry

_LABELS: Final = "module hook binding queue kind"


@dataclasses.dataclass(frozen=True, slots=True)
class BindingLabels:
    """Which kubernetes binding a value belongs to.

    Attributes:
        module: the module of its hook; None for a global hook.
        hook: the hook's name, such as `hooks/sub/x.sh`.
        binding: the binding's name.
        queue: where its events wait.
        kind: of the objects that it watches.
    """

    module: str | None
    hook: str
    binding: str
    queue: str
    kind: str

    @property
    def texts(self) -> tuple[str, str, str, str, str]:
        """The values of all labels."""
        return (self.module or "", self.hook, self.binding, self.queue, self.kind)


@dataclasses.dataclass(frozen=True, slots=True)
class SnapshotSize:
    """How much one binding keeps in memory.

    Attributes:
        labels: which binding.
        objects: how many objects.
        bytes: how long what is kept of them is, objects and filter results.
    """

    labels: BindingLabels
    objects: int
    bytes: int


class BindingMetrics:
    """Series of `kubernetes` bindings."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._registry = registry
        self._jq_seconds = registry.histogram(
            "kube_jq_filter_duration_seconds", "Duration of jq filters.", _LABELS, FINE_BUCKETS
        )
        self._event_seconds = registry.histogram(
            "kube_event_duration_seconds", "Time to take in one event of an object.", _LABELS, FINE_BUCKETS
        )
        self._jq_errors = registry.counter(
            "kube_jq_filter_errors_total", "jq filters that failed.", "module hook binding"
        )
        self._missing = registry.counter(
            "binding_monitor_missing_total", "Times a binding could not watch its objects.", "binding"
        )

    def event_handled(self, labels: BindingLabels, seconds: float) -> None:
        """Counts one event of an object that a binding has handled, jq filter included."""
        self._event_seconds.observe(seconds, *labels.texts)

    def jq_finished(self, labels: BindingLabels, seconds: float) -> None:
        """Counts one run of a binding's jq filter."""
        self._jq_seconds.observe(seconds, *labels.texts)

    def jq_failed(self, labels: BindingLabels) -> None:
        """Counts one run of a binding's jq filter that failed."""
        self._jq_errors.add(1, labels.module or "", labels.hook, labels.binding)

    def monitor_missing(self, binding: str) -> None:
        """Counts one time that a binding cannot watch: the kind is not served, or RBAC forbids it."""
        self._missing.add(1, binding)

    def read_snapshots(self, sizes: Callable[[], Iterable[SnapshotSize]]) -> None:
        """Declares what the snapshots of all bindings keep; those with the same labels are added up. Called once."""
        self._registry.live(
            {
                "kube_snapshot_objects": "Objects in the snapshot of a binding.",
                "kube_snapshot_bytes": "What the snapshot of a binding keeps in memory.",
            },
            _LABELS,
            lambda: ((size.labels.texts, (size.objects, size.bytes)) for size in sizes()),
        )
