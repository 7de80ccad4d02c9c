"""KUBERNETES_PATCH_PATH documents: what is read, what is refused and how the refusal reads."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon_operator.documents.jsondoc import JsonObject, JsonValue, dumps
from addon_operator.errors import InputError
from addon_operator.kube.patch_ops import (
    Common,
    Create,
    Delete,
    JqPatch,
    JsonPatch,
    MergePatch,
    ObjectOperation,
    ObjectPatchError,
    Target,
    despite_hook_error,
    parse,
)

WHERE = "hooks/a.sh: KUBERNETES_PATCH_PATH"
CONFIG_MAP: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "ns"}}
TARGET = Target("v1", "ConfigMap", "ns", "x")
ADDRESS: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "ns", "name": "x"}


def read(*operations: JsonObject) -> tuple[ObjectOperation, ...]:
    return parse(b"\n".join(dumps(one) for one in operations), WHERE)


def problems(data: bytes) -> list[str]:
    with pytest.raises(ObjectPatchError) as caught:
        parse(data, WHERE)
    assert str(caught.value).splitlines() == [f"{WHERE}: {problem}" for problem in caught.value.problems]
    assert isinstance(caught.value, InputError)
    return list(caught.value.problems)


@pytest.mark.parametrize("verb", ["Create", "CreateOrUpdate", "CreateIfNotExists"])
@pytest.mark.parametrize(
    "document",
    [
        pytest.param(CONFIG_MAP, id="map"),
        pytest.param(dumps(CONFIG_MAP).decode(), id="json-text"),
        pytest.param("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\n  namespace: ns\n", id="yaml-text"),
    ],
)
def test_reads_creations(verb: str, document: JsonObject | str) -> None:
    (found,) = read({"operation": verb, "object": document})
    assert isinstance(found, Create)
    assert (found.verb, found.common, found.object) == (verb, Common(1, TARGET), CONFIG_MAP)


@pytest.mark.parametrize(
    "foreign",
    [
        pytest.param({"namespace": "x"}, id="namespace"),
        pytest.param({"apiVersion": "v9", "kind": "Other", "name": "y", "mergePatch": 1}, id="several"),
        pytest.param({"kind": 1, "name": None, "jqFilter": "|"}, id="not-looked-at"),
    ],
)
@pytest.mark.parametrize("verb", ["Create", "CreateOrUpdate", "CreateIfNotExists"])
def test_creations_pass_over_the_fields_of_others(verb: str, foreign: JsonObject) -> None:
    assert read({"operation": verb, "object": CONFIG_MAP, **foreign}) == read({"operation": verb, "object": CONFIG_MAP})


@pytest.mark.parametrize("verb", ["Delete", "DeleteInBackground", "DeleteNonCascading"])
def test_reads_deletions(verb: str) -> None:
    (found,) = read({"operation": verb, **ADDRESS, "subresource": None})
    assert isinstance(found, Delete)
    assert (found.verb, found.common) == (verb, Common(1, TARGET))


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        pytest.param(
            {"operation": "MergePatch", **ADDRESS, "mergePatch": {"data": {"a": None}}},
            MergePatch(Common(1, TARGET), {"data": {"a": None}}),
            id="merge-map",
        ),
        pytest.param(
            {"operation": "MergePatch", **ADDRESS, "mergePatch": "data:\n  a: b\n"},
            MergePatch(Common(1, TARGET), {"data": {"a": "b"}}),
            id="merge-yaml-text",
        ),
        pytest.param(
            {"operation": "JSONPatch", **ADDRESS, "jsonPatch": [{"op": "remove", "path": "/data/a"}]},
            JsonPatch(Common(1, TARGET), [{"op": "remove", "path": "/data/a"}]),
            id="json-patch-that-starts-with-remove",
        ),
        pytest.param(
            {"operation": "JSONPatch", **ADDRESS, "jsonPatch": '[{"op":"add","path":"","value":null}]'},
            JsonPatch(Common(1, TARGET), [{"op": "add", "path": "", "value": None}]),
            id="json-patch-text",
        ),
        pytest.param(
            {"operation": "MergePatch", **ADDRESS, "mergePatch": {}, "object": 1, "jqFilter": "|", "jsonPatch": {}},
            MergePatch(Common(1, TARGET), {}),
            id="fields-of-others",
        ),
        pytest.param(
            {
                "operation": "MergePatch",
                "kind": "deploy",
                "name": "x",
                "mergePatch": {},
                "subresource": "/status",
                "ignoreMissingObject": True,
                "ignoreHookError": True,
            },
            MergePatch(Common(1, Target(None, "deploy", None, "x"), "status", True, True), {}),
            id="options",
        ),
    ],
)
def test_reads_patches(operation: JsonObject, expected: ObjectOperation) -> None:
    assert read(operation) == (expected,)


def test_jq_programs_are_compiled() -> None:
    (found,) = read({"operation": "JQPatch", **ADDRESS, "jqFilter": ".data.a = 1"})
    assert isinstance(found, JqPatch)
    assert found.program.run(b'{"data":{}}') == (b'{"data":{"a":1}}',)


def test_name_made_by_the_server() -> None:
    (found,) = read(
        {"operation": "Create", "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"}}}
    )
    assert found.common.target == Target("v1", "Pod", None, "")


STREAMS = {
    "json-lines": '{"operation":"Delete","kind":"Pod","name":"a"}\n{"operation":"Delete","kind":"Pod","name":"b"}\n',
    "json-pretty": '{\n"operation":"Delete",\n"kind":"Pod","name":"a"}{"operation":"Delete","kind":"Pod","name":"b"}',
    "yaml": "operation: Delete\nkind: Pod\nname: a\n---\noperation: Delete\nkind: Pod\nname: b\n",
    "yaml-with-empty-documents": "---\n# none\n---\noperation: Delete\nkind: Pod\nname: a\n---\n---\n"
    "{operation: Delete, kind: Pod, name: b}\n",
    "json-between-yaml-marks": '{"operation":"Delete","kind":"Pod","name":"a"}\n---\n'
    '{"operation":"Delete","kind":"Pod","name":"b"}\n',
}


@pytest.mark.parametrize("text", STREAMS.values(), ids=STREAMS.keys())
def test_streams(text: str) -> None:
    found = parse(text.encode(), WHERE)
    assert [(one.common.index, one.common.target.name) for one in found] == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("text", ["", "  \n", "---\n", "# only a comment\n"])
def test_nothing_to_do(text: str) -> None:
    assert parse(text.encode(), WHERE) == ()


BAD_STEPS: list[JsonValue] = [
    1,
    {"op": "put"},
    {"op": []},
    {"op": "add", "path": "a"},
    {"op": "move", "path": "/a"},
]


def refused(title: str, *texts: str) -> list[str]:
    return [f"operation 1{title}: {text}" for text in texts]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        pytest.param([], refused("", "must be a map, not a list"), id="list"),
        pytest.param(
            {"object": CONFIG_MAP},
            refused(
                "",
                "operation: is required: one of Create, CreateOrUpdate, CreateIfNotExists, Delete, DeleteInBackground, "
                "DeleteNonCascading, MergePatch, JSONPatch, JQPatch",
            ),
            id="no-operation",
        ),
        pytest.param({"operation": "Create"}, refused(" (Create)", "object: is required"), id="no-object"),
        pytest.param(
            {"operation": "Create", "object": []},
            refused(" (Create)", "object: must be a map, or a string with one"),
            id="object-type",
        ),
        pytest.param(
            {"operation": "Create", "object": "a: b: c"},
            refused(" (Create)", "object:1: mapping values are not allowed in this context"),
            id="object-text",
        ),
        pytest.param({"operation": "Create", "object": " "}, refused(" (Create)", "object: is required"), id="blank"),
        pytest.param(
            {"operation": "CreateOrUpdate", "object": {"metadata": {"generateName": "p-"}}},
            refused(
                " (CreateOrUpdate)",
                "object.apiVersion: is required",
                "object.kind: is required",
                "object.metadata.name: is required",
            ),
            id="object-incomplete",
        ),
        pytest.param(
            {"operation": "Create", "object": {**CONFIG_MAP, "metadata": []}, "Name": "x", "name": "x"},
            refused(" (Create ConfigMap)", "Name: unknown field", "object.metadata: must be a map, not a list"),
            id="unknown-field-and-misplaced-metadata",
        ),
        pytest.param(
            {"operation": "Create", "object": {**CONFIG_MAP, "metadata": "x"}},
            refused(" (Create ConfigMap)", "object.metadata: must be a map, not a string"),
            id="metadata-type",
        ),
        pytest.param(
            {"operation": "Delete", "kind": 1, "namespace": True, "force": True},
            refused(
                " (Delete)",
                "force: unknown field",
                "kind: must be a string, not an integer",
                "namespace: must be a string, not a boolean",
                "name: is required",
            ),
            id="address",
        ),
        pytest.param(
            {"operation": "Delete", **ADDRESS, "ignoreMissingObject": "yes", "ignoreHookError": 1, "subresource": 2},
            refused(
                " (Delete ns/ConfigMap/x)",
                "subresource: must be a string, not an integer",
                "ignoreMissingObject: must be a boolean, not a string",
                "ignoreHookError: must be a boolean, not an integer",
            ),
            id="options",
        ),
        pytest.param(
            {"operation": "MergePatch", **ADDRESS, "mergePatch": "[]"},
            refused(" (MergePatch ns/ConfigMap/x)", "mergePatch: must be a map, or a string with one"),
            id="merge-type",
        ),
        pytest.param(
            {"operation": "JSONPatch", **ADDRESS},
            refused(" (JSONPatch ns/ConfigMap/x)", "jsonPatch: is required"),
            id="json-patch-absent",
        ),
        pytest.param(
            {"operation": "JSONPatch", **ADDRESS, "jsonPatch": {}},
            refused(" (JSONPatch ns/ConfigMap/x)", "jsonPatch: must be a list, or a string with one"),
            id="json-patch-type",
        ),
        pytest.param(
            {
                "operation": "JSONPatch",
                **ADDRESS,
                "jsonPatch": BAD_STEPS,
            },
            refused(
                " (JSONPatch ns/ConfigMap/x)",
                "jsonPatch[0]: must be a map, not an integer",
                "jsonPatch[1].op: must be one of add, remove, replace, move, copy, test",
                "jsonPatch[2].op: must be a string, not a list",
                "jsonPatch[3].path: must be a JSON pointer",
                "jsonPatch[3].value: is required",
                "jsonPatch[4].from: is required",
            ),
            id="json-patch-steps",
        ),
        pytest.param(
            {"operation": "JQPatch", **ADDRESS},
            refused(" (JQPatch ns/ConfigMap/x)", "jqFilter: is required"),
            id="jq-absent",
        ),
    ],
)
def test_refuses(operation: JsonObject, expected: list[str]) -> None:
    assert problems(dumps(operation)) == expected


def test_jq_that_does_not_compile_is_named_without_the_program() -> None:
    (problem,) = problems(dumps({"operation": "JQPatch", **ADDRESS, "jqFilter": '.data = "hush" |'}))
    assert problem.startswith("operation 1 (JQPatch ns/ConfigMap/x): jqFilter: syntax error")
    assert "hush" not in problem


UNFIT = "JSON that is nested too deeply, or holds a number that is too large or a text that is not Unicode"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param('{"name":1%s}' % ("0" * 400), [f"line 1: {UNFIT}"], id="number"),
        pytest.param('{}\n{"name":"\\ud800"}', [f"line 2: {UNFIT}"], id="text"),
        pytest.param('{"a":' * 300 + "1" + "}" * 300, [f"line 1: {UNFIT}"], id="nesting"),
        pytest.param('{"a":NaN}', ["NaN is not JSON"], id="no-number"),
        pytest.param("[" * 100_000, ["JSON is nested too deeply"], id="endless-nesting"),
        pytest.param(
            'operation: MergePatch\nkind: Pod\nname: x\nmergePatch: "a: 1%s"' % ("0" * 30),
            refused(" (MergePatch Pod/x)", "mergePatch:1: /a: JSON cannot hold an integer beyond 64 bits"),
            id="number-in-a-text",
        ),
    ],
)
def test_refuses_what_cannot_be_sent(text: str, expected: list[str]) -> None:
    assert problems(text.encode()) == expected


def test_all_operations_are_checked() -> None:
    data = dumps({"operation": "Delete", **ADDRESS}) + b'{"operation":"Nothing"}' + dumps({"operation": "Create"})
    assert [problem.partition(":")[0] for problem in problems(data)] == ["operation 2", "operation 3 (Create)"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(
            b'{"operation":"Delete",\n"kind"', "line 2, column 7: not JSON: Expecting ':' delimiter", id="json"
        ),
        pytest.param(b"a: b: c", "YAML:1: mapping values are not allowed in this context", id="yaml"),
        pytest.param(b"\x00", "YAML: not a valid YAML document", id="binary"),
    ],
)
def test_neither_json_nor_yaml(data: bytes, expected: str) -> None:
    assert problems(data) == [expected]


def test_what_is_applied_although_the_hook_failed() -> None:
    patch: JsonObject = {"operation": "MergePatch", **ADDRESS, "mergePatch": {}}
    found = read(
        {**patch, "subresource": "/status", "ignoreHookError": True},
        {**patch, "subresource": "status"},
        {**patch, "ignoreHookError": True},
    )
    assert [one.common.index for one in despite_hook_error(found)] == [1]


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_never_ends_in_another_error(data: bytes) -> None:
    with contextlib.suppress(ObjectPatchError):
        assert len(parse(data, WHERE)) <= len(data)
