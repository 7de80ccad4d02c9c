"""Metrics, object patches and answers, read with the operator's readers."""

from __future__ import annotations

import base64
import json

import pytest

from addon_operator import sdk
from addon_operator.kube import patch_ops
from addon_operator.kube.patch_ops import Common, Create, Delete, JqPatch, JsonPatch, MergePatch, Target
from addon_operator.metrics import operations
from addon_operator.metrics.operations import Expire, Record

CONFIG_MAP: sdk.JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ü", "namespace": "b"}}


@pytest.fixture
def context() -> sdk.Context:
    return sdk.Context(lambda variable: {})


def test_nothing_asked_is_nothing_written(context: sdk.Context) -> None:
    assert context.results() == {}


def test_metrics(context: sdk.Context) -> None:
    context.metrics.add("runs_total")
    context.metrics.add("runs_total", 2.5, labels={"text": 'a "b"\nü'}, group="g")
    context.metrics.set("temperature", -3)
    context.metrics.observe("seconds", 0.25, buckets=[0.1, 1], labels={"path": "/"}, group="g")
    context.metrics.expire("old")
    assert operations.parse(context.results()["METRICS_PATH"].encode(), "") == (
        Record(1, "runs_total", "counter", 1),
        Record(2, "runs_total", "counter", 2.5, (("text", 'a "b"\nü'),), group="g"),
        Record(3, "temperature", "gauge", -3),
        Record(4, "seconds", "histogram", 0.25, (("path", "/"),), (0.1, 1), "g"),
        Expire(5, "old"),
    )


def test_kube(context: sdk.Context) -> None:
    kube = context.kube
    kube.create(CONFIG_MAP)
    kube.create_or_update(CONFIG_MAP)
    kube.create_if_not_exists(CONFIG_MAP)
    kube.delete("Pod", "p", namespace="n")
    kube.delete_in_background("Deployment", "d", namespace="n", api_version="apps/v1")
    kube.delete_non_cascading("Node", "x")
    kube.merge_patch(
        "Node", "x", {"status": {"a": 1}}, subresource="status", ignore_missing=True, ignore_hook_error=True
    )  # fmt: skip
    kube.json_patch("Node", "x", [{"op": "remove", "path": "/metadata/labels/a"}])
    config_map, node = Target("v1", "ConfigMap", "b", "ü"), Target(None, "Node", None, "x")
    assert patch_ops.parse(context.results()["KUBERNETES_PATCH_PATH"].encode(), "") == (
        Create(Common(1, config_map), "Create", CONFIG_MAP),
        Create(Common(2, config_map), "CreateOrUpdate", CONFIG_MAP),
        Create(Common(3, config_map), "CreateIfNotExists", CONFIG_MAP),
        Delete(Common(4, Target(None, "Pod", "n", "p")), "Delete"),
        Delete(Common(5, Target("apps/v1", "Deployment", "n", "d")), "DeleteInBackground"),
        Delete(Common(6, node), "DeleteNonCascading"),
        MergePatch(Common(7, node, "status", ignore_missing=True, ignore_hook_error=True), {"status": {"a": 1}}),
        JsonPatch(Common(8, node), [{"op": "remove", "path": "/metadata/labels/a"}]),
    )


def test_jq_patch(context: sdk.Context) -> None:
    context.kube.jq_patch("Pod", "p", '.x = "ü"', namespace="n")
    (operation,) = patch_ops.parse(context.results()["KUBERNETES_PATCH_PATH"].encode(), "")
    assert isinstance(operation, JqPatch)
    assert operation.common.target == Target(None, "Pod", "n", "p")
    assert operation.program.run(b"{}") == ('{"x":"ü"}'.encode(),)


def test_objects_are_taken_as_they_are_at_the_call(context: sdk.Context) -> None:
    labels: sdk.JsonObject = {}
    context.kube.merge_patch("Node", "x", {"metadata": {"labels": labels}})
    labels["late"] = "x"
    assert context.kube.operations[0]["mergePatch"] == {"metadata": {"labels": {}}}


def test_admission(context: sdk.Context) -> None:
    context.admission.deny("no", warnings=["w"])
    assert json.loads(context.results()["ADMISSION_RESPONSE_PATH"]) == {
        "allowed": False, "message": "no", "warnings": ["w"],
    }  # fmt: skip
    context.admission.allow(patch=[{"op": "add", "path": "/a", "value": "ü"}])
    answer = json.loads(context.results()["ADMISSION_RESPONSE_PATH"])
    assert json.loads(base64.b64decode(answer.pop("patch"))) == [{"op": "add", "path": "/a", "value": "ü"}]
    assert answer == {"allowed": True}


def test_conversion(context: sdk.Context) -> None:
    context.conversion.fail("no")
    assert json.loads(context.results()["CONVERSION_RESPONSE_PATH"]) == {"failedMessage": "no"}
    context.conversion.done([CONFIG_MAP])
    assert json.loads(context.results()["CONVERSION_RESPONSE_PATH"]) == {"convertedObjects": [CONFIG_MAP]}
