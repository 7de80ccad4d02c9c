"""What can be asked of a task queue, and how one attempt at it ends.

Pure. A `Task` is identity plus what to do; attempts, failures and the last error belong to the queue (`queue.py`).
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, assert_never

from addon_operator.hooks.call import HookId
from addon_operator.hooks.context import Context, ObjectEvent, Synchronization, Tick, allows_failure, binding_name
from addon_operator.logs import event_id


class Reason(enum.StrEnum):
    """Why a task exists: the event texts that logs and `queue list` show. Source: contract.md 2.13."""

    OPERATOR_STARTUP = "OperatorStartup"
    RELOAD_ALL = "ReloadAllModules"
    AFTER_ALL_CHANGED_VALUES = "AfterAll-Hooks-Change-GlobalValues"
    AFTER_HELM_CHANGED_VALUES = "AfterHelm-Hooks-Change-Values"
    CONFIG_CHANGED_MODULES = "KubeConfig-Changed-Modules"
    APPLY_CONFIG = "Apply-Kube-Config-Values-Changes"
    RELOAD_AFTER_CONFIG = "ReloadAll-After-KubeConfigChange"
    ABSENT_OBJECTS = "AbsentHelmResourcesDetected"
    UNEXPECTED_STATUS = "HelmReleaseUnexpectedStatus"
    ENSURE_CRDS = "EnsureCRDs"
    SCHEDULE = "Schedule"
    KUBERNETES = "Kubernetes"
    SCHEDULE_CHANGED_GLOBAL = "Schedule-Change-GlobalValues"
    KUBERNETES_CHANGED_GLOBAL = "Kubernetes-Change-GlobalValues"
    SCHEDULE_CHANGED_MODULE = "Schedule-Change-ModuleValues"
    KUBERNETES_CHANGED_MODULE = "Kubernetes-Change-ModuleValues"
    RELOAD_AFTER_DYNAMIC = "ReloadAll-After-GlobalHookDynamicUpdate"
    REMOVALS_CONFIRMED = "Removals-Confirmed"


class ConvergePhase(enum.StrEnum):
    """Where a converge stands. Source: contract.md 3.2."""

    STANDBY = "StandBy"
    WAIT_BEFORE_ALL = "WaitBeforeAll"
    WAIT_DELETE_AND_RUN_MODULES = "WaitDeleteAndRunModules"
    WAIT_AFTER_ALL = "WaitAfterAll"


@dataclasses.dataclass(frozen=True, slots=True)
class RunHook:
    """Run one hook once.

    Attributes:
        contexts: why, in the order of the events; never empty, all `Synchronization` or none.
        combines: it may be coalesced with other runs of the hook (not for v0 hooks, nor for lifecycle contexts).
    """

    hook: HookId
    contexts: tuple[Context, ...]
    combines: bool = False

    @property
    def binding(self) -> str:
        """The name of the binding of the first context."""
        return binding_name(self.contexts[0])

    @property
    def allows_failure(self) -> bool:
        """Whether all contexts allow the run to fail."""
        return all(allows_failure(context) for context in self.contexts)

    @property
    def synchronizes(self) -> bool:
        """Whether it is a Synchronization: it shows the objects that exist already."""
        return isinstance(self.contexts[0], Synchronization)


@dataclasses.dataclass(frozen=True, slots=True)
class EnableSchedules:
    """Start the schedules of a global hook."""

    hook: HookId


@dataclasses.dataclass(frozen=True, slots=True)
class EnableMonitors:
    """Start the monitors of a global hook; its Synchronization follows."""

    hook: HookId


@dataclasses.dataclass(frozen=True, slots=True)
class AwaitSynchronization:
    """Wait until the global hooks have seen the objects that existed at the start."""


@dataclasses.dataclass(frozen=True, slots=True)
class EnableWebhooks:
    """Serve the webhooks of a global hook; its admissions only once it has seen what exists.

    Attributes:
        conversions_only: leave its admissions as they are.
    """

    hook: HookId
    conversions_only: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Converge:
    """Bring all modules to the plan ("reload all modules").

    Attributes:
        phase: what has been done already.
        global_digest: effective global values and dynamic enable flags as they were before the afterAll hooks.
    """

    phase: ConvergePhase = ConvergePhase.STANDBY
    global_digest: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class EnsureCrds:
    """Apply the CRDs of these modules."""

    modules: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class RunModules:
    """Run modules of equal order side by side; done when all are (one module is the usual case)."""

    modules: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class DeleteModule:
    """Uninstall a disabled module, with its hooks."""

    module: str


@dataclasses.dataclass(frozen=True, slots=True)
class PurgeRelease:
    """Uninstall a release that has no module any more."""

    release: str


@dataclasses.dataclass(frozen=True, slots=True)
class ConfirmRemovals:
    """Remove held modules: a person has confirmed it."""

    modules: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ApplyConfig:
    """Put the newest accepted state of the ConfigMap into force."""


Payload = (
    RunHook
    | EnableSchedules
    | EnableMonitors
    | AwaitSynchronization
    | EnableWebhooks
    | Converge
    | EnsureCrds
    | RunModules
    | DeleteModule
    | PurgeRelease
    | ApplyConfig
    | ConfirmRemovals
)

_ids = itertools.count(1)


def _next_id() -> int:
    return next(_ids)


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """One piece of work.

    Attributes:
        payload: what to do.
        reason: why.
        converge: it belongs to the running converge, and is dropped with it.
        id: unique in this process, growing.
        event_id: the event that it goes back to (`logs/event_id.py`): that of the task it follows from, else a new one.
    """

    payload: Payload
    reason: Reason
    converge: bool = False
    id: int = dataclasses.field(default_factory=_next_id)
    event_id: str = dataclasses.field(default_factory=event_id.current_or_new, compare=False, repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Done:
    """The task is done.

    Attributes:
        head: tasks in the place of this one, in this order: they run next, unless others have overtaken it.
        tail: tasks behind all that wait.
    """

    head: tuple[Task, ...] = ()
    tail: tuple[Task, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Again:
    """The task continues as `payload` after the tasks in `head`, which are put directly before it."""

    payload: Payload
    head: tuple[Task, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Retry:
    """The attempt failed; the task stays at the head and is retried after the queue's delay.

    Attributes:
        error: why, for people.
        payload: what is left to do; None if that is everything.
    """

    error: str
    payload: Payload | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Park:
    """The task waits at the head until the condition holds, or a new head arrives.

    Attributes:
        until: waits for the condition.
        payload: what is left to do; None if that is everything.
    """

    until: Callable[[], Awaitable[object]]
    payload: Payload | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class QueuedTask:
    """One task as `queue list` shows it; `age_s` counts from being queued or from the last attempt's end."""

    description: str
    failures: int
    age_s: float


