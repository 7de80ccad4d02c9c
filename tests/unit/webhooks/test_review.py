"""What hooks answer and what the API server is told."""

from __future__ import annotations

import base64
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import InputError
from addon_operator.webhooks import review
from addon_operator.webhooks.review import AdmissionAnswer, ConversionAnswer

PATCH = b'[{"op":"add","path":"/metadata/labels/x","value":"y"}]'


def encoded(patch: bytes) -> str:
    return base64.b64encode(patch).decode()


def problems(data: bytes, *, conversion: bool = False) -> list[str]:
    parse = review.parse_conversion_response if conversion else review.parse_admission_response
    with pytest.raises(InputError) as caught:
        parse(data)
    return [line.removeprefix("response file: ") for line in str(caught.value).split("\n")]


# --- response files ---


@pytest.mark.parametrize(
    ("document", "answer"),
    [
        pytest.param({"allowed": True}, AdmissionAnswer(allowed=True), id="allowed"),
        pytest.param({"allowed": False, "message": "no"}, AdmissionAnswer(allowed=False, message="no"), id="denied"),
        pytest.param(
            {"allowed": True, "warnings": ["a", "b"]}, AdmissionAnswer(allowed=True, warnings=("a", "b")), id="warnings"
        ),
        pytest.param(
            {"allowed": True, "patch": encoded(PATCH)}, AdmissionAnswer(allowed=True, patch=PATCH), id="patch"
        ),
        pytest.param(
            {"allowed": True, "patch": encoded(PATCH)[:40] + "\n" + encoded(PATCH)[40:] + "\n"},
            AdmissionAnswer(allowed=True, patch=PATCH),
            id="patch as base64 wraps it",
        ),
        pytest.param(
            {"allowed": True, "message": "", "warnings": [], "patch": ""}, AdmissionAnswer(allowed=True), id="all empty"
        ),
        pytest.param(
            {"allowed": True, "message": None, "warnings": None, "patch": None},
            AdmissionAnswer(allowed=True),
            id="null is absent",
        ),
        pytest.param({"message": "no"}, AdmissionAnswer(allowed=False, message="no"), id="not said"),
        pytest.param({"allowed": None}, AdmissionAnswer(allowed=False), id="null denies"),
        pytest.param({"allowed": True, "reason": {"any": 1}}, AdmissionAnswer(allowed=True), id="unknown field"),
    ],
)
def test_admission_response(document: JsonObject, answer: AdmissionAnswer) -> None:
    assert review.parse_admission_response(jsondoc.dumps(document)) == answer


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param({"allowed": "true"}, ["allowed: must be a boolean, not a string"], id="text for a boolean"),
        pytest.param(
            {"allowed": True, "warnings": "w", "message": 1},
            ["message: must be a string, not an integer", "warnings: must be a list, not a string"],
            id="all problems at once",
        ),
        pytest.param(
            {"allowed": True, "patch": "%%"}, ["patch: must be a JSON patch in base64"], id="patch is not base64"
        ),
        pytest.param(
            {"allowed": True, "patch": [{"op": "remove", "path": "/x"}]},
            ["patch: must be a string, not a list"],
            id="patch is plain",
        ),
        pytest.param(
            {"allowed": True, "patch": encoded(b"{}")}, ["patch: must be a list of operations"], id="patch is a map"
        ),
        pytest.param(
            {"allowed": True, "patch": encoded(b'[{"op":"set","path":"/x"}]')},
            ["patch[0].op: must be one of add, remove, replace, move, copy, test"],
            id="unknown operation",
        ),
        pytest.param(
            {"allowed": True, "patch": encoded(b'[{"op":"remove","path":"/x"},{"op":"move","path":"/x"}]')},
            ["patch[1].from: is required"],
            id="move from nowhere",
        ),
        pytest.param(
            {"allowed": True, "patch": encoded(b'[{"op":"add","path":"x","value":1}]')},
            ["patch[0].path: must be a JSON pointer"],
            id="path without a slash",
        ),
        pytest.param(
            {"allowed": True, "patch": encoded(b'[{"op":"add","path":"/x"}]')},
            ["patch[0].value: is required"],
            id="add of nothing",
        ),
    ],
)
def test_bad_admission_response(document: JsonObject, expected: list[str]) -> None:
    assert problems(jsondoc.dumps(document)) == expected


