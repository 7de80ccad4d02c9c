from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon_operator.kube import jq
from addon_operator.kube.snapshot import Filtered, Item, View, run_filter

KEY = ("n", "a")


def nested(levels: int) -> object:
    return [nested(levels - 1)] if levels else 1


def filtered(text: str, *, error: str | None = None) -> Filtered:
    return Filtered(text.encode(), error)


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


@pytest.mark.parametrize(
    ("first", "second", "change"),
    [
        pytest.param(None, filtered("1"), "Added", id="new"),
        pytest.param(filtered("1"), filtered("1"), None, id="same result"),
        pytest.param(filtered("1"), filtered("2"), "Modified", id="other result"),
        pytest.param(filtered('{"a":1,"b":2}'), filtered('{"b":2,"a":1}'), None, id="same result in another order"),
        pytest.param(filtered('{"a":1,"b":2}'), filtered('{"b":1,"a":2}'), "Modified", id="other result, same bytes"),
        pytest.param(filtered("[1,2]"), filtered("[2,1]"), "Modified", id="other order of a list"),
        pytest.param(filtered("9" * 5000 + "1"), filtered("9" * 5000 + "2"), "Modified", id="thousands of digits"),
        pytest.param(filtered("null"), filtered("null", error="e"), "Modified", id="begins to fail"),
        pytest.param(filtered("null", error="e"), filtered("null", error="e"), "Modified", id="fails again"),
        pytest.param(filtered("null", error="e"), filtered("null"), "Modified", id="mended"),
        pytest.param(None, filtered("null", error="e"), "Added", id="new and failing"),
    ],
)
def test_what_counts_as_a_change(first: Filtered | None, second: Filtered, change: str | None) -> None:
    view = View(keep_objects=True)
    if first is not None:
        view.put(KEY, b"old", first)
    assert view.put(KEY, b"new", second) == change
    assert view.get(KEY) == Item(b"new", second.result)
    assert view.failing == ({} if second.error is None else {KEY: second.error})


def test_without_a_filter_every_version_is_a_change() -> None:
    view = View(keep_objects=True)
    assert [view.put(KEY, b"1", None), view.put(KEY, b"1", None)] == ["Added", "Modified"]


@pytest.mark.parametrize(
    ("keep_objects", "result", "item"),
    [
        pytest.param(True, filtered("1"), Item(b"{}", b"1"), id="both"),
        pytest.param(True, None, Item(b"{}", None), id="object"),
        pytest.param(False, filtered("1"), Item(None, b"1"), id="filter result"),
        pytest.param(False, None, Item(None, None), id="nothing but the name"),
    ],
)
def test_what_is_kept(keep_objects: bool, result: Filtered | None, item: Item) -> None:
    view = View(keep_objects=keep_objects)
    view.put(KEY, b"{}", result)
    assert view.entries() == [(KEY, item)]
    assert view.drop(KEY) == item
    assert (len(view), view.kept_bytes) == (0, 0)


def test_bytes_are_not_copied() -> None:
    view, document = View(keep_objects=True), b'{"some": "object"}'
    view.put(KEY, document, None)
    [(_, item)] = view.entries()
    assert item.object is document


def test_unknown_objects_can_be_dropped() -> None:
    assert View(keep_objects=True).drop(KEY) is None


def test_a_dropped_object_fails_no_more() -> None:
    view = View(keep_objects=True)
    view.put(KEY, b"{}", filtered("null", error="e"))
    view.drop(KEY)
    assert not view.failing


KEYS = st.tuples(st.sampled_from(["", "a", "a-b", "b"]), st.sampled_from("xyz"))


@given(st.lists(st.tuples(KEYS, st.none() | st.integers(0, 3))))
def test_a_view_is_a_sorted_map(steps: list[tuple[tuple[str, str], int | None]]) -> None:
    view, model = View(keep_objects=True), dict[tuple[str, str], bytes]()
    for key, number in steps:
        if number is None:
            known = model.pop(key, None)
            dropped = view.drop(key)
            assert (None if dropped is None else dropped.object) == known
        else:
            model[key] = b"x" * number
            view.put(key, model[key], Filtered(b"%d" % number))
    assert [(key, item.object) for key, item in view.entries()] == sorted(model.items())
    assert view.kept_bytes == sum(len(value) + 1 for value in model.values())
