from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon_operator.documents import yamldoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue, join
from addon_operator.server.layout import cell, commented_yaml, duration_text, printable, table

# Two alphabets as two strategies: as one, the special characters would hardly ever be drawn.
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc"))) | st.text(
    "ab \n\t\r\x85\u2028\u2029:#'\"-?|>{}[]", max_size=8
)
KEYS = TEXTS | st.just("k" * 130)  # YAML writes long keys in a form of their own
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=12
)


def _leaves(value: JsonValue, *path: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, *path, key)
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, *path, str(index))
    else:
        yield join(*path)


def _pointers(value: JsonValue, *path: str) -> Iterator[str]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield join(*path, str(key))
        yield from _pointers(item, *path, str(key))


@given(st.dictionaries(KEYS, VALUES, max_size=4), TEXTS)
def test_comments_change_nothing_that_a_parser_sees(document: JsonObject, origin: str) -> None:
    plain = yamldoc.dump(document)
    commented = commented_yaml(document, dict.fromkeys(_pointers(document), f"from {origin}"))
    assert yamldoc.load(commented, "commented").value == yamldoc.load(plain, "plain").value


@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=4))
def test_every_leaf_has_a_comment(document: JsonObject) -> None:
    origins = {pointer: f"origin-{number}-end" for number, pointer in enumerate(_leaves(document))}
    commented = commented_yaml(document, origins)
    assert [origin for origin in origins.values() if f"  # {origin}" not in commented] == []


def test_pointers_to_nowhere_are_left_out() -> None:
    assert commented_yaml({"a": 1}, {"/b": "nowhere"}) == "a: 1\n"


def test_table_aligns_and_fills_titled_columns() -> None:
    rows = [("alpha", "1", ""), ("b", "", "decides")]
    assert table(("NAME", "N", ""), rows) == "NAME   N\nalpha  1\nb      -  decides\n"


def test_table_without_rows_is_its_header() -> None:
    assert table(("NAME", "N"), []) == "NAME  N\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        pytest.param(0.0, "0.00s", id="zero"),
        pytest.param(0.126, "0.13s", id="short"),
        pytest.param(59.99, "59.99s", id="below-a-minute"),
        pytest.param(59.999, "1m00s", id="rounds-to-a-minute"),
        pytest.param(119.7, "2m00s", id="rounds-to-two-minutes"),
        pytest.param(3599.6, "1h00m", id="rounds-to-an-hour"),
        pytest.param(7500.0, "2h05m", id="hours"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("one\n  two\t three", "one two three", id="one-line"),
        pytest.param("x" * 100, "x" * 100, id="fits"),
        pytest.param("x" * 101, "x" * 97 + "...", id="cut"),
    ],
)
def test_cell(text: str, expected: str) -> None:
    assert cell(text) == expected


def test_text_cannot_steer_a_terminal() -> None:
    assert printable("a\x1b[2J\x07\x9b\r\tb\nc ä") == "a\ufffd[2J\ufffd\ufffd\ufffd\tb\nc ä"
