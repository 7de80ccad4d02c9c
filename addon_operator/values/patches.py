"""JSON patches (RFC 6902) of hooks: read them, and check whose values they change.

Pure. Messages name operations and paths, never values. What patches do to values is in `patching`.

Source: contract.md 2.7, RFC 6901, RFC 6902.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias, get_args

from addon_operator.documents import json_patch, jsondoc
from addon_operator.documents.fields import Fields, parse_map
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import InputError
from addon_operator.values import layers

OperationName: TypeAlias = Literal["add", "remove", "replace", "move", "copy", "test"]

_NAMES: Mapping[str, OperationName] = {name: name for name in get_args(OperationName)}
_POINTER = re.compile(r"/([^~]|~[01])*")


class PatchError(InputError):
    """A patch cannot be read, changes what it must not, or does not fit the document.

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
        """Returns the operation as it is written in a patch file."""
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


def parse(data: bytes, where: str) -> tuple[Operation, ...]:
    """Reads a patch file: JSON arrays of operations and single operations, one after the other; it may be empty.

    Unknown fields of operations are ignored, as RFC 6902 wants.

    Raises:
        PatchError: not JSON, or an operation that is none; all problems, with the number of the operation from 1.
    """
    operations: list[Operation] = []
    problems: list[str] = []
    for number, item in enumerate(_items(data, where), start=1):
        errors: list[str] = []
        operation = parse_map(item, "", errors, _operation, lenient=True)
        title = f" ({operation.op})" if operation else ""
        problems += [f"operation {number}{title}: {error}" for error in errors]
        operations += [operation] if operation else []
    if problems:
        raise PatchError(where, problems)
    return tuple(operations)


def split(operations: Iterable[Operation], key: str, where: str) -> OwnedOperations:
    """Checks whose values a patch changes, and separates the enable flags.

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


def _items(data: bytes, where: str) -> Iterator[JsonValue]:
    try:
        for document in jsondoc.stream(data):
            if isinstance(document, list):
                yield from document
            else:
                yield document
    except ValueError as error:
        raise PatchError(where, [f"not a JSON patch: {error}"]) from error


def _operation(fields: Fields) -> Operation | None:
    name = _NAMES.get(json_patch.check_operation(fields, _POINTER, "/section/key"))
    if name is None:
        return None
    return Operation(
        op=name,
        path=fields.text("path"),
        value=fields.map.get("value") if name in {"add", "replace", "test"} else None,
        from_=fields.text("from") if name in {"move", "copy"} else None,
    )


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
