"""JSON as hooks see it: types, copies, and paths such as `a.b[0]."key with.dots"`.

Standard library only: what is in this package is imported by every run of every Python hook.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypeVar

JsonValue: TypeAlias = bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"] | None
JsonObject: TypeAlias = dict[str, JsonValue]
JsonInput: TypeAlias = bool | int | float | str | Sequence["JsonInput"] | Mapping[str, "JsonInput"] | None
"""What may be given where JSON is wanted: also tuples and read-only maps."""

Path: TypeAlias = str | Sequence[str | int]
"""Where something is in a document: `"a.b[0]"`, or the keys one by one, `("a", "b", 0)`, which need no quoting."""

T = TypeVar("T", str, bool, int, float, list[JsonValue], dict[str, JsonValue])

_SEGMENT = re.compile(
    r"""\.(?P<bare>[^.\[\]"']+)|\.(?P<double>"(?:[^"\\]|\\.)*")|\.'(?P<single>[^']*)'|\[(?P<index>[0-9]+)\]""",
    re.DOTALL,
)
_INDEX = re.compile(r"0|[1-9][0-9]*")


def plain(value: JsonInput) -> JsonValue:
    """Returns an independent copy that is made of JSON types only.

    Raises:
        TypeError, ValueError: it cannot be written as JSON.
    """
    copied: JsonValue = json.loads(json.dumps(value, allow_nan=False, default=_as_dict))
    return copied


def _as_dict(value: object) -> dict[object, object]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def tokens(path: Path) -> tuple[str, ...]:
    """Splits a path into its keys; indices of lists become texts.

    Raises:
        ValueError: the path cannot be read.
    """
    if not isinstance(path, str):
        return tuple(map(str, path))
    if path in {"", "."}:
        return ()
    whole = path if path[0] in ".[" else f".{path}"
    found, end = [], 0
    while end < len(whole):
        match = _SEGMENT.match(whole, end)
        if match is None:
            raise ValueError(f"bad path: {path}")
        found.append(_key(match))
        end = match.end()
    return tuple(found)


def _key(match: re.Match[str]) -> str:
    double = match["double"]
    if double is not None:
        return str(json.loads(double))
    return next(match[name] for name in ("bare", "single", "index") if match[name] is not None)


def pointer(keys: Sequence[str]) -> str:
    """Writes keys as a JSON pointer (RFC 6901)."""
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)


def index(key: str, limit: int) -> int | None:
    """Returns which item of a list below `limit` a key means; None if it means none."""
    return int(key) if _INDEX.fullmatch(key) and int(key) < limit else None


def find(document: JsonValue, keys: Sequence[str]) -> JsonValue:
    """Returns what the keys lead to.

    Raises:
        KeyError: they lead nowhere; names the path.
    """
    value = document
    for key in keys:
        if isinstance(value, dict) and key in value:
            value = value[key]
            continue
        at = index(key, len(value)) if isinstance(value, list) else None
        if at is None or not isinstance(value, list):
            raise KeyError(pointer(keys))
        value = value[at]
    return value


def expect(value: JsonValue, kind: type[T], where: str) -> T:
    """Returns a value, known to be of one type; an integer is a float, too.

    Raises:
        TypeError: it is of another type; names `where` it is.
    """
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    raise TypeError(f"{where} is {type(value).__name__}, not {kind.__name__}")
