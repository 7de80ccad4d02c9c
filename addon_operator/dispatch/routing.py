"""Which tasks follow from an event: one pure function for each.

Source: contract.md 3.1, 3.2, 3.5, 3.6; the golden order of 3.7 is a test of these functions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from addon_operator.configmap.document import ConfigChange
from addon_operator.helm.release import PENDING, ReleaseFacts
from addon_operator.hooks.call import Changes, HookId
from addon_operator.hooks.config.model import MAIN_QUEUE, LifecycleKind, Schedule
from addon_operator.hooks.context import LifecycleContext, ObjectEvent, Synchronization, Tick
from addon_operator.hooks.hook import Hook, LoadedHooks
from addon_operator.modules.plan import ConvergePlan
from addon_operator.tasks.task import (
    ApplyConfig,
    AwaitSynchronization,
    Converge,
    DeleteModule,
    EnableMonitors,
    EnableSchedules,
    EnableWebhooks,
    EnsureCrds,
    Payload,
    PurgeRelease,
    Reason,
    RunHook,
    RunModules,
    Task,
)

# Reason of a hook run -> the reasons of what follows from changed values: for a global hook, for a hook of a module.
_VALUES_CHANGED: Final = {
    Reason.SCHEDULE: (Reason.SCHEDULE_CHANGED_GLOBAL, Reason.SCHEDULE_CHANGED_MODULE),
    Reason.KUBERNETES: (Reason.KUBERNETES_CHANGED_GLOBAL, Reason.KUBERNETES_CHANGED_MODULE),
}


@dataclasses.dataclass(frozen=True, slots=True)
class FollowUp:
    """What changes in the main queue after an event.

    Attributes:
        head: tasks to run next.
        drop: waiting tasks that are no longer needed; they are removed before `head` is added.
    """

    head: tuple[Task, ...] = ()
    drop: tuple[Task, ...] = ()


def startup_tasks(hooks: LoadedHooks) -> tuple[Task, ...]:
    """Returns the tasks of the start: the bindings of global hooks, then the first converge. Source: 3.1, 3.7."""
    watching = [hook.id for hook in hooks.hooks if hook.config.kubernetes]
    payloads: list[Payload] = [
        *(RunHook(hook.id, (LifecycleContext("onStartup"),)) for hook in hooks.bound_to("onStartup")),
        *(EnableSchedules(hook.id) for hook in hooks.hooks if hook.config.schedules),
        # Objects that are listed may have to be converted.
        *(EnableWebhooks(hook.id, conversions_only=True) for hook in hooks.hooks if hook.config.conversions),
        *(EnableMonitors(hook) for hook in watching),
        *([AwaitSynchronization()] if watching else []),
        *(EnableWebhooks(hook.id) for hook in hooks.hooks if hook.config.admissions),
    ]
    converge = Task(Converge(), Reason.OPERATOR_STARTUP, converge=True)
    return (*(Task(payload, Reason.OPERATOR_STARTUP) for payload in payloads), converge)


def hook_tasks(hooks: Iterable[HookId], binding: LifecycleKind, reason: Reason) -> tuple[Task, ...]:
    """Returns one task for each hook with a `beforeAll` or `afterAll` binding, in this order."""
    return tuple(Task(RunHook(hook, (LifecycleContext(binding),)), reason, converge=True) for hook in hooks)


def synchronization(hook: Hook, context: Synchronization, reason: Reason) -> Task:
    """Returns the first run of a `kubernetes` binding. Source: contract.md 2.13 (combining).

    A task that waits for it goes on with the values that it has changed. Where none waits, changed values lead to what
    follows from an event.
    """
    reason = reason if context.binding.wait_for_synchronization else Reason.KUBERNETES
    return Task(RunHook(hook.id, (context,), combines=hook.config.version != "v0"), reason)


def split_main(
    synchronizations: Iterable[tuple[Hook, Synchronization]], reason: Reason
) -> tuple[tuple[Task, ...], tuple[tuple[str, Task], ...]]:
    """Returns Synchronizations of the main queue, which run next, and of others with their queue. Source: 3.1, 3.3."""
    placed = [(context.binding.queue, synchronization(hook, context, reason)) for hook, context in synchronizations]
    main = tuple(task for queue, task in placed if queue == MAIN_QUEUE)
    return main, tuple((queue, task) for queue, task in placed if queue != MAIN_QUEUE)


def object_changed(hook: Hook, event: ObjectEvent) -> Task:
    """Returns a run for an object event, for the tail of the binding's queue."""
    return Task(RunHook(hook.id, (event,), combines=hook.config.version != "v0"), Reason.KUBERNETES)


def ticked(hook: Hook, schedule: Schedule, waiting: Iterable[Task]) -> Task | None:
    """Returns a run for a schedule, for the tail of its queue; None if one waits already: missed ticks are one."""
    tick = Tick(schedule)
    for task in waiting:
        if isinstance(task.payload, RunHook) and task.payload.hook == hook.id and tick in task.payload.contexts:
            return None
    return Task(RunHook(hook.id, (tick,), combines=hook.config.version != "v0"), Reason.SCHEDULE)