@pytest.mark.parametrize("data", [b"", b" \n"], ids=["empty", "blank"])
@pytest.mark.parametrize("conversion", [False, True], ids=["admission", "conversion"])
def test_an_empty_file_is_no_answer(data: bytes, conversion: bool) -> None:
    assert problems(data, conversion=conversion) == ["the response file is empty"]


NO_JSON = [b"{", b"\xff", b"yes", b'{"allowed":NaN}', b'{"message":"\xff"}', b"[" * 100_000]


@pytest.mark.parametrize("data", NO_JSON, ids=range(len(NO_JSON)))
@pytest.mark.parametrize("conversion", [False, True], ids=["admission", "conversion"])
def test_what_does_not_begin_with_json_is_no_answer(data: bytes, conversion: bool) -> None:
    assert problems(data, conversion=conversion) == ["the response file does not begin with a JSON document"]


@pytest.mark.parametrize("data", [b"[]", b"null", b'"yes" {"allowed":true}'], ids=["list", "null", "text"])
@pytest.mark.parametrize("conversion", [False, True], ids=["admission", "conversion"])
def test_the_first_value_must_be_a_map(data: bytes, conversion: bool) -> None:
    (problem,) = problems(data, conversion=conversion)
    assert problem.startswith("must be a map")


@pytest.mark.parametrize("rest", [b'\n{"allowed":true}\n', b'{"allowed":true}', b" }", b"done", b"\xff"], ids=str)
def test_the_first_value_decides(rest: bytes) -> None:
    assert review.parse_admission_response(b'\n {"message":"nein, \xc3\xbc"}' + rest) == AdmissionAnswer(
        allowed=False, message="nein, ü"
    )
    assert review.parse_conversion_response(b'{"failedMessage":"no"}' + rest) == ConversionAnswer("no")


@pytest.mark.parametrize(
    ("document", "answer"),
    [
        pytest.param({"failedMessage": "no"}, ConversionAnswer("no"), id="failed"),
        pytest.param({"convertedObjects": [{"a": 1}]}, ConversionAnswer(objects=({"a": 1},)), id="done"),
        pytest.param({"failedMessage": "", "convertedObjects": []}, ConversionAnswer(), id="both, one empty"),
        pytest.param({"failedMessage": ""}, ConversionAnswer(), id="no objects are none"),
        pytest.param({}, ConversionAnswer(), id="nothing"),
        pytest.param({"failedMessage": "no", "convertedObjects": None}, ConversionAnswer("no"), id="null is absent"),
        pytest.param({"convertedObjects": [{"a": None}], "x": 1}, ConversionAnswer(objects=({"a": None},)), id="more"),
    ],
)
def test_conversion_response(document: JsonObject, answer: ConversionAnswer) -> None:
    assert review.parse_conversion_response(jsondoc.dumps(document)) == answer


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param({"convertedObjects": [1]}, ["convertedObjects: must be a list of objects"], id="a number"),
        pytest.param(
            {"convertedObjects": {}, "failedMessage": 1},
            ["failedMessage: must be a string, not an integer", "convertedObjects: must be a list, not a map"],
            id="a map, and a number",
        ),
    ],
)
def test_bad_conversion_response(document: JsonObject, expected: list[str]) -> None:
    assert problems(jsondoc.dumps(document), conversion=True) == expected


# --- reviews ---


def admission_review(**changes: JsonValue) -> bytes:
    whole: JsonObject = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u"}}
    return jsondoc.dumps(whole | changes)


