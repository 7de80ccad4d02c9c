"""Strict-order task queues that never poll.

The head runs until it is over. A failed head waits for its delay, a parked head for its condition; both resume early
when a new head arrives, so that a corrected ConfigMap takes effect at once. Tasks are never run side by side within one
queue. Source: contract.md 2.13.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol, assert_never

from addon_operator.backoff import RetryPolicy
from addon_operator.errors import AddonOperatorError
from addon_operator.hooks.bindings import MAIN_QUEUE
from addon_operator.logs import get_logger
from addon_operator.tasks.task import Again, Done, Outcome, Park, Retry, Task, describe, kind, subject

log = get_logger("queue")


class Handler(Protocol):
    """What a queue does with its head; errors of ours count as `Retry`."""

    def __call__(self, task: Task, /) -> Awaitable[Outcome]:
        """Makes one attempt."""


@dataclasses.dataclass(frozen=True, slots=True)
class Attempt:
    """How one attempt at a task ended, for metrics.

    Attributes:
        waited_s: from being queued, or from the previous attempt, until this one began.
        duration_s: how long this one took.
        ok: it did not fail.
    """

    task: Task
    queue: str
    waited_s: float
    duration_s: float
    ok: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Look:
    """One task as `queue list` shows it; `age_s` counts from being queued or from the last attempt's end."""

    description: str
    failures: int
    age_s: float


@dataclasses.dataclass(slots=True, eq=False)
class _Entry:
    task: Task
    since: float
    failures: int = 0
    error: str = ""


