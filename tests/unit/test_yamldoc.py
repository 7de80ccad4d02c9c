"""YAML text and JSON values."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from addon_operator import yamldoc
from addon_operator.jsondoc import JsonValue
from addon_operator.yamldoc import YamlError


def test_lines_and_values() -> None:
    document = yamldoc.load("a: 1\nb:\n  - x: 2020-01-01\n  - yes\n", "f.yaml")
    assert document.value == {"a": 1, "b": [{"x": "2020-01-01"}, True]}
    assert document.lines == {"/a": 1, "/b": 2, "/b/0": 3, "/b/0/x": 3, "/b/1": 4}


def test_an_equals_sign_is_a_string() -> None:
    assert yamldoc.load("enum: [=, '!=']\nof: =\n", "f.yaml").value == {"enum": ["=", "!="], "of": "="}
    assert yamldoc.load_all("- =\n", "f.yaml") == [["="]]


def test_a_bare_y_is_a_string_and_gets_a_warning() -> None:
    document = yamldoc.load("a: 'y'\nb: y\n", "f.yaml")
    assert document.value == {"a": "y", "b": "y"}
    assert [warning.split(" ")[0] for warning in document.warnings] == ["f.yaml:2:"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: [1,\nb", r"f.yaml:[23]", id="syntax"),
        pytest.param("a: 1\nb: .nan\n", r"f.yaml:2: /b: nan has no JSON form", id="not a number"),
        pytest.param("a: .inf\n", r"f.yaml:1: /a: inf has no JSON form", id="infinity"),
        pytest.param("a: !!binary aGk=\n", r"f.yaml:1: /a: bytes has no JSON form", id="binary"),
        pytest.param(
            "[" * 30_000, r"f.yaml:1: nested deeper than 200 levels", id="nesting that would kill the process"
        ),
        pytest.param(
            "0: &a [x, x]\n" + "".join(f"{n}: &{chr(97 + n)} [*{chr(96 + n)}, *{chr(96 + n)}]\n" for n in range(1, 20)),
            r"f.yaml:1\d: aliases repeat too much",
            id="aliases of aliases",
        ),
        pytest.param("? [1, 2]\n: 3\n", r"f.yaml", id="key that is a list"),
        pytest.param("a: *unknown\n", r"f.yaml:1", id="unknown alias"),
        pytest.param("a: &a [.inf, *a]\n", r"f.yaml: /a/0: inf has no JSON form", id="alias of itself, and more"),
        pytest.param("a: &a [*a]\n", r"f.yaml: aliases make it nested too deeply", id="alias of itself"),
        pytest.param("a:\n- 18446744073709551616\n", r"f.yaml:2: /a/0: JSON cannot hold an integer", id="integer"),
        pytest.param("a: !hunter2\n", r"f.yaml:1: an unknown tag: quote", id="text that begins with !"),
        pytest.param("a: !!timestamp hunter2\n", r"f.yaml: a value does not fit its type", id="no timestamp"),
        pytest.param("a: !!int hunter2\n", r"f.yaml: a value does not fit its type", id="tag that does not fit"),
    ],
)
def test_what_is_not_a_json_document_is_refused_with_file_and_line(text: str, message: str) -> None:
    with pytest.raises(YamlError, match=message) as caught:
        yamldoc.load(text, "f.yaml")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(YamlError, match=message):
        yamldoc.load_all(text, "f.yaml")


def test_aliases_are_what_they_stand_for() -> None:
    text = "base: &base {a: 1}\nall:\n" + "- *base\n" * 2000
    assert yamldoc.load(text, "f.yaml").value == {"base": {"a": 1}, "all": [{"a": 1}] * 2000}


def test_a_second_document_is_refused_where_one_is_expected() -> None:
    with pytest.raises(YamlError, match=r"f.yaml:\d"):
        yamldoc.load("a: 1\n---\nb: 1", "f.yaml")


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_what_is_written_is_read_back(value: JsonValue) -> None:
    assert yamldoc.load(yamldoc.dump(value), "f.yaml").value == value


@pytest.mark.parametrize("text", ["y", "1e3", "0o7", "1_000", "+1", ".5", "a\u2028b", "no", "null", "~", "0x1f"])
def test_texts_that_other_readers_take_for_something_else_are_quoted(text: str) -> None:
    written = yamldoc.dump({"a": text})
    assert yaml.safe_load(written) == {"a": text}
    assert written.split(": ", 1)[1][0] in "'\""
