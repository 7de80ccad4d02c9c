"""Monitors against a real API server: what a binding's snapshot holds and which changes it is told."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from addon_operator.devcluster import DevCluster
from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import KubeError
from addon_operator.kube.client import KubeClient
from addon_operator.kube.discovery import Discovery
from addon_operator.kube.informers.monitor import Monitor, Monitors, WatchSpec
from addon_operator.kube.refs import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, ObjectKey, Resource, WatchEvent
from addon_operator.kube.transport import RequestStat
from tests.cluster.outage import outage_beside
from tests.connection import connected
from tests.fakes.monitors import Change

NAMESPACES = Resource("", "v1", "Namespace", "namespaces", False)
ROLES = Resource("rbac.authorization.k8s.io", "v1", "Role", "roles", True)
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", True)
SERVICE_ACCOUNTS = Resource("", "v1", "ServiceAccount", "serviceaccounts", True)


class Heard:
    """A listener that remembers all, and lets a test wait for something."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.failures: list[tuple[str, str, str]] = []
        self.reasons: list[str | None] = []
        self.runs = 0
        self._more = asyncio.Event()

    def on_event(self, event: WatchEvent, about: ObjectKey, document: bytes, filter_result: bytes | None, /) -> None:
        self.changes.append(Change(event, about, document, filter_result))
        self._more.set()

    def on_filter_failed(self, about: ObjectKey, error: str) -> None:
        self.failures.append((about.namespace, about.name, error))

    def on_filtered(self, seconds: float) -> None:
        assert seconds >= 0
        self.runs += 1

    def on_blocked(self, reason: str | None) -> None:
        self.reasons.append(reason)
        self._more.set()

    def short(self) -> list[tuple[str, str]]:
        return [(change.kind, change.name) for change in self.changes if change.name != "kube-root-ca.crt"]

    async def until(self, condition: Callable[[Heard], bool]) -> None:
        while not condition(self):
            self._more.clear()
            await self._more.wait()

    async def until_heard(self, *kinds_and_names: tuple[str, str]) -> None:
        await self.until(lambda heard: len(heard.short()) >= len(kinds_and_names))
        assert self.short() == [*kinds_and_names]


class Site:
    """A namespace, monitors that run, and what their client asked the server for."""

    def __init__(self, client: KubeClient, namespace: str, sent: list[RequestStat]) -> None:
        self.client, self.namespace, self.sent = client, namespace, sent
        self.discovered = 0
        self.errors: list[str] = []
        self.monitors = Monitors(client, self._discover, on_watch_error=self.errors.append)

    async def _discover(self) -> Discovery:
        self.discovered += 1
        return await self.client.discover()

    def begin(self, kind: str = "ConfigMap", **spec: Any) -> tuple[Monitor, Heard]:
        heard = Heard()
        whole = {"namespaces": (self.namespace,), **spec}
        return self.monitors.start(WatchSpec(kind, **whole), heard, title="hook h, binding b"), heard

    async def watch(self, kind: str = "ConfigMap", **spec: Any) -> tuple[Monitor, Heard]:
        monitor, heard = self.begin(kind, **spec)
        await monitor.settled()
        assert monitor.listed, monitor.blocked_reason
        return monitor, heard

    async def create(
        self, name: str, *, namespace: str | None = None, labels: dict[str, str] | None = None, **data: str
    ) -> None:
        metadata = {"name": name, "labels": labels or {}}
        await self.post(CONFIG_MAPS.path(namespace or self.namespace), {"metadata": metadata, "data": data})

    async def post(self, path: str, body: object) -> JsonObject:
        answer = jsondoc.loads(await self.client.api.request("POST", path, body=json.dumps(body).encode()))
        assert isinstance(answer, dict)
        return answer

    async def merge(self, path: str, patch: object) -> None:
        body = json.dumps(patch).encode()
        await self.client.api.request("PATCH", path, body=body, content_type="application/merge-patch+json")

    async def change(self, name: str, **data: str | None) -> None:
        await self.merge(CONFIG_MAPS.path(self.namespace, name), {"data": data})

    async def label(self, name: str, **labels: str | None) -> None:
        await self.merge(CONFIG_MAPS.path(self.namespace, name), {"metadata": {"labels": labels}})

    async def delete(self, name: str, *, namespace: str | None = None) -> None:
        await self.client.api.request("DELETE", CONFIG_MAPS.path(namespace or self.namespace, name))


