"""Which waiting runs of a hook become one task, and what that task carries."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon_operator.hooks.call import HookId
from addon_operator.hooks.config.model import Kubernetes, Schedule
from addon_operator.hooks.context import Context, LifecycleContext, ObjectEvent, Synchronization, Tick
from addon_operator.kube.refs import WatchEvent
from addon_operator.tasks.coalescer import COALESCE_AT, CoalescedTask, Coalescer, coalesce, coalescing_key
from addon_operator.tasks.task import Converge, Payload, Reason, RunHook, Task

HOOK, OTHER = HookId("m", "hooks/x.sh"), HookId("m", "hooks/y.sh")
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


def run_of(*contexts: Context, hook: HookId = HOOK, combines: bool = True) -> RunHook:
    return RunHook(hook, contexts, combines=combines)


def task(payload: Payload, *, converge: bool = False) -> Task:
    return Task(payload, Reason.KUBERNETES, converge=converge)


REACTION = run_of(event("Added"))
STARTUP = run_of(LifecycleContext("onStartup"), combines=False)
V0 = run_of(event("Added"), combines=False)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param(REACTION, run_of(event("Deleted", binding=NODES)), True, id="events of two bindings"),
        pytest.param(REACTION, run_of(tick("hourly")), True, id="event and tick"),
        pytest.param(REACTION, run_of(in_group("g")), True, id="event and group"),
        pytest.param(REACTION, run_of(event("Added"), hook=OTHER), False, id="another hook"),
        pytest.param(REACTION, run_of(event("Added"), hook=HookId(None, HOOK.name)), False, id="global of that name"),
        pytest.param(REACTION, run_of(sync()), False, id="event and Synchronization"),
        pytest.param(run_of(sync()), run_of(sync("nodes")), True, id="Synchronizations"),
        pytest.param(run_of(sync()), run_of(sync(wait=False)), False, id="only one is waited for"),
        pytest.param(run_of(sync()), run_of(sync(run=False)), False, id="only one runs the hook"),
        pytest.param(
            run_of(sync("a", "g")), run_of(sync("b", "g", wait=False)), False, id="a group, one is waited for"
        ),
        pytest.param(run_of(sync("a", "g")), run_of(in_group("g")), False, id="a group's Synchronization and event"),
        pytest.param(STARTUP, STARTUP, False, id="lifecycle"),
        pytest.param(REACTION, STARTUP, False, id="event and lifecycle"),
        pytest.param(V0, V0, False, id="v0"),
        pytest.param(REACTION, Converge(), False, id="no hook"),
        pytest.param(Converge(), Converge(), False, id="no hooks"),
    ],
)
def test_what_may_be_done_in_one_run(first: Payload, second: Payload, expected: bool) -> None:
    common = coalescing_key(task(first))
    assert (common is not None and common == coalescing_key(task(second))) is expected


def test_what_goes_away_with_a_converge_takes_nothing_with_it() -> None:
    assert coalescing_key(task(REACTION, converge=True)) != coalescing_key(task(REACTION))
    assert coalescing_key(task(REACTION, converge=True)) == coalescing_key(task(REACTION, converge=True))


def test_coalesced_tasks_are_the_first_with_the_contexts_of_all_in_order() -> None:
    tasks = [Task(run_of(event("Added", name)), reason) for name, reason in zip("cab", Reason, strict=False)]
    coalesced = coalesce(tasks)
    assert coalesced == dataclasses.replace(tasks[0], payload=run_of(*(event("Added", name) for name in "cab")))


def test_coalesced_events_of_a_group_are_one_context() -> None:
    tasks = [task(run_of(in_group("g", name))) for name in "abc"]
    assert coalesce(tasks).payload == run_of(in_group("g", "c"))


def test_coalesced_synchronizations_of_a_group_stay_apart_because_each_binding_waits_for_its_own() -> None:
    syncs = [sync(name, "g") for name in "ab"]
    assert coalesce([task(run_of(one)) for one in syncs]).payload == run_of(*syncs)


SOME_CONTEXTS = st.lists(
    st.one_of(
        st.builds(in_group, st.sampled_from("gh"), st.sampled_from("abc")),
        st.builds(tick, st.sampled_from("tu"), group=st.sampled_from(["", "g"])),
        st.builds(event, st.sampled_from(["Added", "Modified", "Deleted"]), st.sampled_from("xy")),
    ),
    min_size=1,
    max_size=30,
)


@given(SOME_CONTEXTS, st.data())
def test_tasks_may_be_coalesced_in_pieces(contexts: list[Context], data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(contexts)))
    tasks = [task(run_of(context)) for context in contexts]
    assert coalesce([coalesce(tasks[:cut]), *tasks[cut:]]) == coalesce(tasks)


# --- which entries become one

PAYLOADS: dict[str, Payload] = {
    "r": REACTION,
    "o": run_of(event("Added"), hook=OTHER),
    "s": run_of(sync()),
    "l": STARTUP,
    "m": Converge(),
}
ALMOST = COALESCE_AT - 1


def added(kinds: str, coalescer: Coalescer[int]) -> list[tuple[int, ...]]:
    """Adds entries, numbered from 0; returns those that have to become one after each of them, if any."""
    answers = [coalescer.add(number, task(PAYLOADS[kind])) for number, kind in enumerate(kinds)]
    return [tuple(answer) for answer in answers if answer]


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        pytest.param("r" * ALMOST, [], id="too few"),
        pytest.param("r" * COALESCE_AT, [range(COALESCE_AT)], id="enough"),
        pytest.param("m".join("r" * COALESCE_AT), [range(0, 2 * COALESCE_AT, 2)], id="between other tasks"),
        pytest.param(
            "ro" * COALESCE_AT, [range(0, 2 * COALESCE_AT, 2), range(1, 2 * COALESCE_AT, 2)], id="two hooks in turn"
        ),
        pytest.param("r" * ALMOST + "s" + "r" * ALMOST, [], id="not across a Synchronization of the hook"),
        pytest.param("r" * ALMOST + "l" + "r" * ALMOST, [], id="not across a lifecycle run of the hook"),
        pytest.param("r" * 5 + "s" + "r" * COALESCE_AT, [range(6, 6 + COALESCE_AT)], id="after a Synchronization"),
        pytest.param("s" * COALESCE_AT, [], id="Synchronizations"),
        pytest.param("m" * COALESCE_AT, [], id="no hook"),
    ],
)
def test_which_waiting_tasks_become_one(kinds: str, expected: list[range]) -> None:
    assert added(kinds, Coalescer()) == [tuple(entries) for entries in expected]


def test_entries_that_have_left_the_queue_do_not_count() -> None:
    coalescer = Coalescer[int]()
    assert added("r" * ALMOST, coalescer) == []
    for entry in (0, 0, COALESCE_AT):  # a second removal, and one of an entry that was never added
        coalescer.remove(entry)
    assert coalescer.add(COALESCE_AT, task(REACTION)) == ()
    assert coalescer.add(COALESCE_AT + 1, task(REACTION)) == (*range(1, ALMOST), COALESCE_AT, COALESCE_AT + 1)


def test_entries_before_a_synchronization_do_not_end_what_is_counted_after_it() -> None:
    coalescer = Coalescer[int]()
    assert added("rs" + "r" * ALMOST, coalescer) == []
    coalescer.remove(0)
    assert coalescer.add(COALESCE_AT + 1, task(REACTION)) == tuple(range(2, COALESCE_AT + 2))


def test_a_coalesced_task_is_all_of_them() -> None:
    tasks = [task(run_of(event("Added", str(number)))) for number in range(5)]
    coalesced = CoalescedTask(tasks[0])
    coalesced.add(tasks[1:3])
    coalesced.add(tasks[3:])
    assert coalesced.task == coalesce(tasks)
    coalesced.task = tasks[1]
    assert coalesced.task is tasks[1]
