"""Which modules exist and what became of their runs; converges. Source: contract.md 2.15."""

from __future__ import annotations

from collections.abc import Iterable

from addon_operator.metrics.registry import MetricsRegistry


class ModuleMetrics:
    """Series of modules and of converges."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._registry = registry
        self._run_seconds = registry.histogram("module_run_seconds", "Duration of module runs.", "module activation")
        self._run_errors = registry.counter("module_run_errors_total", "Failed module runs.", "module")
        self._delete_errors = registry.counter("module_delete_errors_total", "Failed module deletions.", "module")
        self._info = registry.gauge("mm_module_info", "Known modules.", "module enabled critical")
        self._enabled = registry.gauge("mm_module_enabled", "Whether a module is enabled.", "module version")
        self._maintenance = registry.gauge("mm_module_maintenance", "Modules left alone.", "module state")
        self._held = registry.gauge(
            "module_held", "Modules that are neither upgraded nor removed.", "module", outlives_module=True
        )
        self._discover_errors = registry.counter(
            "module_discover_errors_total modules_discover_errors_total", "Errors while planning modules."
        )
        self._convergence_seconds = registry.counter("convergence_seconds", "Time spent converging.", "activation")
        self._convergence_total = registry.counter("convergence_total", "Converges.", "activation")

    def run_finished(self, module: str, activation: str, *, duration_s: float) -> None:
        """Counts one module run."""
        self._run_seconds.observe(duration_s, module, activation)

    def run_failed(self, module: str) -> None:
        """Counts one failed attempt to run a module."""
        self._run_errors.add(1, module)

    def delete_failed(self, module: str) -> None:
        """Counts one failed attempt to delete a module."""
        self._delete_errors.add(1, module)

    def state(self, module: str, *, enabled: bool, version: str) -> None:
        """Records what a module is now; no other module's series change (contract.md 5.2 no. 21).

        Every module is critical: converges wait for each (contract.md 1.4).

        Args:
            module: its name.
            enabled: whether the plan runs it.
            version: of its chart; empty without one.
        """
        self._info.drop(module)
        self._enabled.drop(module)
        self._info.set(1, module, "true" if enabled else "false", "true")
        self._enabled.set(float(enabled), module, version)
        if not enabled:
            self._maintenance.drop(module)

    def maintenance(self, module: str, mode: str) -> None:
        """Records the maintenance mode of a module, such as `NoResourceReconciliation`; empty for none."""
        self._maintenance.drop(module)
        if mode:
            self._maintenance.set(1, module, mode)

    def held(self, module: str, *, held: bool) -> None:
        """Records whether a module is held."""
        if held:
            self._held.set(1, module)
        else:
            self._held.drop(module)

    def keep(self, names: Iterable[str]) -> None:
        """Drops the series of all modules but these: the others have no directory. They may still be held."""
        self._registry.keep_modules({*names})

    def discovery_failed(self) -> None:
        """Counts one error while finding out which modules to run."""
        self._discover_errors.add(1)

    def converged(self, activation: str, *, duration_s: float) -> None:
        """Counts one converge; `activation` is the event type of its task, such as `OperatorStartup`."""
        self._convergence_seconds.add(duration_s, activation)
        self._convergence_total.add(1, activation)
