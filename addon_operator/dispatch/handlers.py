"""What each kind of task does: payload -> outcome. Decisions are in `routing.py`, the work is in the layers below."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import assert_never

from addon_operator.backoff import TokenBucket
from addon_operator.configmap.config import OperatorConfig
from addon_operator.configmap.document import ConfigChange
from addon_operator.dispatch.converge import ConvergeHandler
from addon_operator.dispatch.routing import config_applied, hook_changed_values, split_main
from addon_operator.errors import AddonOperatorError, HookError
from addon_operator.hooks.call import Changes, HookId
from addon_operator.hooks.context import Synchronization
from addon_operator.hooks.effects import HookRuns, Run
from addon_operator.hooks.hook import Hook, LoadedHooks
from addon_operator.logs import get_logger
from addon_operator.modules.enablement import Enablement
from addon_operator.modules.registry import ModuleRegistry
from addon_operator.modules.runner import Finished, ModuleRunner, Paused
from addon_operator.reactions import Reactions
from addon_operator.tasks.combine import fold_groups
from addon_operator.tasks.queue import QueueSet
from addon_operator.tasks.task import (
    Again,
    ApplyConfig,
    AwaitSynchronization,
    Converge,
    DeleteModule,
    Done,
    EnableMonitors,
    EnableSchedules,
    EnableWebhooks,
    EnsureCrds,
    Outcome,
    Park,
    PurgeRelease,
    Reason,
    Retry,
    RunHook,
    RunModules,
    Task,
)

log = get_logger("dispatch")


class Handlers:
    """Handles every task of every queue."""

    def __init__(
        self,
        *,
        queues: QueueSet,
        converge: ConvergeHandler,
        registry: ModuleRegistry,
        runner: ModuleRunner,
        hooks: HookRuns,
        reactions: Reactions,
        global_hooks: LoadedHooks,
        find_hook: Callable[[HookId], Hook | None],
        config: OperatorConfig,
        enablement: Enablement,
        workers: int,
    ) -> None:
        self._queues = queues
        self._queue = queues.main
        self._converge = converge
        self._registry = registry
        self._runner = runner
        self._hooks = hooks
        self._reactions = reactions
        self._global_hooks = global_hooks
        self._find_hook = find_hook
        self._throttles: dict[HookId, TokenBucket] = {}
        self._config = config
        self._enablement = enablement
        self._workers = asyncio.Semaphore(max(workers, 1))

    async def __call__(self, task: Task, queue: str) -> Outcome:
        """Makes one attempt at a task of a queue.

        Raises:
            AddonOperatorError: the attempt failed and has to be made again.
        """
        match task.payload:
            case RunHook() as run:
                return await self._run_hook(task, run, queue)
            case EnableSchedules(hook=hook):
                self._reactions.schedule(self._global_hook(hook))
                return Done()
            case EnableMonitors(hook=hook):
                return await self._enable_monitors(task, self._global_hook(hook))
            case EnableWebhooks(hook=hook):
                await self._reactions.serve_webhooks(self._global_hook(hook))
                return Done()
            case AwaitSynchronization():
                return self._await_synchronization()
            case Converge() as converge:
                return await self._converge(task, converge)
            case EnsureCrds(modules=names):
                await self._runner.ensure_crds(names)
                return Done()
            case RunModules(modules=names):
                return await self._run_modules(task, names)
            case DeleteModule(module=name):
                await self._runner.delete(name, activation=self._activation)
                return Done()
            case PurgeRelease(release=name):
                return await self._purge(name)
            case ApplyConfig():
                return await self._apply_config(task)
            case _:
                assert_never(task.payload)

    @property
    def _activation(self) -> str:
        return self._converge.progress.activation

    def _global_hook(self, hook: HookId) -> Hook:
        found = self._global_hooks.find(hook)
        assert found is not None
        return found

    async def _enable_monitors(self, task: Task, hook: Hook) -> Outcome:
        return Done(head=self._place(await self._reactions.monitors.synchronize((hook,)), task.reason))

    def _place(self, synchronizations: Iterable[tuple[Hook, Synchronization]], reason: Reason) -> tuple[Task, ...]:
        """Puts Synchronizations into the named queues; gives those of the main queue."""
        main, others = split_main(synchronizations, reason)
        for queue, task in others:
            self._queues.get(queue).add_tail((task,))
        return main

    def _await_synchronization(self) -> Outcome:
        monitors = self._reactions.monitors
        progress = monitors.next_progress()
        hooks = [hook.id for hook in self._global_hooks.hooks]
        return Done() if monitors.synchronized(hooks) else Park(progress.wait)

    async def _run_hook(self, task: Task, run: RunHook, queue: str) -> Outcome:
        hook = self._find_hook(run.hook)
        if hook is None:
            return Done()  # its module went away in the meantime
        wait_s = self._throttled_s(hook) if run.combines and not run.synchronizes else 0.0
        if wait_s > 0:
            return Park(functools.partial(asyncio.sleep, wait_s))
        changes = await (self._synchronize(hook, run, queue) if run.synchronizes else self._attempt(hook, run, queue))
        if changes:
            self._queue.add_tail(hook_changed_values(task, hook.id, changes, self._queue.waiting).tail)
        return Done()

    async def _synchronize(self, hook: Hook, run: RunHook, queue: str) -> Changes:
        """Shows a hook what exists; from then on it hears of changes."""
        bindings = [context.binding for context in run.contexts if isinstance(context, Synchronization)]
        wanted = any(binding.run_on_synchronization for binding in bindings)
        changes = await self._attempt(hook, run, queue) if wanted else Changes()
        self._reactions.monitors.open(hook.id, bindings)
        return changes

    async def _attempt(self, hook: Hook, run: RunHook, queue: str) -> Changes:
        contexts = fold_groups(run.contexts)
        attempt = Run(contexts, queue, activation=self._activation, allows_failure=run.allows_failure)
        try:
            return await self._hooks.run(hook, attempt)
        except HookError as error:
            if not run.allows_failure:
                raise
            log.warning(
                "hook failed, which its binding allows",
                hook=hook.id.name, module=hook.id.module, binding=run.binding, queue=queue, error=error,
            )  # fmt: skip
            return Changes()

    def _throttled_s(self, hook: Hook) -> float:
        """Answers how long the hook's own limit holds this run back; 0 takes the permission."""
        throttle, now = hook.config.throttle, asyncio.get_running_loop().time()
        if throttle is None:
            return 0.0
        bucket = self._throttles.get(hook.id)
        if bucket is None:
            bucket = self._throttles[hook.id] = TokenBucket(1 / throttle.min_interval_s, throttle.burst)
        wait_s = bucket.wait_s(now)
        if wait_s <= 0:
            bucket.reserve(now)
        return wait_s

    async def _run_modules(self, task: Task, names: Sequence[str]) -> Outcome:
        progress = self._reactions.monitors.next_progress()
        runs = [asyncio.create_task(self._run_module(name), name=f"run of module {name}") for name in names]
        # Whatever happens to one, also when the operator stops: nobody goes on before all are over.
        results = await asyncio.gather(*runs, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, AddonOperatorError):
                raise result
        again = tuple(name for name, result in zip(names, results, strict=True) if result != Finished())
        paused = [result for result in results if isinstance(result, Paused)]
        failed = [result for result in results if isinstance(result, AddonOperatorError)]
        synchronizations = [one for pause in paused for one in pause.synchronizations]
        if synchronizations:
            head = self._place(synchronizations, task.reason)
            for error in failed:
                log.warning("module run failed, tried again after the Synchronization of others", error=error)
            return Again(RunModules(again), head=head)
        if failed:
            return Retry("\n".join(str(error) for error in failed), payload=RunModules(again))
        if paused:
            return Park(progress.wait, payload=RunModules(again))
        following = Task(RunModules(again), Reason.AFTER_HELM_CHANGED_VALUES, converge=task.converge)
        return Done(head=(following,) if again else ())

    async def _run_module(self, name: str) -> Finished | Paused:
        async with self._workers:
            return await self._runner.run(name, activation=self._activation)

    async def _purge(self, release: str) -> Outcome:
        try:
            await self._runner.purge(release)
        except AddonOperatorError as error:
            # Contract 3.4: an error is only logged. The next converge finds the release again.
            log.error("release is not purged now, the next converge tries again", release=release, error=error)
        return Done()

    async def _apply_config(self, task: Task) -> Outcome:
        try:
            change = self._config.apply()
        except AddonOperatorError:
            return Done()  # reported by the operator config; the former state stays in force
        if change.empty:
            return Done()
        follow_up = config_applied(
            change,
            enablement_changed=not change.global_changed and await self._enablement_changed(change),
            run=tuple(
                name
                for name in self._registry.enabled
                if self._registry.get(name).key in change.sections | change.maintenance
            ),
            waiting=tuple(other for other in self._queue.tasks if other.id != task.id),
        )
        if follow_up.drop_converge:
            self._queue.remove(lambda other: other.converge)
        if follow_up.drop_runs:
            self._queue.remove(lambda other: isinstance(other.payload, RunModules) and not other.converge)
        return Done(head=follow_up.head, tail=follow_up.tail)

    async def _enablement_changed(self, change: ConfigChange) -> bool:
        unknown = change.flags - {module.key for module in self._registry.modules}
        if unknown and self._converge.finds_new(unknown):
            return True
        try:
            return await self._enablement.changed(change.flags | change.sections)
        except AddonOperatorError as error:
            # The converge asks the script again and reports what it says, with retries.
            log.warning("enable state is not known, so all modules are looked at", error=error)
            return True
