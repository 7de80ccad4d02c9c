"""Executes the steps of a module run, delete or purge, one at a time.

What comes next is decided in `phases.py`; what Helm has to do, in `helm/release.py`. Source: contract.md 3.3, 3.4.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import assert_never

from addon_operator.bindings.hook_bindings import HookBindings
from addon_operator.errors import AddonOperatorError, HookConfigError, ValuesRejected
from addon_operator.hooks.catalog import HookCatalog
from addon_operator.hooks.config.model import MAIN_QUEUE
from addon_operator.hooks.context import LifecycleContext
from addon_operator.hooks.effects import HookRuns, Run
from addon_operator.hooks.hook import Hook, LoadedHooks
from addon_operator.logs import get_logger
from addon_operator.metrics.operator import Metrics
from addon_operator.modules.crd_rollout import CrdRollout
from addon_operator.modules.deployment import ModuleDeployment
from addon_operator.modules.module import Module
from addon_operator.modules.phases import DeleteFacts, ModuleBinding, RunFacts, next_delete_step, next_run_step
from addon_operator.modules.registry import ModulePhase, ModuleRegistry, ModuleState
from addon_operator.tasks.queue_set import QueueSet
from addon_operator.tasks.task import Outcome
from addon_operator.values.store import ValuesStore

log = get_logger("module")

_ENDING_S = 30.0

_PHASES: dict[ModuleBinding, ModulePhase] = {
    "onStartup": ModulePhase.STARTUP,
    "beforeHelm": ModulePhase.BEFORE_HELM,
    "afterHelm": ModulePhase.AFTER_HELM,
    "beforeDeleteHelm": ModulePhase.DELETING,
    "afterDeleteHelm": ModulePhase.DELETING,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Finished:
    """The module is up to date; if its afterHelm hooks changed its values, it has to run again."""

    values_changed: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Paused:
    """The run continues when the Synchronization of the module's hooks is over: call it again."""


