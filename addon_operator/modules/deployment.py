"""The part of a module run that concerns its release: check the values, let Helm do what is needed, remember why.

The decision itself is `helm/release.py`, its execution `helm/deploy.py`. Source: contract.md 2.12, 3.3.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Protocol

from addon_operator.configmap.config import OperatorConfig
from addon_operator.configmap.document import NO_RECONCILIATION
from addon_operator.helm.client import ChartRequest
from addon_operator.helm.deploy import Deployer
from addon_operator.helm.healing import Healing
from addon_operator.helm.release import ReleaseFacts
from addon_operator.helm.storage import ReleaseStorage
from addon_operator.metrics.operator import Metrics
from addon_operator.modules.module import Module
from addon_operator.modules.registry import ModuleState
from addon_operator.values.layers import EnabledBy, section_key
from addon_operator.values.store import ValuesStore


class ReleaseEvents(Protocol):
    """Who acts on what others do to releases."""

    def release_changed(self, facts: ReleaseFacts) -> None:
        """Somebody else rolled back, upgraded or removed a release."""


class ModuleDeployment:
    """Deploys and uninstalls the releases of modules."""

    def __init__(
        self,
        *,
        deployer: Deployer,
        storage: ReleaseStorage,
        healing: Healing,
        store: ValuesStore,
        config: OperatorConfig,
        metrics: Metrics,
        events: ReleaseEvents,
    ) -> None:
        self._deployer = deployer
        self._storage = storage
        self._healing = healing
        self._store = store
        self._config = config
        self._metrics = metrics
        self._events = events

    def facts(self, name: str) -> ReleaseFacts:
        """What is known about a release, absent objects included, from memory."""
        return dataclasses.replace(self._storage.facts(name), absent=self._healing.missing(name))

    def exists(self, name: str) -> bool:
        """Whether there is a release of this name that is ours."""
        facts = self._storage.facts(name)
        return facts.exists and facts.owned

    def installed(self, name: str) -> bool:
        """Whether there is more of a release of ours than records of it."""
        return self.exists(name) and self._storage.facts(name).installed

    def owned(self) -> Mapping[str, ReleaseFacts]:
        """All releases that carry our mark or the peer's, by name."""
        return {facts.name: facts for facts in self._storage.releases() if facts.owned}

    async def hold(self, reasons: Mapping[str, str]) -> None:
        """Records on our releases that they are held, so that a restart knows it; name -> reason.

        Raises:
            KubeError: refused, or not seen in time.
        """
        owned = self.owned()
        changed = {name: reason for name, reason in reasons.items() if name in owned and owned[name].held != reason}
        await asyncio.gather(*(self._storage.hold(name, reason) for name, reason in changed.items()))

    async def hold_enabled_by_config_map(self, reason: str) -> None:
        """Notes that releases are held which the ConfigMap may have enabled; the next run of their module ends that.

        Raises:
            KubeError: as `hold`.
        """
        concerned = {
            name: reason
            for name, facts in self.owned().items()
            if not facts.held and (facts.enabled_by is None or facts.enabled_by.config_map)
        }
        await self.hold(concerned)

    def watched(self, name: str) -> tuple[str, ...] | None:
        """Objects of a release that are watched, as `namespace/Kind/name`, sorted; None if none are."""
        return self._healing.watched(name)

    @contextlib.contextmanager
    def quiet(self, name: str) -> Iterator[None]:
        """Keeps the watch on objects quiet while the module runs, since its hooks may delete some on purpose."""
        self._healing.pause(name)
        try:
            yield
        finally:
            self._healing.resume(name)

    def on_release_changed(self, name: str) -> None:
        """Reports what others do to a release.

        Not in maintenance mode, nor while the outcome of our own last upgrade is still being noted.
        """
        if not self._in_maintenance(section_key(name)) and not self._deployer.outcomes.is_pending(name):
            self._events.release_changed(self._storage.facts(name))

    def _in_maintenance(self, key: str) -> bool:
        return self._config.in_force.maintenance.get(key) == NO_RECONCILIATION

    async def settle(self) -> None:
        """Waits until the outcome of every upgrade is noted on its release.

        Raises:
            KubeError: one cannot be noted.
        """
        await self._deployer.outcomes.wait_all()

    async def close(self) -> None:
        """Gives up what is not noted yet."""
        await self._deployer.outcomes.close()

    async def deploy(self, module: Module, state: ModuleState, *, activation: str) -> None:
        """Brings the release of a module up to date, or leaves it alone in maintenance mode.

        Raises:
            ValuesRejected: the values break the schema for Helm; the text starts with `check helm values`.
            HelmError: helm failed.
            ModuleError: the chart cannot be read.
            KubeError: the API server refused or does not answer.
        """
        mode = self._config.in_force.maintenance.get(module.key, "")
        self._metrics.modules.maintenance(module.name, mode)
        if mode == NO_RECONCILIATION:
            self._healing.forget(module.name)
            state.decide("skip", f"maintenance: {NO_RECONCILIATION}")
            return
        self._store.check_helm(module.key)
        loop = asyncio.get_running_loop()
        started = loop.time()
        values = self._store.helm_values(module.key)
        missing = self._healing.missing(module.name)
        request = ChartRequest(module.name, module.path, values, enabled_by=state.enabled_by or EnabledBy())
        deployed = await self._deployer.deploy(request)
        self._metrics.helm.release_finished(module.name, activation, duration_s=loop.time() - started)
        for key in missing:
            self._metrics.helm.object_absent(module.name, str(key))
        if missing and deployed.action.kind in {"install", "upgrade"}:
            self._metrics.helm.redeployed(module.name)
        recovered = "".join(f"recovered: {step.reason}; " for step in deployed.recovered)
        state.decide(deployed.action.kind, recovered + deployed.action.reason)

    async def uninstall(self, name: str, reason: str, *, keep_record: bool = False) -> None:
        """Removes a release that the operator owns, and no other. `keep_record` as in `Deployer.uninstall`.

        Raises:
            HelmError: helm failed.
            KubeError: its records are still there.
        """
        if self.exists(name):
            await self._deployer.uninstall(name, reason, keep_record=keep_record)

    async def forget(self, name: str) -> None:
        """Deletes what `uninstall` has kept.

        Raises:
            KubeError: refused, or still there.
        """
        if self.exists(name):
            await self._deployer.forget(name)
