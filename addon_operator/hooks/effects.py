"""Runs a hook and carries out what it asked for, in one fixed order; the only place that writes what hooks ask for.

decode everything -> check values patch and config patch against the schemas -> metrics -> object operations -> save the
config patch -> commit the values patch. Whatever fails before the first write leaves nothing half-applied.
Source: design.md 4, contract.md 2.4.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from addon_operator.cancellation import finish
from addon_operator.configmap.writer import ConfigMapWriter
from addon_operator.errors import AddonOperatorError, BadReply, HookError, HookFailed, InputError
from addon_operator.hooks.call import Changes, Effects, HookCall, HookId, Response
from addon_operator.hooks.config.model import Kubernetes
from addon_operator.hooks.context import Context, binding_name, encode
from addon_operator.hooks.engine import HookEngine
from addon_operator.hooks.hook import Hook
from addon_operator.kube import patch_ops
from addon_operator.kube.informers.store import Item
from addon_operator.kube.patch_ops import ObjectOperation
from addon_operator.kube.patcher import ObjectPatcher
from addon_operator.logs import get_logger
from addon_operator.metrics import operations
from addon_operator.metrics.hook_runs import HookLabels, RunOutcome
from addon_operator.metrics.hooks import MetricsProposal
from addon_operator.metrics.operator import Metrics
from addon_operator.process.child import Exit
from addon_operator.values.layers import module_name, section_key
from addon_operator.values.store import Proposal, StaleProposal, ValuesStore

log = get_logger("hook")

_WORTH_A_LINE_S = 10.0
_EFFECTS_GRACE_S = 5.0
_LARGE_BYTES = 256 * 2**10


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """Why a hook is run.

    Attributes:
        contexts: its binding contexts, in order; never empty.
        queue: where the task waited; empty for reviews, which wait in none.
        activation: the reason of the task during the first converge, else empty.
        allows_failure: a failure counts as an allowed one.
        response: the response that the API server waits for, if it does.
        timeout_s: deadline, if it is shorter than the hook's own.
    """

    contexts: tuple[Context, ...]
    queue: str
    activation: str = ""
    allows_failure: bool = False
    response: Response | None = None
    timeout_s: float = math.inf

    @property
    def binding(self) -> str:
        """The name of the binding of the first context, for logs and metrics."""
        return binding_name(self.contexts[0])


@dataclasses.dataclass(frozen=True, slots=True)
class _Decoded:
    metrics: MetricsProposal
    objects: tuple[ObjectOperation, ...]


class HookRuns:
    """Runs hooks with the values of now and applies their effects."""

    def __init__(
        self,
        *,
        engine: HookEngine,
        store: ValuesStore,
        config_map: ConfigMapWriter,
        patcher: ObjectPatcher,
        metrics: Metrics,
        enabled_modules: Callable[[], Sequence[str]],
        items: Callable[[HookId, Kubernetes], Sequence[Item]],
        timeout_s: float,
    ) -> None:
        self._engine = engine
        self._store = store
        self._config_map = config_map
        self._patcher = patcher
        self._metrics = metrics
        self._enabled_modules = enabled_modules
        self._items = items
        self._timeout_s = timeout_s
        self._flags_changed: set[HookId] = set()
        self._too_many_series: set[HookId] = set()

    async def run(self, hook: Hook, run: Run) -> Changes:
        """Runs a hook once and applies what it asks for; returns what that has changed.

        Raises:
            HookError: the hook failed, left something unusable, its patches break the schemas, or what it asked for
                could not be written; the message names the hook.
        """
        return (await self.review(hook, run))[0]

    async def review(self, hook: Hook, run: Run) -> tuple[Changes, bytes]:
        """Runs a hook for the API server, as `run`; also returns what it wrote to its response file."""
        key = "global" if hook.id.module is None else section_key(hook.id.module)
        loop = asyncio.get_running_loop()
        started = loop.time()
        progress = loop.call_later(_WORTH_A_LINE_S, _log_progress, hook.id, run)
        try:
            result = await self._engine.run(self._call(hook, run, key))
            # If the run is cancelled, its effects get some more seconds: they belong together.
            changes = await finish(
                self._apply(hook.id, key, result.effects),
                name="effects of a hook",
                grace_s=_EFFECTS_GRACE_S,
                on_error=_warn_of_lost_effects,
            )
        except AddonOperatorError as error:
            outcome: RunOutcome = "allowed_error" if run.allows_failure else "error"
            self._count(hook.id, run, outcome, duration_s=loop.time() - started)
            if isinstance(error, HookFailed):
                await self._apply_despite(hook.id, error)
            if isinstance(error, HookError):
                raise  # names the hook already
            raise HookError(f"{hook.id}: {error}", retry_after_s=error.retry_after_s) from error
        finally:
            progress.cancel()
        self._count(hook.id, run, "success", duration_s=result.exit.duration_s, ended=result.exit)
        return changes, result.effects.response

    def _call(self, hook: Hook, run: Run, key: str) -> HookCall:
        enabled = None if hook.id.module is None else tuple(self._enabled_modules())
        return HookCall(
            hook=hook.id,
            path=hook.path,
            contexts=encode(run.contexts, hook.config, lambda binding: self._items(hook.id, binding)),
            values=self._store.hook_values(key, enabled),
            config_values=self._store.hook_config_values(key),
            timeout_s=min(hook.config.timeout_s or self._timeout_s, run.timeout_s),
            binding=run.binding,
            queue=run.queue,
            response=run.response,
        )

    async def _apply(self, hook: HookId, key: str, effects: Effects) -> Changes:
        # In a thread: a hook may write hundreds of thousands of operations, and the event loop must not wait for them.
        large = len(effects.metrics) > _LARGE_BYTES
        decoded = await asyncio.to_thread(self._decode, hook, effects) if large else self._decode(hook, effects)
        proposal = self._propose(hook, key, effects)
        if proposal is not None and proposal.config_section is not None:
            self._config_map.check()
        self._note_dropped(hook, self._metrics.hooks.commit(decoded.metrics))
        if decoded.objects:
            await self._patcher.apply(decoded.objects)
        if proposal is None:
            return Changes()
        configures = proposal.config_section is not None or proposal.config_flags
        if configures and await self._config_map.save(key, proposal):
            self._flags_changed.add(hook)
        self._commit(hook, key, effects, proposal)
        for flag in sorted(flag for flag in proposal.enabled_changed if not self._store.has(flag)):
            reason = f"{flag}Enabled: there is no module {module_name(flag)!r}"
            log.warning("enable flag of a hook has no effect", hook=hook.name, module=hook.module, reason=reason)
        if proposal.changed:
            log.debug("hook changed values", hook=hook.name, module=hook.module, scope=sorted(proposal.changed))
        # A run that failed after its flags were saved is repeated, and saves them again: they changed all the same.
        enablement = bool(proposal.enabled_changed) or hook in self._flags_changed
        self._flags_changed.discard(hook)
        return Changes(values=bool(proposal.changed), enablement=enablement)

    async def _apply_despite(self, hook: HookId, failed: HookFailed) -> None:
        """Applies the operations that a failed hook wants nevertheless: those on the status of objects."""
        try:
            wanted = patch_ops.despite_hook_error(patch_ops.parse(failed.object_patch, "KUBERNETES_PATCH_PATH"))
            if wanted:
                await self._patcher.apply(wanted)
        except AddonOperatorError as error:
            log.warning(
                "status operations of a failed hook are not applied", hook=hook.name, module=hook.module, error=error
            )

    def _decode(self, hook: HookId, effects: Effects) -> _Decoded:
        try:
            asked = operations.parse(effects.metrics, "METRICS_PATH")
            metrics = self._metrics.hooks.propose(asked, module=hook.module, hook=hook.name)
            return _Decoded(metrics, patch_ops.parse(effects.object_patch, "KUBERNETES_PATCH_PATH"))
        except InputError as error:
            raise BadReply(f"{hook}: {error}") from error

    def _note_dropped(self, hook: HookId, dropped: int) -> None:
        """Counts what was dropped of a run's metrics; logs it the first time."""
        if not dropped:
            self._too_many_series.discard(hook)
            return
        self._metrics.hook_runs.metrics_dropped(hook.module, hook.name, dropped)
        if hook not in self._too_many_series:
            self._too_many_series.add(hook)
            reason = f"{dropped} operations dropped: the hook has reached HOOK_MAX_SERIES (--hook-max-series)"
            log.warning(
                "hook has too many metric series, operations are dropped",
                hook=hook.name,
                module=hook.module,
                reason=reason,
            )

    def _propose(self, hook: HookId, key: str, effects: Effects) -> Proposal | None:
        if not effects.values_patch and not effects.config_patch:
            return None
        return self._store.propose_hook(
            key,
            values_ops=effects.values_patch,
            config_ops=effects.config_patch,
            hook=hook.name,
            at=datetime.now(UTC),
        )

    def _commit(self, hook: HookId, key: str, effects: Effects, proposal: Proposal) -> None:
        """Commits; if the section changed while the ConfigMap was written, checks again on top of that."""
        try:
            self._store.commit(proposal)
        except StaleProposal:
            saved = proposal.config_section is not None and self._store.config(key) == proposal.config_section
            rest = dataclasses.replace(effects, config_patch=()) if saved else effects
            fresh = self._propose(hook, key, rest)
            if fresh is not None:
                self._store.commit(fresh)

    def _count(
        self, hook: HookId, run: Run, outcome: RunOutcome, *, duration_s: float, ended: Exit | None = None
    ) -> None:
        labels = HookLabels(hook.module, hook.name, run.binding, run.queue, run.activation)
        self._metrics.hook_runs.finished(
            labels,
            outcome,
            duration_s=duration_s,
            user_cpu_s=ended.user_cpu_s if ended else 0.0,
            sys_cpu_s=ended.sys_cpu_s if ended else 0.0,
            max_rss_bytes=ended.max_rss_bytes if ended else 0,
        )


def _warn_of_lost_effects(error: BaseException) -> None:
    reason = str(error) if isinstance(error, AddonOperatorError) else type(error).__name__
    log.warning("effects of a hook are not applied: its run was cancelled", reason=reason)


def _log_progress(hook: HookId, run: Run) -> None:
    log.info("hook is still running", hook=hook.name, module=hook.module, binding=run.binding, queue=run.queue)
