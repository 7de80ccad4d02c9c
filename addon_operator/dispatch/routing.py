"""From what happened to what has to be done: one pure function for each event.

Source: contract.md 3.1, 3.2, 3.5, 3.6; the golden order of 3.7 is a test of these functions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence

from addon_operator.configmap.document import ConfigChange
from addon_operator.helm.release import PENDING, ReleaseFacts
from addon_operator.hooks.bindings import LifecycleKind
from addon_operator.hooks.call import HookId
from addon_operator.modules.plan import ConvergePlan
from addon_operator.tasks.task import (
    ApplyConfig,
    Converge,
    ConvergePhase,
    DeleteModule,
    EnsureCrds,
    Payload,
    PurgeRelease,
    Reason,
    RunHook,
    RunModules,
    Task,
)


@dataclasses.dataclass(frozen=True, slots=True)
class FollowUp:
    """What the main queue has to do after an event.

    Attributes:
        head: tasks to run next.
        tail: tasks to run after everything that waits.
        drop_converge: the running converge is over: its tasks go away before `head` is placed.
        drop_runs: a converge will run every module: single runs that wait, or fail again and again, go away.
    """

    head: tuple[Task, ...] = ()
    tail: tuple[Task, ...] = ()
    drop_converge: bool = False
    drop_runs: bool = False


def startup_tasks(on_startup: Sequence[HookId]) -> tuple[Task, ...]:
    """Fills the main queue at the start: global onStartup hooks in order, then the first converge."""
    hooks = [Task(RunHook(hook, "onStartup"), Reason.OPERATOR_STARTUP) for hook in on_startup]
    return (*hooks, Task(Converge(), Reason.OPERATOR_STARTUP, converge=True))


def hook_tasks(hooks: Iterable[HookId], binding: LifecycleKind, reason: Reason) -> tuple[Task, ...]:
    """One task for each hook of a binding around the converge, in the order given."""
    return tuple(Task(RunHook(hook, binding), reason, converge=True) for hook in hooks)


def plan_tasks(plan: ConvergePlan, reason: Reason, *, crds_pending: Collection[str]) -> tuple[Task, ...]:
    """Turns a plan into tasks: CRDs, deletes in reverse order, runs in order, purges. Source: contract.md 3.2, 3.9.

    Args:
        plan: what has to be done.
        reason: of the converge.
        crds_pending: modules whose CRDs were not applied yet in this process, or changed since.
    """
    crds = tuple(name for name in plan.crds if name in crds_pending)
    payloads: list[Payload] = [
        *([EnsureCrds(crds)] if crds else []),
        *(DeleteModule(name) for name in plan.delete),
        *(RunModules(group) for group in plan.run),
        *(PurgeRelease(name) for name in plan.purge),
    ]
    return tuple(Task(payload, reason, converge=True) for payload in payloads)


def config_accepted(waiting: Iterable[Task]) -> FollowUp:
    """A valid new state of the ConfigMap: apply it next, once."""
    if any(isinstance(task.payload, ApplyConfig) for task in waiting):
        return FollowUp()
    return FollowUp(head=(Task(ApplyConfig(), Reason.APPLY_CONFIG),))


def config_applied(
    change: ConfigChange, *, enablement_changed: bool, run: Sequence[str], waiting: Sequence[Task]
) -> FollowUp:
    """What follows from a ConfigMap that was put into force. Source: contract.md 3.6.

    Args:
        change: what differs.
        enablement_changed: an enable state really is another one now.
        run: enabled modules whose section changed, in run order.
        waiting: the tasks of the main queue behind the one that applies the ConfigMap.
    """
    if not (change.global_changed or enablement_changed):
        return FollowUp(head=module_tasks(run, Reason.CONFIG_CHANGED_MODULES, waiting))
    converge = Task(Converge(), Reason.RELOAD_AFTER_CONFIG, converge=True)
    running, fresh = _converges(waiting)
    if running:
        return FollowUp(head=(converge,), drop_converge=True, drop_runs=True)
    return FollowUp(tail=() if fresh else (converge,), drop_runs=True)


def module_tasks(modules: Iterable[str], reason: Reason, waiting: Sequence[Task]) -> tuple[Task, ...]:
    """One run for each module that none waits for yet."""
    return tuple(Task(RunModules((name,)), reason) for name in modules if not run_pending(name, waiting))


def global_values_changed(reason: Reason, waiting: Sequence[Task]) -> FollowUp:
    """Global values or dynamic enable flags changed: one converge at the tail, unless one waits that has not begun."""
    _, fresh = _converges(waiting)
    return FollowUp() if fresh else FollowUp(tail=(Task(Converge(), reason, converge=True),))


def absent_objects(module: str, waiting: Sequence[Task]) -> FollowUp:
    """Objects of a release are gone: run its module, once. Source: contract.md 2.12, 3.5."""
    return FollowUp(tail=module_tasks((module,), Reason.ABSENT_OBJECTS, waiting))


def release_changed(facts: ReleaseFacts, waiting: Sequence[Task]) -> FollowUp:
    """Somebody else touched the release of a module at rest: run the module, unless that somebody is still at it."""
    at_rest = facts.status == "deployed" and facts.recorded
    if at_rest or facts.status in PENDING or facts.status == "uninstalling":
        return FollowUp()
    return FollowUp(tail=module_tasks((facts.name,), Reason.UNEXPECTED_STATUS, waiting))


def run_pending(module: str, waiting: Iterable[Task]) -> bool:
    """Answers whether a run of this module is among the tasks."""
    return any(isinstance(task.payload, RunModules) and module in task.payload.modules for task in waiting)


def _converges(waiting: Iterable[Task]) -> tuple[bool, bool]:
    """Answers whether a converge is under way, and whether one waits that has not begun."""
    phases = [task.payload.phase for task in waiting if isinstance(task.payload, Converge)]
    begun = any(phase is not ConvergePhase.STANDBY for phase in phases)
    return begun, ConvergePhase.STANDBY in phases
