"""HTTP servers whose clients cannot exhaust the process; every listening server is an `HttpServer`.

A server limits its connections, those of one client address, and the bytes of the bodies that it holds. At a limit, a
new connection replaces the one that has been idle for the longest time; idle is every connection that has not sent a
whole request. So a thousand silent clients do not keep a probe out. Each connection has a deadline at every moment: to
send a request, to get its response, to be reused.

Connections are accepted here rather than by asyncio's own server, which has no limits, and which, once descriptors have
run out, logs and retries without a pause. The protocol is aiohttp's.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from aiohttp import ClientPayloadError, web
from aiohttp.http_exceptions import HttpProcessingError

from addon_operator.logs import get_logger
from addon_operator.process import file_limit
from addon_operator.serving.connection import GOODBYE_S, Connection, Occupant, longest_idle, over_limit

_log = get_logger("http")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_BACKLOG: Final = 128
_ACCEPTED_AT_ONCE: Final = 32
_ACCEPT_PAUSE_S: Final = 1.0
_KIB: Final = 2**10


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the clients of a server may use. Times are seconds.

    Attributes:
        connections: open at the same time; fewer if the process may have few descriptors.
        client_share: the part of them that one client address may have.
        body_bytes: of one request.
        held_bytes: of all bodies that are being received or handled.
        receive_s: from the start of a connection, TLS handshake included, to the end of the first headers; again for
            the body of each request.
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


class HttpServer:
    """Serves routes on sockets, within limits."""

    def __init__(self, name: str, routes: Iterable[web.AbstractRouteDef], limits: Limits, *, stop_s: float) -> None:
        """Prepares the server; `start` opens it.

        Args:
            name: in the log.
            routes: of aiohttp; a handler reads the body of a request with `body`.
            limits: for its clients.
            stop_s: how long requests in progress may take to finish on `stop`.
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
        self._connections: dict[asyncio.BaseProtocol, Connection] = {}

    async def start_tcp(self, address: str, port: int, context: ssl.SSLContext | None = None) -> int:
        """Listens on an address; returns the port (a free one if `port` is 0).

        Raises:
            OSError: the address cannot be bound.
        """
        sockets = await _listen(address, port)
        await self.start(sockets, context)
        return int(sockets[0].getsockname()[1])

    async def start(self, sockets: Sequence[socket.socket], context: ssl.SSLContext | None = None) -> None:
        """Serves on bound sockets, which `stop` closes.

        Args:
            sockets: bound, of any family.
            context: for TLS; plain HTTP if None.
        """
        application = web.Application(middlewares=[self._observe])
        application.add_routes(self._routes)
        logger = logging.Logger(self._name)
        logger.addHandler(_ProtocolErrors(self._name))
        runner = web.AppRunner(
            application, access_log=None, logger=logger, shutdown_timeout=self._stop_s, lingering_time=GOODBYE_S
        )
        await runner.setup()
        self._runner, self._context, self._sockets = runner, context, list(sockets)
        self._most = file_limit.connections_for(self._limits.connections, file_limit.current())
        for listener in self._sockets:
            listener.setblocking(False)
            listener.listen(_BACKLOG)
            self._resume(listener)

    async def stop(self) -> None:
        """Leaves requests in progress `stop_s` to finish, then closes all connections; does nothing if not started."""
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
        # A TLS close handshake would outlive the server.
        for connection in left:
            connection.abort()
        await asyncio.gather(*(connection.opening for connection in left), return_exceptions=True)
        await asyncio.sleep(0)

    async def body(self, request: web.Request) -> bytes:
        """Receives the body of a request; only after that the connection counts as busy.

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

    def _connection(self, request: web.Request) -> Connection:
        connection = self._connections.get(request.protocol)
        if connection is None:  # it was closed just now, the response goes nowhere
            raise web.HTTPServiceUnavailable
        return connection

    def _hold(self, connection: Connection, size: int) -> None:
        """Counts bytes of a body; above the limit, the connection that has been sending for longest is closed."""
        while self._held + size > self._limits.held_bytes:
            others = [other for other in self._connections.values() if other is not connection and other.held]
            victim = longest_idle(others)
            if victim is None:
                raise web.HTTPServiceUnavailable(text="too many large requests at once\n")
            self._close(victim, "it sends a large body slowly")
        self._held += size
        connection.held += size

    def _release(self, connection: Connection) -> None:
        self._held -= connection.held
        connection.held = 0

    @web.middleware
    async def _observe(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        connection = self._connection(request)
        if request.can_read_body:
            connection.set_deadline(self._limits.receive_s + GOODBYE_S)
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
            except (
                OSError
            ) as error:  # mostly there are no descriptors left, and the listener would be ready again at once
                _log.warning(
                    "accepting connections is suspended for a second", server=self._name, reason=error.strerror
                )
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
                _log.warning(
                    "connection refused", server=self._name, reason=f"all {len(rivals)} are busy", client=client
                )
                accepted.close()
                return
            self._close(victim, f"{len(rivals)} are open, and another one is to be accepted")
        assert self._runner is not None
        assert self._runner.server is not None
        accepted.setblocking(False)
        connection = Connection(client, self._runner.server(), self._forget)
        self._connections[connection.protocol] = connection
        connection.open(accepted, self._context, self._limits.receive_s)

    def _close(self, occupant: Occupant | None, reason: str) -> None:
        if isinstance(occupant, Connection):
            _log.warning("idle connection closed", server=self._name, reason=reason, client=occupant.client)
            self._release(occupant)
            occupant.abort()

    def _forget(self, connection: Connection) -> None:
        self._connections.pop(connection.protocol, None)


class _ProtocolErrors(logging.Handler):
    """Takes what aiohttp logs of the connections of a server.

    A client that does not send HTTP is no error of ours, and what it sent may hold secrets: the log says only what kind
    of mistake it was.
    """

    def __init__(self, server: str) -> None:
        super().__init__()
        self._server = server

    def emit(self, record: logging.LogRecord) -> None:
        """Logs it like a line of our own."""
        error = record.exc_info[1] if record.exc_info else None
        client = str(record.args[0]) if isinstance(record.args, tuple) and record.args else ""
        if isinstance(error, HttpProcessingError):
            reason = f"it is not HTTP: {type(error).__name__}, status {error.code}"
            _log.debug("request refused, connection closed", server=self._server, reason=reason, client=client)
        elif error is not None:
            log = _log.bind(server=self._server, client=client)
            log.error("request failed: internal error", error=error, exc_info=error)
        else:
            logging.getLogger("aiohttp.server").handle(record)


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
