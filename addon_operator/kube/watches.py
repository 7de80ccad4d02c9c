"""Informers that are shared, and what is remembered of their objects for those who share them.

A watch lives as long as somebody uses it. Used by monitors, for their objects and for the namespaces that they follow,
and by the search for kinds. Source: design.md 5 (one informer, objects stay bytes), contract.md 2.3.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import KubeError
from addon_operator.kube import jq
from addon_operator.kube.client import KubeClient
from addon_operator.kube.informers.known_objects import WatchEvent
from addon_operator.kube.informers.reflector import Reflector
from addon_operator.kube.refs import Resource, metadata_of, permission
from addon_operator.kube.snapshot import (
    ChangeKind,
    Filtered,
    Key,
    View,
    packed,
    run_filter,
)

_NOT_ALLOWED = 405
# Only a person can mend these: a selector that the server does not understand, a missing permission, a resource that
# cannot be listed.
_TO_MEND = frozenset({400, 403, _NOT_ALLOWED, 422})
# A server that is away or restarts says so for seconds; who says so for longer, about this resource, has a broken
# conversion or a broken aggregated API.
_MOST_FAILURES = 8
_BARE = frozenset({"apiVersion", "kind", "metadata"})


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """What happened to one object, as a binding sees it.

    Attributes:
        kind: what happened.
        object: the object as JSON; of a deleted one the last state, or, if that is not known, one with `apiVersion`,
            `kind` and `metadata` only.
        filter_result: JSON, of a deleted object the last one; None iff there is no filter.
        namespace: empty for objects without one.
        name: the object's name.
        object_kind: `ConfigMap`.
    """

    kind: ChangeKind
    object: bytes = dataclasses.field(repr=False)
    filter_result: bytes | None = dataclasses.field(repr=False)
    namespace: str
    name: str
    object_kind: str


@dataclasses.dataclass(frozen=True, slots=True)
class Scope:
    """What one informer watches."""

    resource: Resource
    namespace: str | None
    label_selector: str = ""
    field_selector: str = ""
    metadata_only: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Wish:
    """What is to be remembered of each object."""

    jq_filter: str = ""
    keep_objects: bool = False


class User(Protocol):
    """Who uses a watch: a monitor, for its objects or for the namespaces that it follows."""

    def changed(self, change: Change) -> None:
        """Something happened to an object."""

    def filter_failed(self, key: Key, error: str) -> None:
        """The filter failed on an object of which `changed` will tell."""

    def filtered(self, seconds: float) -> None:
        """The filter ran."""

    def look(self) -> None:
        """The watch is listed, or in trouble, or no more, or a failing object of the first list is mended."""

    def kind_lost(self) -> None:
        """The server does not know the resource any more."""


class _Shared:
    """One view of a watch, and who shares it.

    Attributes:
        parts: of all users.
        hearing: those that want to hear of changes; to the others everything still belongs to the first list.
    """

    def __init__(self, wish: Wish, run_jq: jq.Run) -> None:
        self.view = View(keep_objects=wish.keep_objects)
        self.jq_filter = wish.jq_filter
        self.parts: dict[Part, None] = {}
        self.hearing: dict[Part, None] = {}
        self._run_jq = run_jq

    def run(self, document: bytes) -> Filtered | None:
        """Filters an object; None without a filter."""
        if not self.jq_filter:
            return None
        began = time.perf_counter()
        filtered = run_filter(self._run_jq, self.jq_filter, document)
        took_s = time.perf_counter() - began
        for part in self.parts:
            part.user.filtered(took_s)
            break
        return filtered


class Part:
    """One user's share of one watch."""

    def __init__(self, user: User, watch: Watch, shared: _Shared) -> None:
        self.user, self.watch, self.view = user, watch, shared.view
        self._shared = shared
        shared.parts[self] = None

    def hear(self, *, from_start: bool) -> None:
        """Tells the user of changes from now on.

        Args:
            from_start: whether the objects that are there already are news, too.
        """
        if self in self._shared.hearing:
            return
        for change in self.watch.changes("Added", self.view) if from_start else ():
            self.tell(change)
        if self in self._shared.parts:
            self._shared.hearing[self] = None

    def tell(self, change: Change) -> None:
        """Tells the user of one change."""
        key = (change.namespace, change.name)
        if change.kind != "Deleted" and key in self.view.failing:
            self.user.filter_failed(key, self.view.failing[key])
        self.user.changed(change)

    def leave(self, *, aloud: bool) -> None:
        """Ends it.

        Args:
            aloud: whether the user is told that all objects are gone.
        """
        self._shared.parts.pop(self, None)
        if self._shared.hearing.pop(self, self) is None and aloud:
            for change in self.watch.changes("Deleted", self.view):
                self.tell(change)
        self.watch.left()


