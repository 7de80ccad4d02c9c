"""What patches do to values: strictly once, then leniently."""

from __future__ import annotations

import copy
from typing import get_args

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.values import patching
from addon_operator.values.patches import Operation, OperationName, PatchError
from tests.unit.values.strategies import KEYS, maps_only, objects, values

SECRET = "hunter2"


def add(path: str, value: JsonValue) -> Operation:
    return Operation("add", path, value)


def remove(path: str) -> Operation:
    return Operation("remove", path)


# --- strict application

DOCUMENT: JsonObject = {"m": {"a": 1, "map": {"x": 1, "y": 2}, "list": ["p", "q"], "objects": [{"k": 1}], "none": None}}

RESOLVED = [
    (add("/m/new", 2), [add("/m/new", 2)]),
    (add("/m/a", 2), [add("/m/a", 2)]),
    (add("/m", {}), [add("/m", {})]),
    (remove("/m/a"), [remove("/m/a")]),
    (remove("/m"), [remove("/m")]),
    (Operation("replace", "/m/none", 1), [add("/m/none", 1)]),
    (add("/m/list/-", "r"), [add("/m/list", ["p", "q", "r"])]),
    (add("/m/list/0", "r"), [add("/m/list", ["r", "p", "q"])]),
    (add("/m/list/2", "r"), [add("/m/list", ["p", "q", "r"])]),
    (Operation("replace", "/m/list/1", "r"), [add("/m/list", ["p", "r"])]),
    (remove("/m/list/0"), [add("/m/list", ["q"])]),
    (add("/m/objects/0/k", 2), [add("/m/objects", [{"k": 2}])]),
    (Operation("move", "/m/b", from_="/m/a"), [remove("/m/a"), add("/m/b", 1)]),
    (Operation("move", "/m/map", from_="/m/map/x"), [add("/m/map", 1)]),
    (Operation("move", "/m/a", from_="/m/a"), []),
    (Operation("move", "/m/list/1", from_="/m/list/0"), [add("/m/list", ["q", "p"])] * 2),
    (Operation("copy", "/m/map/z", from_="/m/list"), [add("/m/map/z", ["p", "q"])]),
    (Operation("copy", "/m/map/deep", from_="/m/map"), [add("/m/map/deep", {"x": 1, "y": 2})]),
    (Operation("test", "/m/map", {"y": 2.0, "x": 1}), []),
]


@pytest.mark.parametrize(("operation", "kept"), RESOLVED, ids=[str(operation) for operation, _ in RESOLVED])
def test_resolve_keeps_add_and_remove(operation: Operation, kept: list[Operation]) -> None:
    before = copy.deepcopy(DOCUMENT)
    resolution = patching.resolve([operation], DOCUMENT, "patch")
    assert list(resolution.operations) == kept
    assert before == DOCUMENT
    assert patching.reapply(patching.compact(resolution.operations), DOCUMENT) == (resolution.document, ())


@pytest.mark.parametrize(
    "operation",
    [
        remove("/m/nope"),
        remove("/m/list/2"),
        remove("/m/list/-"),
        remove("/m/list/01"),
        add("/m/list/3", 1),
        add("/m/list/x", 1),
        add("/m/list/" + "9" * 5000, 1),
        add("/m/nope/x", 1),
        add("/m/a/x", 1),
        add("/m/list/²/x", 1),
        Operation("replace", "/m/nope", 1),
        Operation("replace", "/m/list/-", 1),
        Operation("move", "/m/x", from_="/m/nope"),
        Operation("move", "/m/map/x/y", from_="/m/map"),
        Operation("copy", "/m/x", from_="/m/list/²"),
        Operation("test", "/m/a", True),
        Operation("test", "/m/a", SECRET),
        Operation("test", "/m/nope", None),
    ],
    ids=lambda operation: str(operation)[:70],
)
def test_resolve_refuses_what_does_not_fit(operation: Operation) -> None:
    with pytest.raises(PatchError) as caught:
        patching.resolve([add("/m/ok", SECRET), operation], DOCUMENT, "values patch")
    assert str(caught.value).startswith(f"values patch: {operation.op} {operation.path}: ")
    assert SECRET not in str(caught.value)


NAMES: tuple[OperationName, ...] = ("add", "add", *get_args(OperationName))


