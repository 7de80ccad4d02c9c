"""Documents taken apart: what is found, and how problems read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from addon_operator.documents.fields import Fields, parse_map
from addon_operator.documents.jsondoc import JsonObject, JsonValue

Parse = Callable[[Fields], object]


def parsed(value: JsonValue, parse: Parse, *, path: str = "", lenient: bool = False) -> tuple[object, list[str]]:
    errors: list[str] = []
    return parse_map(value, path, errors, parse, lenient=lenient), errors


@pytest.mark.parametrize(
    ("document", "parse", "result"),
    [
        pytest.param({"a": "x"}, lambda f: f.text("a"), "x", id="text"),
        pytest.param({}, lambda f: f.text("a", "d"), "d", id="default text"),
        pytest.param({"a": True}, lambda f: f.flag("a", default=False), True, id="flag"),
        pytest.param({"a": 3.0}, lambda f: f.integer("a"), 3, id="integer"),
        pytest.param({"a": 3}, lambda f: f.number("a"), 3.0, id="number"),
        pytest.param({"a": [1, 2.5]}, lambda f: f.numbers("a"), (1.0, 2.5), id="numbers"),
        pytest.param({"a": "y"}, lambda f: f.choice("a", ("x", "y")), "y", id="choice"),
        pytest.param({}, lambda f: f.choice("a", ("x", "y"), "x"), "x", id="default choice"),
        pytest.param({"a": ["x", "y"]}, lambda f: f.texts("a"), ("x", "y"), id="texts"),
        pytest.param({"a": [{"b": "1"}, {}]}, lambda f: f.each("a", lambda g: g.text("b")), ("1", ""), id="each"),
        pytest.param({"a": {"b": "1"}}, lambda f: f.one("a", lambda g: g.text("b")), "1", id="one"),
        pytest.param({}, lambda f: f.one("a", lambda g: g.text("b")), None, id="none"),
    ],
)  # fmt: skip
def test_takes_fields(document: JsonObject, parse: Parse, result: object) -> None:
    assert parsed(document, parse) == (result, [])


@pytest.mark.parametrize(
    ("document", "parse", "problem"),
    [
        pytest.param([], lambda f: f.text("a", required=True), "must be a map, not a list", id="no map"),
        pytest.param({"b": 1}, lambda f: f.text("a"), "b: unknown field", id="unknown"),
        pytest.param({}, lambda f: f.text("a", required=True), "a: is required", id="missing"),
        pytest.param({"a": ""}, lambda f: f.text("a", required=True), "a: must not be empty", id="empty"),
        pytest.param({"a": None}, lambda f: f.text("a"), "a: must be a string, not null", id="null"),
        pytest.param({"a": 1}, lambda f: f.flag("a", default=False), "a: must be a boolean, not an integer", id="flag"),
        pytest.param({"a": True}, lambda f: f.integer("a"), "a: must be an integer, not a boolean", id="integer"),
        pytest.param({"a": 1.5}, lambda f: f.integer("a"), "a: must be an integer, not a number", id="fraction"),
        pytest.param({"a": False}, lambda f: f.number("a"), "a: must be a number, not a boolean", id="number"),
        pytest.param({"a": [1, "x"]}, lambda f: f.numbers("a"), "a[1]: must be a number, not a string", id="numbers"),
        pytest.param({"a": "z"}, lambda f: f.choice("a", ("x", "y")), "a: must be one of x, y", id="choice"),
        pytest.param({"a": []}, lambda f: f.choice("a", ("x",)), "a: must be a string, not a list", id="no choice"),
        pytest.param(
            {}, lambda f: f.choice("a", ("x", "y"), required=True), "a: is required: one of x, y", id="choice missing"
        ),
        pytest.param({"a": ["x", 1]}, lambda f: f.texts("a"), "a[1]: must be a string, not an integer", id="texts"),
        pytest.param({"a": ["z"]}, lambda f: f.texts("a", allowed=("x",)), "a[0]: must be one of x", id="allowed"),
        pytest.param({"a": []}, lambda f: f.texts("a", minimum=1), "a: must not be empty", id="no texts"),
        pytest.param({"a": {}}, lambda f: f.texts("a"), "a: must be a list, not a map", id="no list"),
        pytest.param({"a": [{}, 1]}, lambda f: f.each("a", str), "a[1]: must be a map, not an integer", id="each"),
        pytest.param(
            {"a": {"b": [{"c": 1}]}},
            lambda f: f.one("a", lambda g: g.each("b", lambda h: h.text("c"))),
            "a.b[0].c: must be a string, not an integer",
            id="path",
        ),
    ],
)  # fmt: skip
def test_names_the_field_and_the_type(document: JsonValue, parse: Parse, problem: str) -> None:
    assert parsed(document, parse)[1] == [problem]


def test_the_path_of_the_map_comes_first() -> None:
    assert parsed({"x": 1}, lambda f: f.text("a", required=True), path="item[2]")[1] == [
        "item[2].a: is required",
        "item[2].x: unknown field",
    ]
    assert parsed(1, lambda f: f.text("a", required=True), path="item[2]")[1] == [
        "item[2]: must be a map, not an integer"
    ]


def test_lenient_maps_take_null_for_absent_at_any_depth() -> None:
    document: JsonObject = {"a": None, "n": None, "b": {"c": None, "x": 1}, "y": 1}

    def parse(fields: Fields) -> object:
        return fields.text("a", "d"), fields.one("n", lambda _: 0), fields.one("b", lambda g: g.number("c", 2.0))

    assert parsed(document, parse, lenient=True) == (("d", None, 2.0), [])
    assert parsed({"a": None}, lambda f: f.text("a", required=True), lenient=True)[1] == ["a: is required"]
