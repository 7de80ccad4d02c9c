"""Whether the objects of releases exist: known from watches, in milliseconds and without asking.

What the watch does not show is asked for by name before it counts as missing, so that an object whose label somebody
removed does not cause one upgrade after the other. CustomResourceDefinitions are watched too: when one is deleted while
the watch of its objects is interrupted, no event says that they went with it.
What hooks delete is announced by `expect_deletion` and not reported: the next run of the module restores it.
Source: design.md 5.4, contract.md 2.12 (resource monitor), users.md 5, 6.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Final, Protocol

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import KubeError
from addon_operator.helm.cluster import Cluster
from addon_operator.helm.healing.expected_deletions import ExpectedDeletions
from addon_operator.helm.healing.reporter import LossReporter
from addon_operator.helm.healing.tracker import ObjectTracker, gvk
from addon_operator.helm.healing.watcher import KindWatcher
from addon_operator.kube.client import KubeClient
from addon_operator.kube.refs import CUSTOM_RESOURCE_DEFINITIONS, ObjectKey, Resource, WatchEvent, metadata_of

LISTED_WITHIN_S: Final = 30.0


class HealingEvents(Protocol):
    """Who acts on what goes away."""

    def objects_absent(self, release: str, objects: tuple[ObjectKey, ...], /) -> None:
        """Objects of a release that is not paused went away; they are sorted."""

    def definition_gone(self, name: str, *, unexpected: bool) -> None:
        """A CustomResourceDefinition went away; unexpected if nobody has announced that."""


class Healing:
    """Follows the objects of releases and reports those that go away."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        *,
        cluster: Cluster,
        events: HealingEvents,
    ) -> None:
        """Follows nothing yet; `run` owns the watches.

        Args:
            client: the API server.
            namespace: of the releases; for objects whose manifest names none.
            cluster: which kinds the API server serves.
            events: receives what goes away.
        """
        self._cluster = cluster
        self._events = events
        self._tracker = ObjectTracker(namespace)
        self._deletions = ExpectedDeletions()
        # Apart from those of the objects: a chart's own definitions are seen by two watches, in no common order.
        self._definition_deletions = ExpectedDeletions()
        self._reporter = LossReporter(self._find_lost, events.objects_absent)
        self._watcher = KindWatcher(client, on_object=self._object_changed, on_definition=self._definition_changed)

    async def run(self) -> None:
        """Runs the watches until it is cancelled."""
        try:
            await self._watcher.run()
        finally:
            self._reporter.close()

    async def follow(self, release: str, objects: Iterable[ObjectKey], *, just_deployed: bool = False) -> None:
        """Sets what a release consists of; watches start and end as needed.

        Args:
            release: its name.
            objects: without those that go away by themselves; the namespace may be left out as in the manifest.
            just_deployed: helm has just created or confirmed all of them, even if the watch does not show it yet.

        Raises:
            KubeError: a kind is unknown and the API server does not answer.
        """
        wanted = tuple(objects)
        if any(self._resource(key) is None for key in wanted):
            await self._cluster.refresh()
        self._follow(release, wanted)
        if just_deployed:
            self._tracker.confirm(release)
            self._deletions.forget(self._tracker.objects(release))

    def forget(self, release: str) -> None:
        """Stops following a release."""
        self._reporter.forget(release)
        self._tracker.forget(release)
        self._drop_unused()

    def follows(self, release: str) -> bool:
        """Returns whether a release is followed."""
        return self._tracker.follows(release)

    def missing(self, release: str) -> tuple[ObjectKey, ...]:
        """Returns the objects of a release that are known to be gone at this moment, sorted; waits for nothing."""
        return tuple(sorted({*self._missing(release), *self._tracker.unserved(release)}))

    def watched(self, release: str) -> tuple[str, ...] | None:
        """Returns the objects that are watched as `namespace/Kind/name`, sorted; None if the release is not followed.

        Those of kinds that may not be watched are not among them.
        """
        if not self._tracker.follows(release):
            return None
        forbidden = self._watcher.forbidden
        return tuple(sorted(str(key) for key in self._tracker.objects(release) if gvk(key) not in forbidden))

    def expect_deletion(self, keys: Iterable[ObjectKey]) -> None:
        """Announces that objects are about to be deleted on purpose: their absence is not reported.

        That holds until they exist again or helm creates them again, and for deletions that begin within a minute.
        What lies in a deleted Namespace, and the objects of a deleted CustomResourceDefinition, go on purpose as well.
        `confirm_missing` and `missing` return all of them as ever, so the next module run restores them.

        Args:
            keys: with full namespaces, in any version of their API; those that no followed release contains are
                forgotten at once.
        """
        now = _now()
        for deleted in keys:
            if deleted.kind == CUSTOM_RESOURCE_DEFINITIONS.kind:
                self._definition_deletions.expect(_definition(deleted.name), now)
            for key in self._tracker.deleted_with(deleted):
                self._deletions.expect(key, now)

    def deletion_refused(self, keys: Iterable[ObjectKey]) -> None:
        """Takes back `expect_deletion`, except for objects that are being deleted, or are gone, already."""
        for deleted in keys:
            if deleted.kind == CUSTOM_RESOURCE_DEFINITIONS.kind:
                self._definition_deletions.cancel(_definition(deleted.name))
            for key in self._tracker.deleted_with(deleted):
                self._deletions.cancel(key)

    def pause(self, release: str) -> None:
        """Holds back reports about a release: a module run may remove objects on purpose. Pauses nest."""
        self._reporter.pause(release)

    def resume(self, release: str) -> None:
        """Ends one pause; what has gone away meanwhile is reported now."""
        self._reporter.resume(release)

    async def confirm_missing(self, release: str, *, timeout_s: float = LISTED_WITHIN_S) -> tuple[ObjectKey, ...]:
        """Returns the objects of a release that do not exist, sorted; those of kinds that nobody serves only once.

        Objects that no watch shows are asked for. Those of kinds that may not be listed and watched are taken to exist.

        Args:
            release: one that is not followed has none.
            timeout_s: for the first list of each kind.

        Raises:
            KubeError: a kind could not be listed in time, or the API server cannot tell whether an object exists.
        """
        await self._wait_listed(release, timeout_s)
        listed = self._watcher.listed
        unsure = [key for key in self._tracker.unshown(release) if gvk(key) in listed]
        missing = {key for key in unsure if not await self._exists(key)}
        self._tracker.confirm(release, missing=missing)
        if missing:
            await self._refresh(release)
        found = missing.intersection(self._tracker.unshown(release))
        return tuple(sorted({*found, *self._tracker.take_unreported(release)}))

    async def _wait_listed(self, release: str, timeout_s: float) -> None:
        """Waits until all kinds of a release are listed that may be and are served."""
        if any(self._resource(key) for key in self._tracker.unserved(release)):
            self._follow(release, self._all_objects(release))
        kinds = self._tracker.kinds_of(release)
        try:
            await self._watcher.wait_listed(kinds, timeout_s)
        except KubeError:
            await self._refresh(release)
            if self._tracker.kinds_of(release) == kinds:
                raise
            await self._wait_listed(release, timeout_s)

    async def _exists(self, key: ObjectKey) -> bool:
        resource = self._tracker.kinds.get(gvk(key))
        return resource is not None and await self._watcher.exists(key, resource)

    async def _refresh(self, release: str) -> None:
        """Asks again which kinds are served: a definition may have gone together with its objects."""
        await self._cluster.refresh()
        if self._tracker.follows(release):
            self._follow(release, self._all_objects(release))

    def _follow(self, release: str, objects: Iterable[ObjectKey]) -> None:
        self._tracker.follow(release, objects, self._resource)
        self._drop_unused()

    def _drop_unused(self) -> None:
        self._watcher.watch(self._tracker.kinds)
        self._deletions.retain(lambda key: bool(self._tracker.releases_of(key)))

    def _all_objects(self, release: str) -> frozenset[ObjectKey]:
        return self._tracker.objects(release) | self._tracker.unserved(release)

    def _resource(self, key: ObjectKey) -> Resource | None:
        return self._cluster.resource(key.kind, key.api_version)

    def _missing(self, release: str) -> tuple[ObjectKey, ...]:
        return self._tracker.missing(release, listed=self._watcher.listed)

    def _find_lost(self, release: str) -> tuple[ObjectKey, ...]:
        return tuple(key for key in self._missing(release) if not self._deletions.confirm(key, _now()))

    def _object_changed(self, key: ObjectKey, event: WatchEvent, document: JsonObject) -> None:
        if event == "Deleted":
            if self._tracker.remove(key):
                self._deleted({key})
            return
        _note_existing(self._deletions, key, document)
        self._tracker.add(key)

    def _deleted(self, keys: Collection[ObjectKey]) -> None:
        now = _now()
        expected = {key for key in keys if self._deletions.confirm(key, now)}
        by_release: dict[str, set[ObjectKey]] = {}
        for key in keys:
            for release in self._tracker.releases_of(key):
                by_release.setdefault(release, set()).add(key)
        for release, deleted in sorted(by_release.items()):
            self._reporter.deleted(release, deleted, expected=expected & deleted)

    def _definition_changed(self, event: WatchEvent, definition: JsonObject) -> None:
        metadata = metadata_of(definition)
        name = str(metadata.get("name") or "")
        key = _definition(name)
        if self._watcher.definitions_listed or self._cluster.may_lack(str(metadata.get("creationTimestamp") or "")):
            self._cluster.mark_stale()
        if event != "Deleted":
            _note_existing(self._definition_deletions, key, definition)
            for release, restorable in self._tracker.unserved_in(name.partition(".")[2]).items():
                self._reporter.restorable(release, restorable)
            return
        self._deleted(self._tracker.remove_kinds_of(name))
        self._events.definition_gone(name, unexpected=not self._definition_deletions.confirm(key, _now()))


def _note_existing(deletions: ExpectedDeletions, key: ObjectKey, document: JsonObject) -> None:
    if metadata_of(document).get("deletionTimestamp"):
        deletions.confirm(key, _now())
    else:
        deletions.exists(key)


def _definition(name: str) -> ObjectKey:
    return ObjectKey(CUSTOM_RESOURCE_DEFINITIONS.api_version, CUSTOM_RESOURCE_DEFINITIONS.kind, "", name)


def _now() -> float:
    return asyncio.get_running_loop().time()
