"""What the verbs of the client and the watches rely on; the same cases for the API server in memory and a real one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import pytest

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import KubeError
from addon_operator.kube import crds
from addon_operator.kube.client import METADATA_ONLY, PatchType
from addon_operator.kube.refs import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    LEASES,
    SECRETS,
    ObjectRef,
    Resource,
    metadata_of,
)
from addon_operator.kube.retries import retry_on_conflict
from tests.contract.conftest import Site
from tests.fakes.api_server import FakeApiServer

THINGS: Final = Resource("contract.example.com", "v1", "Thing", "things", True)


def ref(site: Site, name: str, resource: Resource = CONFIG_MAPS, subresource: str = "") -> ObjectRef:
    return ObjectRef(resource, site.namespace, name, subresource)


def document(name: str, resource: Resource = CONFIG_MAPS, /, **fields: JsonValue) -> JsonObject:
    metadata = fields.pop("metadata", None) or {}
    assert isinstance(metadata, dict)
    return {
        "apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name, **metadata}, **fields
    }  # fmt: skip


async def create(site: Site, name: str, resource: Resource = CONFIG_MAPS, /, **fields: JsonValue) -> JsonObject:
    return await site.client.create(ref(site, name, resource), document(name, resource, **fields))


def version(item: JsonObject) -> str:
    return str(metadata_of(item)["resourceVersion"])


async def refusal(attempt: Awaitable[object]) -> tuple[int, str]:
    with pytest.raises(KubeError) as caught:
        await attempt
    return caught.value.status, caught.value.reason


# --- get and create


async def test_object_is_what_was_created(site: Site) -> None:
    created = await create(site, "a", data={"k": "v"}, metadata={"labels": {"x": "y"}})
    metadata = metadata_of(created)
    assert (metadata["name"], metadata["namespace"], metadata["labels"]) == ("a", site.namespace, {"x": "y"})
    assert metadata["uid"]
    assert str(metadata["resourceVersion"]).isdecimal()
    assert metadata["creationTimestamp"]
    got = await site.client.get(ref(site, "a"))
    assert got is not None
    assert (got["kind"], got["apiVersion"], got["data"]) == ("ConfigMap", "v1", {"k": "v"})
    assert version(got) == version(created)


async def test_object_that_does_not_exist_is_none(site: Site) -> None:
    assert await site.client.get(ref(site, "absent")) is None
    assert await site.client.delete(ref(site, "absent")) is None


async def test_kind_that_is_not_served(site: Site) -> None:
    absent = Resource("absent.example.com", "v1", "Absent", "absents", True)
    assert await site.client.get(ref(site, "x", absent)) is None
    assert await site.client.delete(ref(site, "x", absent)) is None
    with pytest.raises(KubeError) as caught:
        await create(site, "x", absent)
    assert caught.value.status == 404
    assert not caught.value.not_found
    assert not await site.client.is_served(absent)
    assert await site.client.is_served(LEASES)
    assert not await site.client.is_served(Resource("coordination.k8s.io", "v0", "Lease", "leases", True))


async def test_create_refuses_what_exists_and_a_namespace_that_does_not(site: Site) -> None:
    await create(site, "a")
    assert await refusal(create(site, "a")) == (409, "AlreadyExists")
    elsewhere = ObjectRef(CONFIG_MAPS, "absent", "a")
    assert await refusal(site.client.create(elsewhere, document("a"))) == (404, "NotFound")


async def test_server_names_what_has_no_name(site: Site) -> None:
    body: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "some-"}}
    names = {str(metadata_of(await site.client.create(ref(site, ""), body))["name"]) for _ in range(2)}
    assert len(names) == 2
    assert all(name.startswith("some-") and len(name) == 10 for name in names)


async def test_metadata_only(site: Site) -> None:
    await create(site, "a", data={"k": "v"})
    got = await site.client.get(ref(site, "a"), metadata_only=True)
    assert got is not None
    assert "data" not in got
    assert metadata_of(got)["name"] == "a"
    patched = await site.client.patch(ref(site, "a"), {"metadata": {"labels": {"x": "y"}}}, metadata_only=True)
    assert "data" not in patched
    assert metadata_of(patched)["labels"] == {"x": "y"}
    [listed] = await site.client.list(CONFIG_MAPS, site.namespace, label_selector="x", metadata_only=True)
    assert "data" not in listed


async def test_string_data_of_a_secret_becomes_data(site: Site) -> None:
    created = await create(site, "s", SECRETS, stringData={"k": "v"})
    assert (created["data"], "stringData" in created) == ({"k": "dg=="}, False)


# --- replace


async def test_replace_counts_versions(site: Site) -> None:
    first = await create(site, "a", data={"k": "1"})
    second = await site.client.replace(ref(site, "a"), {**first, "data": {"k": "2"}})
    assert int(version(second)) > int(version(first))
    with pytest.raises(KubeError) as caught:
        await site.client.replace(ref(site, "a"), {**first, "data": {"k": "3"}})
    assert (caught.value.status, caught.value.reason, caught.value.conflict) == (409, "Conflict", True)
    same = await site.client.replace(ref(site, "a"), second)
    assert version(same) == version(second)


async def test_replace_of_what_does_not_exist(site: Site) -> None:
    assert await refusal(site.client.replace(ref(site, "a"), document("a"))) == (404, "NotFound")


async def test_replace_without_a_version(site: Site) -> None:
    await create(site, "a", data={"k": "1"})
    assert (await site.client.replace(ref(site, "a"), document("a", data={"k": "2"})))["data"] == {"k": "2"}
    await create(site, "l", LEASES, spec={"holderIdentity": "me"})
    lease = document("l", LEASES, spec={"holderIdentity": "you"})
    assert await refusal(site.client.replace(ref(site, "l", LEASES), lease)) == (422, "Invalid")


async def test_names_in_body_and_path_must_agree(site: Site) -> None:
    await create(site, "a")
    for body in (document("b"), document("a", metadata={"namespace": "default"}), {**document("a"), "kind": "Secret"}):
        assert await refusal(site.client.replace(ref(site, "a"), body)) == (400, "BadRequest")


async def test_writers_who_retry_on_conflict_lose_nothing(site: Site) -> None:
    await create(site, "a", data={"count": "0"})

    async def count() -> None:
        async def attempt() -> None:
            live = await site.client.get(ref(site, "a"))
            assert live is not None
            data = live["data"]
            assert isinstance(data, dict)
            await site.client.replace(ref(site, "a"), {**live, "data": {"count": str(int(str(data["count"])) + 1)}})

        await retry_on_conflict(attempt)

    await asyncio.gather(*(count() for _ in range(4)))
    live = await site.client.get(ref(site, "a"))
    assert live is not None
    assert live["data"] == {"count": "4"}


# --- patch and apply


async def test_merge_patch(site: Site) -> None:
    created = await create(site, "a", data={"kept": "1", "gone": "2"})
    patched = await site.client.patch(ref(site, "a"), {"data": {"gone": None, "new": "3"}})
    assert patched["data"] == {"kept": "1", "new": "3"}
    assert version(await site.client.patch(ref(site, "a"), {"data": {"new": "3"}})) == version(patched)
    stale: JsonObject = {"metadata": {"resourceVersion": version(created)}, "data": {"new": "4"}}
    assert await refusal(site.client.patch(ref(site, "a"), stale)) == (409, "Conflict")
    assert await refusal(site.client.patch(ref(site, "absent"), {})) == (404, "NotFound")


async def test_json_patch(site: Site) -> None:
    await create(site, "a", data={"k": "1"})
    add: JsonObject = {"op": "add", "path": "/data/new", "value": "2"}
    assert (await site.client.patch(ref(site, "a"), [add], PatchType.JSON))["data"] == {"k": "1", "new": "2"}
    failing: list[JsonObject] = [
        {"op": "test", "path": "/data/k", "value": "0"},
        {"op": "remove", "path": "/data/absent"},
    ]
    for step in failing:
        steps: JsonValue = [{**add, "value": "3"}, step]
        assert await refusal(site.client.patch(ref(site, "a"), steps, PatchType.JSON)) == (422, "Invalid")
    got = await site.client.get(ref(site, "a"))
    assert got is not None
    assert got["data"] == {"k": "1", "new": "2"}


async def test_server_side_apply(site: Site) -> None:
    async def apply(manager: str, *, force: bool = False, **data: str) -> JsonValue:
        wanted = document("a", data={**data})
        answer = await site.client.apply(ref(site, "a"), wanted, field_manager=manager, force=force)
        return answer["data"]

    assert await apply("one", x="1", y="1") == {"x": "1", "y": "1"}
    assert await apply("two", z="2") == {"x": "1", "y": "1", "z": "2"}
    assert await apply("one", x="1") == {"x": "1", "z": "2"}
    assert await refusal(apply("two", x="2", z="2")) == (409, "Conflict")
    assert await apply("two", x="1", z="2") == {"x": "1", "z": "2"}
    assert await apply("two", force=True, x="2", z="2") == {"x": "2", "z": "2"}
    await site.client.patch(ref(site, "a"), {"data": {"z": "3"}})
    assert await refusal(apply("two", x="2", z="2")) == (409, "Conflict")


async def test_status_is_a_subresource(site: Site) -> None:
    await served(site)
    created = await create(site, "t", THINGS, spec={"size": 1}, status={"phase": "made up"})
    assert "status" not in created
    wanted: JsonObject = {**created, "spec": {"size": 2}, "status": {"phase": "Ready"}}
    changed = await site.client.replace(ref(site, "t", THINGS, "status"), wanted)
    assert (changed["spec"], changed["status"]) == ({"size": 1}, {"phase": "Ready"})
    changed = await site.client.patch(ref(site, "t", THINGS), {"spec": {"size": 3}, "status": {"phase": "made up"}})
    assert (changed["spec"], changed["status"]) == ({"size": 3}, {"phase": "Ready"})
    assert metadata_of(changed)["generation"] == 2


# --- delete


async def test_delete(site: Site) -> None:
    await create(site, "a")
    answer = await site.client.delete(ref(site, "a"))
    assert answer is not None
    assert answer["kind"] == "Status"
    assert await site.client.get(ref(site, "a")) is None


async def test_finalizers_hold_an_object(site: Site) -> None:
    await create(site, "a", metadata={"finalizers": ["example.com/wait"]})
    answer = await site.client.delete(ref(site, "a"), propagation="Background")
    assert answer is not None
    assert answer["kind"] == "ConfigMap"
    assert "deletionTimestamp" in metadata_of(answer)
    assert version(await site.client.delete(ref(site, "a")) or {}) == version(answer)
    await site.client.patch(ref(site, "a"), {"metadata": {"finalizers": None}})
    assert await site.client.get(ref(site, "a")) is None


async def test_preconditions_of_a_delete(site: Site) -> None:
    created = await create(site, "a")
    assert await refusal(site.client.delete(ref(site, "a"), uid="another")) == (409, "Conflict")
    assert await refusal(site.client.delete(ref(site, "a"), resource_version="1")) == (409, "Conflict")
    uid = str(metadata_of(created)["uid"])
    assert await site.client.delete(ref(site, "a"), uid=uid, resource_version=version(created)) is not None
    assert metadata_of(await create(site, "a"))["uid"] != uid


# --- list


@pytest.mark.parametrize(
    ("labels", "fields", "names"),
    [
        pytest.param("", "metadata.namespace!=default", "a b c", id="all"),
        pytest.param("app=x", "", "a b", id="equal"),
        pytest.param("app==x,tier", "", "b", id="and"),
        pytest.param("app!=x", "", "c", id="not equal, or absent"),
        pytest.param("app in (x, y)", "", "a b", id="in"),
        pytest.param("app notin (x),!tier", "", "c", id="not in"),
        pytest.param("", "metadata.name=b", "b", id="name"),
        pytest.param("app=x", "metadata.name!=b", "a", id="both"),
        pytest.param("app=nothing", "", "", id="nothing"),
    ],
)
async def test_selectors(site: Site, labels: str, fields: str, names: str) -> None:
    for name, found in {"a": {"app": "x"}, "b": {"app": "x", "tier": "t"}, "c": {}}.items():
        await create(site, name, SECRETS, metadata={"labels": {**found}})
    items = await site.client.list(SECRETS, site.namespace, label_selector=labels, field_selector=fields)
    assert " ".join(str(metadata_of(item)["name"]) for item in items) == names


async def test_pages_show_one_moment(site: Site) -> None:
    for name in "abc":
        await create(site, name, SECRETS)
    pages = []
    query = {"limit": "2"}
    while True:
        page = jsondoc.loads(await site.api.request("GET", SECRETS.path(site.namespace), query=query))
        assert isinstance(page, dict)
        items, metadata = page["items"], metadata_of(page)
        assert isinstance(items, list)
        pages.append(([str(metadata_of(item)["name"]) for item in items if isinstance(item, dict)], version(page)))
        if not metadata.get("continue"):
            break
        query = {"limit": "2", "continue": str(metadata["continue"])}
        await create(site, f"z{len(pages)}", SECRETS)
    assert [names for names, _ in pages] == [["a", "b"], ["c"]]
    assert len({at for _, at in pages}) == 1


# --- watch


@contextlib.asynccontextmanager
async def watch(
    site: Site, resource: Resource = CONFIG_MAPS, *, accept: str = "application/json", **query: str
) -> AsyncIterator[Callable[[], Awaitable[JsonObject]]]:
    """Gives what waits for the next event."""
    whole = {"watch": "1", "timeoutSeconds": "20", **query}
    lines = site.api.stream(resource.path(site.namespace), query=whole, accept=accept, idle_timeout_s=20)

    async def following() -> JsonObject:
        event = jsondoc.loads(await anext(lines))
        assert isinstance(event, dict)
        return event

    async with contextlib.aclosing(lines):
        yield following


def shown(event: JsonObject) -> tuple[str, str]:
    item = event["object"]
    assert isinstance(item, dict)
    return str(event["type"]), str(metadata_of(item).get("name") or "")


async def test_watch_shows_what_happens_after_a_version(site: Site) -> None:
    first = await create(site, "a")
    changed = await site.client.patch(ref(site, "a"), {"data": {"k": "v"}})
    await create(site, "b")
    await site.client.delete(ref(site, "a"))
    async with watch(site, resourceVersion=version(first)) as following:
        modified, added, deleted = [await following() for _ in range(3)]
        assert [shown(event) for event in (modified, added, deleted)] == [
            ("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a"),
        ]  # fmt: skip
        late = asyncio.create_task(anext_of(following))
        await create(site, "c")
        assert shown(await late) == ("ADDED", "c")
    item, last = modified["object"], deleted["object"]
    assert isinstance(item, dict)
    assert isinstance(last, dict)
    assert (item["kind"], item["apiVersion"], item["data"]) == ("ConfigMap", "v1", {"k": "v"})
    assert version(item) == version(changed)
    assert int(version(last)) > int(version(changed))


async def anext_of(following: Callable[[], Awaitable[JsonObject]]) -> JsonObject:
    return await following()


async def test_object_that_ceases_to_match_is_deleted_for_the_watch(site: Site) -> None:
    first = await create(site, "a", metadata={"labels": {"x": "1"}})
    for value in ("2", "1", "1"):
        await site.client.patch(ref(site, "a"), {"metadata": {"labels": {"x": value}}, "data": {"k": value}})
    await site.client.patch(ref(site, "a"), {"data": {"k": "3"}})
    async with watch(site, resourceVersion=version(first), labelSelector="x=1") as following:
        assert [shown(await following())[0] for _ in range(3)] == ["DELETED", "ADDED", "MODIFIED"]


async def test_list_in_a_stream(site: Site) -> None:
    await create(site, "a", SECRETS)
    await create(site, "b", SECRETS)
    streaming = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with watch(site, SECRETS, accept=METADATA_ONLY, **streaming) as following:
        events = [await following() for _ in range(3)]
        assert [shown(event) for event in events] == [("ADDED", "a"), ("ADDED", "b"), ("BOOKMARK", "")]
        end = events[-1]["object"]
        assert isinstance(end, dict)
        assert metadata_of(end)["annotations"] == {"k8s.io/initial-events-end": "true"}
        created = await create(site, "c", SECRETS, stringData={"k": "v"})
        assert int(version(end)) < int(version(created))
        added = await following()
        assert shown(added) == ("ADDED", "c")
        item = added["object"]
        assert isinstance(item, dict)
        assert "data" not in item


async def test_watch_from_a_version_that_is_forgotten_is_an_error(site: Site) -> None:
    # A real one remembers what has happened since a kind was served.
    await served(site)
    if isinstance(site.api, FakeApiServer):
        site.api.compact()
    async with watch(site, THINGS, resourceVersion="1") as following:
        event = await following()
    status = event["object"]
    assert isinstance(status, dict)
    assert (event["type"], status["code"], status["reason"]) == ("ERROR", 410, "Expired")


async def test_watch_ends_when_it_should(site: Site) -> None:
    created = await create(site, "a")
    async with watch(site, resourceVersion=version(created), timeoutSeconds="1") as following:
        with pytest.raises(StopAsyncIteration):
            await following()


async def test_watch_of_one_object(site: Site) -> None:
    created = await create(site, "a")
    await create(site, "b")
    await site.client.patch(ref(site, "a"), {"data": {"k": "v"}})
    events = site.client.watch(ref(site, "a"), resource_version=version(created), timeout_s=20)
    async with contextlib.aclosing(events):
        assert shown(await anext(events)) == ("MODIFIED", "a")


# --- the server


async def served(site: Site) -> None:
    schema: JsonObject = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    one: JsonObject = {
        "name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }  # fmt: skip
    names: JsonObject = {"plural": THINGS.plural, "kind": THINGS.kind, "shortNames": ["thg"]}
    spec: JsonObject = {"group": THINGS.group, "scope": "Namespaced", "names": names, "versions": [one]}
    name = f"{THINGS.plural}.{THINGS.group}"
    await crds.install(site.client, [("crd.yaml", document(name, CUSTOM_RESOURCE_DEFINITIONS, spec=spec))], labels={})
    async with asyncio.timeout(30):
        while not (await site.client.is_served(THINGS) and await can_be_watched(site)):
            await asyncio.sleep(0.1)


async def can_be_watched(site: Site) -> bool:
    """Returns whether a real one has stopped to initialize its memory of a kind."""
    try:
        async with watch(site, THINGS, timeoutSeconds="1") as following:
            await following()
    except KubeError:
        return False
    except StopAsyncIteration:
        return True
    return True


async def test_definition_serves_its_kind(site: Site) -> None:
    await served(site)
    resource = (await site.client.discover()).resource("thg")
    assert (resource.kind, resource.plural, resource.namespaced) == ("Thing", "things", True)
    await create(site, "t", THINGS, spec={"size": 1})
    [listed] = await site.client.list(THINGS, site.namespace)
    assert listed["spec"] == {"size": 1}
    await site.client.delete(ObjectRef(CUSTOM_RESOURCE_DEFINITIONS, "", f"{THINGS.plural}.{THINGS.group}"))
    async with asyncio.timeout(30):
        while await site.client.is_served(THINGS):
            await asyncio.sleep(0.1)
    assert await site.client.get(ref(site, "t", THINGS)) is None


async def test_version_and_discovery(site: Site) -> None:
    assert (await site.client.server_version()).startswith("v1.")
    found = await site.client.discover()
    for name, kind in {"cm": "ConfigMap", "Secret": "Secret", "leases": "Lease", "deploy": "Deployment"}.items():
        assert found.resource(name).kind == kind
    assert "v1/ConfigMap" in found.api_versions()
    assert "apps/v1/Deployment" in found.api_versions()
