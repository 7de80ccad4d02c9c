"""What jq filters make of objects, and what their failures say."""

from __future__ import annotations

import json

import pytest

from addon_operator.kube import jq
from addon_operator.kube.informers.projection import run_filter


def nested(levels: int) -> object:
    return [nested(levels - 1)] if levels else 1


@pytest.mark.parametrize(
    ("program", "document", "result"),
    [
        pytest.param(".a", {"a": 1}, 1, id="one value"),
        pytest.param("empty", {"a": 1}, None, id="no output"),
        pytest.param(".a[]", {"a": [1, "x", None]}, [1, "x", None], id="many outputs"),
        pytest.param(".a[]", {"a": [[1]]}, [1], id="one output that is an array"),
        pytest.param(".a", {"a": "x\ny\u2028z\r"}, "x\ny\u2028z\r", id="line breaks in a string"),
        pytest.param(".a[]", {"a": ["x\n", "\ny"]}, ["x\n", "\ny"], id="line breaks in several strings"),
        pytest.param(".a", {}, None, id="null"),
        pytest.param("1e25 | floor", {}, int(1e25), id="integer that is too long for most"),
        pytest.param("reduce range(300) as $i (1; [.])", {}, nested(300), id="hundreds of levels"),
        pytest.param("nan", {}, None, id="no number"),
        pytest.param(".b", {"b": "\u00fc\u20ac\U0001f600"}, "\u00fc\u20ac\U0001f600", id="not ASCII"),
    ],
)
def test_filter_result(program: str, document: object, result: object) -> None:
    outcome = run_filter(jq.run, program, json.dumps(document, ensure_ascii=False).encode())
    assert (json.loads(outcome.result), outcome.error) == (result, None)


@pytest.mark.parametrize(
    ("program", "error"),
    [
        pytest.param(".a + 1", "object and number cannot be added", id="operator"),
        pytest.param('.a.s | .["x"]', "cannot index string", id="index"),
        pytest.param(".a[] | .[]", "cannot iterate over string", id="iterate"),
        pytest.param(".a.s | tonumber", "string cannot be parsed", id="number"),
        pytest.param("error(.a.s)", "the program ends with an error", id="a text from the object"),
        pytest.param("error(.a)", "the program ends with an error", id="an object from the object"),
        pytest.param(".t, .a.t.x", "cannot index string", id="after an output"),
    ],
)
def test_what_a_failing_filter_says_holds_nothing_of_the_object(program: str, error: str) -> None:
    document = b'{"a": {"s": "swordfish) and number (1", "t": "swordfish"}, "t": 1}'
    outcome = run_filter(jq.run, program, document)
    assert (outcome.result, outcome.error) == (b"null", error)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(b"1732200000123456789", b"1732200000123456790", id="integers beyond 2^53"),
        pytest.param(b"1", b"true", id="a number and a truth"),
    ],
)
def test_what_is_another_value_is_another_result(first: bytes, second: bytes) -> None:
    results = [run_filter(jq.run, ".a", b'{"a":%s}' % value).result for value in (first, second)]
    assert results == [first, second]
