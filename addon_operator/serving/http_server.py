"""HTTP servers whose connections cannot use up the process: all that listen are made here.

A server has a bound on its connections, on those of one client address, and on the bytes of the bodies that it holds.
Who comes when a bound is reached takes the place of the connection that has been idle for the longest time; idle is
every connection that has not sent a whole request. So a thousand silent clients do not keep a probe out. Each
connection has a deadline at every moment: to send a request, to be answered, to be reused.

Connections are accepted here rather than by asyncio's own server, which knows no bound, and which, once descriptors
have run out, logs and tries again without a pause. The protocol is aiohttp's.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import operator
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, cast

from aiohttp import ClientPayloadError, web

from addon_operator.logs import get_logger
from addon_operator.process import file_limit

_log = get_logger("http")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_BACKLOG: Final = 128
_ACCEPTED_AT_ONCE: Final = 32
_ACCEPT_PAUSE_S: Final = 1.0
_GOODBYE_S: Final = 1.0
_KIB: Final = 2**10


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the clients of one server may use. Times are seconds.

    Attributes:
        connections: all that are open; fewer if the process may have few descriptors.
        client_share: which part of them may come from one address.
        body_bytes: of one request.
        held_bytes: of all bodies that are being received or worked on.
        receive_s: from the start of a connection, TLS included, to the end of the first headers; again for the
            body of each request.
        request_s: from the whole request to the response.
        idle_s: from one response, which the client has to read within that time, to the next request's headers.
    """

    connections: int = 256
    client_share: float = 0.5
    body_bytes: int = 64 * _KIB
    held_bytes: int = 4 * 2**20
    receive_s: float = 10.0
    request_s: float = 120.0
    idle_s: float = 60.0


@dataclasses.dataclass(eq=False, slots=True)
class Occupant:
    """Who has one of the places for connections.

    Attributes:
        client: its address; empty on a unix socket.
        idle_since: since when it owes a whole request; None while one is worked on.
        held: bytes of the body that it has sent so far.
    """

    client: str
    idle_since: float | None
    held: int = 0


def over_limit(occupants: Sequence[Occupant], client: str, *, most: int, most_per_client: int) -> Sequence[Occupant]:
    """Returns those of whom one has to go before `client` may have one more connection; empty if there is room."""
    of_client = [occupant for occupant in occupants if occupant.client == client]
    if len(of_client) >= most_per_client:
        return of_client
    return occupants if len(occupants) >= most else ()


def longest_idle(occupants: Iterable[Occupant]) -> Occupant | None:
    """Returns who has owed a whole request for the longest time; None if all have sent one."""
    idle = [(occupant.idle_since, occupant) for occupant in occupants if occupant.idle_since is not None]
    return min(idle, key=operator.itemgetter(0))[1] if idle else None


