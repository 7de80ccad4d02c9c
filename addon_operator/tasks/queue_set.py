"""All task queues of the operator by name, and their workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from addon_operator.hooks.config.model import MAIN_QUEUE
from addon_operator.retry import RetryPolicy
from addon_operator.tasks.queue import Attempt, Handler, OnAction, TaskQueue
from addon_operator.tasks.task import Outcome, RunHook, Task


class QueueSet:
    """All queues by name, `main` first; their workers live as long as `run` does."""

    def __init__(
        self,
        *,
        retry: RetryPolicy,
        observe: Callable[[Attempt], None] | None = None,
        on_action: OnAction | None = None,
    ) -> None:
        self._retry = retry
        self._observe = observe
        self._on_action = on_action
        self.main = self._make(MAIN_QUEUE)
        self._queues: dict[str, TaskQueue] = {MAIN_QUEUE: self.main}
        self._group: asyncio.TaskGroup | None = None
        self._handle: Handler | None = None

    def get(self, name: str) -> TaskQueue:
        """Returns a queue, creating it (and starting its worker) when it is new."""
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = self._make(name)
            self._start(queue)
        return queue

    def all(self) -> Sequence[TaskQueue]:
        """Returns all queues, `main` first, the others in the order of their creation."""
        return tuple(self._queues.values())

    def end_hook_runs(self, module: str) -> tuple[asyncio.Future[Outcome], ...]:
        """Removes the runs of a module's hooks from all queues and ends those that are running; returns these."""

        def belongs(task: Task) -> bool:
            return isinstance(task.payload, RunHook) and task.payload.hook.module == module

        running = [queue.interrupt(belongs) for queue in self.all()]
        for queue in self.all():
            queue.remove(belongs)
        return tuple(attempt for attempt in running if attempt is not None)

    async def run(self, handle: Handler) -> None:
        """Runs all workers, also those of queues made later, until cancelled; `handle` makes each attempt at a task."""
        async with asyncio.TaskGroup() as group:
            self._group, self._handle = group, handle
            try:
                for queue in self.all():
                    self._start(queue)
                await asyncio.Event().wait()
            finally:
                self._group = None  # a queue that is created from now on gets no worker

    def _make(self, name: str) -> TaskQueue:
        return TaskQueue(name, retry=self._retry, observe=self._observe, on_action=self._on_action)

    def _start(self, queue: TaskQueue) -> None:
        if self._group is not None and self._handle is not None:
            self._group.create_task(queue.run(self._handle), name=f"queue/{queue.name}")
