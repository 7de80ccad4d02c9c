from __future__ import annotations

import copy
from datetime import UTC, datetime

import pytest
from hypothesis import given

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import ModuleError
from addon_operator.values import layers
from addon_operator.values.layers import EnableFlag, Origin, StaticLayer
from tests.unit.values.strategies import objects, values

NAMES = [
    ("simple-module", "simpleModule"),
    ("l2-load-balancer", "l2LoadBalancer"),
    ("2-module-name", "2ModuleName"),
    ("module-one01", "moduleOne01"),
    ("cert-manager-crd", "certManagerCrd"),
    ("one", "one"),
]


@pytest.mark.parametrize(("name", "key"), NAMES, ids=[name for name, _ in NAMES])
def test_names_and_keys(name: str, key: str) -> None:
    assert layers.section_key(name) == key
    assert layers.module_name(key) == name
    assert layers.enabled_key(name) == key + "Enabled"
    assert layers.is_section_key(key)
    layers.check_module_name(name)


@pytest.mark.parametrize(
    "name",
    ["module_one", "moduleOne", "Module", "module-", "-module", "a--b", "module-2", "a.b", "ünicode", "a b", ""],
)
def test_names_that_do_not_survive_are_refused(name: str) -> None:
    with pytest.raises(ModuleError, match="does not survive"):
        layers.check_module_name(name)


@pytest.mark.parametrize("name", ["global", "foo-enabled"])
def test_names_with_another_meaning_are_refused(name: str) -> None:
    with pytest.raises(ModuleError, match="another meaning"):
        layers.check_module_name(name)


@pytest.mark.parametrize(
    ("key", "section"),
    [
        ("fooEnabled", "foo"),
        ("simpleModuleEnabled", "simpleModule"),
        ("foo", None),
        ("Enabled", None),
        ("foo-barEnabled", None),
    ],
)
def test_flag_section(key: str, section: str | None) -> None:
    assert layers.flag_section(key) == section


@pytest.mark.parametrize(
    ("value", "flag"),
    [(True, True), ("false", False), ("true", True), (1, None), ("yes", None), (None, None), ([True], None)],
    ids=str,
)
def test_parse_flag(value: JsonValue, flag: bool | None) -> None:
    assert layers.parse_flag(value) is flag


def test_a_modules_directory_file_gives_all_sections_and_flags() -> None:
    text = "global:\n  a: 1\nsimpleModule:\n  b: [1]\nlistModule: []\nempty:\n"
    text += "simpleModuleEnabled: true\notherEnabled: 'false'\n"
    found = layers.parse_values_file(text, "modules/values.yaml", None)
    assert {key: layer.value for key, layer in found.layers.items()} == {
        "global": {"a": 1},
        "simpleModule": {"b": [1]},
        "listModule": [],
        "empty": {},
    }
    assert found.flags == {
        "simpleModule": EnableFlag(value=True, source="values file", place="modules/values.yaml:7"),
        "other": EnableFlag(value=False, source="values file", place="modules/values.yaml:8"),
    }
    assert found.layers["simpleModule"].lines["/simpleModule/b/0"] == 4
    assert not found.layers["simpleModule"].chart


def test_a_modules_own_file_gives_only_its_own() -> None:
    text = "replicas: 3\nglobal: {a: 1}\nother: 5\nfoo: {b: 1}\nfooEnabled: false\n"
    found = layers.parse_values_file(text, "modules/foo/values.yaml", "foo")
    assert {key: layer.value for key, layer in found.layers.items()} == {"foo": {"b": 1}}
    assert found.flags == {"foo": EnableFlag(value=False, source="values file", place="modules/foo/values.yaml:5")}
    assert found.layers["foo"].chart
    assert found.warnings == ()


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_file_is_fine(text: str) -> None:
    found = layers.parse_values_file(text, "v.yaml", None)
    assert (dict(found.layers), dict(found.flags)) == ({}, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("foo:\n  a: [\n", "v.yaml:3"),
        ("- a\n", "v.yaml:1: must be a map"),
        ("a: {}\nfoo: 5\n", "v.yaml:2: foo must be a map or a list"),
        ("a: {}\n\nfooEnabled: 1\n", "v.yaml:3: fooEnabled must be true or false"),
        ("fooEnabled:\n", "v.yaml:1: fooEnabled must be true or false"),
        ("foo: {a: 99999999999999999999}\n", "v.yaml:1: /foo/a: JSON cannot hold an integer beyond 64 bits"),
    ],
)
def test_bad_files_are_refused_with_a_place(text: str, message: str) -> None:
    with pytest.raises(ModuleError) as caught:
        layers.parse_values_file(text, "v.yaml", None)
    assert str(caught.value).startswith(message)


