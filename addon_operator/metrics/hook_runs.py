"""What hook runs cost and how they end. Source: contract.md 2.15, 6.3."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final, Literal

from addon_operator.metrics.registry import MetricsRegistry
from addon_operator.metrics.series import Family

RunOutcome = Literal["success", "allowed_error", "error"]

_OUTCOMES: Final[tuple[tuple[RunOutcome, str, str], ...]] = (
    ("success", "success", "successes"),
    ("allowed_error", "allowed_errors", "failures that the binding allows"),
    ("error", "errors", "failures"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class HookLabels:
    """Which run of which hook a value belongs to.

    Attributes:
        module: its module; None for a global hook.
        hook: its name, such as `hooks/sub/x.sh`.
        binding: the binding's name, not its type.
        queue: where the task waited.
        activation: the event type of the task during the operator's first converge, empty afterwards.
    """

    module: str | None
    hook: str
    binding: str
    queue: str
    activation: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class _Families:
    seconds: Family
    user_cpu: Family
    sys_cpu: Family
    max_rss: Family
    outcomes: Mapping[RunOutcome, Family]


class HookRunMetrics:
    """Series of hook runs, and of what hooks are."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._of_global_hooks = _families(registry, "global", "hook binding queue activation")
        self._of_module_hooks = _families(registry, "module", "module hook binding queue activation")
        self._bindings = registry.gauge("binding_count", "Bindings of a hook.", "module hook")
        self._metrics_dropped = registry.counter(
            "hook_metrics_dropped_total",
            "Metric operations of a hook that were dropped, since it has too many series.",
            "module hook",
        )
        self._reviews = registry.counter(
            "webhook_reviews_total", "Reviews that a webhook answered.", "module hook binding outcome"
        )

    def finished(
        self,
        labels: HookLabels,
        outcome: RunOutcome,
        *,
        duration_s: float,
        user_cpu_s: float,
        sys_cpu_s: float,
        max_rss_bytes: int,
    ) -> None:
        """Counts one finished run of a hook, whatever started it.

        Args:
            labels: which run it was.
            outcome: `allowed_error` is a failure of a binding with `allowFailure`.
            duration_s: wall-clock time of the process.
            user_cpu_s: as the system counted for the process and its children.
            sys_cpu_s: likewise.
            max_rss_bytes: its peak memory.
        """
        families = self._of_global_hooks if labels.module is None else self._of_module_hooks
        scope = () if labels.module is None else (labels.module,)
        series = (*scope, labels.hook, labels.binding, labels.queue, labels.activation)
        families.seconds.observe(duration_s, *series)
        families.user_cpu.observe(user_cpu_s, *series)
        families.sys_cpu.observe(sys_cpu_s, *series)
        families.max_rss.set(max_rss_bytes, *series)
        families.outcomes[outcome].add(1, *series)

    def bindings(self, module: str | None, hook: str, count: int) -> None:
        """Records how many bindings a hook has; `module` is None for a global hook."""
        self._bindings.set(count, module or "", hook)

    def metrics_dropped(self, module: str | None, hook: str, count: int) -> None:
        """Counts metric operations of a hook's run that were dropped; `module` is None for a global hook."""
        self._metrics_dropped.add(count, module or "", hook)

    def reviewed(self, *, module: str | None, hook: str, binding: str, outcome: str) -> None:
        """Counts one review that a webhook answered: `allowed`, `denied`, `converted`, `error`."""
        self._reviews.add(1, module or "", hook, binding, outcome)


def _families(registry: MetricsRegistry, scope: str, labels: str) -> _Families:
    name = f"{scope}_hook_run"
    return _Families(
        seconds=registry.histogram(f"{name}_seconds", "Duration of hook runs.", labels),
        user_cpu=registry.histogram(f"{name}_user_cpu_seconds", "CPU time of hook runs, user.", labels),
        sys_cpu=registry.histogram(f"{name}_sys_cpu_seconds", "CPU time of hook runs, system.", labels),
        max_rss=registry.gauge(f"{name}_max_rss_bytes", "Peak memory of the last hook run.", labels),
        outcomes={
            outcome: registry.counter(
                f"{name}_{plural}_total {scope}_hook_{plural}_total", f"Hook runs: {text}.", labels
            )
            for outcome, plural, text in _OUTCOMES
        },
    )
