"""How long task queues are and how long tasks wait in them. Source: contract.md 2.15."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Final

from addon_operator.metrics.registry import MetricsRegistry

_BUCKETS: Final = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


@dataclasses.dataclass(frozen=True, slots=True)
class HeadTask:
    """The task at the head of a queue; empty texts where a label does not apply."""

    module: str
    task_type: str
    hook: str


class QueueMetrics:
    """Series of task queues."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._registry = registry
        self._wait = registry.counter(
            "task_wait_in_queue_seconds_total", "Time tasks waited in queues.", "module hook binding queue"
        )
        self._actions = registry.histogram(
            "tasks_queue_action_duration_seconds",
            "Duration of actions on a queue.",
            "queue_name queue_action",
            _BUCKETS,
        )

    def task_waited(self, *, module: str, hook: str, binding: str, queue: str, seconds: float) -> None:
        """Counts how long a task waited before it was run; empty texts where a label does not apply."""
        self._wait.add(seconds, module, hook, binding, queue)

    def action(self, queue: str, action: str, seconds: float) -> None:
        """Counts one action on a queue: `AddHead`, `AddTail`, `AddBefore`, `Combine`, `Remove`."""
        self._actions.observe(seconds, queue, action)

    def read(self, lengths: Callable[[], Mapping[str, int]], heads: Callable[[], Mapping[str, HeadTask]]) -> None:
        """Declares the lengths and heads of queues. Called once.

        Args:
            lengths: returns queue -> number of tasks, empty queues included.
            heads: returns queue -> the task at its head, without empty queues.
        """
        self._registry.live(
            {"tasks_queue_length": "Tasks in a queue."},
            "queue",
            lambda: (((queue,), (length,)) for queue, length in lengths().items()),
        )
        self._registry.live(
            {"tasks_queue_head_info": "The task at the head of a queue."},
            "queue module task_type hook",
            lambda: (((queue, *dataclasses.astuple(head)), (1,)) for queue, head in heads().items()),
        )
