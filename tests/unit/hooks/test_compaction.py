"""Which binding contexts are dropped because a later one says the same or more."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon_operator.hooks.compaction import collapse_repeats, compact
from addon_operator.hooks.config.model import Kubernetes, Schedule
from addon_operator.hooks.context import Context, LifecycleContext, ObjectEvent, Synchronization, Tick, group_of
from addon_operator.kube.refs import WatchEvent

PODS = Kubernetes("pods", "Pod", label_selector="app=x")
NODES = Kubernetes("nodes", "Node", allow_failure=True)


def event(kind: WatchEvent, name: str = "a", version: int = 0, binding: Kubernetes = PODS) -> ObjectEvent:
    return ObjectEvent(binding, kind, b"%d" % version, None, binding.kind, "ns", name)


def tick(name: str, *, group: str = "", allow_failure: bool = False) -> Tick:
    return Tick(Schedule(name, "* * * * *", allow_failure, "main", (), group))


def in_group(group: str, name: str = "pods", *, allow_failure: bool = False) -> ObjectEvent:
    return event("Added", binding=dataclasses.replace(PODS, name=name, group=group, allow_failure=allow_failure))


def sync(name: str = "pods", group: str = "", *, wait: bool = True, run: bool = True) -> Synchronization:
    return Synchronization(
        Kubernetes(name, "Pod", wait_for_synchronization=wait, run_on_synchronization=run, group=group)
    )


@pytest.mark.parametrize(
    ("contexts", "expected"),
    [
        pytest.param([in_group("g", "a"), in_group("g", "b")], [in_group("g", "b")], id="a group"),
        pytest.param([sync("a", "g"), sync("b", "g")], [sync("b", "g")], id="a group's Synchronizations"),
        pytest.param([sync("a"), sync("b")], [sync("a"), sync("b")], id="Synchronizations without a group"),
        pytest.param([in_group("g", "a"), tick("t", group="g")], [tick("t", group="g")], id="a group of two types"),
        pytest.param([in_group("g"), in_group("h")] * 2, [in_group("g"), in_group("h")] * 2, id="groups in turn"),
        pytest.param([in_group("g"), event("Added")] * 2, [in_group("g"), event("Added")] * 2, id="not neighbours"),
        pytest.param([event("Added"), event("Added")], [event("Added"), event("Added")], id="no group"),
        pytest.param([tick("t"), tick("t"), tick("t")], [tick("t")], id="missed ticks"),
        pytest.param([tick("t"), tick("u"), tick("t")], [tick("t"), tick("u"), tick("t")], id="two schedules"),
        pytest.param(
            [in_group("g", "strict"), in_group("g", "lenient", allow_failure=True)], [in_group("g", "strict")],
            id="one of the group must not fail",
        ),
        pytest.param([LifecycleContext("beforeAll")] * 2, [LifecycleContext("beforeAll")] * 2, id="lifecycle"),
    ],
)  # fmt: skip
def test_adjacent_contexts_that_say_the_same_are_collapsed(contexts: list[Context], expected: list[Context]) -> None:
    assert collapse_repeats(contexts) == tuple(expected)


SOME_CONTEXTS = st.lists(
    st.one_of(
        st.builds(in_group, st.sampled_from("gh"), st.sampled_from("abc")),
        st.builds(tick, st.sampled_from("tu"), group=st.sampled_from(["", "g"])),
        st.builds(event, st.sampled_from(["Added", "Modified", "Deleted"]), st.sampled_from("xy")),
    ),
    min_size=1,
    max_size=30,
)


def says(context: Context) -> object:
    """What neighbours have in common that are compacted; its own identity if they never are."""
    if group_of(context):
        return group_of(context)
    return context if isinstance(context, Tick) else id(context)


@given(SOME_CONTEXTS)
def test_the_last_of_neighbours_stays(contexts: list[Context]) -> None:
    assert list(collapse_repeats(contexts)) == [list(same)[-1] for _, same in itertools.groupby(contexts, key=says)]


@pytest.mark.parametrize(
    ("contexts", "expected"),
    [
        pytest.param("M1 M2", "M2", id="the later change"),
        pytest.param("A1 M2", "A2", id="new, and changed since"),
        pytest.param("A1 M2 D3", "", id="came and went"),
        pytest.param("A1 D2 A3", "A3", id="came and went and came"),
        pytest.param("M1 A2 D3", "", id="made again by somebody who hears of no deletions, and deleted"),
        pytest.param("M1 D2", "D2", id="deleted"),
        pytest.param("D1 A2", "D1 A2", id="made again"),
        pytest.param("D1 A2 M3", "D1 A3", id="made again and changed"),
        pytest.param("D1 A2 D3 A4", "D1 A4", id="made again twice"),
        pytest.param("D1 A2 D3", "D1", id="made again and deleted again"),
        pytest.param("D1 M2 D3", "D3", id="deleted twice for somebody who hears of no additions"),
        pytest.param("M1 A2", "A2", id="made again by somebody who hears of no deletions"),
        pytest.param("D1 M2", "D1 M2", id="made again for somebody who hears of no additions"),
    ],
)
def test_events_of_an_object_are_compacted_above_the_bound(contexts: str, expected: str) -> None:
    assert compact(written(contexts), limit=1, maybe_seen=0) == written(expected)
    assert compact(written(contexts), limit=100) == written(contexts)


def test_what_a_failed_run_may_have_shown_is_not_forgotten() -> None:
    new, other = (event("Added", name, 1) for name in ("a", "b"))
    contexts = (new, other, event("Modified", "a", 2))
    compacted = compact(contexts, limit=1, maybe_seen=1)
    assert compacted == (event("Added", "a", 2), other)
    gone = tuple(event("Deleted", name, 3) for name in ("b", "a"))
    assert compact((*compacted, *gone), limit=1, maybe_seen=1) == (event("Deleted", "a", 3),)


def written(text: str) -> tuple[ObjectEvent, ...]:
    kinds: dict[str, WatchEvent] = {"A": "Added", "M": "Modified", "D": "Deleted"}
    return tuple(event(kinds[word[0]], version=int(word[1:])) for word in text.split())


def test_compacted_events_stand_where_the_last_of_them_was() -> None:
    compacted = compact(
        (event("Added", "a", 1), event("Added", "b", 2), event("Modified", "a", 3)), limit=2, maybe_seen=0
    )
    assert compacted == (event("Added", "b", 2), event("Added", "a", 3))


def test_bindings_are_told_apart_by_what_they_say_not_by_their_names() -> None:
    alike, other = dataclasses.replace(PODS), dataclasses.replace(PODS, label_selector="")
    contexts = tuple(event("Modified", "a", version, one) for version, one in enumerate([PODS, alike, other, other]))
    assert compact(contexts, limit=1, maybe_seen=0) == (contexts[1], contexts[3])


def test_groups_and_schedules_keep_one_context_each_above_the_bound() -> None:
    contexts = (in_group("g", "a"), tick("t"), in_group("h"), event("Added"), tick("t"), in_group("g", "b"))
    assert compact(contexts, limit=5) == (in_group("h"), event("Added"), tick("t"), in_group("g", "b"))


def test_what_may_fail_does_not_hide_what_must_not_above_the_bound() -> None:
    strict, lenient = in_group("g", "a"), in_group("g", "b", allow_failure=True)
    assert compact((strict, event("Added"), lenient), limit=2) == (event("Added"), strict)


KINDS: tuple[WatchEvent, ...] = ("Added", "Modified", "Deleted")
EVENTS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from("abc"), st.sampled_from([PODS, NODES])),
    max_size=30,
).map(lambda rows: tuple(event(kind, name, number, one) for number, (kind, name, one) in enumerate(rows)))

PAIRS: dict[tuple[WatchEvent, WatchEvent], WatchEvent | None] = {
    ("Added", "Added"): "Added",
    ("Added", "Modified"): "Added",
    ("Added", "Deleted"): None,
    ("Modified", "Added"): "Added",
    ("Modified", "Modified"): "Modified",
    ("Modified", "Deleted"): "Deleted",
    ("Deleted", "Deleted"): "Deleted",
}


def compacted_pair_by_pair(events: list[ObjectEvent]) -> list[ObjectEvent]:
    """Replaces two events of an object, with no third one between them, by one or none, as long as there are such."""
    for (place, first), (later, second) in itertools.combinations(enumerate(events), 2):
        between = events[place + 1 : later]
        pair = (first.watch_event, second.watch_event)
        if about(first) == about(second) and pair in PAIRS and all(about(other) != about(first) for other in between):
            kind = PAIRS[pair]
            newer = [dataclasses.replace(second, watch_event=kind)] if kind else []
            return compacted_pair_by_pair([*events[:place], *between, *newer, *events[later + 1 :]])
    return events


def about(event: ObjectEvent) -> tuple[str, str]:
    return event.binding.name, event.name


@given(EVENTS)
def test_compaction_is_the_same_pair_by_pair(events: tuple[ObjectEvent, ...]) -> None:
    assert list(compact(events, limit=0, maybe_seen=0)) == compacted_pair_by_pair(list(events))


@given(EVENTS, st.integers(0, 30))
def test_a_hook_that_sees_the_compacted_events_knows_what_exists(
    events: tuple[ObjectEvent, ...], maybe_seen: int
) -> None:
    compacted = compact(events, limit=0, maybe_seen=maybe_seen)
    assert all(isinstance(one, ObjectEvent) for one in compacted)
    seen = {about(one) for one in events[:maybe_seen]}
    unseen = {one: data for one, data in present(events).items() if one not in seen}
    known = {one: data for one, data in present(compacted).items() if one not in seen}
    assert {one: present(compacted)[one] for one in seen} == {one: present(events)[one] for one in seen}
    assert {one for one, data in known.items() if data} == {one for one, data in unseen.items() if data}
    assert known.items() <= unseen.items()
    assert len(compacted) <= 2 * len({about(one) for one in events})


def present(events: tuple[Context, ...]) -> dict[tuple[str, str], bytes | None]:
    return {
        about(one): None if one.watch_event == "Deleted" else one.object
        for one in events
        if isinstance(one, ObjectEvent)
    }
