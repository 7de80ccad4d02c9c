"""Brings one release up to date: observe, decide, do one thing, observe again.

Every decision is `release.decide` over facts that were read anew, so a run that was interrupted anywhere needs no
recovery of its own. Source: contract.md 3.3, 3.4, 3.8; design.md 5.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Coroutine
from typing import Final, Protocol, TypeVar, assert_never

from addon_operator.cancellation import finish
from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import InvariantBroken, KubeError
from addon_operator.helm import manifest
from addon_operator.helm import traits as chart_traits
from addon_operator.helm.chart import ChartReader
from addon_operator.helm.client import ChartRequest, UpgradeResult
from addon_operator.helm.cluster import Cluster
from addon_operator.helm.healing import Healing
from addon_operator.helm.orphans import OrphanedObjects
from addon_operator.helm.outcomes import OutcomeNotes
from addon_operator.helm.release import (
    HelmAction,
    ReleaseFacts,
    decide,
    decide_removal,
    fingerprint,
)
from addon_operator.helm.storage import ReleaseStorage
from addon_operator.helm.traits import ChartTraits, changed_words
from addon_operator.kube.discovery import Discovery
from addon_operator.logs import get_logger
from addon_operator.values.layers import EnabledBy

# A release that needs more is changed by somebody else at the same time.
_MOST_STEPS: Final = 12
_T = TypeVar("_T")

_log = get_logger("helm")


class Helm(Protocol):
    """What is needed of helm; the program is `client.HelmClient`."""

    @property
    def version(self) -> str:
        """As `client.HelmClient.version`."""

    @property
    def extra_labels(self) -> tuple[tuple[str, str], ...]:
        """As `client.HelmClient.extra_labels`."""

    async def upgrade(
        self, request: ChartRequest, fingerprint: str, *, revision: int, unless: str | None = None
    ) -> UpgradeResult | None:
        """As `client.HelmClient.upgrade`."""

    async def template(self, request: ChartRequest, *, kube_version: str, apis: Discovery, exact: bool) -> str:
        """As `client.HelmClient.template`."""

    async def uninstall(self, name: str, *, keep_record: bool = False) -> None:
        """As `client.HelmClient.uninstall`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Deployed:
    """How a release was brought up to date.

    Attributes:
        action: the last one, with its reason.
        revision: of the release now; 0 if there is none.
        recovered: what had to be repaired before, in order.
    """

    action: HelmAction
    revision: int
    recovered: tuple[HelmAction, ...] = ()


