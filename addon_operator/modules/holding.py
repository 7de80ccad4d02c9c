"""Holds modules: records what is known of each, and reports which are neither upgraded nor removed, and why.

Which are held is decided in `removals.py`, as a part of the plan. Source: docs/modules.md, "Held modules".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from addon_operator.configmap.config import OperatorConfig
from addon_operator.helm.release import ReleaseFacts
from addon_operator.logs import get_logger
from addon_operator.metrics.modules import ModuleMetrics
from addon_operator.modules.deployment import ModuleDeployment
from addon_operator.modules.plan import Installed, RemovalRules
from addon_operator.modules.registry import ModuleRegistry
from addon_operator.modules.removals import Mark, config_map_was_replaced
from addon_operator.modules.runner import ModuleRunner
from addon_operator.values.layers import EnableFlag

log = get_logger("converge")

WHAT_NEXT = (
    'restore the missing source, set the enable flag of each to "true" or "false" in the ConfigMap, or run '
    "`addon-operator confirm-removals`"
)
"""What a person can do about held modules."""


class ConfigMapIdentity(Protocol):
    """Which ConfigMap there is (`configmap.source.ConfigMapSource`).

    Attributes:
        uid: of the ConfigMap; the last one's if it is gone.
    """

    uid: str


class Holding:
    """Knows what is installed, and puts into force what a plan holds."""

    def __init__(
        self,
        *,
        registry: ModuleRegistry,
        runner: ModuleRunner,
        deployment: ModuleDeployment,
        config: OperatorConfig,
        source: ConfigMapIdentity,
        ignored_release: str | None,
        limit: int | None,
        metrics: ModuleMetrics,
        warn: Callable[[str, str], None],
    ) -> None:
        """Lists the dependencies.

        Args:
            registry: where the result is kept.
            runner: unbinds the hooks of a held module.
            deployment: knows the releases, and keeps the result on them.
            config: knows whether the ConfigMap exists.
            source: knows its uid.
            ignored_release: never removed.
            limit: the setting `max_removals`.
            metrics: counts held modules.
            warn: writes an Event, from its reason and its message.
        """
        self._registry = registry
        self._runner = runner
        self._deployment = deployment
        self._config = config
        self._source = source
        self._ignored_release = ignored_release
        self._limit = limit
        self._metrics = metrics
        self._warn = warn

    @property
    def config_map_uid(self) -> str:
        """The uid of the ConfigMap in force; empty if it does not exist."""
        return self._source.uid if self._config.in_force.exists else ""

    def orphans(self) -> tuple[str, ...]:
        """Names of the releases of ours that no module has, sorted; without the one that is never removed."""
        modules = {module.name for module in self._registry.modules}
        return tuple(sorted(self._deployment.owned().keys() - modules - {self._ignored_release}))

    def installed(self, unread: Collection[str], flags: Mapping[str, EnableFlag]) -> Installed:
        """What is installed, and what is recorded of it; `unread` and `flags` as in `Installed`."""
        releases, alive = self._deployment.owned(), self._registry.alive
        marks = {}
        for name in {*releases, *alive}:
            noted, held = self._registry.enabled_by(name), self._registry.held.get(name, "")
            if (release := releases.get(name)) is not None:
                held = held or release.held or ("" if noted else self._replacement(release))
                noted = noted or release.enabled_by
            marks[name] = Mark(noted, held)
        return Installed(alive, tuple(releases), marks, unread, self._ignored_release, flags)

    def _replacement(self, release: ReleaseFacts) -> str:
        """Returns why a module is held that was not enabled in this process; empty if its ConfigMap is the same."""
        known = release.enabled_by.config_map if release.enabled_by else ""
        return config_map_was_replaced(self._config.where) if known and self.config_map_uid not in {"", known} else ""

    def rules(self) -> RemovalRules:
        """Which removals have to wait at this moment."""
        missing = None if self.config_map_uid else self._config.where
        return RemovalRules(missing, self._registry.confirmed, self._limit)

    def confirm(self, names: Collection[str]) -> None:
        """Lets the next converge remove those of these that are held."""
        confirmed = frozenset(names) & self._registry.held.keys()
        self._registry.confirmed |= confirmed
        for name in sorted(confirmed):
            log.warning("removal of a held module was confirmed: the next converge uninstalls it", module=name)

    async def enforce(self, held: Mapping[str, str]) -> None:
        """Holds these modules and no others; name -> reason.

        Raises:
            KubeError: it cannot be recorded on a release; nothing else has changed.
        """
        await self._deployment.hold(held)
        before = self._registry.held
        new, over = sorted(held.keys() - before.keys()), sorted(before.keys() - held.keys())
        self._registry.held = dict(held)
        self._registry.confirmed = frozenset(filter(self._is_to_be_removed, self._registry.confirmed))
        for name in held:
            self._runner.hold(name)  # again, too: its directory may be back
        for name in new:
            self._metrics.held(name, held=True)
            log.error("module is held: neither upgraded nor removed", module=name, reason=held[name], next=WHAT_NEXT)
        for name in over:
            self._metrics.held(name, held=False)
            log.info("module is no longer held", module=name)
        if new:
            reasons = "; ".join(dict.fromkeys(held[name] for name in new))
            self._warn("ModulesHeld", f"neither upgraded nor removed: {', '.join(new)} ({reasons}); {WHAT_NEXT}")

    def _is_to_be_removed(self, name: str) -> bool:
        exists = name in self._registry.alive or self._deployment.exists(name)
        return exists and not self._registry.is_enabled(name)
