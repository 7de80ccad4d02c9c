"""What has to be written so that the cluster has the registrations that are desired.

Pure. `RegistrationState` is what is known about the cluster; `registrar.py` writes the changes and notes how they end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.kube.refs import ObjectKey


@dataclass(frozen=True, slots=True)
class Change:
    """One write.

    Attributes:
        target: the object that it concerns.
        document: what to register; None if nothing of ours may stay.
    """

    target: ObjectKey
    document: JsonObject | None


@dataclass(slots=True)
class _Registration:
    """What is known about one object.

    Attributes:
        document: what is registered; None while that is not certain.
        awaited: the object that it belongs to does not exist yet.
        doubted: somebody may have changed it since the write began that is under way.
    """

    document: JsonObject | None = None
    awaited: bool = False
    doubted: bool = False


class RegistrationState:
    """What this process has registered, as far as it is known."""

    def __init__(self) -> None:
        self._known: dict[ObjectKey, _Registration] = {}

    def changes(self, desired: Mapping[ObjectKey, JsonObject]) -> tuple[Change, ...]:
        """Returns what has to be written: first what is desired, in its order, then what is desired no longer."""
        written = [
            Change(target, document) for target, document in desired.items() if not self.is_registered(target, document)
        ]
        return (*written, *(Change(target, None) for target in self._known if target not in desired))

    def is_registered(self, target: ObjectKey, document: JsonObject) -> bool:
        """Returns whether exactly this is known to be registered."""
        known = self._known.get(target)
        return known is not None and known.document == document

    def begin(self, target: ObjectKey) -> None:
        """Notes that a write begins: until it succeeds, nothing is certain about its target."""
        known = self._known.setdefault(target, _Registration())
        known.document, known.doubted = None, False

    def registered(self, target: ObjectKey, document: JsonObject) -> None:
        """Notes that a write has succeeded, unless its target was doubted meanwhile."""
        known = self._known[target]
        known.awaited = False
        if not known.doubted:
            known.document = document

    def awaits(self, target: ObjectKey) -> bool:
        """Notes that the object to write to does not exist; returns whether that is news."""
        known = self._known[target]
        is_news, known.awaited = not known.awaited, True
        return is_news

    def removed(self, target: ObjectKey) -> None:
        """Notes that nothing of ours is left."""
        self._known.pop(target, None)

    def doubt(self, target: ObjectKey) -> None:
        """Notes that somebody may have changed what is registered."""
        known = self._known.get(target)
        if known is not None:
            known.document, known.doubted = None, True
