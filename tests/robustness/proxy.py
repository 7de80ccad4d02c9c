"""A proxy in front of the API server: it records, strikes, shows an older view, holds events back, breaks requests.

The operator, its hooks and helm all talk to it, by a kubeconfig that leads there; the test itself talks past it. It
works in a thread of its own: methods without an underscore may be called from any other.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import json
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import aiohttp
import yarl
from aiohttp import web

from addon_operator.devcluster import DevCluster
from addon_operator.kube.sockets import Sockets
from tests.robustness.faults import STALL_S, Fault, Faults, expired_event, refusal
from tests.robustness.requests import Call, Numbers, Point, Target, counts

_NOT_PASSED_ON: Final = frozenset({
    "host", "connection", "content-length", "transfer-encoding", "authorization", "accept-encoding", "keep-alive",
})  # fmt: skip
_METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_CLOSE_WITHIN_S: Final = 0.5
_LARGEST_BODY: Final = 64 * 2**20

Strike = Callable[[], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Trap:
    """What happens at a point.

    Attributes:
        point: where.
        strike: called once, in the proxy's thread; must not block.
        before: the server has not been asked yet; else it has, and the client never hears what it said.
    """

    point: Point
    strike: Strike
    before: bool


class Proxy:
    """One proxy for one operator.

    Attributes:
        namespace: of the operator.
        points: writes and process starts in their order, without those of the schedule.
        versions: of each write that the server did: the point, and the resource version after it.
        struck: the trap was sprung.
    """

    def __init__(self, cluster: DevCluster, namespace: str) -> None:
        access = json.loads(cluster.kubeconfig.read_text())
        self._upstream = yarl.URL(access["clusters"][0]["cluster"]["server"])
        authority = base64.b64decode(access["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=authority)
        self._authorization = f"Bearer {access['users'][0]['user']['token']}"
        self.namespace = namespace
        self._numbers, self._requests = Numbers(), Numbers()
        self._trap: Trap | None = None
        self._faults: Faults | None = None
        self._frozen_at = ""
        self._withheld: Target | None = None
        self._flow = asyncio.Event()
        self._active_at = time.monotonic()
        self._port = self._gate_port = 0
        self._loop = asyncio.new_event_loop()
        self.points: list[Point] = []
        self.versions: list[tuple[Point, int]] = []
        self.faults_met: list[str] = []
        self.struck = threading.Event()

    def environment(self, directory: Path) -> dict[str, str]:
        """What makes an operator and all its children use this proxy."""
        path = directory / "proxy-kubeconfig"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "proxy", "cluster": {"server": f"http://127.0.0.1:{self._port}"}}],
            "users": [{"name": "proxy", "user": {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
            "current-context": "proxy",
        }
        path.write_text(json.dumps(document))
        path.chmod(0o600)
        return {
            "KUBECONFIG": str(path),
            "KUBE_CONFIG": str(path),
            "GATE_PORT": str(self._gate_port),
            "HOME": str(directory),
        }

    def quiet_for_s(self) -> float:
        """Seconds since the last write or process start that counts."""
        return time.monotonic() - self._active_at

    def set_trap(self, trap: Trap) -> None:
        """Strikes once, when the point is reached."""
        self._trap = trap

    def freeze(self, version: int) -> None:
        """From now on shows lists, objects and watches as they were at a resource version; writes go through."""
        self._do(lambda: self._dam(str(version), None))

    def withhold(self, about: Target) -> None:
        """From now on stops each watch at an event of this object; what comes behind it in that watch waits, too."""
        self._do(lambda: self._dam("", about))

    def flow(self) -> None:
        """Back to the present: what was held back goes out, new requests see what there is."""
        self._do(self._undam)

    def set_faults(self, faults: Faults | None) -> None:
        """Breaks requests from now on, or no more. Watches that have gone silent stay silent."""
        self._faults = faults

    def _do(self, change: Callable[[], None]) -> None:
        if threading.get_ident() == self._thread_id:
            change()
        else:
            self._loop.call_soon_threadsafe(change)

    def _dam(self, frozen_at: str, withheld: Target | None) -> None:
        self._frozen_at, self._withheld = frozen_at, withheld
        self._flow.clear()

    def _undam(self) -> None:
        self._frozen_at, self._withheld = "", None
        self._flow.set()

    # -- its thread

    def run(self, started: threading.Event) -> None:
        """Works until `stop`."""
        self._thread_id = threading.get_ident()
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._run(started))

    def stop(self) -> None:
        """Ends `run`."""
        self._do(self._stopped.set)

    async def _run(self, started: threading.Event) -> None:
        self._stopped = asyncio.Event()
        application = web.Application(client_max_size=_LARGEST_BODY)
        application.router.add_route("*", "/{path:.*}", self._serve)
        runner = web.AppRunner(
            application, access_log=None, handler_cancellation=True, shutdown_timeout=_CLOSE_WITHIN_S
        )
        sockets = Sockets()
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0, socket_factory=sockets.open)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as self._session:
            await runner.setup()
            try:
                site = web.TCPSite(runner, "127.0.0.1", 0)
                await site.start()
                gate = await asyncio.start_server(self._gate, "127.0.0.1", 0)
                self._port = runner.addresses[0][1]
                self._gate_port = gate.sockets[0].getsockname()[1]
                started.set()
                await self._stopped.wait()
                gate.close()
            finally:
                await runner.cleanup()
        await sockets.wait_closed()

    async def _gate(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A process says what it is and may go on when it is answered."""
        try:
            text = (await reader.readline()).decode().strip()
            point = self._note(f"start {text}")
            if text and not (point is not None and self._spring(point, before=True)):
                writer.write(b"go\n")
                await writer.drain()
        except ConnectionError:
            pass  # it was killed
        finally:
            writer.close()

    def _note(self, what: str) -> Point | None:
        what = what.replace(self.namespace, "NAMESPACE")
        if not counts(what):
            return None
        point = self._numbers.next(what)
        self.points.append(point)
        self._active_at = time.monotonic()
        return point

    def _spring(self, point: Point, *, before: bool) -> bool:
        trap = self._trap
        if trap is None or trap.point != point or trap.before != before:
            return False
        self._trap = None
        trap.strike()
        self.struck.set()
        return True

    # -- requests

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        call = Call(request.method, request.path, dict(request.query), await request.read())
        what = call.what(self.namespace)
        fault = None
        if self._faults is not None and call.target.resource:
            fault = self._faults.meet(call, what, self._requests.next(what).number)
        if fault is not None:
            self.faults_met.append(f"{fault.kind}: {what}")
        match fault:
            case Fault("conflict" | "throttled" | "error" as kind):
                code, body = refusal(kind)
                again = {"Retry-After": "1"} if kind == "throttled" else {}
                return web.Response(status=code, body=body, content_type="application/json", headers=again)
            case Fault("cut before"):
                return _cut(request)
            case Fault("stall"):
                await asyncio.sleep(STALL_S)
        if call.watches:
            return await self._watch(request, call, fault)
        if self._frozen_at and call.method == "GET" and call.target.resource and not call.target.subresource:
            return await self._show_frozen(request, call)
        return await self._pass(request, call, fault)

    async def _pass(self, request: web.Request, call: Call, fault: Fault | None) -> web.StreamResponse:
        what = call.what(self.namespace)
        point = self._note(what) if call.writes else None
        if point is not None:
            self._spring(point, before=True)
        url = self._upstream.join(yarl.URL(request.raw_path, encoded=True))
        async with self._ask(call.method, url, request.headers, call.body) as answer:
            payload = await answer.read()
            if point is not None and answer.status < 300:
                self.versions.append((point, _version(payload)))
            if (point is not None and self._spring(point, before=False)) or fault == Fault("cut after"):
                return _cut(request)
            return web.Response(status=answer.status, body=payload, headers=_kept(answer.headers))

    def _ask(
        self, method: str, url: yarl.URL, headers: Mapping[str, str], body: bytes = b""
    ) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        sent = {name: text for name, text in headers.items() if name.lower() not in _NOT_PASSED_ON}
        sent |= {"Authorization": self._authorization, "Accept-Encoding": "identity"}
        return self._session.request(method, url, headers=sent, data=body or None, allow_redirects=False)

    def _url(self, path: str, query: Mapping[str, str]) -> yarl.URL:
        return self._upstream.with_path(path).with_query(dict(query))

    # -- watches

    async def _watch(self, request: web.Request, call: Call, fault: Fault | None) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        query = dict(call.query)
        if self._frozen_at:
            await response.prepare(request)
            if query.get("sendInitialEvents") == "true":
                query = await self._initial_events(request, response, call, query)
            await self._flow.wait()
        async with self._ask("GET", self._url(call.path, query), request.headers) as answer:
            if answer.status != 200 and not response.prepared:
                return web.Response(status=answer.status, body=await answer.read(), headers=_kept(answer.headers))
            if not response.prepared:
                await response.prepare(request)
            if fault == Fault("expired"):
                await response.write(expired_event())
                return response
            await self._talk(response, call.target, answer, fault)
            if fault is not None and fault.kind == "cut in the middle":
                return _cut(request)
        return response

    async def _talk(
        self, response: web.StreamResponse, about: Target, answer: aiohttp.ClientResponse, fault: Fault | None
    ) -> None:
        try:
            async with asyncio.timeout(fault.after_s if fault is not None and fault.after_s else None):
                async for line in _lines(answer.content):
                    if self._withheld is not None and _is_about(line, about, self._withheld):
                        await self._flow.wait()
                    await response.write(line)
        except TimeoutError:
            if fault is not None and fault.kind == "silent":
                # The client ends it, which cancels this; or the test does.
                await self._stopped.wait()

    # -- the older view

    async def _frozen_list(
        self, request: web.Request, call: Call, query: Mapping[str, str]
    ) -> tuple[int, bytes, Mapping[str, str]]:
        asked = {name: text for name, text in query.items() if name in {"labelSelector", "fieldSelector", "limit"}}
        if "continue" in query:
            asked["continue"] = query["continue"]
        else:
            asked |= {"resourceVersion": self._frozen_at, "resourceVersionMatch": "Exact"}
        metadata_only = "as=PartialObjectMetadata" in request.headers.get("Accept", "")
        headers = {"Accept": _METADATA_LIST if metadata_only else "application/json"}
        async with self._ask("GET", self._url(call.target.collection, asked), headers) as answer:
            return answer.status, await answer.read(), _kept(answer.headers)

    async def _show_frozen(self, request: web.Request, call: Call) -> web.StreamResponse:
        name = call.target.name
        query = {"fieldSelector": f"metadata.name={name}"} if name else call.query
        status, payload, headers = await self._frozen_list(request, call, query)
        if not name or status != 200:
            return web.Response(status=status, body=payload, headers=headers)
        document = json.loads(payload)
        if not document.get("items"):
            return web.Response(status=404, body=_absent(call.target), content_type="application/json")
        kind = document["kind"].removesuffix("List")
        body = {"apiVersion": document["apiVersion"], "kind": kind, **document["items"][0]}
        return web.json_response(body)

    async def _initial_events(
        self, request: web.Request, response: web.StreamResponse, call: Call, query: dict[str, str]
    ) -> dict[str, str]:
        """Streams the older view as a list; returns the query that goes on from there."""
        kept = {name: text for name, text in query.items() if name not in {"limit", "continue"}}
        _, payload, _ = await self._frozen_list(request, call, kept)
        document = json.loads(payload)
        for item in document.get("items") or []:
            await response.write(json.dumps({"type": "ADDED", "object": item}).encode() + b"\n")
        version = document["metadata"]["resourceVersion"]
        end = {"resourceVersion": version, "annotations": {"k8s.io/initial-events-end": "true"}}
        await response.write(json.dumps({"type": "BOOKMARK", "object": {"metadata": end}}).encode() + b"\n")
        gone = {"sendInitialEvents", "resourceVersionMatch"}
        return {**{name: text for name, text in query.items() if name not in gone}, "resourceVersion": version}


