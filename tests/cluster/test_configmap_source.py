"""The operator's ConfigMap against a real API server: nobody's change is lost, and everyone's is seen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from addon_operator.configmap.source import ConfigMapSource
from addon_operator.devcluster import DevCluster
from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import KubeError
from addon_operator.kube.client import KubeClient
from addon_operator.kube.refs import CONFIG_MAPS
from tests.cluster.outage import outage_beside
from tests.connection import connected
from tests.fakes.background import running

NAME = "addon-operator"

Data = Mapping[str, str] | None


class Heard:
    """Remembers what a source told."""

    def __init__(self) -> None:
        self.states: list[Data] = []
        self._more = asyncio.Event()

    def __call__(self, data: Data) -> None:
        self.states.append(None if data is None else dict(data))
        self._more.set()

    async def until(self, condition: Callable[[list[Data]], bool]) -> None:
        while not condition(self.states):
            self._more.clear()
            await self._more.wait()


@pytest.fixture
async def client(cluster: DevCluster) -> AsyncIterator[KubeClient]:
    async with connected(cluster.kubeconfig) as client:
        yield client


@pytest.fixture
def namespace(cluster: DevCluster) -> str:
    return cluster.namespace()


def put(key: str, value: str) -> Callable[[Mapping[str, str]], Mapping[str, str]]:
    return lambda data: {**data, key: value}


async def stored(client: KubeClient, namespace: str) -> JsonObject:
    document = jsondoc.loads(await client.api.request("GET", CONFIG_MAPS.path(namespace, NAME)))
    assert isinstance(document, dict)
    return document


async def test_missing_config_map_reads_as_none_and_is_created(client: KubeClient, namespace: str) -> None:
    source = ConfigMapSource(client, namespace, NAME, on_change=Heard())
    assert await source.read() is None
    assert await source.save(put("global", "a: 1")) == {"global": "a: 1"}
    assert await source.read() == {"global": "a: 1"}
    assert jsondoc.lookup(await stored(client, namespace), "/metadata/labels") == {"heritage": "addon-operator"}


async def test_saving_nothing_writes_nothing(client: KubeClient, namespace: str) -> None:
    source = ConfigMapSource(client, namespace, NAME, on_change=Heard())
    assert await source.save(lambda data: data) == {}
    assert await source.read() is None
    await source.save(put("a", "1"))
    before = await stored(client, namespace)
    await source.save(put("a", "1"))
    assert await stored(client, namespace) == before


async def test_config_map_without_data_is_empty(client: KubeClient, cluster: DevCluster, namespace: str) -> None:
    cluster.kubectl("-n", namespace, "create", "configmap", NAME)
    source = ConfigMapSource(client, namespace, NAME, on_change=Heard())
    assert await source.read() == {}
    assert await source.save(put("a", "1")) == {"a": "1"}


async def test_labels_and_binary_data_of_others_stay(client: KubeClient, namespace: str) -> None:
    body = {"metadata": {"name": NAME, "labels": {"theirs": "x"}}, "data": {"b": "2"}, "binaryData": {"z": "AAAA"}}
    await client.api.request("POST", CONFIG_MAPS.path(namespace), body=jsondoc.dumps(body))  # type: ignore[arg-type]
    await ConfigMapSource(client, namespace, NAME, on_change=Heard()).save(put("a", "1"))
    after = await stored(client, namespace)
    assert jsondoc.lookup(after, "/metadata/labels") == {"theirs": "x"}
    assert after["binaryData"] == {"z": "AAAA"}
    assert after["data"] == {"a": "1", "b": "2"}


async def test_many_writers_lose_nothing(client: KubeClient, namespace: str) -> None:
    sources = [ConfigMapSource(client, namespace, NAME, on_change=Heard()) for _ in range(3)]
    saves = [source.save(put(f"key{at}{turn}", "x")) for at, source in enumerate(sources) for turn in range(3)]
    await asyncio.gather(*saves)
    data = await sources[0].read()
    assert data is not None
    assert sorted(data) == [f"key{at}{turn}" for at in range(3) for turn in range(3)]


async def test_failed_read_is_an_error_and_writes_nothing() -> None:
    called: list[Mapping[str, str]] = []
    async with connected(None, server="http://127.0.0.1:9") as unreachable:
        source = ConfigMapSource(unreachable, "default", NAME, on_change=Heard())
        with pytest.raises(KubeError):
            await source.save(lambda data: called.append(data) or data)  # type: ignore[func-returns-value]
    assert called == []


async def test_namespace_that_does_not_exist_is_an_error(client: KubeClient) -> None:
    source = ConfigMapSource(client, "no-such-namespace", NAME, on_change=Heard())
    with pytest.raises(KubeError, match="no-such-namespace") as caught:
        await source.save(put("a", "1"))
    assert caught.value.status == 404


async def test_rejected_mutation_writes_nothing(client: KubeClient, namespace: str) -> None:
    source = ConfigMapSource(client, namespace, NAME, on_change=Heard())

    def refuse(_data: Mapping[str, str]) -> Mapping[str, str]:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await source.save(refuse)
    assert await source.read() is None


async def test_every_change_is_told(client: KubeClient, cluster: DevCluster, namespace: str) -> None:
    heard = Heard()
    async with running(ConfigMapSource(client, namespace, NAME, on_change=heard)):
        await heard.until(lambda states: states == [None])
        cluster.kubectl("-n", namespace, "create", "configmap", NAME, "--from-literal=a=1")
        await heard.until(lambda states: states[-1:] == [{"a": "1"}])
        cluster.kubectl("-n", namespace, "patch", "configmap", NAME, "--type=merge", "-p", '{"data":{"a":"2"}}')
        await heard.until(lambda states: states[-1:] == [{"a": "2"}])
        cluster.kubectl("-n", namespace, "create", "configmap", "another")
        cluster.kubectl("-n", namespace, "delete", "configmap", NAME)
        await heard.until(lambda states: states[-1:] == [None])
    assert heard.states == [None, {"a": "1"}, {"a": "2"}, None]


async def test_own_write_is_told_after_its_caller_knows(client: KubeClient, namespace: str) -> None:
    known: list[Data] = [None]
    surprises: list[Data] = []
    done = asyncio.Event()

    def compare(data: Data) -> None:
        if data != known[-1]:
            surprises.append(data)
        if data == {"n": "19"}:
            done.set()

    source = ConfigMapSource(client, namespace, NAME, on_change=compare)
    async with running(source):
        for at in range(20):
            saved = await source.save(put("n", str(at)))
            known.append(saved)
        await done.wait()
    assert surprises == []


async def test_change_of_others_between_own_writes_is_not_told_late(client: KubeClient, namespace: str) -> None:
    heard = Heard()
    mine = ConfigMapSource(client, namespace, NAME, on_change=heard)
    theirs = ConfigMapSource(client, namespace, NAME, on_change=Heard())
    async with running(mine):
        await heard.until(lambda states: states == [None])
        both = await asyncio.gather(mine.save(put("mine", "1")), theirs.save(put("theirs", "1")))
        last = max(both, key=len)
        assert last == {"mine": "1", "theirs": "1"}
        await heard.until(lambda states: states[-1:] == [last])
        own = both[0]
    own_at = heard.states.index(dict(own))
    assert all(state is not None and set(own) <= set(state) for state in heard.states[own_at:])


async def test_outage_is_caught_up_with(client: KubeClient, cluster: DevCluster, namespace: str) -> None:
    heard = Heard()
    source = ConfigMapSource(client, namespace, NAME, on_change=heard)
    async with running(source):
        await source.save(put("a", "1"))
        await heard.until(lambda states: states[-1:] == [{"a": "1"}])
        async with outage_beside(cluster):
            with pytest.raises(KubeError):
                await source.save(put("a", "lost"))
            await asyncio.to_thread(cluster.start_apiserver)
            before = len(heard.states)
            await asyncio.to_thread(
                cluster.kubectl, "-n", namespace, "patch", "configmap", NAME, "--type=merge", "-p", '{"data":{"a":"2"}}'
            )
            await heard.until(lambda states: states[-1:] == [{"a": "2"}])
    assert heard.states[before:] == [{"a": "2"}]
