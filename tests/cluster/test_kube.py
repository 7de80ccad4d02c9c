"""The Kubernetes client, discovery and CRDs against a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml

from addon_operator.devcluster import DevCluster
from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import InputError, KubeError
from addon_operator.helm.cluster import Cluster
from addon_operator.kube import crds
from addon_operator.kube.client import KubeClient
from addon_operator.kube.refs import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, SECRETS
from addon_operator.kube.transport import RequestStat
from tests.connection import connected


@pytest.fixture
async def client(cluster: DevCluster) -> AsyncIterator[KubeClient]:
    async with connected(cluster.kubeconfig) as client:
        yield client


async def merge(client: KubeClient, path: str, patch: JsonObject) -> None:
    await client.api.request("PATCH", path, body=jsondoc.dumps(patch), content_type="application/merge-patch+json")


# --- client ---


async def test_server_version_is_the_real_one(client: KubeClient) -> None:
    assert (await client.server_version()).startswith("v1.")
    assert await client.wait_reachable() == await client.server_version()


async def test_refusal_has_status_and_reason(client: KubeClient, cluster: DevCluster) -> None:
    with pytest.raises(KubeError, match="absent") as caught:
        await client.api.request("GET", CONFIG_MAPS.path(cluster.namespace(), "absent"))
    assert (caught.value.status, caught.value.reason) == (404, "NotFound")


async def test_what_the_server_says_of_a_secret_is_not_repeated(client: KubeClient, cluster: DevCluster) -> None:
    body = b'{"metadata": {"name": "s"}, "stringData": {"key": {"swordfish": 1}}, "type": "swordfish/swordfish/x"}'
    with pytest.raises(KubeError) as caught:
        await client.api.request("POST", SECRETS.path(cluster.namespace()), body=body)
    assert caught.value.status == 400
    assert "swordfish" not in str(caught.value)


async def test_certificate_is_verified_unless_the_kubeconfig_says_else(cluster: DevCluster, tmp_path: Path) -> None:
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    for entry in config["clusters"]:
        for key in ("insecure-skip-tls-verify", "certificate-authority", "certificate-authority-data"):
            entry["cluster"].pop(key, None)
    strict = tmp_path / "kubeconfig"
    strict.write_text(yaml.safe_dump(config))
    async with connected(strict) as client:
        with pytest.raises(KubeError) as caught:
            await client.server_version()
    assert (caught.value.status, caught.value.reason) == (0, "TLS")


async def test_unknown_token_is_refused_after_one_more_try(cluster: DevCluster, tmp_path: Path) -> None:
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"] = [{"name": user["name"], "user": {"token": "nobody"}} for user in config["users"]]
    foreign = tmp_path / "kubeconfig"
    foreign.write_text(yaml.safe_dump(config))
    stats: list[RequestStat] = []
    async with connected(foreign, on_request=stats.append) as client:
        with pytest.raises(KubeError) as caught:
            await client.wait_reachable()
    assert caught.value.status == 401
    assert [stat.code for stat in stats] == [401, 401]


# --- discovery ---


async def test_discovery_takes_two_requests(cluster: DevCluster) -> None:
    stats: list[RequestStat] = []
    async with connected(cluster.kubeconfig, on_request=stats.append) as client:
        await client.discover()
    assert sorted(stat.path for stat in stats) == ["/api", "/apis"]


@pytest.mark.parametrize(
    ("name", "api_version", "kind", "path"),
    [
        pytest.param("Deployment", None, "Deployment", "/apis/apps/v1/namespaces/n/deployments/x", id="kind"),
        pytest.param("deployments", None, "Deployment", "/apis/apps/v1/namespaces/n/deployments/x", id="plural"),
        pytest.param("DEPLOY", None, "Deployment", "/apis/apps/v1/namespaces/n/deployments/x", id="short"),
        pytest.param("namespace", "v1", "Namespace", "/api/v1/namespaces/x", id="cluster scope"),
        pytest.param("events", None, "Event", "/api/v1/namespaces/n/events/x", id="core group first"),
        pytest.param(
            "events", "events.k8s.io/v1", "Event", "/apis/events.k8s.io/v1/namespaces/n/events/x", id="version wanted"
        ),
    ],
)
async def test_discovery_finds(client: KubeClient, name: str, api_version: str | None, kind: str, path: str) -> None:
    resource = (await client.discover()).resource(name, api_version)
    assert (resource.kind, resource.path("n", "x")) == (kind, path)


async def test_every_resource_that_the_server_lists_is_found(client: KubeClient, cluster: DevCluster) -> None:
    found = await client.discover()
    lines = cluster.kubectl("api-resources", "--no-headers", "-o", "wide").splitlines()
    listed = {(line.split()[0], next(word for word in line.split() if is_version(word))) for line in lines}
    # Kinds of other tests come and go.
    listed = {(plural, version) for plural, version in listed if ".example.com/" not in version}
    assert listed
    for plural, api_version in listed:
        resource = found.resource(plural, api_version)
        assert (resource.plural, resource.api_version) == (plural, api_version)
        assert f"{api_version}/{resource.kind}" in found.api_versions()


def is_version(word: str) -> bool:
    version = word.rpartition("/")[2]
    return version[:1] == "v" and version[1:2].isdigit()


# --- CRDs ---


def crd(plural: str, kind: str, *, field: str = "size") -> JsonObject:
    schema: JsonObject = {
        "openAPIV3Schema": {
            "type": "object",
            "properties": {"spec": {"type": "object", "properties": {field: {"type": "string"}}}},
        }
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.kube.test.example.com", "labels": {"from": "file"}},
        "spec": {
            "group": "kube.test.example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


@pytest.fixture
def removed(cluster: DevCluster) -> Iterator[None]:
    yield
    names = cluster.kubectl("get", "crd", "-o", "name").splitlines()
    ours = [name for name in names if name.endswith(".kube.test.example.com")]
    # Not waited for: what is left of other tests may take its time.
    cluster.kubectl("delete", "--ignore-not-found", "--wait=false", *ours)


async def stored(client: KubeClient, plural: str) -> JsonObject:
    path = CUSTOM_RESOURCE_DEFINITIONS.path(name=f"{plural}.kube.test.example.com")
    document = jsondoc.loads(await client.api.request("GET", path))
    assert isinstance(document, dict)
    return document


@pytest.mark.usefixtures("removed")
async def test_crds_are_served_when_install_returns(client: KubeClient, cluster: DevCluster) -> None:
    kinds = [f"Fresh{letter}" for letter in "abcdefghijkl"]
    documents = [(f"{kind}.yaml", crd(f"{kind.lower()}s", kind)) for kind in kinds]
    known = await Cluster.ask(client)
    report = await crds.install(client, documents, labels={"heritage": "addon-operator"})
    assert report.created == tuple(f"{kind.lower()}s.kube.test.example.com" for kind in kinds)
    assert report.kinds == tuple(f"kube.test.example.com/v1/{kind}" for kind in kinds)
    await known.wait_for_kinds(report.kinds)
    assert set(report.kinds) <= set(known.apis.api_versions())
    namespace = cluster.namespace()
    for kind in kinds:
        path = f"/apis/kube.test.example.com/v1/namespaces/{namespace}/{kind.lower()}s"
        body = jsondoc.dumps(
            {"apiVersion": "kube.test.example.com/v1", "kind": kind, "metadata": {"name": "x"}, "spec": {"size": "1"}}
        )
        await client.api.request("POST", path, body=body)
    labels = jsondoc.lookup(await stored(client, "freshas"), "/metadata/labels")
    assert labels == {"from": "file", "heritage": "addon-operator"}


@pytest.mark.usefixtures("removed")
async def test_only_changed_crds_are_written(client: KubeClient) -> None:
    first = [("a.yaml", crd("steadies", "Steady")), ("b.yaml", crd("changers", "Changer")), ("empty.yaml", {})]
    await crds.install(client, first, labels={"heritage": "x"})
    before = await stored(client, "steadies")
    foreign: JsonObject = {"metadata": {"labels": {"theirs": "1"}, "annotations": {"also": "theirs"}}}
    await merge(client, CUSTOM_RESOURCE_DEFINITIONS.path(name="changers.kube.test.example.com"), foreign)

    second = [("a.yaml", crd("steadies", "Steady")), ("b.yaml", crd("changers", "Changer", field="weight"))]
    report = await crds.install(client, second, labels={"heritage": "x"})

    assert (report.created, report.updated) == ((), ("changers.kube.test.example.com",))
    assert report.kinds == ("kube.test.example.com/v1/Changer",)
    assert await stored(client, "steadies") == before
    changed = await stored(client, "changers")
    assert jsondoc.lookup(changed, "/metadata/labels") == {"from": "file", "heritage": "x", "theirs": "1"}
    assert jsondoc.lookup(changed, "/metadata/annotations/also") == "theirs"
    weight = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/weight"
    assert jsondoc.lookup(changed, weight) == {"type": "string"}
    assert jsondoc.lookup(changed, "/status/conditions")


@pytest.mark.usefixtures("removed")
async def test_conversion_that_the_file_does_not_mention_stays(client: KubeClient) -> None:
    await crds.install(client, [("a.yaml", crd("converts", "Convert"))], labels={})
    hook: JsonObject = {"url": "https://127.0.0.1/convert"}
    webhook: JsonObject = {"clientConfig": hook, "conversionReviewVersions": ["v1"]}
    conversion: JsonObject = {"spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}}}
    await merge(client, CUSTOM_RESOURCE_DEFINITIONS.path(name="converts.kube.test.example.com"), conversion)
    await crds.install(client, [("a.yaml", crd("converts", "Convert", field="other"))], labels={})
    kept = jsondoc.lookup(await stored(client, "converts"), "/spec/conversion/webhook/clientConfig/url")
    assert kept == "https://127.0.0.1/convert"


@pytest.mark.usefixtures("removed")
async def test_two_operators_may_install_the_same_crds(client: KubeClient) -> None:
    documents = [(f"{at}.yaml", crd(f"shared{at % 4}", f"Shared{at % 4}")) for at in range(5)]
    reports = await asyncio.gather(*(crds.install(client, documents, labels={}) for _ in range(3)))
    assert sum(len(report.created) for report in reports) == 4
    assert not any(report.updated for report in reports)


@pytest.mark.usefixtures("removed")
async def test_errors_name_file_and_crd_and_the_others_are_installed(client: KubeClient) -> None:
    broken = crd("brokens", "Broken")
    spec = broken["spec"]
    assert isinstance(spec, dict)
    spec["scope"] = "Nowhere"
    with pytest.raises(KubeError, match=r"crds/bad.yaml: CustomResourceDefinition brokens\.kube.*scope") as caught:
        await crds.install(client, [("crds/bad.yaml", broken), ("good.yaml", crd("goods", "Good"))], labels={})
    assert caught.value.status == 422
    assert jsondoc.lookup(await stored(client, "goods"), "/metadata/name") == "goods.kube.test.example.com"


@pytest.mark.usefixtures("removed")
async def test_names_that_are_taken_are_said_so(client: KubeClient) -> None:
    await crds.install(client, [("a.yaml", crd("takens", "Taken"))], labels={})
    with pytest.raises(KubeError, match=r"b.yaml: .*names are taken"):
        await crds.install(client, [("b.yaml", crd("others", "Taken"))], labels={}, timeout_s=60)


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        pytest.param([("a.yaml", {"kind": "Pod", "apiVersion": "v1"})], r"a.yaml: Pod of v1 is not", id="other kind"),
        pytest.param(
            [("a.yaml", crd("xs", "X") | {"apiVersion": "apiextensions.k8s.io/v1beta1"})], "v1beta1", id="old version"
        ),
        pytest.param([("a.yaml", crd("xs", "X") | {"metadata": {}})], "without metadata.name", id="no name"),
        pytest.param(
            [("a.yaml", crd("xs", "X")), ("b.yaml", crd("xs", "X", field="other"))],
            r"b.yaml: .* in a.yaml",
            id="twice, and different",
        ),
    ],
)
async def test_documents_that_are_no_crds_are_refused(
    client: KubeClient, documents: list[tuple[str, JsonObject]], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        await crds.install(client, documents, labels={})
