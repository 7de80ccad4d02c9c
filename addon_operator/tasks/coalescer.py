"""Which waiting runs of a hook become one task, and what that task carries. The only place that knows it.

Pure. Called by the queue, which holds the tasks and keeps their order. Tasks with equal coalescing keys may become one:
the queue coalesces its head with those directly behind it before each attempt, and here is counted how many wait, so
that a burst becomes one task long before it is the head. Source: contract.md 2.13 (combine, compaction).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Hashable, Iterable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from addon_operator.hooks.call import HookId
from addon_operator.hooks.compaction import MOST_CONTEXTS, collapse_repeats, compact
from addon_operator.hooks.context import ObjectEvent, Synchronization, Tick
from addon_operator.tasks.task import RunHook, Task

COALESCE_AT: Final = 100
"""This many waiting runs of one hook become one. Source: contract.md 2.13 (compaction)."""

EntryT = TypeVar("EntryT", bound=Hashable)


class CoalescingKey(NamedTuple):
    """What tasks have in common that may become one; a tuple, since one is made for each event of a burst.

    Attributes:
        hook: a run never serves two.
        converge: a task that is dropped with its converge must not take others with it.
        synchronization: pairs of `waitForSynchronization` and `executeHookOnSynchronization`; empty for object events
            and ticks.
    """

    hook: HookId
    converge: bool
    synchronization: frozenset[tuple[bool, bool]] = frozenset()


def coalescing_key(task: Task) -> CoalescingKey | None:
    """Returns what a task shares with those that it may be coalesced with; None if it always runs alone.

    Object events and ticks go together, and Synchronizations with the same flags. Lifecycle contexts, reviews and
    everything of v0 hooks run alone.
    """
    run = task.payload
    if not isinstance(run, RunHook) or not run.combines:
        return None
    if isinstance(run.contexts[0], ObjectEvent | Tick):
        return CoalescingKey(run.hook, task.converge)
    flags = frozenset(
        (context.binding.wait_for_synchronization, context.binding.run_on_synchronization)
        for context in run.contexts
        if isinstance(context, Synchronization)
    )
    return CoalescingKey(run.hook, task.converge, flags) if flags else None


def coalesce(tasks: Sequence[Task]) -> Task:
    """Makes one task of several with equal keys, in their order: the first one, with the contexts of all.

    Synchronizations stay apart even in a group: their bindings wait for them one by one. They are collapsed for the
    hook only, when it runs.
    """
    runs = [task.payload for task in tasks if isinstance(task.payload, RunHook)]
    contexts = tuple(itertools.chain.from_iterable(run.contexts for run in runs))
    if not runs[0].synchronizes:
        contexts = compact(collapse_repeats(contexts))
    return dataclasses.replace(tasks[0], payload=dataclasses.replace(runs[0], contexts=contexts))


class CoalescedTask:
    """A task and those coalesced with it, in order.

    They become one when the task is read, or when there are many contexts, also compared with those of the task: each
    time would cost the square of a burst.
    """

    __slots__ = ("_added", "_added_contexts", "_task")

    def __init__(self, task: Task) -> None:
        self._task = task
        self._added: list[Task] = []
        self._added_contexts = 0

    @property
    def task(self) -> Task:
        """The one task that all of them are."""
        if self._added:
            self.task = coalesce((self._task, *self._added))
        return self._task

    @task.setter
    def task(self, task: Task) -> None:
        self._task, self._added, self._added_contexts = task, [], 0

    def add(self, tasks: Iterable[Task]) -> None:
        """Coalesces it with tasks of the same key that follow it."""
        for task in tasks:
            self._added.append(task)
            self._added_contexts += _size(task)
        if self._added_contexts > max(MOST_CONTEXTS, _size(self._task)):
            self.task = self.task


@dataclasses.dataclass(slots=True, eq=False)
class _Group(Generic[EntryT]):
    """Waiting runs of one hook with equal keys, with nothing else of that hook between them; in order."""

    key: CoalescingKey
    entries: dict[EntryT, None] = dataclasses.field(default_factory=dict)


class Coalescer(Generic[EntryT]):
    """Counts, hook by hook, the waiting tasks that may become one.

    The queue adds an entry when it puts it at the tail, and removes it when it leaves the queue or becomes the head.
    Every call costs the same in a queue of any length.
    """

    def __init__(self) -> None:
        self._last_groups: dict[HookId, _Group[EntryT]] = {}
        self._group_of: dict[EntryT, _Group[EntryT]] = {}

    def add(self, entry: EntryT, task: Task) -> Sequence[EntryT]:
        """Counts a new entry at the tail; returns the entries that must become one now, in order, if any."""
        if not isinstance(task.payload, RunHook):
            return ()
        hook, key = task.payload.hook, coalescing_key(task)
        if key is None or key.synchronization:
            self._last_groups.pop(hook, None)  # what follows must not overtake it
            return ()
        group = self._last_groups.get(hook)
        if group is None or group.key != key:
            group = self._last_groups[hook] = _Group(key)
        group.entries[entry], self._group_of[entry] = None, group
        return tuple(group.entries) if len(group.entries) >= COALESCE_AT else ()

    def remove(self, entry: EntryT) -> None:
        """Stops counting an entry, if it is counted."""
        group = self._group_of.pop(entry, None)
        if group is None:
            return
        del group.entries[entry]
        if not group.entries and self._last_groups.get(group.key.hook) is group:
            del self._last_groups[group.key.hook]


def _size(task: Task) -> int:
    return len(task.payload.contexts) if isinstance(task.payload, RunHook) else 0
