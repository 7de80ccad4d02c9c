"""An API server that answers from a script and remembers what it was asked: here over HTTP, in memory elsewhere.

Steps mean the same for both (`tests/contract/test_scripted_api_server.py`). In memory is `api_in_memory.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias

import yaml
from aiohttp import web

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue

CHUNK_PAUSE_S: Final = 0.01
"""How long a stream pauses after each chunk."""
JSON: Final = "application/json"


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """An answer in one piece."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    content_type: str = JSON


@dataclasses.dataclass(frozen=True, slots=True)
class Stream:
    """An answer in chunks; after them it ends, stays open without a word, or the connection is dropped."""

    chunks: tuple[bytes, ...]
    then: Literal["ends", "stays", "breaks"]


Answer: TypeAlias = Document | Stream
Handler: TypeAlias = Callable[[Asked], Awaitable[Answer]]


class Script:
    """What requests get, and which there were.

    Attributes:
        asked: all requests so far, in order.
        steps: what the next requests get, in order; once they are used up, requests stay without an answer.
    """

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.steps: list[Handler] = []
        self._more = asyncio.Event()

    async def play(self, asked: Asked) -> Answer:
        """Returns the answer of the next step."""
        self.asked.append(asked)
        self._more.set()
        return await (self.steps.pop(0) if self.steps else _silent)(asked)

    async def until_asked(self, times: int) -> None:
        while len(self.asked) < times:
            self._more.clear()
            await self._more.wait()


async def _silent(_asked: Asked) -> Answer:
    await asyncio.Event().wait()
    raise AssertionError


class Api(Script):
    """The HTTP server while it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        asked = Asked(request.method, request.path, dict(request.query), request.headers, await request.read())
        match await self.play(asked):
            case Document(body, status, headers, content_type):
                return web.Response(body=body, status=status, headers=headers, content_type=content_type)
            case Stream(chunks, then):
                return await _stream(request, chunks, then)

    def kubeconfig(self, directory: Path, user: JsonObject | None = None) -> Path:
        path = directory / "kubeconfig"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": user or {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(yaml.safe_dump(document))
        return path


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Api]:
    """Runs one on a free loopback port."""
    api = Api()
    application = web.Application(client_max_size=2**30)
    application.router.add_route("*", "/{path:.*}", api.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    api.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield api
    finally:
        await runner.cleanup()


def gives(value: JsonValue, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Handler:
    """Answers with a JSON document."""
    return _answers(Document(jsondoc.dumps(value), status, headers or {}))


def refuses(status: int, reason: str, *, message: str = "", retry_after: str | None = None) -> Handler:
    """Answers with a Status, as an API server does."""
    headers = {"Retry-After": retry_after} if retry_after is not None else {}
    return gives(
        {"kind": "Status", "reason": reason, "message": message, "code": status}, status=status, headers=headers
    )


def proxy_says(status: int) -> Handler:
    """Answers with a page, as a proxy does that has nobody behind it."""
    return _answers(Document(b"<html>", status, content_type="text/html"))


def streams(*chunks: bytes, stay: bool = False) -> Handler:
    """Answers in pieces; then ends, or keeps the connection open."""
    return _answers(Stream(chunks, "stays" if stay else "ends"))


def breaks(*chunks: bytes) -> Handler:
    """Answers in pieces, then drops the connection in the middle."""
    return _answers(Stream(chunks, "breaks"))


def _answers(answer: Answer) -> Handler:
    async def handle(_asked: Asked) -> Answer:
        return answer

    return handle


async def _stream(
    request: web.Request, chunks: tuple[bytes, ...], then: Literal["ends", "stays", "breaks"]
) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for chunk in chunks:
        await response.write(chunk)
        await asyncio.sleep(CHUNK_PAUSE_S)
    if then == "stays":
        await asyncio.Event().wait()
    if then == "breaks":
        assert request.transport is not None
        request.transport.abort()
    return response
