"""Binding contexts: the JSON objects that say why a hook runs (contract.md 2.3).

Pure. A task carries what happened; the JSON is made when the hook starts, so that snapshots are those of the moment.
Objects stay the bytes that they arrived as: a context file is joined from them, never parsed or built as a whole.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, assert_never

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.hooks.config.model import (
    Admission,
    Conversion,
    HookConfig,
    Kubernetes,
    LifecycleKind,
    Schedule,
)
from addon_operator.kube.informers.store import Item
from addon_operator.kube.refs import WatchEvent

MOST_IN_A_RUN: Final = 1_000
_MOST_BYTES_IN_A_RUN: Final = 64 * 2**20
_V0_EVENTS: Final[dict[WatchEvent, str]] = {"Added": "add", "Modified": "update", "Deleted": "delete"}


@dataclass(frozen=True, slots=True)
class LifecycleContext:
    """A lifecycle event of the operator or of a module."""

    kind: LifecycleKind


@dataclass(frozen=True, slots=True)
class Synchronization:
    """The objects that exist already: the first context of a `kubernetes` binding."""

    binding: Kubernetes


@dataclass(frozen=True, slots=True)
class ObjectEvent:
    """An object was added, modified or deleted.

    Attributes:
        object: the whole object at the moment of the event, as JSON.
        filter_result: as JSON; None if the binding has no jq filter.
        kind, namespace, name: the object's, for v0 hooks and for people.
    """

    binding: Kubernetes
    watch_event: WatchEvent
    object: bytes = field(repr=False)
    filter_result: bytes | None = field(repr=False)
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A schedule is due."""

    binding: Schedule


@dataclass(frozen=True, slots=True)
class Review:
    """The API server asks whether a request is allowed, and how to mutate it."""

    binding: Admission
    request: JsonObject = field(repr=False)


@dataclass(frozen=True, slots=True)
class Convert:
    """The API server asks for objects in another version."""

    binding: Conversion
    from_version: str
    to_version: str
    request: JsonObject = field(repr=False)


Context: TypeAlias = LifecycleContext | Synchronization | ObjectEvent | Tick | Review | Convert
Items: TypeAlias = Callable[[Kubernetes], Sequence[Item]]


def binding_name(context: Context) -> str:
    """Returns the `binding` of a context."""
    return context.kind if isinstance(context, LifecycleContext) else context.binding.name


def group_of(context: Context) -> str:
    """Returns the group of a context's binding; empty if it has none."""
    return "" if isinstance(context, LifecycleContext) else context.binding.group


def allows_failure(context: Context) -> bool:
    """Returns whether a failed run for this context is not retried; lifecycle bindings never allow that."""
    return isinstance(context, Synchronization | ObjectEvent | Tick) and context.binding.allow_failure


def encode(contexts: Iterable[Context], config: HookConfig, items: Items) -> list[bytes]:
    """Writes the content of `BINDING_CONTEXT_PATH` as pieces that are to be joined.

    Args:
        contexts: in the order of their events.
        config: the hook's.
        items: the snapshot of one of its `kubernetes` bindings; asked once for each binding.

    Source: contract.md 2.3.
    """
    writer = _Writer(config, items)
    pieces = [b"["]
    for number, context in enumerate(contexts):
        if number:
            pieces.append(b",")
        pieces += writer.context(context)
    pieces.append(b"]")
    return pieces


def split_to_fit(
    contexts: Sequence[Context], config: HookConfig, size: Callable[[Kubernetes], int]
) -> tuple[tuple[Context, ...], tuple[Context, ...]]:
    """Returns the contexts, at least one, that go into one run, and those that are left for the next.

    Each context repeats the snapshots that it includes, so a burst would make a file of its number times their size.

    Args:
        contexts: in the order of their events.
        config: the hook's.
        size: the bytes of the snapshot of one of its `kubernetes` bindings.
    """
    sizes = collections.Counter[str]()
    for binding in config.kubernetes:
        sizes[binding.name] += size(binding)
    total = 0
    for count, context in enumerate(contexts[:MOST_IN_A_RUN]):
        included = () if isinstance(context, LifecycleContext) else context.binding.include_snapshots_from
        total += sum(sizes[name] for name in included)
        total += len(context.object) if isinstance(context, ObjectEvent) else 0
        if count and total > _MOST_BYTES_IN_A_RUN:
            break
    else:
        count = min(len(contexts), MOST_IN_A_RUN)
    return tuple(contexts[:count]), tuple(contexts[count:])


