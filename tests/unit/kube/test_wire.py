"""What lists and watches look like on the wire."""

from __future__ import annotations

import pytest

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import KubeError
from addon_operator.kube.informers import wire


@pytest.mark.parametrize(
    ("metadata", "key", "state"),
    [
        ({"namespace": "n", "name": "a", "uid": "u", "resourceVersion": "7"}, "n/a", "u/7"),
        ({"name": "a", "uid": "u", "resourceVersion": "7"}, "/a", "u/7"),
        ({}, "/", "/"),
    ],
)
def test_key_and_state(metadata: JsonObject, key: str, state: str) -> None:
    assert (wire.key_of(metadata), wire.state_of(metadata)) == (key, state)


@pytest.mark.parametrize(
    ("annotations", "ends"),
    [
        ({"k8s.io/initial-events-end": "true"}, True),
        ({"k8s.io/initial-events-end": "false"}, False),
        ({}, False),
        (None, False),
    ],
)
def test_end_of_the_initial_events(annotations: JsonObject | None, ends: bool) -> None:
    assert wire.ends_initial_events({"annotations": annotations}) is ends


@pytest.mark.parametrize(
    ("data", "objects", "metadata"),
    [
        (b'{"metadata":{"continue":"x"},"items":[{"a":1},2,{"b":3}]}', [{"a": 1}, {"b": 3}], {"continue": "x"}),
        (b'{"items":null}', [], {}),
        (b"[]", [], {}),
    ],
)
def test_page(data: bytes, objects: list[JsonObject], metadata: JsonObject) -> None:
    items, found = wire.decode_page(data)
    assert (list(items), found) == (objects, metadata)


def test_what_is_not_json_is_an_error() -> None:
    with pytest.raises(KubeError, match="not JSON"):
        wire.decode(b"<html>")


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        ({"code": 410, "reason": "Expired"}, 410, "watch of pods: 410 Expired"),
        ({"code": "x"}, 0, "watch of pods: x "),
    ],
)
def test_status(status: JsonObject, code: int, message: str) -> None:
    error = wire.status_error(status, "pods")
    assert (error.status, str(error)) == (code, message)
