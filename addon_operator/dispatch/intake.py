"""What happens outside the queues becomes tasks in them: changes of objects, ticks, lost objects, a new ConfigMap.

Every method is told of one event and returns at once; what an event leads to is decided in `routing.py`.
Source: contract.md 3.5, 3.6.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from addon_operator.dispatch import routing
from addon_operator.helm.release import ReleaseFacts
from addon_operator.hooks.call import Changes, HookId
from addon_operator.hooks.config.model import Schedule
from addon_operator.hooks.context import ObjectEvent, Synchronization
from addon_operator.hooks.hook import Hook
from addon_operator.kube.refs import ObjectKey
from addon_operator.logs import get_logger
from addon_operator.modules.module import Module
from addon_operator.modules.registry import ModulePhase, ModuleRegistry
from addon_operator.tasks.queue_set import QueueSet
from addon_operator.tasks.task import ConfirmRemovals, EnsureCrds, Outcome, Reason, RunHook, Task

log = get_logger("dispatch")


class Intake:
    """Puts tasks into queues."""

    def __init__(self, *, queues: QueueSet, registry: ModuleRegistry, ticks_count: Callable[[], bool]) -> None:
        """Takes what it uses.

        Args:
            queues: where tasks go.
            registry: which modules there are, and where they stand.
            ticks_count: whether schedules are served yet: not before the end of the first converge (contract.md 3.1).
        """
        self._queues = queues
        self._registry = registry
        self._ticks_count = ticks_count

    def config_accepted(self) -> None:
        """The ConfigMap has a valid new state."""
        main = self._queues.main
        main.add_head(routing.config_accepted(main.waiting))

    def removals_confirmed(self, names: Sequence[str]) -> None:
        """A person lets held modules be removed."""
        self._queues.main.add_head((Task(ConfirmRemovals(tuple(names)), Reason.REMOVALS_CONFIRMED),))

    def object_changed(self, hook: Hook, event: ObjectEvent) -> None:
        """Something happened to an object that a hook watches."""
        if self._serves(hook):
            self._queues.get(event.binding.queue).add_tail((routing.object_changed(hook, event),))

    def listed_late(self, hook: Hook, context: Synchronization) -> bool:
        """A binding can have its Synchronization that could not watch when it was asked to; answers whether it has."""
        if not self._serves(hook):
            return False
        main, others = routing.split_main(((hook, context),), Reason.KUBERNETES)
        self._queues.main.add_head(main)  # a run that waits for it may be there already
        for queue, task in others:
            self._queues.get(queue).add_tail((task,))
        return True

    def values_changed(self, hook: HookId, changes: Changes) -> None:
        """A hook changed values that ran in no queue: it was asked by the API server."""
        main = self._queues.main
        main.add_tail(routing.hook_changed_values(Reason.KUBERNETES, hook, changes, main.waiting))

    def ticked(self, hook: Hook, schedule: Schedule) -> None:
        """The time of a schedule has come."""
        if not self._ticks_count():
            log.debug("tick before the first converge is over", hook=hook.id.name, binding=schedule.name)
            return
        queue = self._queues.get(schedule.queue)
        task = routing.ticked(hook, schedule, queue.waiting)
        if task is not None and self._serves(hook):
            queue.add_tail((task,))

    def objects_absent(self, release: str, _objects: tuple[ObjectKey, ...]) -> None:
        """Objects of a release are gone."""
        if not self._registry.is_enabled(release) or not self._registry.get(release).has_release:
            return
        # While the module itself runs, its hooks may delete on purpose; once it is through, others do.
        main, through = self._queues.main, self._registry.state(release).phase is ModulePhase.READY
        main.add_tail(routing.absent_objects(release, main.waiting if through else main.tasks))

    def definition_gone(self, name: str, missed: bool) -> None:
        """A CRD is gone; modules that bring it will again, at once unless a hook has deleted it."""
        bringing = [module for module in self._registry.enabled if name in self._registry.state(module).crds]
        for module in bringing:
            state = self._registry.state(module)
            state.crds = {crd: source for crd, source in state.crds.items() if crd != name}
        if missed and bringing:
            main = self._queues.main
            # It comes back next, since nothing that needs it can succeed before.
            main.add_head((Task(EnsureCrds(tuple(bringing)), Reason.ABSENT_OBJECTS),))
            main.add_tail(routing.module_tasks(bringing, Reason.ABSENT_OBJECTS, main.waiting))

    def release_changed(self, facts: ReleaseFacts, attends: Callable[[Module], bool]) -> None:
        """Somebody else rolled back, upgraded or removed the release of a module that is at rest."""
        name = facts.name
        at_rest = self._registry.is_enabled(name) and self._registry.state(name).phase is ModulePhase.READY
        if at_rest and attends(self._registry.get(name)):
            self._queues.main.add_tail(routing.release_changed(facts, self._queues.main.waiting))

    def end_module(self, name: str) -> tuple[asyncio.Future[Outcome], ...]:
        """Takes the runs of a module's hooks out of all queues, and ends those at work; gives these."""
        ending = [queue.interrupt(lambda task: _of_module(task, name)) for queue in self._queues.all()]
        for queue in self._queues.all():
            queue.remove(lambda task: _of_module(task, name))
        return tuple(one for one in ending if one is not None)

    def _serves(self, hook: Hook) -> bool:
        return hook.id.module is None or self._registry.is_enabled(hook.id.module)


def _of_module(task: Task, name: str) -> bool:
    return isinstance(task.payload, RunHook) and task.payload.hook.module == name
