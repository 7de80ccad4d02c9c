"""Values as a hook sees them, and the patch that its changes become."""

from __future__ import annotations

import copy
import json
import math
import subprocess
from collections.abc import Callable, Mapping
from types import MappingProxyType

import jq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from addon_operator import sdk
from addon_operator.sdk import jsondata
from addon_operator.values import patches, patching
from tests.component.shell.conftest import LIBRARY
from tests.unit.values.strategies import KEYS, objects
from tests.unit.values.strategies import values as json_values

DOCUMENT: sdk.JsonObject = {
    "global": {"on": True, "none": None, "a.b": {'c "d"': 1, "it's": 2}, "number": 3, "half": 0.5},
    "myModule": {"list": [{"name": "one"}, [10, 20]], "0": "zero", "": "empty"},
}


def _values(document: sdk.JsonValue = DOCUMENT) -> sdk.Values:
    return sdk.Values(lambda: copy.deepcopy(document))


PATHS: Mapping[str, tuple[jsondata.Path, tuple[str, ...]]] = {
    "plain": ("a.b", ("a", "b")),
    "dot in front": (".a.b", ("a", "b")),
    "whole": ("", ()),
    "dot alone": (".", ()),
    "double": (r'a."b.c \"d\" \u00fc".e', ("a", 'b.c "d" ü', "e")),
    "single": ("'a.b'.'c\"d'", ("a.b", 'c"d')),
    "empty key": ('a."".b', ("a", "", "b")),
    "index": ("a[0][12].b", ("a", "0", "12", "b")),
    "index first": ("[0]", ("0",)),
    "number": ("a.0", ("a", "0")),
    "spaces and signs": ("a b.c-d/e.ü", ("a b", "c-d/e", "ü")),
    "keys": (("a.b", 0, "[c]"), ("a.b", "0", "[c]")),
}


@pytest.mark.parametrize(("path", "keys"), PATHS.values(), ids=PATHS)
def test_paths(path: jsondata.Path, keys: tuple[str, ...]) -> None:
    assert jsondata.tokens(path) == keys


@pytest.mark.parametrize("path", ["a..b", "a.", "a[x]", 'a"b"', 'a."b', "a[0]b", "a[-1]", "a]", '"a"b'])
def test_bad_paths(path: str) -> None:
    with pytest.raises(ValueError, match="bad path"):
        jsondata.tokens(path)


def test_reading() -> None:
    values = _values()
    assert values["myModule.list[0].name"] == "one"
    assert values[""] == DOCUMENT
    assert (values.get("global.none"), values.get("global.none", 1), values.get("x.y", 1)) == (None, None, 1)
    assert ("global.none" in values, "myModule.list[2]" in values, values.has("global.on.x")) == (True, False, False)
    with pytest.raises(KeyError, match="/myModule/x"):
        values["myModule.x"]


def test_reading_with_a_type() -> None:
    values = _values()
    assert values.expect("global.number", int) == 3
    assert values.expect("global.on", bool) is True
    assert values.expect("myModule.list", list) == [{"name": "one"}, [10, 20]]
    number = values.expect("global.number", float)
    assert (number, type(number)) == (3.0, float)


