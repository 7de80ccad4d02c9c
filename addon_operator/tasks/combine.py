"""Which hook tasks may be done in one run, and what that run is told. The only place that knows it.

Pure. Called by the queue, which finds the tasks, and by the dispatcher, which folds groups right before a run.
Source: contract.md 2.13.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Final

from addon_operator.hooks.call import HookId
from addon_operator.hooks.context import Context, ObjectEvent, Synchronization, Tick, group_of
from addon_operator.hooks.folding import bounded, stricter
from addon_operator.tasks.task import RunHook, Task

_FOLDING: Final = (Synchronization, ObjectEvent, Tick)


@dataclasses.dataclass(frozen=True, slots=True)
class Kinship:
    """What tasks have in common that may be done in one run.

    Attributes:
        hook: no run ever serves two.
        converge: what goes away with a converge must not take others with it.
        synchronization: pairs of `waitForSynchronization` and `executeHookOnSynchronization`; empty for reactions.
    """

    hook: HookId
    converge: bool
    synchronization: frozenset[tuple[bool, bool]] = frozenset()


def kinship(task: Task) -> Kinship | None:
    """Answers what a task has to share with those done in the same run; None if it is always done alone.

    Reactions to objects and ticks go together, and Synchronizations with the same flags. Lifecycle contexts, reviews
    and everything of v0 hooks stay alone.
    """
    run = task.payload
    if not isinstance(run, RunHook) or not run.combines:
        return None
    if isinstance(run.contexts[0], ObjectEvent | Tick):
        return Kinship(run.hook, task.converge)
    flags = frozenset(
        (context.binding.wait_for_synchronization, context.binding.run_on_synchronization)
        for context in run.contexts
        if isinstance(context, Synchronization)
    )
    return Kinship(run.hook, task.converge, flags) if flags else None


def join(tasks: Sequence[Task]) -> Task:
    """Makes one task of several of one kinship, in their order; all but the contexts is the first one's.

    Synchronizations stay apart even in a group: their bindings wait for them one by one. They are folded for the hook
    only, when it is run.
    """
    runs = [task.payload for task in tasks if isinstance(task.payload, RunHook)]
    contexts = tuple(itertools.chain.from_iterable(run.contexts for run in runs))
    if not runs[0].synchronizes:
        contexts = bounded(fold_groups(contexts))
    return dataclasses.replace(tasks[0], payload=dataclasses.replace(runs[0], contexts=contexts))


def size(task: Task) -> int:
    """Counts the contexts that a task carries."""
    return len(task.payload.contexts) if isinstance(task.payload, RunHook) else 0


def fold_groups(contexts: Iterable[Context]) -> tuple[Context, ...]:
    """Leaves one of neighbouring contexts that tell a hook the same: of a group, or ticks of one schedule.

    The last one stays; but if some of them must not fail and others may, the last of those that must not.
    """
    folded: list[Context] = []
    for context in contexts:
        if folded and _repeats(folded[-1], context):
            folded[-1] = stricter(folded[-1], context)
        else:
            folded.append(context)
    return tuple(folded)


def _repeats(earlier: Context, later: Context) -> bool:
    if not isinstance(earlier, _FOLDING) or not isinstance(later, _FOLDING):
        return False
    if group_of(later):
        return group_of(earlier) == group_of(later)
    return isinstance(later, Tick) and earlier == later
