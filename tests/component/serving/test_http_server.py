"""Clients that connect and do nothing, or little, against a server with real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp
import pytest
import structlog
from aiohttp import web

from addon_operator.logs import configure
from addon_operator.server.public import PublicServer
from addon_operator.server.status import OperatorStatus, Startup
from addon_operator.serving.http_server import HttpServer, Limits
from addon_operator.webhooks.certificates import Authority, make_context

WITHIN_S = 60.0
OTHER_CLIENT = "127.0.0.2"
SECRET = "hunter2"


class Client:
    """One connection that does only what it is told."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int, *, source: str = "127.0.0.1") -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0)))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def until_closed(self) -> bytes:
        """What arrives before the server closes the connection."""
        with contextlib.suppress(ConnectionResetError):
            return await asyncio.wait_for(self.reader.read(), WITHIN_S)
        return b""

    def is_open(self) -> bool:
        return not self.reader.at_eof() and self.reader.exception() is None

    def close(self) -> None:
        self.writer.transport.abort()


Connect = Callable[..., Awaitable[Client]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    clients: list[Client] = []

    async def one(port: int, *, source: str = "127.0.0.1") -> Client:
        clients.append(await Client.connect(port, source=source))
        return clients[-1]

    yield one
    for client in clients:
        client.close()
    await asyncio.sleep(0)


@pytest.fixture
def log() -> Iterator[Callable[[], list[str]]]:
    """The lines of the log."""
    stream = io.StringIO()
    configure("text", "debug", with_time=False, stream=stream)
    yield lambda: stream.getvalue().splitlines()
    structlog.reset_defaults()


async def get(port: int, path: str = "/", *, source: str = "127.0.0.1") -> tuple[int, bytes]:
    connector = aiohttp.TCPConnector(local_addr=(source, 0))
    url = f"http://127.0.0.1:{port}{path}"
    async with aiohttp.ClientSession(connector=connector) as session, session.get(url) as response:
        return response.status, await response.read()


@contextlib.asynccontextmanager
async def serving(limits: Limits, context: ssl.SSLContext | None = None) -> AsyncIterator[tuple[HttpServer, int]]:
    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await server.body(request))

    async def large(_request: web.Request) -> web.Response:
        return web.Response(body=bytes(64 * 2**20))

    routes = [web.get("/", echo), web.post("/", echo), web.get("/large", large)]
    server = HttpServer("test", routes, limits, stop_s=1.0)
    port = await server.start_tcp("127.0.0.1", 0, context)
    try:
        yield server, port
    finally:
        await server.stop()


# --- bounds ---


async def test_a_thousand_silent_connections_do_not_keep_a_probe_out(connect: Connect) -> None:
    status = OperatorStatus(Startup.DONE)
    server = PublicServer(status=lambda: status, metrics=lambda: iter(()), hook_metrics=lambda: iter(()))
    port = await server.start(address="127.0.0.1", port=0)
    try:
        silent = [await connect(port) for _ in range(1100)]
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await get(port, path))[0] == 200
        await asyncio.gather(*(client.until_closed() for client in silent[:900]))
        assert sum(client.is_open() for client in silent) <= 128
    finally:
        await server.stop()


async def test_a_client_with_many_connections_costs_the_others_none(connect: Connect) -> None:
    async with serving(Limits(connections=8)) as (_, port):
        quiet = await connect(port)
        greedy = [await connect(port, source=OTHER_CLIENT) for _ in range(50)]
        await asyncio.gather(*(client.until_closed() for client in greedy[:46]))
        assert quiet.is_open()
        await quiet.send(b"GET / HTTP/1.0\r\n\r\n")
        assert (await quiet.until_closed()).startswith(b"HTTP/1.0 200 OK")


async def test_requests_in_flight_are_not_ended_for_those_who_come_later(connect: Connect) -> None:
    async with serving(Limits(connections=4, client_share=1.0)) as (_, port):
        readers = [await connect(port) for _ in range(4)]
        for client in readers:
            await client.send(b"POST / HTTP/1.0\r\nContent-Length: 2\r\n\r\no")
        late = await connect(port)  # all of these have not sent the whole request: the first one goes
        assert await readers[0].until_closed() == b""
        for client in readers[1:]:
            await client.send(b"k")
        for client in readers[1:]:
            assert (await client.until_closed()).endswith(b"\r\n\r\nok")
        assert late.is_open()


# --- deadlines ---


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"GET / HTT", id="half a line"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: h\r\nX-One", id="half of the headers"),
    ],
)
async def test_who_never_sends_a_whole_request_is_closed(connect: Connect, sent: bytes) -> None:
    async with serving(Limits(receive_s=0.05)) as (_, port):
        client = await connect(port)
        await client.send(sent)
        assert await client.until_closed() == b""


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03hunter2\r\n\r\n", id="TLS"),
        pytest.param(b"SSH-2.0-hunter2\r\n\r\n", id="SSH"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\nhunter2\r\n\r\n", id="a line that is no header"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"hunter2" * 2000 + b"\r\n\r\n", id="a header too long"),
    ],
)
async def test_what_is_not_http_is_a_debug_line_that_says_what_happened(
    connect: Connect, log: Callable[[], list[str]], sent: bytes
) -> None:
    async with serving(Limits()) as (_, port):
        client = await connect(port)
        await client.send(sent)
        assert (await client.until_closed()).startswith(b"HTTP/1.0 400 Bad Request")
    (line,) = log()
    assert line.startswith('DEBUG   request refused, connection closed server=test reason="it is not HTTP: ')
    assert "status 400" in line
    assert "client=127.0.0.1" in line
    assert "hunter2" not in line


