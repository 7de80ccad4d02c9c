"""Exceptions as text without values: our own messages contain none, those of libraries may quote anything.

Pure.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator

from addon_operator.errors import AddonOperatorError


def text(error: BaseException) -> str:
    """Returns the message of an error of ours, the reason of a system error, or only the type of another exception."""
    name = type(error).__name__
    if isinstance(error, AddonOperatorError):
        return str(error) or name
    if isinstance(error, OSError) and error.strerror:
        return f"{name}: {error.strerror}"
    return name


def stack(error: BaseException) -> str:
    """Returns the traceback of an exception, after those of the exceptions that led to it."""
    return "\n".join(_chain(error, set()))


def _chain(error: BaseException, seen: set[int]) -> Iterator[str]:
    if id(error) in seen:
        return
    seen.add(id(error))
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None:
        yield from _chain(before, seen)
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _chain(member, seen)
    yield "".join(["Traceback (most recent call last):\n", *traceback.format_tb(error.__traceback__), text(error)])
