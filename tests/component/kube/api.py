"""A small HTTP server in the place of an API server: it answers from a script and remembers what it was asked."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import yaml
from aiohttp import web

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


class Api:
    """The server while it runs.

    Attributes:
        asked: all requests so far, in order.
        steps: what the next requests get, in order; once they are used up, requests stay without an answer.
    """

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.steps: list[Handler] = []
        self.url = ""
        self._more = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        asked = Asked(request.method, request.path, dict(request.query), request.headers, await request.read())
        self.asked.append(asked)
        self._more.set()
        return await (self.steps.pop(0) if self.steps else _silent)(request)

    async def until_asked(self, times: int) -> None:
        while len(self.asked) < times:
            self._more.clear()
            await self._more.wait()

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


async def _silent(_request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


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

    async def handle(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=jsondoc.dumps(value), status=status, headers=headers, content_type="application/json")

    return handle


def refuses(status: int, reason: str, *, message: str = "", retry_after: str | None = None) -> Handler:
    """Answers with a Status, as an API server does."""
    headers = {"Retry-After": retry_after} if retry_after is not None else {}
    return gives(
        {"kind": "Status", "reason": reason, "message": message, "code": status}, status=status, headers=headers
    )


def streams(*chunks: bytes, stay: bool = False) -> Handler:
    """Answers in pieces; then ends, or keeps the connection open."""

    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0.01)
        if stay:
            await asyncio.Event().wait()
        return response

    return handle


def breaks(*chunks: bytes) -> Handler:
    """Answers in pieces, then drops the connection in the middle."""

    async def handle(request: web.Request) -> web.StreamResponse:
        response = await streams(*chunks)(request)
        assert request.transport is not None
        request.transport.abort()
        return response

    return handle
