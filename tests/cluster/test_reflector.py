"""Informers against a real API server: what happens is told exactly once, whatever becomes of the server meanwhile."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import NamedTuple

import aiohttp
import pytest

from addon_operator.devcluster import DevCluster
from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import KubeError
from addon_operator.kube import crds
from addon_operator.kube.client import KubeClient
from addon_operator.kube.informers.reflector import Reflector
from addon_operator.kube.refs import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, ObjectRef, Resource, WatchEvent
from addon_operator.kube.transport import HttpTransport
from tests.cluster.outage import outage_beside
from tests.cluster.test_kube import crd, merge


class Counting(HttpTransport):
    """Counts the watches that were begun."""

    streams = 0

    def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str],
        accept: str = "application/json",
        idle_timeout_s: float,
        answer_within_s: float = 30.0,
    ) -> AsyncGenerator[bytes, None]:
        """Does what it did, once more."""
        self.streams += 1
        return super().stream(
            path, query=query, accept=accept, idle_timeout_s=idle_timeout_s, answer_within_s=answer_within_s
        )


class PagesOnly(HttpTransport):
    """A connection to a server that does not stream lists."""

    def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str],
        accept: str = "application/json",
        idle_timeout_s: float,
        answer_within_s: float = 30.0,
    ) -> AsyncGenerator[bytes, None]:
        """Refuses as a server without the feature does."""
        if "sendInitialEvents" in query:
            raise KubeError("sendInitialEvents is forbidden", status=422, reason="Invalid")
        return super().stream(
            path, query=query, accept=accept, idle_timeout_s=idle_timeout_s, answer_within_s=answer_within_s
        )


@pytest.fixture
async def counting(cluster: DevCluster) -> AsyncIterator[Counting]:
    made = await Counting.connect(config_file=cluster.kubeconfig, context=None, server=None, qps=0, burst=1)
    yield made
    await made.close()


@pytest.fixture
def client(counting: Counting) -> KubeClient:
    return KubeClient(counting)


@pytest.fixture
async def pages_only(cluster: DevCluster) -> AsyncIterator[KubeClient]:
    made = await PagesOnly.connect(config_file=cluster.kubeconfig, context=None, server=None, qps=0, burst=1)
    yield KubeClient(made)
    await made.close()


async def create(client: KubeClient, namespace: str, name: str, **data: str) -> JsonObject:
    return await make(client, CONFIG_MAPS, namespace, {"metadata": {"name": name}, "data": {**data}})


async def make(client: KubeClient, resource: Resource, namespace: str, body: JsonObject) -> JsonObject:
    whole: JsonObject = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
    answer = jsondoc.loads(await client.api.request("POST", resource.path(namespace), body=jsondoc.dumps(whole)))
    assert isinstance(answer, dict)
    return answer


class Event(NamedTuple):
    kind: WatchEvent
    object: JsonObject


class Recorder:
    """Remembers events as `(kind, name)` and lets a test wait for them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._more = asyncio.Event()

    def __call__(self, kind: WatchEvent, item: JsonObject) -> None:
        self.events.append(Event(kind, item))
        self._more.set()

    def names(self) -> list[tuple[str, str]]:
        return [(event.kind, name_of(event)) for event in self.events if name_of(event) != "kube-root-ca.crt"]

    async def until(self, *wanted: tuple[str, str]) -> None:
        while not set(wanted) <= set(self.names()):
            self._more.clear()
            await self._more.wait()


def name_of(event: Event) -> str:
    metadata = event.object["metadata"]
    assert isinstance(metadata, dict)
    return str(metadata["name"])


@contextlib.asynccontextmanager
async def watching(*reflectors: Reflector) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(reflector.run(), name="reflector under test") for reflector in reflectors]
    try:
        for reflector in reflectors:
            await reflector.wait_synced(30)
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("metadata_only", [False, True], ids=["whole objects", "metadata only"])
@pytest.mark.parametrize("streamed", [False, True], ids=["pages", "streamed"])
async def test_informer_tells_what_happens(
    client: KubeClient, pages_only: KubeClient, cluster: DevCluster, streamed: bool, metadata_only: bool
) -> None:
    namespace, heard = cluster.namespace(), Recorder()
    await create(client, namespace, "old", key="value")
    connection = client if streamed else pages_only
    reflector = Reflector(connection, CONFIG_MAPS, namespace=namespace, metadata_only=metadata_only, handler=heard)
    async with watching(reflector):
        assert heard.names() == [("Added", "old")]
        await create(client, namespace, "new", key="value")
        await merge(client, CONFIG_MAPS.path(namespace, "old"), {"metadata": {"labels": {"a": "b"}}})
        await client.api.request("DELETE", CONFIG_MAPS.path(namespace, "new"))
        await heard.until(("Deleted", "new"))
    assert heard.names() == [("Added", "old"), ("Added", "new"), ("Modified", "old"), ("Deleted", "new")]
    for event in heard.events:
        metadata = event.object["metadata"]
        assert isinstance(metadata, dict)
        assert "managedFields" not in metadata
        assert (event.object["apiVersion"], event.object["kind"]) == ("v1", "ConfigMap")
        assert ("data" in event.object) is not metadata_only


