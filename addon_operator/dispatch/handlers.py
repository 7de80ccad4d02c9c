"""Which handler does what a task asks for: payload -> outcome. Decisions are in `routing.py`."""

from __future__ import annotations

from typing import assert_never

from addon_operator.configmap.config import OperatorConfig
from addon_operator.configmap.document import ConfigChange
from addon_operator.dispatch.converge import ConvergeHandler
from addon_operator.dispatch.global_hooks import GlobalHookHandler
from addon_operator.dispatch.hook_runs import HookRunHandler
from addon_operator.dispatch.module_runs import ModuleRunHandler
from addon_operator.dispatch.routing import FollowUp, config_applied, converge_next
from addon_operator.errors import AddonOperatorError
from addon_operator.logs import event_id, get_logger
from addon_operator.modules.crd_rollout import CrdRollout
from addon_operator.modules.enablement import Enablement
from addon_operator.modules.holding import Holding
from addon_operator.modules.registry import ModuleRegistry
from addon_operator.tasks.queue import TaskQueue
from addon_operator.tasks.task import (
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
    PurgeRelease,
    RunHook,
    RunModules,
    Task,
)
from addon_operator.values.layers import section_key

log = get_logger("dispatch")


class Handlers:
    """Handles every task of every queue."""

    def __init__(
        self,
        *,
        queue: TaskQueue,
        converge: ConvergeHandler,
        hook_runs: HookRunHandler,
        module_runs: ModuleRunHandler,
        global_hooks: GlobalHookHandler,
        registry: ModuleRegistry,
        crds: CrdRollout,
        holding: Holding,
        config: OperatorConfig,
        enablement: Enablement,
    ) -> None:
        """Takes its dependencies; `queue` is the main one."""
        self._queue = queue
        self._converge = converge
        self._hook_runs = hook_runs
        self._module_runs = module_runs
        self._global_hooks = global_hooks
        self._registry = registry
        self._crds = crds
        self._holding = holding
        self._config = config
        self._enablement = enablement

    async def __call__(self, task: Task, queue: str) -> Outcome:
        """Makes one attempt at a task of the queue of this name.

        Raises:
            AddonOperatorError: the attempt failed and has to be made again.
        """
        with event_id.handling(task.event_id):
            return await self._attempt(task, queue)

    async def _attempt(self, task: Task, queue: str) -> Outcome:
        match task.payload:
            case RunHook() as run:
                return await self._hook_runs(task, run, queue)
            case EnableSchedules() | EnableMonitors() | EnableWebhooks() | AwaitSynchronization() as start:
                return await self._global_hooks(task, start, queue)
            case Converge() as converge:
                return await self._converge(task, converge)
            case EnsureCrds(modules=names):
                await self._crds.ensure(names)
                return Done()
            case RunModules(modules=names):
                return await self._module_runs.run(task, names)
            case DeleteModule(module=name):
                return await self._module_runs.delete(name)
            case PurgeRelease(release=name):
                return await self._module_runs.purge(name)
            case ApplyConfig():
                return await self._apply_config(task)
            case ConfirmRemovals(modules=names):
                self._holding.confirm(names)
                return self._follow_up(converge_next(task.reason, self._others(task)))
            case _:
                assert_never(task.payload)

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

    async def _enablement_changed(self, change: ConfigChange) -> bool:
        if change.flags & set(map(section_key, self._registry.held)):
            return True  # a held module may wait for this flag
        unknown = change.flags - {module.key for module in self._registry.modules}
        if unknown and self._converge.finds_new(unknown):
            return True
        try:
            return await self._enablement.changed(change.flags | change.sections)
        except AddonOperatorError as error:
            # The converge runs the enabled scripts again and reports their errors, with retries.
            log.warning("enable state of modules cannot be determined, a converge follows", error=error)
            return True

    def _others(self, task: Task) -> tuple[Task, ...]:
        return tuple(other for other in self._queue.tasks if other.id != task.id)

    def _follow_up(self, follow_up: FollowUp) -> Outcome:
        dropped = {other.id for other in follow_up.drop}
        self._queue.remove(lambda other: other.id in dropped)
        return Done(head=follow_up.head)