@contextlib.contextmanager
def proxy(cluster: DevCluster, namespace: str) -> Iterator[Proxy]:
    """A proxy that works for the length of a block."""
    made, started = Proxy(cluster, namespace), threading.Event()
    thread = threading.Thread(target=made.run, args=[started], name=f"proxy of {namespace}")
    thread.start()
    try:
        assert started.wait(30), "the proxy does not start"
        yield made
    finally:
        made.stop()
        thread.join(30)


def _cut(request: web.Request) -> web.Response:
    """Breaks the connection; what is answered then goes nowhere."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in headers.items() if name.lower() in {"content-type", "retry-after", "warning"}}


def _version(payload: bytes) -> int:
    try:
        return int(json.loads(payload)["metadata"]["resourceVersion"])
    except (ValueError, KeyError, TypeError):
        return 0


def _absent(about: Target) -> bytes:
    status = {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NotFound", "code": 404,
        "message": f'{about.resource} "{about.name}" not found',
        "details": {"name": about.name, "kind": about.resource},
    }  # fmt: skip
    return json.dumps(status).encode()


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Whole lines of any length, with their line end."""
    rest = b""
    async for chunk in content.iter_any():
        *ends, rest = (rest + chunk).split(b"\n")
        for end in ends:
            yield end + b"\n"


def _is_about(line: bytes, watched: Target, withheld: Target) -> bool:
    if watched.resource != withheld.resource:
        return False
    try:
        return bool(json.loads(line)["object"]["metadata"].get("name") == withheld.name)
    except (ValueError, KeyError, TypeError):
        return False
