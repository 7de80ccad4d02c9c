"""Puts the Synchronizations that are outstanding into their queues, for those that wait for them."""

from __future__ import annotations

from collections.abc import Iterable

from addon_operator.bindings.kubernetes import BindingMonitors
from addon_operator.dispatch.routing import split_main
from addon_operator.hooks.call import HookId
from addon_operator.tasks.queue_set import QueueSet
from addon_operator.tasks.task import Reason, RunHook, Task


class Synchronizations:
    """Ensures that each outstanding Synchronization is in a queue, once."""

    def __init__(self, queues: QueueSet, monitors: BindingMonitors) -> None:
        self._queues = queues
        self._monitors = monitors

    def queue(self, hooks: Iterable[HookId], reason: Reason) -> tuple[Task, ...]:
        """Adds those of named queues at their tails; returns those of the main queue, which are to run next.

        Those that wait in the main queue already are taken out of it: a task that waits for them may have overtaken
        them.

        Args:
            hooks: whose Synchronizations.
            reason: of the tasks.
        """
        main, others = split_main(self._monitors.outstanding(hooks), reason)
        for name, task in others:
            queue = self._queues.get(name)
            if not any(_contains(other, task) for other in queue.tasks):
                queue.add_tail((task,))
        self._queues.main.remove(lambda other: any(_contains(other, task) for task in main))
        return main


def _contains(task: Task, synchronization: Task) -> bool:
    """Returns whether a task is this Synchronization, perhaps coalesced with others of the hook."""
    run, wanted = task.payload, synchronization.payload
    if not isinstance(run, RunHook) or not isinstance(wanted, RunHook) or run.hook != wanted.hook:
        return False
    return any(context in run.contexts for context in wanted.contexts)
