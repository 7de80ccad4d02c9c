"""The proxy does what the cases rely on; one that let everything through would let every case pass."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from addon_operator.devcluster import DevCluster
from addon_operator.documents.jsondoc import JsonObject
from tests.robustness.faults import Faults
from tests.robustness.proxy import Proxy, Trap, proxy
from tests.robustness.requests import Point, Target

WITHIN_S = 60


@pytest.fixture
def between(plane: DevCluster) -> Iterator[Proxy]:
    with proxy(plane, plane.namespace()) as made:
        yield made


@pytest.fixture
async def api(between: Proxy, tmp_path: Path) -> AsyncIterator[aiohttp.ClientSession]:
    """A client whose paths are those of the ConfigMaps in the namespace of the proxy."""
    access = json.loads(Path(between.environment(tmp_path)["KUBECONFIG"]).read_text())
    base = f"{access['clusters'][0]['cluster']['server']}/api/v1/namespaces/{between.namespace}/"
    async with aiohttp.ClientSession(base, timeout=aiohttp.ClientTimeout(WITHIN_S)) as session:
        yield session


async def create(api: aiohttp.ClientSession, name: str) -> int:
    """Creates a ConfigMap; returns its resource version."""
    async with api.post("configmaps", json={"metadata": {"name": name}}) as answer:
        assert answer.status == 201, await answer.text()
        return int((await answer.json())["metadata"]["resourceVersion"])


async def names(api: aiohttp.ClientSession) -> list[str]:
    async with api.get("configmaps") as answer:
        return [item["metadata"]["name"] for item in (await answer.json())["items"]]


async def next_event(answer: aiohttp.ClientResponse) -> str:
    event: JsonObject = json.loads(await asyncio.wait_for(answer.content.readline(), WITHIN_S))
    about = event["object"]
    assert isinstance(about, dict)
    metadata = about["metadata"]
    assert isinstance(metadata, dict)
    return f"{event['type']} {metadata.get('name', '')}".strip()


async def test_an_older_view(between: Proxy, api: aiohttp.ClientSession) -> None:
    between.freeze(await create(api, "old"))
    await create(api, "new")
    assert await names(api) == ["old"]
    async with api.get("configmaps/old") as answer:
        assert ((await answer.json())["kind"], answer.status) == ("ConfigMap", 200)
    async with api.get("configmaps/new") as answer:
        assert ((await answer.json())["reason"], answer.status) == ("NotFound", 404)
    query = {"watch": "1", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    async with api.get("configmaps", params={**query, "allowWatchBookmarks": "true"}) as watch:
        assert [await next_event(watch) for _ in range(2)] == ["ADDED old", "BOOKMARK"]
        between.flow()
        # From there it goes on as any watch.
        assert await next_event(watch) == "ADDED new"
    assert await names(api) == ["new", "old"]


async def test_withheld_events(between: Proxy, api: aiohttp.ClientSession) -> None:
    version = await create(api, "first")
    between.withhold(Target(resource="configmaps", name="hidden"))
    async with api.get("configmaps", params={"watch": "1", "resourceVersion": str(version)}) as watch:
        await create(api, "before")
        assert await next_event(watch) == "ADDED before"
        await create(api, "hidden")
        await create(api, "behind")
        # What lists shows it: only watches lag.
        assert await names(api) == ["before", "behind", "first", "hidden"]
        coming = asyncio.ensure_future(next_event(watch))
        await asyncio.sleep(0)
        assert not coming.done()
        between.flow()
        assert [await coming, await next_event(watch)] == ["ADDED hidden", "ADDED behind"]


async def test_a_trap_springs_once_and_the_client_never_hears_of_it(between: Proxy, api: aiohttp.ClientSession) -> None:
    struck = threading.Event()
    between.set_trap(Trap(Point("POST configmaps/b", 1), struck.set, before=False))
    await create(api, "a")
    assert not struck.is_set()
    with pytest.raises(aiohttp.ClientError):
        await create(api, "b")
    assert struck.is_set()
    assert await names(api) == ["a", "b"]  # the server has done it
    assert [str(point) for point in between.points] == ["POST configmaps/a", "POST configmaps/b"]
    assert [point.what for point, version in between.versions if version] == ["POST configmaps/a", "POST configmaps/b"]


async def test_a_process_waits_at_the_gate(between: Proxy, tmp_path: Path) -> None:
    struck = threading.Event()
    between.set_trap(Trap(Point("start hook a", 2), struck.set, before=True))
    port = int(between.environment(tmp_path)["GATE_PORT"])

    async def starts() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hook a\n")
        answer = await asyncio.wait_for(reader.readline(), WITHIN_S)
        writer.close()
        await writer.wait_closed()
        return answer

    assert await starts() == b"go\n"
    assert await starts() == b""
    assert struck.is_set()


async def test_faults(between: Proxy, api: aiohttp.ClientSession) -> None:
    await create(api, "a")
    between.set_faults(Faults(3, rate=1.0, watch_rate=0.0))  # a seed that stalls nothing at first
    found: dict[str, int | str] = {}
    merge = {"Content-Type": "application/merge-patch+json"}
    while len(found) < 5:
        answered: int | str = "cut"
        with contextlib.suppress(aiohttp.ClientError):
            async with api.patch("configmaps/a", json={}, headers=merge) as answer:
                answered = answer.status
        found[between.faults_met[-1].partition(":")[0]] = answered
    expected = {"conflict": 409, "throttled": 429, "error": 500, "cut before": "cut", "cut after": "cut", "stall": 200}
    assert found.items() <= expected.items()
    between.set_faults(None)
    assert await names(api) == ["a"]
