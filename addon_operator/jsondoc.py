"""JSON values: types, deep merge, digests and pointers (RFC 6901).

Pure. Documents are treated as immutable everywhere: functions return new containers and may share the unchanged parts.
"""

from __future__ import annotations

import hashlib
from typing import TypeAlias, Union

import orjson

JsonValue: TypeAlias = Union[bool, int, float, str, list["JsonValue"], dict[str, "JsonValue"], None]  # noqa: UP007
JsonObject: TypeAlias = dict[str, JsonValue]


def deep_merge(base: JsonValue, over: JsonValue) -> JsonValue:
    """Answers what `base` becomes when `over` is laid on top of it.

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
    """Encodes a value as compact JSON, keys in their own order."""
    return orjson.dumps(value)


def loads(data: bytes | str) -> JsonValue:
    """Decodes one JSON document.

    Raises:
        ValueError: it is not JSON; the message names the position, not the content.
    """
    value: JsonValue = orjson.loads(data)
    return value


def digest(value: JsonValue) -> str:
    """Answers whether two values are equal: the SHA-256 (hex) of the canonical JSON, keys sorted."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


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


def lookup(document: JsonValue, pointer: str) -> JsonValue:
    """Finds the value that a pointer names.

    Raises:
        KeyError: there is none.
    """
    here = document
    for token in split(pointer):
        if isinstance(here, dict) and token in here:
            here = here[token]
        elif isinstance(here, list) and token.isdigit() and int(token) < len(here):
            here = here[int(token)]
        else:
            raise KeyError(pointer)
    return here
