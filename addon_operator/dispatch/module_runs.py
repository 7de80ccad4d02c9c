"""What tasks about modules do: run, delete and purge them. Source: contract.md 3.3, 3.4."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from addon_operator.bindings.kubernetes import BindingMonitors
from addon_operator.dispatch.converge import ConvergeHandler
from addon_operator.dispatch.routing import global_values_changed
from addon_operator.dispatch.synchronizations import Synchronizations
from addon_operator.errors import AddonOperatorError
from addon_operator.hooks.call import HookId
from addon_operator.logs import get_logger
from addon_operator.modules.registry import ModuleRegistry
from addon_operator.modules.runner import Finished, ModuleRunner, Paused
from addon_operator.tasks.queue import TaskQueue
from addon_operator.tasks.task import Again, Done, Outcome, Park, Reason, Retry, RunModules, Task

log = get_logger("dispatch")


class ModuleRunHandler:
    """Runs, deletes and purges modules for tasks."""

    def __init__(
        self,
        *,
        queue: TaskQueue,
        converge: ConvergeHandler,
        registry: ModuleRegistry,
        runner: ModuleRunner,
        monitors: BindingMonitors,
        synchronizations: Synchronizations,
        workers: int,
    ) -> None:
        """Takes its dependencies.

        Args:
            queue: the main queue, for converges that follow.
            converge: whether the first converge runs, and whether one could read the module directories.
            registry: which modules exist, and what is known about them.
            runner: does the work for one module.
            monitors: of `kubernetes` bindings.
            synchronizations: puts those that a run waits for into their queues.
            workers: how many modules of equal order may run at once, at least one.
        """
        self._queue = queue
        self._converge = converge
        self._registry = registry
        self._runner = runner
        self._monitors = monitors
        self._synchronizations = synchronizations
        self._workers = asyncio.Semaphore(max(workers, 1))

    async def run(self, task: Task, names: Sequence[str]) -> Outcome:
        """Runs modules side by side; those that failed or have to wait are left for the next attempt."""
        progress = self._monitors.next_progress()
        runs = [asyncio.create_task(self._run_one(name), name=f"run of module {name}") for name in names]
        # Whatever happens to one of them, also when the operator stops: nothing else begins before all are done.
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
        failed = {name: result for name, result in outcomes.items() if isinstance(result, AddonOperatorError)}
        head = self._queue_synchronizations(again, task.reason) if paused else ()
        if head:
            for name, error in failed.items():
                log.warning(
                    "module run failed, it is retried after the Synchronization of other modules",
                    module=name, error=error,
                )  # fmt: skip
            return Again(RunModules(again), head=head)
        if failed:
            return Retry("\n".join(map(str, failed.values())), payload=RunModules(again))
        if paused:
            return Park(progress.wait, payload=RunModules(again))
        following = Task(RunModules(again), Reason.AFTER_HELM_CHANGED_VALUES, converge=task.converge)
        return Done(head=(following,) if again else ())

    async def delete(self, name: str) -> Outcome:
        """Deletes a disabled module.

        Raises:
            AddonOperatorError: to be retried.
        """
        try:
            await self._runner.delete(name, activation=self._converge.progress.activation)
        except AddonOperatorError as error:
            if not self._is_gone(name):
                raise
            self._rescan(name, error)
        return Done()

    async def purge(self, release: str) -> Outcome:
        """Uninstalls a release without a module; an error is only logged (contract.md 3.4)."""
        try:
            await self._runner.purge(release)
        except AddonOperatorError as error:
            log.error("release not purged, the next converge retries", release=release, error=error)
        return Done()

    async def _run_one(self, name: str) -> Finished | Paused:
        async with self._workers:
            return await self._runner.run(name, activation=self._converge.progress.activation)

    def _queue_synchronizations(self, modules: Sequence[str], reason: Reason) -> tuple[Task, ...]:
        return self._synchronizations.queue((hook for name in modules for hook in self._hooks_of(name)), reason)

    def _hooks_of(self, module: str) -> tuple[HookId, ...]:
        hooks = self._registry.state(module).hooks
        return tuple(hook.id for hook in hooks.hooks) if hooks else ()

    def _is_gone(self, module: str) -> bool:
        """Returns whether a converge would find that a module's directory is gone.

        One that cannot read the directories would keep the module, whose run would fail and ask for a converge again,
        without a delay.
        """
        return not self._registry.get(module).path.is_dir() and self._converge.can_read()

    def _rescan(self, module: str, error: AddonOperatorError) -> None:
        """Gives up a module whose directory is gone: a converge reads the directories again."""
        path = str(self._registry.get(module).path)
        log.error("module directory is gone, modules are read again", module=module, path=path, error=error)
        self._queue.add_tail(global_values_changed(Reason.RELOAD_ALL, self._queue.waiting))
