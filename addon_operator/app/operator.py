"""One operator: its parts, and the order in which they start and stop.

Start: lists of global hooks -> ConfigMap -> releases -> stale webhooks of former processes go -> queues, which begin
with the tasks of the start. Stop: no new work; the running hook gets SIGTERM, a helm in flight may finish -> watches.
Source: contract.md 3.1, design.md 4.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable
from typing import Final

from addon_operator.app.background import background_tasks
from addon_operator.app.inspection import OperatorInspector
from addon_operator.app.observer import AttemptObserver
from addon_operator.bindings.hook_bindings import HookBindings
from addon_operator.bindings.kubernetes import BindingMonitors
from addon_operator.configmap.config import OperatorConfig
from addon_operator.configmap.source import ConfigMapSource
from addon_operator.dispatch.progress import Progress
from addon_operator.dispatch.routing import startup_tasks
from addon_operator.errors import AddonOperatorError, ValuesRejected
from addon_operator.helm.healing import Healing
from addon_operator.helm.storage import ReleaseStorage
from addon_operator.kube.client import KubeClient
from addon_operator.kube.events import EventRecorder
from addon_operator.kube.retries import retry_until_answered
from addon_operator.logs import get_logger
from addon_operator.logs.event_id import new_event
from addon_operator.metrics.operator import Metrics
from addon_operator.modules.deployment import ModuleDeployment
from addon_operator.modules.enablement import Enablement
from addon_operator.modules.registry import ModuleRegistry
from addon_operator.schedule.timer import Cron
from addon_operator.server.status import OperatorStatus, Startup
from addon_operator.tasks.queue import Handler
from addon_operator.tasks.queue_set import QueueSet
from addon_operator.tasks.task import ApplyConfig, DeleteModule, PurgeRelease, RunModules
from addon_operator.values.store import ValuesStore
from addon_operator.webhooks.host import WebhookHost

log = get_logger("operator")

_LIVE_TICK_S: Final = 10.0
_LISTED_WITHIN_S: Final = 60.0
_NOTED_WITHIN_S: Final = 5.0
_DRAINED_WITHIN_S: Final = 30.0
# What brings modules up to date outside of a converge.
_CHANGES: Final = (RunModules, DeleteModule, PurgeRelease, ApplyConfig)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """The parts of one operator, as `assembly.build` puts them together."""

    client: KubeClient
    registry: ModuleRegistry
    store: ValuesStore
    queues: QueueSet
    progress: Progress
    observer: AttemptObserver
    recorder: EventRecorder
    config: OperatorConfig
    source: ConfigMapSource
    enablement: Enablement
    storage: ReleaseStorage
    healing: Healing
    deployment: ModuleDeployment
    monitors: BindingMonitors
    schedules: Cron
    webhooks: WebhookHost
    bindings: HookBindings
    handler: Handler
    inspector: OperatorInspector
    metrics: Metrics

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Starts everything; it works until the block ends, or ends the block with the first error of a part.

        Raises:
            AddonOperatorError: it cannot start.
        """
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self.recorder.close)
            self.monitors.start_early(self.registry.global_hooks.hooks)
            start_watch = await stack.enter_async_context(background_tasks())
            start_watch(self.client.reachability.run(), "whether the API server answers")
            start_watch(self.monitors.run(), "monitors of hooks")
            self.config.load(await retry_until_answered(self.source.read))
            self._check_static_values()
            start_watch(self.storage.run(self.deployment.on_release_changed), "informer of releases")
            start_watch(self.healing.run(), "healing")
            await self.storage.wait_synced(_LISTED_WITHIN_S)
            await self.webhooks.start()
            stack.push_async_callback(self.webhooks.stop)
            await self.webhooks.clear_stale()
            with new_event():
                self.queues.main.add_tail(startup_tasks(self.registry.global_hooks))
            stack.push_async_callback(self._end_deployment)
            async with background_tasks() as start:
                start(self.source.run(), "watch of the ConfigMap")
                start(self.queues.run(self.handler), "queues")
                start(self._tick(), "live ticks")
                start(self.schedules.run(), "schedules")
                start(self.webhooks.run(), "webhooks")
                start(self._clear_stale_conversions(), "conversions that nobody serves")
                yield

    async def first_converge(self) -> None:
        """Waits for the end of the first converge, or until a task that it needs has failed too often."""
        done, stuck = self.progress.first_done, self.observer.stuck
        waits = [asyncio.create_task(event.wait(), name=name) for event, name in ((done, "done"), (stuck, "stuck"))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def drain(self) -> None:
        """Gives hooks in named queues the time to end what the first converge has led to."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAINED_WITHIN_S):
                # Once, before the end: no event says that all queues are empty.
                while any(map(len, self.queues.all())) and not self.observer.stuck.is_set():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        for name, count in self._undrained().items():
            log.error("queue is not drained, its tasks are left undone", queue=name, tasks=count)

    def status(self) -> OperatorStatus:
        """Returns how far it is at this moment."""
        progress = self.progress
        if not progress.begun:
            return OperatorStatus(Startup.NOT_STARTED)
        return OperatorStatus(
            Startup.DONE if progress.first_done.is_set() else Startup.IN_PROGRESS,
            tasks=sum(task.converge or isinstance(task.payload, _CHANGES) for task in self.queues.main.tasks),
            held=tuple(self.registry.held),
            stuck=self.observer.stuck.is_set(),
            undrained=self._undrained(),
        )

    def _undrained(self) -> dict[str, int]:
        return {queue.name: len(queue) for queue in self.queues.all() if len(queue)}

    def _check_static_values(self) -> None:
        """Values that break their schema end the start: of `global` and of the modules that flags enable.

        Raises:
            ValuesRejected: all violations. Source: contract.md 6.3 (schema violation at start).
        """
        violations = self.store.check_static(["global", *(module.key for module in self.enablement.flagged())])
        if violations:
            raise ValuesRejected("values at start are not valid:", violations)

    async def _tick(self) -> None:
        while True:
            self.metrics.live_tick()
            await asyncio.sleep(_LIVE_TICK_S)

    async def _clear_stale_conversions(self) -> None:
        """Once every module has run, removes conversions that a former process registered and nobody serves."""
        await self.progress.first_done.wait()
        try:
            await self.webhooks.clear_stale(conversions=True)
        except AddonOperatorError as error:
            log.warning("conversions that nobody serves are left registered", error=error)

    async def _end_deployment(self) -> None:
        await _within(_NOTED_WITHIN_S, self.deployment.settle())
        await self.deployment.close()


async def _within(limit_s: float, work: Awaitable[None]) -> None:
    """Waits for something that is worth some time at the end, but not more."""
    with contextlib.suppress(TimeoutError, AddonOperatorError):
        async with asyncio.timeout(limit_s):
            await work
