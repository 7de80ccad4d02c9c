from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import InvariantBroken
from addon_operator.kube.refs import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    ObjectKey,
    Resource,
    path_template,
)

DEPLOYMENTS = Resource("apps", "v1", "Deployment", "deployments", True)
NAMES = st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True)


@pytest.mark.parametrize(
    ("document", "key", "text"),
    [
        pytest.param(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "n", "name": "p"}},
            ObjectKey("v1", "Pod", "n", "p"),
            "n/Pod/p",
            id="in a namespace",
        ),
        pytest.param(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "p"}},
            ObjectKey("v1", "Node", "", "p"),
            "Node/p",
            id="without namespace",
        ),
        pytest.param({"metadata": None}, ObjectKey("", "", "", ""), "", id="nothing known"),
    ],
)
def test_key_of_an_object(document: JsonObject, key: ObjectKey, text: str) -> None:
    assert ObjectKey.of(document) == key
    assert str(key) == text


def test_keys_are_sorted_by_type_then_place() -> None:
    keys = [ObjectKey("v1", "Pod", "b", "a"), ObjectKey("v1", "Pod", "a", "z"), ObjectKey("apps/v1", "X", "z", "z")]
    assert sorted(keys) == keys[::-1]


@pytest.mark.parametrize(
    ("resource", "arguments", "path"),
    [
        pytest.param(CONFIG_MAPS, ("n", "x"), "/api/v1/namespaces/n/configmaps/x", id="object"),
        pytest.param(CONFIG_MAPS, ("n",), "/api/v1/namespaces/n/configmaps", id="collection"),
        pytest.param(CONFIG_MAPS, (), "/api/v1/configmaps", id="all namespaces"),
        pytest.param(CONFIG_MAPS, ("",), "/api/v1/configmaps", id="empty namespace is all"),
        pytest.param(
            DEPLOYMENTS, ("n", "x", "scale"), "/apis/apps/v1/namespaces/n/deployments/x/scale", id="subresource"
        ),
        pytest.param(
            CUSTOM_RESOURCE_DEFINITIONS,
            ("ignored", "x"),
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/x",
            id="cluster scope",
        ),
        pytest.param(CONFIG_MAPS, ("n", "a/../b"), "/api/v1/namespaces/n/configmaps/a%2F..%2Fb", id="escaped"),
    ],
)
def test_path(resource: Resource, arguments: tuple[str, ...], path: str) -> None:
    assert resource.path(*arguments) == path


@pytest.mark.parametrize("arguments", [(None, "x"), ("n", None, "status")], ids=["no namespace", "no name"])
def test_path_of_half_an_object_is_a_bug(arguments: tuple[str | None, ...]) -> None:
    with pytest.raises(InvariantBroken, match="ConfigMap"):
        CONFIG_MAPS.path(*arguments)


@pytest.mark.parametrize(
    ("path", "template"),
    [
        ("/version", "/version"),
        ("/api", "/api"),
        ("/apis", "/apis"),
        ("/api/v1/nodes", "/api/v1/nodes"),
        ("/api/v1/nodes/a", "/api/v1/nodes/{name}"),
        ("/api/v1/namespaces/a", "/api/v1/namespaces/{name}"),
        ("/api/v1/namespaces/a/finalize", "/api/v1/namespaces/{name}/finalize"),
        ("/api/v1/namespaces/a/pods", "/api/v1/namespaces/{namespace}/pods"),
        ("/api/v1/namespaces/a/pods/b/log", "/api/v1/namespaces/{namespace}/pods/{name}/log"),
        ("/apis/apps/v1/namespaces/a/deployments/b", "/apis/apps/v1/namespaces/{namespace}/deployments/{name}"),
    ],
)
def test_path_template(path: str, template: str) -> None:
    assert path_template(path) == template


@given(namespace=NAMES, name=NAMES)
def test_templates_do_not_depend_on_names(namespace: str, name: str) -> None:
    template = path_template(DEPLOYMENTS.path("a", "b", "status"))
    assert path_template(DEPLOYMENTS.path(namespace, name, "status")) == template
