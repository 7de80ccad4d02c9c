from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonValue
from addon_operator.values import patches
from addon_operator.values.patches import Operation, PatchError

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
        ('{"op":"set","path":"/m"}', ": op: must be one of"),
        ('{"path":"/m"}', ": op: is required: one of"),
        ('{"op":["add"],"path":"/m"}', ": op: must be a string, not a list"),
        ('{"op":"add","value":1}', " (add): path: is required"),
        ('{"op":"add","path":"/m"}', " (add): value: is required"),
        ('{"op":"test","path":"/m"}', " (test): value: is required"),
        ('{"op":"move","path":"/m"}', " (move): from: is required"),
        ('{"op":"copy","path":"/m","from":5}', " (copy): from: must be a string, not an integer"),
        ('{"op":"add","path":"m/a","value":1}', " (add): path: must be a JSON pointer such as /section/key"),
        ('{"op":"add","path":"","value":1}', " (add): path: must be a JSON pointer"),
        ('{"op":"remove","path":"/m/~2"}', " (remove): path: must be a JSON pointer"),
        ("5", ": must be a map, not an integer"),
        ("[[]]", ": must be a map, not a list"),
    ],
)
def test_parse_names_operation_and_problem(item: str, problem: str) -> None:
    with pytest.raises(PatchError) as caught:
        patches.parse(b'{"op":"remove","path":"/m"}' + item.encode(), "VALUES")
    assert str(caught.value).startswith(f"VALUES: operation 2{problem}")


def test_parse_lists_all_problems() -> None:
    with pytest.raises(PatchError) as caught:
        patches.parse(b'[{"op":"x"},{"op":"remove","path":"/m"},{"op":"add"}]', "VALUES")
    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "operation 1",
        "operation 3 (add)",
        "operation 3 (add)",
    ]


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


def test_texts_of_operations_hold_no_values() -> None:
    assert SECRET not in repr(add("/m/a", SECRET))
