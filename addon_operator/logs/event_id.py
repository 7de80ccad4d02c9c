"""Which event the work at hand goes back to: one id from an event through its tasks to its hook runs and helm runs.

The id belongs to the context of an asyncio task, so that every line logged on behalf of an event carries it as
`event_id`, whichever room logs it. Source: docs/debugging.md, "Logs".
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import itertools
import secrets
from collections.abc import Iterator

_numbers = itertools.count(1)
_current: contextvars.ContextVar[str] = contextvars.ContextVar("event_id", default="")


def current() -> str:
    """Returns the id of the event that is being handled; empty if none is."""
    return _current.get()


def current_or_new() -> str:
    """Returns the id of the event that is being handled; a new one if none is."""
    return _current.get() or _new()


def forget() -> None:
    """Leaves the event in which the running asyncio task was created; for tasks that outlive it."""
    _current.set("")


@contextlib.contextmanager
def new_event() -> Iterator[None]:
    """Begins an event, whatever was being handled when whoever reports it was started."""
    with handling(_new()):
        yield


@contextlib.contextmanager
def handling(event_id: str) -> Iterator[None]:
    """Handles an event that has an id already."""
    token = _current.set(event_id)
    try:
        yield
    finally:
        _current.reset(token)


def _new() -> str:
    return f"{_process()}-{next(_numbers)}"


@functools.cache
def _process() -> str:
    return secrets.token_hex(4)
