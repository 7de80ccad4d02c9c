"""Each operation of KUBERNETES_PATCH_PATH against a real API server and its garbage collector."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Protocol

import pytest
import yaml

from addon_operator.devcluster import DevCluster
from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import KubeError
from addon_operator.kube.client import KubeClient
from addon_operator.kube.patch_ops import parse
from addon_operator.kube.patcher import ObjectPatcher
from addon_operator.kube.refs import CONFIG_MAPS, Resource
from tests.cluster.operator import eventually, noting_hook, operator
from tests.connection import connected

SERVICES = Resource("", "v1", "Service", "services", True)
SERVICE_ACCOUNTS = Resource("", "v1", "ServiceAccount", "serviceaccounts", True)


class Cluster(Protocol):
    """What these tests use of the session's cluster."""

    kubeconfig: Path

    def namespace(self) -> str: ...


class Site:
    """One namespace, a patcher, and short words for what the tests look at."""

    def __init__(self, client: KubeClient, namespace: str, sent: list[str]) -> None:
        self.client = client
        self.sent = sent  # the HTTP methods of all requests so far
        self.namespace = namespace
        self.patcher = ObjectPatcher(client, client.discover, delete_timeout_s=90)

    async def apply(self, *operations: JsonObject) -> None:
        text = "\n".join(json.dumps(one) for one in operations)
        await self.patcher.apply(parse(text.encode(), "hook"))

    async def read(self, name: str, resource: Resource = CONFIG_MAPS) -> JsonObject:
        document = jsondoc.loads(await self.client.api.request("GET", resource.path(self.namespace, name)))
        assert isinstance(document, dict)
        return document

    async def exists(self, name: str) -> bool:
        try:
            await self.read(name)
        except KubeError as error:
            if error.status != 404:
                raise
            return False
        return True

    def config_map(self, name: str, data: JsonObject | None = None, **metadata: JsonValue) -> JsonObject:
        where: JsonObject = {"name": name, "namespace": self.namespace, **metadata}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": where, "data": data or {}}

    def about(self, operation: str, name: str, **fields: JsonValue) -> JsonObject:
        return {"operation": operation, "kind": "ConfigMap", "namespace": self.namespace, "name": name, **fields}

    async def create(self, name: str, data: JsonObject | None = None, **metadata: JsonValue) -> JsonObject:
        await self.apply({"operation": "Create", "object": self.config_map(name, data, **metadata)})
        return await self.read(name)


@contextlib.asynccontextmanager
async def site_of(kubeconfig: Path, namespace: str) -> AsyncIterator[Site]:
    sent: list[str] = []
    async with connected(kubeconfig, on_request=lambda stat: sent.append(stat.verb)) as client:
        yield Site(client, namespace, sent)


@pytest.fixture
async def site(cluster: Cluster) -> AsyncIterator[Site]:
    async with site_of(cluster.kubeconfig, cluster.namespace()) as made:
        yield made


async def failure(site: Site, *operations: JsonObject) -> KubeError:
    with pytest.raises(KubeError) as caught:
        await site.apply(*operations)
    return caught.value


# --- creating -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["Create", "CreateOrUpdate", "CreateIfNotExists"])
async def test_creates_what_is_not_there(site: Site, verb: str) -> None:
    await site.apply({"operation": verb, "object": site.config_map("x", {"a": "1"})})
    assert (await site.read("x"))["data"] == {"a": "1"}


async def test_create_fails_if_it_exists(site: Site) -> None:
    await site.create("x", {"a": "1"})
    error = await failure(site, {"operation": "Create", "object": site.config_map("x", {"a": "2"})})
    assert str(error).startswith(f"operation 1: Create {site.namespace}/ConfigMap/x: ")
    assert (error.status, error.reason) == (409, "AlreadyExists")
    assert (await site.read("x"))["data"] == {"a": "1"}


async def test_create_if_not_exists_leaves_it_alone(site: Site) -> None:
    before = await site.create("x", {"a": "1"})
    await site.apply({"operation": "CreateIfNotExists", "object": site.config_map("x", {"a": "2"})})
    assert await site.read("x") == before


async def test_create_or_update_replaces_all_of_it(site: Site) -> None:
    before = await site.create("x", {"a": "1", "b": "2"}, labels={"old": "yes"})
    await site.apply({"operation": "CreateOrUpdate", "object": site.config_map("x", {"a": "3"})})
    after = await site.read("x")
    assert after["data"] == {"a": "3"}
    assert metadata(after).get("labels") is None
    assert metadata(after)["uid"] == metadata(before)["uid"]


