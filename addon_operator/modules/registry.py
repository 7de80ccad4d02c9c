"""What is known about every module at this moment: its directory, its verdict, where its run is.

State only; decisions are in `plan.py` and `phases.py`. Changed by the runner and the converge, read by everybody.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from addon_operator.errors import ModuleError
from addon_operator.hooks.call import HookId
from addon_operator.hooks.hook import Hook, LoadedHooks
from addon_operator.modules.crds import Definitions
from addon_operator.modules.module import Module
from addon_operator.modules.plan import Verdict
from addon_operator.modules.removals import enabled_by
from addon_operator.values.layers import EnabledBy


class ModulePhase(enum.StrEnum):
    """Where a module is, in one word for people."""

    DISABLED = "disabled"
    WAITING = "waiting"
    STARTUP = "startup"
    SYNCHRONIZATION = "synchronization"
    BEFORE_HELM = "before-helm"
    HELM = "helm"
    AFTER_HELM = "after-helm"
    DELETING = "deleting"
    HELD = "held"
    READY = "ready"


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about a release last.

    Attributes:
        action: what was done: install, upgrade, skip, move-label.
        reason: why, in a sentence.
        at: when (aware).
    """

    action: str
    reason: str
    at: datetime


@dataclasses.dataclass(slots=True)
class ModuleState:
    """The life of one module in this process.

    Attributes:
        phase: where it is.
        started: onStartup hooks have succeeded since it was enabled.
        watching: the Synchronization of its hooks was asked for since then, or since their files changed.
        bound: the schedules and webhooks of its hooks are served.
        began_at: loop time at which the run under way began; None if none is.
        hooks: its hooks, once their configuration is known.
        decision: the last decision about its release that did something or found nothing to do.
        error: of the last attempt, if that failed.
        duration_s: of the last finished run.
        crds: those of its CRDs that were applied in this process and are not known to be gone.
        enabled_by: what was recorded when it was enabled last (`removals.Mark`); None before that.
    """

    phase: ModulePhase = ModulePhase.DISABLED
    started: bool = False
    watching: bool = False
    bound: bool = False
    began_at: float | None = None
    hooks: LoadedHooks | None = None
    decision: Decision | None = None
    error: str | None = None
    duration_s: float | None = None
    crds: Definitions = dataclasses.field(default_factory=dict)
    enabled_by: EnabledBy | None = None

    def decide(self, action: str, reason: str) -> None:
        """Keeps a decision with the time of now."""
        self.decision = Decision(action, reason, datetime.now(UTC))


class ModuleRegistry:
    """All modules by name, in run order, and the global hooks.

    Attributes:
        global_hooks: read once, at the start.
        scan_error: why what was last found on disk could not be read; None if it could, and the modules are of then.
        scan_warnings: what else was strange about it.
        held: name -> reason, of the modules and releases that are neither upgraded nor removed (`removals.hold`).
        confirmed: names whose removal a person has confirmed, until they are removed or enabled.
    """

    def __init__(self, global_hooks: LoadedHooks | None = None) -> None:
        self.global_hooks = global_hooks or LoadedHooks()
        self.scan_error: str | None = None
        self.scan_warnings: tuple[str, ...] = ()
        self.held: Mapping[str, str] = {}
        self.confirmed: frozenset[str] = frozenset()
        self._modules: dict[str, Module] = {}
        self._states: dict[str, ModuleState] = {}
        self._verdicts: dict[str, Verdict] = {}

    @property
    def modules(self) -> tuple[Module, ...]:
        """All modules in run order."""
        return tuple(self._modules.values())

    @property
    def enabled(self) -> tuple[str, ...]:
        """Names of the enabled modules in run order (`global.enabledModules` of module hooks)."""
        return tuple(name for name in self._modules if self.is_enabled(name))

    @property
    def alive(self) -> tuple[str, ...]:
        """Names of the modules that began to run in this process and were not deleted since."""
        idle = {ModulePhase.DISABLED, ModulePhase.WAITING}
        return tuple(name for name, state in self._states.items() if state.phase not in idle)

    def get(self, name: str) -> Module:
        """Finds a module.

        Raises:
            ModuleError: there is none of this name.
        """
        try:
            return self._modules[name]
        except KeyError as error:
            raise ModuleError(f"module {name} not found") from error

    def state(self, name: str) -> ModuleState:
        """The state of a module; a new one for a module that never ran."""
        return self._states.setdefault(name, ModuleState())

    def find_hook(self, hook: HookId) -> Hook | None:
        """Finds a hook, also of a module that is being disabled; None if there is none of this name (any more)."""
        if hook.module is None:
            return self.global_hooks.find(hook)
        state = self._states.get(hook.module)
        return state.hooks.find(hook) if state and state.hooks else None

    def verdict(self, name: str) -> Verdict | None:
        """The last verdict about a module; None before the first converge."""
        return self._verdicts.get(name)

    def enabled_by(self, name: str) -> EnabledBy | None:
        """What was recorded when a module was enabled last in this process; None if it was not."""
        state = self._states.get(name)
        return state.enabled_by if state else None

    def is_enabled(self, name: str) -> bool:
        """Whether the module is enabled by the last verdict."""
        verdict = self._verdicts.get(name)
        return verdict is not None and verdict.enabled

    def replace_modules(self, modules: Iterable[Module]) -> None:
        """Takes the result of a scan; states of modules that are gone are forgotten."""
        self._modules = {module.name: module for module in modules}
        self._states = {name: state for name, state in self._states.items() if name in self._modules}
        self._verdicts = {name: verdict for name, verdict in self._verdicts.items() if name in self._modules}

    def replace_verdicts(self, verdicts: Mapping[str, Verdict], *, config_map: str) -> None:
        """Takes the verdicts of a converge; newly enabled modules wait for their run.

        Args:
            verdicts: by name.
            config_map: uid of the ConfigMap that they were made with; empty if there is none.
        """
        self._verdicts = dict(verdicts)
        for name, verdict in verdicts.items():
            state = self.state(name)
            if verdict.enabled:
                state.enabled_by = enabled_by(verdict.chain, config_map=config_map)
            if verdict.enabled and state.phase in {ModulePhase.DISABLED, ModulePhase.HELD}:
                # One that ran before it was held has something to delete, whether it comes to its run or not.
                state.phase = ModulePhase.STARTUP if state.started else ModulePhase.WAITING
            elif not verdict.enabled and state.phase is ModulePhase.WAITING:
                state.phase, state.error = ModulePhase.DISABLED, None

    def replace_reason(self, name: str, verdict: Verdict) -> None:
        """Takes a verdict with the same enable state and another reason."""
        if name in self._verdicts:
            self._verdicts[name] = verdict

    def forget(self, name: str) -> None:
        """A deleted module begins a fresh life when it is enabled again; its last decision stays visible."""
        self._states[name] = ModuleState(decision=self.state(name).decision)
