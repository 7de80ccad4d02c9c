"""Why a hook runs: its binding contexts as objects. Source: contract.md 2.3."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from addon_operator.sdk.bindings import WatchEvent
from addon_operator.sdk.jsondata import JsonObject, JsonValue, Path, T, expect, find, pointer, tokens

_EVENTS: Final[Mapping[str, WatchEvent]] = {
    "Added": "Added", "Modified": "Modified", "Deleted": "Deleted",
    "add": "Added", "update": "Modified", "delete": "Deleted",
}  # fmt: skip
_POINTS: Final = frozenset(
    {"onStartup", "beforeAll", "afterAll", "beforeHelm", "afterHelm", "beforeDeleteHelm", "afterDeleteHelm"}
)


@dataclass(frozen=True, slots=True)
class Item:
    """One object of a snapshot or an event.

    Attributes:
        object: empty if the binding has `keep_full_objects=False`.
        filter_result: what `jq_filter` made of it; None without one.
    """

    object: JsonObject = field(repr=False)
    filter_result: JsonValue = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The name of the object; KeyError if the object was not kept."""
        return self.expect("metadata.name", str)

    @property
    def namespace(self) -> str | None:
        """The namespace of the object, None if it is in none; KeyError if the object was not kept."""
        metadata = self.expect("metadata", dict)
        return expect(metadata["namespace"], str, "/metadata/namespace") if "namespace" in metadata else None

    def expect(self, path: Path, kind: type[T]) -> T:
        """Returns what is somewhere in the object, known to be of one type.

        Raises:
            KeyError: nothing is there.
            TypeError: it is of another type.
        """
        keys = tokens(path)
        return expect(find(self.object, keys), kind, pointer(keys))


@dataclass(frozen=True, slots=True)
class AtPoint:
    """A point of the lifecycle was reached, such as `beforeHelm`."""

    binding: str


@dataclass(frozen=True, slots=True)
class AtTime:
    """A schedule fired."""

    binding: str


@dataclass(frozen=True, slots=True)
class Synchronization:
    """The objects that exist when a `Kubernetes` binding starts, by namespace and name."""

    binding: str
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """An object came, changed or went; `item` is as it was at that moment."""

    binding: str
    event: WatchEvent
    item: Item


@dataclass(frozen=True, slots=True)
class Group:
    """Something happened to a binding of a group: look at the snapshots."""

    binding: str
    group: str


@dataclass(frozen=True, slots=True)
class Review:
    """The API server asks about a request: answer with `Context.admission`.

    Attributes:
        mutating: whether the answer may hold a patch.
        request: the AdmissionRequest.
    """

    binding: str
    mutating: bool
    request: JsonObject = field(repr=False)


@dataclass(frozen=True, slots=True)
class ConversionReview:
    """The API server wants objects in another version: answer with `Context.conversion`."""

    binding: str
    from_version: str
    to_version: str
    objects: tuple[JsonObject, ...] = field(repr=False)


BindingContext: TypeAlias = AtPoint | AtTime | Synchronization | Event | Group | Review | ConversionReview


def read_context(document: JsonValue) -> BindingContext:
    """Reads one binding context.

    Raises:
        ValueError: its type or its event is unknown.
    """
    raw = _map(document)
    binding = _text(raw, "binding") or "unknown"
    match raw.get("type"):
        case None if "resourceEvent" in raw:
            return Event(binding, _event(_text(raw, "resourceEvent")), read_item(raw))
        case None:
            return AtPoint(binding) if binding in _POINTS else AtTime(binding)
        case "Schedule":
            return AtTime(binding)
        case "Synchronization":
            return Synchronization(binding, read_items(raw.get("objects")))
        case "Event":
            return Event(binding, _event(_text(raw, "watchEvent")), read_item(raw))
        case "Group":
            return Group(binding, _text(raw, "groupName") or binding)
        case "Validating" | "Mutating" as kind:
            return Review(binding, kind == "Mutating", _request(raw))
        case "Conversion":
            objects = tuple(map(_map, _list(_request(raw).get("objects"))))
            return ConversionReview(binding, _text(raw, "fromVersion"), _text(raw, "toVersion"), objects)
        case _:
            raise ValueError(f"binding {binding!r}: the type of its context is unknown")


class Snapshots(dict[str, tuple[Item, ...]]):
    """The snapshots that a run was given, by binding."""

    def __init__(self, watched: Iterable[str], happened: Iterable[str]) -> None:
        """Begins without any.

        Args:
            watched: bindings that have snapshots.
            happened: bindings that the run is for.
        """
        super().__init__()
        self._watched = frozenset(watched)
        self._happened = ", ".join(dict.fromkeys(happened))

    def __missing__(self, name: str) -> tuple[Item, ...]:
        if name not in self._watched:
            raise KeyError(name)
        raise LookupError(
            f"this run, for {self._happened}, was not given the snapshot {name!r}:"
            f" bindings ask for it with include_snapshots_from=[{name!r}]"
        )


def read_snapshots(document: JsonValue) -> dict[str, tuple[Item, ...]]:
    """Reads the snapshots of one binding context."""
    return {name: read_items(items) for name, items in _map(_map(document).get("snapshots")).items()}


def read_items(value: JsonValue) -> tuple[Item, ...]:
    """Reads a list of items."""
    return tuple(map(read_item, _list(value)))


def read_item(value: JsonValue) -> Item:
    """Reads an item, or the fields of one in a context."""
    raw = _map(value)
    return Item(_map(raw.get("object")), raw.get("filterResult"))


def _event(word: str) -> WatchEvent:
    if word not in _EVENTS:
        raise ValueError(f"{word!r} is no event of an object")
    return _EVENTS[word]


def _request(raw: JsonObject) -> JsonObject:
    return _map(_map(raw.get("review")).get("request"))


def _map(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _text(raw: JsonObject, key: str) -> str:
    value = raw.get(key)
    return value if isinstance(value, str) else ""
