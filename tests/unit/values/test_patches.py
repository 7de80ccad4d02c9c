from __future__ import annotations

import copy
from typing import get_args

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.values import patches
from addon_operator.values.patches import Operation, OperationName, PatchError
from tests.unit.values.strategies import KEYS, maps_only, objects, values

SECRET = "hunter2"


def add(path: str, value: JsonValue) -> Operation:
    return Operation("add", path, value)


def remove(path: str) -> Operation:
    return Operation("remove", path)


# --- reading


@pytest.mark.parametrize(
    ("data", "paths"),
    [
        ("", []),
        (" \n\t", []),
        ("[]", []),
        ('[{"op":"add","path":"/m/a","value":1}]', ["/m/a"]),
        ('{"op":"remove","path":"/m/a"}', ["/m/a"]),
        ('{"op":"remove","path":"/m/a"}\n{"op":"remove","path":"/m/b"}\n', ["/m/a", "/m/b"]),
        ('[{"op":"remove","path":"/m/a"}][]{"op":"remove","path":"/m/b"}', ["/m/a", "/m/b"]),
    ],
)
def test_parse_reads_any_sequence(data: str, paths: list[str]) -> None:
    assert [operation.path for operation in patches.parse(data.encode(), "patch")] == paths


def test_parse_reads_all_of_rfc_6902() -> None:
    documents: list[JsonValue] = [
        {"op": "add", "path": "/m/a", "value": None},
        {"op": "remove", "path": "/m/a"},
        {"op": "replace", "path": "/m/a", "value": [1]},
        {"op": "move", "path": "/m/a", "from": "/m/b"},
        {"op": "copy", "path": "/m/a~1b", "from": "/m/b"},
        {"op": "test", "path": "/m/a", "value": {"x": 1}},
    ]
    operations = patches.parse(jsondoc.dumps(documents), "patch")
    assert [operation.as_json() for operation in operations] == documents


def test_members_that_an_operation_does_not_know_are_ignored() -> None:
    (operation,) = patches.parse(b'{"op":"remove","path":"/m","value":1,"from":"/x","comment":""}', "patch")
    assert operation == remove("/m")


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ('{"op":"set","path":"/m"}', "op must be one of"),
        ('{"path":"/m"}', "op must be one of"),
        ('{"op":["add"],"path":"/m"}', "op must be one of"),
        ('{"op":"add","value":1}', "add: path is missing"),
        ('{"op":"add","path":"/m"}', "add: value is missing"),
        ('{"op":"test","path":"/m"}', "test: value is missing"),
        ('{"op":"move","path":"/m"}', "move: from is missing"),
        ('{"op":"copy","path":"/m","from":5}', "copy: from must be a JSON pointer"),
        ('{"op":"add","path":"m/a","value":1}', "add: path must be a JSON pointer"),
        ('{"op":"add","path":"","value":1}', "add: path must be a JSON pointer"),
        ('{"op":"remove","path":"/m/~2"}', "remove: path must be a JSON pointer"),
        ("5", "must be an object"),
        ("[[]]", "must be an object"),
    ],
)
def test_parse_names_operation_and_problem(item: str, problem: str) -> None:
    with pytest.raises(PatchError) as caught:
        patches.parse(b'{"op":"remove","path":"/m"}' + item.encode(), "VALUES")
    assert str(caught.value).startswith(f"VALUES: operation 2: {problem}")


def test_parse_lists_all_problems() -> None:
    with pytest.raises(PatchError) as caught:
        patches.parse(b'[{"op":"x"},{"op":"remove","path":"/m"},{"op":"add"}]', "VALUES")
    assert [problem.partition(":")[0] for problem in caught.value.problems] == ["operation 1", "operation 3"]


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"nonsense",
        b"[1,]",
        b"[NaN]",
        b'{"op":"remove","path":"/m"} x',
        b"\xff\xfe",
        b'[{"op":"add","path":"/m","value":"\\ud800"}]',
        b"[" * 100_000,
        b"[" * 400 + b"]" * 400,
    ],
    ids=["cut", "text", "comma", "nan", "rest", "bytes", "surrogate", "endless", "deep"],
)
def test_parse_refuses_what_is_not_json(data: bytes) -> None:
    with pytest.raises(PatchError, match=r"^VALUES: not a JSON patch"):
        patches.parse(data, "VALUES")


