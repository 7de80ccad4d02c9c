"""Work that goes on for a while although the task that waits for it is cancelled.

Two functions, for what asyncio has no word for: `asyncio.shield` keeps the work alive, but forgets it, and
`asyncio.timeout` ends with the first cancellation. Both here re-raise or return the cancellation, so that it is never
lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import TypeVar

_T = TypeVar("_T")


async def finish(
    work: Coroutine[object, object, _T],
    *,
    name: str,
    grace_s: float,
    on_error: Callable[[BaseException], None],
    hurry: bool = False,
) -> _T:
    """Runs the work and returns its result; a cancellation of the caller leaves the work some time to finish.

    Args:
        work: what belongs together, such as one helm operation and its record.
        name: of the asyncio task that runs it.
        grace_s: from the cancellation of the caller to the cancellation of the work. However long the work then takes
            to clean up, it is waited for.
        on_error: called with the error of work that fails after the cancellation, when nobody is left to raise it to.
        hurry: whether a second cancellation of the caller ends the grace time.

    Raises:
        CancelledError: the caller was cancelled; the work has ended.
        Exception: what the work raises, if the caller was not cancelled.
    """
    task = asyncio.create_task(work, name=name)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await outlast({task}, grace_s, hurry=hurry)
        if not task.done():
            task.cancel()
            await outlast({task})
        if not task.cancelled() and (error := task.exception()) is not None:
            on_error(error)
        raise


async def outlast(
    awaited: Collection[asyncio.Future[_T]], limit_s: float | None = None, *, hurry: bool = False
) -> asyncio.CancelledError | None:
    """Waits until all are done, although cancelled; returns the last cancellation, for the caller to raise.

    Args:
        awaited: what is waited for; not cancelled, and their exceptions are not looked at.
        limit_s: the most seconds to wait; None for as long as it takes.
        hurry: whether a cancellation ends the wait.
    """
    loop = asyncio.get_running_loop()
    cancelled: asyncio.CancelledError | None = None
    deadline = None if limit_s is None else loop.time() + limit_s
    while not all(future.done() for future in awaited) and not (hurry and cancelled):
        left_s = None if deadline is None else deadline - loop.time()
        if left_s is not None and left_s <= 0:
            break
        try:
            await asyncio.wait(awaited, timeout=left_s)
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled
