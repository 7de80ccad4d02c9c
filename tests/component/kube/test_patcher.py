"""What the patcher makes of refusals, against a scripted server."""

from __future__ import annotations

import json

import pytest

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import KubeError
from addon_operator.kube.client import KubeClient
from addon_operator.kube.discovery import Discovery
from addon_operator.kube.patch_ops import parse
from addon_operator.kube.patcher import ObjectPatcher
from addon_operator.kube.refs import CONFIG_MAPS, SECRETS
from tests.component.kube.api import Api, Handler, breaks, gives, refuses

USER = 'User "u" cannot delete resource "{0}" in API group "" in the namespace "n"'


async def served() -> Discovery:
    return Discovery([CONFIG_MAPS, SECRETS], [])


def deletion(kind: str = "ConfigMap") -> JsonObject:
    return {"operation": "Delete", "kind": kind, "namespace": "n", "name": "x"}


async def apply(patcher: ObjectPatcher, operation: JsonObject) -> str:
    """Answers the error; nothing if there is none."""
    try:
        await patcher.apply(parse(json.dumps(operation).encode(), "hook"))
    except KubeError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("kind", "message", "is_permission"),
    [
        pytest.param("ConfigMap", f'configmaps "x" is forbidden: {USER.format("configmaps")}', True, id="rbac"),
        pytest.param("Secret", f'secrets "x" is forbidden: {USER.format("secrets")}', True, id="rbac, a secret"),
        pytest.param("ConfigMap", 'admission webhook "w" denied the request: you cannot do this', False, id="webhook"),
        pytest.param("Secret", 'admission webhook "w" denied the request: you cannot do this', False, id="of a secret"),
        pytest.param("Secret", "", False, id="no reason"),
    ],
)
async def test_which_refusal_is_a_missing_permission(
    client: KubeClient, api: Api, kind: str, message: str, *, is_permission: bool
) -> None:
    api.steps = [refuses(403, "Forbidden", message=message)]
    error = await apply(ObjectPatcher(client, served), deletion(kind))
    assert ("missing permission: verb delete" in error) == is_permission
    assert ('admission webhook "w" denied the request' in error) == message.startswith("admission")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        pytest.param(refuses(403, "Forbidden"), ["goes", "stays"], id="refused"),
        pytest.param(refuses(404, "NotFound"), ["goes"], id="gone already"),
        pytest.param(gives({"kind": "Status"}), ["goes"], id="deleted"),
        pytest.param(breaks(), ["goes"], id="nobody knows"),
    ],
)
async def test_who_expects_a_deletion_is_told_if_there_is_none(
    client: KubeClient, api: Api, answer: Handler, told: list[str]
) -> None:
    api.steps = [answer, answer]
    heard: list[str] = []
    patcher = ObjectPatcher(
        client, served, on_delete=lambda _: heard.append("goes"), on_delete_refused=lambda _: heard.append("stays")
    )
    await apply(patcher, deletion())
    assert heard == told


THERE = gives({"metadata": {}})


@pytest.mark.parametrize(
    ("verb", "answers", "methods", "done"),
    [
        pytest.param("Create", [], "POST", False, id="create"),
        pytest.param("CreateIfNotExists", [THERE], "POST GET", True, id="it is there"),
        pytest.param("CreateOrUpdate", [THERE, gives({})], "POST GET PUT", True, id="updated"),
        pytest.param("CreateIfNotExists", [refuses(404, "NotFound")], "POST GET", False, id="it is not"),
        pytest.param("CreateOrUpdate", [refuses(403, "Forbidden")], "POST GET", False, id="nobody knows"),
    ],
)
async def test_a_refused_create_may_hide_that_the_object_is_there(
    client: KubeClient, api: Api, verb: str, answers: list[Handler], methods: str, *, done: bool
) -> None:
    api.steps = [refuses(403, "Forbidden", message="exceeded quota"), *answers]
    document: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "n"}}
    error = await apply(ObjectPatcher(client, served), {"operation": verb, "object": document})
    assert " ".join(asked.method for asked in api.asked) == methods
    assert (error == "") == done
    assert done or "exceeded quota" in error


async def test_what_exists_is_not_asked_for_if_it_is_left_alone(client: KubeClient, api: Api) -> None:
    api.steps = [refuses(409, "AlreadyExists")]
    document: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "n"}}
    assert await apply(ObjectPatcher(client, served), {"operation": "CreateIfNotExists", "object": document}) == ""
    assert len(api.asked) == 1


@pytest.mark.parametrize(("reason", "done"), [("NotFound", True), ("", False)], ids=["API server", "proxy"])
async def test_only_what_the_api_server_does_not_find_is_missing(
    client: KubeClient, api: Api, reason: str, *, done: bool
) -> None:
    api.steps = [refuses(404, reason)]
    patch: JsonObject = {"operation": "MergePatch", "kind": "ConfigMap", "namespace": "n", "name": "x"}
    error = await apply(ObjectPatcher(client, served), {**patch, "mergePatch": {}, "ignoreMissingObject": True})
    assert (error == "") == done