class _Writer:
    """Writes the contexts of one run; each snapshot is taken once, so that all of them show the same moment."""

    def __init__(self, config: HookConfig, items: Items) -> None:
        self._config = config
        self._items = items
        self._lists: dict[int, list[bytes]] = {}
        self._snapshots: dict[tuple[str, ...], list[bytes]] = {}

    def context(self, context: Context) -> Iterator[bytes]:
        fields, more = self._fields(context)
        yield jsondoc.dumps(fields)[:-1]
        yield from more
        yield b"}"

    def _fields(self, context: Context) -> tuple[JsonObject, Iterable[bytes]]:
        """Returns the small fields of a context, and the text of those that hold objects."""
        name: JsonObject = {"binding": binding_name(context)}
        if self._config.version == "v0":
            return name | _v0(context), ()
        if isinstance(context, LifecycleContext):
            # onStartup comes before anything is watched.
            return name, () if context.kind == "onStartup" else self._all_snapshots()
        snapshots = self._included(context.binding.include_snapshots_from)
        if context.binding.group and not isinstance(context, Review | Convert):
            return name | {"type": "Group", "groupName": context.binding.group}, snapshots
        match context:
            case Synchronization(binding=binding):
                return name | {"type": "Synchronization"}, [b',"objects":', *self._list(binding), *snapshots]
            case ObjectEvent():
                return name | {"type": "Event", "watchEvent": context.watch_event}, [*_object(context), *snapshots]
            case Tick():
                return name | {"type": "Schedule"}, snapshots
            case Review(binding=binding):
                type_ = binding.kind.removeprefix("kubernetes")
                return name | {"type": type_, "review": {"request": context.request}}, snapshots
            case Convert():
                versions: JsonObject = {"fromVersion": context.from_version, "toVersion": context.to_version}
                review: JsonObject = {"review": {"request": context.request}}
                return name | {"type": "Conversion"} | versions | review, snapshots
            case _:
                assert_never(context)

    def _included(self, names: tuple[str, ...]) -> list[bytes]:
        return self._snapshots_of(tuple(dict.fromkeys(names))) if names else []

    def _all_snapshots(self) -> list[bytes]:
        return self._snapshots_of(tuple(dict.fromkeys(binding.name for binding in self._config.kubernetes)))

    def _snapshots_of(self, names: tuple[str, ...]) -> list[bytes]:
        known = self._snapshots.get(names)
        if known is None:
            known = self._snapshots[names] = [b',"snapshots":{', *self._members(names), b"}"]
        return known

    def _members(self, names: Iterable[str]) -> Iterator[bytes]:
        for number, name in enumerate(names):
            yield (b"," if number else b"") + jsondoc.dumps(name) + b":"
            yield from self._list(*(binding for binding in self._config.kubernetes if binding.name == name))

    def _list(self, *bindings: Kubernetes) -> list[bytes]:
        pieces = [piece for binding in bindings for piece in self._pieces(binding)]
        return [b"[", *pieces[1:], b"]"] if pieces else [b"[]"]

    def _pieces(self, binding: Kubernetes) -> list[bytes]:
        """Returns the items of a binding, a comma before each."""
        place = next((at for at, other in enumerate(self._config.kubernetes) if other == binding), None)
        if place is None:  # the hook has changed since this run was queued
            return []
        known = self._lists.get(place)
        if known is None:
            known = self._lists[place] = [piece for item in self._items(binding) for piece in _item(item)]
        return known


def _item(item: Item) -> Iterator[bytes]:
    yield b","
    match item:
        case Item(object=None, filter_result=None):
            yield b"{}"
        case Item(object=None, filter_result=bytes(result)):
            yield from (b'{"filterResult":', result, b"}")
        case Item(object=bytes(document), filter_result=None):
            yield from (b'{"object":', document, b"}")
        case Item(object=bytes(document), filter_result=bytes(result)):
            yield from (b'{"object":', document, b',"filterResult":', result, b"}")


def _object(event: ObjectEvent) -> list[bytes]:
    result = [] if event.filter_result is None else [b',"filterResult":', event.filter_result]
    return [b',"object":', event.object, *result]


def _v0(context: Context) -> JsonObject:
    if not isinstance(context, ObjectEvent):
        return {}
    fields: dict[str, JsonValue] = {
        "resourceEvent": _V0_EVENTS[context.watch_event],
        "resourceNamespace": context.namespace,
        "resourceKind": context.kind,
        "resourceName": context.name,
    }
    return fields
