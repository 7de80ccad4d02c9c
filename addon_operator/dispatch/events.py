"""The one sink for events from outside the queues: object changes, ticks, absent objects, a new ConfigMap.

Every room declares a Protocol with the events that it emits; this class implements all of them. A method takes one
event, adds the tasks that `routing.py` decides on, and returns at once. Source: contract.md 3.5, 3.6.
"""

from __future__ import annotations

from collections.abc import Sequence

from addon_operator.dispatch import routing
from addon_operator.dispatch.progress import Progress
from addon_operator.errors import AddonOperatorError
from addon_operator.helm.release import ReleaseFacts
from addon_operator.hooks.call import Changes, HookId
from addon_operator.hooks.config.model import Schedule
from addon_operator.hooks.context import ObjectEvent, Synchronization
from addon_operator.hooks.hook import Hook
from addon_operator.kube.events import Warn
from addon_operator.kube.refs import ObjectKey
from addon_operator.logs import get_logger
from addon_operator.logs.event_id import new_event
from addon_operator.metrics.config import ConfigMetrics
from addon_operator.modules.loader import ModuleLoader
from addon_operator.modules.registry import ModulePhase, ModuleRegistry
from addon_operator.tasks.queue_set import QueueSet
from addon_operator.tasks.task import ConfirmRemovals, EnsureCrds, Reason, Task
from addon_operator.values.store import ValuesStore

log = get_logger("dispatch")


class EventSink:
    """Turns events into tasks."""

    def __init__(
        self,
        *,
        queues: QueueSet,
        registry: ModuleRegistry,
        loader: ModuleLoader,
        store: ValuesStore,
        progress: Progress,
        warn: Warn,
        metrics: ConfigMetrics,
        config_map: ObjectKey,
    ) -> None:
        """Takes its dependencies.

        Args:
            queues: where tasks go.
            registry: which modules exist, and their states.
            loader: reads the module directories.
            store: the values in force.
            progress: schedules are not served before the end of the first converge (contract.md 3.1).
            warn: writes a Kubernetes Event.
            metrics: counts refused states of the ConfigMap.
            config_map: what Events about refused states are about.
        """
        self._queues = queues
        self._registry = registry
        self._loader = loader
        self._store = store
        self._progress = progress
        self._warn = warn
        self._metrics = metrics
        self._config_map = config_map

    # --- the ConfigMap

    def config_accepted(self) -> None:
        """The ConfigMap has a valid new state."""
        main = self._queues.main
        main.add_head(routing.config_accepted(main.waiting))

    def config_refused(self, error: AddonOperatorError) -> None:
        """The ConfigMap has a state that cannot be used."""
        self._metrics.refused()
        log.error("ConfigMap refused, the former values stay in force", error=error)
        self._warn(self._config_map, "ConfigRefused", " ".join(str(error).split()))
        self._rescan_if_changed()

    def _rescan_if_changed(self) -> None:
        """Adds a converge if values files or schemas on disk have changed: what allows the state may be among them."""
        try:
            sections = self._loader.scan().sections
        except AddonOperatorError:
            return  # the next converge reports it
        main = self._queues.main
        if not self._store.is_made_of(sections):
            main.add_tail(routing.global_values_changed(Reason.RELOAD_ALL, main.waiting))

    def removals_confirmed(self, names: Sequence[str]) -> None:
        """A person lets held modules be removed."""
        with new_event():
            self._queues.main.add_head((Task(ConfirmRemovals(tuple(names)), Reason.REMOVALS_CONFIRMED),))

    def object_changed(self, hook: Hook, event: ObjectEvent) -> None:
        """Something happened to an object that a hook watches."""
        if self._serves(hook):
            with new_event():
                self._queues.get(event.binding.queue).add_tail((routing.object_changed(hook, event),))

    def synchronization_due(self, hook: Hook, context: Synchronization) -> bool:
        """A binding that could not watch can have its Synchronization now; returns whether it has it."""
        if not self._serves(hook):
            return False
        with new_event():
            main, others = routing.split_main(((hook, context),), Reason.KUBERNETES)
        self._queues.main.add_head(main)  # a run that waits for it may be there already
        for queue, task in others:
            self._queues.get(queue).add_tail((task,))
        return True

    def values_changed(self, hook: HookId, changes: Changes) -> None:
        """A hook that ran for a review, in no queue, has changed values."""
        main = self._queues.main
        main.add_tail(routing.hook_changed_values(Reason.KUBERNETES, hook, changes, main.waiting))

    def ticked(self, hook: Hook, schedule: Schedule) -> None:
        """The time of a schedule has come."""
        if not self._progress.first_done.is_set():
            log.debug("tick dropped, the first converge is not done", hook=hook.id.name, binding=schedule.name)
            return
        queue = self._queues.get(schedule.queue)
        with new_event():
            task = routing.ticked(hook, schedule, queue.waiting)
        if task is not None and self._serves(hook):
            queue.add_tail((task,))

    def objects_absent(self, release: str, _objects: tuple[ObjectKey, ...], /) -> None:
        """Objects of a release are gone."""
        if not self._registry.is_enabled(release) or not self._registry.get(release).has_release:
            return
        # While the module runs, its hooks may delete objects on purpose.
        main, through = self._queues.main, self._registry.state(release).phase is ModulePhase.READY
        with new_event():
            main.add_tail(routing.absent_objects(release, main.waiting if through else main.tasks))

    def definition_gone(self, name: str, *, unexpected: bool) -> None:
        """A CRD is gone: its modules apply it again, at once unless a hook has deleted it."""
        owners = [module for module in self._registry.enabled if name in self._registry.state(module).crds]
        for module in owners:
            state = self._registry.state(module)
            state.crds = {crd: source for crd, source in state.crds.items() if crd != name}
        if unexpected and owners:
            main = self._queues.main
            with new_event():
                # First of all: whatever needs it fails without it.
                main.add_head((Task(EnsureCrds(tuple(owners)), Reason.ABSENT_OBJECTS),))
                main.add_tail(routing.module_tasks(owners, Reason.ABSENT_OBJECTS, main.waiting))

    def release_changed(self, facts: ReleaseFacts) -> None:
        """Somebody else rolled back, upgraded or removed a release; its module runs if it is ready."""
        name = facts.name
        at_rest = self._registry.is_enabled(name) and self._registry.state(name).phase is ModulePhase.READY
        if at_rest and self._registry.get(name).has_release:
            with new_event():
                self._queues.main.add_tail(routing.release_changed(facts, self._queues.main.waiting))

    def _serves(self, hook: Hook) -> bool:
        return hook.id.module is None or self._registry.is_enabled(hook.id.module)
