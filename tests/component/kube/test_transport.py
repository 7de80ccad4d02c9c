"""The transport against a scripted server: retries, deadlines, credentials, streams."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import socket
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import KubeError, SettingsError
from addon_operator.kube.client import KubeClient
from addon_operator.kube.transport import HttpTransport, RequestStat
from addon_operator.webhooks.certificates import Authority, make_context
from tests.component.kube.api import Api, breaks, gives, refuses, streams


@contextlib.asynccontextmanager
async def connected(
    kubeconfig: Path | None, *, context: str | None = None, server: str | None = None, qps: float = 0, burst: int = 1
) -> AsyncIterator[tuple[HttpTransport, list[RequestStat]]]:
    stats: list[RequestStat] = []
    transport = await HttpTransport.connect(
        config_file=kubeconfig, context=context, server=server, qps=qps, burst=burst, on_request=stats.append
    )
    try:
        yield transport, stats
    finally:
        await transport.close()


@pytest.fixture
async def transport(api: Api, tmp_path: Path) -> AsyncIterator[HttpTransport]:
    async with connected(api.kubeconfig(tmp_path)) as (made, _):
        yield made


# --- one request ---


async def test_body_and_types_arrive_as_they_were_given(transport: HttpTransport, api: Api) -> None:
    api.steps = [gives({"done": True})]
    answer = await transport.request(
        "PATCH",
        "/api/v1/nodes/n",
        query={"fieldManager": "a b&c"},
        body=b'[{"op":"remove" , "path":"/x"}]',
        content_type="application/json-patch+json",
        accept="application/json;as=Table",
    )
    assert answer == b'{"done":true}'
    [asked] = api.asked
    assert (asked.method, asked.path, asked.query) == ("PATCH", "/api/v1/nodes/n", {"fieldManager": "a b&c"})
    assert asked.body == b'[{"op":"remove" , "path":"/x"}]'
    assert asked.headers["Content-Type"] == "application/json-patch+json"
    assert asked.headers["Accept"] == "application/json;as=Table"


async def test_every_exchange_is_counted(api: Api, tmp_path: Path) -> None:
    api.steps = [refuses(429, "TooManyRequests", retry_after="0"), gives({}), refuses(404, "NotFound")]
    async with connected(api.kubeconfig(tmp_path)) as (transport, stats):
        await transport.request("GET", "/api/v1/namespaces/a/pods/b")
        with pytest.raises(KubeError):
            await transport.request("DELETE", "/api/v1/nodes/c")
    assert [(stat.verb, stat.path, stat.code) for stat in stats] == [
        ("GET", "/api/v1/namespaces/{namespace}/pods/{name}", 429),
        ("GET", "/api/v1/namespaces/{namespace}/pods/{name}", 200),
        ("DELETE", "/api/v1/nodes/{name}", 404),
    ]
    assert {stat.host for stat in stats} == {api.url.removeprefix("http://")}


async def test_server_that_asks_for_patience_gets_it(transport: HttpTransport, api: Api) -> None:
    api.steps = [refuses(429, "Busy", retry_after="1"), refuses(503, "Busy", retry_after="0"), gives({"n": 1})]
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await transport.request("POST", "/x", body=b"{}") == b'{"n":1}'
    assert loop.time() - began >= 1
    assert [asked.body for asked in api.asked] == [b"{}"] * 3


@pytest.mark.parametrize(
    ("status", "retry_after"),
    [
        pytest.param(429, "60", id="longer than the deadline"),
        pytest.param(503, None, id="no time named"),
        pytest.param(500, "0", id="other status"),
    ],
)
async def test_other_refusals_are_raised_at_once(
    transport: HttpTransport, api: Api, status: int, retry_after: str | None
) -> None:
    api.steps = [refuses(status, "Busy", message="not now", retry_after=retry_after)]
    with pytest.raises(KubeError, match=f"GET /x: {status} Busy: not now") as caught:
        await transport.request("GET", "/x", timeout_s=5)
    assert (caught.value.status, caught.value.reason) == (status, "Busy")
    assert caught.value.retry_after_s == (60.0 if retry_after == "60" else 0.1 if retry_after else None)


ADMISSION = 'admission webhook "x.example.com" denied the request'
RBAC = 'secrets "s" is forbidden: User "u" cannot get resource "secrets" in API group "" in the namespace "n"'
QUOTA = 'secrets "s" is forbidden: exceeded quota: q, requested: count/secrets=1, used: count/secrets=1'
POLICY = "secrets \"s\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        pytest.param(f"{ADMISSION}: no hush here", f": {ADMISSION}", id="webhook"),
        pytest.param(f"{RBAC}: hush", f": {RBAC}", id="rbac"),
        pytest.param(QUOTA, f": {QUOTA}", id="quota"),
        pytest.param(f"{POLICY}: no hush here", f": {POLICY}", id="policy"),
        pytest.param('Secret "s" is invalid: data: hush must be mixed', "", id="what it was sent"),
        pytest.param(f"hush: {ADMISSION}", "", id="somewhere inside"),
    ],
)
async def test_refusals_about_secrets_say_why_without_what_is_in_them(
    transport: HttpTransport, api: Api, message: str, said: str
) -> None:
    path = "/api/v1/namespaces/n/secrets/s"
    api.steps = [refuses(403, "Forbidden", message=message), refuses(403, "Forbidden", message=message)]
    with pytest.raises(KubeError) as caught:
        await transport.request("GET", path)
    assert str(caught.value) == f"GET {path}: 403 Forbidden{said}"
    with pytest.raises(KubeError) as caught:
        await transport.request("GET", "/x")
    assert "hush" not in str(caught.value)


async def test_refusal_that_is_not_json(transport: HttpTransport, api: Api) -> None:
    api.steps = [streams(b"<html>"), gives("text", status=502)]
    assert await transport.request("GET", "/x") == b"<html>"
    with pytest.raises(KubeError, match="502 Bad Gateway"):
        await transport.request("GET", "/x")


async def test_silence_ends_at_the_deadline(transport: HttpTransport, api: Api) -> None:
    with pytest.raises(KubeError, match=r"GET /x: no answer within 0\.2 s") as caught:
        await transport.request("GET", "/x", timeout_s=0.2)
    assert (caught.value.status, caught.value.reason) == (0, "Timeout")


async def test_nobody_listens() -> None:
    async with connected(None, server="http://127.0.0.1:9") as (transport, stats):
        with pytest.raises(KubeError, match=r"127\.0\.0\.1:9") as caught:
            await transport.request("GET", "/x")
    assert (caught.value.status, caught.value.reason) == (0, "Unreachable")
    assert [stat.code for stat in stats] == [0]


async def test_server_that_says_no_goodbye_is_hung_up_on(tmp_path: Path) -> None:
    pair, closed = Authority().issue(["127.0.0.1"], validity_s=600), threading.Event()
    kubeconfig = tmp_path / "kubeconfig"

    def answer(listening: socket.socket) -> None:
        with make_context(pair, ()).wrap_socket(listening.accept()[0], server_side=True) as connection:
            connection.recv(2**16)
            connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
            closed.wait(60)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"https://127.0.0.1:{listening.getsockname()[1]}"
        authority = base64.b64encode(pair.authority).decode()
        kubeconfig.write_text(
            "{current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}], users: [{name: u, user: {}}],"
            f" clusters: [{{name: c, cluster: {{server: '{address}', certificate-authority-data: {authority}}}}}]}}"
        )
        serving = asyncio.create_task(asyncio.to_thread(answer, listening))
        async with connected(kubeconfig) as (transport, _):
            assert await transport.request("GET", "/x") == b"{}"
        left = transport._sockets.still_open()
        closed.set()
        await serving
    assert left == []


async def test_redirect_is_not_followed_with_our_credentials(transport: HttpTransport, api: Api) -> None:
    api.steps = [gives({}, status=302, headers={"Location": "/elsewhere"})]
    with pytest.raises(KubeError, match="302"):
        await transport.request("GET", "/x")
    assert [asked.path for asked in api.asked] == ["/x"]


async def test_own_limit_spreads_requests(api: Api, tmp_path: Path) -> None:
    api.steps = [gives({}) for _ in range(4)]
    async with connected(api.kubeconfig(tmp_path), qps=5, burst=2) as (transport, stats):
        await asyncio.gather(*(transport.request("GET", "/x") for _ in range(4)))
    assert [stat.wait_s > 0 for stat in sorted(stats, key=lambda stat: stat.wait_s)] == [False, False, True, True]


async def test_waiting_for_the_server_is_said_and_ends(
    api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api.steps = [breaks(), refuses(503, "Starting"), gives({"gitVersion": "v1.36.3"})]
    async with connected(api.kubeconfig(tmp_path)) as (transport, _):
        assert await KubeClient(transport).wait_reachable() == "v1.36.3"
    said = capsys.readouterr()
    assert "waiting for the API server" in said.out + said.err


# --- credentials and configuration ---


def plugin(directory: Path) -> JsonObject:
    """An exec plugin whose token carries the number of its runs."""
    script, runs = directory / "plugin", directory / "runs"
    script.write_text(
        "#!/bin/sh\n"
        f'echo x >> "{runs}"\n'
        'printf \'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t%d"}}\' '
        f'"$(wc -l < "{runs}")"\n'
    )
    script.chmod(0o700)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script)}}


async def test_exec_plugin_runs_again_when_its_token_is_refused(api: Api, tmp_path: Path) -> None:
    api.steps = [gives({}), refuses(401, "Unauthorized"), gives({}), streams(b"a\n")]
    async with connected(api.kubeconfig(tmp_path, plugin(tmp_path))) as (transport, _):
        await transport.request("GET", "/1")
        await transport.request("GET", "/2")
        assert [line async for line in transport.stream("/3", query={}, idle_timeout_s=5)] == [b"a"]
    assert [asked.headers["Authorization"] for asked in api.asked] == [
        "Bearer t1",
        "Bearer t1",
        "Bearer t2",
        "Bearer t2",
    ]


async def test_many_refused_at_once_refresh_only_once(api: Api, tmp_path: Path) -> None:
    api.steps = [refuses(401, "Unauthorized") for _ in range(5)] + [gives({}) for _ in range(5)]
    async with connected(api.kubeconfig(tmp_path, plugin(tmp_path))) as (transport, _):
        await asyncio.gather(*(transport.request("GET", "/x") for _ in range(5)))
    assert (tmp_path / "runs").read_text() == "x\n" * 2


async def test_token_file_is_read_again_for_a_stream(api: Api, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    api.steps = [refuses(401, "Unauthorized"), streams(b"a\n")]
    async with connected(api.kubeconfig(tmp_path, {"tokenFile": str(token)})) as (transport, _):
        token.write_text("new")
        assert [line async for line in transport.stream("/x", query={}, idle_timeout_s=5)] == [b"a"]
    assert [asked.headers["Authorization"] for asked in api.asked] == ["Bearer old", "Bearer new"]


async def test_no_credentials_no_header(transport: HttpTransport, api: Api) -> None:
    api.steps = [gives({})]
    await transport.request("GET", "/x")
    assert "Authorization" not in api.asked[0].headers


async def test_service_account_is_used_in_a_pod(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    with pytest.raises(SettingsError, match="service account of the pod: Service token file"):
        await HttpTransport.connect(config_file=None, context=None, server=None, qps=0, burst=1)


async def test_children_reach_the_same_cluster(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = api.kubeconfig(tmp_path)
    monkeypatch.chdir(tmp_path)
    async with connected(Path("kubeconfig"), context="x", server="http://127.0.0.1:9") as (transport, _):
        assert transport.credentials.child_environment() == {"KUBECONFIG": str(path)}
        assert transport.credentials.helm_flags() == ["--kube-context", "x", "--kube-apiserver", "http://127.0.0.1:9"]
    monkeypatch.setenv("KUBECONFIG", str(path))
    async with connected(None) as (transport, _):
        assert transport.credentials.child_environment() == {"KUBECONFIG": str(path)}
        assert transport.credentials.helm_flags() == []


@pytest.mark.parametrize(
    ("content", "context", "message"),
    [
        pytest.param(None, None, "no such file", id="missing"),
        pytest.param("a: [swordfish", None, "not YAML", id="not YAML"),
        pytest.param("[]", None, "not a kubeconfig", id="a list"),
        pytest.param("root:x:0", None, "not a kubeconfig", id="a text"),
        pytest.param("{}", None, "current-context", id="empty"),
        pytest.param(
            "{current-context: x, contexts: [{name: x, context: {cluster: c}}],"
            " clusters: [{name: c, cluster: {server: 'http://h'}}]}",
            "other",
            "name other",
            id="unknown context",
        ),
        pytest.param(
            "{current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}],"
            " clusters: [{name: c, cluster: {server: 'http://h'}}], users: [{name: u, token: swordfish}]}",
            None,
            "Expected key user",
            id="user without its map",
        ),
        pytest.param(
            "{current-context: x, contexts: [{name: x, context: {cluster: c}}],"
            " clusters: [{name: c, cluster: {server: 'https://h', certificate-authority: /nowhere}}]}",
            None,
            "/nowhere",
            id="missing CA",
        ),
    ],
)
async def test_broken_kubeconfig_is_named_without_its_secrets(
    tmp_path: Path, content: str | None, context: str | None, message: str
) -> None:
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SettingsError, match=message) as caught:
        await HttpTransport.connect(config_file=path, context=context, server=None, qps=0, burst=1)
    assert str(path) in str(caught.value)
    assert "swordfish" not in str(caught.value)


# --- streams ---


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        pytest.param([b"a\nb\n"], [b"a", b"b"], id="two in one"),
        pytest.param([b"a", b"b", b"c\nd", b"\n"], [b"abc", b"d"], id="one in several"),
        pytest.param([b"\n\na\n\n"], [b"a"], id="empty ones"),
        pytest.param([b"x" * 300_000, b"x" * 300_000 + b"\ny\n"], [b"x" * 600_000, b"y"], id="a long one"),
        pytest.param([b"a\nunfinished"], [b"a"], id="an unfinished one"),
        pytest.param([], [], id="nothing"),
    ],
)
async def test_stream_gives_whole_lines(
    transport: HttpTransport, api: Api, chunks: list[bytes], lines: list[bytes]
) -> None:
    api.steps = [streams(*chunks)]
    assert [line async for line in transport.stream("/x", query={"watch": "1"}, idle_timeout_s=5)] == lines
    assert api.asked[0].query == {"watch": "1"}


async def test_stream_that_goes_silent_or_breaks_is_an_error(transport: HttpTransport, api: Api) -> None:
    api.steps = [streams(b"a\n", stay=True), breaks(b"a\n"), streams(stay=True)]
    for reason, count, idle_s in [("Timeout", 1, 1), ("ConnectionLost", 1, 3), ("Timeout", 0, 0.1)]:
        lines = transport.stream("/x", query={}, idle_timeout_s=idle_s)
        assert [await anext(lines) for _ in range(count)] == [b"a"] * count
        with pytest.raises(KubeError) as caught:
            await anext(lines)
        assert (caught.value.status, caught.value.reason) == (0, reason)


@pytest.mark.parametrize(("said", "wanted"), [("0", 0.1), ("7", 7), ("86400", 60), ("tomorrow", None)])
async def test_pause_that_the_server_asks_for_is_neither_none_nor_a_day(
    transport: HttpTransport, api: Api, said: str, wanted: float | None
) -> None:
    api.steps = [refuses(429, "TooManyRequests", retry_after=said)]
    with pytest.raises(KubeError) as caught:
        await anext(transport.stream("/x", query={}, idle_timeout_s=5))
    assert caught.value.retry_after_s == wanted


async def test_stream_that_is_not_begun_in_time_is_an_error(transport: HttpTransport, api: Api) -> None:
    for within_s in (0.05, 0.2):
        with pytest.raises(KubeError) as caught:
            await anext(transport.stream("/x", query={}, idle_timeout_s=3600, answer_within_s=within_s))
        assert (caught.value.status, caught.value.reason) == (0, "Timeout")
    assert len(api.asked) == 2


async def test_stream_refused(transport: HttpTransport, api: Api) -> None:
    api.steps = [refuses(410, "Expired")]
    with pytest.raises(KubeError) as caught:
        await anext(transport.stream("/x", query={}, idle_timeout_s=5))
    assert caught.value.status == 410


async def test_no_secret_reaches_the_log(
    api: Api, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    api.steps = [refuses(401, "Unauthorized"), refuses(401, "Unauthorized")]
    caplog.set_level(logging.DEBUG)
    async with connected(api.kubeconfig(tmp_path, {"token": "swordfish"})) as (transport, _):
        with pytest.raises(KubeError) as caught:
            await transport.request("GET", "/x")
    said = capsys.readouterr()
    assert "swordfish" not in caplog.text + said.out + said.err + str(caught.value) + repr(caught.value.__cause__)
