"""The sockets of a client: each notices when the other side is gone, and all of them are closed when the client is."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import weakref
from typing import Final

import aiohttp

_TLS_GOODBYE_S: Final = 1.0
_CLOSED_WITHIN_S: Final = 5.0


class Sockets:
    """What an `aiohttp.TCPConnector` has opened; `Sockets.open` is its `socket_factory`."""

    def __init__(self) -> None:
        """Begins without any."""
        self._opened = weakref.WeakSet[socket.socket]()

    def open(self, address: aiohttp.AddrInfoType) -> socket.socket:
        """Makes a socket that notices within a minute when the other side is gone without a word."""
        made = socket.socket(*address[:3])
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        self._opened.add(made)
        return made

    def still_open(self) -> list[socket.socket]:
        """Returns those that are not closed."""
        return [opened for opened in self._opened if opened.fileno() >= 0]

    async def wait_closed(self) -> None:
        """Waits a moment for those that say goodbye to the server, then hangs up.

        Called after the session was closed, which ends connections without waiting for them: a loop that ends then
        leaves them open.
        """
        await self._wait(_TLS_GOODBYE_S)
        for opened in self.still_open():
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        await self._wait(_CLOSED_WITHIN_S)

    async def _wait(self, limit_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while self.still_open():  # noqa: ASYNC110 -- they tell nobody
                    await asyncio.sleep(0.005)
