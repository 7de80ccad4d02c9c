"""What a client sees of a scripted API server: the same over HTTP, through the transport, as in memory."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from addon_operator.errors import KubeError
from addon_operator.kube.client import ApiServer
from tests.component.kube.api import Handler, Script, breaks, gives, proxy_says, refuses, serving, streams
from tests.component.kube.api_in_memory import ApiInMemory
from tests.connection import transport

Site = tuple[Script, ApiServer]
Outcome = bytes | tuple[int, str, float | None]
TIMEOUT: Outcome = (0, "Timeout", None)
PATIENCE_S = 30.0
PATH = "/api/v1/namespaces/n/configmaps"


@pytest.fixture(params=["over HTTP", "in memory"])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    if request.param == "in memory":
        api = ApiInMemory()
        yield api, api
        return
    async with serving() as server, transport(server.kubeconfig(tmp_path)) as made:
        yield server, made


def refused(error: KubeError) -> tuple[int, str, float | None]:
    return error.status, error.reason, error.retry_after_s


async def requested(api: ApiServer, *, timeout_s: float) -> Outcome:
    try:
        return await api.request("GET", PATH, timeout_s=timeout_s)
    except KubeError as error:
        return refused(error)


async def streamed(api: ApiServer, *, idle_timeout_s: float) -> AsyncIterator[Outcome]:
    try:
        async with contextlib.aclosing(api.stream(PATH, query={}, idle_timeout_s=idle_timeout_s)) as lines:
            async for line in lines:
                yield line
    except KubeError as error:
        yield refused(error)


@pytest.mark.parametrize(
    ("steps", "wanted", "failures"),
    [
        pytest.param([gives({"a": 1})], b'{"a":1}', 0, id="document"),
        pytest.param([streams(b'{"a"', b":1}")], b'{"a":1}', 0, id="in pieces"),
        pytest.param([refuses(404, "NotFound", message="no such thing")], (404, "NotFound", None), 0, id="refused"),
        pytest.param([refuses(500, "")], (500, "Internal Server Error", None), 0, id="refused without a reason"),
        pytest.param([refuses(429, "Busy")], (429, "Busy", None), 0, id="429"),
        pytest.param([refuses(503, "Busy", retry_after="60")], (503, "Busy", 60.0), 0, id="tried again too late"),
        pytest.param([refuses(429, "Busy", retry_after="0"), gives({})], b"{}", 0, id="tried again"),
        pytest.param([refuses(500, "Busy", retry_after="0")], (500, "Busy", 0.1), 0, id="not tried again"),
        pytest.param([proxy_says(502)], (502, "Bad Gateway", None), 1, id="nobody behind the proxy"),
        pytest.param([proxy_says(404)], (404, "Not Found", None), 0, id="404 of a proxy"),
        pytest.param([breaks(b'{"a"')], (0, "ConnectionLost", None), 1, id="broken"),
        pytest.param([streams(b"{}", stay=True)], TIMEOUT, 1, id="without end"),
        pytest.param([], TIMEOUT, 1, id="silent"),
    ],
)
async def test_answer_of_a_request(site: Site, steps: list[Handler], wanted: Outcome, failures: int) -> None:
    script, api = site
    script.steps = [*steps]
    assert await requested(api, timeout_s=0.2 if wanted == TIMEOUT else PATIENCE_S) == wanted
    assert api.reachability.failures == failures
    assert len(script.asked) == max(len(steps), 1)


@pytest.mark.parametrize(
    ("steps", "wanted", "failures"),
    [
        pytest.param([streams(b"1\n2\n\n3", b"\n", b"4\n5")], [b"1", b"2", b"3", b"4"], 0, id="ended"),
        pytest.param([streams()], [], 0, id="ended at once"),
        pytest.param([gives({"a": 1})], [], 0, id="document without a line break"),
        pytest.param([breaks(b"1\n2")], [b"1", (0, "ConnectionLost", None)], 0, id="broken"),
        pytest.param([streams(b"1\n", stay=True)], [b"1", TIMEOUT], 0, id="gone silent"),
        pytest.param([refuses(410, "Gone")], [(410, "Gone", None)], 0, id="refused"),
        pytest.param([refuses(429, "Busy", retry_after="1")], [(429, "Busy", 1.0)], 0, id="not tried again"),
        pytest.param([proxy_says(503)], [(503, "Service Unavailable", None)], 1, id="nobody behind the proxy"),
        pytest.param([], [TIMEOUT], 1, id="silent"),
    ],
)
async def test_answer_of_a_stream(site: Site, steps: list[Handler], wanted: list[Outcome], failures: int) -> None:
    script, api = site
    script.steps = [*steps]
    idle_timeout_s = 1.0 if TIMEOUT in wanted else PATIENCE_S
    assert [outcome async for outcome in streamed(api, idle_timeout_s=idle_timeout_s)] == wanted
    assert api.reachability.failures == failures


async def test_message_of_a_refusal(site: Site) -> None:
    script, api = site
    script.steps = [refuses(403, "Forbidden", message="not you")] * 2
    with pytest.raises(KubeError, match=f"^GET {PATH}: 403 Forbidden: not you$"):
        await api.request("GET", PATH)
    with pytest.raises(KubeError, match=f"^GET {PATH}: 403 Forbidden: not you$"):
        await anext(api.stream(PATH, query={}, idle_timeout_s=5))


async def test_what_is_asked_is_remembered(site: Site) -> None:
    script, api = site
    script.steps = [gives({}), streams()]
    await api.request(
        "PATCH",
        "/api/v1/nodes/a%3Ab",
        query={"force": "true", "q": "a=b"},
        body=b"{}",
        content_type="x/y",
        accept="z/z",
    )
    assert [line async for line in api.stream("/apis", query={"watch": "1"}, accept="z/w", idle_timeout_s=5)] == []
    patch, watch = script.asked
    assert (patch.method, patch.path, patch.body) == ("PATCH", "/api/v1/nodes/a:b", b"{}")
    assert patch.query == {"force": "true", "q": "a=b"}
    assert (patch.headers["Content-Type"], patch.headers["Accept"]) == ("x/y", "z/z")
    assert (watch.method, watch.path, watch.query, watch.body) == ("GET", "/apis", {"watch": "1"}, b"")
    assert watch.headers["Accept"] == "z/w"