@contextlib.asynccontextmanager
async def site_of(kubeconfig: Path, namespace: str) -> AsyncIterator[Site]:
    sent: list[RequestStat] = []
    async with connected(kubeconfig, on_request=sent.append) as client:
        made = Site(client, namespace, sent)
        task = asyncio.create_task(made.monitors.run(), name="monitors under test")
        try:
            yield made
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@pytest.fixture
async def site(cluster: DevCluster) -> AsyncIterator[Site]:
    async with site_of(cluster.kubeconfig, cluster.namespace()) as made:
        yield made


def names(monitor: Monitor) -> list[str]:
    found = [json.loads(item.object or b"{}")["metadata"]["name"] for item in monitor.items()]
    return [name for name in found if name != "kube-root-ca.crt"]


def results(monitor: Monitor) -> list[object]:
    return [json.loads(item.filter_result or b"") for item in monitor.items()]


async def test_snapshot_and_changes(site: Site) -> None:
    await site.create("old", key="1")
    monitor, heard = await site.watch("cm")
    assert names(monitor) == ["old"]
    await site.create("new")
    await site.change("old", key="2")
    await site.delete("new")
    await heard.until_heard(("Added", "new"), ("Modified", "old"), ("Deleted", "new"))
    assert names(monitor) == ["old"]
    for change in heard.changes:
        document = json.loads(change.object)
        assert (document["apiVersion"], document["kind"], document["metadata"]["name"]) == (
            "v1",
            "ConfigMap",
            change.name,
        )
        assert (change.about.kind, change.namespace, change.filter_result) == ("ConfigMap", site.namespace, None)


async def test_order_is_by_namespace_then_name(site: Site, cluster: DevCluster) -> None:
    namespaces = sorted([site.namespace, cluster.namespace("a"), cluster.namespace("z")])
    for namespace in reversed(namespaces):
        for name in ("b", "a-b", "a"):
            await site.create(name, namespace=namespace, labels={"order": site.namespace})
    wanted = [(namespace, name) for namespace in namespaces for name in ("a", "a-b", "b")]
    selector = f"order={site.namespace}"
    for spec in ({"namespaces": ()}, {"namespaces": tuple(reversed(namespaces))}):
        monitor, _ = await site.watch(label_selector=selector, **spec)
        found = [json.loads(item.object or b"")["metadata"] for item in monitor.items()]
        assert [(metadata["namespace"], metadata["name"]) for metadata in found] == wanted


async def test_equal_filter_result_is_no_change_but_refreshes_the_snapshot(site: Site) -> None:
    await site.create("one", seen="1", unseen="1")
    monitor, heard = await site.watch(names=("one",), jq_filter=".data.seen")
    await site.change("one", unseen="2")
    await site.change("one", seen="2")
    await heard.until_heard(("Modified", "one"))
    assert heard.changes[0].filter_result == b'"2"'
    assert results(monitor) == ["2"]
    assert json.loads(monitor.items()[0].object or b"")["data"] == {"seen": "2", "unseen": "2"}
    await site.change("one", unseen="3")
    await site.delete("one")
    await heard.until_heard(("Modified", "one"), ("Deleted", "one"))
    deleted = heard.changes[1]
    assert (deleted.filter_result, json.loads(deleted.object)["data"]["unseen"]) == (b'"2"', "3")
    assert heard.runs == 4


@pytest.mark.parametrize("jq_filter", ["", ".data.key"], ids=["nothing", "filter result"])
async def test_without_full_objects_the_events_still_have_them(site: Site, jq_filter: str) -> None:
    await site.create("one", key="x" * 1000)
    monitor, heard = await site.watch(names=("one",), jq_filter=jq_filter, keep_objects=False)
    assert monitor.items()[0].object is None
    assert monitor.stats() == ((1, 1002) if jq_filter else (1, 0))
    await site.change("one", key="y")
    await site.delete("one")
    await heard.until_heard(("Modified", "one"), ("Deleted", "one"))
    assert [json.loads(change.object)["data"] for change in heard.changes] == [{"key": "y"}] * 2