def test_an_admission_review_gives_its_request() -> None:
    assert review.parse_admission(admission_review(request={"uid": "u", "operation": "CREATE"})) == {
        "uid": "u",
        "operation": "CREATE",
    }


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(b"{", "AdmissionReview: not JSON", id="not JSON"),
        pytest.param(b"[]", "not an AdmissionReview", id="a list"),
        pytest.param(admission_review(kind="ConversionReview"), "not an AdmissionReview", id="another kind"),
        pytest.param(
            admission_review(apiVersion="admission.k8s.io/v1beta1"),
            "apiVersion must be admission.k8s.io/v1, no other is supported",
            id="v1beta1",
        ),
        pytest.param(admission_review(request={}), "request.uid is missing", id="no uid"),
        pytest.param(admission_review(request=None), "request.uid is missing", id="no request"),
    ],
)
def test_bad_admission_review(body: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        review.parse_admission(body)


def conversion_review(**request: JsonValue) -> bytes:
    asked: JsonObject = {"uid": "u", "desiredAPIVersion": "x.io/v2", "objects": [{"a": 1}]}
    return jsondoc.dumps(
        {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": asked | request}
    )


def test_a_conversion_review_gives_objects_and_target() -> None:
    assert review.parse_conversion(conversion_review()) == review.ConversionRequest("u", "x.io/v2", ({"a": 1},))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(conversion_review(desiredAPIVersion=""), "request.desiredAPIVersion is missing", id="no target"),
        pytest.param(conversion_review(objects=[1]), "request.objects must be a list of objects", id="no objects"),
        pytest.param(admission_review(), "the request is not a ConversionReview", id="another kind"),
    ],
)
def test_bad_conversion_review(body: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        review.parse_conversion(body)


def response(data: bytes) -> JsonValue:
    whole = jsondoc.loads(data)
    assert isinstance(whole, dict)
    assert set(whole) == {"apiVersion", "kind", "response"}
    return whole["response"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(AdmissionAnswer(allowed=True), {"uid": "u", "allowed": True}, id="allowed"),
        pytest.param(
            AdmissionAnswer(allowed=False, message="no", patch=PATCH),
            {"uid": "u", "allowed": False, "status": {"code": 403, "message": "no"}},
            id="denied, with a patch that means nothing then",
        ),
        pytest.param(
            AdmissionAnswer(allowed=True, patch=PATCH),
            {"uid": "u", "allowed": True, "patchType": "JSONPatch", "patch": encoded(PATCH)},
            id="patch",
        ),
        pytest.param(
            AdmissionAnswer(allowed=True, warnings=("one\n two\x07", "x" * 300)),
            {"uid": "u", "allowed": True, "warnings": ["one two", "x" * 253 + "..."]},
            id="warnings that the API server takes",
        ),
    ],
)
def test_admission_answer(answer: AdmissionAnswer, expected: JsonObject) -> None:
    assert response(review.encode_admission("u", answer)) == expected


def test_warnings_are_bounded() -> None:
    answer = response(review.encode_admission("u", AdmissionAnswer(allowed=True, warnings=("w",) * 100)))
    assert isinstance(answer, dict)
    assert answer["warnings"] == ["w"] * 16


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(
            ConversionAnswer(objects=({"a": 1},)),
            {"uid": "u", "result": {"status": "Success"}, "convertedObjects": [{"a": 1}]},
            id="done",
        ),
        pytest.param(
            ConversionAnswer("no"), {"uid": "u", "result": {"status": "Failed", "message": "no"}}, id="failed"
        ),
    ],
)
def test_conversion_answer(answer: ConversionAnswer, expected: JsonObject) -> None:
    assert response(review.encode_conversion("u", answer)) == expected


# --- the way from version to version ---

CHAIN = (("v1", "v2"), ("v2", "v3"), ("v3", "v2"), ("v2", "v1"))


@pytest.mark.parametrize(
    ("steps", "sources", "target", "plan"),
    [
        pytest.param(CHAIN, ["v3"], "v3", (), id="nothing to do"),
        pytest.param(CHAIN, [], "v3", (), id="no objects"),
        pytest.param(CHAIN, ["v2"], "v3", (("v2", "v3"),), id="one step"),
        pytest.param(CHAIN, ["v1"], "v3", (("v1", "v2"), ("v2", "v3")), id="two steps"),
        pytest.param(CHAIN, ["v3"], "v1", (("v3", "v2"), ("v2", "v1")), id="back"),
        pytest.param(CHAIN, ["v2", "v1", "v3"], "v3", (("v1", "v2"), ("v2", "v3")), id="ways meet"),
        pytest.param((*CHAIN, ("v1", "v3")), ["v1"], "v3", (("v1", "v3"),), id="the short way"),
        pytest.param(
            (("a", "y"), ("y", "z"), ("a", "x"), ("x", "z")), ["a"], "z", (("a", "y"), ("y", "z")), id="first of equals"
        ),
    ],
)
def test_plan(
    steps: tuple[tuple[str, str], ...], sources: list[str], target: str, plan: tuple[tuple[str, str], ...]
) -> None:
    assert review.plan_conversion(steps, sources=sources, target=target) == plan