@st.composite
def rfc_operations(draw: st.DrawFn) -> Operation:
    token = KEYS.map(jsondoc.escape) | st.sampled_from(["0", "1", "-"])
    pointers = st.lists(token, min_size=1, max_size=3).map(lambda tokens: "/m/" + "/".join(tokens))
    name = draw(st.sampled_from(NAMES))
    source = draw(pointers) if name in {"move", "copy"} else None
    value = draw(values) if name in {"add", "replace", "test"} else None
    return Operation(name, draw(pointers), value, source)


@given(objects, st.lists(rfc_operations(), max_size=8))
def test_resolve_agrees_with_the_jsonpatch_library(section: JsonObject, operations: list[Operation]) -> None:
    document: JsonValue = {"m": section}
    before = jsondoc.digest([document, *(operation.value for operation in operations)])
    try:
        expected = jsonpatch.apply_patch(copy.deepcopy(document), [operation.as_json() for operation in operations])
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
        with pytest.raises(PatchError):
            patching.resolve(operations, document, "patch")
        return
    resolution = patching.resolve(operations, document, "patch")
    assert jsondoc.digest(resolution.document) == jsondoc.digest(expected)
    kept = patching.compact(resolution.operations)
    assert jsondoc.digest(patching.reapply(kept, document)[0]) == jsondoc.digest(expected)
    assert {operation.op for operation in kept} <= {"add", "remove"}
    assert jsondoc.digest([document, *(operation.value for operation in operations)]) == before


@pytest.mark.parametrize("name", ["copy", "move"])
def test_a_value_in_two_places_is_changed_in_one(name: OperationName) -> None:
    operations = [
        add("/m/a", {}),
        add("/m/a/x", 1),
        Operation(name, "/m/b", from_="/m/a"),
        remove("/m/b/x"),
        add("/m/b/y", 2),
    ]
    resolution = patching.resolve(operations, {"m": {}}, "patch")
    left = {"a": {"x": 1}} if name == "copy" else {}
    assert resolution.document == {"m": {**left, "b": {"y": 2}}}
    assert patching.reapply(resolution.operations, {"m": {}}) == (resolution.document, ())


@pytest.mark.parametrize(
    ("operations", "section"),
    [
        pytest.param([add("/m/-", 1), Operation("copy", "/m/-", from_="/m")], [1, [1]], id="list"),
        pytest.param([add("/m/0", {}), Operation("copy", "/m/0/x", from_="/m/0")], [{"x": {}}], id="map"),
    ],
)
def test_a_value_is_copied_into_itself(operations: list[Operation], section: JsonValue) -> None:
    assert patching.resolve(operations, {"m": []}, "patch").document == {"m": section}


# RFC 6902, appendix A: the examples that succeed, below a section
EXAMPLES: list[tuple[str, JsonValue, list[Operation], JsonValue]] = [
    ("A.1", {"foo": "bar"}, [add("/m/baz", "qux")], {"baz": "qux", "foo": "bar"}),
    ("A.2", {"foo": ["bar", "baz"]}, [add("/m/foo/1", "qux")], {"foo": ["bar", "qux", "baz"]}),
    ("A.3", {"baz": "qux", "foo": "bar"}, [remove("/m/baz")], {"foo": "bar"}),
    ("A.4", {"foo": ["bar", "qux", "baz"]}, [remove("/m/foo/1")], {"foo": ["bar", "baz"]}),
    ("A.5", {"baz": "qux"}, [Operation("replace", "/m/baz", "boo")], {"baz": "boo"}),
    (
        "A.6",
        {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
        [Operation("move", "/m/qux/thud", from_="/m/foo/waldo")],
        {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
    ),
    (
        "A.7",
        {"foo": ["all", "grass", "cows", "eat"]},
        [Operation("move", "/m/foo/3", from_="/m/foo/1")],
        {"foo": ["all", "cows", "eat", "grass"]},
    ),
    ("A.8", {"foo": ["a", 2, "c"]}, [Operation("test", "/m/foo/1", 2)], {"foo": ["a", 2, "c"]}),
    ("A.10", {"foo": "bar"}, [add("/m/child", {"grandchild": {}})], {"foo": "bar", "child": {"grandchild": {}}}),
    ("A.14", {"/": 9, "~1": 10}, [Operation("test", "/m/~01", 10)], {"/": 9, "~1": 10}),
    ("A.16", {"foo": ["bar"]}, [add("/m/foo/-", ["abc", "def"])], {"foo": ["bar", ["abc", "def"]]}),
]


@pytest.mark.parametrize(
    ("section", "operations", "expected"), [case[1:] for case in EXAMPLES], ids=[case[0] for case in EXAMPLES]
)
def test_examples_of_rfc_6902(section: JsonValue, operations: list[Operation], expected: JsonValue) -> None:
    resolution = patching.resolve(operations, {"m": section}, "patch")
    assert resolution.document == {"m": expected}
    assert patching.reapply(resolution.operations, {"m": section}) == ({"m": expected}, ())


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        pytest.param(remove("/m/nope"), "/m/nope does not exist", id="nothing to remove"),
        pytest.param(Operation("replace", "/m/nope/x", 1), "/m/nope does not exist", id="nothing to replace"),
        pytest.param(add("/m/nope/x", 1), "/m/nope does not exist", id="no parent"),
        pytest.param(add("/m/a/x", 1), "'x' is not a position in /m/a", id="below a scalar"),
        pytest.param(add("/m/list/3", 1), "'3' is not a position in /m/list", id="beyond a list"),
        pytest.param(Operation("copy", "/m/x", from_="/m/nope"), "/m/nope does not exist", id="nothing to copy"),
        pytest.param(Operation("move", "/m/nope/x", from_="/m/a"), "/m/nope does not exist", id="nowhere to move"),
        pytest.param(Operation("move", "/m/map/x", from_="/m/map"), "a value cannot move into itself", id="self"),
        pytest.param(Operation("test", "/m/a", SECRET), "the value differs", id="test"),
        pytest.param(Operation("test", "/m/nope", SECRET), "/m/nope does not exist", id="test of nothing"),
    ],
)
def test_errors_say_why(operation: Operation, reason: str) -> None:
    with pytest.raises(PatchError) as caught:
        patching.resolve([operation], DOCUMENT, "values patch")
    assert str(caught.value) == f"values patch: {operation.op} {operation.path}: {reason}"
    assert caught.value.__suppress_context__