class HttpServer:
    """Serves routes on sockets, within limits."""

    def __init__(self, name: str, routes: Iterable[web.AbstractRouteDef], limits: Limits, *, stop_s: float) -> None:
        """Takes what it serves; `start` does the work.

        Args:
            name: what the log calls it.
            routes: of aiohttp; a handler gets the body of a request from `body`.
            limits: for its clients.
            stop_s: how long requests in flight may take to end on `stop`.
        """
        self._name = name
        self._routes = tuple(routes)
        self._limits = limits
        self._stop_s = stop_s
        self._most = limits.connections
        self._held = 0
        self._context: ssl.SSLContext | None = None
        self._sockets: list[socket.socket] = []
        self._runner: web.AppRunner | None = None
        self._connections: dict[asyncio.BaseProtocol, _Connection] = {}

    async def start_tcp(self, address: str, port: int, context: ssl.SSLContext | None = None) -> int:
        """Listens on an address; returns the port (the one chosen, if 0 was asked for).

        Raises:
            OSError: the address cannot be had.
        """
        sockets = await _listen(address, port)
        await self.start(sockets, context)
        return int(sockets[0].getsockname()[1])

    async def start(self, sockets: Sequence[socket.socket], context: ssl.SSLContext | None = None) -> None:
        """Serves on bound sockets, which it closes in the end.

        Args:
            sockets: bound, of any family.
            context: for TLS; none without it.
        """
        application = web.Application(middlewares=[self._observe])
        application.add_routes(self._routes)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=self._stop_s, lingering_time=_GOODBYE_S)
        await runner.setup()
        self._runner, self._context, self._sockets = runner, context, list(sockets)
        self._most = file_limit.connections_for(self._limits.connections, file_limit.current())
        for listener in self._sockets:
            listener.setblocking(False)
            listener.listen(_BACKLOG)
            self._resume(listener)

    async def stop(self) -> None:
        """Gives requests in flight `stop_s` to end, then ends all connections; does nothing if it was not started."""
        if self._runner is None:
            return
        loop = asyncio.get_running_loop()
        for listener in self._sockets:
            loop.remove_reader(listener.fileno())
            listener.close()
        self._sockets = []
        runner, self._runner = self._runner, None
        left = tuple(self._connections.values())
        await runner.cleanup()
        # A polite TLS goodbye would outlive the server.
        for connection in left:
            connection.abort()
        await asyncio.gather(*(connection.opening for connection in left), return_exceptions=True)
        await asyncio.sleep(0)

    async def body(self, request: web.Request) -> bytes:
        """Receives the body of a request; only then the connection counts as busy.

        Raises:
            web.HTTPException: it is too large, late or cut off, or the server holds too much already.
        """
        connection = self._connection(request)
        most = self._limits.body_bytes
        if (request.content_length or 0) > most:
            raise web.HTTPRequestEntityTooLarge(max_size=most, actual_size=request.content_length or 0)
        data = bytearray()
        try:
            async with asyncio.timeout(self._limits.receive_s):
                async for chunk in request.content.iter_any():
                    data += chunk
                    if len(data) > most:
                        raise web.HTTPRequestEntityTooLarge(max_size=most, actual_size=len(data))
                    self._hold(connection, len(chunk))
        except TimeoutError as error:
            raise web.HTTPRequestTimeout(text="the body of the request did not arrive in time\n") from error
        except (OSError, ClientPayloadError) as error:
            raise web.HTTPBadRequest(text="the body of the request was cut off\n") from error
        connection.begin(self._limits.request_s)
        return bytes(data)

    def _connection(self, request: web.Request) -> _Connection:
        connection = self._connections.get(request.protocol)
        if connection is None:  # it was closed just now, nobody reads this
            raise web.HTTPServiceUnavailable
        return connection

    def _hold(self, connection: _Connection, size: int) -> None:
        """Counts bytes of a body; where they are too many, the connection that has been sending for longest goes."""
        while self._held + size > self._limits.held_bytes:
            others = [other for other in self._connections.values() if other is not connection and other.held]
            victim = longest_idle(others)
            if victim is None:
                raise web.HTTPServiceUnavailable(text="too many large requests at once\n")
            self._close(victim, "it sends a large body slowly")
        self._held += size
        connection.held += size

    def _release(self, connection: _Connection) -> None:
        self._held -= connection.held
        connection.held = 0

    @web.middleware
    async def _observe(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        connection = self._connection(request)
        if request.can_read_body:
            connection.set_deadline(self._limits.receive_s + _GOODBYE_S)
        else:
            connection.begin(self._limits.request_s)
        try:
            return await handler(request)
        finally:
            self._release(connection)
            connection.rest(self._limits.idle_s)

    def _resume(self, listener: socket.socket) -> None:
        if listener in self._sockets:
            asyncio.get_running_loop().add_reader(listener.fileno(), self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, peer = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # mostly for want of descriptors, and then it would be ready again at once
                _log.warning("connections are not accepted for a moment", server=self._name, reason=error.strerror)
                loop = asyncio.get_running_loop()
                loop.remove_reader(listener.fileno())
                loop.call_later(_ACCEPT_PAUSE_S, self._resume, listener)
                self._close(longest_idle(self._connections.values()), "there are no file descriptors left")
                return
            self._take(accepted, peer[0] if isinstance(peer, tuple) else "")

    def _take(self, accepted: socket.socket, client: str) -> None:
        per_client = max(1, int(self._most * self._limits.client_share)) if client else self._most
        rivals = over_limit(tuple(self._connections.values()), client, most=self._most, most_per_client=per_client)
        if rivals:
            victim = longest_idle(rivals)
            if victim is None:
                _log.warning("connection refused", server=self._name, reason=f"{len(rivals)} are busy", client=client)
                accepted.close()
                return
            self._close(victim, f"{len(rivals)} are open, and one more came")
        assert self._runner is not None
        assert self._runner.server is not None
        accepted.setblocking(False)
        connection = _Connection(client, self._runner.server(), self._forget)
        self._connections[connection.protocol] = connection
        connection.open(accepted, self._context, self._limits.receive_s)

    def _close(self, occupant: Occupant | None, reason: str) -> None:
        if isinstance(occupant, _Connection):
            _log.warning("idle connection closed", server=self._name, reason=reason, client=occupant.client)
            self._release(occupant)
            occupant.abort()

    def _forget(self, connection: _Connection) -> None:
        self._connections.pop(connection.protocol, None)


class _Connection(Occupant, asyncio.Protocol):
    """One connection: hands everything on to aiohttp's protocol, and knows when its time is over.

    Attributes:
        protocol: aiohttp's.
        opening: done when the protocol has taken over, or never will.
    """

    def __init__(self, client: str, protocol: web.RequestHandler, forget: Callable[[_Connection], None]) -> None:
        self._loop = asyncio.get_running_loop()
        super().__init__(client, self._loop.time())
        self.protocol = protocol
        self.opening: asyncio.Future[None] = self._loop.create_future()
        self._forget = forget
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._ended = False

    def open(self, accepted: socket.socket, context: ssl.SSLContext | None, within_s: float) -> None:
        """Begins to serve an accepted socket, which has so long to agree on TLS and to send a request."""
        self.opening = self._loop.create_task(self._open(accepted, context), name="connection opens")
        self.opening.add_done_callback(lambda _: accepted.close() if self._transport is None else None)
        self.set_deadline(within_s)

    async def _open(self, accepted: socket.socket, context: ssl.SSLContext | None) -> None:
        goodbye_s = _GOODBYE_S if context else None
        try:
            await self._loop.connect_accepted_socket(
                lambda: self, accepted, ssl=context, ssl_shutdown_timeout=goodbye_s
            )
        except OSError:  # the client does not speak TLS, or is not trusted
            self.abort()

    def begin(self, within_s: float) -> None:
        """Notes that the request is there and is worked on."""
        self.idle_since = None
        self.set_deadline(within_s)

    def rest(self, within_s: float) -> None:
        """Notes that the request is answered."""
        self.idle_since = self._loop.time()
        self.set_deadline(within_s)

    def set_deadline(self, within_s: float) -> None:
        """Ends the connection so many seconds from now."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if self._ended else self._loop.call_later(within_s, self.abort)

    def abort(self) -> None:
        """Ends it at once."""
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
        """Hands it on."""
        self._transport = cast("asyncio.Transport", transport)
        self.protocol.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Hands it on; the place is free."""
        self._end()
        self.protocol.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Hands it on."""
        self.protocol.data_received(data)

    def eof_received(self) -> None:
        """Hands it on."""
        self.protocol.eof_received()

    def pause_writing(self) -> None:
        """Hands it on."""
        self.protocol.pause_writing()

    def resume_writing(self) -> None:
        """Hands it on."""
        self.protocol.resume_writing()


async def _listen(address: str, port: int) -> list[socket.socket]:
    """Binds a socket for each address that the name stands for."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(where[:2], family=family, backlog=_BACKLOG))
            for family, where in dict.fromkeys((family, where) for family, *_, where in found)
        ]
        stack.pop_all()
    return sockets