@pytest.mark.parametrize(("source", "target"), [("v4", "v1"), ("v1", "v4")])
def test_no_way(source: str, target: str) -> None:
    with pytest.raises(InputError, match=f"no hook converts {source} to {target}"):
        review.plan_conversion(CHAIN, sources=["v2" if target == "v1" else "v1", source], target=target)


VERSIONS = [f"v{number}" for number in range(6)]


def shortest(steps: set[tuple[str, str]], source: str, target: str) -> int | None:
    """Counts steps by trying, as an oracle."""
    here = {source}
    for length in itertools.count():
        if target in here:
            return length
        further = here | {step[1] for step in steps if step[0] in here}
        if further == here:
            return None
        here = further
    raise AssertionError


@given(
    st.lists(st.tuples(st.sampled_from(VERSIONS), st.sampled_from(VERSIONS)), max_size=14, unique=True),
    st.lists(st.sampled_from(VERSIONS), max_size=4),
    st.sampled_from(VERSIONS),
)
def test_a_plan_brings_every_source_to_the_target_by_a_shortest_way(
    steps: list[tuple[str, str]], sources: list[str], target: str
) -> None:
    lengths = [shortest(set(steps), source, target) for source in sources]
    if None in lengths:
        with pytest.raises(InputError):
            review.plan_conversion(steps, sources=sources, target=target)
        return
    plan = review.plan_conversion(steps, sources=sources, target=target)
    assert set(plan) <= set(steps)
    for source, length in zip(sources, lengths, strict=True):
        here, walked = source, 0
        for start, end in plan:
            if start == here and here != target:
                here, walked = end, walked + 1
        assert (here, walked) == (target, length)


# --- what a hook may do to objects ---


def item(**changes: JsonValue) -> JsonObject:
    metadata: JsonObject = {"name": "n", "namespace": "s", "uid": "u", "creationTimestamp": "t", "labels": {"a": "1"}}
    whole: JsonObject = {"apiVersion": "x.io/v1", "kind": "Thing", "metadata": metadata, "spec": {}}
    return whole | changes


def changed(**metadata: JsonValue) -> JsonObject:
    before = item()["metadata"]
    assert isinstance(before, dict)
    return item(apiVersion="x.io/v2", metadata={k: v for k, v in (before | metadata).items() if v is not None})


@pytest.mark.parametrize(
    ("after", "metadata"),
    [
        pytest.param(changed(), item()["metadata"], id="unchanged"),
        pytest.param(changed(creationTimestamp=None), item()["metadata"], id="what was dropped is put back"),
        pytest.param(changed(generation=7), item()["metadata"], id="what was added is left out"),
        pytest.param(changed(labels={"b": "2"}), changed(labels={"b": "2"})["metadata"], id="labels"),
        pytest.param(changed(labels=None), changed(labels=None)["metadata"], id="no labels"),
        pytest.param(changed(annotations={"b": "2"}), changed(annotations={"b": "2"})["metadata"], id="annotations"),
    ],
)
def test_metadata_of_converted_objects(after: JsonObject, metadata: JsonValue) -> None:
    [settled] = review.settle_converted([item()], [after], api_version="x.io/v2")
    assert settled == {**after, "metadata": metadata}


@pytest.mark.parametrize(
    ("after", "message"),
    [
        pytest.param([], "0 objects instead of 1", id="fewer"),
        pytest.param([changed(), changed()], "2 objects instead of 1", id="more"),
        pytest.param([item()], r"convertedObjects\[0\].apiVersion must be x.io/v2", id="same version"),
        pytest.param([changed() | {"kind": "Other"}], r"\[0\].kind must not change", id="kind"),
        pytest.param([changed(name="m")], r"\[0\].metadata.name must not change", id="name"),
        pytest.param([changed(namespace=None)], r"\[0\].metadata.namespace must not change", id="namespace"),
        pytest.param([changed(uid="v")], r"\[0\].metadata.uid must not change", id="uid"),
        pytest.param([{"apiVersion": "x.io/v2", "kind": "Thing"}], r"metadata.name must not", id="no metadata"),
    ],
)
def test_other_objects_are_refused(after: list[JsonObject], message: str) -> None:
    with pytest.raises(InputError, match=message):
        review.settle_converted([item()], after, api_version="x.io/v2")
