"""Strict-order task queues that never poll.

The head runs until it is over. A failed head waits for its delay, a parked head for its condition; both resume early
when a new head arrives, so that a corrected ConfigMap takes effect at once. Tasks are never run side by side within one
queue. Before each attempt the head takes in what is right behind it and may be done in the same run; many waiting tasks
of one hook become one (`combine.py`). Source: contract.md 2.13.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol, TypeAlias, assert_never

from addon_operator.errors import AddonOperatorError
from addon_operator.hooks.call import HookId
from addon_operator.hooks.config.model import MAIN_QUEUE
from addon_operator.hooks.folding import MOST_CONTEXTS
from addon_operator.logs import get_logger, traces
from addon_operator.retry import RetryPolicy
from addon_operator.tasks.combine import Kinship, join, kinship, size
from addon_operator.tasks.task import Again, Done, Outcome, Park, Retry, RunHook, Task, describe, kind, subject

log = get_logger("queue")

CROWD: Final = 100
"""So many waiting tasks of one hook become one. Source: contract.md 2.13 (compaction)."""

OnAction: TypeAlias = Callable[[str, str, float], None]
"""Told the queue, what was done with it (`AddHead`, `AddTail`, `AddBefore`, `Combine`, `Remove`), and the seconds."""


class Handler(Protocol):
    """What a queue does with its head; errors of ours count as `Retry`."""

    def __call__(self, task: Task, queue: str, /) -> Awaitable[Outcome]:
        """Makes one attempt at a task of the queue of this name."""


@dataclasses.dataclass(frozen=True, slots=True)
class Attempt:
    """How one attempt at a task ended, for metrics.

    Attributes:
        waited_s: from being queued, or from the previous attempt, until this one began.
        duration_s: how long this one took.
        failures: how many attempts have failed in a row, this one included; 0 if it did not fail.
    """

    task: Task
    queue: str
    waited_s: float
    duration_s: float
    failures: int


@dataclasses.dataclass(frozen=True, slots=True)
class Look:
    """One task as `queue list` shows it; `age_s` counts from being queued or from the last attempt's end."""

    description: str
    failures: int
    age_s: float


class _Entry:
    """A task with its history.

    Attributes:
        since: when it was queued, or when the last attempt ended.
        crowd: the tasks that it may be joined with while it waits.
    """

    __slots__ = ("_more", "_more_contexts", "_task", "crowd", "error", "failures", "since")

    def __init__(self, task: Task, since: float) -> None:
        self.since = since
        self.failures = 0
        self.error = ""
        self.crowd: _Crowd | None = None
        self._task = task
        self._more: list[Task] = []
        self._more_contexts = 0

    @property
    def task(self) -> Task:
        """The task, joined with those that it has taken in."""
        if self._more:
            self.task = join((self._task, *self._more))
        return self._task

    @task.setter
    def task(self, task: Task) -> None:
        self._task, self._more, self._more_contexts = task, [], 0

    def take_in(self, tasks: Iterable[Task]) -> None:
        # Joined when somebody looks, or there is much of it, also compared with what is left of former joins: joining
        # each time would cost the square of a burst.
        for task in tasks:
            self._more.append(task)
            self._more_contexts += size(task)
        if self._more_contexts > max(MOST_CONTEXTS, size(self._task)):
            self.task = self.task


@dataclasses.dataclass(slots=True, eq=False)
class _Crowd:
    """Waiting reactions of one hook, with nothing else of that hook between them; in order."""

    kinship: Kinship
    members: dict[_Entry, None] = dataclasses.field(default_factory=dict)


class _Crowds:
    """Which tasks may become one, hook by hook; one is counted from being put at the tail until it is the head."""

    def __init__(self) -> None:
        self._open: dict[HookId, _Crowd] = {}

    def enter(self, entry: _Entry) -> Sequence[_Entry]:
        """Counts a new task at the tail; gives the tasks that have to become one now, if any."""
        if not isinstance(entry.task.payload, RunHook):
            return ()
        hook, common = entry.task.payload.hook, kinship(entry.task)
        if common is None or common.synchronization:
            self._open.pop(hook, None)  # what follows must not overtake it
            return ()
        crowd = self._open.get(hook)
        if crowd is None or crowd.kinship != common:
            crowd = self._open[hook] = _Crowd(common)
        crowd.members[entry], entry.crowd = None, crowd
        return tuple(crowd.members) if len(crowd.members) >= CROWD else ()

    def leave(self, entry: _Entry) -> None:
        """Counts a task no longer."""
        crowd, entry.crowd = entry.crowd, None
        if crowd is None:
            return
        del crowd.members[entry]
        if not crowd.members and self._open.get(crowd.kinship.hook) is crowd:
            del self._open[crowd.kinship.hook]


