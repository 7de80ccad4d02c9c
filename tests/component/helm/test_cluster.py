"""When the cluster is asked again for its APIs: virtual time."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Sequence

import pytest

from addon_operator.helm.cluster import Cluster
from addon_operator.kube.client import KubeClient
from addon_operator.kube.discovery import Discovery
from addon_operator.kube.refs import Resource
from tests.fakes import clock
from tests.fakes.api_server import FakeApiServer


class Server:
    """An API server that serves kinds from some answer on, and counts how often it is asked what it serves."""

    def __init__(self, *, kinds: Sequence[Resource] = (), late: int = 0) -> None:
        self.asked = 0
        self.client = KubeClient(api := FakeApiServer())

        def count(_method: str, path: str) -> None:
            self.asked += path == "/apis"
            for resource in kinds if self.asked > late else ():
                api.register(resource)

        api.fault = count


@pytest.mark.parametrize(
    ("steps", "asked"),
    [
        pytest.param("renew", 0, id="nothing has changed"),
        pytest.param("change 20 renew", 1, id="a change"),
        pytest.param("change 20 renew renew", 1, id="once"),
        pytest.param("change 1 renew 1 renew", 2, id="the answer may lag behind the change"),
        pytest.param("change 1 renew 20 renew 1 renew", 2, id="it does not for long"),
    ],
)
def test_asks_again_after_a_change(steps: str, asked: int) -> None:
    async def play() -> int:
        server = Server()
        cluster = Cluster(server.client, "v1.36.0", Discovery([], []))
        for step in steps.split():
            if step == "change":
                cluster.mark_stale()
            elif step == "renew":
                await cluster.refresh_if_stale()
            else:
                await asyncio.sleep(float(step))
        return server.asked

    assert clock.run(play()) == asked


@pytest.mark.parametrize(
    ("created", "lacks"),
    [
        pytest.param("2026-01-01T12:00:00Z", False, id="long before"),
        pytest.param("2026-01-01T12:00:55Z", True, id="shortly before"),
        pytest.param("2026-01-01T12:01:05Z", True, id="after"),
        pytest.param("", True, id="unknown"),
    ],
)
def test_the_first_answer_may_lack_what_is_new(created: str, *, lacks: bool) -> None:
    asked_at = datetime.datetime(2026, 1, 1, 12, 1, tzinfo=datetime.UTC).timestamp()
    cluster = Cluster(Server().client, "v1.36.0", Discovery([], []), asked_at=asked_at)
    assert cluster.may_lack(created) is lacks


@pytest.mark.parametrize(
    ("late", "known", "longest_s"),
    [
        pytest.param(0, True, 0, id="at once"),
        pytest.param(3, True, 0.2, id="a moment later"),
        pytest.param(1000, False, 12, id="never"),
    ],
)
def test_learns_of_kinds_that_are_listed_later(*, late: int, known: bool, longest_s: float) -> None:
    served = [Resource("example.com", "v1", kind, f"{kind.lower()}s", True) for kind in ("One", "Two")]
    kinds = [f"example.com/v1/{resource.kind}" for resource in served]

    async def play() -> tuple[bool, float]:
        cluster = Cluster(Server(kinds=served, late=late).client, "v1.36.0", Discovery([], kinds[:1]))
        await cluster.wait_for_kinds(kinds)
        return set(kinds) <= set(cluster.apis.api_versions()), asyncio.get_running_loop().time()

    found, took_s = clock.run(play())
    assert found is known
    assert took_s <= longest_s
