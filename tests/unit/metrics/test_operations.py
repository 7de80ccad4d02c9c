"""METRICS_PATH documents: what is read, what is refused and how the refusal reads."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon_operator.metrics.operations import Expire, MetricOperation, MetricsError, Record, parse

UNFIT = "JSON that is nested too deeply, or holds a number that is too large or a text that is not Unicode"
WHERE = "hooks/a.sh: METRICS_PATH"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", (), id="empty"),
        pytest.param(" \n\t\r\n", (), id="white-space"),
        pytest.param('{"name":"m","action":"add","value":1}', (Record(1, "m", "counter", 1.0),), id="add"),
        pytest.param('{"name":"m","action":"set","value":-2.5}', (Record(1, "m", "gauge", -2.5),), id="set"),
        pytest.param('{"name":"m","add":0.5}', (Record(1, "m", "counter", 0.5),), id="shortcut-add"),
        pytest.param('{"name":"m","set":0}', (Record(1, "m", "gauge", 0.0),), id="shortcut-set-zero"),
        pytest.param('{"name":"m","set":1,"action":"set"}', (Record(1, "m", "gauge", 1.0),), id="shortcut-repeated"),
        pytest.param(
            '{"name":"m","action":"observe","value":42,"buckets":[1,2.5,50],"labels":{"b":"2","a":"1"},"group":"g"}',
            (Record(1, "m", "histogram", 42.0, (("a", "1"), ("b", "2")), (1.0, 2.5, 50.0), "g"),),
            id="observe-in-a-group",
        ),
        pytest.param('{"group":"g","action":"expire"}', (Expire(1, "g"),), id="expire"),
        pytest.param(
            '{"name":"m","set":1,"labels":null,"group":"","value":null,"buckets":null}',
            (Record(1, "m", "gauge", 1.0),),
            id="null-and-empty-are-absent",
        ),
        pytest.param(
            '{"name":"m","set":1,"labels":{"a":null,"b":"x"}}',
            (Record(1, "m", "gauge", 1.0, (("a", ""), ("b", "x"))),),
            id="label-null",
        ),
        pytest.param('{"name":"m","set":1,"colour":"red"}', (Record(1, "m", "gauge", 1.0),), id="unknown-key"),
        pytest.param(
            '{"name":"m","set":1,"buckets":[3,2]}', (Record(1, "m", "gauge", 1.0),), id="buckets-of-a-gauge-unused"
        ),
        pytest.param(
            '{"name":"m","add":1}{"name":"m",\n "add":2}\n\n{"action":"expire","group":"g"}',
            (Record(1, "m", "counter", 1.0), Record(2, "m", "counter", 2.0), Expire(3, "g")),
            id="stream",
        ),
        pytest.param('\ufeff{"name":"a:b_1","set":1}', (Record(1, "a:b_1", "gauge", 1.0),), id="bom-and-colon"),
    ],
)
def test_reads(text: str, expected: tuple[MetricOperation, ...]) -> None:
    assert parse(text.encode(), WHERE) == expected


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        pytest.param("[]", ["operation 1: must be a map, not a list"], id="not-an-object"),
        pytest.param(
            '{"name":"m","value":1}',
            ["operation 1 (m): action: is required: one of add, set, observe, expire"],
            id="no-action",
        ),
        pytest.param(
            '{"name":"m","action":"inc","value":1}',
            ["operation 1 (m): action: must be one of add, set, observe, expire"],
            id="unknown-action",
        ),
        pytest.param('{"action":"set","value":1}', ["operation 1: name: is required"], id="no-name"),
        pytest.param('{"name":7,"set":1}', ["operation 1: name: must be a string, not an integer"], id="name-type"),
        pytest.param(
            '{"name":"a-b","set":1}',
            ["operation 1: name: must be letters, digits, _ and :, not starting with a digit"],
            id="bad-name",
        ),
        pytest.param('{"name":"m","action":"set"}', ["operation 1 (m): value: is required"], id="no-value"),
        pytest.param(
            '{"name":"m","set":"1"}', ["operation 1 (m): set: must be a number, not a string"], id="value-text"
        ),
        pytest.param(
            '{"name":"m","set":true}', ["operation 1 (m): set: must be a number, not a boolean"], id="value-bool"
        ),
        pytest.param('{"name":"m","set":1e999}', [f"line 1: {UNFIT}"], id="value-infinite"),
        pytest.param(
            "\n" + json.dumps({"name": "m", "action": "set", "value": 10**400}),
            [f"line 2: {UNFIT}"],
            id="value-huge",
        ),
        pytest.param(
            '{"name":"m","add":-1}', ["operation 1 (m): add: must not be negative, a counter only grows"], id="shrink"
        ),
        pytest.param(
            '{"name":"m","add":1,"set":1}', ["operation 1 (m): add, set: only one of them is possible"], id="both"
        ),
        pytest.param(
            '{"name":"m","add":1,"action":"set"}', ["operation 1 (m): action: contradicts the field add"], id="mixed"
        ),
        pytest.param(
            '{"name":"m","add":1,"value":2}', ["operation 1 (m): value: the field add gives it already"], id="twice"
        ),
        pytest.param(
            '{"name":"m","action":"observe","value":1}',
            ["operation 1 (m): buckets: is required"],
            id="no-buckets",
        ),
        pytest.param(
            '{"name":"m","action":"observe","value":1,"buckets":[1,1]}',
            ["operation 1 (m): buckets: must be in ascending order"],
            id="buckets-equal",
        ),
        pytest.param('{"action":"expire"}', ["operation 1: group: is required"], id="expire-nothing"),
        pytest.param(
            '{"action":"expire","group":1}', ["operation 1: group: must be a string, not an integer"], id="group-type"
        ),
        pytest.param(
            '{"name":"m","set":1,"labels":[]}', ["operation 1 (m): labels: must be a map, not a list"], id="labels"
        ),
        pytest.param(
            '{"name":"m","set":1,"labels":{"a":1}}',
            ["operation 1 (m): labels.a: must be a string, not an integer"],
            id="label-type",
        ),
        pytest.param(
            '{"name":"m","set":1,"labels":{"a":false,"__b":null}}',
            [
                "operation 1 (m): labels: '__b' is not a label name",
                "operation 1 (m): labels.a: must be a string, not a boolean",
            ],
            id="label-bool-and-null-with-a-bad-name",
        ),
        pytest.param(
            '{"name":"m","set":1,"labels":{"a-b":"x"}}',
            ["operation 1 (m): labels: 'a-b' is not a label name"],
            id="label-name",
        ),
        pytest.param(
            '{"name":"m","set":1,"labels":{"__a":"x"}}',
            ["operation 1 (m): labels: '__a' is not a label name"],
            id="label-reserved",
        ),
        pytest.param(
            '{"name":"m","action":"observe","value":1,"buckets":[1],"labels":{"le":"1"}}',
            ["operation 1 (m): labels: le belongs to the buckets of a histogram"],
            id="label-le",
        ),
        pytest.param(
            '{"name":"m","set":1}\n{"name":', ["line 2, column 9: not JSON: Expecting value"], id="cut-off-stream"
        ),
        pytest.param('{"name":"m","set":NaN}', ["NaN is not JSON"], id="nan"),
        pytest.param("[" * 100_000, ["JSON is nested too deeply"], id="nesting"),
        pytest.param(
            '{"name":"m","action":"add","value":"x","labels":{"a":1}}{"set":1}',
            [
                "operation 1 (m): value: must be a number, not a string",
                "operation 1 (m): labels.a: must be a string, not an integer",
                "operation 2: name: is required",
            ],
            id="all-of-them",
        ),
    ],
)
def test_refuses(text: str, problems: list[str]) -> None:
    with pytest.raises(MetricsError) as caught:
        parse(text.encode(), WHERE)
    assert list(caught.value.problems) == problems
    assert str(caught.value).splitlines() == [f"{WHERE}: {problem}" for problem in problems]


def test_refuses_bytes_that_are_not_text() -> None:
    with pytest.raises(MetricsError, match="byte 9 is not UTF-8"):
        parse(b'{"name":"\xff"}', WHERE)


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_never_ends_in_another_error(data: bytes) -> None:
    with contextlib.suppress(MetricsError):
        assert len(parse(data, WHERE)) <= len(data)
