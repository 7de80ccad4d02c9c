"""What a `RunHook` task does: one run of a hook with the contexts of the task. Source: contract.md 2.13, 3.5."""

from __future__ import annotations

import asyncio
import dataclasses
import functools

from addon_operator.bindings.kubernetes import BindingMonitors
from addon_operator.dispatch.progress import Progress
from addon_operator.dispatch.routing import global_values_changed, hook_changed_values
from addon_operator.dispatch.throttles import Throttles
from addon_operator.errors import HookError, HookUnreachable
from addon_operator.hooks.call import Changes, HookId
from addon_operator.hooks.compaction import collapse_repeats
from addon_operator.hooks.config.model import MAIN_QUEUE
from addon_operator.hooks.context import Context, ObjectEvent, Synchronization, Tick
from addon_operator.hooks.effects import HookRuns, Run
from addon_operator.hooks.hook import Hook
from addon_operator.logs import get_logger
from addon_operator.modules.registry import ModuleRegistry
from addon_operator.modules.runner import ModuleRunner
from addon_operator.tasks.queue import TaskQueue
from addon_operator.tasks.task import Again, Done, Outcome, Park, Reason, RunHook, Task

log = get_logger("dispatch")


class HookRunHandler:
    """Runs hooks for tasks."""

    def __init__(
        self,
        *,
        queue: TaskQueue,
        progress: Progress,
        registry: ModuleRegistry,
        runner: ModuleRunner,
        hooks: HookRuns,
        monitors: BindingMonitors,
    ) -> None:
        """Takes its dependencies.

        Args:
            queue: the main queue, for what follows from changed values.
            progress: whether the first converge runs.
            registry: which modules are enabled, and their hooks.
            runner: drops hooks of modules whose files are gone.
            hooks: runs one hook and puts its results into effect.
            monitors: of `kubernetes` bindings.
        """
        self._queue = queue
        self._progress = progress
        self._registry = registry
        self._runner = runner
        self._hooks = hooks
        self._monitors = monitors
        self._throttles = Throttles(lambda hook: self._find(hook) is not None)

    async def __call__(self, task: Task, run: RunHook, queue: str) -> Outcome:
        """Makes one attempt at a task of the queue of this name.

        Raises:
            HookError: the hook failed, and none of its contexts allows it.
        """
        hook = self._find(run.hook)
        if hook is None:
            return Done()  # its module was disabled while the task waited
        wait_s = self._throttled_s(hook) if run.combines and not run.synchronizes else 0.0
        if wait_s > 0:
            return Park(functools.partial(asyncio.sleep, wait_s))
        rest: tuple[Context, ...] = ()
        if run.synchronizes:
            changes = await self._synchronize(hook, run, queue)
        else:
            contexts = collapse_repeats(run.contexts)
            fitting, rest = self._monitors.split_to_fit(hook, contexts)
            changes = await self._attempt(hook, run, fitting, queue)
        if changes:
            self._queue.add_tail(hook_changed_values(task.reason, hook.id, changes, self._queue.waiting))
        return Again(dataclasses.replace(run, contexts=rest)) if rest else Done()

    def _find(self, hook: HookId) -> Hook | None:
        """Returns a hook that may run; None if it is gone or its module is disabled."""
        served = hook.module is None or self._registry.is_enabled(hook.module)
        return self._registry.find_hook(hook) if served else None

    def _throttled_s(self, hook: Hook) -> float:
        return self._throttles.wait_s(hook.id, hook.config.throttle, asyncio.get_running_loop().time())

    async def _synchronize(self, hook: Hook, run: RunHook, queue: str) -> Changes:
        """Shows a hook the objects that exist; from then on it receives events."""
        outstanding = [context for _, context in self._monitors.outstanding((hook.id,))]
        contexts = tuple(context for context in run.contexts if context in outstanding)
        bindings = [context.binding for context in contexts if isinstance(context, Synchronization)]
        wanted = any(binding.run_on_synchronization for binding in bindings)
        changes = await self._attempt(hook, run, collapse_repeats(contexts), queue) if wanted else Changes()
        self._monitors.open(hook, bindings)
        return changes

    async def _attempt(self, hook: Hook, run: RunHook, contexts: tuple[Context, ...], queue: str) -> Changes:
        attempt = Run(contexts, queue, activation=self._progress.activation, allows_failure=run.allows_failure)
        try:
            return await self._hooks.run(hook, attempt)
        except HookError as error:
            fields = {"hook": hook.id.name, "module": hook.id.module, "binding": run.binding, "queue": queue}
            if isinstance(error, HookUnreachable) and not hook.path.exists() and _is_expendable(hook, run, queue):
                self._drop(hook)
                log.error(
                    "hook file is gone, its binding contexts are dropped", error=error, **fields, next=_next(hook)
                )
            elif run.allows_failure:
                log.warning("hook failed, which its binding allows", error=error, **fields)
            else:
                raise
            return Changes()

    def _drop(self, hook: Hook) -> None:
        """Ensures that the files of a module are read again; global hooks are read at the start only."""
        if hook.id.module is not None:
            self._runner.drop_hook(hook)
            self._queue.add_tail(global_values_changed(Reason.RELOAD_ALL, self._queue.waiting))


def _is_expendable(hook: Hook, run: RunHook, queue: str) -> bool:
    """Returns whether a run of a hook whose file is gone may be dropped.

    Global hooks are read at the start only, so what one is not shown it never learns: its runs wait for the file,
    unless all modules would wait with them; but not if a start or a converge builds upon them.
    """
    if hook.id.module is not None:
        return True
    return queue == MAIN_QUEUE and isinstance(run.contexts[0], ObjectEvent | Tick)


def _next(hook: Hook) -> str:
    if hook.id.module is not None:
        return "modules are read again"
    return "global hooks are read at the next start"
