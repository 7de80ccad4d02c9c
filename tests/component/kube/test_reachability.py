"""What the client notes about whether the API server answers, and what the log says of it."""

from __future__ import annotations

import asyncio

import pytest

from addon_operator.errors import KubeError
from addon_operator.kube.client import KubeClient
from addon_operator.kube.reachability import Reachability
from tests.component.kube.api import Api, Handler, breaks, gives, proxy_says, refuses, streams
from tests.connection import connected
from tests.fakes import clock
from tests.fakes.background import running

AWAY = "the API server does not answer"
BACK = "the API server answers again"


async def ask(client: KubeClient, times: int) -> None:
    for _ in range(times):
        with pytest.raises(KubeError):
            await client.api.request("GET", "/api", timeout_s=0.3)


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(breaks(), id="cut"),
        pytest.param(proxy_says(502), id="502"),
        pytest.param(proxy_says(503), id="503"),
    ],
)
async def test_server_that_does_not_answer_three_times_is_away_until_it_does(
    client: KubeClient, api: Api, trouble: Handler
) -> None:
    seen = client.reachability

    def away() -> bool:
        assert (seen.away_since is None) == (seen.away_s == 0)
        return seen.away_since is not None

    api.steps = [gives({}), trouble, trouble, trouble, trouble, refuses(500, "InternalError")]
    await client.api.request("GET", "/api")
    await ask(client, 2)
    assert not away()
    await ask(client, 1)
    assert away()
    since = seen.away_since
    await ask(client, 1)
    assert seen.away_since == since
    # What it says does not matter.
    await ask(client, 1)
    assert not away()


async def test_server_that_is_silent_is_away(client: KubeClient, api: Api) -> None:
    await ask(client, 3)
    assert client.reachability.away_since is not None
    assert client.reachability.reason == "Timeout"
    api.steps = [streams(b"{}\n", stay=True)]
    async for _ in client.api.stream("/api", query={}, idle_timeout_s=5):
        break
    assert client.reachability.away_since is None


async def test_server_that_refuses_connections_is_away(api: Api) -> None:
    async with connected(None, server="http://127.0.0.1:9") as nobody:
        await ask(nobody, 3)
        assert nobody.reachability.reason == "Unreachable"
        assert nobody.reachability.away_since is not None


@pytest.mark.parametrize("status", [401, 403, 404, 409, 429, 500, 503, 504])
async def test_server_that_refuses_is_not_away(client: KubeClient, api: Api, status: int) -> None:
    api.steps = [refuses(status, "Refused") for _ in range(10)]
    await ask(client, 4)
    assert client.reachability.away_since is None


def test_log_says_every_minute_that_the_server_is_away_and_then_that_it_is_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def main() -> None:
        seen = Reachability()
        async with running(seen):
            for _ in range(3):
                seen.failed("Unreachable")
                await asyncio.sleep(1)
            await asyncio.sleep(5 * 60)
            seen.answered()
            await asyncio.sleep(10 * 60)

    clock.run(main())
    said = [line for line in capsys.readouterr().out.splitlines() if AWAY in line or BACK in line]
    assert [AWAY in line for line in said] == [True] * 6 + [False]
    assert [f"away_s={seconds} " in f"{line} " for line, seconds in zip(said, range(2, 400, 60), strict=False)][:6] == (
        [True] * 6
    )
    assert "away_s=303" in said[-1]


def test_trouble_that_is_over_before_it_counts_is_not_said(capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        seen = Reachability()
        async with running(seen):
            for _ in range(10):
                seen.failed("ConnectionLost")
                seen.failed("ConnectionLost")
                seen.answered()
                await asyncio.sleep(60)

    clock.run(main())
    assert capsys.readouterr().out == ""