class TaskQueue:
    """One queue and its worker."""

    def __init__(
        self,
        name: str,
        handle: Handler,
        *,
        retry: RetryPolicy,
        observe: Callable[[Attempt], None] | None = None,
        on_action: OnAction | None = None,
    ) -> None:
        self.name = name
        self._handle = handle
        self._retry = retry
        self._observe = observe
        self._on_action = on_action
        # A linked list with an index: ends, membership and removal cost the same in a queue of any length.
        self._entries: collections.OrderedDict[_Entry, None] = collections.OrderedDict()
        self._crowds = _Crowds()
        # Set whenever the head may have changed; cleared by the worker just before it looks.
        self._head_changed = asyncio.Event()
        self._status = "waiting for task"
        self._since = 0.0
        self._running: _Entry | None = None
        self._attempting: asyncio.Future[Outcome] | None = None
        self._interrupted: asyncio.Future[Outcome] | None = None

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
    def failing(self) -> tuple[Task, str] | None:
        """The task that is tried again and why its last attempt failed; None if nothing has."""
        head = next(iter(self._entries), None)
        return (head.task, head.error) if head is not None and head.failures else None

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
        with self._timed("AddHead"):
            self._put_first([_Entry(task, now) for task in tasks])
            self._head_changed.set()

    def add_tail(self, tasks: Iterable[Task]) -> None:
        """Puts tasks behind everything that waits already, in the given order.

        So many of one hook that wait become one in the place of the first of them; others keep their order.
        """
        now = asyncio.get_running_loop().time()
        with self._timed("AddTail"):
            for task in tasks:
                self._put_last(_Entry(task, now))

    def remove(self, unwanted: Callable[[Task], bool]) -> tuple[Task, ...]:
        """Drops tasks; the attempt of a running one is finished, but what it asks for is not done.

        Returns:
            What was dropped, in order.
        """
        with self._timed("Remove"):
            dropped = [entry for entry in self._entries if unwanted(entry.task)]
            for entry in dropped:
                self._take_out(entry)
            if dropped:
                self._head_changed.set()
        return tuple(entry.task for entry in dropped)

    def interrupt(self, unwanted: Callable[[Task], bool]) -> asyncio.Future[Outcome] | None:
        """Has the attempt at work end if its task is unwanted; the task is over with it.

        Returns:
            The attempt, which takes as long as its child processes need to end; None if there is nothing to end.
        """
        if self._running is None or self._attempting is None or not unwanted(self._running.task):
            return None
        # Once only: to be asked twice means to processes that there is no time left.
        if self._interrupted is None:
            self._interrupted = self._attempting
            self._attempting.cancel()
        return self._attempting

    async def run(self) -> None:
        """Works until cancelled."""
        loop = asyncio.get_running_loop()
        self._since = loop.time()
        while True:
            while not self._entries:
                self._head_changed.clear()
                await self._head_changed.wait()
            self._head_changed.clear()
            entry = self._grown_head()
            wait = self._settle(entry, await self._attempt(entry))
            if wait is not None:
                await self._new_head_or(wait)

    def _timed(self, action: str) -> contextlib.AbstractContextManager[None]:
        return _tell(self._on_action, self.name, action) if self._on_action else _UNTOLD

    def _put_first(self, entries: Sequence[_Entry]) -> None:
        for entry in reversed(entries):
            self._entries[entry] = None
            self._entries.move_to_end(entry, last=False)

    def _put_last(self, entry: _Entry) -> None:
        was_empty = not self._entries
        self._entries[entry] = None
        if was_empty:
            self._head_changed.set()
        elif crowd := self._crowds.enter(entry):
            self._take_in(crowd[0], crowd[1:])

    def _take_out(self, entry: _Entry) -> None:
        del self._entries[entry]
        self._crowds.leave(entry)

    def _take_in(self, entry: _Entry, others: Sequence[_Entry]) -> None:
        for other in others:
            self._take_out(other)
        entry.take_in(other.task for other in others)

    def _grown_head(self) -> _Entry:
        """Gives the head, with what is right behind it and may be done in the same run."""
        head = next(iter(self._entries))
        self._crowds.leave(head)  # what is at work must not grow
        common = kinship(head.task)
        if common is not None:
            with self._timed("Combine"):
                behind = itertools.islice(self._entries, 1, None)
                self._take_in(head, tuple(itertools.takewhile(lambda entry: kinship(entry.task) == common, behind)))
        return head

    def _age_s(self) -> float:
        return asyncio.get_running_loop().time() - self._since

    async def _attempt(self, entry: _Entry) -> Outcome:
        loop = asyncio.get_running_loop()
        started = self._since = loop.time()
        self._status = "repeat head task" if entry.failures else "run first task"
        self._running = entry
        attempt = self._attempting = asyncio.ensure_future(self._handle(entry.task, self.name))
        try:
            outcome = await attempt
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is None or current.cancelling():
                raise
            if self._interrupted is attempt:
                log.info("task is ended", **self._fields(entry.task))
                outcome = Done()
            else:
                outcome = Retry("internal error: cancelled from within")
        except AddonOperatorError as error:
            outcome = Retry(str(error))
        except Exception as error:  # a bug in one handler must not end the queue
            log.exception("task handler broke", task=kind(entry.task.payload), error=error, exc_info=error)
            outcome = Retry(f"internal error: {traces.text(error)}")
        finally:
            self._running = self._attempting = self._interrupted = None
        ended = loop.time()
        self._report(entry, outcome, waited_s=started - entry.since, duration_s=ended - started)
        entry.since = self._since = ended
        return outcome

    def _report(self, entry: _Entry, outcome: Outcome, *, waited_s: float, duration_s: float) -> None:
        task = entry.task
        if self._observe:
            failures = entry.failures + 1 if isinstance(outcome, Retry) else 0
            self._observe(Attempt(task, self.name, waited_s, duration_s, failures))
        fields = self._fields(task)
        if isinstance(outcome, Retry):
            log.error(
                "task failed", **fields, reason=task.reason, attempt=entry.failures + 1, duration_s=duration_s,
                error=outcome.error, retry_in_s=self._retry.delay_s(entry.failures + 1),
            )  # fmt: skip
        elif isinstance(outcome, Done):
            log.info("task done", **fields, reason=task.reason, duration_s=duration_s)

    def _fields(self, task: Task) -> dict[str, object]:
        payload = task.payload
        # Two modules may have hooks of the same name.
        owner = {"module": payload.hook.module} if isinstance(payload, RunHook) and payload.hook.module else {}
        return {"queue": self.name, **owner, "task": kind(payload), "task_id": task.id, "scope": subject(payload)}

    def _settle(self, entry: _Entry, outcome: Outcome) -> Awaitable[object] | None:
        """Acts on an outcome; gives what to wait for before the next attempt, if anything."""
        if entry not in self._entries:
            return None
        match outcome:
            case Done(head=head, tail=tail):
                self._add_before(entry, head)
                self._take_out(entry)
                if tail:
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
            case Park(until=until, payload=rest):
                entry.task = dataclasses.replace(entry.task, payload=rest) if rest else entry.task
                self._status = "waiting for condition"
                return until()
            case _:
                assert_never(outcome)

    def _add_before(self, entry: _Entry, tasks: Sequence[Task]) -> None:
        """Puts what an attempt asks for in its place: behind what has overtaken it meanwhile."""
        if not tasks:
            return
        now = asyncio.get_running_loop().time()
        with self._timed("AddBefore"):
            overtaking = tuple(itertools.takewhile(lambda other: other is not entry, self._entries))
            self._put_first([*overtaking, *(_Entry(task, now) for task in tasks)])

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


_UNTOLD: Final = contextlib.nullcontext()


@contextlib.contextmanager
def _tell(on_action: OnAction, queue: str, action: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    on_action(queue, action, time.perf_counter() - started)


class QueueSet:
    """All queues by name, `main` first; workers belong to the task group that is handed in by `run`."""

    def __init__(
        self,
        handle: Handler,
        *,
        retry: RetryPolicy,
        observe: Callable[[Attempt], None] | None = None,
        on_action: OnAction | None = None,
    ) -> None:
        self._handle = handle
        self._retry = retry
        self._observe = observe
        self._on_action = on_action
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
            try:
                for queue in self.all():
                    self._start(queue)
                await asyncio.Event().wait()
            finally:
                self._group = None  # a queue that is made now has nobody left to work in it

    def _make(self, name: str) -> TaskQueue:
        return TaskQueue(name, self._handle, retry=self._retry, observe=self._observe, on_action=self._on_action)

    def _start(self, queue: TaskQueue) -> None:
        if self._group is not None:
            self._group.create_task(queue.run(), name=f"queue/{queue.name}")
