"""What an operation of a JSON patch looks like (RFC 6902). Pure."""

from __future__ import annotations

import re
from typing import Final

from addon_operator.documents.fields import Fields

OPERATIONS: Final = ("add", "remove", "replace", "move", "copy", "test")

ANY_POINTER: Final = re.compile(r"(/.*)?", re.DOTALL)
"""As the API server takes it: it lets malformed escapes pass."""


def check_operation(fields: Fields, pointer: re.Pattern[str] = ANY_POINTER, example: str = "") -> str:
    """Notes what is wrong with the form of an operation; fields that it does not know are no problem.

    Args:
        fields: the operation, lenient.
        pointer: what `path` and `from` must match.
        example: of such a pointer, for the problem.

    Returns:
        Its `op`; empty if that is the problem.
    """
    name = fields.choice("op", OPERATIONS, required=True)
    for key in {"": (), "move": ("path", "from"), "copy": ("path", "from")}.get(name, ("path",)):
        text = fields.take(key, str, "", required=True)
        if isinstance(fields.map.get(key), str) and not pointer.fullmatch(text):
            fields.fail(key, f"must be a JSON pointer{example and f' such as {example}'}")
    # null is a value like any other.
    if name in {"add", "replace", "test"} and "value" not in fields.map:
        fields.fail("value", "is required")
    return name
