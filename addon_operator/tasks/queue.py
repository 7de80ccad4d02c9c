"""Strict-order task queues that never poll.

The head runs until it is over. A failed head waits for its delay, a parked head for its condition; both resume early
when a new head arrives, so that a corrected ConfigMap takes effect at once. Tasks are never run side by side within one
queue. Before each attempt the head is coalesced with what is directly behind it and may be done in the same run; many
waiting tasks of one hook become one (`coalescer.py`). Source: contract.md 2.13.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeAlias, assert_never

from addon_operator.errors import AddonOperatorError
from addon_operator.logs import event_id, get_logger, traces
from addon_operator.retry import RetryPolicy
from addon_operator.tasks.coalescer import CoalescedTask, Coalescer, coalescing_key
from addon_operator.tasks.task import (
    Again,
    Done,
    Outcome,
    Park,
    QueuedTask,
    Retry,
    RunHook,
    Task,
    describe,
    kind,
    subject,
)

log = get_logger("queue")

OnAction: TypeAlias = Callable[[str, str, float], None]
"""Receives the queue, the action (`AddHead`, `AddTail`, `AddBefore`, `Combine`, `Remove`), and how long it took."""


class Handler(Protocol):
    """What a queue does with its head; an `AddonOperatorError` counts as `Retry`."""

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


class _Entry(CoalescedTask):
    """A task in the queue, with its history.

    Attributes:
        since: when it was queued, or when the last attempt ended.
        failures: how many attempts have failed in a row.
        error: why the last of them failed; empty if none has.
    """

    __slots__ = ("error", "failures", "since")

    def __init__(self, task: Task, since: float) -> None:
        super().__init__(task)
        self.since = since
        self.failures = 0
        self.error = ""


class TaskQueue:
    """One queue and its worker."""

    def __init__(
        self,
        name: str,
        *,
        retry: RetryPolicy,
        observe: Callable[[Attempt], None] | None = None,
        on_action: OnAction | None = None,
    ) -> None:
        self.name = name
        self._retry = retry
        self._observe = observe
        self._on_action = on_action
        # A linked list with an index: ends, membership and removal cost the same in a queue of any length.
        self._entries: collections.OrderedDict[_Entry, None] = collections.OrderedDict()
        self._coalescer = Coalescer[_Entry]()
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
        """All tasks but the running one, in order."""
        return tuple(entry.task for entry in self._entries if entry is not self._running)

    @property
    def failing(self) -> tuple[Task, str] | None:
        """The task that is retried and why its last attempt failed; None if the head has not failed."""
        head = next(iter(self._entries), None)
        return (head.task, head.error) if head is not None and head.failures else None

    def listing(self) -> tuple[QueuedTask, ...]:
        """Lists all tasks as people see them, the head first. Source: contract.md 2.13 (task text)."""
        now = asyncio.get_running_loop().time()
        return tuple(
            QueuedTask(
                describe(entry.task, queue=self.name, failures=entry.failures, error=entry.error),
                entry.failures,
                now - entry.since,
            )
            for entry in self._entries
        )

    def status(self) -> str:
        """Returns what the worker is doing. Source: contract.md 2.17 (statuses)."""
        if not self._entries:
            return f"waiting for task {int(asyncio.get_running_loop().time() - self._since)}s"
        return self._status

    def add_head(self, tasks: Iterable[Task]) -> None:
        """Puts tasks before all others, in this order; a running task goes on, a waiting one is overtaken."""
        now = asyncio.get_running_loop().time()
        with self._timed("AddHead"):
            self._put_first([_Entry(task, now) for task in tasks])
            self._head_changed.set()

    def add_tail(self, tasks: Iterable[Task]) -> None:
        """Puts tasks behind all others, in this order.

        When `COALESCE_AT` runs of one hook wait, they become one in the place of the first; others keep their order.
        """
        now = asyncio.get_running_loop().time()
        with self._timed("AddTail"):
            for task in tasks:
                self._put_last(_Entry(task, now))

    def remove(self, unwanted: Callable[[Task], bool]) -> tuple[Task, ...]:
        """Drops tasks; the attempt at a running one goes on, but its outcome is ignored.

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
        """Cancels the running attempt if its task is unwanted; the task is done with it.

        Returns:
            The attempt, which takes as long as its child processes need to end; None if there is nothing to cancel.
        """
        if self._running is None or self._attempting is None or not unwanted(self._running.task):
            return None
        # Once only: processes that are asked to end a second time are killed.
        if self._interrupted is None:
            self._interrupted = self._attempting
            self._attempting.cancel()
        return self._attempting

    async def run(self, handle: Handler) -> None:
        """Works until cancelled; `handle` makes each attempt at a task."""
        event_id.forget()
        loop = asyncio.get_running_loop()
        self._since = loop.time()
        while True:
            while not self._entries:
                self._head_changed.clear()
                await self._head_changed.wait()
            self._head_changed.clear()
            entry = self._coalesced_head()
            wait = self._settle(entry, await self._attempt(entry, handle))
            if wait is not None:
                await self._new_head_or(wait)

    def _timed(self, action: str) -> contextlib.AbstractContextManager[None]:
        return _measured(self._on_action, self.name, action) if self._on_action else contextlib.nullcontext()

    def _put_first(self, entries: Sequence[_Entry]) -> None:
        for entry in reversed(entries):
            self._entries[entry] = None
            self._entries.move_to_end(entry, last=False)

    def _put_last(self, entry: _Entry) -> None:
        was_empty = not self._entries
        self._entries[entry] = None
        if was_empty:
            self._head_changed.set()
        elif group := self._coalescer.add(entry, entry.task):
            self._coalesce(group[0], group[1:])

    def _take_out(self, entry: _Entry) -> None:
        del self._entries[entry]
        self._coalescer.remove(entry)

    def _coalesce(self, entry: _Entry, others: Sequence[_Entry]) -> None:
        for other in others:
            self._take_out(other)
        entry.add(other.task for other in others)

    def _coalesced_head(self) -> _Entry:
        """Returns the head, coalesced with what is directly behind it and may be done in the same run."""
        head = next(iter(self._entries))
        self._coalescer.remove(head)  # a running task must not change
        key = coalescing_key(head.task)
        if key is not None:
            with self._timed("Combine"):
                behind = itertools.islice(self._entries, 1, None)
                same = itertools.takewhile(lambda entry: coalescing_key(entry.task) == key, behind)
                self._coalesce(head, tuple(same))
        return head

    async def _attempt(self, entry: _Entry, handle: Handler) -> Outcome:
        loop = asyncio.get_running_loop()
        started = self._since = loop.time()
        self._status = "repeat head task" if entry.failures else "run first task"
        self._running = entry
        attempt = self._attempting = asyncio.ensure_future(handle(entry.task, self.name))
        try:
            outcome = await attempt
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is None or current.cancelling():
                raise
            if self._interrupted is attempt:
                log.info("task cancelled", **self._fields(entry.task), reason=entry.task.reason)
                outcome = Done()
            else:
                outcome = Retry("internal error: the attempt cancelled itself")
        except AddonOperatorError as error:
            outcome = Retry(str(error))
        except Exception as error:  # a bug in a handler must not end the queue
            log.exception("task failed with an internal error", **self._fields(entry.task), error=error, exc_info=error)
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
        return {
            "queue": self.name, **owner, "task": kind(payload), "task_id": task.id, "event_id": task.event_id,
            "scope": subject(payload),
        }  # fmt: skip

    def _settle(self, entry: _Entry, outcome: Outcome) -> Awaitable[object] | None:
        """Puts an outcome into effect; returns what to wait for before the next attempt, if anything."""
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
        """Puts follow-up tasks before a task, but behind those that have overtaken it."""
        if not tasks:
            return
        now = asyncio.get_running_loop().time()
        with self._timed("AddBefore"):
            overtaking = tuple(itertools.takewhile(lambda other: other is not entry, self._entries))
            self._put_first([*overtaking, *(_Entry(task, now) for task in tasks)])

    async def _new_head_or(self, condition: Awaitable[object]) -> None:
        waits = [asyncio.ensure_future(self._head_changed.wait()), asyncio.ensure_future(condition)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


@contextlib.contextmanager
def _measured(on_action: OnAction, queue: str, action: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    on_action(queue, action, time.perf_counter() - started)