Outcome = Done | Again | Retry | Park


_KINDS: Final[Mapping[type, str]] = {
    EnableSchedules: "GlobalHookEnableScheduleBindings",
    EnableMonitors: "GlobalHookEnableKubernetesBindings",
    AwaitSynchronization: "GlobalHookWaitKubernetesSynchronization",
    EnableWebhooks: "GlobalHookEnableWebhookBindings",
    Converge: "ConvergeModules",
    EnsureCrds: "ModuleEnsureCRDs",
    DeleteModule: "ModuleDelete",
    PurgeRelease: "ModulePurge",
    ApplyConfig: "ApplyKubeConfigValues",
    ConfirmRemovals: "ConfirmRemovals",
}


def kind(payload: Payload) -> str:
    """Returns the type of a task as `queue list` and the log show it. Source: contract.md 2.13."""
    match payload:
        case RunHook(hook=hook):
            return "GlobalHookRun" if hook.module is None else "ModuleHookRun"
        case RunModules(modules=modules):
            return "ModuleRun" if len(modules) == 1 else "ParallelModuleRun"
        case _:
            return _KINDS[type(payload)]


def subject(payload: Payload) -> str:
    """Returns what a task is about: hook and binding, modules, release, or the phase of the converge."""
    match payload:
        case RunHook(hook=hook):
            return f"{_type(payload)}:{hook.name}{_bindings(payload)}"
        case EnableSchedules(hook=hook) | EnableMonitors(hook=hook) | EnableWebhooks(hook=hook):
            return hook.name
        case Converge(phase=phase):
            return phase
        case EnsureCrds(modules=modules) | RunModules(modules=modules) | ConfirmRemovals(modules=modules):
            return ",".join(modules)
        case DeleteModule(module=name) | PurgeRelease(release=name):
            return name
        case ApplyConfig() | AwaitSynchronization():
            return ""
        case _:
            assert_never(payload)


def _type(run: RunHook) -> str:
    match run.contexts[0]:
        case Synchronization() | ObjectEvent():
            return "kubernetes"
        case Tick():
            return "schedule"
        case _:
            return run.binding


def _bindings(run: RunHook) -> str:
    """Names bindings other than those of the lifecycle, and how many contexts there are of them."""
    names = dict.fromkeys(binding_name(context) for context in run.contexts)
    if _type(run) in names:
        names.pop(_type(run))
    count = f" in {len(run.contexts)} contexts" if len(run.contexts) > 1 else ""
    return f":{','.join(names)}{count}" if names else count


def describe(task: Task, *, queue: str, failures: int = 0, error: str = "") -> str:
    """Returns the task text `Type:queue:meta[:failures N[:message]]`. Source: contract.md 2.13."""
    parts = [kind(task.payload), queue, subject(task.payload), task.reason]
    if failures:
        parts += [f"failures {failures}", " ".join(error.split())]
    return ":".join(part for part in parts if part)
