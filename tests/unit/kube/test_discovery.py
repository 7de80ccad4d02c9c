from __future__ import annotations

import pytest

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import KubeError
from addon_operator.kube.discovery import Discovery, parse


def kind(name: str, plural: str, *short: str, scope: str = "Namespaced", sub: tuple[str, ...] = ()) -> JsonObject:
    return {
        "resource": plural,
        "responseKind": {"group": "", "version": "", "kind": name},
        "scope": scope,
        "singularResource": name.lower(),
        "shortNames": [*short],
        "verbs": ["get", "list"],
        "subresources": [{"subresource": part.lower(), "responseKind": {"kind": part}} for part in sub],
    }


def group(name: str, **versions: list[JsonObject]) -> JsonObject:
    return {
        "metadata": {"name": name} if name else {"creationTimestamp": None},
        "versions": [{"version": version, "resources": [*kinds]} for version, kinds in versions.items()],
    }


def listing(*groups: JsonObject) -> JsonObject:
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": [*groups]}


@pytest.fixture
def found() -> Discovery:
    return parse(
        listing(group("", v1=[kind("Event", "events", "ev"), kind("Node", "nodes", "no", scope="Cluster")])),
        listing(
            group("apps", v1=[kind("Deployment", "deployments", "deploy", sub=("Scale", "Deployment"))]),
            group("events.k8s.io", v1=[kind("Event", "events", "ev")]),
            group("autoscaling", v2=[kind("Scaler", "scalers")], v1=[kind("Scaler", "scalers"), kind("Old", "olds")]),
            group("example.com", v1=[kind("No", "nos", "deploy")]),
        ),
    )


@pytest.mark.parametrize(
    ("name", "api_version", "expected"),
    [
        pytest.param("Deployment", None, ("apps/v1", "deployments"), id="kind"),
        pytest.param("DEPLOYMENTS", None, ("apps/v1", "deployments"), id="plural"),
        pytest.param("deploy", None, ("apps/v1", "deployments"), id="short name of the first group"),
        pytest.param("no", None, ("example.com/v1", "nos"), id="a kind beats a short name"),
        pytest.param("no", "v1", ("v1", "nodes"), id="short name in the wanted version"),
        pytest.param("events", None, ("v1", "events"), id="core first"),
        pytest.param("events", "events.k8s.io/v1", ("events.k8s.io/v1", "events"), id="wanted version"),
        pytest.param("scaler", None, ("autoscaling/v2", "scalers"), id="preferred version"),
        pytest.param("old", None, ("autoscaling/v1", "olds"), id="only in an older version"),
    ],
)
def test_resource(found: Discovery, name: str, api_version: str | None, expected: tuple[str, str]) -> None:
    resource = found.resource(name, api_version)
    assert (resource.api_version, resource.plural) == expected


def test_resource_carries_everything(found: Discovery) -> None:
    node = found.resource("nodes")
    assert (node.kind, node.namespaced, node.singular, node.short_names, node.verbs) == (
        "Node",
        False,
        "node",
        ("no",),
        ("get", "list"),
    )


@pytest.mark.parametrize(
    ("name", "api_version", "message"),
    [("Absent", None, "kind Absent"), ("Node", "v2", "Node of v2"), ("", None, "kind")],
    ids=["kind", "version", "empty"],
)
def test_unknown_kind_is_named(found: Discovery, name: str, api_version: str | None, message: str) -> None:
    with pytest.raises(KubeError, match=message) as caught:
        found.resource(name, api_version)
    assert caught.value.status == 404


def test_api_versions_are_those_of_helm(found: Discovery) -> None:
    assert found.api_versions() == (
        "apps/v1",
        "apps/v1/Deployment",
        "apps/v1/Scale",
        "autoscaling/v1",
        "autoscaling/v1/Old",
        "autoscaling/v1/Scaler",
        "autoscaling/v2",
        "autoscaling/v2/Scaler",
        "events.k8s.io/v1",
        "events.k8s.io/v1/Event",
        "example.com/v1",
        "example.com/v1/No",
        "v1",
        "v1/Event",
        "v1/Node",
    )


def test_digest_changes_with_what_charts_can_see() -> None:
    small, same = parse(listing(), listing(group("a", v1=[]))), parse(listing(group("")), listing(group("a", v1=[])))
    larger = parse(listing(), listing(group("a", v1=[kind("New", "news")])))
    assert small.digest == same.digest
    assert small.digest != larger.digest


@pytest.mark.parametrize("document", [{"kind": "APIVersions"}, [], None], ids=["old server", "list", "null"])
def test_server_without_aggregated_discovery_is_refused(document: JsonObject) -> None:
    with pytest.raises(KubeError, match=r"1\.26"):
        parse(document, listing())
