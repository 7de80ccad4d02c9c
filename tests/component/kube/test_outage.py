"""An outage of the API server, as a reflector sees it: an API server in memory, virtual time."""

from __future__ import annotations

import asyncio

import pytest

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.kube.client import KubeClient
from addon_operator.kube.informers.reflector import Reflector
from addon_operator.kube.refs import CONFIG_MAPS, WatchEvent, metadata_of
from tests.fakes import clock
from tests.fakes.api_server import FakeApiServer


def config_map(name: str, text: str) -> JsonObject:
    metadata: JsonObject = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": text}}


@pytest.mark.parametrize("compacts", [False, True], ids=["history kept", "history forgotten"])
def test_after_an_outage_the_differences_are_reported_once(*, compacts: bool) -> None:
    seen: list[tuple[WatchEvent, str]] = []

    def take(event: WatchEvent, item: JsonObject) -> None:
        seen.append((event, str(metadata_of(item)["name"])))

    async def main() -> None:
        server = FakeApiServer()
        for name in ("changed", "deleted", "kept"):
            server.put(config_map(name, "before"))
        reflector = Reflector(KubeClient(server), CONFIG_MAPS, namespace="default", handler=take)
        running = asyncio.create_task(reflector.run(), name="reflector")
        await reflector.wait_synced(30)
        seen.clear()
        server.go_away()
        await asyncio.sleep(20)
        server.put(config_map("changed", "after"))
        server.put(config_map("new", "after"))
        server.remove(CONFIG_MAPS, "default", "deleted")
        if compacts:
            server.compact()
        assert seen == []
        server.come_back()
        await asyncio.sleep(60)
        assert server.reachability.away_since is None
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    clock.run(main())
    assert sorted(seen) == [("Added", "new"), ("Deleted", "deleted"), ("Modified", "changed")]
