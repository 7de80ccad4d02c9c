"""Hook tasks in a queue: what is done in one run, and what a burst leaves behind; in virtual time."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import sys
from collections.abc import Callable, Coroutine, Sequence
from types import FrameType
from typing import Literal, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from addon_operator.hooks.call import HookId
from addon_operator.hooks.compaction import MOST_CONTEXTS
from addon_operator.hooks.config.model import Kubernetes, Schedule
from addon_operator.hooks.context import Context, LifecycleContext, ObjectEvent, Synchronization, Tick
from addon_operator.retry import RetryPolicy
from addon_operator.tasks.coalescer import COALESCE_AT
from addon_operator.tasks.queue import Attempt, TaskQueue
from addon_operator.tasks.task import Again, Done, Outcome, Park, Reason, Retry, RunHook, RunModules, Task
from tests.fakes import clock

Answer: TypeAlias = Literal["done", "slow", "retry", "rest", "again", "park"]
STARTUP = LifecycleContext("onStartup")


def event(name: int | str, hook: str = "a") -> ObjectEvent:
    return ObjectEvent(Kubernetes(f"pods of {hook}", "Pod"), "Modified", b"{}", None, "Pod", "ns", str(name))


def sync(name: int | str, hook: str = "a") -> Synchronization:
    return Synchronization(Kubernetes(f"{name} of {hook}", "Pod"))


def tick() -> Tick:
    return Tick(Schedule("hourly", "0 * * * *", allow_failure=False, queue="main", include_snapshots_from=(), group=""))


def hook_task(context: Context, hook: str = "a") -> Task:
    combines = not isinstance(context, LifecycleContext)
    return Task(RunHook(HookId("m", hook), (context,), combines=combines), Reason.KUBERNETES)


def module_task(name: str) -> Task:
    return Task(RunModules((name,)), Reason.RELOAD_ALL)


def story(task: Task) -> str:
    """The hook and what it is told, or the module."""
    if isinstance(task.payload, RunHook):
        return f"{task.payload.hook.name}: {' '.join(map(title, task.payload.contexts))}"
    return task.payload.modules[0] if isinstance(task.payload, RunModules) else ""


def title(context: Context) -> str:
    match context:
        case ObjectEvent(name=name):
            return name
        case Synchronization(binding=binding):
            return binding.name.split()[0]
        case LifecycleContext(kind=kind):
            return kind
        case _:
            return context.binding.name


class Bench:
    """A queue whose attempts end as told, all others well; what was done is written down."""

    def __init__(self, answers: Sequence[Answer] = ()) -> None:
        self.tried: list[Task] = []
        self.done: list[Task] = []
        self.attempts: list[Attempt] = []
        self.opened = asyncio.Event()
        self._answers = list(answers)
        retry = RetryPolicy(5.0, 30.0)
        self.queue = TaskQueue("main", retry=retry, observe=self.attempts.append)

    async def _handle(self, task: Task, queue: str) -> Outcome:
        self.tried.append(task)
        match self._answers.pop(0) if self._answers else "done":
            case "retry":
                return Retry("no")
            case "again":
                return Again(task.payload, head=(module_task("before"),))
            case "park":
                return Park(self.opened.wait)
            case "rest" if isinstance(task.payload, RunHook) and len(task.payload.contexts) > 1:
                run, contexts = task.payload, task.payload.contexts
                self.done.append(Task(RunHook(run.hook, contexts[:1]), task.reason))
                return Retry("not all", payload=RunHook(run.hook, contexts[1:], combines=run.combines))
            case "slow":
                await asyncio.sleep(7)
        if task in self.queue.tasks:  # nobody has removed it meanwhile
            self.done.append(task)
        return Done()


def scenario(answers: Sequence[Answer], steps: Callable[[Bench], Coroutine[object, object, None]]) -> Bench:
    """Takes steps with a queue at work, then lets it finish."""

    async def main() -> Bench:
        bench = Bench(answers)
        worker = asyncio.create_task(bench.queue.run(bench._handle), name="queue/main")
        await steps(bench)
        await asyncio.sleep(10_000)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        assert not bench.queue.tasks
        return bench

    return clock.run(main())


def test_events_that_come_while_the_head_waits_for_its_retry_are_done_with_it() -> None:
    async def steps(bench: Bench) -> None:
        bench.queue.add_tail([hook_task(event(1))])
        await asyncio.sleep(1)
        bench.queue.add_tail([hook_task(event(2)), hook_task(tick())])
        await asyncio.sleep(5)
        (listed,) = bench.queue.listing()
        assert listed.description.endswith(":a:pods of a,hourly in 3 contexts:Kubernetes:failures 2:no")
        assert listed.age_s == 1

    bench = scenario(["retry", "retry"], steps)
    assert [story(task) for task in bench.tried] == ["a: 1", "a: 1 2 hourly", "a: 1 2 hourly"]
    assert len({task.id for task in bench.tried}) == 1


def test_events_that_come_while_the_head_is_parked_are_done_with_it() -> None:
    async def steps(bench: Bench) -> None:
        bench.queue.add_tail([hook_task(event(1))])
        await asyncio.sleep(1)
        bench.queue.add_tail([hook_task(event(2))])
        bench.opened.set()

    assert [story(task) for task in scenario(["park"], steps).tried] == ["a: 1", "a: 1 2"]


def test_events_that_come_while_the_head_runs_are_not_lost_with_it() -> None:
    async def steps(bench: Bench) -> None:
        bench.queue.add_tail([module_task("before"), hook_task(event("first"))])
        await asyncio.sleep(1)
        for number in range(COALESCE_AT + 50):
            bench.queue.add_tail([hook_task(event(number))])

    _, first, second = scenario(["done", "slow"], steps).done
    assert story(first) == "a: first"
    assert story(second) == f"a: {' '.join(map(str, range(COALESCE_AT + 50)))}"


@pytest.mark.parametrize(
    ("between", "seen"),
    [
        pytest.param(hook_task(event("x", "b"), "b"), "b: x", id="event of another hook"),
        pytest.param(hook_task(sync("sync")), "a: sync", id="Synchronization"),
        pytest.param(hook_task(STARTUP), "a: onStartup", id="lifecycle"),
        pytest.param(module_task("m"), "m", id="module"),
    ],
)
def test_nothing_is_combined_across_what_cannot_be(between: Task, seen: str) -> None:
    async def steps(bench: Bench) -> None:
        bench.queue.add_tail([hook_task(event(1)), hook_task(event(2)), between, hook_task(event(3))])

    assert [story(task) for task in scenario([], steps).tried] == ["a: 1 2", seen, "a: 3"]


def test_synchronizations_are_combined() -> None:
    async def steps(bench: Bench) -> None:
        bench.queue.add_tail([hook_task(sync("one")), hook_task(sync("two")), hook_task(event(1))])

    assert [story(task) for task in scenario([], steps).tried] == ["a: one two", "a: 1"]


def test_a_burst_of_two_hooks_in_turn_leaves_few_tasks_and_mixes_nothing() -> None:
    async def steps(bench: Bench) -> None:
        bench.queue.add_tail([module_task("head")])
        await asyncio.sleep(1)
        for number in range(5_000):
            bench.queue.add_tail([hook_task(event(number, "a"), "a")])
            bench.queue.add_tail([hook_task(event(number, "b"), "b")])
            assert len(bench.queue) < 2 * COALESCE_AT

    bench = scenario(["slow"], steps)
    for hook in "ab":
        runs = [task.payload for task in bench.done if isinstance(task.payload, RunHook)]
        seen = [context for run in runs if run.hook.name == hook for context in run.contexts]
        assert seen == [event(number, hook) for number in range(5_000)]


def test_many_tasks_of_a_hook_become_one_in_the_place_of_the_first_and_others_keep_theirs() -> None:
    async def steps(bench: Bench) -> None:
        queue = bench.queue
        queue.add_tail([hook_task(event("head"))])
        await asyncio.sleep(1)
        queue.add_tail([module_task("1"), *(hook_task(event("x")) for _ in range(COALESCE_AT - 1)), module_task("2")])
        assert len(queue) == COALESCE_AT + 2
        queue.add_tail([hook_task(event("last")), hook_task(event("new"))])
        stories = [story(task) for task in queue.tasks]
        assert stories == ["a: head", "1", f"a: {'x ' * (COALESCE_AT - 1)}last", "2", "a: new"]

    scenario(["slow"], steps)


@pytest.mark.parametrize(
    "wall",
    [
        pytest.param(hook_task(sync("wall")), id="Synchronization"),
        pytest.param(hook_task(STARTUP), id="lifecycle"),
        pytest.param(dataclasses.replace(hook_task(event("wall")), converge=True), id="part of a converge"),
    ],
)
def test_no_event_overtakes_another_kind_of_task_of_its_hook(wall: Task) -> None:
    async def steps(bench: Bench) -> None:
        queue = bench.queue
        queue.add_tail([module_task("head")])
        await asyncio.sleep(1)
        queue.add_tail(hook_task(event("x")) for _ in range(COALESCE_AT - 1))
        queue.add_tail([wall])
        queue.add_tail(hook_task(event("y")) for _ in range(COALESCE_AT))
        assert [story(task) for task in queue.tasks] == [
            "head", *["a: x"] * (COALESCE_AT - 1), story(wall), f"a: {' '.join('y' * COALESCE_AT)}",
        ]  # fmt: skip

    scenario(["slow"], steps)


BURST = event("x")


def test_a_burst_for_few_objects_does_not_grow_without_bound() -> None:
    async def steps(bench: Bench) -> None:
        queue = bench.queue
        queue.add_tail([module_task("head")])
        await asyncio.sleep(1)
        for number in range(2 * MOST_CONTEXTS + 5_000):
            queue.add_tail([hook_task(dataclasses.replace(BURST, name=str(number % 3)))])
        in_memory = sum(isinstance(one, ObjectEvent) and one.binding is BURST.binding for one in gc.get_objects())
        assert in_memory < MOST_CONTEXTS + 2 * COALESCE_AT

    bench = scenario(["slow"], steps)
    assert isinstance(run := bench.done[-1].payload, RunHook)
    assert {title(context) for context in run.contexts} == {"0", "1", "2"}


def test_the_work_of_a_burst_grows_no_faster_than_the_burst() -> None:
    def calls(count: int) -> int:
        total = 0

        def count_calls(frame: FrameType, kind: str, argument: object) -> None:
            nonlocal total
            total += kind in {"call", "c_call"}

        async def steps(bench: Bench) -> None:
            tasks = [hook_task(event(number)) for number in range(count)]
            before = sys.getprofile()
            sys.setprofile(count_calls)
            try:
                for task in tasks:
                    bench.queue.add_tail([task])
                await asyncio.sleep(1)
            finally:
                sys.setprofile(before)
            assert sum(len(run.contexts) for task in bench.done if isinstance(run := task.payload, RunHook)) == count

        scenario([], steps)
        return total

    assert calls(12_000) < 5 * calls(3_000)


# --- whatever happens, each context is delivered once, in order, to its own hook


class Play:
    """Steps that may be taken with a queue, and what they must lead to."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.added: dict[str, list[Context]] = {"a": [], "b": []}
        self.removed: list[Context] = []
        self.modules: list[str] = []
        self._number = 0

    def next(self) -> int:
        self._number += 1
        return self._number

    def add(self, hook: str, context: Context) -> None:
        self.added[hook].append(context)
        self.bench.queue.add_tail([hook_task(context, hook)])

    async def take(self, step: tuple[str, str, int]) -> None:
        what, hook, count = step
        match what:
            case "burst":
                for _ in range(count):
                    self.add(hook, event(self.next(), hook))
            case "in turn":
                for _ in range(count):
                    self.add("a", event(self.next(), "a"))
                    self.add("b", event(self.next(), "b"))
            case "sync":
                self.add(hook, sync(self.next(), hook))
            case "lifecycle":
                self.add(hook, LifecycleContext("onStartup"))
            case "module":
                self.modules.append(str(self.next()))
                self.bench.queue.add_tail([module_task(self.modules[-1])])
            case "head":
                self.bench.queue.add_head([module_task("head")])
            case "remove":
                self.remove(lambda run: run.hook.name == hook and count % 2 == len(run.contexts) % 2)
            case _:
                await asyncio.sleep(count / 10)

    def remove(self, unwanted: Callable[[RunHook], bool]) -> None:
        dropped = self.bench.queue.remove(lambda task: isinstance(task.payload, RunHook) and unwanted(task.payload))
        self.removed += [
            context for task in dropped if isinstance(run := task.payload, RunHook) for context in run.contexts
        ]

    def check(self) -> None:
        runs = [task.payload for task in self.bench.done if isinstance(task.payload, RunHook)]
        delivered = {
            hook: [context for run in runs if run.hook.name == hook for context in run.contexts] for hook in "ab"
        }
        removed = set(map(id, self.removed))
        for hook, contexts in self.added.items():
            expected = [context for context in contexts if id(context) not in removed]
            assert list(map(id, delivered[hook])) == list(map(id, expected))
        for run in runs:
            kinds = {type(context) for context in run.contexts}
            assert kinds <= {ObjectEvent} or len(run.contexts) == 1 or kinds == {Synchronization}
        assert [name for task in self.bench.done if (name := story(task)).isdigit()] == self.modules


STEPS = st.tuples(
    st.sampled_from(["burst", "burst", "in turn", "sync", "lifecycle", "module", "head", "remove", "sleep", "sleep"]),
    st.sampled_from("ab"),
    st.one_of(st.integers(1, 5), st.integers(1, 130)),
)
ANSWERS = st.lists(st.sampled_from(["done", "slow", "retry", "rest", "again", "park"]), max_size=15)


@settings(deadline=None)
@given(st.lists(STEPS, max_size=20), ANSWERS)
def test_each_context_is_delivered_once_in_order_and_to_its_own_hook(
    steps: list[tuple[str, str, int]], answers: list[Answer]
) -> None:
    plays: list[Play] = []

    async def main(bench: Bench) -> None:
        play = Play(bench)
        plays.append(play)
        for step in steps:
            await play.take(step)
        bench.opened.set()

    scenario(answers, main)
    plays[0].check()
