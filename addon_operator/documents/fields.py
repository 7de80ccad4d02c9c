"""Takes a JSON document apart and notes everything that is wrong with it, not only the first thing.

Pure. Errors name the path of the field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from addon_operator.documents.jsondoc import JsonObject, JsonValue

T = TypeVar("T")


@dataclass(slots=True)
class Fields:
    """One map of the document: its fields are taken out by name, problems are noted, what was not taken is unknown."""

    map: JsonObject
    path: str
    errors: list[str]
    seen: set[str] = field(default_factory=set)

    def at(self, key: str) -> str:
        """Answers the path of a field."""
        return f"{self.path}.{key}" if self.path else key

    def fail(self, key: str, problem: str) -> None:
        """Notes a problem of a field."""
        self.errors.append(f"{self.at(key)}: {problem}")

    def has(self, key: str) -> bool:
        """Answers whether a field is there at all, and takes it."""
        self.seen.add(key)
        return key in self.map

    def text(self, key: str, default: str = "", *, required: bool = False) -> str:
        """Takes a text; a required one must not be empty."""
        value = self.take(key, str, default, required=required)
        if required and self.map.get(key) == "":
            self.fail(key, "must not be empty")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        """Takes a boolean."""
        return self.take(key, bool, default)

    def integer(self, key: str, default: int = 0, *, required: bool = False) -> int:
        """Takes an integer."""
        return self.take(key, int, default, required=required)

    def choice(self, key: str, allowed: Sequence[str], default: str = "", *, required: bool = False) -> str:
        """Takes one of several texts."""
        value = self.take(key, str, default, required=required)
        if key in self.map and isinstance(self.map[key], str) and value not in allowed:
            self.fail(key, f"must be one of {', '.join(allowed)}")
        return value

    def texts(
        self, key: str, *, allowed: Sequence[str] = (), minimum: int = 0, required: bool = False
    ) -> tuple[str, ...]:
        """Takes a list of texts."""
        found: list[str] = []
        for index, item in enumerate(self._list(key, minimum=minimum, required=required)):
            if not isinstance(item, str):
                self.fail(f"{key}[{index}]", f"must be a string, not {_name_of(item)}")
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
        return tuple(
            parse_map(item, self.at(f"{key}[{index}]"), self.errors, parse) for index, item in enumerate(items)
        )

    def one(self, key: str, parse: Callable[[Fields], T]) -> T | None:
        """Takes a map; None when it is not there."""
        return parse_map(self.map[key], self.at(key), self.errors, parse) if self.has(key) else None

    def unknown(self) -> list[str]:
        """Answers the fields that nobody took, in order of the document."""
        return [key for key in self.map if key not in self.seen]

    def _list(self, key: str, *, minimum: int, required: bool) -> list[JsonValue]:
        items: list[JsonValue] = self.take(key, list, [], required=required)
        if isinstance(self.map.get(key), list) and len(items) < minimum:
            self.fail(key, "must not be empty")
        return items

    def take(self, key: str, kind: type[T], default: T, *, required: bool = False) -> T:
        """Takes a value of one JSON type."""
        if not self.has(key):
            if required:
                self.fail(key, "is required")
            return default
        value = self.map[key]
        # bool is an int for Python, not for JSON; 1.0 is an integer for JSON, not for Python.
        if kind is int and isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
            return value
        self.fail(key, f"must be {_NAMES[kind]}, not {_name_of(value)}")
        return default


_NAMES: Mapping[type, str] = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    list: "a list",
    dict: "a map",
    type(None): "null",
}


def _name_of(value: JsonValue) -> str:
    return _NAMES[type(value)]


def parse_map(value: JsonValue, path: str, errors: list[str], parse: Callable[[Fields], T]) -> T:
    """Parses one map and notes its unknown fields."""
    fields = Fields(value if isinstance(value, dict) else {}, path, errors)
    before = len(errors)
    result = parse(fields)
    if not isinstance(value, dict):
        del errors[before:]
        errors.append(f"{path + ': ' if path else ''}must be a map, not {_name_of(value)}")
    for key in fields.unknown():
        fields.fail(key, "unknown field")
    return result
