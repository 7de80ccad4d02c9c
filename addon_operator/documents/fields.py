"""Takes a JSON document apart and notes everything that is wrong with it, not only the first thing.

Pure. Each problem starts with the path of its field, such as `kubernetes[0].kind: is required`. Problems name types,
never values, except where the value can only be a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from addon_operator.documents.jsondoc import JsonObject, JsonValue

T = TypeVar("T")


@dataclass(slots=True)
class Fields:
    """One map of the document: its fields are taken out by name, problems are noted, what was not taken is unknown.

    Attributes:
        map: the map.
        path: where it is in the document; empty for the document itself.
        errors: all problems so far, of the whole document.
        lenient: whether null counts as absent and unknown fields are ignored, as in the files that hooks write.
        seen: the fields that were taken; empty if lenient.
    """

    map: JsonObject
    path: str
    errors: list[str]
    lenient: bool = False
    seen: set[str] = field(default_factory=set)

    def at(self, key: str) -> str:
        """Returns the path of a field."""
        return f"{self.path}.{key}" if self.path else key

    def fail(self, key: str, problem: str) -> None:
        """Notes a problem of a field."""
        self.errors.append(f"{self.at(key)}: {problem}")

    def has(self, key: str) -> bool:
        """Returns whether a field is present, and takes it."""
        if self.lenient:
            return self.map.get(key) is not None
        self.seen.add(key)
        return key in self.map

    def text(self, key: str, default: str = "", *, required: bool = False) -> str:
        """Takes a string; a required one must not be empty."""
        value = self.take(key, str, default, required=required)
        if required and not value and self.map.get(key) == "":
            self.fail(key, "must not be empty")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        """Takes a boolean."""
        return self.take(key, bool, default)

    def integer(self, key: str, default: int = 0, *, required: bool = False) -> int:
        """Takes an integer."""
        return self.take(key, int, default, required=required)

    def number(self, key: str, default: float = 0.0, *, required: bool = False) -> float:
        """Takes a number."""
        return self.take(key, float, default, required=required)

    def numbers(self, key: str, *, minimum: int = 0, required: bool = False) -> tuple[float, ...]:
        """Takes a list of numbers; what is none is left out."""
        items = self._list(key, minimum=minimum, required=required)
        found = [(f"{key}[{index}]", _as(float, item), item) for index, item in enumerate(items)]
        for place, number, item in found:
            if number is None:
                self.fail(place, _mismatch(float, item))
        return tuple(number for _, number, _ in found if number is not None)

    def choice(self, key: str, allowed: Sequence[str], default: str = "", *, required: bool = False) -> str:
        """Takes one of several strings; the default, or the empty string, if it is none of them."""
        if not self.has(key):
            if required:
                self.fail(key, f"is required: one of {', '.join(allowed)}")
            return default
        value = self.take(key, str, default)
        if value in allowed:
            return value
        if isinstance(self.map[key], str):
            self.fail(key, f"must be one of {', '.join(allowed)}")
        return default

    def texts(
        self, key: str, *, allowed: Sequence[str] = (), minimum: int = 0, required: bool = False
    ) -> tuple[str, ...]:
        """Takes a list of strings; what is none is left out."""
        found: list[str] = []
        for index, item in enumerate(self._list(key, minimum=minimum, required=required)):
            if not isinstance(item, str):
                self.fail(f"{key}[{index}]", _mismatch(str, item))
            elif allowed and item not in allowed:
                self.fail(f"{key}[{index}]", f"must be one of {', '.join(allowed)}")
            else:
                found.append(item)
        return tuple(found)

    def each(
        self, key: str, parse: Callable[[Fields], T], *, minimum: int = 1, required: bool = False
    ) -> tuple[T, ...]:
        """Takes a list of maps."""
        items = self._list(key, minimum=minimum, required=required)
        return tuple(self._below(item, f"{key}[{index}]", parse) for index, item in enumerate(items))

    def one(self, key: str, parse: Callable[[Fields], T]) -> T | None:
        """Takes a map; None when it is absent."""
        return self._below(self.map[key], key, parse) if self.has(key) else None

    def take(self, key: str, kind: type[T], default: T, *, required: bool = False) -> T:
        """Takes a value of one JSON type."""
        if not self.has(key):
            if required:
                self.fail(key, "is required")
            return default
        found = self.map[key]
        value = found if type(found) is kind else _as(kind, found)
        if value is None:
            self.fail(key, _mismatch(kind, found))
            return default
        return value

    def _list(self, key: str, *, minimum: int, required: bool) -> list[JsonValue]:
        items: list[JsonValue] = self.take(key, list, [], required=required)
        if isinstance(self.map.get(key), list) and len(items) < minimum:
            self.fail(key, "must not be empty")
        return items

    def _below(self, value: JsonValue, key: str, parse: Callable[[Fields], T]) -> T:
        return parse_map(value, self.at(key), self.errors, parse, lenient=self.lenient)


def parse_map(
    value: JsonValue, path: str, errors: list[str], parse: Callable[[Fields], T], *, lenient: bool = False
) -> T:
    """Parses one map and notes the fields that `parse` does not take.

    Args:
        value: what should be a map.
        path: where it is in the document; empty for the document itself.
        errors: where problems go.
        parse: takes the fields; its result is worth nothing if there are problems.
        lenient: as in Fields.
    """
    fields = Fields(value if isinstance(value, dict) else {}, path, errors, lenient)
    before = len(errors)
    result = parse(fields)
    if not isinstance(value, dict):
        del errors[before:]
        errors.append(f"{path + ': ' if path else ''}{_mismatch(dict, value)}")
    elif not lenient:
        for key in fields.map:
            if key not in fields.seen:
                fields.fail(key, "unknown field")
    return result


_NAMES: Mapping[type, str] = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    list: "a list",
    dict: "a map",
    type(None): "null",
}


def _as(kind: type[T], value: JsonValue) -> T | None:
    """Returns the value if it is of the kind; None if it is not."""
    converted: object = value
    # bool is an int for Python, not for JSON; 1.0 is an integer for JSON, not for Python.
    if isinstance(value, bool):
        return value if isinstance(value, kind) and kind is bool else None
    if kind is int and isinstance(value, float) and value.is_integer():
        converted = int(value)
    elif kind is float and isinstance(value, int):
        converted = float(value)
    return converted if isinstance(converted, kind) else None


def _mismatch(kind: type, value: JsonValue) -> str:
    return f"must be {_NAMES[kind]}, not {_NAMES[type(value)]}"
