"""What a hook deletes is announced to healing right before the request; what others delete is missed."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest

from addon_operator.devcluster import DevCluster
from addon_operator.documents.jsondoc import JsonObject
from addon_operator.helm.cluster import Cluster
from addon_operator.helm.healing import Healing
from addon_operator.kube.client import KubeClient
from addon_operator.kube.patch_ops import parse
from addon_operator.kube.patcher import ObjectPatcher
from addon_operator.kube.refs import CONFIG_MAPS, ObjectKey
from tests.connection import connected

FINALIZER: JsonObject = {"finalizers": ["example.com/hold"]}


class Site:
    """A release of ConfigMaps that is followed, and a patcher that announces what it deletes.

    Attributes:
        losses: what healing has reported.
        announced: what the patcher announced, and which requests had been answered by then.
    """

    def __init__(self, client: KubeClient, cluster: Cluster, namespace: str, sent: list[str]) -> None:
        self.client, self.namespace, self.sent = client, namespace, sent
        self.losses: asyncio.Queue[tuple[ObjectKey, ...]] = asyncio.Queue()
        self.announced: list[tuple[ObjectKey, bool]] = []
        self.healing = Healing(client, namespace, cluster=cluster, events=self)
        self.patcher = ObjectPatcher(client, client.discover, delete_timeout_s=0.1, on_delete=self._announce)

    def objects_absent(self, _release: str, objects: tuple[ObjectKey, ...], /) -> None:
        self.losses.put_nowait(objects)

    def definition_gone(self, name: str, *, unexpected: bool) -> None:
        raise AssertionError(name)

    def _announce(self, key: ObjectKey) -> None:
        self.announced.append((key, "DELETE" in self.sent))
        self.healing.expect_deletion([key])

    def key(self, name: str) -> ObjectKey:
        return ObjectKey("v1", "ConfigMap", self.namespace, name)

    async def hook(self, *operations: JsonObject) -> None:
        await self.patcher.apply(parse("\n".join(map(json.dumps, operations)).encode(), "hook"))

    async def release(self, **objects: JsonObject) -> None:
        labels: JsonObject = {"app.kubernetes.io/managed-by": "Helm"}
        for name, extra in objects.items():
            metadata: JsonObject = {"name": name, "namespace": self.namespace, "labels": labels, **extra}
            document: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
            await self.hook({"operation": "Create", "object": document})
        await self.healing.follow("demo", map(self.key, objects))
        assert await self.healing.confirm_missing("demo") == ()

    def delete(self, name: str, **fields: str) -> JsonObject:
        return {"operation": "DeleteInBackground", "kind": "cm", "namespace": self.namespace, "name": name, **fields}

    async def somebody_deletes(self, name: str) -> None:
        await self.client.api.request("DELETE", CONFIG_MAPS.path(self.namespace, name))


@contextlib.asynccontextmanager
async def running(cluster: DevCluster, namespace: str) -> AsyncIterator[Site]:
    sent: list[str] = []
    async with connected(cluster.kubeconfig, on_request=lambda stat: sent.append(stat.verb)) as client:
        site = Site(client, await Cluster.ask(client), namespace, sent)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(site.healing.run(), name="healing")
            yield site
            task.cancel()


@pytest.fixture
async def site(cluster: DevCluster) -> AsyncIterator[Site]:
    async with running(cluster, cluster.namespace("forgives")) as made:
        yield made


async def test_what_a_hook_deletes_is_missed_by_the_next_run_only(site: Site) -> None:
    await site.release(a={}, b={})
    await site.hook(site.delete("a"))
    await site.somebody_deletes("b")
    assert await site.losses.get() == (site.key("b"),)
    assert site.losses.empty()
    assert await site.healing.confirm_missing("demo") == (site.key("a"), site.key("b"))


async def test_an_object_that_a_finalizer_holds_goes_on_purpose_in_the_end(site: Site) -> None:
    await site.release(a=FINALIZER, b={})
    await site.hook(site.delete("a"))
    free: JsonObject = {"metadata": {"finalizers": None}}
    await site.hook({**site.delete("a"), "operation": "MergePatch", "mergePatch": free})
    await site.somebody_deletes("b")
    assert await site.losses.get() == (site.key("b"),)


async def test_deletions_are_announced_before_they_are_sent_as_the_server_names_them(site: Site) -> None:
    await site.hook(site.delete("none"))
    await site.hook(site.delete("none", subresource="status"))
    cluster_wide: JsonObject = {"operation": "Delete", "kind": "clusterrole", "namespace": "ignored", "name": "none"}
    await site.hook(cluster_wide)
    assert site.announced == [
        (site.key("none"), False),
        (ObjectKey("rbac.authorization.k8s.io/v1", "ClusterRole", "", "none"), True),
    ]