class ModuleRunner:
    """Runs, deletes and purges modules."""

    def __init__(
        self,
        *,
        registry: ModuleRegistry,
        catalog: HookCatalog,
        hooks: HookRuns,
        bindings: HookBindings,
        queues: QueueSet,
        store: ValuesStore,
        deployment: ModuleDeployment,
        crds: CrdRollout,
        metrics: Metrics,
    ) -> None:
        self._registry = registry
        self._catalog = catalog
        self._hooks = hooks
        self._bindings = bindings
        self._queues = queues
        self._store = store
        self._deployment = deployment
        self._crds = crds
        self._metrics = metrics

    async def run(self, name: str, *, activation: str) -> Finished | Paused:
        """Brings one module up to date, or as far as it gets without others.

        Raises:
            AddonOperatorError: a step failed; the next run begins with the hooks before Helm, or with onStartup if that
                has not succeeded yet.
        """
        if not self._registry.is_enabled(name):
            return Finished()
        module, state = self._registry.get(name), self._registry.state(name)
        if state.phase is ModulePhase.WAITING:
            state.phase = ModulePhase.STARTUP  # from here on there may be something to delete
        state.began_at = state.began_at or asyncio.get_running_loop().time()
        try:
            with self._deployment.quiet(name):
                self._check_values(module)
                await self._crds.apply(name)
                outcome = await self._run(module, state, activation)
        except AddonOperatorError as error:
            state.error, state.began_at = str(error), None
            self._metrics.modules.run_failed(name)
            raise
        state.error = None
        if isinstance(outcome, Paused):
            state.phase = ModulePhase.SYNCHRONIZATION
            return outcome
        state.phase = ModulePhase.READY
        state.duration_s, state.began_at = asyncio.get_running_loop().time() - state.began_at, None
        self._metrics.modules.run_finished(name, activation, duration_s=state.duration_s)
        return outcome

    def _check_values(self, module: Module) -> None:
        # A hook may have enabled it, or its files may have changed, since the ConfigMap was checked.
        if violations := self._store.check_static([module.key]):
            raise ValuesRejected(f"values of module {module.name!r}:", violations)

    async def _run(self, module: Module, state: ModuleState, activation: str) -> Finished | Paused:
        facts = RunFacts(has_release=module.has_release)
        changed = False
        while True:
            facts = self._observed(facts, module, state)
            step = next_run_step(facts)
            match step:
                case "load-hooks":
                    await self._load_hooks(module, state)
                    facts = dataclasses.replace(facts, hooks_loaded=True)
                case "onStartup":
                    # Start afresh, also after a delete that was not finished (contract.md 5.4 no. 13).
                    self._store.forget_patches(module.key)
                    await self._run_hooks(module, state, "onStartup", activation)
                    state.started = True
                case "start-monitors":
                    await self._bindings.webhooks.serve_conversions_of_module(module.name, _hooks(state))
                    asked_for = await self._bindings.monitors.synchronize(_hooks(state))
                    state.watching = True
                    if asked_for:  # those that are not waited for have to be queued as well
                        return Paused()
                case "await-synchronization":
                    return Paused()
                case "start-bindings":
                    await self._bindings.start(module.name, _hooks(state))
                    state.bound = True
                case "beforeHelm":
                    await self._run_hooks(module, state, "beforeHelm", activation)
                    facts = dataclasses.replace(facts, before_helm=True)
                case "deploy":
                    state.phase = ModulePhase.HELM
                    await self._deployment.deploy(module, state, activation=activation)
                    facts = dataclasses.replace(facts, helm=True)
                case "afterHelm":
                    changed = await self._run_hooks(module, state, "afterHelm", activation)
                    facts = dataclasses.replace(facts, after_helm=True)
                case "finish":
                    return Finished(changed)
                case _:
                    assert_never(step)

    def _observed(self, facts: RunFacts, module: Module, state: ModuleState) -> RunFacts:
        return dataclasses.replace(
            facts,
            wanted=self._registry.is_enabled(module.name),
            started=state.started,
            watching=state.watching,
            synchronized=self._bindings.monitors.synchronized(hook.id for hook in _hooks(state)),
            bound=state.bound,
        )

    def suspend(self, name: str) -> Sequence[asyncio.Future[Outcome]]:
        """Disables a module that runs: its hooks receive no further events, and start afresh if it is enabled again.

        Returns:
            The runs of its hooks that are being ended.
        """
        state = self._registry.state(name)
        self._bindings.pause(_hooks(state))
        state.watching = state.bound = False
        state.began_at = None
        return self._queues.end_hook_runs(name)

    def hold(self, name: str) -> None:
        """Holds a module: its hooks receive no further events; its release and its webhooks stay as they are."""
        if self._registry.verdict(name) is not None:  # else its directory is gone: there is only a release
            self.suspend(name)
            state = self._registry.state(name)
            state.phase, state.error = ModulePhase.HELD, None

    def drop_hook(self, hook: Hook) -> None:
        """Drops a hook of a module whose file is gone: it receives no further events.

        The next run of the module reads its hooks again. If the file is back by then, the hook starts afresh with
        the objects that exist, so that nothing is lost.
        """
        state = self._registry.state(hook.id.module or "")
        if state.hooks is not None:
            kept = tuple(other for other in state.hooks.hooks if other.id != hook.id)
            state.hooks = dataclasses.replace(state.hooks, hooks=kept)
        self._bindings.stop((hook,))
        state.bound = False  # its webhooks are removed when those of the module are registered again

    async def settle(self) -> None:
        """Waits for what runs leave behind them: notes on releases."""
        await self._deployment.settle()

    async def delete(self, name: str, *, activation: str) -> None:
        """Uninstalls a disabled module, runs its delete hooks, and forgets what it knew.

        Raises:
            AddonOperatorError: a step failed; the whole delete is tried again.
        """
        module, state = self._registry.get(name), self._registry.state(name)
        state.phase, state.started = ModulePhase.DELETING, False
        try:
            if ending := self.suspend(name):
                await asyncio.wait(ending, timeout=_ENDING_S)
            # Before the uninstall: a webhook without a server would block it.
            await self._bindings.webhooks.withdraw_module(name)
            await self._delete(module, state, activation)
        except AddonOperatorError as error:
            state.error = str(error)
            self._metrics.modules.delete_failed(name)
            raise
        self._bindings.monitors.stop(hook.id for hook in _hooks(state))
        self._store.forget_patches(module.key)
        self._registry.forget(name)

    async def _delete(self, module: Module, state: ModuleState, activation: str) -> None:
        facts = DeleteFacts(release=self._deployment.installed(module.name))
        while True:
            step = next_delete_step(facts)
            match step:
                case "load-hooks":
                    await self._load_hooks(module, state, but_broken=True)
                    # Also what is deleted without having run in this process has snapshots (contract.md 6.3).
                    await self._bindings.monitors.listed([hook for hook in _hooks(state) if _deletes(hook)])
                    facts = dataclasses.replace(facts, hooks_loaded=True)
                case "beforeDeleteHelm":
                    await self._run_hooks(module, state, "beforeDeleteHelm", activation)
                    facts = dataclasses.replace(facts, before_delete=True)
                case "uninstall":
                    # Until its last hooks have run, a restart has to know that they are due.
                    keep = any(hook.config.order("afterDeleteHelm") is not None for hook in _hooks(state))
                    await self._deployment.uninstall(module.name, "the module is disabled", keep_record=keep)
                    facts = dataclasses.replace(facts, release=False)
                case "afterDeleteHelm":
                    await self._run_hooks(module, state, "afterDeleteHelm", activation)
                    facts = dataclasses.replace(facts, after_delete=True)
                case "finish":
                    await self._deployment.forget(module.name)
                    return
                case _:
                    assert_never(step)

    async def abandon(self, name: str) -> None:
        """Ends what the hooks of a module react to whose directory is gone.

        Raises:
            AddonOperatorError: a webhook cannot be withdrawn.
        """
        state = self._registry.state(name)
        self._forget_hooks(name, state)
        await self._bindings.webhooks.withdraw_module(name)

    def forget_files(self, module_dir: Path) -> None:
        """Forgets the files of a module directory that is gone."""
        self._catalog.forget(module_dir)
        self._crds.forget(module_dir)

    async def purge(self, release: str) -> None:
        """Uninstalls a release of the operator whose module is gone.

        Raises:
            HelmError: helm refused.
        """
        await self._deployment.uninstall(release, "its module is gone")

    async def _load_hooks(self, module: Module, state: ModuleState, *, but_broken: bool = False) -> None:
        known, loaded = state.hooks or LoadedHooks(), LoadedHooks()
        if module.has_hooks:
            loaded = await self._catalog.load(module.path / "hooks", module=module.name)
        if loaded.errors:
            text = "\n".join(loaded.errors)
            # A module may be disabled because one of its hooks is broken: that hook must not block the delete. A
            # failure that happens once only must not cost the module its cleanup.
            if not (but_broken and state.error == text):
                raise HookConfigError(text)
            log.error(
                "module is deleted without those of its hooks that cannot be loaded", module=module.name, error=text
            )
        if loaded.hooks != known.hooks:
            self._forget_hooks(module.name, state)
        state.hooks = loaded
        for warning in set(loaded.warnings) - set(known.warnings):
            log.warning("file of a module is ignored", module=module.name, reason=warning)
        for hook in state.hooks.hooks:
            self._metrics.hook_runs.bindings(module.name, hook.id.name, len(hook.config.bindings()))

    def _forget_hooks(self, name: str, state: ModuleState) -> None:
        """Unbinds the former hooks: files have changed, so all hooks start afresh."""
        # Also those that run: their contexts are of events before the change.
        self._queues.end_hook_runs(name)
        self._bindings.stop(_hooks(state))
        state.watching = state.bound = False

    async def _run_hooks(self, module: Module, state: ModuleState, binding: ModuleBinding, activation: str) -> bool:
        """Runs the hooks of one binding in order; returns whether the module's values are different afterwards."""
        hooks = state.hooks.bound_to(binding) if state.hooks else ()
        if not hooks:
            return False
        state.phase = _PHASES[binding]
        before = self._store.digest(module.key)
        for hook in hooks:
            await self._hooks.run(hook, Run((LifecycleContext(binding),), queue=MAIN_QUEUE, activation=activation))
        return self._store.digest(module.key) != before


def _hooks(state: ModuleState) -> tuple[Hook, ...]:
    return state.hooks.hooks if state.hooks else ()


def _deletes(hook: Hook) -> bool:
    return any(hook.config.order(kind) is not None for kind in ("beforeDeleteHelm", "afterDeleteHelm"))