def test_a_document_that_grows_into_itself_is_refused() -> None:
    deeper: list[Operation] = [add("/m/x", {})]
    path = "/m/x"
    for _ in range(12):
        deeper.append(Operation("copy", path + "/x", from_="/m/x"))
        path += path.removeprefix("/m")
    with pytest.raises(PatchError, match="nested too deeply"):
        patching.resolve(deeper, {"m": {}}, "values patch")


# --- kept operations


@pytest.mark.parametrize(
    ("operation", "base"),
    [
        (add("/m/a/b", 1), {"m": {}}),
        (add("/m/a/b", 1), {"m": {"a": 5}}),
        (add("/m/a/0", 1), {"m": {"a": [7, 8]}}),
        (remove("/m/a"), {"m": {}}),
        (remove("/m/a/0"), {"m": {"a": [7, 8]}}),
        (remove("/m/a"), {}),
    ],
    ids=str,
)
def test_reapply_passes_over_what_finds_no_place(operation: Operation, base: JsonValue) -> None:
    result, skipped = patching.reapply([operation, add("/m", 1)], base)
    assert (result, skipped) == ({"m": 1}, (operation,))


def test_compact_keeps_the_last_word_sorted_by_path() -> None:
    operations = [
        add("/m/z", 1),
        add("/m/a/b", 1),
        remove("/m/a/c"),
        add("/m/a", {}),
        add("/m/ab", 1),
        add("/m/a/d", 1),
        add("/m/z", 2),
        remove("/m/y"),
    ]
    assert patching.compact(operations) == (
        add("/m/a", {}),
        add("/m/a/d", 1),
        add("/m/ab", 1),
        remove("/m/y"),
        add("/m/z", 2),
    )


paths = st.lists(KEYS, max_size=3).map(lambda tokens: jsondoc.join("m", *tokens))
kept_operations = st.lists(st.builds(add, paths, maps_only) | st.builds(remove, paths), max_size=8)


@given(kept_operations, st.dictionaries(KEYS, values, max_size=3))
def test_compacting_changes_no_result(operations: list[Operation], section: JsonObject) -> None:
    base: JsonValue = {"m": section}
    compacted = patching.compact(operations)
    assert jsondoc.digest(patching.reapply(compacted, base)[0]) == jsondoc.digest(patching.reapply(operations, base)[0])
    assert len({operation.path for operation in compacted}) == len(compacted) <= len(operations)
    assert patching.compact(compacted) == compacted


def test_texts_of_operations_hold_no_values() -> None:
    assert SECRET not in repr(add("/m/a", SECRET))
    assert SECRET not in repr(patching.resolve([add("/m/a", SECRET)], {"m": {}}, "patch"))
