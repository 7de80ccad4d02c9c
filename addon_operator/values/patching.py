"""What JSON patches (RFC 6902) do to values: apply them, keep their effect, apply it again.

Pure. A patch is applied strictly once, when its hook returns (`resolve`). What is kept after that are only `add` and
`remove` operations, compacted to one for each path (`compact`), and applied leniently whenever the values below them
have changed (`reapply`). An operation inside an array is kept as an `add` of the whole array: indices mean nothing on
another base, and two appends to the same array must both survive.

The library jsonpatch applies operations in place, to a document whose containers were copied as far as the patch
reaches; the documents that callers hold never change. Messages name operations and paths, never values: those of the
library do not leave this module.

Source: contract.md 2.7, RFC 6901, RFC 6902.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import jsonpatch

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonValue
from addon_operator.values.patches import Operation, PatchError

_Reach: TypeAlias = dict[str, "_Reach | None"]
"""Key -> what is changed below it: nothing if empty, everything if None."""


_FAILURES = (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, KeyError, ValueError, RecursionError)


@dataclasses.dataclass(frozen=True, slots=True)
class Resolution:
    """A patch that fits its document.

    Attributes:
        document: the document with the patch applied.
        operations: `add` and `remove` on paths that cross no array, in the order of the patch.
    """

    document: JsonValue = dataclasses.field(repr=False)
    operations: tuple[Operation, ...]


def resolve(operations: Sequence[Operation], document: JsonValue, where: str) -> Resolution:
    """Applies a patch strictly, each operation to the result of those before it.

    Raises:
        PatchError: a path that does not exist, or a test that fails; the first one, since others depend on it.
    """
    kept: list[Operation] = []
    result = _copied(document, _reach(operations))
    for operation in operations:
        try:
            value = _value(operation, result)
            result = jsonpatch.JsonPatch.operations[operation.op](operation.as_json()).apply(result)
        except _FAILURES as error:
            problem = _problem(operation, result, error)
            # The library's texts contain values, so nothing of the error is passed on.
            raise PatchError(where, [f"{operation.op} {operation.path}: {problem}"]) from None
        kept.extend(_settled(operation, value, result))
    return Resolution(result, tuple(kept))


def reapply(operations: Sequence[Operation], document: JsonValue) -> tuple[JsonValue, tuple[Operation, ...]]:
    """Applies kept operations to a base that may have changed.

    Args:
        operations: as `resolve` or `compact` returned them.
        document: the base.

    Returns:
        The result, and the operations that found no place: a parent that is missing or no map, nothing to remove.
    """
    reach = _reach(operations)
    result = _copied(document, reach)
    return result, tuple(operation for operation in operations if not _reapplied(operation, result, reach))


def compact(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """Returns the shortest list of kept operations with the same result, sorted by path.

    A later operation replaces an earlier one on its path and drops all earlier ones below it.

    Source: contract.md 2.7 "Storage".
    """
    kept: dict[str, Operation] = {}
    for operation in reversed(operations):
        if not any(path in kept for path in jsondoc.ancestry(operation.path)):
            kept[operation.path] = operation
    return tuple(kept[path] for path in sorted(kept))


def _reach(operations: Iterable[Operation]) -> _Reach:
    reach: _Reach = {}
    for operation in operations:
        if operation.op != "test":
            _extend(reach, operation.path, whole=False)
        if operation.op == "move" and operation.from_ is not None:
            # Later operations may change what was moved at its new place.
            _extend(reach, operation.from_, whole=True)
    return reach


def _extend(reach: _Reach, pointer: str, *, whole: bool) -> None:
    *parents, last = jsondoc.split(pointer)
    for token in parents:
        below = reach.setdefault(token, {})
        if below is None:
            return
        reach = below
    if whole:
        reach[last] = None
    else:
        reach.setdefault(last, {})


def _copied(value: JsonValue, reach: _Reach | None) -> JsonValue:
    """Copies the containers that change when something within reach does, and shares the others."""
    if reach == {}:
        return value
    if reach is None or isinstance(value, list):
        # In a list no index can be trusted: it may mean another item when its operation is applied.
        return jsondoc.loads(jsondoc.dumps(value))
    if isinstance(value, dict):
        return value | {key: _copied(value[key], below) for key, below in reach.items() if key in value}
    return value


def _value(operation: Operation, document: JsonValue) -> JsonValue:
    """Returns what an operation puts at its path, as it is now: what is in the document changes with it."""
    if operation.from_ is None:
        return operation.value
    return jsondoc.loads(jsondoc.dumps(jsondoc.lookup(document, operation.from_)))


def _problem(operation: Operation, document: JsonValue, error: Exception) -> str:
    """Says why an operation failed, without values; the first half of a move may be done already."""
    if isinstance(error, KeyError):
        return f"{operation.from_} does not exist"
    if isinstance(error, ValueError | RecursionError):
        return "the result is nested too deeply"
    if operation.op == "move" and operation.from_ in {*jsondoc.ancestry(operation.path)}:
        return "a value cannot move into itself"
    exists = operation.op in {"remove", "replace", "test"}
    parent, _, last = operation.path.rpartition("/")
    for pointer in reversed([*jsondoc.ancestry(operation.path if exists else parent)]):
        try:
            jsondoc.lookup(document, pointer)
        except KeyError:
            return f"{pointer} does not exist"
    return "the value differs" if operation.op == "test" else f"{last!r} is not a position in {parent}"


def _settled(operation: Operation, value: JsonValue, after: JsonValue) -> Iterator[Operation]:
    """Says the same as an operation that was just applied, with add and remove on paths that cross no array."""
    if operation.op == "test" or operation.from_ == operation.path:
        return
    if (
        operation.op == "move"
        and operation.from_ is not None
        and operation.path not in jsondoc.ancestry(operation.from_)
    ):
        yield _array_above(operation.from_, after) or Operation("remove", operation.from_)
    kept = Operation("remove" if operation.op == "remove" else "add", operation.path, value)
    yield _array_above(operation.path, after) or kept


def _array_above(path: str, document: JsonValue) -> Operation | None:
    """Returns the operation that adds the first array on the way to a path; None if there is none."""
    tokens = jsondoc.split(path)
    node = document
    for depth, token in enumerate(tokens):
        if isinstance(node, list):
            return Operation("add", jsondoc.join(*tokens[:depth]), node)
        node = node.get(token) if isinstance(node, dict) else None
    return None


def _reapplied(operation: Operation, document: JsonValue, reach: _Reach) -> bool:
    """Applies a kept operation in place, and returns whether it found its place."""
    *parents, last = jsondoc.split(operation.path)
    here, below = document, reach
    for token in parents:
        if not isinstance(here, dict) or token not in here:
            return False
        here, below = here[token], below[token] or {}
    if not isinstance(here, dict) or (operation.op == "remove" and last not in here):
        return False
    if operation.op == "remove":
        del here[last]
    else:
        here[last] = _copied(operation.value, below[last])
    return True
