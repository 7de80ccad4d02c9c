"""Objects with versions, and what has happened to them: what etcd and the watch cache are to an API server."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject
from addon_operator.kube.refs import metadata_of
from tests.fakes.ownership import Owners

Key = tuple[str, str]
"""Namespace and name."""


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """What one write did to an object.

    Attributes:
        version: the counter of the store after it.
        kind: group and plural.
        before: None if it was created.
        after: None if it was deleted.
    """

    version: int
    kind: tuple[str, str]
    before: JsonObject | None
    after: JsonObject | None


class ObjectStore:
    """Objects of all kinds, by group and plural; no object is ever changed in place.

    Attributes:
        version: the one counter of all resource versions.
        oldest: changes up to this version are forgotten.
    """

    def __init__(self) -> None:
        self.version = 1
        self.oldest = 0
        self._objects: dict[tuple[str, str], dict[Key, JsonObject]] = {}
        self._owners: dict[tuple[tuple[str, str], Key], Owners] = {}
        self._changes: list[Change] = []
        self._changed = asyncio.Event()

    def find(self, kind: tuple[str, str], key: Key) -> JsonObject | None:
        """Returns an object as it is; None if there is none."""
        return self._objects.get(kind, {}).get(key)

    def all(self, kind: tuple[str, str], namespace: str = "") -> list[JsonObject]:
        """Returns the objects of a kind, sorted by namespace and name."""
        found = sorted(self._objects.get(kind, {}).items())
        return [item for (place, _), item in found if not namespace or place == namespace]

    def everything(self) -> Iterator[tuple[tuple[str, str], Key, JsonObject]]:
        """Yields all objects of all kinds; the store may change meanwhile."""
        for kind, objects in list(self._objects.items()):
            for key, item in list(objects.items()):
                yield kind, key, item

    def owners(self, kind: tuple[str, str], key: Key) -> Owners:
        """Returns whose the fields of an object are."""
        return self._owners.setdefault((kind, key), Owners())

    def put(self, kind: tuple[str, str], key: Key, item: JsonObject) -> JsonObject:
        """Stores an object under the next version, and returns it; what would change nothing changes no version."""
        before = self.find(kind, key)
        if before is not None and _same(before, item):
            return before
        self.version += 1
        after = _versioned(item, self.version)
        self._objects.setdefault(kind, {})[key] = after
        self._note(Change(self.version, kind, before, after))
        return after

    def remove(self, kind: tuple[str, str], key: Key) -> JsonObject:
        """Deletes an object, and returns its last state."""
        self.version += 1
        before = self._objects[kind].pop(key)
        self._owners.pop((kind, key), None)
        self._note(Change(self.version, kind, before, None))
        return before

    def changes(self, kind: tuple[str, str], after: int) -> list[Change]:
        """Returns what happened to objects of a kind after a version, in order."""
        return [change for change in self._changes if change.version > after and change.kind == kind]

    def compact(self) -> None:
        """Forgets all changes so far: whoever wants to go on from before has to list again."""
        self._changes.clear()
        self.oldest = self.version

    async def wait_change(self) -> None:
        """Waits for the next change of any object."""
        await self._changed.wait()

    def wake(self) -> None:
        """Ends `wait_change` for everybody, as a change does."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _note(self, change: Change) -> None:
        self._changes.append(change)
        self.wake()


def _versioned(item: JsonObject, version: int) -> JsonObject:
    copied = jsondoc.loads(jsondoc.dumps(item))
    assert isinstance(copied, dict)
    metadata_of(copied)["resourceVersion"] = str(version)
    return copied


def _same(one: JsonObject, other: JsonObject) -> bool:
    return jsondoc.digest(_versioned(one, 0)) == jsondoc.digest(_versioned(other, 0))
