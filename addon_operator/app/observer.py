"""What follows from each attempt at a task beside its outcome: metrics, and when `--once` gives up."""

from __future__ import annotations

import asyncio
from typing import Final

from addon_operator.dispatch.progress import Progress
from addon_operator.hooks.config.model import MAIN_QUEUE
from addon_operator.hooks.context import Synchronization
from addon_operator.metrics.queues import HeadTask, QueueMetrics
from addon_operator.process import heap
from addon_operator.tasks.queue import Attempt
from addon_operator.tasks.task import Converge, ConvergePhase, RunHook, RunModules, Task, kind

_FAILURES_TO_GIVE_UP: Final = 3


class AttemptObserver:
    """Looks at every attempt of every queue.

    Attributes:
        stuck: set when a task that the first converge needs has failed three times in a row.
    """

    def __init__(self, progress: Progress, metrics: QueueMetrics) -> None:
        self.stuck = asyncio.Event()
        self._progress = progress
        self._metrics = metrics

    def __call__(self, attempt: Attempt) -> None:
        """Counts an attempt that is over."""
        payload = attempt.task.payload
        about = head_task(attempt.task)
        self._metrics.task_waited(
            module=payload.modules[0] if isinstance(payload, RunModules) else about.module,
            hook=about.hook,
            binding=payload.binding if isinstance(payload, RunHook) else "",
            queue=attempt.queue,
            seconds=attempt.waited_s,
        )
        needed = attempt.queue == MAIN_QUEUE or _is_waited_for(attempt.task) or self._progress.first_done.is_set()
        if needed and attempt.failures >= _FAILURES_TO_GIVE_UP:
            self.stuck.set()
        elif not attempt.failures and isinstance(payload, Converge) and payload.phase is ConvergePhase.WAIT_AFTER_ALL:
            heap.return_freed_memory()


def head_task(task: Task) -> HeadTask:
    """Returns what metrics say about a task."""
    payload = task.payload
    hook = payload.hook if isinstance(payload, RunHook) else None
    modules = payload.modules if isinstance(payload, RunModules) else ()
    module = (hook.module or "") if hook else ",".join(modules)
    return HeadTask(module=module, task_type=kind(payload), hook=hook.name if hook else "")


def _is_waited_for(task: Task) -> bool:
    """Returns whether the main queue waits for a task of another one."""
    contexts = task.payload.contexts if isinstance(task.payload, RunHook) else ()
    return any(isinstance(one, Synchronization) and one.binding.wait_for_synchronization for one in contexts)