@given(st.binary(max_size=60))
def test_parse_survives_anything(data: bytes) -> None:
    try:
        operations = patches.parse(data, "VALUES")
    except PatchError:
        return
    assert all(operation.path.startswith("/") for operation in operations)


# --- whose values


def test_a_module_owns_its_section_only() -> None:
    operations = [add("/m/a", 1), remove("/m"), Operation("move", "/m/b", from_="/m/a")]
    owned = patches.split(operations, "m", "patch")
    assert owned.section == tuple(operations)
    assert owned.flags == {}


@pytest.mark.parametrize(
    ("key", "operation"),
    [
        ("m", add("/global/a", 1)),
        ("m", add("/other/a", 1)),
        ("m", add("/mEnabled", True)),
        ("m", add("/m~1a", 1)),
        ("m", Operation("copy", "/m/a", from_="/other/secret")),
        ("m", Operation("move", "/other/a", from_="/m/a")),
        ("global", add("/m/a", 1)),
        ("global", add("/mEnabled/x", True)),
        ("global", Operation("test", "/mEnabled", True)),
        ("global", Operation("copy", "/mEnabled", from_="/global/a")),
        ("global", add("/", 1)),
    ],
    ids=str,
)
def test_other_paths_are_unacceptable(key: str, operation: Operation) -> None:
    with pytest.raises(PatchError, match="unacceptable patch operation for path"):
        patches.split([operation], key, "patch")


def test_a_global_patch_is_split() -> None:
    operations = [
        add("/global/a", 1),
        add("/oneEnabled", True),
        Operation("replace", "/twoEnabled", "false"),
        remove("/threeEnabled"),
        add("/oneEnabled", False),
    ]
    owned = patches.split(operations, "global", "patch")
    assert owned.section == (add("/global/a", 1),)
    assert owned.flags == {"one": False, "two": False, "three": None}


def test_all_wrong_paths_and_flags_are_named_without_values() -> None:
    operations = [add("/x", SECRET), add("/oneEnabled", SECRET), add("/global", {}), add("/y", 1)]
    with pytest.raises(PatchError) as caught:
        patches.split(operations, "global", "values patch")
    assert len(caught.value.problems) == 3
    assert SECRET not in str(caught.value)


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
    resolution = patches.resolve([operation], DOCUMENT, "patch")
    assert list(resolution.operations) == kept
    assert before == DOCUMENT
    assert patches.reapply(patches.compact(resolution.operations), DOCUMENT) == (resolution.document, ())


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
        patches.resolve([add("/m/ok", SECRET), operation], DOCUMENT, "values patch")
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
            patches.resolve(operations, document, "patch")
        return
    resolution = patches.resolve(operations, document, "patch")
    assert jsondoc.digest(resolution.document) == jsondoc.digest(expected)
    kept = patches.compact(resolution.operations)
    assert jsondoc.digest(patches.reapply(kept, document)[0]) == jsondoc.digest(expected)
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
    resolution = patches.resolve(operations, {"m": {}}, "patch")
    left = {"a": {"x": 1}} if name == "copy" else {}
    assert resolution.document == {"m": {**left, "b": {"y": 2}}}
    assert patches.reapply(resolution.operations, {"m": {}}) == (resolution.document, ())


@pytest.mark.parametrize(
    ("operations", "section"),
    [
        pytest.param([add("/m/-", 1), Operation("copy", "/m/-", from_="/m")], [1, [1]], id="list"),
        pytest.param([add("/m/0", {}), Operation("copy", "/m/0/x", from_="/m/0")], [{"x": {}}], id="map"),
    ],
)
def test_a_value_is_copied_into_itself(operations: list[Operation], section: JsonValue) -> None:
    assert patches.resolve(operations, {"m": []}, "patch").document == {"m": section}


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
    result, skipped = patches.reapply([operation, add("/m", 1)], base)
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
    assert patches.compact(operations) == (
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
    compacted = patches.compact(operations)
    assert jsondoc.digest(patches.reapply(compacted, base)[0]) == jsondoc.digest(patches.reapply(operations, base)[0])
    assert len({operation.path for operation in compacted}) == len(compacted) <= len(operations)
    assert patches.compact(compacted) == compacted


def test_texts_of_operations_hold_no_values() -> None:
    assert SECRET not in repr(add("/m/a", SECRET))
    assert SECRET not in repr(patches.resolve([add("/m/a", SECRET)], {"m": {}}, "patch"))
