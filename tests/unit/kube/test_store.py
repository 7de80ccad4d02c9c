"""What is kept of objects, and what counts as a change of one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon_operator.kube.informers.projection import Filtered
from addon_operator.kube.informers.store import Item, Store

KEY = ("n", "a")


def filtered(text: str, *, error: str | None = None) -> Filtered:
    return Filtered(text.encode(), error)


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
    store = Store(keep_objects=True)
    if first is not None:
        store.put(KEY, b"old", first)
    assert store.put(KEY, b"new", second) == change
    assert store.get(KEY) == Item(b"new", second.result)
    assert store.failing == ({} if second.error is None else {KEY: second.error})


def test_without_a_filter_every_version_is_a_change() -> None:
    store = Store(keep_objects=True)
    assert [store.put(KEY, b"1", None), store.put(KEY, b"1", None)] == ["Added", "Modified"]


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
    store = Store(keep_objects=keep_objects)
    store.put(KEY, b"{}", result)
    assert store.entries() == [(KEY, item)]
    assert store.delete(KEY) == item
    assert (len(store), store.kept_bytes) == (0, 0)


def test_bytes_are_not_copied() -> None:
    store, document = Store(keep_objects=True), b'{"some": "object"}'
    store.put(KEY, document, None)
    [(_, item)] = store.entries()
    assert item.object is document


def test_unknown_objects_can_be_deleted() -> None:
    assert Store(keep_objects=True).delete(KEY) is None


def test_a_deleted_object_fails_no_more() -> None:
    store = Store(keep_objects=True)
    store.put(KEY, b"{}", filtered("null", error="e"))
    store.delete(KEY)
    assert not store.failing


KEYS = st.tuples(st.sampled_from(["", "a", "a-b", "b"]), st.sampled_from("xyz"))


@given(st.lists(st.tuples(KEYS, st.none() | st.integers(0, 3))))
def test_a_store_is_a_sorted_map(steps: list[tuple[tuple[str, str], int | None]]) -> None:
    store, model = Store(keep_objects=True), dict[tuple[str, str], bytes]()
    for key, number in steps:
        if number is None:
            known = model.pop(key, None)
            deleted = store.delete(key)
            assert (None if deleted is None else deleted.object) == known
        else:
            model[key] = b"x" * number
            store.put(key, model[key], Filtered(b"%d" % number))
    assert [(key, item.object) for key, item in store.entries()] == sorted(model.items())
    assert store.kept_bytes == sum(len(value) + 1 for value in model.values())
