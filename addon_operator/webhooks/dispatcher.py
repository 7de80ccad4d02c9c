"""Runs reviews: finds who answers for a path, with a bound on how many run and a deadline for each.

A review that is late is answered at once; the work on it is cancelled and keeps its place until it has really ended, so
that slow hooks cannot pile up. Nothing here knows HTTP or TLS (`server.py`), nor what a review is about.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from addon_operator.errors import InputError
from addon_operator.logs import get_logger

_log = get_logger("webhooks")

_ENDED_WITHIN_S: Final = 10.0


class Review(Protocol):
    """A question of the API server that was understood."""

    async def answer(self) -> bytes:
        """Works out the answer; cancelled when it is late."""

    def late(self) -> bytes:
        """Returns the answer for that case."""


class Route(Protocol):
    """Where reviews of one sort arrive."""

    @property
    def timeout_s(self) -> float:
        """How long a review may take, waiting for its place included."""

    def read(self, body: bytes) -> Review:
        """Reads a review.

        Raises:
            InputError: it is none.
        """


FindRoute: TypeAlias = Callable[[str], Route | None]
"""Returns the route of a path; None for a path that nobody serves."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP status, and with it JSON (200) or a line of text."""

    status: int
    body: bytes


class ReviewDispatcher:
    """Has reviews answered.

    Args:
        find_route: path -> route.
        at_once: reviews that run side by side; the others wait until their deadline.
    """

    def __init__(self, find_route: FindRoute, *, at_once: int) -> None:
        self._find_route = find_route
        self._free = asyncio.Semaphore(at_once)
        self._running: set[asyncio.Task[bytes]] = set()

    async def answer(self, path: str, receive: Callable[[], Awaitable[bytes]]) -> Reply:
        """Answers one review.

        Args:
            path: of the request.
            receive: returns the whole body; what it raises is passed on.
        """
        route = self._find_route(path)
        if route is None:
            return _text(404, f"no hook serves {path}")
        # First the whole review: a place is for those that have something to do.
        body = await receive()
        deadline = asyncio.get_running_loop().time() + route.timeout_s
        try:
            async with asyncio.timeout_at(deadline):
                await self._free.acquire()
        except TimeoutError:
            _log.warning("too many reviews at once, the failure policy of the webhook decides", path=path)
            return _text(503, "too many reviews at once")
        # Whoever holds the place when this is left gives it back: the work, once there is some.
        with contextlib.ExitStack() as place:
            place.callback(self._free.release)
            try:
                review = route.read(body)
            except InputError as error:
                return _text(400, str(error))
            work = asyncio.create_task(review.answer(), name=f"review {path}")
            self._running.add(work)
            work.add_done_callback(self._ended)
            place.pop_all()
        answer = await _in_time(work, review, deadline)
        return _text(500, "the review could not be answered") if answer is None else Reply(200, answer)

    async def stop(self) -> None:
        """Cancels the reviews that still run, and waits a moment for their end."""
        for work in self._running:
            work.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=_ENDED_WITHIN_S)

    def _ended(self, work: asyncio.Task[bytes]) -> None:
        self._running.discard(work)
        self._free.release()
        if not work.cancelled() and (error := work.exception()) is not None:
            _log.error("a review could not be answered", task=work.get_name(), exc_info=error)


async def _in_time(work: asyncio.Task[bytes], review: Review, deadline: float) -> bytes | None:
    try:
        await asyncio.wait([work], timeout=max(deadline - asyncio.get_running_loop().time(), 0.0))
    except asyncio.CancelledError:
        work.cancel()
        raise
    if not work.done():
        work.cancel()
        return review.late()
    return None if work.cancelled() or work.exception() else work.result()


def _text(status: int, line: str) -> Reply:
    return Reply(status, f"{line}\n".encode())
