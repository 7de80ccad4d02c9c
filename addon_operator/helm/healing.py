"""Whether the objects of releases are there: known from watches, in milliseconds and without asking.

One metadata-only informer for each kind that some release contains, over all namespaces, narrowed to what helm has made
by the label that helm puts on everything. What the watch does not show is asked for by name before it counts as absent,
so that an object whose label somebody took away does not cause one upgrade after the other. The CRDs are watched too:
when one goes while the watch of its objects is interrupted, nobody is left to say that they went with it. Kinds that
may not be listed and watched everywhere are left out until they may be.
What hooks delete is announced by `expect` and not missed: the next run of the module brings it back, not healing.
Source: design.md 5.4, contract.md 2.12 (resource monitor), users.md 5, 6.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from addon_operator.errors import KubeError
from addon_operator.helm.cluster import Cluster
from addon_operator.kube.client import KubeClient
from addon_operator.kube.informer import Event, Informer
from addon_operator.kube.refs import CUSTOM_RESOURCE_DEFINITIONS, ObjectKey, Resource, metadata_of, permission
from addon_operator.logs import get_logger
from addon_operator.retry import RetryPolicy

SYNCED_WITHIN_S: Final = 30.0
_SELECTOR: Final = "app.kubernetes.io/managed-by=Helm"
_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
# Somebody who keeps removing the same object is answered at once a few times, then ever more slowly.
_AT_ONCE: Final = 3
_LATER: Final = RetryPolicy(5.0, 300.0)
_FORGIVEN_AFTER_S: Final = 600.0
# A deletion that was announced and has not begun by then has failed.
_EXPECTED_WITHIN_S: Final = 60.0

_log = get_logger("healing")

_Place = tuple[str, str]
_Kind = tuple[str, str]


@dataclasses.dataclass(slots=True)
class _Followed:
    """One release.

    Attributes:
        objects: by kind and place, with full namespaces.
        unseen: those that exist although the watch does not show them: helm or the API server said so.
        unserved: those whose kind nobody serves.
        told: those of `unserved` that `absent` has listed. They are told once only, since an upgrade cannot bring them
            back as long as nobody serves their kind.
        losses: how often and when last the release was reported.
    """

    objects: dict[_Kind, dict[_Place, ObjectKey]]
    unseen: set[ObjectKey]
    unserved: frozenset[ObjectKey]
    told: frozenset[ObjectKey]
    losses: dict[ObjectKey, tuple[int, float]]


@dataclasses.dataclass(slots=True)
class _Watch:
    """One kind: its informer, the task that runs it, and which objects exist; `forbidden` means that it was told so."""

    resource: Resource
    informer: Informer
    present: set[_Place]
    task: asyncio.Task[None] | None = None
    forbidden: bool = False

    @property
    def defined_by(self) -> str:
        """Gives the name of the CRD, if it is one's kind."""
        return f"{self.resource.plural}.{self.resource.group}"


class _Deletions:
    """Which objects go away on purpose: each first waits to go, for a while, and is then away until it returns."""

    def __init__(self) -> None:
        self._until: dict[ObjectKey, float] = {}

    def expect(self, key: ObjectKey, now: float) -> None:
        """Says that an object is about to be deleted; one that is away already stays away."""
        self._until[key] = max(self._until.get(key, 0.0), now + _EXPECTED_WITHIN_S)

    def goes(self, key: ObjectKey, now: float) -> bool:
        """Says that an object is going or gone; answers whether on purpose."""
        on_purpose = self._until.pop(key, -math.inf) >= now
        if on_purpose:
            self._until[key] = math.inf
        return on_purpose

    def stays(self, key: ObjectKey) -> None:
        """Says that an object is not about to be deleted after all."""
        if self._until.get(key) != math.inf:
            self._until.pop(key, None)

    def is_there(self, key: ObjectKey) -> None:
        """Says that an object exists, and nobody has begun to delete it."""
        if self._until.get(key) == math.inf:
            del self._until[key]

    def forget(self, keys: Iterable[ObjectKey]) -> None:
        """Says that these are not to go, whatever was said before."""
        for key in keys:
            self._until.pop(key, None)

    def keep(self, wanted: Callable[[ObjectKey], bool]) -> None:
        """Forgets all others."""
        self._until = {key: until for key, until in self._until.items() if wanted(key)}


