"""A TCP proxy that can go silent, as one does that has lost its state: connections stay open, and nothing passes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Proxy:
    """Passes on what it gets to one address.

    Attributes:
        port: where it listens, on loopback.
        accepted: how many connections were made to it.
    """

    def __init__(self, host: str, port: int) -> None:
        self.port = 0
        self.accepted = 0
        self._target = host, port
        self._passing: dict[int, asyncio.Event] = {}

    def go_silent(self) -> None:
        """Nothing passes any more on the connections that there are; new ones work."""
        for passing in self._passing.values():
            passing.clear()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection."""
        self.accepted += 1
        number, passing = self.accepted, asyncio.Event()
        passing.set()
        self._passing[number] = passing
        try:
            from_server, to_server = await asyncio.open_connection(*self._target)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(_pass(reader, to_server, passing), name=f"proxy {number} there")
                    group.create_task(_pass(from_server, writer, passing), name=f"proxy {number} back")
            finally:
                to_server.transport.abort()
        except* (OSError, EOFError):
            pass
        finally:
            del self._passing[number]


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passing: asyncio.Event) -> None:
    while data := await reader.read(65536):
        await passing.wait()
        writer.write(data)
        await writer.drain()
    await passing.wait()
    raise EOFError


@contextlib.asynccontextmanager
async def proxying(host: str, port: int) -> AsyncIterator[Proxy]:
    """Runs one on a free loopback port."""
    proxy = Proxy(host, port)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(proxy.handle(reader, writer), name="proxied connection")
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        # Not in `handle`: a task that is cancelled before it has begun does nothing.
        task.add_done_callback(lambda _task: writer.transport.abort())

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