def hook_changed_values(reason: Reason, hook: HookId, changes: Changes, waiting: Sequence[Task]) -> tuple[Task, ...]:
    """Returns what goes to the tail of the main queue when a hook changed values. Source: contract.md 3.5.

    Args:
        reason: why the hook ran. Nothing follows for a run of the start or of a converge, which go on with the values.
        hook: that has run.
        changes: what it changed.
        waiting: the tasks of the main queue that are not running.
    """
    reasons = _VALUES_CHANGED.get(reason)
    if not changes or reasons is None:
        return ()
    if hook.module is not None:
        return module_tasks((hook.module,), reasons[1], waiting)
    return global_values_changed(Reason.RELOAD_AFTER_DYNAMIC if changes.enablement else reasons[0], waiting)


def plan_tasks(plan: ConvergePlan, reason: Reason, *, crds_pending: Collection[str]) -> tuple[Task, ...]:
    """Returns the tasks of a plan: CRDs, deletes in reverse order, runs in order, purges. Source: contract.md 3.2, 3.9.

    Args:
        plan: of the converge.
        reason: of the converge.
        crds_pending: modules whose CRDs were not applied in this process, or have changed since.
    """
    crds = tuple(name for name in plan.crds if name in crds_pending)
    payloads: list[Payload] = [
        *(DeleteModule(name) for name in plan.delete),
        *(RunModules(group) for group in plan.run),
        *(PurgeRelease(name) for name in plan.purge),
    ]
    ensure = (Task(EnsureCrds(crds), Reason.ENSURE_CRDS, converge=True),) if crds else ()
    return (*ensure, *(Task(payload, reason, converge=True) for payload in payloads))


def config_accepted(waiting: Iterable[Task]) -> tuple[Task, ...]:
    """Returns the task that applies a valid new state of the ConfigMap next, unless one waits already."""
    if any(isinstance(task.payload, ApplyConfig) for task in waiting):
        return ()
    return (Task(ApplyConfig(), Reason.APPLY_CONFIG),)


def config_applied(
    change: ConfigChange, *, enablement_changed: bool, run: Sequence[str], waiting: Sequence[Task]
) -> FollowUp:
    """Returns what follows from an applied ConfigMap. Source: contract.md 3.6.

    All of it runs next, also before a task that keeps failing: the edit may be the fix. Only the first converge stays
    behind the other tasks of the start.

    Args:
        change: what differs.
        enablement_changed: a module has another enable state now.
        run: enabled modules whose section changed, in run order.
        waiting: the tasks of the main queue behind the one that applies the ConfigMap.
    """
    if not (change.global_changed or enablement_changed):
        # A waiting run may be behind a task that keeps failing: it moves forward.
        own = [RunModules((name,)) for name in run]
        drop = tuple(task for task in waiting if task.payload in own and not task.converge)
        kept = [task for task in waiting if task not in drop]
        return FollowUp(head=module_tasks(run, Reason.CONFIG_CHANGED_MODULES, kept), drop=drop)
    return converge_next(Reason.RELOAD_AFTER_CONFIG, waiting)


def converge_next(reason: Reason, waiting: Sequence[Task]) -> FollowUp:
    """Returns a converge that runs next, and drops the waiting tasks that it makes superfluous.

    While the first converge waits, nothing is returned: it will do the same, after the other tasks of the start.
    """
    if any(task.payload == Converge() and task.reason is Reason.OPERATOR_STARTUP for task in waiting):
        return FollowUp()
    # The converge runs every module.
    drop = tuple(task for task in waiting if task.converge or isinstance(task.payload, RunModules))
    return FollowUp(head=(Task(Converge(), reason, converge=True),), drop=drop)


def module_tasks(modules: Iterable[str], reason: Reason, waiting: Sequence[Task]) -> tuple[Task, ...]:
    """Returns one run for each module for which none waits."""
    return tuple(Task(RunModules((name,)), reason) for name in modules if not run_pending(name, waiting))


def global_values_changed(reason: Reason, waiting: Sequence[Task]) -> tuple[Task, ...]:
    """Returns a converge for the tail, for changes that concern all modules; nothing if one waits already."""
    fresh = any(task.payload == Converge() for task in waiting)
    return () if fresh else (Task(Converge(), reason, converge=True),)


def absent_objects(module: str, waiting: Sequence[Task]) -> tuple[Task, ...]:
    """Returns one run of the module whose release has lost objects. Source: contract.md 2.12, 3.5."""
    return module_tasks((module,), Reason.ABSENT_OBJECTS, waiting)


def release_changed(facts: ReleaseFacts, waiting: Sequence[Task]) -> tuple[Task, ...]:
    """Returns a run of the module whose release somebody else has changed; nothing while helm still runs for them."""
    at_rest = facts.status == "deployed" and facts.recorded
    if at_rest or facts.status in PENDING or facts.status == "uninstalling":
        return ()
    return module_tasks((facts.name,), Reason.UNEXPECTED_STATUS, waiting)


def run_pending(module: str, waiting: Iterable[Task]) -> bool:
    """Returns whether a run of this module is among the tasks."""
    return any(isinstance(task.payload, RunModules) and module in task.payload.modules for task in waiting)