def metadata(document: JsonObject) -> JsonObject:
    found = document["metadata"]
    assert isinstance(found, dict)
    return found


async def test_the_server_makes_the_name(site: Site) -> None:
    document = site.config_map("", {"made": "yes"})
    document["metadata"] = {"generateName": "made-", "namespace": site.namespace}
    await site.apply({"operation": "Create", "object": document})
    listed = jsondoc.loads(await site.client.api.request("GET", CONFIG_MAPS.path(site.namespace)))
    assert isinstance(listed, dict)
    items = listed["items"]
    assert isinstance(items, list)
    names = [metadata(item)["name"] for item in items if isinstance(item, dict)]
    assert [name for name in names if str(name).startswith("made-")]


# --- patching -----------------------------------------------------------------------------------------------------


PATCHES: dict[str, JsonObject] = {
    "MergePatch": {"mergePatch": {"data": {"a": None, "b": "2"}}},
    "JSONPatch": {"jsonPatch": [{"op": "remove", "path": "/data/a"}, {"op": "add", "path": "/data/b", "value": "2"}]},
    "JQPatch": {"jqFilter": 'del(.data.a) | .data.b = "2"'},
}
EACH_PATCH = pytest.mark.parametrize(("verb", "fields"), PATCHES.items(), ids=PATCHES.keys())


@EACH_PATCH
async def test_patches(site: Site, verb: str, fields: JsonObject) -> None:
    await site.create("x", {"a": "1", "c": "3"})
    await site.apply(site.about(verb, "x", **fields))
    assert (await site.read("x"))["data"] == {"b": "2", "c": "3"}


@EACH_PATCH
async def test_patch_of_a_missing_object(site: Site, verb: str, fields: JsonObject) -> None:
    error = await failure(site, site.about(verb, "x", **fields))
    assert error.status == 404
    assert str(error).startswith(f"operation 1: {verb} {site.namespace}/ConfigMap/x: ")
    await site.apply(site.about(verb, "x", ignoreMissingObject=True, **fields))
    assert not await site.exists("x")


async def test_jq_patch_that_changes_nothing_writes_nothing(site: Site) -> None:
    await site.create("x", {"a": "1"})
    site.sent.clear()
    await site.apply(site.about("JQPatch", "x", jqFilter='.data.a = "1"'))
    assert set(site.sent) == {"GET"}


async def test_jq_patch_does_not_overwrite_what_it_has_not_seen(site: Site) -> None:
    """A program that drops the version would otherwise write over somebody else's change."""
    await site.create("x", {"n": "0"})
    program = "del(.metadata.resourceVersion) | .data.n = (.data.n | tonumber + 1 | tostring)"
    patch = site.about("JQPatch", "x", jqFilter=program)
    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(site.apply(patch, patch), name=f"writer {number}")
    assert (await site.read("x"))["data"] == {"n": "10"}


async def test_create_or_update_at_the_same_time(site: Site) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(6):
            document = site.config_map("x", {"by": str(number)})
            group.create_task(site.apply({"operation": "CreateOrUpdate", "object": document}), name=f"writer {number}")
    assert await site.exists("x")


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        pytest.param(".data.secret | error", "jqFilter: fails on the live object", id="error"),
        pytest.param(".data", None, id="not-an-object-of-this-kind"),
        pytest.param(".data.secret", "jqFilter: must make exactly one object of the live one", id="text"),
        pytest.param("empty", "jqFilter: must make exactly one object of the live one", id="nothing"),
        pytest.param("., .", "jqFilter: must make exactly one object of the live one", id="two"),
    ],
)
async def test_jq_patch_that_cannot_be_written(site: Site, program: str, reason: str | None) -> None:
    before = await site.create("x", {"secret": "hush"})
    error = await failure(site, site.about("JQPatch", "x", jqFilter=program))
    assert reason is None or str(error) == f"operation 1: JQPatch {site.namespace}/ConfigMap/x: {reason}"
    assert "hush" not in str(error)
    assert await site.read("x") == before


# --- subresources -------------------------------------------------------------------------------------------------


def service(site: Site, address: str) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s", "namespace": site.namespace},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        "status": {"loadBalancer": {"ingress": [{"ip": address}]}},
    }


async def address_of(site: Site) -> JsonValue:
    return jsondoc.lookup(await site.read("s", SERVICES), "/status/loadBalancer/ingress/0/ip")