def test_all_problems_of_a_file_are_named() -> None:
    with pytest.raises(ModuleError) as caught:
        layers.parse_values_file("foo: 5\nbarEnabled: maybe\n", "v.yaml", None)
    assert str(caught.value).splitlines() == [
        "v.yaml:1: foo must be a map or a list",
        "v.yaml:2: barEnabled must be true or false",
    ]
    assert "maybe" not in str(caught.value)


def test_a_key_that_is_no_section_gets_a_warning() -> None:
    found = layers.parse_values_file("simple-module: {}\nfoo: {a: y}\n", "v.yaml", None)
    assert set(found.layers) == {"foo"}
    assert found.warnings[0].startswith("v.yaml:2: a bare y")
    assert found.warnings[1].startswith("v.yaml:1: simple-module is ignored")


def layer(value: JsonValue) -> StaticLayer:
    return StaticLayer(value, "f", {})


@pytest.mark.parametrize(
    ("stack", "merged"),
    [
        ([], {}),
        ([{"a": 1, "b": {"x": 1}}, {"b": {"y": None}}], {"a": 1, "b": {"x": 1, "y": None}}),
        ([{"a": [1, 2]}, {"a": [3]}], {"a": [3]}),
        ([[1], {}], [1]),
        ([{"a": 1}, [2]], [2]),
        ([[1], []], []),
    ],
    ids=str,
)
def test_merge_layers(stack: list[JsonValue], merged: JsonValue) -> None:
    assert layers.merge_layers([layer(value) for value in stack]) == merged


@given(values, values)
def test_merging_changes_no_argument(base: JsonValue, over: JsonValue) -> None:
    before = copy.deepcopy((base, over))
    jsondoc.deep_merge(base, over)
    assert (base, over) == before


@given(objects)
def test_an_empty_layer_changes_nothing(value: JsonObject) -> None:
    assert jsondoc.deep_merge(value, {}) == value
    assert jsondoc.deep_merge({}, value) == value


@given(objects, objects)
def test_the_upper_layer_wins_and_the_lower_one_fills(one: JsonObject, two: JsonObject) -> None:
    merged = jsondoc.deep_merge(one, two)
    assert isinstance(merged, dict)
    assert merged.keys() == one.keys() | two.keys()
    for key in merged:
        if key not in two:
            assert merged[key] == one[key]
        elif not isinstance(two[key], dict) or not isinstance(one.get(key), dict):
            assert merged[key] == two[key]
    assert jsondoc.digest(jsondoc.deep_merge(one, one)) == jsondoc.digest(one)


@pytest.mark.parametrize(
    ("origin", "text"),
    [
        (Origin("file", "modules/values.yaml", line=3), "modules/values.yaml:3"),
        (Origin("file", "modules/values.yaml"), "modules/values.yaml"),
        (Origin("configmap", "global"), "ConfigMap key global"),
        (Origin("default", "openapi/values.yaml"), "default in openapi/values.yaml"),
        (
            Origin("hook", "global/x.sh", at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
            "hook global/x.sh at 2026-01-02T03:04:05+00:00",
        ),
    ],
    ids=str,
)
def test_origins_as_text(origin: Origin, text: str) -> None:
    assert str(origin) == text