class Healing:
    """Follows the objects of releases."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        *,
        cluster: Cluster,
        on_absent: Callable[[str, tuple[ObjectKey, ...]], None] = lambda _release, _objects: None,
        on_undefined: Callable[[str, bool], None] = lambda _name, _missed: None,
    ) -> None:
        """Prepares it; `run` owns the watches.

        Args:
            client: the API server.
            namespace: of the releases; for objects whose manifest names none.
            cluster: which kinds there are.
            on_absent: told release and objects when objects of a release that is not paused go away.
            on_undefined: told the name of each CRD that goes away, and whether nobody has said that it would.
        """
        self._client = client
        self._namespace = namespace
        self._cluster = cluster
        self._on_absent, self._on_undefined = on_absent, on_undefined
        self._followed: dict[str, _Followed] = {}
        self._paused: collections.Counter[str] = collections.Counter()
        self._watches: dict[_Kind, _Watch] = {}
        self._deletions = _Deletions()
        # Names of CRDs that somebody is about to delete on purpose, and until when that is believed.
        self._undefining: dict[str, float] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._group: asyncio.TaskGroup | None = None
        self._definitions = Informer(
            client, CUSTOM_RESOURCE_DEFINITIONS, namespace=None, metadata_only=True, handler=self._take_definition
        )

    async def run(self) -> None:
        """Runs the watches until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                group.create_task(self._definitions.run(), name="healing CRDs")
                for kind, watch in self._watches.items():
                    self._start(kind, watch)
                await asyncio.Event().wait()
            finally:
                self._group = None
                for timer in self._timers.values():
                    timer.cancel()

    async def follow(self, release: str, objects: Iterable[ObjectKey], *, just_made: bool = False) -> None:
        """Says what a release consists of from now on; watches start and end as needed.

        Args:
            release: its name.
            objects: without those that go away by themselves; the namespace may be left out as in the manifest.
            just_made: helm has just made or confirmed all of them, even if the watch does not show it yet.

        Raises:
            KubeError: a kind is unknown and the API server does not answer.
        """
        wanted = tuple(objects)
        if any(self._cluster.resource(key.kind, key.api_version) is None for key in wanted):
            await self._cluster.refresh()
        followed = self._follow(release, wanted)
        if just_made:
            followed.unseen.update(key for key, _ in self._not_shown(followed))
            self._deletions.forget(self._keys(followed))
        self._drop_unused()

    def forget(self, release: str) -> None:
        """Stops following a release."""
        if release in self._timers:
            self._timers.pop(release).cancel()
        if self._followed.pop(release, None) is not None:
            self._drop_unused()

    def follows(self, release: str) -> bool:
        """Answers whether a release is followed."""
        return release in self._followed

    def missing(self, release: str) -> tuple[ObjectKey, ...]:
        """Lists the objects of a release that are known to be gone at this moment, sorted; waits for nothing."""
        followed = self._followed.get(release)
        return tuple(sorted({*self._missing(followed), *followed.unserved})) if followed else ()

    def watched(self, release: str) -> tuple[str, ...] | None:
        """Lists the objects that are watched as `namespace/Kind/name`, sorted; None if the release is not followed.

        Those of kinds that may not be watched are not among them.
        """
        followed = self._followed.get(release)
        if followed is None:
            return None
        seen = (objects for kind, objects in followed.objects.items() if not self._watches[kind].forbidden)
        return tuple(sorted(str(key) for objects in seen for key in objects.values()))

    def expect(self, keys: Iterable[ObjectKey]) -> None:
        """Says that objects are about to be deleted on purpose: nobody is told when they go away.

        That holds until they are there again or helm makes them again, and for deletions that begin within a minute.
        What lies in a deleted Namespace, and the objects of a deleted CustomResourceDefinition, go on purpose as well.
        `absent` and `missing` list all of them as ever, so the next module run brings them back.

        Args:
            keys: with full namespaces, in any version of their API; those that no followed release contains are
                forgotten at once.
        """
        now = _now()
        for deleted in keys:
            if deleted.kind == CUSTOM_RESOURCE_DEFINITIONS.kind:
                self._undefining[deleted.name] = now + _EXPECTED_WITHIN_S
            for key in self._going_with(deleted):
                self._deletions.expect(key, now)

    def unexpect(self, keys: Iterable[ObjectKey]) -> None:
        """Takes back `expect`: the deletion was refused. What goes already, or is away, still does so on purpose."""
        for deleted in keys:
            if deleted.kind == CUSTOM_RESOURCE_DEFINITIONS.kind:
                self._undefining.pop(deleted.name, None)
            for key in self._going_with(deleted):
                self._deletions.stays(key)

    def pause(self, release: str) -> None:
        """Keeps quiet about a release: a module run may remove objects on purpose. Pauses nest."""
        self._paused[release] += 1

    def resume(self, release: str) -> None:
        """Ends one pause; what has gone away meanwhile is told now."""
        self._paused[release] -= 1
        if self._paused[release] <= 0:
            del self._paused[release]
            self._tell(release)

    async def absent(self, release: str, *, timeout_s: float = SYNCED_WITHIN_S) -> tuple[ObjectKey, ...]:
        """Lists the objects of a release that do not exist, sorted; those of kinds that nobody serves only once.

        Those of kinds that may not be listed and watched are taken to exist.

        Raises:
            KubeError: a kind could not be listed in time, or an object could not be asked for.
        """
        if release not in self._followed:
            return ()
        followed = await self._synced(release, timeout_s)
        unsure = [(key, watch) for key, watch in self._not_shown(followed) if watch.informer.synced.is_set()]
        missing = {key for key, watch in unsure if not await self._exists(key, watch)}
        followed.unseen = {key for key, _ in self._not_shown(followed)} - missing
        if missing:
            followed = await self._reconsider(release)
        news, followed.told = followed.unserved - followed.told, followed.unserved
        return tuple(sorted({key for key, _ in self._not_shown(followed) if key in missing} | news))

    async def _synced(self, release: str, timeout_s: float) -> _Followed:
        """Waits until all kinds of a release are listed that may be and are served."""
        followed = self._followed[release]
        if any(self._cluster.resource(key.kind, key.api_version) for key in followed.unserved):
            followed = self._follow(release, self._keys(followed))
        try:
            for kind in tuple(followed.objects):
                await self._listed(self._watches[kind], timeout_s)
        except KubeError:
            after = await self._reconsider(release)
            if after.objects.keys() == followed.objects.keys():
                raise
            return await self._synced(release, timeout_s)
        return followed

    @staticmethod
    async def _listed(watch: _Watch, timeout_s: float) -> None:
        try:
            await watch.informer.wait_synced(timeout_s)
        except KubeError as error:
            if error.status != 403:
                raise

    async def _reconsider(self, release: str) -> _Followed:
        """Asks again which kinds are served: a CRD may have gone together with its objects."""
        await self._cluster.refresh()
        followed = self._follow(release, self._keys(self._followed[release]))
        self._drop_unused()
        return followed

    @staticmethod
    def _keys(followed: _Followed) -> list[ObjectKey]:
        return [*(key for objects in followed.objects.values() for key in objects.values()), *followed.unserved]

    def _follow(self, release: str, wanted: Iterable[ObjectKey]) -> _Followed:
        found: dict[_Kind, dict[_Place, ObjectKey]] = {}
        unserved: set[ObjectKey] = set()
        for key in wanted:
            resource = self._cluster.resource(key.kind, key.api_version)
            if resource is None:
                unserved.add(key)
            elif {"list", "watch"} <= set(resource.verbs):
                namespace = (key.namespace or self._namespace) if resource.namespaced else ""
                kind = (key.api_version, key.kind)
                found.setdefault(kind, {})[namespace, key.name] = dataclasses.replace(key, namespace=namespace)
                if kind not in self._watches:
                    self._add_watch(kind, resource)
        before = self._followed.get(release) or _Followed({}, set(), frozenset(), frozenset(), {})
        followed = _Followed(found, before.unseen, frozenset(unserved), before.told & unserved, before.losses)
        self._followed[release] = followed
        return followed

    def _not_shown(self, followed: _Followed) -> Iterator[tuple[ObjectKey, _Watch]]:
        for kind, objects in followed.objects.items():
            if kind in self._watches:
                watch = self._watches[kind]
                yield from ((key, watch) for place, key in objects.items() if place not in watch.present)

    def _going_with(self, deleted: ObjectKey) -> Iterator[ObjectKey]:
        """Lists the followed objects that go away when this one is deleted, whatever version of the API names it."""
        is_namespace = (deleted.api_version, deleted.kind) == ("v1", "Namespace")
        is_definition = deleted.kind == CUSTOM_RESOURCE_DEFINITIONS.kind
        for followed in self._followed.values():
            for (api_version, kind), objects in followed.objects.items():
                if kind == deleted.kind and _group(api_version) == _group(deleted.api_version):
                    yield from filter(None, [objects.get((deleted.namespace, deleted.name))])
                if is_namespace:
                    yield from (key for key in objects.values() if key.namespace == deleted.name)
                elif is_definition and self._watches[api_version, kind].defined_by == deleted.name:
                    yield from objects.values()

    def _missing(self, followed: _Followed) -> tuple[ObjectKey, ...]:
        """Lists what seems to be gone; kinds that are not listed yet are not known."""
        shown = ((key, watch.informer.synced.is_set()) for key, watch in self._not_shown(followed))
        return tuple(key for key, synced in shown if synced and key not in followed.unseen)

    def _missed(self, followed: _Followed) -> tuple[ObjectKey, ...]:
        """Lists what seems to be gone without having been expected to go."""
        return tuple(key for key in self._missing(followed) if not self._deletions.goes(key, _now()))

    async def _exists(self, key: ObjectKey, watch: _Watch) -> bool:
        try:
            path = watch.resource.path(key.namespace, key.name)
            await self._client.request("GET", path, accept=_METADATA_ONLY)
        except KubeError as error:
            if error.status != 404:
                raise
            return False
        return True

    def _add_watch(self, kind: _Kind, resource: Resource) -> None:
        present: set[_Place] = set()

        def take(event: Event) -> None:
            metadata = metadata_of(event.object)
            place = (str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))
            if event.kind == "DELETED" and place in present:
                present.remove(place)
                self._lost(kind, {place})
            elif event.kind != "DELETED":
                self._lives(ObjectKey(*kind, *place), going=bool(metadata.get("deletionTimestamp")))
                if place not in present:
                    present.add(place)
                    self._found(kind, place)

        informer = Informer(
            self._client,
            resource,
            namespace=None,
            label_selector=_SELECTOR,
            metadata_only=True,
            handler=take,
            on_trouble=lambda error: self._permitted(watch, error),
        )
        self._watches[kind] = watch = _Watch(resource, informer, present)
        self._start(kind, watch)

    @staticmethod
    def _permitted(watch: _Watch, error: KubeError | None) -> None:
        """Says once that objects of a kind are not healed, for want of a permission."""
        if error is None:
            watch.forbidden = False
        elif error.status == 403 and not watch.forbidden:
            watch.forbidden = True
            needed = permission("list, watch", watch.resource, namespace=None)
            _log.warning("nobody notices if objects of releases go away", reason=f"missing permission: {needed}")

    def _start(self, kind: _Kind, watch: _Watch) -> None:
        if self._group is not None:
            watch.task = self._group.create_task(watch.informer.run(), name=f"healing {'/'.join(kind)}")

    def _drop_unused(self) -> None:
        used = {kind for followed in self._followed.values() for kind in followed.objects}
        for kind in self._watches.keys() - used:
            task = self._watches.pop(kind).task
            if task is not None:
                task.cancel()
        self._deletions.keep(self._is_followed)

    def _is_followed(self, key: ObjectKey) -> bool:
        kind, place = (key.api_version, key.kind), (key.namespace, key.name)
        return any(place in followed.objects.get(kind, {}) for followed in self._followed.values())

    def _take_definition(self, event: Event) -> None:
        metadata = metadata_of(event.object)
        name = str(metadata.get("name") or "")
        if self._definitions.synced.is_set() or self._cluster.may_lack(str(metadata.get("creationTimestamp") or "")):
            self._cluster.changed()
        if event.kind != "DELETED":
            self._defined(name.partition(".")[2])
            return
        for kind, watch in tuple(self._watches.items()):
            if name == watch.defined_by and watch.present:
                gone = set(watch.present)
                watch.present.clear()
                self._lost(kind, gone)
        self._on_undefined(name, self._undefining.pop(name, -math.inf) < _now())

    def _defined(self, group: str) -> None:
        """A kind of this group is served, or will be in a moment: what went with it can come back."""
        for release, followed in tuple(self._followed.items()):
            back = tuple(sorted(key for key in followed.unserved if _group(key.api_version) == group))
            if back and not self._paused[release]:
                self._on_absent(release, back)

    def _lost(self, kind: _Kind, places: set[_Place]) -> None:
        for release, followed in tuple(self._followed.items()):
            keys = [key for place, key in followed.objects.get(kind, {}).items() if place in places]
            missed = [key for key in keys if not self._deletions.goes(key, _now())]
            if keys:
                what = "objects of a release are gone" if missed else "objects of a release were deleted on purpose"
                _log.info(what, release=release, reason=", ".join(str(key) for key in missed or keys))
            if missed:
                self._tell(release)

    def _lives(self, key: ObjectKey, *, going: bool) -> None:
        if going:
            self._deletions.goes(key, _now())
        else:
            self._deletions.is_there(key)

    def _found(self, kind: _Kind, place: _Place) -> None:
        for followed in self._followed.values():
            key = followed.objects.get(kind, {}).get(place)
            if key is not None:
                followed.unseen.discard(key)

    def _tell(self, release: str) -> None:
        """Reports what is missing, at once or, if that has not helped, later."""
        followed = self._followed.get(release)
        missing = self._missed(followed) if followed and not self._paused[release] else ()
        if followed is None or not missing:
            return
        now = _now()
        count = max((self._count(followed, key, now) for key in missing), default=0)
        if count < _AT_ONCE:
            self._report(release, followed, missing)
        elif release not in self._timers:
            delay_s = _LATER.delay_s(count - _AT_ONCE + 1)
            self._timers[release] = asyncio.get_running_loop().call_later(delay_s, self._tell_late, release)

    def _tell_late(self, release: str) -> None:
        self._timers.pop(release, None)
        followed = self._followed.get(release)
        missing = self._missed(followed) if followed and not self._paused[release] else ()
        if followed is not None and missing:
            self._report(release, followed, missing)

    def _report(self, release: str, followed: _Followed, missing: tuple[ObjectKey, ...]) -> None:
        now = _now()
        followed.losses = {key: (self._count(followed, key, now) + 1, now) for key in missing}
        self._on_absent(release, missing)

    @staticmethod
    def _count(followed: _Followed, key: ObjectKey, now: float) -> int:
        count, last = followed.losses.get(key, (0, now))
        return count if now - last < _FORGIVEN_AFTER_S else 0


def _now() -> float:
    return asyncio.get_running_loop().time()


def _group(api_version: str) -> str:
    return api_version.rpartition("/")[0]