async def test_status(site: Site) -> None:
    document: JsonObject = {"operation": "CreateOrUpdate", "subresource": "/status"}
    await site.apply({**document, "object": service(site, "10.0.0.1")})
    assert await address_of(site) == "10.0.0.1"
    await site.apply({**document, "object": service(site, "10.0.0.2")})
    assert await address_of(site) == "10.0.0.2"
    merge: JsonObject = {"status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.3"}]}}}
    await site.apply(site.about("MergePatch", "s", kind="svc", subresource="status", mergePatch=merge))
    assert await address_of(site) == "10.0.0.3"
    program = '.status.loadBalancer.ingress[0].ip = "10.0.0.4"'
    await site.apply(site.about("JQPatch", "s", kind="svc", subresource="/status", jqFilter=program))
    assert await address_of(site) == "10.0.0.4"


# --- deleting -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["Delete", "DeleteInBackground", "DeleteNonCascading"])
async def test_deletes_and_a_missing_object_is_fine(site: Site, verb: str) -> None:
    await site.create("x")
    await site.apply(site.about(verb, "x"))
    await until(lambda: site.exists("x"), expected=False)
    await site.apply(site.about(verb, "x"))


async def until(look: Callable[[], Awaitable[bool]], *, expected: bool) -> None:
    """Looks until the answer is the expected one; the test's own deadline ends it otherwise."""
    while await look() is not expected:
        await asyncio.sleep(0.05)


async def owner_and_dependent(site: Site) -> None:
    owner = await site.create("owner")
    reference: JsonObject = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": metadata(owner)["uid"],
        "blockOwnerDeletion": True,
    }
    await site.create("dependent", ownerReferences=[reference])


async def test_delete_waits_for_dependents(site: Site) -> None:
    await owner_and_dependent(site)
    await site.apply(site.about("Delete", "owner"))
    assert not await site.exists("owner")
    assert not await site.exists("dependent")


async def test_delete_in_background_takes_dependents_along_later(site: Site) -> None:
    await owner_and_dependent(site)
    await site.apply(site.about("DeleteInBackground", "owner"))
    assert not await site.exists("owner")
    await until(lambda: site.exists("dependent"), expected=False)


async def test_delete_non_cascading_leaves_dependents_without_owner(site: Site) -> None:
    await owner_and_dependent(site)
    await site.apply(site.about("DeleteNonCascading", "owner"))
    await until(lambda: site.exists("owner"), expected=False)
    assert not metadata(await site.read("dependent")).get("ownerReferences")


RELEASE: JsonObject = {"metadata": {"finalizers": None}}


async def test_delete_waits_for_finalizers(site: Site) -> None:
    await site.create("x", finalizers=["example.com/hold"])
    deletion = asyncio.create_task(site.apply(site.about("Delete", "x")), name="deletion")
    await until(lambda: being_deleted(site), expected=True)
    assert not deletion.done()
    await site.apply(site.about("MergePatch", "x", mergePatch=RELEASE))
    await deletion
    assert not await site.exists("x")


async def being_deleted(site: Site) -> bool:
    return "deletionTimestamp" in metadata(await site.read("x"))


async def test_delete_that_never_ends_says_what_holds_it(site: Site) -> None:
    site.patcher = ObjectPatcher(site.client, site.client.discover, delete_timeout_s=0.2)
    await site.create("x", finalizers=["example.com/hold"])
    error = await failure(site, site.about("Delete", "x"))
    assert "deleted, but still there after 0.2 s, held by finalizers: " in str(error)
    assert "example.com/hold" in str(error)
    await site.apply(site.about("MergePatch", "x", mergePatch=RELEASE))


async def test_delete_does_not_wait_for_a_successor(site: Site) -> None:
    await site.create("x", finalizers=["example.com/hold"])
    deletion = asyncio.create_task(site.apply(site.about("Delete", "x")), name="deletion")
    await until(lambda: being_deleted(site), expected=True)
    successor: JsonObject = {"operation": "CreateIfNotExists", "object": site.config_map("x", {"new": "yes"})}
    await site.apply(site.about("MergePatch", "x", mergePatch=RELEASE), successor)
    await deletion


# --- errors -------------------------------------------------------------------------------------------------------


async def test_all_operations_are_tried_and_every_failure_is_named(site: Site) -> None:
    error = await failure(
        site,
        site.about("MergePatch", "absent", mergePatch={}),
        {"operation": "Create", "object": site.config_map("x")},
        site.about("JSONPatch", "missing", jsonPatch=[]),
        {"operation": "Create", "object": site.config_map("last")},
    )
    starts = [line[: line.index(":", 14)] for line in str(error).splitlines()]
    assert starts == [
        f"operation 1: MergePatch {site.namespace}/ConfigMap/absent",
        f"operation 3: JSONPatch {site.namespace}/ConfigMap/missing",
    ]
    assert (error.status, error.reason) == (404, "NotFound")
    assert await site.exists("x")
    assert await site.exists("last")


