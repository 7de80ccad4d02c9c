"""Which state of each object a handler has received, so that it receives only what is new to it.

It remembers names and versions; what objects contain is the handler's to keep. Source: client-go's DeltaFIFO and its
known objects; contract.md 5.1 (8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.kube.informers.wire import bare_object, key_of, state_of
from addon_operator.kube.refs import Resource, WatchEvent, metadata_of
from addon_operator.logs import get_logger

_log = get_logger("informer")

Handler: TypeAlias = Callable[[WatchEvent, JsonObject], None]
"""Receives what happened, and the object after it.

An object that starts or ceases to match the selectors is added or deleted. The object always has `apiVersion` and
`kind`, and no `managedFields`. Of a deleted one it is the last state, or, if it went away unseen, only `metadata` with
namespace, name, uid and the resourceVersion at which it was found missing.
"""


class KnownObjects:
    """The objects of one reflector, each in the state that the handler received last.

    Attributes:
        states: `namespace/name` -> `uid/resourceVersion`.
        undelivered: keys of the objects whose last event the handler failed on.
    """

    def __init__(self, resource: Resource, handler: Handler, on_undelivered: Callable[[], None]) -> None:
        """Knows no objects.

        Args:
            resource: theirs.
            handler: receives each difference. What it raises is logged; the object counts as not received, so that the
                next list delivers it again, and no other object is kept back.
            on_undelivered: called after the handler has raised.
        """
        self._api_version, self._kind = resource.api_version, resource.kind
        self._handler = handler
        self._on_undelivered = on_undelivered
        # Two strings take half the memory of what they are made of, which counts with 20,000 objects.
        self.states: dict[str, str] = {}
        self.undelivered: set[str] = set()

    def __iter__(self) -> Iterator[str]:
        """Iterates over the keys, `namespace/name`."""
        return iter(self.states)

    def has(self, metadata: JsonObject) -> bool:
        """Returns whether the handler has received this very state of an object."""
        return self.states.get(key_of(metadata)) == state_of(metadata)

    def put(self, item: JsonObject, version: str) -> str:
        """Delivers an object that exists unless the handler has received it; returns its key.

        One that was made again under the name of another is deleted first.

        Args:
            item: the object.
            version: how far the reflector has seen.
        """
        metadata = metadata_of(item)
        key, state = key_of(metadata), state_of(metadata)
        before = self.states.get(key)
        if before == state:
            return key
        if before is not None and before.partition("/")[0] != state.partition("/")[0]:
            self.remove_unseen(key, version)
            if key in self.states:
                return key
            before = None
        if self._delivered("Added" if before is None else "Modified", key, item, metadata):
            self.states[key] = state
        return key

    def remove(self, key: str, item: JsonObject) -> None:
        """Delivers that an object is gone, unless the handler never received it.

        Args:
            key: which object.
            item: its last state, or what is left of it.
        """
        if key in self.states and self._delivered("Deleted", key, item, metadata_of(item)):
            del self.states[key]

    def remove_unseen(self, key: str, version: str) -> None:
        """Delivers that an object is gone, of which nothing but its absence was seen.

        Args:
            key: which object.
            version: how far the reflector has seen.
        """
        if state := self.states.get(key):
            self.remove(key, bare_object(key, state, version))

    def _delivered(self, event: WatchEvent, key: str, item: JsonObject, metadata: JsonObject) -> bool:
        # Items of a list come without these two, metadata-only ones with those of the wrapper.
        item["apiVersion"], item["kind"] = self._api_version, self._kind
        metadata.pop("managedFields", None)
        try:
            self._handler(event, item)
        except Exception as error:  # noqa: BLE001 -- one broken object or handler must not keep back the others
            _log.error(
                "an event of an object could not be handled, it will be delivered again after the next list",
                object=f"{self._kind} {key.removeprefix('/')}",
                watch_event=event,
                exc_info=error,
            )
            self.undelivered.add(key)
            self._on_undelivered()
            return False
        if self.undelivered:
            self.undelivered.discard(key)
        return True
