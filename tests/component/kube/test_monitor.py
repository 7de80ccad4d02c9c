"""Monitors against an API server in memory, in virtual time: refusals, kinds that come late, any order of events."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import KubeError
from addon_operator.kube.client import ApiServer, KubeClient
from addon_operator.kube.discovery import Discovery
from addon_operator.kube.informers.monitor import Monitor, Monitors, WatchSpec
from addon_operator.kube.reachability import Reachability
from addon_operator.kube.refs import CONFIG_MAPS, ObjectKey, Resource, WatchEvent
from tests.fakes import clock
from tests.fakes.monitors import Change

WIDGETS = Resource("example.com", "v1", "Widget", "widgets", True)
PATH = CONFIG_MAPS.path()
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
Key = tuple[str, str]


class Server:
    """Serves lists and watches of its objects, all kept in memory; stands in for the client as well.

    Attributes:
        refusals: by path, what requests get instead of an answer.
        served: what discovery says.
        discovered: how often it was asked.
        open: how many watches there are.
    """

    def __init__(self, *served: Resource) -> None:
        self.reachability = Reachability()
        self.refusals: dict[str, KubeError] = {}
        self.served = [CONFIG_MAPS, *served]
        self.discovered = 0
        self.open = 0
        self._version = 1
        self._oldest = 0
        self._objects: dict[str, dict[Key, JsonObject]] = {}
        self._log: list[tuple[int, str, bytes]] = []
        self._more = asyncio.Event()
        self._breaks = 0

    def put(self, name: str, namespace: str = "n", *, path: str = PATH, **data: str) -> None:
        objects = self._objects.setdefault(path, {})
        kind = "MODIFIED" if (namespace, name) in objects else "ADDED"
        self._version += 1
        metadata: JsonObject = {
            "namespace": namespace,
            "name": name,
            "uid": name,
            "resourceVersion": f"{self._version}",
        }
        objects[namespace, name] = {"metadata": metadata, "data": {**data}}
        self._tell(kind, path, objects[namespace, name])

    def delete(self, name: str, namespace: str = "n", *, path: str = PATH) -> None:
        self._version += 1
        item = self._objects[path].pop((namespace, name))
        metadata = {**cast("JsonObject", item["metadata"]), "resourceVersion": str(self._version)}
        self._tell("DELETED", path, {**item, "metadata": metadata})

    def refuse(self, path: str, status: int, reason: str, message: str = "") -> None:
        """Refuses from now on, and ends the watches that there are."""
        self.refusals[path] = KubeError(f"GET {path}: {message}", status=status, reason=reason)
        self.break_watches()

    def break_watches(self, *, forget: bool = False) -> None:
        self._breaks += 1
        self._oldest = self._version if forget else self._oldest
        self._more.set()

    def _tell(self, kind: str, path: str, item: JsonObject) -> None:
        self._log.append((self._version, path, jsondoc.dumps({"type": kind, "object": item})))
        self._more.set()

    async def request(self, _method: str, path: str, **_: object) -> bytes:
        if path in {"/api", "/apis"}:
            return await self._discovery(path)
        self._check(path)
        items = [*self._objects.get(path, {}).values()]
        return jsondoc.dumps({"metadata": {"resourceVersion": str(self._version)}, "items": [*items]})

    async def _discovery(self, path: str) -> bytes:
        core = path == "/api"
        self.discovered += core
        await asyncio.sleep(0.01)
        groups = [group_document(resource) for resource in self.served if core == (resource.group == "")]
        return jsondoc.dumps({"kind": "APIGroupDiscoveryList", "items": [*groups]})

    async def stream(self, path: str, *, query: Mapping[str, str], **_: object) -> AsyncIterator[bytes]:
        self._check(path)
        if any(resource.verbs and "watch" not in resource.verbs for resource in self.served if resource.path() == path):
            raise KubeError("not allowed", status=405, reason="MethodNotAllowed")
        if "sendInitialEvents" in query:
            raise KubeError("lists are not streamed here", status=422, reason="Invalid")
        seen, breaks = int(query["resourceVersion"]), self._breaks
        if seen < self._oldest:
            raise KubeError("too old", status=410, reason="Expired")
        self.open += 1
        try:
            await asyncio.sleep(2)
            while self._breaks == breaks:
                for version, where, line in [entry for entry in self._log if entry[0] > seen]:
                    seen = version
                    if where == path:
                        yield line
                self._more.clear()
                await self._more.wait()
        finally:
            self.open -= 1

    def _check(self, path: str) -> None:
        if error := self.refusals.get(path):
            raise error


def group_document(resource: Resource) -> JsonObject:
    """What aggregated discovery says about the group of a resource."""
    served: JsonObject = {
        "resource": resource.plural,
        "responseKind": {"kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "verbs": [*resource.verbs],
    }
    return {"metadata": {"name": resource.group}, "versions": [{"version": resource.version, "resources": [served]}]}


class Heard:
    def __init__(self, *, fails: bool = False) -> None:
        self.changes: list[Change] = []
        self.reasons: list[str | None] = []
        self.failures: list[tuple[str, str, str]] = []
        self.runs = 0
        self.fails = fails
        self.on_change: Callable[[], None] = lambda: None

    def on_event(self, event: WatchEvent, about: ObjectKey, document: bytes, filter_result: bytes | None, /) -> None:
        self.changes.append(Change(event, about, document, filter_result))
        self.on_change()
        if self.fails:
            raise RuntimeError("a bug in a listener")

    def on_filter_failed(self, about: ObjectKey, error: str) -> None:
        self.failures.append((about.namespace, about.name, error))

    def on_filtered(self, _seconds: float) -> None:
        self.runs += 1

    def on_blocked(self, reason: str | None) -> None:
        self.reasons.append(reason)

    def short(self) -> list[tuple[str, str]]:
        return [(change.kind, change.name) for change in self.changes]


class Site:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.errors: list[str] = []
        self.client = KubeClient(cast("ApiServer", server))
        self.monitors = Monitors(self.client, self.client.discover, on_watch_error=self.errors.append)

    def begin(self, kind: str = "cm", *, fails: bool = False, **spec: Any) -> tuple[Monitor, Heard]:
        heard = Heard(fails=fails)
        name = "ConfigMap" if kind == "cm" else kind
        return self.monitors.start(WatchSpec(name, **spec), heard, title="hook h, binding b"), heard

    async def watch(self, **spec: Any) -> tuple[Monitor, Heard]:
        monitor, heard = self.begin(**spec)
        await monitor.wait_listed()
        await quiet()
        return monitor, heard


async def quiet() -> None:
    """Lets everything come to rest; costs no time."""
    await asyncio.sleep(20)


def play(scenario: Callable[[Site], Awaitable[None]], server_of: Callable[[], Server] = Server) -> None:
    async def main() -> None:
        site = Site(server_of())
        task = asyncio.create_task(site.monitors.run(), name="monitors under test")
        try:
            await scenario(site)
            assert not task.done()
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    clock.run(main())


def data(item: bytes | None) -> object:
    assert item is not None
    return json.loads(item)["data"]


def test_one_question_and_one_watch_for_many_that_start_together() -> None:
    async def scenario(site: Site) -> None:
        site.server.put("a", key="1")
        started = [site.begin(jq_filter=".data.key", keep_objects=number % 2 == 0) for number in range(20)]
        for monitor, _ in started:
            await monitor.settled()
        assert (site.server.discovered, site.monitors.watches) == (1, 1)
        await quiet()
        site.server.put("a", key="2")
        await quiet()
        assert [heard.short() for _, heard in started] == [[("Modified", "a")]] * 20
        assert sum(heard.runs for _, heard in started) == 2
        assert len({id(monitor.items()[0].object) for monitor, _ in started[::2]}) == 1
        for monitor, _ in started:
            assert (site.monitors.watches, site.server.open) == (1, 1)
            monitor.stop()
        await quiet()
        assert (site.monitors.watches, site.server.open) == (0, 0)

    play(scenario)


def test_monitors_may_start_before_anything_runs() -> None:
    async def main() -> None:
        site = Site(Server())
        monitor, _ = site.begin()
        await quiet()
        assert (monitor.listed, site.server.discovered) == (False, 0)
        task = asyncio.create_task(site.monitors.run(), name="monitors under test")
        await monitor.settled()
        assert monitor.listed
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    clock.run(main())


def test_broken_listener_hurts_nobody_else() -> None:
    async def scenario(site: Site) -> None:
        _, broken = await site.watch(fails=True)
        monitor, heard = await site.watch()
        site.server.put("a")
        site.server.put("b")
        await quiet()
        assert heard.short() == broken.short() == [("Added", "a"), ("Added", "b")]
        assert len(monitor.items()) == 2

    play(scenario)


def test_listener_may_stop_its_monitor() -> None:
    async def scenario(site: Site) -> None:
        for name in ("a", "b"):
            site.server.put(name)
        monitor, heard = await site.watch()
        other, _ = await site.watch()
        heard.on_change = monitor.stop
        site.server.put("a")
        site.server.put("b")
        await quiet()
        assert (heard.short(), monitor.items(), len(other.items())) == ([("Modified", "a")], [], 2)

    play(scenario)


@pytest.mark.parametrize("keep_objects", [True, False], ids=["objects", "nothing"])
def test_object_that_went_away_unseen(keep_objects: bool) -> None:
    async def scenario(site: Site) -> None:
        site.server.put("a", key="1")
        _, heard = await site.watch(jq_filter=".data.key", keep_objects=keep_objects)
        site.server.break_watches()
        site.server.delete("a")
        site.server.break_watches(forget=True)
        await quiet()
        [change] = heard.changes
        assert (change.kind, change.filter_result) == ("Deleted", b'"1"')
        document = json.loads(change.object)
        assert (document["apiVersion"], document["kind"], document["metadata"]["name"]) == ("v1", "ConfigMap", "a")
        assert document.get("data") == ({"key": "1"} if keep_objects else None)

    play(scenario)


def test_objects_of_a_namespace_that_begins_to_match_come_whole_even_if_nobody_kept_them() -> None:
    async def scenario(site: Site) -> None:
        path = CONFIG_MAPS.path("x")
        site.server.put("a", "x", path=path, key="1")
        await site.watch(namespaces=("x",), keep_objects=False, jq_filter=".data.key")
        _, heard = await site.watch(namespace_labels="follow=me", keep_objects=False, jq_filter=".data.key")
        site.server.put("x", "", path="/api/v1/namespaces")
        await quiet()
        site.server.delete("x", "", path="/api/v1/namespaces")
        await quiet()
        site.server.delete("a", "x", path=path)
        await quiet()
        assert [(change.kind, change.filter_result) for change in heard.changes] == [
            ("Added", b'"1"'),
            ("Deleted", b'"1"'),
        ]
        documents = [json.loads(change.object) for change in heard.changes]
        assert [document.get("data") for document in documents] == [{"key": "1"}, None]
        assert documents[1]["metadata"] == {"namespace": "x", "name": "a"}

    play(scenario)


def test_server_that_is_away_blocks_nothing() -> None:
    async def scenario(site: Site) -> None:
        site.server.put("a")
        monitor, heard = await site.watch()
        site.server.refuse(PATH, 0, "Unreachable")
        await quiet()
        site.server.put("b")
        site.server.refusals.clear()
        await quiet()
        assert (heard.short(), heard.reasons, len(monitor.items())) == ([("Added", "b")], [], 2)
        assert set(site.errors) >= {"Unreachable"}

    play(scenario)


def test_permission_that_is_taken_away_and_given_back() -> None:
    async def scenario(site: Site) -> None:
        site.server.put("a")
        monitor, heard = await site.watch()
        site.server.refuse(PATH, 403, "Forbidden", 'User "x" cannot watch resource "configmaps"')
        await quiet()
        reason = 'missing permission: verb watch on resource configmaps of API group "" in the whole cluster'
        assert (monitor.blocked_reason, monitor.listed, len(monitor.items())) == (reason, True, 1)
        site.server.refuse(PATH, 0, "Unreachable")
        await quiet()
        assert heard.reasons == [reason]
        site.server.refusals.clear()
        await quiet()
        site.server.put("a")
        await quiet()
        assert (heard.reasons, heard.short()) == ([reason, None], [("Modified", "a")])

    play(scenario)


@pytest.mark.parametrize("listed", [False, True], ids=["from the start", "after a while"])
def test_a_resource_that_the_server_fails_on_for_long(listed: bool) -> None:
    async def scenario(site: Site) -> None:
        site.server.put("a")
        monitor, heard = site.begin()
        if listed:
            await monitor.wait_listed()
        site.server.refuse(PATH, 500, "InternalError", "conversion webhook failed: no such host")
        await asyncio.sleep(5)
        assert (monitor.blocked_reason, monitor.kind_missing, str(monitor.last_error)) == (
            None, False, f"GET {PATH}: conversion webhook failed: no such host"
        )  # fmt: skip
        await asyncio.sleep(30)
        reason = f"GET {PATH}: conversion webhook failed: no such host"
        assert (monitor.blocked_reason, monitor.kind_missing, monitor.listed) == (reason, False, listed)
        await monitor.settled()
        site.server.refuse(PATH, 500, "InternalError", "conversion webhook failed: another time")
        await asyncio.sleep(100)
        assert heard.reasons == [reason]
        site.server.refusals.clear()
        await quiet()
        site.server.put("b")
        await quiet()
        assert (heard.reasons, monitor.listed, monitor.last_error) == ([reason, None], True, None)

    play(scenario)


def test_a_server_that_comes_back_now_and_then_blocks_nothing() -> None:
    async def scenario(site: Site) -> None:
        monitor, heard = site.begin()
        for _ in range(10):
            site.server.refuse(PATH, 500, "InternalError", "etcdserver: leader changed")
            await asyncio.sleep(10)
            site.server.refuse(PATH, 0, "Unreachable")
            await asyncio.sleep(10)
        assert (monitor.blocked_reason, heard.reasons) == (None, [])

    play(scenario)


def test_kind_that_can_only_be_listed_is_listed_again_and_again() -> None:
    async def scenario(site: Site) -> None:
        site.server.put("a", path=WIDGETS.path())
        monitor, heard = site.begin("widget")
        await monitor.settled()
        assert (monitor.listed, monitor.kind_missing, len(monitor.items())) == (True, False, 1)
        await asyncio.sleep(100)
        site.server.put("b", path=WIDGETS.path())
        site.server.delete("a", path=WIDGETS.path())
        await quiet()
        assert sorted(heard.short()) == [("Added", "b"), ("Deleted", "a")]
        assert (len(monitor.items()), heard.reasons) == (1, [])

    play(scenario, lambda: Server(dataclasses.replace(WIDGETS, verbs=("get", "list"))))


def test_kind_that_cannot_be_listed_is_waited_for() -> None:
    async def scenario(site: Site) -> None:
        monitor, heard = site.begin("widget")
        await monitor.settled()
        assert not monitor.kind_missing
        asked = site.server.discovered
        await asyncio.sleep(1000)
        assert site.server.discovered <= asked + 20
        site.server.served[1:] = [WIDGETS]
        site.server.put("widgets.example.com", "", path=CRDS)
        await monitor.wait_listed()
        assert heard.reasons == [
            "the API server does not let the kind widget be listed; waiting for it", None,
        ]  # fmt: skip

    play(scenario, lambda: Server(dataclasses.replace(WIDGETS, verbs=("create",))))


def test_kind_that_is_named_but_not_served_is_not_waited_for() -> None:
    async def scenario(site: Site) -> None:
        site.server.refuse(WIDGETS.path(), 404, "NotFound")
        monitor, heard = site.begin("widget")
        await monitor.settled()
        reason = "the API server names the kind widget, but does not serve it; trying again"
        assert (heard.reasons, monitor.kind_missing) == ([reason], False)
        await asyncio.sleep(100)
        asked = site.server.discovered
        await asyncio.sleep(600)
        assert 5 <= site.server.discovered - asked <= 12
        site.server.refusals.clear()
        await monitor.wait_listed()
        assert heard.reasons == [reason, None]

    play(scenario, lambda: Server(WIDGETS))


def test_what_keeps_the_server_from_being_asked_is_known() -> None:
    async def scenario(site: Site) -> None:
        async def fail() -> Discovery:
            raise KubeError("no route to host", status=0, reason="Unreachable")

        monitors = Monitors(site.client, fail)
        task = asyncio.create_task(monitors.run(), name="monitors under test")
        monitor = monitors.start(WatchSpec("ConfigMap"), Heard(), title="hook h, binding b")
        await asyncio.sleep(10)
        assert (monitor.blocked_reason, str(monitor.last_error)) == (None, "no route to host")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    play(scenario)


def test_kind_that_comes_later() -> None:
    async def scenario(site: Site) -> None:
        monitor, heard = site.begin("widget")
        other, _ = site.begin("widgets")
        await monitor.settled()
        assert monitor.kind_missing
        await asyncio.sleep(100)
        asked, watches = site.server.discovered, site.monitors.watches
        assert watches == 2
        await asyncio.sleep(1000)
        assert site.server.discovered == asked
        site.server.put("widgets.example.com", "", path=CRDS)
        await asyncio.sleep(3)
        site.server.served.append(WIDGETS)
        site.server.put("one", path=WIDGETS.path())
        await monitor.wait_listed()
        await other.wait_listed()
        assert (site.monitors.watches, len(monitor.items())) == (1, 1)
        assert heard.reasons == ["the API server does not serve the kind widget; waiting for it", None]
        assert heard.changes == []

    play(scenario)


def test_kind_that_comes_later_is_not_missing_while_it_cannot_be_listed() -> None:
    async def scenario(site: Site) -> None:
        site.server.refuse(WIDGETS.path(), 0, "Unreachable")
        monitor, _ = site.begin("widget")
        await asyncio.sleep(100)
        assert monitor.kind_missing
        site.server.served.append(WIDGETS)
        site.server.put("widgets.example.com", "", path=CRDS)
        await quiet()
        assert (monitor.kind_missing, monitor.blocked_reason, monitor.listed) == (False, None, False)
        site.server.refuse(WIDGETS.path(), 403, "Forbidden", 'User "x" cannot list resource "widgets"')
        await quiet()
        assert (monitor.kind_missing, "missing permission" in str(monitor.blocked_reason)) == (False, True)

    play(scenario)


def test_kind_that_comes_later_without_the_permission_to_see_it_coming() -> None:
    async def scenario(site: Site) -> None:
        for path in (CRDS, API_SERVICES):
            site.server.refuse(path, 403, "Forbidden")
        monitor, _ = site.begin("widget")
        await asyncio.sleep(1000)
        asked = site.server.discovered
        await asyncio.sleep(300)
        assert 9 <= site.server.discovered - asked <= 11
        site.server.served.append(WIDGETS)
        await monitor.wait_listed()

    play(scenario)


def test_kind_that_goes_and_comes_back_in_another_version() -> None:
    async def scenario(site: Site) -> None:
        site.server.put("one", path=WIDGETS.path(), key="1")
        monitor, heard = site.begin("widget")
        await monitor.wait_listed()
        site.server.refuse(WIDGETS.path(), 404, "NotFound")
        await asyncio.sleep(30)
        assert (heard.short(), len(monitor.items())) == ([], 1), "it is served, so that is a proxy's word"
        site.server.served.remove(WIDGETS)
        await asyncio.sleep(300)
        assert (heard.short(), monitor.items(), monitor.listed) == ([("Deleted", "one")], [], True)
        newer = Resource("example.com", "v2", "Widget", "widgets", True)
        site.server.put("two", path=newer.path())
        site.server.served.append(newer)
        site.server.put("widgets.example.com", "", path=CRDS)
        await quiet()
        assert (heard.short()[1:], heard.reasons[1:], site.monitors.watches) == ([("Added", "two")], [None], 1)
        assert json.loads(heard.changes[1].object)["apiVersion"] == "example.com/v2"

    play(scenario, lambda: Server(WIDGETS))


def test_discovery_that_fails_is_asked_again() -> None:
    async def scenario(site: Site) -> None:
        discover = site.client.discover
        failures = iter([KubeError("away", status=0, reason="Unreachable"), ValueError("not JSON")])

        async def fail_first() -> Discovery:
            for failure in failures:
                raise failure
            return await discover()

        site.monitors = Monitors(site.client, fail_first)
        task = asyncio.create_task(site.monitors.run(), name="monitors under test")
        monitor, heard = site.begin()
        await monitor.settled()
        assert (monitor.listed, heard.reasons) == (True, [])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    play(scenario)


def test_filter_that_does_not_compile_is_refused_at_once() -> None:
    async def scenario(site: Site) -> None:
        with pytest.raises(ValueError, match="syntax error"):
            site.begin(jq_filter=".[")

    play(scenario)


def test_filter_that_fails_on_one_object_only_blocks_those_that_use_it() -> None:
    async def scenario(site: Site) -> None:
        site.server.put("a", key="x")
        failing, heard = site.begin(jq_filter=".data.key[0]")
        healthy, _ = await site.watch(jq_filter=".data")
        assert failing.blocked_reason == "jqFilter fails on n/a: cannot index string"
        site.server.put("a", other="x")
        await quiet()
        assert failing.listed
        assert heard.reasons[-1] is None
        assert (failing.items()[0].filter_result, healthy.items()[0].filter_result) == (b"null", b'{"other":"x"}')
        assert site.monitors.watches == 1

    play(scenario)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abc"), st.sampled_from("mn"), st.sampled_from("123")),
        st.tuples(st.just("delete"), st.sampled_from("abc"), st.sampled_from("mn"), st.just("")),
        st.tuples(st.sampled_from(["break", "forget", "rest"]), st.just(""), st.just(""), st.just("")),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(before=STEPS, after=STEPS, jq_filter=st.sampled_from(["", ".data.key", ".data.key[0]?"]))
def test_snapshot_and_changes_agree_with_the_server(
    before: list[tuple[str, str, str, str]], after: list[tuple[str, str, str, str]], jq_filter: str
) -> None:
    async def scenario(site: Site) -> None:
        model: dict[Key, str] = {}
        await take(site.server, model, before)
        monitor, heard = await site.watch(jq_filter=jq_filter)
        told = {key_of(item.object): data(item.object) for item in monitor.items()}
        assert told == {key: {"key": value} for key, value in model.items()}
        await take(site.server, model, after)
        await quiet()
        final = [(key_of(item.object), data(item.object)) for item in monitor.items()]
        assert final == [(key, {"key": value}) for key, value in sorted(model.items())]
        for change in heard.changes:
            key = (change.namespace, change.name)
            assert (change.kind == "Added") == (key not in told)
            if change.kind == "Deleted":
                del told[key]
            else:
                told[key] = data(change.object)
        assert told.keys() == model.keys()
        if jq_filter != ".data.key[0]?":
            assert told == dict(final)

    play(scenario)


async def take(server: Server, model: dict[Key, str], steps: list[tuple[str, str, str, str]]) -> None:
    for step, name, namespace, value in steps:
        match step:
            case "put":
                model[namespace, name] = value
                server.put(name, namespace, key=value)
            case "delete" if (namespace, name) in model:
                del model[namespace, name]
                server.delete(name, namespace)
            case "break" | "forget":
                server.break_watches(forget=step == "forget")
            case "rest":
                await quiet()


def key_of(document: bytes | None) -> Key:
    assert document is not None
    metadata = json.loads(document)["metadata"]
    return metadata["namespace"], metadata["name"]