class Deployer:
    """Carries decisions out. Different releases may be worked on at the same time, one release only once.

    Attributes:
        outcomes: what is still to be noted on records; the next module need not wait for it.
    """

    def __init__(
        self,
        *,
        client: Helm,
        storage: ReleaseStorage,
        healing: Healing,
        cluster: Cluster,
        charts: ChartReader,
        stop_grace_s: float = 30.0,
    ) -> None:
        """Takes its parts.

        Args:
            client: runs helm.
            storage: knows what helm has stored; it must be running.
            healing: knows which objects exist; it must be running.
            cluster: what charts see of the cluster.
            charts: reads charts.
            stop_grace_s: how long a helm in flight may go on after cancellation.
        """
        self._client, self._storage, self._healing = client, storage, healing
        self._cluster, self._charts = cluster, charts
        self._orphans = OrphanedObjects(storage, cluster)
        self._stop_grace_s = stop_grace_s
        self.outcomes = OutcomeNotes(storage)
        self._last_values: dict[str, JsonObject] = {}

    async def deploy(self, request: ChartRequest) -> Deployed:
        """Brings a release up to date, starting no process if nothing has changed.

        Raises:
            HelmError: helm failed; names the module.
            ModuleError: the chart cannot be read.
            KubeError: the API server refused or is unreachable.
        """
        await self.outcomes.wait(request.name)
        await self._cluster.refresh_if_stale()
        digest = self._charts.digest(request.module_dir)
        values = self._charts.without_disallowed(request.module_dir, digest, request.values)
        request = dataclasses.replace(request, values=values)
        traits = self._charts.traits(request.module_dir, digest, request.values)
        wanted = self._fingerprint(request, digest, traits)
        deployed = await self._settle(request, wanted, traits)
        self._last_values[request.name] = request.values
        return deployed

    async def _settle(self, request: ChartRequest, wanted: str, traits: ChartTraits) -> Deployed:
        rendered: str | None = None
        recovered: list[HelmAction] = []
        for _ in range(_MOST_STEPS):
            facts = await self._observe(request.name)
            action = decide(facts, wanted, traits, rendered)
            match action.kind:
                case "skip" | "move-label":
                    if action.kind == "move-label":
                        await self._storage.move_label(request.name, facts.revision, wanted)
                    await self._note_enabled(facts, request.enabled_by)
                    return Deployed(action, facts.revision, tuple(recovered))
                case "install" | "upgrade":
                    revision = await self._upgrade(request, wanted, action.reason)
                    return Deployed(action, revision or 0, tuple(recovered))
                case "render" if self._upgrades_likely(request, traits):
                    changed = decide(facts, wanted, traits, "")
                    revision = await self._upgrade(request, wanted, changed.reason, unless=facts.rendered)
                    if revision is not None:
                        return Deployed(changed, revision, tuple(recovered))
                    rendered = facts.rendered
                case "render":
                    rendered = await self._render(request, traits)
                case "note":
                    await self._note_finished(facts, request.enabled_by)
                case "drop-record" | "finish-uninstall":
                    _log.warning("helm release recovers", module=request.name, reason=action.reason)
                    await self._recover(facts, action)
                    recovered.append(action)
                case "uninstall":
                    raise InvariantBroken(f"release {request.name}: uninstall decided for a wanted release")
                case _:
                    assert_never(action.kind)
        raise KubeError(f"release {request.name} does not come to rest", status=0, reason="Unsettled")

    async def uninstall(self, name: str, reason: str, *, keep_record: bool = False) -> Deployed:
        """Removes a release if there is one, in whatever status it is, and waits until its records are gone.

        Args:
            name: of the release.
            reason: why.
            keep_record: something is left to do afterwards: records stay, with the status `uninstalled`, until `forget`
                is called, so that a restart knows.

        Raises:
            HelmError: helm failed.
            KubeError: the records are still there.
        """
        await self.outcomes.forget(name)
        action = decide_removal(self._storage.facts(name), reason)
        self._healing.forget(name)
        self._last_values.pop(name, None)
        if action.kind == "uninstall":
            _log.info("helm uninstall", module=name, reason=reason)
            await self._outlive(self._uninstall(name, keep_record=keep_record), f"helm uninstall {name}")
        await self._orphans.remove(name)
        return Deployed(action, 0)

    async def forget(self, name: str) -> None:
        """Deletes the records of a release that is uninstalled.

        Raises:
            KubeError: refused, or the records are still there.
        """
        await self._storage.forget(name)

    async def _observe(self, name: str) -> ReleaseFacts:
        facts = self._storage.facts(name)
        if not (facts.status == "deployed" and facts.recorded):
            return facts
        if not self._healing.follows(name):
            await self._healing.follow(name, await self._storage.objects(name))
        try:
            return dataclasses.replace(facts, absent=await self._healing.confirm_missing(name))
        except KubeError as error:
            raise error.with_message(f"module {name}: objects of its release: {error}") from error

    def _fingerprint(self, request: ChartRequest, digest: str, traits: ChartTraits) -> str:
        apis = self._cluster.apis
        return fingerprint(
            chart_digest=digest,
            values=request.values,
            helm_version=self._client.version,
            kube_version=self._cluster.version,
            apis=chart_traits.api_answer(traits, apis.api_versions(), apis.digest),
            extra_labels=self._client.extra_labels,
        )

    async def _render(self, request: ChartRequest, traits: ChartTraits) -> str:
        cluster = self._cluster
        return await self._client.template(
            request, kube_version=cluster.version, apis=cluster.apis, exact=traits.needs_cluster
        )

    def _upgrades_likely(self, request: ChartRequest, traits: ChartTraits) -> bool:
        """Returns whether to begin an upgrade at once, to be stopped if it renders to what is deployed.

        That saves a rendering if the manifest has changed, and costs more than one if it has not.
        """
        before = self._last_values.get(request.name)
        if traits.has_hooks:
            return False
        if traits.needs_cluster or before is None:
            return traits.needs_cluster
        return self._charts.mentions(request.module_dir, changed_words(before, request.values))

    async def _upgrade(
        self, request: ChartRequest, wanted: str, reason: str, *, unless: str | None = None
    ) -> int | None:
        """Upgrades, notes the outcome and returns the revision; None if `unless` has stopped it."""
        return await self._outlive(self._upgrade_and_record(request, wanted, reason, unless), f"helm {request.name}")

    async def _upgrade_and_record(
        self, request: ChartRequest, wanted: str, reason: str, unless: str | None
    ) -> int | None:
        revision = self._storage.facts(request.name).revision + 1
        result = await self._client.upgrade(request, wanted, revision=revision, unless=unless)
        if result is None:
            return None
        _log.info("helm upgrade", module=request.name, reason=reason, revision=result.revision)
        self.outcomes.start(request.name, result, request.enabled_by)
        await self._orphans.remove(request.name, result.objects)
        try:
            await self._healing.follow(request.name, result.objects, just_deployed=True)
        except KubeError:
            self._healing.forget(request.name)  # the next run follows what is there then
            raise
        return result.revision

    async def _note_finished(self, facts: ReleaseFacts, enabled_by: EnabledBy) -> None:
        """Notes what is known without the rendering; a later change of the input renders to something else."""
        text = str((await self._storage.document(facts.name, facts.revision)).get("manifest") or "")
        objects = await self._storage.objects(facts.name)
        result = UpgradeResult(facts.revision, rendered="", checksum=manifest.checksum(text), objects=objects)
        await self.outcomes.note(facts.name, result, enabled_by)

    async def _note_enabled(self, facts: ReleaseFacts, enabled_by: EnabledBy) -> None:
        if facts.held or facts.enabled_by != enabled_by:
            await self._storage.note_enabled(facts.name, facts.revision, enabled_by)

    async def _recover(self, facts: ReleaseFacts, action: HelmAction) -> None:
        if action.kind == "drop-record":
            if not facts.ever_deployed:
                await self._orphans.collect(facts.name, facts.revision)
            await self._storage.delete_record(facts.name, facts.revision)
        else:
            await self._outlive(self._uninstall(facts.name), f"helm uninstall {facts.name}")

    async def _uninstall(self, name: str, *, keep_record: bool = False) -> None:
        await self.outcomes.try_all()  # what other releases have just taken over is known from their notes
        kept = await self._storage.hand_over(name)
        if kept:
            shown = ", ".join(f"{key} ({other})" for key, other in sorted(kept.items()))
            _log.info("objects stay, since other releases have them", module=name, objects=shown)
        await self._client.uninstall(name, keep_record=keep_record)
        await (self._storage.wait_uninstalled(name) if keep_record else self._storage.wait_gone(name))

    async def _outlive(self, work: Coroutine[object, object, _T], name: str) -> _T:
        """Does the work; a cancellation leaves it the grace time, a second one ends it at once."""

        def warn(error: BaseException) -> None:
            _log.warning("helm failed while the operator stopped", task=name, error=error)

        return await finish(work, name=name, grace_s=self._stop_grace_s, on_error=warn, hurry=True)
