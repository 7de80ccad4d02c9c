"""The debug API: HTTP on a unix socket that only the operator's own user can open.

It serves `pages.ROUTES`, `POST /config/set` and `POST /removals/confirm` with the facts of an Inspector. The debug
commands are its clients. `app` starts and stops it.

Source: contract.md 2.17.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl

from aiohttp import web

from addon_operator.documents.durations import parse_duration
from addon_operator.errors import InputError, SettingsError
from addon_operator.server.inspector import Inspector
from addon_operator.server.pages import ROUTES, Query, Route
from addon_operator.serving.http_server import HttpServer, Limits

_CONTENT_TYPES = {"json": "application/json", "yaml": "application/yaml", "text": "text/plain"}
_LIMITS: Final = Limits(connections=64)
_TRUE = {"true", "1", "yes"}
_STARTING = "the operator is starting: its log says what it waits for"

Handler = Callable[[web.Request], Awaitable[web.Response]]


class DebugServer:
    """Serves the debug API on one unix socket.

    Attributes:
        inspector: the facts; while it is None, the response to every request is 503 and `waits`.
        waits: what the operator waits for.
    """

    def __init__(self, path: Path, inspector: Inspector | None = None) -> None:
        """Takes its dependencies; `start` does the work.

        Args:
            path: of the socket. A missing directory is created with mode 0700; the socket has mode 0600.
            inspector: the facts; None while the operator is not complete.
        """
        self.inspector = inspector
        self.waits = _STARTING
        self._path = path
        self._server = HttpServer("debug socket", self._routes(), _LIMITS, stop_s=1.0)
        self._inode = 0

    async def start(self) -> None:
        """Starts to listen; a socket that a crash left behind is replaced.

        Raises:
            SettingsError: the socket cannot be created there, or another operator listens on it.
        """
        listener = _bind(self._path)
        self._inode = self._path.stat().st_ino
        await self._server.start([listener])

    async def stop(self) -> None:
        """Closes all connections and removes the socket; does nothing if it was not started."""
        if not self._inode:
            return
        with contextlib.suppress(FileNotFoundError):
            # Another process may have put its own socket there.
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()
        self._inode = 0
        await self._server.stop()

    def _routes(self) -> list[web.RouteDef]:
        return [
            *(web.get(route.path + ".{format}", self._page(route)) for route in ROUTES),
            web.get("/discovery", _discovery),
            web.post("/config/set", self._set_parameter),
            web.post("/removals/confirm", self._confirm_removals),
            web.route("*", "/{rest:.*}", _not_found),
        ]

    def _page(self, route: Route) -> Handler:
        async def answer(request: web.Request) -> web.Response:
            form = next((form for form in route.formats if form == request.match_info["format"]), None)
            if form is None:
                raise web.HTTPNotFound(text=f"{request.path}: the formats served are {', '.join(route.formats)}\n")
            query, inspector = _query(request), self._complete()
            if query.module:
                _check_module(inspector, query.module)
            body = route.answer(inspector, query).encode(form)
            return web.Response(body=body, content_type=_CONTENT_TYPES[form], charset="utf-8")

        return answer

    def _complete(self) -> Inspector:
        if self.inspector is None:
            raise web.HTTPServiceUnavailable(text=f"{self.waits}\n")
        return self.inspector

    async def _set_parameter(self, request: web.Request) -> web.Response:
        form = dict(parse_qsl((await self._server.body(request)).decode(errors="replace"), keep_blank_values=True))
        name, value, duration = (form.get(field, "") for field in ("name", "value", "duration"))
        try:
            self._complete().set_parameter(name, value, duration_s=parse_duration(duration) if duration else None)
        except (InputError, ValueError) as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from error
        return web.Response(text=f"{name} = {value}" + (f" for {duration}" if duration else "") + "\n")

    async def _confirm_removals(self, request: web.Request) -> web.Response:
        names = [str(name) for name in (await request.post()).getall("name", [])]
        if not names:
            raise web.HTTPBadRequest(text="name is missing: the modules whose removal is confirmed\n")
        try:
            self._complete().confirm_removals(names)
        except InputError as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from error
        return web.Response(text=f"removal confirmed: {', '.join(names)}\n")


def _check_module(inspector: Inspector, name: str) -> None:
    names = [module.name for module in inspector.modules()]
    if name in names:
        return
    similar = difflib.get_close_matches(name, names, n=1)
    hint = f": did you mean {similar[0]}?" if similar else ": `module list` shows all"
    raise web.HTTPNotFound(text=f"module not found: {name}{hint}\n")


def _query(request: web.Request) -> Query:
    asked = {key for key, value in request.query.items() if value.lower() in _TRUE}
    return Query(
        module=request.match_info.get("module", ""),
        show_empty="showEmpty" in asked,
        with_global="global" in asked,
        with_origin="origin" in asked,
    )


async def _discovery(_request: web.Request) -> web.Response:
    pages = [f"GET {route.path}.{form}" for route in ROUTES for form in route.formats]
    return web.Response(text="\n".join([*pages, "GET /discovery", "POST /config/set", "POST /removals/confirm", ""]))


async def _not_found(request: web.Request) -> web.Response:
    raise web.HTTPNotFound(text=f"no such page: {request.method} {request.path}; GET /discovery lists all\n")


def _bind(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make_way(path)
        listener.bind(str(path))
        # No client can connect before listen(), so the mode that bind() gave it for a moment does no harm.
        path.chmod(0o600)
    except OSError as error:
        listener.close()
        raise SettingsError(
            f"cannot make the debug socket {path}: {error.strerror or error}; set DEBUG_UNIX_SOCKET to another path"
        ) from error
    except SettingsError:
        listener.close()
        raise
    return listener


def _make_way(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise SettingsError(f"{path} exists and is not a socket: set DEBUG_UNIX_SOCKET to another path")
        if _is_live(path):
            raise SettingsError(
                f"another operator listens on {path}: stop it, or set DEBUG_UNIX_SOCKET to another path"
            )
        path.unlink()


def _is_live(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        # EAGAIN: a process listens, and its backlog is full.
        return probe.connect_ex(str(path)) in {0, errno.EAGAIN}