async def test_label_selector_adds_and_deletes(site: Site) -> None:
    await site.create("one")
    monitor, heard = await site.watch(label_selector="app in (a,b)")
    await site.label("one", app="a")
    await site.label("one", app="b")
    await site.label("one", app="c")
    await heard.until_heard(("Added", "one"), ("Modified", "one"), ("Deleted", "one"))
    assert names(monitor) == []


async def test_names_and_fields(site: Site) -> None:
    for name in ("a", "b", "c"):
        await site.create(name)
    by_name, heard = await site.watch(names=("c", "a", "c"))
    assert names(by_name) == ["a", "c"]
    by_field, _ = await site.watch(names=("a", "c"), field_selector="metadata.name!=a")
    assert names(by_field) == ["c"]
    await site.delete("b")
    await site.delete("c")
    await heard.until_heard(("Deleted", "c"))


async def test_namespaces_come_and_go_by_label(site: Site, cluster: DevCluster) -> None:
    first, second, third = (cluster.namespace() for _ in range(3))
    await label_namespace(site, first, site.namespace)
    for namespace in (site.namespace, first, second, third):
        await site.create(f"in-{namespace}", namespace=namespace, key="1")
    monitor, heard = await site.watch(namespace_labels=f"follow={site.namespace}", label_selector="")
    assert sorted(names(monitor)) == sorted([f"in-{site.namespace}", f"in-{first}"])
    await label_namespace(site, second, site.namespace)
    await heard.until_heard(("Added", f"in-{second}"))
    await label_namespace(site, first, None)
    await heard.until_heard(("Added", f"in-{second}"), ("Deleted", f"in-{first}"))
    gone = [change for change in heard.changes if change.kind == "Deleted" and change.name == f"in-{first}"]
    assert "data" in json.loads(gone[0].object)
    assert sorted(names(monitor)) == sorted([f"in-{site.namespace}", f"in-{second}"])
    await site.delete(f"in-{first}", namespace=first)
    await site.client.api.request("DELETE", NAMESPACES.path(name=second))
    await heard.until(lambda _: len(heard.short()) >= 3)
    assert heard.short()[2:] == [("Deleted", f"in-{second}")]


async def label_namespace(site: Site, namespace: str, value: str | None) -> None:
    await site.merge(NAMESPACES.path(name=namespace), {"metadata": {"labels": {"follow": value}}})


async def test_namespaces_mean_nothing_to_objects_without_them(site: Site) -> None:
    monitor, _ = await site.watch("namespaces", names=(site.namespace,), namespace_labels="nobody=has")
    assert names(monitor) == [site.namespace]


async def test_no_namespace_matches(site: Site) -> None:
    monitor, _ = await site.watch(namespaces=(), namespace_labels=f"nobody={site.namespace}")
    assert monitor.items() == []


async def test_many_bindings_cost_one_watch_and_one_copy(site: Site) -> None:
    await site.create("one", key="1")
    started = [site.begin(label_selector="", jq_filter=".data") for _ in range(200)]
    for monitor, _ in started:
        await monitor.settled()
    assert site.monitors.watches == 1
    assert site.discovered == 1
    assert len({id(item.object) for monitor, _ in started for item in monitor.items()}) == len(started[0][0].items())
    await site.change("one", key="2")
    for _, heard in started:
        await heard.until_heard(("Modified", "one"))
    lists = [
        stat for stat in site.sent if stat.path == "/api/v1/namespaces/{namespace}/configmaps" and stat.verb == "GET"
    ]
    assert len(lists) <= 2
    assert sum(heard.runs for _, heard in started) == len(started[0][0].items()) + 1


