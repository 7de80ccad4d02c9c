"""Whether the ConfigMap is in force. Source: contract.md 2.15."""

from __future__ import annotations

from collections.abc import Callable

from addon_operator.metrics.registry import MetricsRegistry


class ConfigMetrics:
    """Series of the ConfigMap."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._registry = registry
        self._refusals = registry.counter("config_values_errors_total", "ConfigMap states refused.")

    def refused(self) -> None:
        """Counts one state of the ConfigMap that was refused."""
        self._refusals.add(1)

    def read_refused(self, refused: Callable[[], bool]) -> None:
        """Declares whether the newest state of the ConfigMap is not in force because it was refused. Called once."""
        text = "Whether the ConfigMap is refused at this moment."
        self._registry.live_value("config_values_refused", text, refused)
