"""A connection of an HTTP server: its deadline, and which one is closed to make room for another."""

from __future__ import annotations

import asyncio
import dataclasses
import operator
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from typing import Final, cast

from aiohttp import web

GOODBYE_S: Final = 1.0


@dataclasses.dataclass(eq=False, slots=True)
class Occupant:
    """The holder of one of the places for connections.

    Attributes:
        client: its address; empty on a unix socket.
        idle_since: since when a whole request is awaited from it; None while one is handled.
        held: bytes of the body that it has sent so far.
    """

    client: str
    idle_since: float | None
    held: int = 0


def over_limit(occupants: Sequence[Occupant], client: str, *, most: int, most_per_client: int) -> Sequence[Occupant]:
    """Returns those of which one has to be closed before `client` may open another; empty if there is room."""
    of_client = [occupant for occupant in occupants if occupant.client == client]
    if len(of_client) >= most_per_client:
        return of_client
    return occupants if len(occupants) >= most else ()


def longest_idle(occupants: Iterable[Occupant]) -> Occupant | None:
    """Returns the one that has been idle for the longest time; None if all have sent a whole request."""
    idle = [(occupant.idle_since, occupant) for occupant in occupants if occupant.idle_since is not None]
    return min(idle, key=operator.itemgetter(0))[1] if idle else None


class Connection(Occupant, asyncio.Protocol):
    """A connection: passes everything to aiohttp's protocol, and ends it at its deadline.

    Attributes:
        protocol: aiohttp's.
        opening: done when the protocol has taken over, or the handshake has failed.
    """

    def __init__(self, client: str, protocol: web.RequestHandler, forget: Callable[[Connection], None]) -> None:
        self._loop = asyncio.get_running_loop()
        super().__init__(client, self._loop.time())
        self.protocol = protocol
        self.opening: asyncio.Future[None] = self._loop.create_future()
        self._forget = forget
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._ended = False

    def open(self, accepted: socket.socket, context: ssl.SSLContext | None, within_s: float) -> None:
        """Begins to serve an accepted socket, which has `within_s` for the TLS handshake and a request's headers."""
        self.opening = self._loop.create_task(self._open(accepted, context), name="connection opens")
        self.opening.add_done_callback(lambda _: accepted.close() if self._transport is None else None)
        self.set_deadline(within_s)

    async def _open(self, accepted: socket.socket, context: ssl.SSLContext | None) -> None:
        goodbye_s = GOODBYE_S if context else None
        try:
            await self._loop.connect_accepted_socket(
                lambda: self, accepted, ssl=context, ssl_shutdown_timeout=goodbye_s
            )
        except OSError:  # the client does not speak TLS, or is not trusted
            self.abort()

    def begin(self, within_s: float) -> None:
        """Notes that a whole request has arrived and is handled."""
        self.idle_since = None
        self.set_deadline(within_s)

    def rest(self, within_s: float) -> None:
        """Notes that the response is written."""
        self.idle_since = self._loop.time()
        self.set_deadline(within_s)

    def set_deadline(self, within_s: float) -> None:
        """Closes the connection `within_s` seconds from now."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if self._ended else self._loop.call_later(within_s, self.abort)

    def abort(self) -> None:
        """Closes it at once."""
        self._end()
        if self._transport is not None:
            self._transport.abort()
        else:
            self.opening.cancel()

    def _end(self) -> None:
        self._ended = True
        if self._deadline is not None:
            self._deadline.cancel()
        self._forget(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Passes it on."""
        self._transport = cast("asyncio.Transport", transport)
        self.protocol.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Passes it on and frees the place."""
        self._end()
        self.protocol.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Passes it on."""
        self.protocol.data_received(data)

    def eof_received(self) -> None:
        """Passes it on."""
        self.protocol.eof_received()

    def pause_writing(self) -> None:
        """Passes it on."""
        self.protocol.pause_writing()

    def resume_writing(self) -> None:
        """Passes it on."""
        self.protocol.resume_writing()