async def test_a_monitor_that_joins_gets_what_is_there(site: Site) -> None:
    await site.create("one", key="1")
    whole, _ = await site.watch()
    filtered, heard = await site.watch(names=(), jq_filter=".data.key", keep_objects=False)
    assert site.monitors.watches == 1
    assert "1" in results(filtered)
    await site.change("one", key="2")
    await heard.until_heard(("Modified", "one"))
    whole.stop()
    other, _ = await site.watch(jq_filter=".metadata.name")
    assert "one" in results(other)
    assert site.monitors.watches == 2
    for monitor in (filtered, other):
        monitor.stop()
    assert site.monitors.watches == 0


async def test_after_stop_nothing_is_heard(site: Site) -> None:
    stopped, silent = await site.watch()
    _, heard = await site.watch()
    stopped.stop()
    stopped.stop()
    await site.create("one")
    await heard.until_heard(("Added", "one"))
    assert (silent.short(), stopped.items(), site.monitors.watches) == ([], [], 1)
    await stopped.settled()
    await stopped.wait_listed()


# --- filters that fail ---


async def test_filter_that_fails_on_the_first_list_blocks_until_mended(site: Site) -> None:
    await site.create("bad", key="swordfish")
    monitor, heard = site.begin(names=("bad",), jq_filter=".data.key | .[0]")
    await monitor.settled()
    reason = f"jqFilter fails on {site.namespace}/bad: cannot index string"
    assert (monitor.listed, monitor.blocked_reason, monitor.items()) == (False, reason, [])
    await site.change("bad", key=None)
    await monitor.wait_listed()
    assert (results(monitor), heard.reasons, heard.changes) == ([None], [reason, None], [])


async def test_filter_that_fails_on_the_first_list_blocks_until_the_object_is_gone(site: Site) -> None:
    await site.create("bad", key="x")
    monitor, _ = site.begin(names=("bad",), jq_filter=".data.key | .[0]")
    await monitor.settled()
    await site.delete("bad")
    await monitor.wait_listed()
    assert (monitor.items(), monitor.blocked_reason) == ([], None)


async def test_filter_that_fails_later_loses_no_event(site: Site) -> None:
    await site.create("one")
    monitor, heard = await site.watch(names=("one",), jq_filter=".data.key | if . then .[0] else 1 end")
    assert results(monitor) == [1]
    await site.change("one", key="swordfish")
    await heard.until_heard(("Modified", "one"))
    assert heard.failures == [(site.namespace, "one", "cannot index string")]
    assert heard.changes[0].filter_result == b"null"
    assert results(monitor) == [None]
    assert "swordfish" in (monitor.items()[0].object or b"").decode()
    assert (monitor.listed, heard.reasons) == (True, [])
    await site.delete("one")
    await heard.until_heard(("Modified", "one"), ("Deleted", "one"))
    assert len(heard.failures) == 1


# --- kinds ---


def crd(group: str, *versions: str) -> JsonObject:
    schema: JsonObject = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [
                {"name": name, "served": True, "storage": name == versions[0], "schema": schema} for name in versions
            ],
        },
    }


async def make_widget(site: Site, group: str, name: str) -> None:
    """Creates one as soon as the server takes it."""
    resource = Resource(group, "v1", "Widget", "widgets", True)
    body = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": name}}
    while True:
        with contextlib.suppress(KubeError):
            await site.post(resource.path(site.namespace), body)
            return
        await asyncio.sleep(0.05)


async def test_kind_is_waited_for_and_may_go_and_come_back(site: Site) -> None:
    group = f"{site.namespace}.example.com"
    path = CUSTOM_RESOURCE_DEFINITIONS.path(name=f"widgets.{group}")
    monitor, heard = site.begin("widget", api_version=f"{group}/v1")
    await monitor.settled()
    reason = f"the API server does not serve the kind widget of {group}/v1; waiting for it"
    assert (monitor.listed, monitor.blocked_reason) == (False, reason)
    await site.post(CUSTOM_RESOURCE_DEFINITIONS.path(), crd(group, "v1"))
    await monitor.wait_listed()
    assert (heard.reasons[0], heard.reasons[-1]) == (reason, None)
    before = site.monitors.watches
    await make_widget(site, group, "one")
    await heard.until_heard(("Added", "one"))
    await site.client.api.request("DELETE", path)
    await heard.until_heard(("Added", "one"), ("Deleted", "one"))
    assert (monitor.listed, monitor.items()) == (True, [])
    while True:
        try:
            await site.client.api.request("GET", path)
        except KubeError:
            break
        await asyncio.sleep(0.05)
    await site.post(CUSTOM_RESOURCE_DEFINITIONS.path(), crd(group, "v1"))
    await make_widget(site, group, "two")
    await heard.until_heard(("Added", "one"), ("Deleted", "one"), ("Added", "two"))
    assert (monitor.blocked_reason, names(monitor)) == (None, ["two"])
    assert before == 1