class Watch:
    """One informer, and what is remembered of its objects; ends with its last part.

    Attributes:
        listed: whether its objects were listed once.
        trouble: why it cannot go on; None unless somebody has to mend it.
        error: how its last attempt to list or watch failed; None if it did not.
    """

    def __init__(self, scope: Scope, pool: Pool) -> None:
        self.scope = scope
        self.listed = False
        self.trouble: str | None = None
        self.error: KubeError | None = None
        self._server_failures = 0
        self._pool = pool
        self._begun = False
        self._shared: dict[Wish, _Shared] = {}
        self._informer = Reflector(
            pool.client,
            scope.resource,
            namespace=scope.namespace,
            label_selector=scope.label_selector,
            field_selector=scope.field_selector,
            metadata_only=scope.metadata_only,
            handler=self._take,
            on_error=self._on_trouble,
        )

    async def run(self) -> None:
        """Runs the informer until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._informer.run(), name=f"informer of {self.scope.resource.plural}")
            await self._informer.synced.wait()
            self._note_listed()

    def suits(self, wish: Wish, *, replay: bool) -> bool:
        """Answers whether one more user can get all it needs from what is remembered.

        Args:
            wish: what the user wants to be remembered.
            replay: whether it wants to be told of the objects that are there already.
        """
        if not self._begun or any(known.keep_objects for known in self._shared):
            return True
        return not replay and (wish in self._shared or wish == Wish())

    def join(self, user: User, wish: Wish) -> Part:
        """Adds a user; it is told nothing before `Part.hear`."""
        shared = self._shared.get(wish)
        if shared is not None:
            return Part(user, self, shared)
        part = Part(user, self, shared := _Shared(wish, self._pool.run_jq))
        # All views know the same objects.
        for key in tuple(next(iter(self._shared.values())).view) if self._shared else ():
            document = self._document(key)
            shared.view.put(key, document, shared.run(document))
        self._shared[wish] = shared
        return part

    def left(self) -> None:
        """Forgets what nobody needs any more."""
        for wish, shared in tuple(self._shared.items()):
            if not shared.parts:
                del self._shared[wish]
        if not self._shared:
            self._pool.end(self)

    def changes(self, kind: ChangeKind, view: View) -> Iterator[Change]:
        """Makes one change of each object in a view."""
        for key, item in view.entries():
            yield self._change(kind, key, self._document(key), item.filter_result)

    def _take(self, event: WatchEvent, item: JsonObject) -> None:
        self._note_listed()
        self._begun = True
        metadata = metadata_of(item)
        # One string for the namespace of thousands of objects.
        key = (sys.intern(str(metadata.get("namespace") or "")), str(metadata.get("name") or ""))
        if event == "Deleted":
            self._drop(key, item)
        else:
            self._put(key, packed(item))

    def _put(self, key: Key, document: bytes) -> None:
        outcomes: dict[str, Filtered | None] = {}
        for shared in tuple(self._shared.values()):
            if shared.jq_filter not in outcomes:
                outcomes[shared.jq_filter] = shared.run(document)
            filtered = outcomes[shared.jq_filter]
            kind = shared.view.put(key, document, filtered)
            if kind is not None and shared.hearing:
                _tell(shared, self._change(kind, key, document, None if filtered is None else filtered.result))
            self._look_again(shared)

    def _drop(self, key: Key, last: JsonObject) -> None:
        # What went away unseen comes as a name only.
        document = (None if last.keys() - _BARE else self._kept(key)) or packed(last)
        for shared in tuple(self._shared.values()):
            item = shared.view.drop(key)
            if item is not None and shared.hearing:
                _tell(shared, self._change("Deleted", key, document, item.filter_result))
            self._look_again(shared)

    def _look_again(self, shared: _Shared) -> None:
        # An object that the filter failed on may have held up the first list.
        if self.listed and len(shared.hearing) < len(shared.parts):
            for part in tuple(shared.parts):
                part.user.look()

    def _kept(self, key: Key) -> bytes | None:
        for shared in self._shared.values():
            item = shared.view.get(key)
            if item is not None and item.object is not None:
                return item.object
        return None

    def _document(self, key: Key) -> bytes:
        """Gives what is known of an object that is there: all of it if any view keeps it."""
        namespace, name = key
        place: JsonObject = {"namespace": namespace} if namespace else {}
        resource = self.scope.resource
        bare: JsonObject = {"apiVersion": resource.api_version, "kind": resource.kind}
        return self._kept(key) or jsondoc.dumps({**bare, "metadata": {**place, "name": name}})

    def _change(self, kind: ChangeKind, key: Key, document: bytes, filter_result: bytes | None) -> Change:
        return Change(kind, document, filter_result, *key, self.scope.resource.kind)

    def _note_listed(self) -> None:
        if not self.listed and self._informer.synced.is_set():
            self.listed = self._begun = True
            self._tell_users()

    def _on_trouble(self, error: KubeError | None) -> None:
        self.error = error
        self._server_failures = self._server_failures + 1 if error is not None and error.status >= 500 else 0
        if error is not None:
            self._pool.on_error(error.reason)
        if error is not None and error.status == 404:
            for user in self._users():
                user.kind_lost()
        elif error is None or self._is_to_mend(error):
            # A server that is away for a while neither makes nor mends what a person has to.
            trouble = None if error is None else _what_to_mend(error, self.scope)
            if trouble != self.trouble:
                self.trouble = trouble
                self._tell_users()

    def _is_to_mend(self, error: KubeError) -> bool:
        if error.status == _NOT_ALLOWED and self._informer.synced.is_set():
            # A resource that can only be listed; after each refusal that is done again.
            return False
        return error.status in _TO_MEND or self._server_failures == _MOST_FAILURES

    def _tell_users(self) -> None:
        for user in self._users():
            user.look()

    def _users(self) -> list[User]:
        return [part.user for shared in self._shared.values() for part in shared.parts]


def _tell(shared: _Shared, change: Change) -> None:
    for part in tuple(shared.hearing):
        part.tell(change)


def _what_to_mend(error: KubeError, scope: Scope) -> str:
    if error.status != 403:
        return str(error)
    # If others than RBAC refuse, they name no verb, and either may be at fault.
    said = re.search(r" cannot (list|watch) ", str(error))
    verb = said[1] if said else "list, watch"
    return f"missing permission: {permission(verb, scope.resource, namespace=scope.namespace)}"


class Pool:
    """The watches, each of them as long as somebody uses it."""

    def __init__(self, client: KubeClient, on_error: Callable[[str], None], run_jq: jq.Run = jq.run) -> None:
        self.client, self.on_error, self.run_jq = client, on_error, run_jq
        self._watches: dict[Scope, list[Watch]] = {}
        self._tasks: dict[Watch, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    @property
    def running(self) -> int:
        """Counts the informers."""
        return sum(map(len, self._watches.values()))

    def open(self, group: asyncio.TaskGroup) -> None:
        """Starts what was asked for so far; all tasks belong to the group."""
        self._group = group
        for watch in [watch for watches in self._watches.values() for watch in watches]:
            self._start(watch)

    def close(self) -> None:
        """Starts nothing any more."""
        self._group = None

    def join(self, scope: Scope, wish: Wish, user: User, *, replay: bool = False) -> Part:
        """Adds a user to a watch that suits it, or to a new one."""
        watches = self._watches.setdefault(scope, [])
        for watch in watches:
            if watch.suits(wish, replay=replay):
                return watch.join(user, wish)
        watches.append(watch := Watch(scope, self))
        self._start(watch)
        return watch.join(user, wish)

    def end(self, watch: Watch) -> None:
        """Ends a watch that nobody uses any more."""
        watches = self._watches.get(watch.scope, [])
        if watch in watches:
            watches.remove(watch)
            if not watches:
                del self._watches[watch.scope]
        if task := self._tasks.pop(watch, None):
            task.cancel()

    def _start(self, watch: Watch) -> None:
        if self._group is not None:
            name = f"watch of {watch.scope.resource.plural}"
            self._tasks[watch] = self._group.create_task(watch.run(), name=name)


class Names:
    """Which objects of one scope there are, by name: the namespaces that a monitor follows, what brings kinds."""

    def __init__(self, pool: Pool, scope: Scope, on_change: Callable[[], None]) -> None:
        """Begins to watch.

        Args:
            pool: the watches.
            scope: of which objects.
            on_change: told when `names` or `trouble` may have changed.
        """
        self._on_change = on_change
        self._part = pool.join(dataclasses.replace(scope, metadata_only=True), Wish(), self)
        self._part.hear(from_start=False)

    @property
    def listed(self) -> bool:
        """Whether all were listed once."""
        return self._part.watch.listed

    @property
    def trouble(self) -> str | None:
        """Why they cannot be watched; None unless somebody has to mend it."""
        return self._part.watch.trouble

    @property
    def error(self) -> KubeError | None:
        """How the last attempt to list or watch them failed; None if it did not."""
        return self._part.watch.error

    def names(self) -> list[str]:
        """Lists those that there are now; none before all are listed."""
        return sorted(name for _, name in self._part.view) if self.listed else []

    def end(self) -> None:
        """Stops watching."""
        self._part.leave(aloud=False)

    def changed(self, _change: Change) -> None:
        """Passes on that there is one more, or one less."""
        if self.listed:
            self._on_change()

    def look(self) -> None:
        """Passes on that all are listed, or that there is trouble."""
        self._on_change()

    def filter_failed(self, _key: Key, _error: str) -> None:
        """Never happens: there is no filter."""

    def filtered(self, _seconds: float) -> None:
        """Never happens: there is no filter."""

    def kind_lost(self) -> None:
        """Never happens: every server has these kinds."""