async def test_many_objects_are_listed_once_each(
    client: KubeClient, pages_only: KubeClient, cluster: DevCluster
) -> None:
    namespace, streamed, paged = cluster.namespace(), Recorder(), Recorder()
    wanted = {f"c{at:04}" for at in range(600)}
    await asyncio.gather(*(create(client, namespace, name) for name in wanted))
    async with watching(
        Reflector(client, CONFIG_MAPS, namespace=namespace, handler=streamed),
        Reflector(pages_only, CONFIG_MAPS, namespace=namespace, handler=paged),
    ):
        for heard in (streamed, paged):
            assert {name for _, name in heard.names()} == wanted
            assert len(heard.names()) == len(wanted)


async def test_selectors_decide_what_is_added_and_deleted(client: KubeClient, cluster: DevCluster) -> None:
    namespace, heard = cluster.namespace(), Recorder()
    path = CONFIG_MAPS.path(namespace, "one")
    reflector = Reflector(client, CONFIG_MAPS, namespace=namespace, label_selector="app=a", handler=heard)
    async with watching(reflector):
        await create(client, namespace, "one")
        for app in ("a", "b", "a"):
            await merge(client, path, {"metadata": {"labels": {"app": app}}})
        await create(client, namespace, "last")
        await merge(client, CONFIG_MAPS.path(namespace, "last"), {"metadata": {"labels": {"app": "a"}}})
        await heard.until(("Added", "last"))
    assert heard.names() == [("Added", "one"), ("Deleted", "one"), ("Added", "one"), ("Added", "last")]


async def test_watch_that_the_server_ends_goes_on_where_it_was(
    client: KubeClient, counting: Counting, cluster: DevCluster
) -> None:
    namespace, heard = cluster.namespace(), Recorder()
    await create(client, namespace, "first")
    reflector = Reflector(client, CONFIG_MAPS, namespace=namespace, handler=heard, watch_timeout_s=2)
    async with watching(reflector):
        while counting.streams < 2:
            await asyncio.sleep(0.01)
        await create(client, namespace, "second")
        await heard.until(("Added", "second"))
    assert heard.names() == [("Added", "first"), ("Added", "second")]


def custom(plural: str) -> Resource:
    return Resource("kube.test.example.com", "v1", plural.capitalize(), plural, True)


@pytest.mark.parametrize("compacted", [False, True], ids=["restarted", "restarted and compacted"])
async def test_outage_of_the_api_server_shows_the_difference_only(
    client: KubeClient, pages_only: KubeClient, cluster: DevCluster, compacted: bool
) -> None:
    namespace = cluster.namespace()
    staying, going = custom(f"stays{compacted:d}"), custom(f"goes{compacted:d}")
    definitions = [(kind.plural, crd(kind.plural, kind.kind)) for kind in (staying, going)]
    await crds.install(client, definitions, labels={})
    for kind in (staying, going):
        await make(client, kind, namespace, {"metadata": {"name": "custom"}})
    for name in ("edit", "kept", "lost"):
        await create(client, namespace, name, text="old")

    streamed, paged, still, gone = heard = [Recorder() for _ in range(4)]
    troubles: list[KubeError | None] = []
    reflectors = [
        Reflector(client, CONFIG_MAPS, namespace=namespace, handler=streamed),
        Reflector(pages_only, CONFIG_MAPS, namespace=namespace, handler=paged),
        Reflector(client, staying, namespace=namespace, handler=still, on_error=troubles.append),
        Reflector(client, going, namespace=None, handler=gone),
    ]
    async with watching(*reflectors):
        before = [recorder.names() for recorder in heard]
        seen = max(int(reflector.resource_version) for reflector in reflectors)
        async with outage_beside(cluster):
            await change_behind_the_back(cluster, namespace, going)
            if compacted:
                await compact(cluster, beyond=seen)
        await gone.until(("Deleted", "custom"))
        await create(client, namespace, "later")
        await make(client, staying, namespace, {"metadata": {"name": "later"}})
        for recorder in heard[:3]:
            await recorder.until(("Added", "later"))
    after = [recorder.names()[len(then) :] for recorder, then in zip(heard, before, strict=True)]
    for names in after[:2]:
        assert sorted(names[:3]) == [("Added", "more"), ("Deleted", "lost"), ("Modified", "edit")]
        assert names[3:] == [("Added", "later")]
    assert after[2:] == [[("Added", "later")], [("Deleted", "custom")]]
    assert troubles[0] is not None
    assert troubles[-1] is None
    await client.api.request("DELETE", CUSTOM_RESOURCE_DEFINITIONS.path(name=f"{staying.plural}.{staying.group}"))


