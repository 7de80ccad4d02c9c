"""Requests to the API server: JSON bytes in, JSON bytes out, with retries, limits, deadlines and streams.

Requests go through aiohttp as they are: the Kubernetes library's own transport encodes bodies again and rewrites the
content type of patches. What requests mean is the business of `client.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, Self

import aiohttp

from addon_operator.errors import KubeError, SettingsError
from addon_operator.kube.credentials import Credentials
from addon_operator.kube.http_errors import refusal, unreachable
from addon_operator.kube.reachability import Reachability
from addon_operator.kube.refs import path_template
from addon_operator.kube.sockets import Sockets
from addon_operator.retry import TokenBucket

_GATEWAY: Final = frozenset({502, 503, 504})
# Not longer: a connection on which nothing happens may be dead, and the next request would find out by its deadline.
_KEEPALIVE_S = 15.0


@dataclasses.dataclass(frozen=True, slots=True)
class RequestStat:
    """How one HTTP exchange went; retries count one by one. Source: contract.md 2.15.

    Attributes:
        verb: the HTTP method.
        host: host and port of the API server.
        path: the path with placeholders instead of names.
        code: the HTTP status; 0 if there was no answer.
        latency_s: until the whole answer, for a watch until its first byte; without `wait_s`.
        wait_s: how long the client's own limit held the request back.
    """

    verb: str
    host: str
    path: str
    code: int
    latency_s: float
    wait_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class _Call:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes | None = None
    answer_within_s: float | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class HttpTransport:
    """Connections to one API server; safe for concurrent use within one event loop.

    Made by `connect`, ended by `close`. Every request has a deadline, waits for the client's own limit, and is tried
    again when the server asks for it (429 and 503 with Retry-After) or refuses the credentials once (401).

    Attributes:
        credentials: where the server is and who we are.
        reachability: whether the server answers.
    """

    def __init__(
        self, credentials: Credentials, *, limiter: TokenBucket, on_request: Callable[[RequestStat], None]
    ) -> None:
        """Used by `connect` only."""
        self.credentials = credentials
        self.reachability = Reachability()
        self._limiter = limiter
        self._on_request = on_request
        self._sockets = Sockets()
        # The server's compression costs more time than a cluster's own network saves.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, socket_factory=self._sockets.open, keepalive_timeout=_KEEPALIVE_S),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=30),
            headers={"User-Agent": "addon-operator", "Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=True,
        )

    @classmethod
    async def connect(
        cls,
        *,
        config_file: Path | None,
        context: str | None,
        server: str | None,
        qps: float,
        burst: int,
        on_request: Callable[[RequestStat], None] | None = None,
    ) -> Self:
        """Reads the configuration; sends nothing yet.

        Args:
            config_file: as `Credentials.load`.
            context: as `Credentials.load`.
            server: as `Credentials.load`.
            qps: requests a second; 0 means no limit.
            burst: requests at once above that.
            on_request: called with each exchange.

        Raises:
            SettingsError: the configuration cannot be read, or there is none.
        """
        credentials = await Credentials.load(config_file, context, server)
        return cls(credentials, limiter=TokenBucket(qps, burst), on_request=on_request or _ignore)

    def apart(self) -> Self:
        """Returns one with the same credentials, but connections of its own and no limit, for what must not wait."""
        return type(self)(self.credentials, limiter=TokenBucket(0, 1), on_request=self._on_request)

    async def close(self) -> None:
        """Closes all connections; waits a moment for those that say goodbye to the server, then hangs up."""
        await self._session.close()
        await self._sockets.wait_closed()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout_s: float = 30.0,
    ) -> bytes:
        """Sends one request and returns the body of the answer.

        Args:
            method: `GET`, `POST`, `PUT`, `PATCH`, `DELETE`.
            path: from the server's root, as `Resource.path` builds it.
            query: parameters, not yet escaped.
            body: sent as it is.
            content_type: of the body; tells the kinds of patches apart.
            accept: of the answer.
            timeout_s: for everything, waiting and retries included.

        Raises:
            KubeError: the server refused (its status and reason), or there was no usable answer (status 0).
        """
        headers = {"Accept": accept} | ({"Content-Type": content_type} if body is not None else {})
        call = _Call(method, path, query or {}, headers, body)
        try:
            async with asyncio.timeout(timeout_s) as deadline:
                return await self._persist(call, deadline.when() or 0.0)
        except TimeoutError as error:
            self.reachability.failed("Timeout")
            raise KubeError(f"{call}: no answer within {timeout_s:g} s", status=0, reason="Timeout") from error

    async def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str],
        accept: str = "application/json",
        idle_timeout_s: float,
        answer_within_s: float = 30.0,
    ) -> AsyncGenerator[bytes, None]:
        """Sends a GET whose answer has no end, such as a watch, and yields it line by line.

        Lines are of any length, without their line break; empty ones are left out. It ends when the server ends it.
        Wrap it in `contextlib.aclosing` when leaving early.

        Args:
            path: from the server's root.
            query: parameters, not yet escaped.
            accept: of the answer.
            idle_timeout_s: the longest silence.
            answer_within_s: how long the beginning of the answer may take, once the request is sent.

        Raises:
            KubeError: the server refused, went silent (status 0, `Timeout`) or the connection broke (status 0).
        """
        call = _Call("GET", path, query, {"Accept": accept}, answer_within_s=answer_within_s)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=idle_timeout_s)
        async with contextlib.AsyncExitStack() as stack:
            response = await self._open(stack, call, timeout, whole=False)
            stack.callback(_hang_up, response)
            pieces: list[bytes] = []
            with self._translated(call):
                async for chunk in response.content.iter_any():
                    self.reachability.answered()
                    *ends, rest = chunk.split(b"\n")
                    for end in ends:
                        line = b"".join([*pieces, end])
                        pieces.clear()
                        if line:
                            yield line
                    if rest:
                        pieces.append(rest)

    async def _persist(self, call: _Call, deadline: float) -> bytes:
        while True:
            try:
                async with contextlib.AsyncExitStack() as stack:
                    response = await self._open(stack, call, self._session.timeout, whole=True)
                    return await response.read()
            except KubeError as error:
                delay_s = error.retry_after_s
                if error.status not in {429, 503} or delay_s is None or _now() + delay_s >= deadline:
                    raise
            await asyncio.sleep(delay_s)

    async def _open(
        self, stack: contextlib.AsyncExitStack, call: _Call, timeout: aiohttp.ClientTimeout, *, whole: bool
    ) -> aiohttp.ClientResponse:
        refreshed = False
        while True:
            seen = self.credentials.generation
            try:
                response = await self._exchange(stack, call, timeout, whole=whole)
                if response.status < 300:
                    return response
                if response.status != 401 or refreshed:
                    raise refusal(str(call), response, await response.read(), is_secret="/secrets" in call.path)
                refreshed = True
                await self.credentials.refresh(seen)
            except SettingsError as error:
                # A token or a kubeconfig that is being replaced; whoever sent the request tries again.
                raise KubeError(f"{call}: {error}", status=0, reason="Credentials") from error

    async def _exchange(
        self, stack: contextlib.AsyncExitStack, call: _Call, timeout: aiohttp.ClientTimeout, *, whole: bool
    ) -> aiohttp.ClientResponse:
        wait_s = self._limiter.reserve(_now())
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        code, began = 0, _now()
        try:
            with self._translated(call):
                async with asyncio.timeout(call.answer_within_s):
                    response = await self._send(stack, call, timeout)
                if whole or response.status >= 300:
                    await response.read()
            code = response.status
            self._note_answer(response)
        except KubeError as error:
            self.reachability.failed(error.reason)
            raise
        finally:
            template, host = path_template(call.path), self.credentials.host
            self._on_request(RequestStat(call.method, host, template, code, _now() - began, wait_s))
        return response

    def _note_answer(self, response: aiohttp.ClientResponse) -> None:
        if response.status in _GATEWAY and response.content_type != "application/json":
            # A proxy in front of it says that nobody is there.
            self.reachability.failed(f"{response.status} {response.reason}")
        else:
            self.reachability.answered()

    async def _send(
        self, stack: contextlib.AsyncExitStack, call: _Call, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        credentials = self.credentials
        authorization = await credentials.authorization()
        sending = self._session.request(
            call.method,
            credentials.url + call.path,
            params=call.query,
            data=call.body,
            headers={**call.headers, **({"Authorization": authorization} if authorization else {})},
            allow_redirects=False,
            ssl=credentials.tls,
            server_hostname=credentials.tls_server_name,
            proxy=credentials.proxy,
            timeout=timeout,
        )
        return await stack.enter_async_context(sending)

    @contextlib.contextmanager
    def _translated(self, call: _Call) -> Iterator[None]:
        try:
            yield
        except (aiohttp.ClientError, OSError) as error:
            raise unreachable(str(call), self.credentials.host, error) from error


def _hang_up(response: aiohttp.ClientResponse) -> None:
    """Drops the connection of an answer that was left early: a polite TLS goodbye would outlive the client."""
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()


def _now() -> float:
    return asyncio.get_running_loop().time()


def _ignore(_stat: RequestStat) -> None:
    """Is called when nobody counts requests."""
