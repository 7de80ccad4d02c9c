"""What each kind of task does: payload -> outcome. Decisions are in `routing.py`, the work is in the layers below."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Final, assert_never

from addon_operator.bindings.hook_bindings import Reactions
from addon_operator.configmap.config import OperatorConfig
from addon_operator.configmap.document import ConfigChange
from addon_operator.dispatch.converge import ConvergeHandler
from addon_operator.dispatch.routing import (
    FollowUp,
    config_applied,
    converge_next,
    global_values_changed,
    hook_changed_values,
    split_main,
)
from addon_operator.errors import AddonOperatorError, HookError, HookUnreachable
from addon_operator.hooks.call import Changes, HookId
from addon_operator.hooks.compaction import collapse_repeats
from addon_operator.hooks.config.model import MAIN_QUEUE, Throttle
from addon_operator.hooks.context import Context, ObjectEvent, Synchronization, Tick
from addon_operator.hooks.effects import HookRuns, Run
from addon_operator.hooks.hook import Hook, LoadedHooks
from addon_operator.logs import get_logger
from addon_operator.modules.enablement import Enablement
from addon_operator.modules.holding import Holding
from addon_operator.modules.registry import ModuleRegistry
from addon_operator.modules.runner import Finished, ModuleRunner, Paused
from addon_operator.retry import TokenBucket
from addon_operator.tasks.queue_set import QueueSet
from addon_operator.tasks.task import (
    Again,
    ApplyConfig,
    AwaitSynchronization,
    ConfirmRemovals,
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
from addon_operator.values.layers import section_key

log = get_logger("dispatch")

_WEBHOOKS_QUEUE: Final = "webhooks"


class Handlers:
    """Handles every task of every queue."""

    def __init__(
        self,
        *,
        queues: QueueSet,
        converge: ConvergeHandler,
        registry: ModuleRegistry,
        runner: ModuleRunner,
        holding: Holding,
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
        self._holding = holding
        self._hooks = hooks
        self._reactions = reactions
        self._global_hooks = global_hooks
        self._find_hook = find_hook
        self._throttles: dict[HookId, tuple[Throttle, TokenBucket]] = {}
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
            case EnableSchedules() | EnableMonitors() | EnableWebhooks() | AwaitSynchronization() as start:
                return await self._start_global(task, start, queue)
            case Converge() as converge:
                return await self._converge(task, converge)
            case EnsureCrds(modules=names):
                await self._runner.ensure_crds(names)
                return Done()
            case RunModules(modules=names):
                return await self._run_modules(task, names)
            case DeleteModule(module=name):
                return await self._delete_module(name)
            case PurgeRelease(release=name):
                return await self._purge(name)
            case ApplyConfig():
                return await self._apply_config(task)
            case ConfirmRemovals(modules=names):
                self._holding.confirm(names)
                return self._follow_up(converge_next(task.reason, self._others(task)))
            case _:
                assert_never(task.payload)

    async def _start_global(
        self, task: Task, start: EnableSchedules | EnableMonitors | EnableWebhooks | AwaitSynchronization, queue: str
    ) -> Outcome:
        match start:
            case EnableSchedules(hook=hook):
                self._reactions.schedule(self._global_hook(hook))
                return Done()
            case EnableMonitors(hook=hook):
                return await self._enable_monitors(task, self._global_hook(hook))
            case EnableWebhooks():
                return await self._serve_webhooks(task, start, queue)
            case AwaitSynchronization():
                return self._await_synchronization(task)

    @property
    def _activation(self) -> str:
        return self._converge.progress.activation

    def _global_hook(self, hook: HookId) -> Hook:
        found = self._global_hooks.find(hook)
        assert found is not None
        return found

    async def _enable_monitors(self, task: Task, hook: Hook) -> Outcome:
        await self._reactions.monitors.synchronize((hook,))
        return Done(head=self._place((hook.id,), task.reason))

    def _place(self, hooks: Iterable[HookId], reason: Reason) -> tuple[Task, ...]:
        """Sees to it that each Synchronization is in a queue; gives those of the main queue, which are to run next.

        Those that wait in the main queue already are taken out of it: something may have overtaken them that waits for
        them.
        """
        main, others = split_main(self._reactions.monitors.outstanding(hooks), reason)
        for queue, task in others:
            if not any(_holds(other, task) for other in self._queues.get(queue).tasks):
                self._queues.get(queue).add_tail((task,))
        self._queue.remove(lambda other: any(_holds(other, task) for task in main))
        return main

    def _await_synchronization(self, task: Task) -> Outcome:
        monitors = self._reactions.monitors
        progress = monitors.next_progress()
        hooks = [hook.id for hook in self._global_hooks.hooks]
        if monitors.synchronized(hooks):
            return Done()
        head = self._place(hooks, task.reason)
        return Again(task.payload, head=head) if head else Park(progress.wait)

    async def _serve_webhooks(self, task: Task, webhooks: EnableWebhooks, queue: str) -> Outcome:
        """Registers webhooks; what cannot be registered is tried again where nothing else waits for it."""
        hook = self._global_hook(webhooks.hook)
        try:
            if webhooks.conversions_only:
                await self._reactions.serve_conversions(hook)
            else:
                await self._reactions.serve_webhooks(hook)
        except AddonOperatorError as error:
            if queue == _WEBHOOKS_QUEUE:
                raise
            log.error("webhooks are not served yet", hook=hook.id.name, queue=_WEBHOOKS_QUEUE, error=error)
            self._queues.get(_WEBHOOKS_QUEUE).add_tail((task,))
        return Done()

    async def _run_hook(self, task: Task, run: RunHook, queue: str) -> Outcome:
        hook = self._find_hook(run.hook)
        if hook is None or (hook.id.module is not None and not self._registry.is_enabled(hook.id.module)):
            return Done()  # its module went away in the meantime
        wait_s = self._throttled_s(hook) if run.combines and not run.synchronizes else 0.0
        if wait_s > 0:
            return Park(functools.partial(asyncio.sleep, wait_s))
        rest: tuple[Context, ...] = ()
        if run.synchronizes:
            changes = await self._synchronize(hook, run, queue)
        else:
            contexts = collapse_repeats(run.contexts)
            count = self._reactions.monitors.fitting(hook, contexts)
            changes, rest = await self._attempt(hook, run, contexts[:count], queue), contexts[count:]
        if changes:
            self._queue.add_tail(hook_changed_values(task.reason, hook.id, changes, self._queue.waiting))
        return Again(dataclasses.replace(run, contexts=rest)) if rest else Done()

    async def _synchronize(self, hook: Hook, run: RunHook, queue: str) -> Changes:
        """Shows a hook what exists; from then on it hears of changes."""
        outstanding = [context for _, context in self._reactions.monitors.outstanding((hook.id,))]
        contexts = tuple(context for context in run.contexts if context in outstanding)
        bindings = [context.binding for context in contexts if isinstance(context, Synchronization)]
        wanted = any(binding.run_on_synchronization for binding in bindings)
        changes = await self._attempt(hook, run, collapse_repeats(contexts), queue) if wanted else Changes()
        self._reactions.monitors.open(hook, bindings)
        return changes

    async def _attempt(self, hook: Hook, run: RunHook, contexts: tuple[Context, ...], queue: str) -> Changes:
        attempt = Run(contexts, queue, activation=self._activation, allows_failure=run.allows_failure)
        try:
            return await self._hooks.run(hook, attempt)
        except HookError as error:
            fields = {"hook": hook.id.name, "module": hook.id.module, "binding": run.binding, "queue": queue}
            if isinstance(error, HookUnreachable) and not hook.path.exists() and _may_go(hook, run, queue):
                self._drop_hook(hook)
                log.error("hook is gone, what it was to be told is dropped", error=error, **fields)
            elif run.allows_failure:
                log.warning("hook failed, which its binding allows", error=error, **fields)
            else:
                raise
            return Changes()

    def _drop_hook(self, hook: Hook) -> None:
        """Sees to it that what is on disk is read again; global hooks are read at the start only."""
        if hook.id.module is not None:
            self._runner.drop_hook(hook)
            self._queue.add_tail(global_values_changed(Reason.RELOAD_ALL, self._queue.waiting))

    def _throttled_s(self, hook: Hook) -> float:
        """Answers how long the hook's own limit holds this run back; 0 takes the permission."""
        throttle, now = hook.config.throttle, asyncio.get_running_loop().time()
        if throttle is None:
            return 0.0
        known = self._throttles.get(hook.id)
        if known is None or known[0] != throttle:
            known = (throttle, TokenBucket(1 / throttle.min_interval_s, throttle.burst))
            self._throttles[hook.id] = known
        bucket = known[1]
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
        outcomes = dict(zip(names, results, strict=True))
        for name, result in zip(names, results, strict=True):
            if isinstance(result, AddonOperatorError) and self._is_gone(name):
                self._rescan(name, result)
                del outcomes[name]
        again = tuple(name for name, result in outcomes.items() if result != Finished())
        paused = [result for result in outcomes.values() if isinstance(result, Paused)]
        failed = [result for result in outcomes.values() if isinstance(result, AddonOperatorError)]
        head = self._place((hook for name in again for hook in self._hooks_of(name)), task.reason) if paused else ()
        if head:
            for error in failed:
                log.warning("module run failed, tried again after the Synchronization of others", error=error)
            return Again(RunModules(again), head=head)
        if failed:
            return Retry("\n".join(str(error) for error in failed), payload=RunModules(again))
        if paused:
            return Park(progress.wait, payload=RunModules(again))
        following = Task(RunModules(again), Reason.AFTER_HELM_CHANGED_VALUES, converge=task.converge)
        return Done(head=(following,) if again else ())

    async def _delete_module(self, name: str) -> Outcome:
        try:
            await self._runner.delete(name, activation=self._activation)
        except AddonOperatorError as error:
            if not self._is_gone(name):
                raise
            self._rescan(name, error)
        return Done()

    def _is_gone(self, module: str) -> bool:
        """Returns whether a converge would find out that a module's directory does not exist any more.

        One that cannot read the directories would bring the module to its run again, and that to a converge, at once.
        """
        return not self._registry.get(module).path.is_dir() and self._converge.can_read()

    def _rescan(self, module: str, error: AddonOperatorError) -> None:
        """Gives up on a module whose directory is gone: a converge reads what is on disk now, all else goes on."""
        path = str(self._registry.get(module).path)
        log.error("directory of a module is gone, modules are read again", module=module, path=path, error=error)
        self._queue.add_tail(global_values_changed(Reason.RELOAD_ALL, self._queue.waiting))

    def _hooks_of(self, module: str) -> tuple[HookId, ...]:
        hooks = self._registry.state(module).hooks
        return tuple(hook.id for hook in hooks.hooks) if hooks else ()

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
            waiting=self._others(task),
        )
        return self._follow_up(follow_up)

    def _others(self, task: Task) -> tuple[Task, ...]:
        return tuple(other for other in self._queue.tasks if other.id != task.id)

    def _follow_up(self, follow_up: FollowUp) -> Outcome:
        dropped = {other.id for other in follow_up.drop}
        self._queue.remove(lambda other: other.id in dropped)
        return Done(head=follow_up.head)

    async def _enablement_changed(self, change: ConfigChange) -> bool:
        if change.flags & set(map(section_key, self._registry.held)):
            return True  # what says no may be what a held module waits for
        unknown = change.flags - {module.key for module in self._registry.modules}
        if unknown and self._converge.finds_new(unknown):
            return True
        try:
            return await self._enablement.changed(change.flags | change.sections)
        except AddonOperatorError as error:
            # The converge asks the script again and reports what it says, with retries.
            log.warning("enable state is not known, so all modules are looked at", error=error)
            return True


def _may_go(hook: Hook, run: RunHook, queue: str) -> bool:
    """Answers whether a hook may be left out.

    Global hooks are read at the start only, so what one is not told it never learns: they wait for their file, unless
    everybody would wait with them; but not if a start or a converge builds upon them.
    """
    if hook.id.module is not None:
        return True
    return queue == MAIN_QUEUE and isinstance(run.contexts[0], ObjectEvent | Tick)


def _holds(task: Task, synchronization: Task) -> bool:
    """Answers whether a task is this Synchronization, perhaps among others of the hook."""
    one, other = task.payload, synchronization.payload
    if not isinstance(one, RunHook) or not isinstance(other, RunHook) or one.hook != other.hook:
        return False
    return any(context in one.contexts for context in other.contexts)
