"""The verbs of the client: what is sent, what a 404 and a conflict are; over the API server in memory."""

from __future__ import annotations

import asyncio

import pytest

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import KubeError
from addon_operator.kube.client import KubeClient
from addon_operator.kube.refs import CONFIG_MAPS, SECRETS, ObjectRef, Resource
from addon_operator.kube.retries import retry_on_conflict, retry_until_answered
from tests.component.kube.api import Api, gives, proxy_says
from tests.fakes import clock
from tests.fakes.api_server import FakeApiServer

PROXY = KubeError("404 Not Found: a page", status=404, reason="Not Found")
CONFLICT = KubeError("409 Conflict", status=409, reason="Conflict")
THINGS = Resource("example.com", "v1", "Thing", "things", True)


def of_a_proxy(path: str) -> KubeError | None:
    """A proxy that has lost the API server, but for its discovery."""
    return None if path in {"/api", "/apis"} else PROXY


@pytest.fixture
def server() -> FakeApiServer:
    return FakeApiServer(namespaces=["ns"])


async def test_404_of_a_proxy_is_no_absence(server: FakeApiServer) -> None:
    client, ref = KubeClient(server), ObjectRef(CONFIG_MAPS, "ns", "a")
    server.fault = lambda _method, path: of_a_proxy(path)
    for attempt in (client.get(ref), client.delete(ref)):
        with pytest.raises(KubeError, match="a proxy in front of it") as caught:
            await attempt
        assert (caught.value.status, caught.value.reason) == (502, "BadGateway")
    with pytest.raises(KubeError) as caught:
        await client.get_existing(ref)
    assert caught.value is PROXY


async def test_what_the_api_server_says_of_an_object_takes_one_request(server: FakeApiServer) -> None:
    client, ref = KubeClient(server), ObjectRef(CONFIG_MAPS, "ns", "a")
    assert await client.get(ref) is None
    assert await client.delete(ref) is None
    assert server.asked == [("GET", ref.path), ("DELETE", ref.path)]


async def test_object_of_a_kind_that_is_not_served_does_not_exist(server: FakeApiServer) -> None:
    client = KubeClient(server)
    assert await client.get(ObjectRef(THINGS, "ns", "a")) is None
    assert [path for _, path in server.asked[1:]] == ["/api", "/apis"]
    with pytest.raises(KubeError) as caught:
        await client.get_existing(ObjectRef(THINGS, "ns", "a"))
    assert not caught.value.not_found


async def test_refusals_are_raised(server: FakeApiServer) -> None:
    forbidden = KubeError("403", status=403, reason="Forbidden")
    server.fault = lambda _method, _path: forbidden
    client, ref = KubeClient(server), ObjectRef(SECRETS, "ns", "a")
    for attempt in (client.get(ref), client.delete(ref), client.replace(ref, {}), client.is_served(SECRETS)):
        with pytest.raises(KubeError) as caught:
            await attempt
        assert caught.value is forbidden


async def test_what_is_not_json_is_an_error(client: KubeClient, api: Api) -> None:
    api.steps = [gives("a page")]
    assert await client.get(ObjectRef(CONFIG_MAPS, "ns", "a")) == {}
    api.steps = [proxy_says(200)]
    with pytest.raises(KubeError, match="not JSON") as caught:
        await client.get(ObjectRef(CONFIG_MAPS, "ns", "a"))
    assert (caught.value.status, caught.value.reason) == (0, "BadAnswer")


async def test_options_of_a_delete_are_sent_only_if_there_are_any(client: KubeClient, api: Api) -> None:
    api.steps = [gives({"kind": "Status"})] * 2
    ref = ObjectRef(CONFIG_MAPS, "ns", "a")
    await client.delete(ref)
    await client.delete(ref, propagation="Background", uid="u")
    assert api.asked[0].body == b""
    assert api.asked[1].body == (
        b'{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background","preconditions":{"uid":"u"}}'
    )


# --- retries


def attempts(*outcomes: KubeError | str) -> tuple[str, int, float]:
    """Returns what came out in the end, after how many attempts, and how long they took."""
    left = list(outcomes)

    async def attempt() -> str:
        outcome = left.pop(0)
        if isinstance(outcome, KubeError):
            raise outcome
        return outcome

    async def main() -> tuple[str, int, float]:
        try:
            result = await retry_on_conflict(attempt)
        except KubeError as error:
            result = str(error)
        return result, len(outcomes) - len(left), asyncio.get_running_loop().time()

    return clock.run(main())


def test_conflicts_are_tried_again_ten_times() -> None:
    assert attempts("done") == ("done", 1, 0)
    exists = KubeError("409 AlreadyExists", status=409, reason="AlreadyExists")
    assert attempts(CONFLICT, exists, "done")[:2] == ("done", 3)
    result, times, took_s = attempts(*[CONFLICT] * 20)
    assert (result, times) == ("409 Conflict", 10)
    assert took_s < 10


@pytest.mark.parametrize(
    "refusal",
    [
        KubeError("403", status=403, reason="Forbidden"),
        KubeError("409 of ours", status=409, reason="ForeignObject"),
        KubeError("404", status=404, reason="NotFound"),
    ],
    ids=str,
)
def test_other_refusals_are_not_tried_again(refusal: KubeError) -> None:
    assert attempts(refusal, "done") == (str(refusal), 1, 0)


def test_server_that_is_away_is_waited_for() -> None:
    async def main() -> tuple[JsonObject | None, float, float]:
        server = FakeApiServer()
        client, loop = KubeClient(server), asyncio.get_running_loop()
        server.go_away()
        loop.call_later(60, server.come_back)
        await asyncio.sleep(1)
        found = await retry_until_answered(lambda: client.get(ObjectRef(CONFIG_MAPS, "default", "a")))
        return found, loop.time(), client.reachability.away_s

    found, answered_at, away_s = clock.run(main())
    assert found is None
    assert 60 <= answered_at <= 66
    assert away_s == 0


def test_error_in_other_words_keeps_what_it_is() -> None:
    error = KubeError("429", status=429, reason="TooManyRequests", retry_after_s=3)
    prefixed = error.with_message(f"module m: {error}")
    assert str(prefixed) == "module m: 429"
    assert (prefixed.status, prefixed.reason, prefixed.retry_after_s) == (429, "TooManyRequests", 3)
