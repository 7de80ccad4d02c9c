"""What each kind of task does: payload -> outcome. Decisions are in `routing.py`, the work is in the layers below."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import assert_never

from addon_operator.configmap.config import OperatorConfig
from addon_operator.configmap.document import ConfigChange
from addon_operator.dispatch.converge import ConvergeHandler
from addon_operator.dispatch.routing import config_applied
from addon_operator.errors import AddonOperatorError
from addon_operator.hooks.call import HookId
from addon_operator.hooks.catalog import Hook
from addon_operator.hooks.effects import HookRuns, Run
from addon_operator.logs import get_logger
from addon_operator.modules.enablement import Enablement
from addon_operator.modules.registry import ModuleRegistry
from addon_operator.modules.runner import ModuleRunner
from addon_operator.tasks.queue import TaskQueue
from addon_operator.tasks.task import (
    ApplyConfig,
    Converge,
    DeleteModule,
    Done,
    EnsureCrds,
    Outcome,
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
        queue: TaskQueue,
        converge: ConvergeHandler,
        registry: ModuleRegistry,
        runner: ModuleRunner,
        hooks: HookRuns,
        find_hook: Callable[[HookId], Hook],
        config: OperatorConfig,
        enablement: Enablement,
        workers: int,
    ) -> None:
        self._queue = queue
        self._converge = converge
        self._registry = registry
        self._runner = runner
        self._hooks = hooks
        self._find_hook = find_hook
        self._config = config
        self._enablement = enablement
        self._workers = asyncio.Semaphore(max(workers, 1))

    async def __call__(self, task: Task) -> Outcome:
        """Makes one attempt at a task.

        Raises:
            AddonOperatorError: the attempt failed and has to be made again.
        """
        match task.payload:
            case RunHook() as run:
                return await self._run_hook(run)
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

    async def _run_hook(self, run: RunHook) -> Outcome:
        # Values changed by onStartup, beforeAll and afterAll hooks lead to nothing here: the converge that follows
        # reads them, and compares around all afterAll hooks (contract.md 3.5).
        hook = self._find_hook(run.hook)
        await self._hooks.run(hook, Run(run.binding, queue=self._queue.name, activation=self._activation))
        return Done()

    async def _run_modules(self, task: Task, names: Sequence[str]) -> Outcome:
        runs = [asyncio.create_task(self._run_module(name), name=f"run of module {name}") for name in names]
        # Whatever happens to one, also when the operator stops: nobody goes on before all are over.
        results = await asyncio.gather(*runs, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, AddonOperatorError):
                raise result
        again = tuple(name for name, result in zip(names, results, strict=True) if result)  # failed, or changed values
        failed = [result for result in results if isinstance(result, AddonOperatorError)]
        if failed:
            return Retry("\n".join(str(error) for error in failed), payload=RunModules(again))
        following = Task(RunModules(again), Reason.AFTER_HELM_CHANGED_VALUES, converge=task.converge)
        return Done(head=(following,) if again else ())

    async def _run_module(self, name: str) -> bool:
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
