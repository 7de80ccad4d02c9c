"""The HTTP server for probes and Prometheus.

It knows nothing of the operator but what its callables return. Values are never served here. `app` starts it first and
stops it last.

Source: contract.md 2.16.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from aiohttp import web

from addon_operator.documents import jsondoc
from addon_operator.errors import SettingsError
from addon_operator.server.status import OperatorStatus
from addon_operator.serving.http_server import HttpServer, Limits

_WITHOUT_PAUSE_S = 0.01
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PAGES = {
    "/healthz": "200 while the process works",
    "/readyz": "whether the first converge is done",
    "/status/converge": "how far the converge is (?output=json)",
    "/metrics": "metrics of the operator",
    "/metrics/hooks": "metrics made by hooks",
    "/discovery": "this list as text",
}


class PublicServer:
    """Serves `/healthz`, `/readyz`, `/status/converge`, `/metrics`, `/metrics/hooks`, `/discovery` and an index.

    Args:
        status: what readiness and the status page conclude from.
        metrics: the operator's series in Prometheus text format, in pieces that take a few milliseconds each to make.
        hook_metrics: the series that hooks made, same format.
    """

    def __init__(
        self,
        *,
        status: Callable[[], OperatorStatus],
        metrics: Callable[[], Iterator[bytes]],
        hook_metrics: Callable[[], Iterator[bytes]],
    ) -> None:
        self._status = status
        self._metrics = metrics
        self._hook_metrics = hook_metrics
        self._server = HttpServer("probes and metrics", self._routes(), Limits(), stop_s=1.0)

    async def start(self, *, address: str, port: int) -> int:
        """Starts to listen; returns the port (a free one for 0).

        Raises:
            SettingsError: it cannot listen on the address.
        """
        try:
            return await self._server.start_tcp(address, port)
        except OSError as error:
            raise SettingsError(
                f"cannot listen on {address}:{port}: {error.strerror or error}; choose another address with "
                "--prometheus-listen-address and --prometheus-listen-port"
            ) from error

    async def stop(self) -> None:
        """Closes all connections; does nothing if it was not started."""
        await self._server.stop()

    def _routes(self) -> list[web.RouteDef]:
        return [
            web.get("/", _index),
            web.get("/healthz", _healthz),
            web.get("/readyz", self._readyz),
            web.get("/status/converge", self._converge_status),
            web.get("/metrics", self._all_metrics),
            web.get("/metrics/hooks", self._only_hook_metrics),
            web.get("/discovery", _discovery),
        ]

    async def _readyz(self, _request: web.Request) -> web.Response:
        status = self._status()
        return web.Response(status=200 if status.ready else 500, text=status.readiness())

    async def _converge_status(self, request: web.Request) -> web.Response:
        status = self._status()
        if request.query.get("output") == "json":
            return web.Response(body=jsondoc.dumps(status.document()), content_type="application/json")
        return web.Response(text=status.text())

    async def _all_metrics(self, _request: web.Request) -> web.Response:
        return await _exposition(self._metrics())

    async def _only_hook_metrics(self, _request: web.Request) -> web.Response:
        return await _exposition(self._hook_metrics())


async def _exposition(pieces: Iterator[bytes]) -> web.Response:
    """Puts pieces together and lets others work in between: all of them may take seconds."""
    loop, text = asyncio.get_running_loop(), bytearray()
    since = loop.time()
    for piece in pieces:
        text += piece
        if loop.time() - since > _WITHOUT_PAUSE_S:
            await asyncio.sleep(0)
            since = loop.time()
    return web.Response(body=bytes(text), headers={"Content-Type": _METRICS_TYPE})


async def _healthz(_request: web.Request) -> web.Response:
    """Returns 200: a process that hangs cannot (contract.md 2.16)."""
    return web.Response(text="ok\n")


async def _index(_request: web.Request) -> web.Response:
    rows = "".join(f'<dt><a href="{path}">{path}</a></dt><dd>{about}</dd>' for path, about in _PAGES.items())
    page = (
        f"<!doctype html><html><head><title>addon-operator</title></head><body><h1>addon-operator</h1><dl>{rows}</dl>"
    )
    return web.Response(text=f"{page}</body></html>\n", content_type="text/html")


async def _discovery(_request: web.Request) -> web.Response:
    return web.Response(text="".join(f"GET {path}\n" for path in ("/", *_PAGES)))
