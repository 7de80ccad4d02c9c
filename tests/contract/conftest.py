"""The API server of a case: one in memory, or a real one."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import pytest

from addon_operator.devcluster import DevCluster
from addon_operator.kube.client import ApiServer, KubeClient
from tests.connection import transport
from tests.fakes.api_server import FakeApiServer


@dataclasses.dataclass(frozen=True, slots=True)
class Site:
    """An API server with a namespace that nobody else uses."""

    api: ApiServer
    client: KubeClient
    namespace: str


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.cluster)])
async def site(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    """The same for each of them."""
    if request.param == "fake":
        api = FakeApiServer(namespaces=["default", "ours"])
        yield Site(api, KubeClient(api), "ours")
        return
    cluster: DevCluster = request.getfixturevalue("cluster")
    namespace = await asyncio.to_thread(cluster.namespace)
    async with transport(cluster.kubeconfig) as connection:
        yield Site(connection, KubeClient(connection), namespace)
