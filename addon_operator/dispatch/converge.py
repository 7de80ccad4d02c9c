"""One converge after the other: scan, beforeAll hooks, plan, modules, afterAll hooks.

The task stays at the head of the main queue and advances from phase to phase; between them run the tasks that it put
before itself. Source: contract.md 3.2, 3.9.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Collection, Mapping

from addon_operator.configmap.config import OperatorConfig
from addon_operator.dispatch.progress import Progress
from addon_operator.dispatch.routing import global_values_changed, hook_tasks, plan_tasks
from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonValue
from addon_operator.errors import AddonOperatorError
from addon_operator.hooks.config.model import LifecycleKind
from addon_operator.logs import get_logger
from addon_operator.metrics.modules import ModuleMetrics
from addon_operator.modules.crd_rollout import CrdRollout
from addon_operator.modules.enablement import Enablement
from addon_operator.modules.holding import Holding
from addon_operator.modules.loader import ModuleLoader
from addon_operator.modules.plan import Verdict, make_plan
from addon_operator.modules.registry import ModuleRegistry
from addon_operator.modules.runner import ModuleRunner
from addon_operator.tasks.queue import TaskQueue
from addon_operator.tasks.task import Again, Converge, ConvergePhase, Done, Outcome, Reason, Task
from addon_operator.values.store import ValuesStore

log = get_logger("converge")


class ConvergeHandler:
    """Advances a `Converge` task by one phase."""

    def __init__(
        self,
        *,
        queue: TaskQueue,
        loader: ModuleLoader,
        registry: ModuleRegistry,
        store: ValuesStore,
        enablement: Enablement,
        runner: ModuleRunner,
        crds: CrdRollout,
        holding: Holding,
        config: OperatorConfig,
        progress: Progress,
        metrics: ModuleMetrics,
    ) -> None:
        self.progress = progress
        self._queue = queue
        self._loader = loader
        self._registry = registry
        self._store = store
        self._enablement = enablement
        self._runner = runner
        self._crds = crds
        self._holding = holding
        self._config = config
        self._metrics = metrics

    async def __call__(self, task: Task, converge: Converge) -> Outcome:
        """Does the work of one phase.

        Raises:
            AddonOperatorError: the phase has to be retried; nothing was put into force.
        """
        match converge.phase:
            case ConvergePhase.STANDBY:
                return await self._begin(task, converge)
            case ConvergePhase.WAIT_BEFORE_ALL:
                return await self._plan(task, converge)
            case ConvergePhase.WAIT_DELETE_AND_RUN_MODULES:
                await self._runner.settle()
                return self._after_all(task, converge)
            case ConvergePhase.WAIT_AFTER_ALL:
                return self._end(task, converge)

    async def _begin(self, task: Task, converge: Converge) -> Outcome:
        self._drop_followers(task)
        if self.progress.begun:  # the first one uses what was read at the start
            await self._rescan()
        self.progress.begun = True
        self.progress.started_at = asyncio.get_running_loop().time()
        following = dataclasses.replace(converge, phase=ConvergePhase.WAIT_BEFORE_ALL)
        return Again(following, head=self._hooks("beforeAll", task))

    def _drop_followers(self, task: Task) -> None:
        """Removes converges directly behind this one: they ask for what it is about to do."""
        followers = set()
        for other in self._queue.tasks[1:]:
            if not isinstance(other.payload, Converge):
                break
            followers.add(other.id)
        self._queue.remove(lambda other: other.id in followers and other.id != task.id)

    def finds_new(self, keys: Collection[str]) -> bool:
        """Returns whether there are module directories with these section keys that the last converge did not know."""
        try:
            return any(module.key in keys for module in self._loader.scan().modules)
        except AddonOperatorError:
            return False  # the next converge reports it

    def can_read(self) -> bool:
        """Returns whether a converge could read the module directories now."""
        try:
            self._loader.scan()
        except AddonOperatorError:
            return False
        return True

    async def _rescan(self) -> None:
        try:
            scan = self._loader.scan()
        except AddonOperatorError as error:
            self._metrics.discovery_failed()
            log.error("module directories cannot be read, the known modules stay until the next converge", error=error)
            self._registry.scan_error = str(error)
            return
        self._registry.scan_error = None
        known = {module.name for module in self._registry.modules}
        found = {module.name for module in scan.modules}
        for warning in scan.warnings:
            if warning not in self._registry.scan_warnings:
                log.warning("something in the module directories has no effect", reason=warning)
        self._registry.scan_warnings = scan.warnings
        for name in known - found:
            await self._runner.abandon(name)
        for path in {module.path for module in self._registry.modules} - {module.path for module in scan.modules}:
            self._runner.forget_files(path)
        if known != found:
            log.info("modules on disk changed", added=sorted(found - known), removed=sorted(known - found))
        self._store.replace_modules(scan.sections)
        self._registry.replace_modules(scan.modules)
        self._config.recheck()

    def _hooks(self, binding: LifecycleKind, task: Task) -> tuple[Task, ...]:
        hooks = self._registry.global_hooks.bound_to(binding)
        return hook_tasks([hook.id for hook in hooks], binding, task.reason)

    async def _plan(self, task: Task, converge: Converge) -> Outcome:
        await self._runner.settle()
        try:
            verdicts = await self._enablement.evaluate_all()
        except AddonOperatorError:
            self._metrics.discovery_failed()
            raise
        switched = self._switched(verdicts)
        self._registry.replace_verdicts(verdicts, config_map=self._holding.config_map_uid)
        installed = self._holding.installed(self._unread(), self._enablement.config_flags())
        plan = make_plan(self._registry.modules, verdicts, installed, self._holding.rules())
        for name, verdict in switched.items():
            if name not in plan.held:  # else only its flag is missing, and the hold is logged
                log.info("module enabled" if verdict.enabled else "module disabled", module=name, reason=verdict.reason)
        await self._holding.enforce(plan.held)
        for name in plan.delete:
            self._runner.suspend(name)
        tasks = plan_tasks(plan, task.reason, crds_pending=self._crds.pending(plan.crds))
        following = dataclasses.replace(converge, phase=ConvergePhase.WAIT_DELETE_AND_RUN_MODULES)
        return Again(following, head=tasks)

    def _unread(self) -> Collection[str]:
        """Lists what the modules directories contain besides modules, if there are releases without a module."""
        orphans = self._holding.orphans()
        if not orphans:
            return ()
        try:
            return self._loader.names() - {module.name for module in self._registry.modules}
        except AddonOperatorError as error:
            log.error(
                "releases without a module not purged, the next converge retries",
                error=error, release=", ".join(orphans),
            )  # fmt: skip
            return orphans

    def _switched(self, verdicts: Mapping[str, Verdict]) -> Mapping[str, Verdict]:
        """Records the verdicts in the metrics; returns those with another enable state than the last ones."""
        for name, verdict in verdicts.items():
            self._metrics.state(name, enabled=verdict.enabled, version=self._registry.get(name).chart_version)
        return {
            name: verdict
            for name, verdict in verdicts.items()
            if (last := self._registry.verdict(name)) is None or last.enabled != verdict.enabled
        }

    def _after_all(self, task: Task, converge: Converge) -> Outcome:
        following = dataclasses.replace(
            converge, phase=ConvergePhase.WAIT_AFTER_ALL, global_digest=self._global_digest()
        )
        return Again(following, head=self._hooks("afterAll", task))

    def _end(self, task: Task, converge: Converge) -> Outcome:
        self._finish(task)
        if converge.global_digest == self._global_digest():
            return Done()
        return Done(tail=global_values_changed(Reason.AFTER_ALL_CHANGED_VALUES, self._queue.tasks[1:]))

    def _finish(self, task: Task) -> None:
        now = asyncio.get_running_loop().time()
        duration_s = now - (self.progress.started_at or now)
        self.progress.started_at = None
        self.progress.count += 1
        self._metrics.keep(module.name for module in self._registry.modules)
        self._metrics.converged(self.progress.activation, duration_s=duration_s)
        enabled = self._registry.enabled
        log.info("converge done", reason=task.reason, duration_s=duration_s, modules=len(enabled))
        self.progress.first_done.set()

    def _global_digest(self) -> str:
        # Hooks may enable modules in memory and, for longer, in the ConfigMap.
        flagged: list[JsonValue] = [module.name for module in self._enablement.flagged()]
        return jsondoc.digest([self._store.digest("global"), flagged])