async def test_nothing_is_applied_if_a_kind_or_a_namespace_is_wrong(site: Site) -> None:
    error = await failure(
        site,
        {"operation": "Create", "object": site.config_map("x")},
        site.about("Delete", "y", kind="Nonsense"),
        {"operation": "Delete", "kind": "ConfigMap", "name": "z"},
    )
    assert str(error).splitlines() == [
        f"operation 2: Delete {site.namespace}/Nonsense/y: the API server does not serve the kind Nonsense",
        "operation 3: Delete ConfigMap/z: namespace: is required, ConfigMap is namespaced",
    ]
    assert not await site.exists("x")


async def test_kinds_by_any_name(site: Site) -> None:
    kinds = ("ConfigMap", "configmap", "configmaps", "cm", "CM")
    await site.create("x")
    await site.apply(
        *(
            site.about("MergePatch", "x", kind=kind, mergePatch={"data": {f"k{place}": kind}})
            for place, kind in enumerate(kinds)
        )
    )
    assert (await site.read("x"))["data"] == {f"k{place}": kind for place, kind in enumerate(kinds)}


async def test_namespace_of_an_object_without_namespaces_does_not_matter(site: Site) -> None:
    labels: JsonObject = {"metadata": {"labels": {"touched": "yes"}}}
    await site.apply(site.about("MergePatch", site.namespace, kind="ns", mergePatch=labels))
    path = f"/api/v1/namespaces/{site.namespace}"
    found = jsondoc.loads(await site.client.api.request("GET", path))
    assert jsondoc.lookup(found, "/metadata/labels/touched") == "yes"


async def test_kind_that_an_earlier_operation_brought(site: Site) -> None:
    plural = f"w{site.namespace.replace('-', '')}s"
    schema: JsonObject = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    crd: JsonObject = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": plural.title()},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
    widget: JsonObject = {
        "apiVersion": "example.com/v1",
        "kind": plural.title(),
        "metadata": {"name": "w", "namespace": site.namespace},
        "spec": {"big": 1732200000123456789, "one": 1},
    }
    operations: list[JsonObject] = [
        {"operation": "CreateIfNotExists", "object": crd},
        {"operation": "CreateIfNotExists", "object": widget},
    ]

    async def applied() -> bool:
        try:
            await site.apply(*operations)
        except KubeError as error:
            if error.reason != "NoSuchKind":
                raise
            return False  # the server needs a moment to serve a new kind
        return True

    await until(applied, expected=True)
    # A jq program leaves alone what it does not touch, and makes of 1 what is not equal to it only for Python.
    await site.apply(site.about("JQPatch", "w", kind=plural, jqFilter=".spec.one = true"))
    resource = Resource("example.com", "v1", plural.title(), plural, True)
    assert (await site.read("w", resource))["spec"] == {"big": 1732200000123456789, "one": True}


@pytest.fixture
async def stranger(site: Site, cluster: Cluster, tmp_path: Path) -> AsyncIterator[Site]:
    """The same namespace, seen by an account that may do nothing."""
    account: JsonObject = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "stranger", "namespace": site.namespace},
    }
    await site.apply({"operation": "Create", "object": account})
    path = SERVICE_ACCOUNTS.path(site.namespace, "stranger", "token")
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    granted = jsondoc.loads(await site.client.api.request("POST", path, body=json.dumps(body).encode()))
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"] = [
        {"name": user["name"], "user": {"token": jsondoc.lookup(granted, "/status/token")}} for user in config["users"]
    ]
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    async with site_of(kubeconfig, site.namespace) as other:
        other.patcher = ObjectPatcher(other.client, site.client.discover)
        yield other


