"""Values for charts whose schema allows no other keys than its own."""

from __future__ import annotations

import pytest

from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.helm.values_schema import closed_root, without_disallowed

EMPTY: JsonObject = {"global": {"a": 1}, "demo": {}}
CLOSED: JsonObject = {"additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "left"),
    [
        pytest.param(None, ["global", "demo"], id="no schema"),
        pytest.param({"properties": {"a": {}}}, ["global", "demo"], id="open"),
        pytest.param({**CLOSED, "properties": {"a": {}}}, [], id="closed"),
        pytest.param({**CLOSED, "properties": {"global": {}}}, ["global"], id="global is named"),
        pytest.param({**CLOSED, "properties": {"demo": {}}}, ["demo"], id="the section is named"),
        pytest.param({**CLOSED, "patternProperties": {"^glo": {}, "(": {}}}, ["global"], id="named by a pattern"),
        pytest.param(
            {"$ref": "#/$defs/values", "$defs": {"values": {**CLOSED, "properties": {"global": {}}}}},
            ["global"],
            id="behind a reference",
        ),
        pytest.param({"$ref": "#/$defs/none"}, ["global", "demo"], id="a reference to nothing"),
        pytest.param({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, ["global", "demo"], id="a circle"),
        pytest.param({"$ref": "https://example.com/x.json"}, ["global", "demo"], id="a reference elsewhere"),
    ],
)
def test_leaves_out_what_says_nothing(schema: JsonValue, left: list[str]) -> None:
    assert list(without_disallowed(closed_root(schema), EMPTY)) == left


def test_a_section_that_says_something_stays() -> None:
    assert without_disallowed(closed_root(CLOSED), {"global": {}, "demo": {"a": None}}) == {"demo": {"a": None}}
