"""JSON values: types, deep merge, digests, streams and pointers (RFC 6901).

Pure. Documents are treated as immutable everywhere: functions return new containers and may share the unchanged parts.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import NoReturn, TypeAlias, Union

import orjson

JsonValue: TypeAlias = Union[bool, int, float, str, list["JsonValue"], dict[str, "JsonValue"], None]  # noqa: UP007
JsonObject: TypeAlias = dict[str, JsonValue]

_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")
_UNFIT = "JSON that is nested too deeply, or holds a number that is too large or a text that is not Unicode"
_BLANK = re.compile(r"[ \t\r\n]*")


class UnfitError(ValueError):
    """The text is JSON, so no other reader should be tried on it, but its value cannot be represented."""


def deep_merge(base: JsonValue, over: JsonValue) -> JsonValue:
    """Returns `base` with `over` merged over it.

    Maps are merged key by key; arrays and scalars of `over` replace those of `base`; null is a value like any other.

    Source: contract.md 2.7.
    """
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    merged = dict(base)
    for key, value in over.items():
        merged[key] = deep_merge(merged[key], value) if key in merged else value
    return merged


def dumps(value: JsonValue) -> bytes:
    """Encodes a value as compact JSON, keys in their own order.

    Raises:
        ValueError: JSON cannot hold it: nested deeper than 254 levels, an integer beyond 64 bits, a lone surrogate.
    """
    return _encode(value, 0)


def loads(data: bytes | str) -> JsonValue:
    """Decodes one JSON document.

    Raises:
        ValueError: it is not JSON; the message names the position, not the content.
    """
    value: JsonValue = orjson.loads(data)
    return value


def stream(data: bytes) -> Iterator[JsonValue]:
    """Reads JSON documents that follow one another, with or without white space between them.

    Raises:
        UnfitError: one of them is beyond what `loads` can read and `dumps` can write.
        ValueError: where the text stops being JSON; the messages name the position, not the content.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from None
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    start = _behind_blank(text, 0)
    while start < len(text):
        try:
            # The library reads one document at a time: the standard decoder finds where each of them ends.
            _, end = decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            raise ValueError(f"line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from None
        except RecursionError:
            raise UnfitError("JSON is nested too deeply") from None
        try:
            value = loads(text[start:end])
            dumps(value)
        except ValueError:
            line = text.count("\n", 0, start) + 1
            raise UnfitError(f"line {line}: {_UNFIT}") from None
        yield value
        start = _behind_blank(text, end)


def _refuse_constant(name: str) -> NoReturn:
    raise UnfitError(f"{name} is not JSON")


def _behind_blank(text: str, position: int) -> int:
    blank = _BLANK.match(text, position)
    return blank.end() if blank else position


def digest(value: JsonValue) -> str:
    """Returns a digest that is equal if and only if two values are: SHA-256 (hex) of their JSON with sorted keys.

    Raises:
        ValueError: as `dumps`.
    """
    return hashlib.sha256(_encode(value, orjson.OPT_SORT_KEYS)).hexdigest()


def _encode(value: JsonValue, option: int) -> bytes:
    try:
        return orjson.dumps(value, option=option)
    except orjson.JSONEncodeError as error:
        raise ValueError(str(error)) from error


def digest_bytes(*parts: bytes) -> str:
    """Digests several byte strings so that moving a byte from one to the next changes the result."""
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8, "big"))
        total.update(part)
    return total.hexdigest()


def escape(token: str) -> str:
    """Escapes one key for use inside a JSON pointer."""
    return token.replace("~", "~0").replace("/", "~1")


def join(*tokens: str) -> str:
    """Builds a JSON pointer from unescaped keys; no keys give the pointer of the whole document."""
    return "".join("/" + escape(token) for token in tokens)


def split(pointer: str) -> tuple[str, ...]:
    """Splits a JSON pointer into unescaped keys.

    Raises:
        ValueError: the pointer is neither empty nor starts with a slash.
    """
    if not pointer:
        return ()
    if not pointer.startswith("/"):
        raise ValueError(f"JSON pointer {pointer!r} does not start with '/'")
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/"))


def ancestry(pointer: str) -> Iterator[str]:
    """Lists a pointer and all those above it, the longest first, without that of the whole document."""
    while pointer:
        yield pointer
        pointer = pointer.rpartition("/")[0]


def array_index(token: str) -> int | None:
    """Returns the array index that a pointer's token names; None if it is none (RFC 6901: no sign, no leading zero)."""
    return int(token) if _INDEX.fullmatch(token) else None


def lookup(document: JsonValue, pointer: str) -> JsonValue:
    """Finds the value that a pointer names.

    Raises:
        KeyError: there is none.
    """
    here = document
    for token in split(pointer):
        if isinstance(here, dict) and token in here:
            here = here[token]
        elif isinstance(here, list) and (index := array_index(token)) is not None and index < len(here):
            here = here[index]
        else:
            raise KeyError(pointer)
    return here