@pytest.mark.parametrize(
    ("operation", "permission"),
    [
        pytest.param(
            {"operation": "Create", "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}},
            'verb create on resource configmaps of API group ""',
            id="create",
        ),
        pytest.param(
            {"operation": "Delete", "kind": "Secret", "name": "x"},
            'verb delete on resource secrets of API group ""',
            id="delete-secret",
        ),
        pytest.param(
            {"operation": "JQPatch", "kind": "deploy", "name": "x", "jqFilter": "."},
            'verb get on resource deployments of API group "apps"',
            id="jq",
        ),
        pytest.param(
            {"operation": "MergePatch", "kind": "svc", "name": "x", "mergePatch": {}, "subresource": "status"},
            'verb patch on resource services/status of API group ""',
            id="status",
        ),
    ],
)
async def test_refusal_names_the_missing_permission(stranger: Site, operation: JsonObject, permission: str) -> None:
    given = operation.get("object")
    if isinstance(given, dict):
        metadata(given)["namespace"] = stranger.namespace
    else:
        operation = {**operation, "namespace": stranger.namespace}
    error = await failure(stranger, operation)
    assert str(error).endswith(f"(missing permission: {permission} in namespace {stranger.namespace})")
    assert error.status == 403


async def test_a_deletion_that_is_refused_is_told(stranger: Site) -> None:
    told: list[str] = []
    stranger.patcher = ObjectPatcher(
        stranger.client,
        stranger.client.discover,
        on_delete=lambda key: told.append(f"{key} goes"),
        on_delete_refused=lambda key: told.append(f"{key} stays"),
    )
    await failure(stranger, stranger.about("Delete", "x"))
    key = f"{stranger.namespace}/ConfigMap/x"
    assert told == [f"{key} goes", f"{key} stays"]


async def test_refusal_by_a_quota_is_not_taken_for_a_missing_permission(site: Site) -> None:
    existing = await site.create("there", {"a": "1"})
    quota: JsonObject = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none", "namespace": site.namespace},
        "spec": {"hard": {"services": "0", "count/configmaps": "1"}},
    }
    await site.apply({"operation": "Create", "object": quota})

    async def counted() -> bool:
        path = Resource("", "v1", "ResourceQuota", "resourcequotas", True).path(site.namespace, "none")
        status = jsondoc.lookup(jsondoc.loads(await site.client.api.request("GET", path)), "/status")
        return bool(status)

    await until(counted, expected=True)

    async def refused() -> str:
        try:
            await site.apply({"operation": "Create", "object": service(site, "10.0.0.1")})
        except KubeError as error:
            return str(error)
        await site.client.api.request("DELETE", SERVICES.path(site.namespace, "s"))
        return ""

    # The API server hears of a quota, and of what it counts, a moment later.
    while "exceeded quota" not in (said := await refused()):
        await asyncio.sleep(0.05)
    assert "missing permission" not in said
    # What exists may be changed all the same, although the server asks the quota first.
    await site.apply({"operation": "CreateIfNotExists", "object": site.config_map("there")})
    assert await site.read("there") == existing
    await site.apply({"operation": "CreateOrUpdate", "object": site.config_map("there", {"a": "2"})})
    assert (await site.read("there"))["data"] == {"a": "2"}
    error = await failure(site, {"operation": "CreateOrUpdate", "object": site.config_map("new")})
    assert "exceeded quota" in str(error)


def test_a_failed_hook_may_still_tell_in_a_status(cluster: DevCluster, tmp_path: Path) -> None:
    """Source: contract.md 2.4, 2.6 (ignoreHookError)."""
    status = {"conditions": [{"type": "Ready", "status": "False", "reason": "HookFailed", "message": "",
                              "lastTransitionTime": "2026-01-01T00:00:00Z"}]}  # fmt: skip
    patches = [
        {"operation": "MergePatch", "kind": "Service", "namespace": "NS", "name": "told", "subresource": "/status",
         "ignoreHookError": True, "mergePatch": {"status": status}},
        {"operation": "MergePatch", "kind": "Service", "namespace": "NS", "name": "told",
         "mergePatch": {"metadata": {"labels": {"touched": "yes"}}}},
    ]  # fmt: skip
    with operator(cluster, tmp_path) as made:
        made.files({"modules/values.yaml": "failsEnabled: true\nsleepsEnabled: true\n"})
        for name, settings, ending in (("fails", "", "exit 3"), ("sleeps", "settings: {timeout: 2s}\n", "sleep 1000")):
            made.kubectl("-n", made.namespace, "create", "service", "clusterip", name, "--tcp=80")
            lines = "\n".join(map(json.dumps, patches)).replace("NS", made.namespace).replace("told", name)
            body = f"cat >\"$KUBERNETES_PATCH_PATH\" <<'END'\n{lines}\nEND\n{ending}"
            made.module(name, {"hooks/hook.sh": noting_hook(name, f"{settings}beforeHelm: 1", body)})
        made.start()
        eventually(lambda: "ended with exit code 3" in str(made.modules()["fails"]["lastError"]))
        eventually(lambda: "ended after 2 s, its deadline" in str(made.modules()["sleeps"]["lastError"]))
        for name in ("fails", "sleeps"):
            service = json.loads(made.kubectl("-n", made.namespace, "get", "service", name, "-o", "json"))
            assert service["status"]["conditions"][0]["reason"] == "HookFailed"
            assert "touched" not in service["metadata"].get("labels", {})
