"""Watches of a real API server through a proxy that goes silent without closing anything."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest

from addon_operator.devcluster import DevCluster
from addon_operator.kube.informers.reflector import Reflector
from addon_operator.kube.refs import CONFIG_MAPS
from tests.cluster.test_reflector import Recorder, create, watching
from tests.connection import connected
from tests.fakes.proxy import proxying


async def test_change_behind_a_silent_proxy_is_heard_of_when_the_watch_should_have_ended(cluster: DevCluster) -> None:
    namespace, heard = await asyncio.to_thread(cluster.namespace), Recorder()
    host, port = urlsplit(cluster.server).hostname, urlsplit(cluster.server).port
    assert host is not None
    assert port is not None
    async with (
        proxying(host, port) as proxy,
        connected(cluster.kubeconfig) as direct,
        connected(cluster.kubeconfig, server=f"https://{host}:{proxy.port}") as proxied,
    ):
        reflector = Reflector(
            proxied,
            CONFIG_MAPS,
            namespace=namespace,
            handler=heard,
            watch_timeout_s=5,
        )
        async with watching(reflector):
            # The first watch, which began with the list, ends: the second one is on the same connection or another.
            while proxy.accepted < 2:
                await asyncio.sleep(0.01)
            proxy.go_silent()
            await create(direct, namespace, "later")
            await heard.until(("Added", "later"))
    assert [name for _, name in heard.names()] == ["later"]


async def test_idle_watches_are_renewed_on_the_connections_that_there_are(cluster: DevCluster) -> None:
    namespace = await asyncio.to_thread(cluster.namespace)
    host, port = urlsplit(cluster.server).hostname, urlsplit(cluster.server).port
    assert host is not None
    assert port is not None
    counted: list[str] = []
    async with (
        proxying(host, port) as proxy,
        connected(
            cluster.kubeconfig,
            server=f"https://{host}:{proxy.port}",
            on_request=lambda stat: counted.append(stat.path),
        ) as client,
    ):
        reflector = Reflector(client, CONFIG_MAPS, namespace=namespace, handler=Recorder(), watch_timeout_s=2)
        async with watching(reflector):
            while len(counted) < 3:
                await asyncio.sleep(0.01)
            before, connections = len(counted), proxy.accepted
            while len(counted) < before + 3:
                await asyncio.sleep(0.01)
            assert proxy.accepted == connections
    assert len(counted) == pytest.approx(before + 3, abs=1)
