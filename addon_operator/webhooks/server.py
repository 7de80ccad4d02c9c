"""A TLS server for reviews. It knows routes, places and deadlines, not what a review is about.

A review that is late is answered at once; the work on it is cancelled and keeps its place until it has really ended, so
that slow hooks cannot pile up.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Final, Protocol

from aiohttp import web

from addon_operator.errors import InputError, SettingsError
from addon_operator.logs import get_logger
from addon_operator.serving.http_server import HttpServer, Limits

_log = get_logger("webhooks")

# The API server keeps idle connections for 90 s; whoever ends them first should be the one who sends.
_IDLE_S: Final = 120.0
_CONNECTIONS: Final = 512
_LEAST_HELD_BYTES: Final = 128 * 2**20
_STOP_S: Final = 3.0
_ENDED_S: Final = 10.0


class Review(Protocol):
    """A question of the API server that was understood."""

    async def answer(self) -> bytes:
        """Works out the answer; cancelled when it is late."""

    def late(self) -> bytes:
        """Gives the answer for that case."""


class Route(Protocol):
    """Where reviews of one sort arrive."""

    @property
    def timeout_s(self) -> float:
        """Answers how long a review may take, waiting for its place included."""

    def read(self, body: bytes) -> Review:
        """Reads a review.

        Raises:
            InputError: it is none.
        """


def limits(largest: int) -> Limits:
    """Returns what those who ask may use, when one review has at most so many bytes."""
    return Limits(
        connections=_CONNECTIONS, body_bytes=largest, held_bytes=max(2 * largest, _LEAST_HELD_BYTES), idle_s=_IDLE_S
    )


class ReviewServer:
    """Serves POST requests over TLS.

    Args:
        find: path -> route; None for a path that nobody serves.
        at_once: reviews that run side by side; the others wait until their deadline.
        limits: for those who ask.
    """

    def __init__(self, find: Callable[[str], Route | None], *, at_once: int, limits: Limits) -> None:
        self._find = find
        self._free = asyncio.Semaphore(at_once)
        self._server = HttpServer("webhooks", [web.post("/{path:.*}", self._handle)], limits, stop_s=_STOP_S)
        self._running: set[asyncio.Task[bytes]] = set()

    async def start(self, *, address: str, port: int, context: ssl.SSLContext) -> int:
        """Begins to listen; answers the port (the one chosen, if 0 was asked for).

        Raises:
            SettingsError: the address cannot be had.
        """
        try:
            return await self._server.start_tcp(address, port, context)
        except OSError as error:
            raise SettingsError(f"webhooks: cannot listen on {address}:{port}: {error.strerror or error}") from error

    async def stop(self) -> None:
        """Lets reviews in flight end for a moment, then cancels them; does nothing if it was not started."""
        await self._server.stop()
        for work in self._running:
            work.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=_ENDED_S)

    async def _handle(self, request: web.Request) -> web.Response:
        route = self._find(request.path)
        if route is None:
            return web.Response(status=404, text=f"no hook serves {request.path}\n")
        # First the whole review: a place is for those that have something to do.
        body = await self._server.body(request)
        deadline = asyncio.get_running_loop().time() + route.timeout_s
        try:
            async with asyncio.timeout_at(deadline):
                await self._free.acquire()
        except TimeoutError:
            _log.warning("too many reviews at once", reason=request.path)
            return web.Response(status=503, text="too many reviews at once\n")
        # Whoever holds the place when this is left gives it back: the work, once there is some.
        with contextlib.ExitStack() as place:
            place.callback(self._free.release)
            try:
                review = route.read(body)
            except InputError as error:
                return web.Response(status=400, text=f"{error}\n")
            work = asyncio.create_task(review.answer(), name=f"review {request.path}")
            self._running.add(work)
            work.add_done_callback(self._ended)
            place.pop_all()
        answer = await _in_time(work, review, deadline)
        if answer is None:
            return web.Response(status=500, text="the review could not be answered\n")
        return web.Response(body=answer, content_type="application/json")

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