@pytest.mark.parametrize(
    ("path", "kind", "message"),
    [
        ("global.on", int, "/global/on is bool, not int"),
        ("global.on", float, "/global/on is bool, not float"),
        ("global.half", int, "/global/half is float, not int"),
        ("global.none", dict, "/global/none is NoneType, not dict"),
    ],
)
def test_reading_with_the_wrong_type(path: str, kind: type[int] | type[dict[str, sdk.JsonValue]], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        _values().expect(path, kind)  # type: ignore[type-var]  # the union is for the table


def test_what_is_read_is_a_copy() -> None:
    values = _values()
    found = values["myModule.list"]
    assert isinstance(found, list)
    found.append("x")
    given: list[sdk.JsonValue] = [1]
    values["myModule.given"] = given
    given.append(2)
    assert (values["myModule.list"], values["myModule.given"]) == ([{"name": "one"}, [10, 20]], [1])
    assert values.patch() == ({"op": "add", "path": "/myModule/given", "value": [1]},)


CHANGES: Mapping[str, tuple[jsondata.Path, sdk.JsonInput, sdk.JsonObject]] = {
    "new": ("m.new", 1, {"op": "add", "path": "/m/new", "value": 1}),
    "over": ("m.list", {}, {"op": "add", "path": "/m/list", "value": {}}),
    "parents": ("m.p.q.r", None, {"op": "add", "path": "/m/p", "value": {"q": {"r": None}}}),
    "below null": ("m.null.x", 1, {"op": "add", "path": "/m/null", "value": {"x": 1}}),
    "item": ("m.list[1]", 9, {"op": "replace", "path": "/m/list/1", "value": 9}),
    "in item": ("m.list[0].a", 9, {"op": "add", "path": "/m/list/0/a", "value": 9}),
    "below null item": ("m.list[2].a", 9, {"op": "replace", "path": "/m/list/2", "value": {"a": 9}}),
    "end of list": ("m.list.3", 9, {"op": "add", "path": "/m/list/-", "value": 9}),
    "behind list": ("m.list.-.a", 9, {"op": "add", "path": "/m/list/-", "value": {"a": 9}}),
    "section": ("m", [], {"op": "add", "path": "/m", "value": []}),
    "enable flag": ("fooEnabled", True, {"op": "add", "path": "/fooEnabled", "value": True}),
    "tuples and maps": ("m.x", MappingProxyType({"a": (1, 2)}), {"op": "add", "path": "/m/x", "value": {"a": [1, 2]}}),
    "escapes": (("m", "a/b~c"), 1, {"op": "add", "path": "/m/a~1b~0c", "value": 1}),
}


@pytest.mark.parametrize(("path", "value", "operation"), CHANGES.values(), ids=CHANGES)
def test_setting(path: jsondata.Path, value: sdk.JsonInput, operation: sdk.JsonObject) -> None:
    document: sdk.JsonObject = {"global": {}, "m": {"list": [{}, 1, None], "null": None}}
    values = _values(document)
    values[path] = value
    assert values.patch() == (operation,)
    assert values[""] == patching.resolve(patches.parse(json.dumps(operation).encode(), ""), document, "").document


REFUSED: Mapping[str, tuple[jsondata.Path, object, type[Exception], str]] = {
    "empty": ("", 1, ValueError, "the path is empty"),
    "scalar": ("m.a.b", 1, TypeError, "/m/a is no map and no list"),
    "gap": ("m.list.5", 1, ValueError, "/m/list/5 is no index"),
    "no index": ("m.list.x", 1, ValueError, "/m/list/x is no index"),
    "nan": ("m.x", math.nan, ValueError, "JSON compliant"),
    "set": ("m.x", {1, 2}, TypeError, "set is not JSON"),
}


@pytest.mark.parametrize(("path", "value", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_setting_is_refused(path: jsondata.Path, value: sdk.JsonInput, error: type[Exception], message: str) -> None:
    values = _values({"m": {"a": 1, "list": []}})
    with pytest.raises(error, match=message):
        values[path] = value
    assert values.patch() == ()


def test_unsetting() -> None:
    values = _values({"m": {"a": 1, "list": [1, 2]}})
    values.unset("m.nothing.there")
    values.unset("m.a")
    values.unset("m.list[0]")
    del values["m.list[0]"]
    values.unset("fooEnabled")
    with pytest.raises(KeyError):
        del values["m.a"]
    with pytest.raises(ValueError, match="the path is empty"):
        values.unset("")
    assert values[""] == {"m": {"list": []}}
    assert [operation["path"] for operation in values.patch()] == ["/m/a", "/m/list/0", "/m/list/0", "/fooEnabled"]


def test_the_document_is_read_once_and_only_when_needed() -> None:
    reads: list[int] = []

    def read() -> sdk.JsonValue:
        reads.append(1)
        return {}

    values = sdk.Values(read)
    assert (values.patch(), reads) == ((), [])
    values["a"] = values.get("b")
    assert reads == [1]


steps = st.lists(
    st.tuples(st.lists(KEYS | st.sampled_from(["0", "1", "-"]), min_size=1, max_size=4), st.none() | json_values),
    max_size=6,
)


@given(document=objects, changes=steps, removals=st.sets(st.integers(0, 5)))
def test_the_operator_makes_the_same_of_the_patch(
    document: sdk.JsonObject, changes: list[tuple[list[str], sdk.JsonValue]], removals: set[int]
) -> None:
    values = _values(document)
    for place, (keys, value) in enumerate(changes):
        if place in removals:
            values.unset(keys)
            continue
        try:
            values.set(keys, value)
        except (TypeError, ValueError):
            continue
    operations = patches.parse(json.dumps(values.patch()).encode(), "patch")
    assert patching.resolve(operations, document, "patch").document == values[""]


cases = st.lists(
    st.tuples(objects, st.lists(KEYS | st.sampled_from(["0", "1", "-"]), min_size=1, max_size=4), json_values)
)

PROGRAM = """
.[] | [.keys, .value] as [$keys, $value] | .operations as $operations
| [.document | if $value == "" then unsetting($keys) else setting($keys; $value; []) end] as $made
| {operations: $made, document: (.document | patched($operations))}
"""


def _case(document: sdk.JsonObject, keys: list[str], value: sdk.JsonValue) -> sdk.JsonObject | None:
    """Sets a value, or unsets it if it is empty; None where that is refused."""
    values = _values(document)
    try:
        values.unset(keys) if value == "" else values.set(keys, value)
    except (TypeError, ValueError):
        return None
    operations: list[sdk.JsonValue] = list(values.patch())
    return {
        "given": {"document": document, "keys": list(keys), "value": value, "operations": operations},
        "made": {"operations": operations, "document": values[""]},
    }


def _in_process(given: str) -> list[sdk.JsonValue]:
    text = (LIBRARY.parent / "hook.jq").read_text()
    return list(jq.compile(f"{text}\n{PROGRAM}").input_text(given).all())


def _installed(given: str) -> list[sdk.JsonValue]:
    command = ["jq", "-c", "-L", str(LIBRARY.parent), f'include "hook"; {PROGRAM}']
    done = subprocess.run(command, input=given, text=True, capture_output=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("run", [_in_process, _installed])
@settings(max_examples=25)
@given(data=st.data())
def test_both_libraries_do_the_same(run: Callable[[str], list[sdk.JsonValue]], data: st.DataObject) -> None:
    """Also with the jq that the operator links, which is newer than what distributions install."""
    known = [case for parts in data.draw(cases) if (case := _case(*parts))]
    given = json.dumps([case["given"] for case in known])
    assert run(given) == [case["made"] for case in known]