async def test_a_handler_that_fails_is_an_error(log: Callable[[], list[str]]) -> None:
    async def fail(_request: web.Request) -> web.Response:
        raise ValueError(SECRET)

    server = HttpServer("test", [web.get("/", fail)], Limits(), stop_s=1.0)
    port = await server.start_tcp("127.0.0.1", 0)
    try:
        assert (await get(port))[0] == 500
    finally:
        await server.stop()
    (line,) = log()
    assert line.startswith("ERROR   request failed: internal error server=test client=127.0.0.1 error=")
    assert "ValueError" in line
    assert SECRET not in line


async def test_headers_that_trickle_in_do_not_put_the_end_off(connect: Connect) -> None:
    async with serving(Limits(receive_s=0.2)) as (_, port):
        client = await connect(port)
        ended = asyncio.create_task(client.until_closed())
        with contextlib.suppress(ConnectionError):
            await client.send(b"GET / HTTP/1.1\r\n")
            while not ended.done():
                await client.send(b"X-More: yes\r\n")
                await asyncio.sleep(0.01)
        assert await ended == b""


async def test_a_body_that_does_not_come_is_refused_in_time(connect: Connect) -> None:
    async with serving(Limits(receive_s=0.05)) as (_, port):
        client = await connect(port)
        await client.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf")
        answer = await client.until_closed()
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert answer.endswith(b"did not arrive in time\n")


async def test_a_connection_is_reused_and_closed_when_it_is_idle(connect: Connect) -> None:
    async with serving(Limits(idle_s=0.2)) as (_, port):
        client = await connect(port)
        for _ in range(2):
            await client.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            assert b" 200 OK" in await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), WITHIN_S)
        assert await client.until_closed() == b""


async def test_who_does_not_read_the_response_is_closed(connect: Connect) -> None:
    async with serving(Limits(idle_s=0.1)) as (_, port):
        with socket.create_connection(("127.0.0.1", port)) as deaf:
            deaf.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(deaf, b"GET /large HTTP/1.0\r\n\r\n")

            async def write_on() -> None:
                while True:
                    await loop.sock_sendall(deaf, b" ")
                    await asyncio.sleep(0.01)

            # Only the end of the connection makes a write fail.
            with pytest.raises(OSError, match=r"Connection reset|Broken pipe"):
                await asyncio.wait_for(write_on(), WITHIN_S)


async def test_who_never_begins_with_tls_is_closed(connect: Connect) -> None:
    context = make_context(Authority().issue(["127.0.0.1"], validity_s=60), ())
    async with serving(Limits(receive_s=0.05), context) as (_, port):
        client = await connect(port)
        assert await client.until_closed() == b""


# --- bodies ---


async def test_a_body_that_is_too_large_is_refused(connect: Connect) -> None:
    async with serving(Limits(body_bytes=10)) as (_, port):
        for headers in (b"Content-Length: 11", b"Transfer-Encoding: chunked"):
            client = await connect(port)
            body = b"b\r\n12345678901\r\n" if b"chunked" in headers else b""
            await client.send(b"POST / HTTP/1.1\r\nHost: h\r\n" + headers + b"\r\n\r\n" + body)
            assert (await client.until_closed()).startswith(b"HTTP/1.1 413 ")


async def test_large_bodies_that_stall_make_room_for_one_that_comes(connect: Connect) -> None:
    async with serving(Limits(body_bytes=100, held_bytes=200)) as (_, port):
        stalled = [await connect(port) for _ in range(3)]
        for client in stalled[:2]:
            await client.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n" + b"x" * 99)
        await stalled[2].send(b"POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 100\r\n\r\n")
        await stalled[2].send(b"y" * 100)
        assert (await stalled[2].until_closed()).endswith(b"\r\n\r\n" + b"y" * 100)
        assert await stalled[0].until_closed() == b""
        assert stalled[1].is_open()


# --- the end of the descriptors ---

OUT_OF_DESCRIPTORS = """
import asyncio, contextlib, json, os, resource, socket, sys
from addon_operator import logs
from addon_operator.logs import configure
from addon_operator.server.public import PublicServer
from addon_operator.server.status import OperatorStatus, Startup

async def main():
    status = OperatorStatus(Startup.DONE)
    nothing = lambda: iter(())
    server = PublicServer(status=lambda: status, metrics=nothing, hook_metrics=nothing)
    port = await server.start(address="127.0.0.1", port=0)
    with contextlib.ExitStack() as hoard:
        with contextlib.suppress(OSError):
            while True:
                hoard.enter_context(open(os.devnull))
        print(json.dumps(port), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    print(json.dumps("room"), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    await server.stop()

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
logs.configure("json", "info", with_time=False)
asyncio.run(main())
"""


async def test_without_descriptors_it_tries_again_at_leisure_and_serves_when_there_are_some(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        server = subprocess.Popen(
            [sys.executable, "-c", OUT_OF_DESCRIPTORS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
        )
    assert server.stdin is not None
    assert server.stdout is not None
    with server, contextlib.ExitStack() as clients:
        port = json.loads(server.stdout.readline())
        for _ in range(20):
            clients.enter_context(socket.create_connection(("127.0.0.1", port)))
        async with asyncio.timeout(WITHIN_S):
            while b"is suspended" not in log.read_bytes() and b"accept()" not in log.read_bytes():
                await asyncio.sleep(0.01)
        server.stdin.write(b"\n")
        server.stdin.flush()
        assert json.loads(server.stdout.readline()) == "room"
        assert (await get(port, "/healthz"))[0] == 200
        server.stdin.close()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert lines[0]["reason"] == "Too many open files"
    assert len(lines) < 40