async def change_behind_the_back(cluster: DevCluster, namespace: str, kind: Resource) -> None:
    """Changes `edit`, makes `more`, takes `lost` and a custom kind away, while no API server can tell."""
    place = f"/registry/configmaps/{namespace}"
    await put(cluster, f"{place}/edit", (await get(cluster, f"{place}/edit")).replace(b"old", b"new"))
    await put(cluster, f"{place}/more", (await get(cluster, f"{place}/kept")).replace(b"kept", b"more"))
    for key in (
        f"{place}/lost",
        f"/registry/apiextensions.k8s.io/customresourcedefinitions/{kind.plural}.{kind.group}",
        f"/registry/{kind.group}/{kind.plural}/{namespace}/custom",
    ):
        assert (await etcd(cluster, "kv/deleterange", key=encoded(key)))["deleted"] == "1"


async def compact(cluster: DevCluster, *, beyond: int) -> None:
    """Makes etcd forget everything up to a revision that nobody has seen yet."""
    await put(cluster, "/elsewhere", b"x")
    header = (await etcd(cluster, "kv/put", key=encoded("/elsewhere"), value=encoded("x")))["header"]
    assert isinstance(header, dict)
    assert int(str(header["revision"])) > beyond
    await etcd(cluster, "kv/compaction", revision=header["revision"], physical=True)


async def get(cluster: DevCluster, key: str) -> bytes:
    answer = await etcd(cluster, "kv/range", key=encoded(key))
    return base64.b64decode(str(jsondoc.lookup(answer, "/kvs/0/value")))


async def put(cluster: DevCluster, key: str, value: bytes) -> None:
    await etcd(cluster, "kv/put", key=encoded(key), value=base64.b64encode(value).decode())


async def etcd(cluster: DevCluster, method: str, **body: object) -> JsonObject:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{cluster.etcd_endpoint}/v3/{method}", json=body) as response,
    ):
        document = jsondoc.loads(await response.read())
    assert response.status == 200, document
    assert isinstance(document, dict)
    return document


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def test_kind_that_is_not_served_yet_is_said_and_then_found(client: KubeClient) -> None:
    resource = custom("latecomers")
    troubles: list[KubeError | None] = []
    reflector = Reflector(client, resource, namespace=None, handler=Recorder(), on_error=troubles.append)
    task = asyncio.create_task(reflector.run(), name="reflector under test")
    try:
        while not troubles:
            await asyncio.sleep(0.01)
        with pytest.raises(KubeError, match=r"latecomers.*404"):
            await reflector.wait_synced(0.1)
        await crds.install(client, [("late.yaml", crd("latecomers", resource.kind))], labels={})
        await reflector.wait_synced(30)
    finally:
        task.cancel()
        await asyncio.wait([task])
        with contextlib.suppress(KubeError):
            await client.delete(ObjectRef(CUSTOM_RESOURCE_DEFINITIONS, "", "latecomers.kube.test.example.com"))
    assert troubles[0] is not None
    assert troubles[0].status == 404
    assert troubles[-1] is None


async def gone(client: KubeClient, path: str) -> None:
    """Waits until an object that is being deleted is not there any more."""
    async with asyncio.timeout(30):
        while True:
            try:
                await client.api.request("GET", path)
            except KubeError as error:
                if error.status == 404:
                    return
                raise
            await asyncio.sleep(0.05)


async def test_kind_that_is_removed_takes_its_objects_along(client: KubeClient, cluster: DevCluster) -> None:
    resource, namespace, heard = custom("leavers"), cluster.namespace(), Recorder()
    await crds.install(client, [("leave.yaml", crd("leavers", resource.kind))], labels={})
    await make(client, resource, namespace, {"metadata": {"name": "one"}})
    async with watching(Reflector(client, resource, namespace=None, handler=heard)):
        await client.api.request("DELETE", CUSTOM_RESOURCE_DEFINITIONS.path(name="leavers.kube.test.example.com"))
        await heard.until(("Deleted", "one"))
        await gone(client, CUSTOM_RESOURCE_DEFINITIONS.path(name="leavers.kube.test.example.com"))
        await crds.install(client, [("leave.yaml", crd("leavers", resource.kind))], labels={})
        await make(client, resource, namespace, {"metadata": {"name": "two"}})
        await heard.until(("Added", "two"))
        await client.api.request("DELETE", CUSTOM_RESOURCE_DEFINITIONS.path(name="leavers.kube.test.example.com"))
    assert heard.names()[:3] == [("Added", "one"), ("Deleted", "one"), ("Added", "two")]
