"""The strict-order queue, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

import pytest

from addon_operator.errors import HookFailed
from addon_operator.retry import RetryPolicy
from addon_operator.tasks.queue import Attempt, TaskQueue
from addon_operator.tasks.queue_set import QueueSet
from addon_operator.tasks.task import (
    Again,
    Converge,
    ConvergePhase,
    Done,
    Outcome,
    Park,
    Reason,
    Retry,
    RunModules,
    Task,
)
from tests.fakes import clock

Script = Callable[[str, int], Outcome | Awaitable[Outcome]]


def module_task(name: str) -> Task:
    return Task(RunModules((name,)), Reason.RELOAD_ALL)


class Bench:
    """A queue whose handler follows a script and writes down when it was called for what."""

    def __init__(self, script: Script) -> None:
        self.calls: list[tuple[float, str]] = []
        self.attempts: list[Attempt] = []
        self._script = script
        retry = RetryPolicy(5.0, 30.0)
        self.queue = TaskQueue("main", retry=retry, observe=self.attempts.append)

    async def _handle(self, task: Task, queue: str) -> Outcome:
        assert queue == self.queue.name
        name = task.payload.modules[0] if isinstance(task.payload, RunModules) else str(task.payload)
        self.calls.append((asyncio.get_running_loop().time(), name))
        answer = self._script(name, sum(1 for _, called in self.calls if called == name))
        return answer if isinstance(answer, Done | Again | Retry | Park) else await answer

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[TaskQueue]:
        worker = asyncio.create_task(self.queue.run(self._handle), name="queue/main")
        try:
            yield self.queue
        finally:
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)


def scenario(script: Script, steps: Callable[[TaskQueue], Coroutine[object, object, None]]) -> Bench:
    async def main() -> Bench:
        bench = Bench(script)
        async with bench.at_work() as queue:
            await steps(queue)
        return bench

    return clock.run(main())


def test_tasks_run_in_order_and_follow_ups_where_they_belong() -> None:
    def script(name: str, call: int) -> Outcome:
        return Done(head=(module_task("h1"), module_task("h2")), tail=(module_task("t"),)) if name == "a" else Done()

    async def steps(queue: TaskQueue) -> None:
        queue.add_tail([module_task("a"), module_task("b")])
        await asyncio.sleep(1)
        assert len(queue) == 0

    assert [name for _, name in scenario(script, steps).calls] == ["a", "h1", "h2", "b", "t"]


def test_a_failed_head_is_retried_with_growing_delays_and_keeps_its_place() -> None:
    def script(name: str, call: int) -> Outcome:
        if name == "flaky" and call <= 5:
            raise HookFailed("hooks/x.sh: exit code 1")
        return Done()

    async def steps(queue: TaskQueue) -> None:
        queue.add_tail([module_task("flaky"), module_task("next")])
        await asyncio.sleep(1)
        assert queue.status() == "sleep after fail for 5s"
        assert queue.listing()[0].description.endswith(":failures 1:hooks/x.sh: exit code 1")
        await asyncio.sleep(200)

    calls = scenario(script, steps).calls
    assert [time for time, name in calls if name == "flaky"] == [0, 5, 15, 35, 65, 95]
    assert calls[-1] == (95, "next")


def test_a_new_head_ends_the_delay_of_the_failed_one_at_once() -> None:
    def script(name: str, call: int) -> Outcome:
        return Retry("no") if name == "flaky" and call == 1 else Done()

    async def steps(queue: TaskQueue) -> None:
        queue.add_tail([module_task("flaky")])
        await asyncio.sleep(1)
        queue.add_head([module_task("config")])
        await asyncio.sleep(0.1)

    assert scenario(script, steps).calls == [(0, "flaky"), (1, "config"), (1, "flaky")]


def test_a_parked_head_resumes_by_its_condition_and_can_be_overtaken() -> None:
    opened: list[asyncio.Event] = []

    def script(name: str, call: int) -> Outcome:
        return Park(opened[0].wait) if name == "waits" and not opened[0].is_set() else Done()

    async def steps(queue: TaskQueue) -> None:
        opened.append(asyncio.Event())
        queue.add_tail([module_task("waits"), module_task("last")])
        await asyncio.sleep(1)
        queue.add_head([module_task("first")])
        await asyncio.sleep(1)
        opened[0].set()
        await asyncio.sleep(1)

    calls = scenario(script, steps).calls
    assert [name for _, name in calls] == ["waits", "first", "waits", "waits", "last"]


def test_a_parked_head_goes_on_with_what_is_left_to_do() -> None:
    def script(name: str, call: int) -> Outcome:
        return Park(lambda: asyncio.sleep(7), payload=RunModules(("rest",))) if name == "all" else Done()

    async def steps(queue: TaskQueue) -> None:
        queue.add_tail([module_task("all"), module_task("next")])
        await asyncio.sleep(10)

    assert scenario(script, steps).calls == [(0, "all"), (7, "rest"), (7, "next")]


def test_a_task_goes_on_with_another_payload_after_its_head_tasks() -> None:
    later = Converge(ConvergePhase.WAIT_BEFORE_ALL)

    def script(name: str, call: int) -> Outcome:
        return Again(later, head=(module_task("hook"),)) if name == str(Converge()) else Done()

    async def steps(queue: TaskQueue) -> None:
        queue.add_tail([Task(Converge(), Reason.RELOAD_ALL)])
        await asyncio.sleep(1)

    assert [name for _, name in scenario(script, steps).calls] == [str(Converge()), "hook", str(later)]


def test_what_a_task_asks_for_comes_behind_what_has_overtaken_it() -> None:
    async def slow() -> Outcome:
        await asyncio.sleep(10)
        return Done(head=(module_task("follows"), module_task("then")))

    def script(name: str, call: int) -> Outcome | Awaitable[Outcome]:
        return slow() if name == "slow" else Done()

    async def steps(queue: TaskQueue) -> None:
        queue.add_tail([module_task("slow"), module_task("last")])
        await asyncio.sleep(1)
        queue.add_head([module_task("urgent"), module_task("also")])
        await asyncio.sleep(20)

    assert [name for _, name in scenario(script, steps).calls] == ["slow", "urgent", "also", "follows", "then", "last"]


def test_a_removed_running_task_ends_without_its_follow_ups() -> None:
    async def slow() -> Outcome:
        await asyncio.sleep(10)
        return Done(head=(module_task("unwanted"),))

    def script(name: str, call: int) -> Outcome | Awaitable[Outcome]:
        return slow() if name == "slow" else Done()

    async def steps(queue: TaskQueue) -> None:
        queue.add_tail([module_task("slow"), module_task("also dropped")])
        await asyncio.sleep(1)
        assert len(queue.remove(lambda _: True)) == 2
        queue.add_tail([module_task("after")])
        await asyncio.sleep(20)

    assert scenario(script, steps).calls == [(0, "slow"), (10, "after")]


def test_an_interrupted_attempt_ends_its_task_and_the_next_one_runs() -> None:
    ended: list[str] = []

    async def long(name: str) -> Outcome:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append(name)
        return Done()

    async def steps(queue: TaskQueue) -> None:
        queue.add_tail([module_task("a"), module_task("b")])
        await asyncio.sleep(1)
        queue.interrupt(lambda task: task.payload == RunModules(("b",)))
        await asyncio.sleep(1)
        assert ended == []
        attempt = queue.interrupt(lambda task: task.payload == RunModules(("a",)))
        assert queue.interrupt(lambda _: True) is attempt
        assert attempt is not None
        await asyncio.wait([attempt])
        assert ended == ["a"]
        await asyncio.sleep(1)
        assert [task.payload for task in queue.tasks] == [RunModules(("b",))]

    bench = scenario(lambda name, _: long(name) if name == "a" else Park(asyncio.Event().wait), steps)
    assert bench.calls == [(0.0, "a"), (2.0, "b")]


def test_a_bug_in_a_handler_is_a_failed_attempt(capsys: pytest.CaptureFixture[str]) -> None:
    def script(name: str, call: int) -> Outcome:
        if name == "broken" and call == 1:
            raise ZeroDivisionError("oops")
        return Done()

    async def steps(queue: TaskQueue) -> None:
        queue.add_tail([module_task("broken")])
        await asyncio.sleep(10)

    bench = scenario(script, steps)
    assert [attempt.failures for attempt in bench.attempts] == [1, 0]


def test_waiting_and_working_times_are_told_apart() -> None:
    async def slow() -> Outcome:
        await asyncio.sleep(3)
        return Done()

    async def steps(queue: TaskQueue) -> None:
        queue.add_tail([module_task("a"), module_task("b")])
        await asyncio.sleep(10)

    attempts = scenario(lambda name, call: slow(), steps).attempts
    assert [(attempt.waited_s, attempt.duration_s) for attempt in attempts] == [(0, 3), (3, 3)]


def test_work_on_a_queue_is_told_with_its_name_and_time() -> None:
    told: list[tuple[str, str, float]] = []

    async def handle(task: Task, queue: str) -> Outcome:
        follow_up = (module_task("next"),) if task.payload == RunModules(("first",)) else ()
        return Done(head=follow_up)

    async def main() -> None:
        queues = QueueSet(retry=RetryPolicy(5.0, 30.0), on_action=lambda *action: told.append(action))
        queue = queues.get("side")
        queue.add_tail([module_task("unwanted")])
        queue.remove(lambda _: True)
        queue.add_head([module_task("first")])
        workers = asyncio.create_task(queues.run(handle), name="queues")
        await asyncio.sleep(1)
        workers.cancel()
        await asyncio.gather(workers, return_exceptions=True)

    clock.run(main())
    assert [(queue, action) for queue, action, _ in told] == [
        ("side", "AddTail"), ("side", "Remove"), ("side", "AddHead"), ("side", "AddBefore"),
    ]  # fmt: skip
    assert all(duration_s >= 0 for _, _, duration_s in told)
