"""What releases and helm cost. Source: contract.md 2.15."""

from __future__ import annotations

from addon_operator.metrics.registry import MetricsRegistry


class HelmMetrics:
    """Series of releases."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._release_seconds = registry.histogram(
            "module_helm_seconds", "Time in Helm of a module run.", "module activation"
        )
        self._operation_seconds = registry.histogram(
            "helm_operation_seconds", "Duration of single Helm operations.", "module activation operation"
        )
        self._redeployed = registry.counter(
            "modules_helm_release_redeployed_total", "Releases deployed again because objects were absent.", "module"
        )
        self._absent = registry.counter("modules_absent_resources_total", "Objects found absent.", "module resource")

    def release_finished(self, module: str, activation: str, *, duration_s: float) -> None:
        """Counts the part of a module run that was spent on its release."""
        self._release_seconds.observe(duration_s, module, activation)

    def operation_finished(self, module: str, activation: str, operation: str, *, duration_s: float) -> None:
        """Counts one run of helm: `template`, `upgrade`, `uninstall`."""
        self._operation_seconds.observe(duration_s, module, activation, operation)

    def redeployed(self, module: str) -> None:
        """Counts a release deployed again because objects of it were absent."""
        self._redeployed.add(1, module)

    def object_absent(self, module: str, resource: str) -> None:
        """Counts an object of a release found absent, named `namespace/Kind/name`."""
        self._absent.add(1, module, resource)
