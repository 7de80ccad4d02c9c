"""What tasks do that start the bindings of global hooks. Source: contract.md 3.1."""

from __future__ import annotations

from typing import Final

from addon_operator.bindings.hook_bindings import HookBindings
from addon_operator.dispatch.synchronizations import Synchronizations
from addon_operator.errors import AddonOperatorError
from addon_operator.hooks.call import HookId
from addon_operator.hooks.hook import Hook, LoadedHooks
from addon_operator.logs import get_logger
from addon_operator.tasks.queue_set import QueueSet
from addon_operator.tasks.task import (
    Again,
    AwaitSynchronization,
    Done,
    EnableMonitors,
    EnableSchedules,
    EnableWebhooks,
    Outcome,
    Park,
    Task,
)

log = get_logger("dispatch")

_WEBHOOKS_QUEUE: Final = "webhooks"


class GlobalHookHandler:
    """Starts schedules, monitors and webhooks of global hooks for tasks."""

    def __init__(
        self, *, queues: QueueSet, bindings: HookBindings, synchronizations: Synchronizations, hooks: LoadedHooks
    ) -> None:
        """Takes its dependencies.

        Args:
            queues: for webhooks that have to be retried.
            bindings: of all hooks.
            synchronizations: puts those that the start waits for into their queues.
            hooks: the global hooks.
        """
        self._queues = queues
        self._bindings = bindings
        self._synchronizations = synchronizations
        self._hooks = hooks

    async def __call__(
        self, task: Task, start: EnableSchedules | EnableMonitors | EnableWebhooks | AwaitSynchronization, queue: str
    ) -> Outcome:
        """Makes one attempt at a task of the queue of this name.

        Raises:
            AddonOperatorError: to be retried.
        """
        match start:
            case EnableSchedules(hook=hook):
                self._bindings.schedules.start(self._hook(hook))
                return Done()
            case EnableMonitors(hook=hook):
                await self._bindings.monitors.synchronize((self._hook(hook),))
                return Done(head=self._synchronizations.queue((hook,), task.reason))
            case EnableWebhooks():
                return await self._serve_webhooks(task, start, queue)
            case AwaitSynchronization():
                return self._await_synchronization(task)

    def _hook(self, hook: HookId) -> Hook:
        found = self._hooks.find(hook)
        assert found is not None
        return found

    def _await_synchronization(self, task: Task) -> Outcome:
        monitors = self._bindings.monitors
        progress = monitors.next_progress()
        hooks = [hook.id for hook in self._hooks.hooks]
        if monitors.synchronized(hooks):
            return Done()
        head = self._synchronizations.queue(hooks, task.reason)
        return Again(task.payload, head=head) if head else Park(progress.wait)

    async def _serve_webhooks(self, task: Task, webhooks: EnableWebhooks, queue: str) -> Outcome:
        """Registers webhooks; a failed registration is retried in a queue of its own, where nothing waits for it."""
        hook = self._hook(webhooks.hook)
        try:
            if webhooks.conversions_only:
                await self._bindings.webhooks.serve_conversions(hook)
            else:
                await self._bindings.webhooks.serve(hook)
        except AddonOperatorError as error:
            if queue == _WEBHOOKS_QUEUE:
                raise
            log.error(
                "webhooks of a global hook not registered, the registration is retried in a queue of its own",
                hook=hook.id.name, queue=_WEBHOOKS_QUEUE, error=error,
            )  # fmt: skip
            self._queues.get(_WEBHOOKS_QUEUE).add_tail((task,))
        return Done()
