"""JSON patches (RFC 6902) of hooks: read, check whose values they touch, resolve, keep compact, apply again.

Pure. A patch is applied strictly once, when its hook returns (`resolve`). What is kept after that are only `add` and
`remove` operations, compacted to one for each path (`compact`), and applied leniently whenever the values below them
have changed (`reapply`). An operation inside an array is kept as an `add` of the whole array: indices mean nothing on
another base, and two appends to the same array must both survive.

Documents are never changed in place, and messages name operations and paths, never values.

Source: contract.md 2.7, RFC 6901, RFC 6902.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias, get_args

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import InputError
from addon_operator.values import layers

OperationName: TypeAlias = Literal["add", "remove", "replace", "move", "copy", "test"]

_Container: TypeAlias = list[JsonValue] | dict[str, JsonValue]

_BAD_ESCAPE = re.compile(r"~(?![01])")


class PatchError(InputError):
    """A patch cannot be read, touches what it must not, or does not fit the document.

    Attributes:
        problems: one line for each problem.
    """

    def __init__(self, where: str, problems: Sequence[str]) -> None:
        super().__init__("\n".join(f"{where}: {problem}" for problem in problems))
        self.problems = tuple(problems)


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """One operation.

    Attributes:
        op: its name.
        path: a JSON pointer, not empty.
        value: of add, replace and test.
        from_: a JSON pointer, of move and copy.
    """

    op: OperationName
    path: str
    value: JsonValue = dataclasses.field(default=None, repr=False)
    from_: str | None = None

    def as_json(self) -> JsonObject:
        """Answers the operation as it is written in a patch file."""
        document: JsonObject = {"op": self.op, "path": self.path}
        if self.from_ is not None:
            document["from"] = self.from_
        if self.op in {"add", "replace", "test"}:
            document["value"] = self.value
        return document


@dataclasses.dataclass(frozen=True, slots=True)
class OwnedOperations:
    """A patch split by what it touches.

    Attributes:
        section: operations on the owner's section.
        flags: section key -> what its enable flag becomes; None unsets it.
    """

    section: tuple[Operation, ...]
    flags: Mapping[str, bool | None]


@dataclasses.dataclass(frozen=True, slots=True)
class Resolution:
    """A patch that fits its document.

    Attributes:
        document: the document with the patch applied.
        operations: `add` and `remove` on paths that cross no array, in the order of the patch.
    """

    document: JsonValue = dataclasses.field(repr=False)
    operations: tuple[Operation, ...]


def parse(data: bytes, where: str) -> tuple[Operation, ...]:
    """Reads a patch file: JSON arrays of operations and single operations, one after the other; it may be empty.

    Members that an operation does not know are ignored, as RFC 6902 wants.

    Raises:
        PatchError: not JSON, or an operation that is none; all problems, with the number of the operation from 1.
    """
    operations, problems = [], []
    for number, item in enumerate(_items(data, where), start=1):
        problem = _problem(item)
        if problem is not None:
            problems.append(f"operation {number}: {problem}")
        elif isinstance(item, dict):
            operations.append(_operation(item))
    if problems:
        raise PatchError(where, problems)
    return tuple(operations)


def split(operations: Iterable[Operation], key: str, where: str) -> OwnedOperations:
    """Checks whose values a patch touches, and separates the enable flags.

    Args:
        operations: the patch.
        key: the section of the hook's owner: `global` may also set enable flags.
        where: what messages call the patch.

    Raises:
        PatchError: a path outside, or a flag that is no boolean; all of them.

    Source: contract.md 2.7 "Allowed root", 5.4 no. 3.
    """
    section: list[Operation] = []
    flags: dict[str, bool | None] = {}
    problems: list[str] = []
    for operation in operations:
        flag = _flag(operation) if key == layers.GLOBAL else None
        foreign = next((path for path in _paths(operation) if _root(path) != key), None)
        if flag is not None and operation.op != "remove" and layers.parse_flag(operation.value) is None:
            problems.append(f"{operation.op} {operation.path}: an enable flag must be true or false")
        elif flag is not None:
            flags[flag] = None if operation.op == "remove" else layers.parse_flag(operation.value)
        elif foreign is not None:
            problems.append(f"unacceptable patch operation for path {foreign!r}: {_allowed(key)}")
        else:
            section.append(operation)
    if problems:
        raise PatchError(where, problems)
    return OwnedOperations(tuple(section), flags)


def resolve(operations: Iterable[Operation], document: JsonValue, where: str) -> Resolution:
    """Applies a patch strictly, each operation to the result of those before it.

    Raises:
        PatchError: a path that does not exist, or a test that fails; the first one, since others depend on it.
    """
    kept: list[Operation] = []
    draft = _Draft(document)
    for operation in operations:
        try:
            _apply(operation, draft)
        except _MisfitError as misfit:
            raise PatchError(where, [f"{operation.op} {operation.path}: {misfit}"]) from misfit
        kept.extend(_settled(operation, draft.document))
    return Resolution(draft.document, tuple(kept))


def reapply(operations: Iterable[Operation], document: JsonValue) -> tuple[JsonValue, tuple[Operation, ...]]:
    """Applies kept operations to a base that may have changed.

    Args:
        operations: as `resolve` or `compact` returned them.
        document: the base.

    Returns:
        The result, and the operations that found no place: a parent that is missing or no map, nothing to remove.
    """
    skipped = []
    draft = _Draft(document)
    for operation in operations:
        try:
            draft.edit(operation.path, _lay(operation))
        except _MisfitError:
            skipped.append(operation)
    return draft.document, tuple(skipped)


def compact(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """Answers the shortest list of kept operations with the same result, sorted by path.

    A later operation replaces an earlier one on its path and drops all earlier ones below it.

    Source: contract.md 2.7 "Storage".
    """
    kept: dict[str, Operation] = {}
    for operation in reversed(operations):
        if not any(path in kept for path in jsondoc.ancestry(operation.path)):
            kept[operation.path] = operation
    return tuple(kept[path] for path in sorted(kept))


class _MisfitError(Exception):
    """An operation does not fit the document; says why, without values."""


def _items(data: bytes, where: str) -> Iterator[JsonValue]:
    for document in _documents(data, where):
        if isinstance(document, list):
            yield from document
        else:
            yield document


def _documents(data: bytes, where: str) -> Iterator[JsonValue]:
    try:
        yield from jsondoc.stream(data)
    except ValueError as error:
        raise PatchError(where, [f"not a JSON patch: {error}"]) from error


def _problem(item: JsonValue) -> str | None:
    if not isinstance(item, dict):
        return "must be an object"
    name = item.get("op")
    if name not in get_args(OperationName):
        return f"op must be one of {', '.join(get_args(OperationName))}"
    problem = _pointer_problem(item, "path")
    if problem is None and name in {"move", "copy"}:
        problem = _pointer_problem(item, "from")
    if problem is None and name in {"add", "replace", "test"} and "value" not in item:
        problem = "value is missing"
    return f"{name}: {problem}" if problem else None


def _pointer_problem(item: JsonObject, member: str) -> str | None:
    pointer = item.get(member)
    if pointer is None:
        return f"{member} is missing"
    if not isinstance(pointer, str) or not pointer.startswith("/") or _BAD_ESCAPE.search(pointer):
        return f"{member} must be a JSON pointer into the values, such as /section/key"
    return None


def _operation(item: JsonObject) -> Operation:
    source = item["from"] if item["op"] in {"move", "copy"} else None
    assert isinstance(source, str | None)
    value = item["value"] if item["op"] in {"add", "replace", "test"} else None
    name = next(known for known in get_args(OperationName) if known == item["op"])
    return Operation(name, str(item["path"]), value, source)


def _paths(operation: Operation) -> tuple[str, ...]:
    return (operation.path,) if operation.from_ is None else (operation.path, operation.from_)


def _root(path: str) -> str:
    return jsondoc.split(path)[0]


def _flag(operation: Operation) -> str | None:
    tokens = jsondoc.split(operation.path)
    if len(tokens) > 1 or operation.op not in {"add", "replace", "remove"}:
        return None
    return layers.flag_section(tokens[0])


def _allowed(key: str) -> str:
    flags = f" and enable flags such as '/someModule{layers.ENABLED_SUFFIX}'" if key == layers.GLOBAL else ""
    return f"this hook may change only '/{key}'{flags}"


def _apply(operation: Operation, draft: _Draft) -> None:
    if operation.op == "remove":
        draft.edit(operation.path, _remove)
    elif operation.op == "test":
        if not _equal(_find(draft.document, operation.path), operation.value):
            raise _MisfitError("the value is another one")
    elif operation.op == "replace":
        draft.edit(operation.path, _replace(operation.value))
    elif operation.from_ is None:
        draft.edit(operation.path, _add(operation.value))
    else:
        _transfer(operation.from_, operation.path, draft, moves=operation.op == "move")


def _transfer(source: str, path: str, draft: _Draft, *, moves: bool) -> None:
    value = _find(draft.document, source)
    if path == source:
        return
    if moves and source in jsondoc.ancestry(path):
        raise _MisfitError("a value cannot move into itself")
    if moves:
        draft.edit(source, _remove)
    # From here on the value is in two places, or in a kept operation: neither must change with the other.
    draft.share()
    draft.edit(path, _add(value))
    draft.share()


def _find(document: JsonValue, pointer: str) -> JsonValue:
    try:
        return jsondoc.lookup(document, pointer)
    except KeyError as error:
        raise _MisfitError(f"there is no {pointer}") from error


class _Draft:
    """A document that operations change, which leave the one that it began with as it was.

    Attributes:
        document: as it is by now.
    """

    def __init__(self, document: JsonValue) -> None:
        self.document = document
        # The containers that were copied already, so that a patch costs what it changes, and not the square of it.
        self._copies: dict[int, _Container] = {}

    def edit(self, path: str, change: Callable[[_Container, str], None]) -> None:
        """Lets `change` work on the container that a path ends in.

        Raises:
            _MisfitError: there is no such container; nothing was changed.
        """
        tokens = jsondoc.split(path)
        container = self.document = self._own(self.document, tokens[0])
        for parent, token in itertools.pairwise(tokens):
            if isinstance(container, list):
                index = _index(parent, len(container))
                child = container[index] = self._own(container[index], token)
            elif parent in container:
                child = container[parent] = self._own(container[parent], token)
            else:
                raise _MisfitError(f"there is no {parent!r}, which the path needs")
            container = child
        change(container, tokens[-1])

    def share(self) -> None:
        """Says that a part of the document is in use elsewhere now: everything is copied again before it changes."""
        self._copies.clear()

    def _own(self, node: JsonValue, token: str) -> _Container:
        if not isinstance(node, dict | list):
            raise _MisfitError(f"{token!r} would be below a scalar")
        if id(node) in self._copies:
            return node
        copy: _Container = dict(node) if isinstance(node, dict) else list(node)
        self._copies[id(copy)] = copy
        return copy


def _add(value: JsonValue) -> Callable[[_Container, str], None]:
    def change(container: _Container, key: str) -> None:
        if isinstance(container, dict):
            container[key] = value
        else:
            container.insert(len(container) if key == "-" else _index(key, len(container) + 1), value)

    return change


def _replace(value: JsonValue) -> Callable[[_Container, str], None]:
    def change(container: _Container, token: str) -> None:
        if isinstance(container, list):
            container[_index(token, len(container))] = value
        elif token in container:
            container[token] = value
        else:
            raise _MisfitError("there is nothing to replace")

    return change


def _remove(container: _Container, token: str) -> None:
    if isinstance(container, list):
        del container[_index(token, len(container))]
    elif token in container:
        del container[token]
    else:
        raise _MisfitError("there is nothing to remove")


def _lay(operation: Operation) -> Callable[[_Container, str], None]:
    change = _remove if operation.op == "remove" else _add(operation.value)

    def on_maps_only(container: _Container, token: str) -> None:
        if isinstance(container, list):
            raise _MisfitError("a map became a list")
        change(container, token)

    return on_maps_only


def _index(token: str, limit: int) -> int:
    index = jsondoc.array_index(token)
    if index is None or index >= limit:
        raise _MisfitError(f"{token!r} is no index of the array")
    return index


def _settled(operation: Operation, after: JsonValue) -> Iterator[Operation]:
    """Says the same as an operation that was just applied, with add and remove on paths that cross no array."""
    if operation.op == "test" or operation.from_ == operation.path:
        return
    if (
        operation.op == "move"
        and operation.from_ is not None
        and operation.path not in jsondoc.ancestry(operation.from_)
    ):
        yield _anchored(operation.from_, after, removed=True)
    yield _anchored(operation.path, after, removed=operation.op == "remove")


def _anchored(path: str, after: JsonValue, *, removed: bool) -> Operation:
    tokens = jsondoc.split(path)
    node = after
    for depth, token in enumerate(tokens):
        if isinstance(node, list):
            return Operation("add", jsondoc.join(*tokens[:depth]), node)
        assert isinstance(node, dict)
        if removed and depth == len(tokens) - 1:
            return Operation("remove", path)
        node = node[token]
    return Operation("add", path, node)


def _equal(one: JsonValue, other: JsonValue) -> bool:
    """RFC 6902, 4.6: like Python's equality, but a boolean is not a number."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and one == other
