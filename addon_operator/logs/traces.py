"""Exceptions as text without values: messages of our own hold none, those of others may quote anything.

Pure.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator

from addon_operator.errors import AddonOperatorError


def text(error: BaseException) -> str:
    """Says what went wrong: the message of an error of ours, what the system says, or only the type of an exception."""
    name = type(error).__name__
    if isinstance(error, AddonOperatorError):
        return str(error) or name
    if isinstance(error, OSError) and error.strerror:
        return f"{name}: {error.strerror}"
    return name


def stack(error: BaseException) -> str:
    """Gives the traceback of an exception, and of those that led to it, in the order in which they happened."""
    return "\n".join(_chain(error, set()))


def _chain(error: BaseException, seen: set[int]) -> Iterator[str]:
    if id(error) in seen:
        return
    seen.add(id(error))
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None:
        yield from _chain(before, seen)
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _chain(one, seen)
    yield "".join(["Traceback (most recent call last):\n", *traceback.format_tb(error.__traceback__), text(error)])
