"""A TLS server for reviews: HTTP around a dispatcher of reviews."""

from __future__ import annotations

import functools
import ssl
from typing import Final

from aiohttp import web

from addon_operator.errors import SettingsError
from addon_operator.serving.http_server import HttpServer, Limits
from addon_operator.webhooks.dispatcher import FindRoute, ReviewDispatcher

# The API server keeps idle connections for 90 s; whoever ends them first should be the one who sends.
_IDLE_S: Final = 120.0
_CONNECTIONS: Final = 512
_LEAST_HELD_BYTES: Final = 128 * 2**20
_STOP_S: Final = 3.0


def limits(largest: int) -> Limits:
    """Returns what clients may use, when one review has at most so many bytes."""
    return Limits(
        connections=_CONNECTIONS, body_bytes=largest, held_bytes=max(2 * largest, _LEAST_HELD_BYTES), idle_s=_IDLE_S
    )


class ReviewServer:
    """Serves POST requests over TLS.

    Args:
        find_route: path -> route.
        at_once: reviews that run side by side; the others wait until their deadline.
        limits: for clients.
    """

    def __init__(self, find_route: FindRoute, *, at_once: int, limits: Limits) -> None:
        self._reviews = ReviewDispatcher(find_route, at_once=at_once)
        self._server = HttpServer("webhooks", [web.post("/{path:.*}", self._handle)], limits, stop_s=_STOP_S)

    async def start(self, *, address: str, port: int, context: ssl.SSLContext) -> int:
        """Begins to listen; returns the port (the one that was assigned, if 0 was asked for).

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
        await self._reviews.stop()

    async def _handle(self, request: web.Request) -> web.Response:
        reply = await self._reviews.answer(request.path, functools.partial(self._server.body, request))
        if reply.status != 200:
            return web.Response(status=reply.status, text=reply.body.decode())
        return web.Response(body=reply.body, content_type="application/json")
