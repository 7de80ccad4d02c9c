"""The connection to the API server: JSON bytes in, JSON bytes out.

The only module that knows the Kubernetes library, of which it uses the configuration loading (kubeconfig, in-cluster,
exec plugins, token files). Requests go through aiohttp as they are: the library's own transport encodes bodies again
and rewrites the content type of patches. What requests mean is the callers' business.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import socket
import ssl
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, Self, TypeVar

import aiohttp
import yaml
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

from addon_operator.documents import jsondoc
from addon_operator.errors import KubeError, SettingsError
from addon_operator.kube import discovery
from addon_operator.kube.history import History
from addon_operator.kube.reachability import Reachability
from addon_operator.kube.refs import path_template
from addon_operator.logs import get_logger
from addon_operator.redaction.messages import redact_status
from addon_operator.retry import RetryPolicy, TokenBucket

_log = get_logger("kube")

_WAIT_FOR_SERVER = RetryPolicy(0.2, 5.0)
# Not 404: a server that is about to start has no pages yet.
_REFUSALS: Final = frozenset({400, 401, 403, 405, 406, 409, 422})
_GATEWAY: Final = frozenset({502, 503, 504})
_LONGEST_MESSAGE = 1000
# Not longer: a connection on which nothing happens may be dead, and the next request would find out by its deadline.
_KEEPALIVE_S = 15.0
_LONGEST_PAUSE_S = 60.0
_GOODBYE_S = 1.0
_HUNG_UP_WITHIN_S = 5.0
_T = TypeVar("_T")


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


class KubeClient:
    """A connection to one API server; safe for concurrent use within one event loop.

    Made by `connect`, ended by `close`. Every request has a deadline, waits for the client's own limit, and is tried
    again when the server asks for it (429 and 503 with Retry-After) or refuses the credentials once (401).

    Attributes:
        history: whether the server has gone back to an older state.
        reachability: whether the server answers.
    """

    def __init__(self, access: _Access, *, limiter: TokenBucket, on_request: Callable[[RequestStat], None]) -> None:
        """Used by `connect` only."""
        self._access = access
        self._limiter = limiter
        self._on_request = on_request
        self.history, self.reachability = History(), Reachability()
        self._sockets = weakref.WeakSet[socket.socket]()
        # The server's compression costs more time than a cluster's own network saves.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, socket_factory=self._socket, keepalive_timeout=_KEEPALIVE_S),
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
        """Reads the configuration and makes a client; sends nothing yet.

        Args:
            config_file: a kubeconfig; None takes `$KUBECONFIG` or `~/.kube/config`, and without those the pod's own
                service account.
            context: a context of the kubeconfig; None takes its current one.
            server: the address of the API server, instead of the configured one.
            qps: requests a second; 0 means no limit.
            burst: requests at once above that.
            on_request: told about every exchange.

        Raises:
            SettingsError: the configuration cannot be read, or there is none.
        """
        access = await _Access.load(_kubeconfig(config_file), context, server)
        return cls(access, limiter=TokenBucket(qps, burst), on_request=on_request or _ignore)

    def apart(self) -> Self:
        """Makes a client with the same credentials, but connections of its own and no limit, for what must not wait."""
        return type(self)(self._access, limiter=TokenBucket(0, 1), on_request=self._on_request)

    async def close(self) -> None:
        """Closes all connections; waits a moment for those that say goodbye to the server, then hangs up."""
        await self._session.close()
        for one in await self._left_after(_GOODBYE_S):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        await self._left_after(_HUNG_UP_WITHIN_S)

    async def _left_after(self, limit_s: float) -> list[socket.socket]:
        """Waits until all sockets are closed, and answers those that are not."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while any(one.fileno() >= 0 for one in self._sockets):  # noqa: ASYNC110 -- they tell nobody
                    await asyncio.sleep(0.005)
        return [one for one in self._sockets if one.fileno() >= 0]

    def _socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        made = _socket(address)
        self._sockets.add(made)
        return made

    def child_environment(self) -> dict[str, str]:
        """Gives what helm and hooks need to reach the same cluster: `KUBECONFIG` when one is in use."""
        return {"KUBECONFIG": self._access.kubeconfig} if self._access.kubeconfig else {}

    def helm_flags(self) -> list[str]:
        """Gives helm's flags for the chosen context and server; empty if neither was chosen."""
        context, server = self._access.context, self._access.server
        return [
            *(["--kube-context", context] if context else []),
            *(["--kube-apiserver", server] if server else []),
        ]

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
        """Sends one request and gives the body of the answer.

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
        """Sends a GET whose answer has no end, such as a watch, and gives it line by line.

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

    async def server_version(self) -> str:
        """Asks for the server's version, such as `v1.36.3`.

        Raises:
            KubeError: as `request`.
        """
        return _git_version(await self.request("GET", "/version"))

    async def patiently(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Asks again until the API server answers, and says in the log that it does so.

        Raises:
            KubeError: it answers, and refuses (4xx), or there are no credentials to ask it with.
        """
        failures = 0
        while True:
            try:
                answer = await ask()
            except KubeError as error:
                if error.status in _REFUSALS or error.reason == "Credentials":
                    raise
                failures += 1
                delay_s = max(_WAIT_FOR_SERVER.delay_s(failures), error.retry_after_s or 0.0)
                say = _log.warning if failures == 1 or failures % 10 == 0 else _log.debug
                say("waiting for the API server", error=error, reason=error.reason, attempt=failures)
                await asyncio.sleep(delay_s)
            else:
                if failures:
                    _log.info("the API server answers", attempt=failures + 1)
                return answer

    async def wait_reachable(self) -> str:
        """Waits until the API server answers; answers its version.

        Raises:
            KubeError: as `patiently`.
        """
        return _git_version(await self.patiently(lambda: self.request("GET", "/version", timeout_s=10)))

    async def discover(self) -> discovery.Discovery:
        """Asks what the server serves, in two requests.

        Raises:
            KubeError: as `request`, or the server is too old.
        """
        core, groups = await asyncio.gather(
            self.request("GET", "/api", accept=discovery.ACCEPT), self.request("GET", "/apis", accept=discovery.ACCEPT)
        )
        return discovery.parse(jsondoc.loads(core), jsondoc.loads(groups))

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
            seen = self._access.generation
            try:
                response = await self._exchange(stack, call, timeout, whole=whole)
                if response.status < 300:
                    return response
                if response.status != 401 or refreshed:
                    raise _refusal(call, response, await response.read())
                refreshed = True
                await self._access.refresh(seen)
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
            template, host = path_template(call.path), self._access.host
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
        access = self._access
        authorization = await access.authorization()
        sending = self._session.request(
            call.method,
            access.url + call.path,
            params=call.query,
            data=call.body,
            headers={**call.headers, **({"Authorization": authorization} if authorization else {})},
            allow_redirects=False,
            ssl=access.tls,
            server_hostname=access.tls_server_name,
            proxy=access.proxy,
            timeout=timeout,
        )
        return await stack.enter_async_context(sending)

    @contextlib.contextmanager
    def _translated(self, call: _Call) -> Iterator[None]:
        try:
            yield
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(call, self._access.host, error) from error


class _Access:
    """Where the API server is and who we are.

    Attributes:
        generation: grows with each refresh, so that many requests refused at once cause only one.
        kubeconfig: the path in use, or empty in a pod.
    """

    def __init__(self, kubeconfig: str, context: str | None, server: str | None, configuration: Configuration) -> None:
        self.kubeconfig, self.context, self.server = kubeconfig, context, server
        self.generation = 0
        self._refreshing = asyncio.Lock()
        self._use(configuration)

    @classmethod
    async def load(cls, kubeconfig: str, context: str | None, server: str | None) -> Self:
        """Reads the configuration for the first time.

        Raises:
            SettingsError: it cannot be read, or there is none.
        """
        return cls(kubeconfig, context, server, await _configuration(kubeconfig, context, server))

    async def refresh(self, seen: int) -> None:
        """Reads everything again, tokens and exec plugins included, unless that was done since `seen`."""
        async with self._refreshing:
            if self.generation == seen:
                self._use(await _configuration(self.kubeconfig, self.context, self.server))
                self.generation += 1

    async def authorization(self) -> str | None:
        """Gives the Authorization header; a pod's token file is read again each minute."""
        try:
            header: str | None = await self._configuration.get_api_key_with_prefix("BearerToken")
        except (ConfigException, OSError) as error:
            raise SettingsError(f"the service account's token cannot be read: {_brief(error)}") from error
        return header

    def _use(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self.url = (self.server or str(configuration.host)).rstrip("/")
        self.host = self.url.partition("://")[2].partition("/")[0]
        self.tls = _tls(configuration)
        self.tls_server_name: str | None = configuration.tls_server_name
        self.proxy: str | None = configuration.proxy


def _kubeconfig(config_file: Path | None) -> str:
    if config_file is not None:
        return str(config_file.absolute())
    if named := os.environ.get("KUBECONFIG"):
        return named
    usual = Path.home() / ".kube" / "config"
    return str(usual) if usual.is_file() else ""


async def _configuration(kubeconfig: str, context: str | None, server: str | None) -> Configuration:
    configuration = Configuration()
    where = f"kubeconfig {kubeconfig}" if kubeconfig else "service account of the pod"
    try:
        if kubeconfig:
            _check_readable(kubeconfig)
            await load_kube_config(kubeconfig, context, configuration, persist_config=False)  # type: ignore[no-untyped-call]
        elif not server or "KUBERNETES_SERVICE_HOST" in os.environ:
            load_incluster_config(configuration)  # type: ignore[no-untyped-call]
    except yaml.YAMLError as error:
        # The parser quotes the line at fault, which may be a credential.
        raise SettingsError(f"{where}: not YAML") from error
    except (ConfigException, OSError, ValueError) as error:
        raise SettingsError(f"{where}: {_brief(error)}") from error
    except (TypeError, KeyError, AttributeError) as error:
        raise SettingsError(f"{where}: YAML, but not a kubeconfig") from error
    return configuration


def _check_readable(kubeconfig: str) -> None:
    paths = [Path(path).expanduser() for path in kubeconfig.split(os.pathsep) if path]
    if not any(path.exists() for path in paths):
        raise ConfigException("no such file")


def _brief(error: Exception) -> str:
    """Shortens a message of the library, which may go on with a whole entry of the kubeconfig, token included."""
    return str(error).partition("{")[0].rstrip() or type(error).__name__


def _tls(configuration: Configuration) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif configuration.ssl_ca_cert:
        context.load_verify_locations(cafile=configuration.ssl_ca_cert)
    else:
        context.load_default_certs()
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Makes a socket that notices within a minute when the other side is gone without a word."""
    made = socket.socket(*address[:3])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    return made


def _hang_up(response: aiohttp.ClientResponse) -> None:
    """Drops the connection of an answer that was left early: a polite TLS goodbye would outlive the client."""
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()


def _refusal(call: _Call, response: aiohttp.ClientResponse, data: bytes) -> KubeError:
    status = _status(data)
    reason = str(status.get("reason") or response.reason or response.status)
    message = redact_status(status, is_secret="/secrets" in call.path)[:_LONGEST_MESSAGE]
    said = f": {message}" if message else ""
    retry_after_s = _seconds(response.headers.get("Retry-After"))
    return KubeError(
        f"{call}: {response.status} {reason}{said}", status=response.status, reason=reason, retry_after_s=retry_after_s
    )


def _status(data: bytes) -> jsondoc.JsonObject:
    try:
        document = jsondoc.loads(data)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _seconds(header: str | None) -> float | None:
    # At least a moment, so that a server that says 0 is not asked in a tight loop; at most a minute, so that nobody who
    # says a day keeps a watch from going on.
    return min(max(float(header), 0.1), _LONGEST_PAUSE_S) if header and header.isdecimal() else None


def _unreachable(call: _Call, host: str, error: Exception) -> KubeError:
    match error:
        case aiohttp.ClientSSLError():
            reason = "TLS"
        case TimeoutError():
            reason = "Timeout"
        case aiohttp.ClientConnectorError():
            reason = "Unreachable"
        case _:
            reason = "ConnectionLost"
    return KubeError(f"{call}: no answer from the API server {host}: {_cause(error)}", status=0, reason=reason)


def _cause(error: Exception) -> str:
    """Says what went wrong without the internals that aiohttp puts around it."""
    match error:
        case aiohttp.ClientConnectorCertificateError(certificate_error=cause):
            return str(cause)
        case aiohttp.ClientConnectorError(os_error=ConnectionError(errno=int(number))):
            return os.strerror(number)
        case aiohttp.ClientConnectorError(os_error=cause):
            return str(cause)
        case _:
            return str(error) or type(error).__name__


def _git_version(data: bytes) -> str:
    return str(_status(data).get("gitVersion") or "")


def _now() -> float:
    return asyncio.get_running_loop().time()


def _ignore(_stat: RequestStat) -> None:
    """Stands in when nobody counts requests."""
