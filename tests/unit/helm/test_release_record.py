"""What the metadata of release Secrets says, and how Helm encodes what is in them."""

from __future__ import annotations

import base64
import gzip

import pytest

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import HelmError
from addon_operator.helm import manifest
from addon_operator.helm.release import (
    ENABLED_BY_ANNOTATION,
    FINGERPRINT_LABEL,
    HELD_ANNOTATION,
    OBJECTS_ANNOTATION,
    RENDERED_LABEL,
    REVISION_LABEL,
    ReleaseFacts,
)
from addon_operator.helm.release_record import (
    UNLISTED,
    decode_release,
    enabled_by_note,
    encode_release,
    facts_of,
    hooks_of,
    parse_secret_name,
    read_record,
    secret_name,
)
from addon_operator.kube.refs import ObjectKey
from addon_operator.values.layers import EnabledBy

KEY = ObjectKey("v1", "ConfigMap", "ns", "a")
ENABLED_BY = EnabledBy({"values.yaml": True}, "uid")


def labelled(labels: JsonObject) -> JsonObject:
    return {"labels": labels}


def annotated(name: str, value: str) -> JsonObject:
    return {"annotations": {name: value}}


def test_a_record_with_everything() -> None:
    labels: JsonObject = {"status": "deployed", FINGERPRINT_LABEL: "f", RENDERED_LABEL: "r", REVISION_LABEL: "3"}
    notes: JsonObject = {
        OBJECTS_ANNOTATION: manifest.pack([KEY]),
        ENABLED_BY_ANNOTATION: enabled_by_note(ENABLED_BY),
        HELD_ANNOTATION: "why",
    }
    record = read_record(3, {"labels": labels, "annotations": notes})
    assert (record.status, record.fingerprint, record.rendered) == ("deployed", "f", "r")
    assert (record.owned, record.recorded, record.finished) == (True, True, True)
    assert (record.objects, record.enabled_by, record.held, record.problem) == ((KEY,), ENABLED_BY, "why", "")


def test_a_record_with_nothing() -> None:
    record = read_record(3, {})
    assert (record.status, record.owned, record.recorded, record.finished) == ("", False, False, False)
    assert (record.objects, record.enabled_by, record.held, record.problem) == (None, None, "", "")


@pytest.mark.parametrize(
    ("note", "recorded", "objects", "has_problem"),
    [
        pytest.param(manifest.pack([]), True, (), False, id="no objects"),
        pytest.param(UNLISTED, True, None, False, id="too many objects"),
        pytest.param("changed", False, None, True, id="changed by somebody else"),
    ],
)
def test_the_note_of_the_objects(
    note: str, recorded: bool, objects: tuple[ObjectKey, ...] | None, has_problem: bool
) -> None:
    record = read_record(1, annotated(OBJECTS_ANNOTATION, note))
    assert (record.recorded, record.objects, bool(record.problem)) == (recorded, objects, has_problem)


@pytest.mark.parametrize(
    "note", ["", "no JSON", "[]", '{"flags": [], "configMap": ""}', '{"flags": {}}'], ids=lambda note: note or "empty"
)
def test_a_note_of_what_enables_a_module_that_somebody_else_wrote_is_none(note: str) -> None:
    assert read_record(1, annotated(ENABLED_BY_ANNOTATION, note)).enabled_by is None


def test_the_newest_record_counts() -> None:
    records = {
        at: read_record(at, labelled({"status": status, FINGERPRINT_LABEL: str(at)}))
        for at, status in ((2, "deployed"), (1, "superseded"), (3, "pending-upgrade"))
    }
    facts = facts_of("demo", records)
    assert (facts.name, facts.revision, facts.status, facts.fingerprint) == ("demo", 3, "pending-upgrade", "3")
    assert (facts.deployed_revision, facts.ever_deployed) == (2, True)


@pytest.mark.parametrize(
    ("statuses", "deployed", "ever"),
    [
        pytest.param(["failed"], None, False, id="never"),
        pytest.param(["deployed", "failed"], 1, True, id="before"),
        pytest.param(["uninstalled"], None, True, id="once"),
    ],
)
def test_whether_a_release_was_ever_deployed(statuses: list[str], deployed: int | None, ever: bool) -> None:
    records = {at: read_record(at, labelled({"status": status})) for at, status in enumerate(statuses, 1)}
    facts = facts_of("demo", records)
    assert (facts.deployed_revision, facts.ever_deployed) == (deployed, ever)


def test_without_records_there_is_no_release() -> None:
    assert facts_of("demo", {}) == ReleaseFacts("demo")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (secret_name("demo", 12), ("demo", 12)),
        ("sh.helm.release.v1.a.v1.v2", ("a.v1", 2)),
        ("sh.helm.release.v1.a.v0", None),
        ("sh.helm.release.v1.a", None),
        ("other", None),
    ],
)
def test_names_of_secrets(name: str, expected: tuple[str, int] | None) -> None:
    assert parse_secret_name(name) == expected


def secret(payload: bytes) -> JsonObject:
    return {"data": {"release": base64.b64encode(base64.b64encode(payload)).decode()}}


RELEASE: JsonObject = {"name": "demo", "manifest": "---\n"}


@pytest.mark.parametrize("packed", [True, False], ids=["gzip", "plain"])
def test_a_release_is_read(packed: bool) -> None:
    text = jsondoc.dumps(RELEASE)
    assert decode_release(secret(gzip.compress(text) if packed else text)) == RELEASE


def test_what_is_written_can_be_read() -> None:
    assert decode_release({"data": encode_release(RELEASE)}) == RELEASE


@pytest.mark.parametrize(
    "content",
    [
        pytest.param({}, id="no data"),
        pytest.param({"data": {"release": "%"}}, id="no base64"),
        pytest.param({"data": {"release": base64.b64encode(b"%").decode()}}, id="no base64 within"),
        pytest.param(secret(b"{"), id="no JSON"),
        pytest.param(secret(b"[]"), id="no document"),
        pytest.param(secret(b'{"manifest": 1}'), id="no manifest"),
        pytest.param(secret(gzip.compress(b"{}")[:-12]), id="cut off"),
    ],
)
def test_what_is_no_release_is_an_error(content: JsonObject) -> None:
    with pytest.raises(HelmError, match="the stored release cannot be read"):
        decode_release(content)


@pytest.mark.parametrize(
    ("hooks", "expected"),
    [
        (None, ()),
        ([{"path": "p", "manifest": "m"}, "x", {}], (("p", "m"), ("", ""))),
    ],
)
def test_hooks_of_a_release(hooks: JsonValue, expected: tuple[tuple[str, str], ...]) -> None:
    assert hooks_of({"hooks": hooks}) == expected