class TaskQueue:
    """One queue and its worker."""

    def __init__(
        self, name: str, handle: Handler, *, retry: RetryPolicy, observe: Callable[[Attempt], None] | None = None
    ) -> None:
        self.name = name
        self._handle = handle
        self._retry = retry
        self._observe = observe
        self._entries: collections.deque[_Entry] = collections.deque()
        # Set whenever the head may have changed; cleared by the worker just before it looks.
        self._head_changed = asyncio.Event()
        self._status = "waiting for task"
        self._since = 0.0
        self._running: _Entry | None = None

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks, the head first; a running task is the head until it is over."""
        return tuple(entry.task for entry in self._entries)

    @property
    def waiting(self) -> tuple[Task, ...]:
        """All tasks but the one at work at this moment, in order."""
        return tuple(entry.task for entry in self._entries if entry is not self._running)

    @property
    def running(self) -> Task | None:
        """The task at work at this moment."""
        return self._running.task if self._running else None

    def looks(self) -> tuple[Look, ...]:
        """What all tasks look like from outside, the head first. Source: contract.md 2.13 (task text)."""
        now = asyncio.get_running_loop().time()
        return tuple(
            Look(
                describe(entry.task, queue=self.name, failures=entry.failures, error=entry.error),
                entry.failures,
                now - entry.since,
            )
            for entry in self._entries
        )

    def status(self) -> str:
        """What the worker is doing. Source: contract.md 2.17 (statuses)."""
        if not self._entries:
            return f"waiting for task {int(self._age_s())}s"
        return self._status

    def add_head(self, tasks: Iterable[Task]) -> None:
        """Puts tasks before everything else, in the given order; a running task goes on, a waiting one is overtaken."""
        now = asyncio.get_running_loop().time()
        self._entries.extendleft(reversed([_Entry(task, now) for task in tasks]))
        self._head_changed.set()

    def add_tail(self, tasks: Iterable[Task]) -> None:
        """Puts tasks behind everything that waits already, in the given order."""
        now = asyncio.get_running_loop().time()
        was_empty = not self._entries
        self._entries.extend(_Entry(task, now) for task in tasks)
        if was_empty:
            self._head_changed.set()

    def remove(self, unwanted: Callable[[Task], bool]) -> tuple[Task, ...]:
        """Drops tasks; the attempt of a running one is finished, but what it asks for is not done.

        Returns:
            What was dropped, in order.
        """
        dropped = [entry for entry in self._entries if unwanted(entry.task)]
        if dropped:
            self._entries = collections.deque(entry for entry in self._entries if entry not in dropped)
            self._head_changed.set()
        return tuple(entry.task for entry in dropped)

    async def run(self) -> None:
        """Works until cancelled."""
        loop = asyncio.get_running_loop()
        self._since = loop.time()
        while True:
            while not self._entries:
                self._head_changed.clear()
                await self._head_changed.wait()
            self._head_changed.clear()
            entry = self._entries[0]
            wait = self._settle(entry, await self._attempt(entry))
            if wait is not None:
                await self._new_head_or(wait)

    def _age_s(self) -> float:
        return asyncio.get_running_loop().time() - self._since

    async def _attempt(self, entry: _Entry) -> Outcome:
        loop = asyncio.get_running_loop()
        started = self._since = loop.time()
        self._status = "repeat head task" if entry.failures else "run first task"
        self._running = entry
        try:
            outcome = await self._handle(entry.task)
        except AddonOperatorError as error:
            outcome = Retry(str(error))
        except Exception as error:  # a bug in one handler must not end the queue
            log.exception("task handler broke", task=kind(entry.task.payload), error=error, exc_info=error)
            outcome = Retry(f"internal error: {type(error).__name__}: {error}")
        finally:
            self._running = None
        ended = loop.time()
        self._report(entry, outcome, waited_s=started - entry.since, duration_s=ended - started)
        entry.since = self._since = ended
        return outcome

    def _report(self, entry: _Entry, outcome: Outcome, *, waited_s: float, duration_s: float) -> None:
        task, ok = entry.task, not isinstance(outcome, Retry)
        if self._observe:
            self._observe(Attempt(task, self.name, waited_s, duration_s, ok))
        fields = {"queue": self.name, "task": kind(task.payload), "task_id": task.id, "scope": subject(task.payload)}
        if isinstance(outcome, Retry):
            log.error(
                "task failed", **fields, reason=task.reason, attempt=entry.failures + 1, duration_s=duration_s,
                error=outcome.error, retry_in_s=self._retry.delay_s(entry.failures + 1),
            )  # fmt: skip
        elif isinstance(outcome, Done):
            log.info("task done", **fields, reason=task.reason, duration_s=duration_s)

    def _settle(self, entry: _Entry, outcome: Outcome) -> Awaitable[object] | None:
        """Acts on an outcome; gives what to wait for before the next attempt, if anything."""
        if entry not in self._entries:
            return None
        match outcome:
            case Done(head=head, tail=tail):
                self._add_before(entry, head)
                self._entries.remove(entry)
                self.add_tail(tail)
                return None
            case Again(payload=payload, head=head):
                entry.task, entry.failures, entry.error = dataclasses.replace(entry.task, payload=payload), 0, ""
                self._add_before(entry, head)
                return None
            case Retry(error=error, payload=rest):
                entry.failures, entry.error = entry.failures + 1, error
                entry.task = dataclasses.replace(entry.task, payload=rest) if rest else entry.task
                delay_s = self._retry.delay_s(entry.failures)
                self._status = f"sleep after fail for {delay_s:g}s"
                return asyncio.sleep(delay_s)
            case Park(until=until):
                self._status = "waiting for condition"
                return until()
            case _:
                assert_never(outcome)

    def _add_before(self, entry: _Entry, tasks: Iterable[Task]) -> None:
        """Puts what an attempt asks for in its place: behind what has overtaken it meanwhile."""
        now = asyncio.get_running_loop().time()
        place = self._entries.index(entry)
        for task in reversed(tuple(tasks)):
            self._entries.insert(place, _Entry(task, now))

    async def _new_head_or(self, condition: Awaitable[object]) -> None:
        waits = [
            asyncio.ensure_future(self._head_changed.wait()),
            asyncio.ensure_future(condition),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


class QueueSet:
    """All queues by name, `main` first; workers belong to the task group that is handed in by `run`."""

    def __init__(
        self, handle: Handler, *, retry: RetryPolicy, observe: Callable[[Attempt], None] | None = None
    ) -> None:
        self._handle = handle
        self._retry = retry
        self._observe = observe
        self.main = self._make(MAIN_QUEUE)
        self._queues: dict[str, TaskQueue] = {MAIN_QUEUE: self.main}
        self._group: asyncio.TaskGroup | None = None

    def get(self, name: str) -> TaskQueue:
        """Finds a queue, making it (and starting its worker) when it is new."""
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = self._make(name)
            self._start(queue)
        return queue

    def all(self) -> Sequence[TaskQueue]:
        """All queues, `main` first, the others in the order of their making."""
        return tuple(self._queues.values())

    async def run(self) -> None:
        """Runs all workers, also those of queues made later, until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for queue in self.all():
                self._start(queue)

    def _make(self, name: str) -> TaskQueue:
        return TaskQueue(name, self._handle, retry=self._retry, observe=self._observe)

    def _start(self, queue: TaskQueue) -> None:
        if self._group is not None:
            self._group.create_task(queue.run(), name=f"queue/{queue.name}")
