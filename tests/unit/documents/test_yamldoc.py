"""YAML text and JSON values."""

from __future__ import annotations

import traceback

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from addon_operator.documents import jsondoc, yamldoc
from addon_operator.documents.jsondoc import JsonValue
from addon_operator.documents.yamldoc import YamlDocument, YamlError


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
        pytest.param("a: !!timestamp hunter2\n", r"f.yaml:1: a value does not fit its tag", id="no timestamp"),
        pytest.param("a: !!int hunter2\n", r"f.yaml:1: a value does not fit its tag", id="no integer"),
        pytest.param("a: 1\nb: !!bool hunter2\n", r"f.yaml:2: a value does not fit its tag", id="no boolean"),
        pytest.param("? !!bool hunter2\n: 1\n", r"f.yaml:1: a value does not fit its tag", id="no boolean for a key"),
        pytest.param("a: !!int ''\n", r"f.yaml:1: a value does not fit its tag", id="empty integer"),
        pytest.param("a: !!float " + "1:" * 200 + "1\n", r"f.yaml:1: a value does not fit its tag", id="overflow"),
        pytest.param("a: !!binary hunter2é\n", r"f.yaml:1: a value does not fit its tag", id="binary beyond ASCII"),
        pytest.param("a: \ud800\n", r"f.yaml: not a valid Unicode text", id="half a character"),
    ],
)
def test_what_is_not_a_json_document_is_refused_with_file_and_line(text: str, message: str) -> None:
    with pytest.raises(YamlError, match=message) as caught:
        yamldoc.load(text, "f.yaml")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(YamlError, match=message):
        yamldoc.load_all(text, "f.yaml")


_MARKER = "hunter2"
_TAGS = [
    *(
        "!!bool",
        "!!int",
        "!!float",
        "!!null",
        "!!str",
        "!!binary",
        "!!timestamp",
        "!!set",
        "!!omap",
        "!!pairs",
        "!!map",
    ),
    *("!!seq", "!!merge", "!!value", "!!yaml", "!!python/none", "!!python/tuple", "!!python/object/apply:os.system"),
    *("!custom", "!", "!<x>", "!<tag:yaml.org,2002:bool>", ""),
]
_SCALARS = st.sampled_from(
    [
        *(
            _MARKER,
            f"{_MARKER}:{_MARKER}",
            f"'{_MARKER}'",
            f'"{_MARKER}"',
            f"|\n  {_MARKER}\n",
            "''",
            "",
            "~",
            "=",
            "<<",
        ),
        *(
            "yes",
            "word",
            "12",
            "0x",
            "0b2",
            "08",
            "1_0",
            "+",
            "-",
            "1:60:1",
            "1e999",
            ".",
            ".inf",
            "9" * 30,
            "9" * 5000,
        ),
        *("1:" * 200 + "1", "2001-01-01", "2001-13-41", "2001-01-01t99:99:99Z", "aGk=", "é", "\\", "*a", "&a x", "[]"),
    ]
) | st.text(st.characters(exclude_categories=()), max_size=8)


def _nested(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    items = st.lists(children, max_size=3)
    pairs = st.lists(st.tuples(children | st.just("<<"), children), max_size=3)
    return (
        items.map(lambda texts: f"[{', '.join(texts)}]")
        | pairs.map(lambda texts: "{" + ", ".join(f"? {key} : {value}" for key, value in texts) + "}")
        | st.tuples(st.sampled_from(_TAGS), st.sampled_from(["", "&a", "&b"]), children).map(" ".join)
        | st.sampled_from(["*a", "*b"])
    )


_YAML = st.recursive(st.tuples(st.sampled_from(_TAGS), _SCALARS).map(" ".join), _nested, max_leaves=6)
_SECTIONS = st.lists(st.tuples(st.sampled_from(["a: ", "b: ", "<<: ", "? ", "- ", "--- "]), _YAML), max_size=4)


@settings(max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
@given(_SECTIONS)
def test_any_tag_on_any_text_is_a_json_document_or_refused_without_the_value(parts: list[tuple[str, str]]) -> None:
    text = "".join(f"{start}{value}\n" for start, value in parts)
    found = _load(text)
    if isinstance(found, YamlError):
        assert str(found).startswith("f.yaml:")
        # Tracebacks included: they would quote the causes.
        assert _MARKER not in "".join(traceback.format_exception(found))
    else:
        jsondoc.dumps(found.value)
        assert all(line >= 1 for line in found.lines.values())
        assert len(found.warnings) <= 11


def _load(text: str) -> YamlDocument | YamlError:
    try:
        return yamldoc.load(text, "f.yaml")
    except YamlError as error:
        return error


@pytest.mark.parametrize(
    ("text", "value", "warned"),
    [
        pytest.param("a: 1\nb: 2\na: 3\n", {"a": 3, "b": 2}, ["3: /a"], id="root"),
        pytest.param("- {x: {z: 1, z: 2}}\n", [{"x": {"z": 2}}], ["1: /0/x/z"], id="deep"),
        pytest.param("1: a\n'1': b\n", {"1": "b"}, ["2: /1"], id="number and text"),
        pytest.param("yes: a\n'true': b\n", {"true": "b"}, ["2: /true"], id="boolean and text"),
        pytest.param("a: &a {x: 1}\nb: {<<: *a, x: 2}\n", {"a": {"x": 1}, "b": {"x": 2}}, [], id="override of a merge"),
        pytest.param("a: &a {x: 1}\nb: {<<: *a, <<: *a}\n", {"a": {"x": 1}, "b": {"x": 1}}, [], id="two merges"),
        pytest.param(
            "a: [&a {x: 1, x: 2}, *a]\n", {"a": [{"x": 2}, {"x": 2}]}, ["1: /a/0/x"], id="once for all aliases"
        ),
    ],
)
def test_a_duplicate_key_gets_a_warning(text: str, value: JsonValue, warned: list[str]) -> None:
    document = yamldoc.load(text, "f.yaml")
    assert document.value == value
    assert list(document.warnings) == [f"f.yaml:{place}: duplicate key, the last one wins" for place in warned]


def test_a_thousand_duplicate_keys_are_ten_warnings_and_a_count() -> None:
    document = yamldoc.load("a: hunter2\n" * 1001, "f.yaml")
    assert len(document.warnings) == 11
    assert document.warnings[-1] == "f.yaml:12: 990 more from here on"


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