# --- permissions and other refusals ---


@pytest.fixture
async def stranger(site: Site, cluster: DevCluster, tmp_path: Path) -> AsyncIterator[Site]:
    """The same namespace for somebody who may do nothing."""
    await site.post(SERVICE_ACCOUNTS.path(site.namespace), {"metadata": {"name": "stranger"}})
    path = SERVICE_ACCOUNTS.path(site.namespace, "stranger", "token")
    granted = await site.post(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    token = jsondoc.lookup(granted, "/status/token")
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    async with site_of(kubeconfig, site.namespace) as other:
        yield other


async def grant(site: Site, *verbs: str) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": [*verbs]}]
    await site.post(ROLES.path(site.namespace), {"metadata": {"name": "reader"}, "rules": rules})
    reference = {"apiGroup": ROLES.group, "kind": "Role", "name": "reader"}
    subjects = [{"kind": "ServiceAccount", "name": "stranger", "namespace": site.namespace}]
    body = {"metadata": {"name": "reader"}, "roleRef": reference, "subjects": subjects}
    await site.post(ROLE_BINDINGS.path(site.namespace), body)


async def test_missing_permission_is_named_and_mended(site: Site, stranger: Site) -> None:
    await site.create("one")
    monitor, heard = stranger.begin(names=("one",))
    await monitor.settled()
    # Depends on whether the server streams lists.
    verb = "watch" if "verb watch" in str(monitor.blocked_reason) else "list"
    reason = f'missing permission: verb {verb} on resource configmaps of API group "" in namespace {site.namespace}'
    assert (monitor.listed, monitor.blocked_reason) == (False, reason)
    assert stranger.errors[0] == "Forbidden"
    await grant(site, "list", "watch")
    await monitor.wait_listed()
    assert (names(monitor), monitor.blocked_reason, heard.reasons) == (["one"], None, [reason, None])


async def test_missing_permission_to_watch(site: Site, stranger: Site) -> None:
    await grant(site, "list")
    monitor, heard = stranger.begin()
    await heard.until(lambda heard: bool(heard.reasons) and "verb watch on" in str(heard.reasons[-1]))
    assert monitor.blocked_reason is not None


@pytest.mark.parametrize(
    ("kind", "spec", "scope"),
    [
        pytest.param("secrets", {"namespaces": ()}, 'secrets of API group "" in the whole cluster', id="secrets"),
        pytest.param("ns", {}, ' on resource namespaces of API group "" in the whole cluster', id="no namespace"),
        pytest.param(
            "cm",
            {"namespace_labels": "a=b", "namespaces": ()},
            ' on resource namespaces of API group "" in the whole cluster',
            id="namespaces to follow",
        ),
    ],
)
async def test_what_else_may_be_forbidden(stranger: Site, kind: str, spec: dict[str, Any], scope: str) -> None:
    monitor, _ = stranger.begin(kind, **spec)
    await monitor.settled()
    assert scope in str(monitor.blocked_reason)


async def test_selector_that_the_server_does_not_know(site: Site) -> None:
    monitor, _ = site.begin(field_selector="data.key=x")
    await monitor.settled()
    assert not monitor.listed
    assert "data.key" in str(monitor.blocked_reason)


async def test_restart_of_the_api_server_blocks_nothing(site: Site, cluster: DevCluster) -> None:
    await site.create("one")
    monitor, heard = await site.watch()
    async with outage_beside(cluster):
        await asyncio.to_thread(cluster.start_apiserver)
        await site.create("two")
        await heard.until_heard(("Added", "two"))
    assert (names(monitor), heard.reasons) == (["one", "two"], [])
