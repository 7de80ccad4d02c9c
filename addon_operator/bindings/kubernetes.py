"""The monitors of hooks: one for each `kubernetes` binding, with a gate in front of its events.

A binding's first context is its Synchronization. Until that run is over, events are held back in order; before it is
asked for, changes only concern the snapshot. A binding that cannot watch (its kind does not exist yet, a permission is
missing) is not waited for, and has its Synchronization when it can, unless its hook would be misled. Called by the
module runner and by the dispatcher, which makes tasks of what it hears here. Source: contract.md 2.3, 3.1, 3.3.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Literal, TypeAlias

from addon_operator.errors import KubeError
from addon_operator.hooks.call import HookId
from addon_operator.hooks.compaction import MOST_CONTEXTS, compact
from addon_operator.hooks.config.model import Kubernetes
from addon_operator.hooks.context import Context, ObjectEvent, Synchronization, fitting
from addon_operator.hooks.hook import Hook
from addon_operator.kube.events import Warn
from addon_operator.kube.monitor import Change, Monitor, Monitors, WatchSpec
from addon_operator.kube.refs import ObjectKey
from addon_operator.kube.snapshot import Item
from addon_operator.logs import get_logger
from addon_operator.metrics.bindings import BindingLabels, SnapshotSize
from addon_operator.metrics.operator import Metrics

log = get_logger("hook")

OnEvent: TypeAlias = Callable[[Hook, ObjectEvent], None]
OnListed: TypeAlias = Callable[[Hook, Synchronization], bool]

_LISTED_WITHIN_S: Final = 60.0
_WARN_EVERY_S: Final = 60.0


class HookMonitors:
    """Starts, gates and ends the monitors of hooks, and gives their snapshots."""

    def __init__(
        self, monitors: Monitors, metrics: Metrics, *, on_event: OnEvent, on_listed: OnListed, warn: Warn
    ) -> None:
        """Prepares it; `run` has to run while monitors are in use.

        Args:
            monitors: what watches.
            metrics: hears how long filters and events take.
            on_event: told about events that have passed the gate; must not block.
            on_listed: told when a binding that nobody waited for can have its Synchronization after all; answers
                whether it has it.
            warn: writes a Kubernetes Event: object, reason, message.
        """
        self._monitors = monitors
        self._metrics = metrics
        self._on_event = on_event
        self._on_listed = on_listed
        self._warn = warn
        self._watched: dict[HookId, tuple[_Watched, ...]] = {}
        self._late: dict[_Watched, asyncio.Task[None]] = {}
        self._progress = asyncio.Event()

    async def run(self) -> None:
        """Watches until it is cancelled."""
        try:
            await self._monitors.run()
        finally:
            late = tuple(self._late.values())
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def start(self, hook: Hook) -> None:
        """Begins to watch what a hook wants to know; its gates stay closed. May be called again."""
        if hook.id not in self._watched and hook.config.kubernetes:
            self._watched[hook.id] = tuple(
                _Watched(self, hook, binding, place) for place, binding in enumerate(hook.config.kubernetes)
            )

    def start_early(self, hooks: Sequence[Hook]) -> None:
        """Begins to watch for global hooks before they are asked to, since lists take their time.

        Nothing happens if any of them serves conversions: until it does, lists fail that need them, and bindings would
        be given up before their lists can succeed.
        """
        if not any(hook.config.conversions for hook in hooks):
            for hook in hooks:
                self.start(hook)

    async def listed(self, hooks: Sequence[Hook]) -> None:
        """Starts the monitors of hooks, and waits until their snapshots are there, or cannot be had now.

        Raises:
            KubeError: the API server has not answered in time; nothing is lost, to be tried again.
        """
        for hook in hooks:
            self.start(hook)
        watched = self._of(hook.id for hook in hooks)
        try:
            async with asyncio.timeout(_LISTED_WITHIN_S):
                await asyncio.gather(*(one.monitor.settled() for one in watched))
        except TimeoutError as error:
            missing = (
                f"{one.title}: not listed within {_LISTED_WITHIN_S:g} s"
                + (f": {one.monitor.last_error}" if one.monitor.last_error else "")
                for one in watched
                if not one.settled
            )
            message = "\n".join(missing)
            raise KubeError(message, status=0, reason="Timeout") from error

    async def synchronize(self, hooks: Sequence[Hook]) -> tuple[tuple[Hook, Synchronization], ...]:
        """Starts the monitors of hooks, waits until they are listed, and answers the contexts to run first.

        Raises:
            KubeError: as `listed`; or a binding cannot watch although its kind is there, and the hook works with
                snapshots at other times too: it would take an empty one for the truth.
        """
        await self.listed(hooks)
        for one in self._of(hook.id for hook in hooks):
            if one.misleads:
                raise KubeError(f"{one.title}: {one.monitor.blocked_reason}", status=0, reason="Blocked")
        for one in self._of(hook.id for hook in hooks):
            if one.gate == "closed" and one.monitor.listed:
                one.gate = "held"
            elif one.gate == "closed":
                self._follow(one)
        # Perhaps none of them is waited for.
        self.progress()
        return self.outstanding(hook.id for hook in hooks)

    def outstanding(self, hooks: Iterable[HookId]) -> tuple[tuple[Hook, Synchronization], ...]:
        """Lists the Synchronizations that were asked for and are not over."""
        return tuple((one.hook, Synchronization(one.binding)) for one in self._of(hooks) if one.gate == "held")

    def open(self, hook: Hook, bindings: Iterable[Kubernetes]) -> None:
        """Lets the events of bindings through, those held back first: their Synchronization is over.

        Nothing happens if the hook is another one by now, or if they were closed meanwhile.
        """
        wanted = tuple(bindings)
        for one in self._of((hook.id,)):
            if one.hook == hook and one.binding in wanted and one.gate == "held":
                one.open()
        self.progress()

    def close(self, hooks: Iterable[HookId]) -> None:
        """Lets no events of hooks through, forgets those held back, and keeps the snapshots: all begins anew."""
        for one in self._of(hooks):
            one.close()
        self.progress()

    def synchronized(self, hooks: Iterable[HookId]) -> bool:
        """Answers whether every binding that is to be waited for has had its Synchronization, or cannot have it now."""
        return not any(one.awaited for one in self._of(hooks))

    def next_progress(self) -> asyncio.Event:
        """Gives an event that is set when the answer of `synchronized` may have changed."""
        return self._progress

    def items(self, hook: HookId, binding: Kubernetes) -> Sequence[Item]:
        """Gives the snapshot of a binding; empty while it is not watched."""
        found = (one for one in self._watched.get(hook, ()) if one.binding == binding)
        return next((one.monitor.items() for one in found), ())

    def stop(self, hooks: Iterable[HookId]) -> None:
        """Ends the monitors of hooks; events that are held back go away."""
        for hook in hooks:
            for one in self._watched.pop(hook, ()):
                one.stop()
        self.progress()

    def fitting(self, hook: Hook, contexts: Sequence[Context]) -> int:
        """Answers how many of these contexts, at least one, a run of the hook is told at once."""
        kept = [(one.binding, one.monitor.stats()[1]) for one in self._of((hook.id,))]
        return fitting(contexts, hook.config, lambda binding: sum(size for one, size in kept if one == binding))

    def sizes(self) -> Iterator[SnapshotSize]:
        """Lists what snapshots hold, for the metrics."""
        for one in self._all():
            yield SnapshotSize(one.labels, *one.monitor.stats())

    def troubles(self) -> tuple[str, ...]:
        """Lists the bindings that cannot watch, with the reason."""
        return tuple(f"{one.title}: {reason}" for one in self._all() if (reason := one.monitor.blocked_reason))

    def _all(self) -> Iterator[_Watched]:
        return (one for watched in self._watched.values() for one in watched)

    def _of(self, hooks: Iterable[HookId]) -> list[_Watched]:
        return [one for hook in hooks for one in self._watched.get(hook, ())]

    # --- what the monitors say; for `_Watched` only

    def watch(self, watched: _Watched) -> Monitor:
        """Starts one monitor."""
        return self._monitors.start(_spec(watched.binding), watched, title=watched.title)

    def passed(self, watched: _Watched, event: ObjectEvent) -> None:
        """Hands on an event that has passed the gate."""
        began = time.monotonic()
        self._on_event(watched.hook, event)
        self._metrics.bindings.event_handled(watched.labels, time.monotonic() - began)

    def filtered(self, watched: _Watched, seconds: float) -> None:
        """Counts a run of a filter."""
        self._metrics.bindings.jq_finished(watched.labels, seconds)

    def filter_failed(self, watched: _Watched, about: ObjectKey, error: str) -> None:
        """Makes visible that a filter failed on an object."""
        self._metrics.bindings.jq_failed(watched.labels)
        log.error("jqFilter failed", reason=str(about), error=error, **watched.fields)
        if watched.may_warn():
            self._warn(about, "JqFilterFailed", f"{watched.title}.jqFilter: {error}")

    def blocked(self, watched: _Watched, reason: str | None) -> None:
        """Makes visible that a binding cannot watch, and waits for it once it can."""
        self.progress()
        if reason is not None:
            self._metrics.bindings.monitor_missing(watched.binding.name)
            effect = (
                "binding cannot watch any more, its snapshot is no longer kept up to date"
                if watched.monitor.listed
                else "binding cannot watch, its Synchronization waits"
            )
            log.warning(effect, error=reason, **watched.fields)
        else:
            log.info("binding watches", **watched.fields)

    def _follow(self, watched: _Watched) -> None:
        """Sees to it that a binding has its Synchronization as soon as it can watch."""
        if watched in self._late:
            return
        task = asyncio.create_task(self._listed_late(watched), name=f"late list of {watched.title}")
        self._late[watched] = task
        task.add_done_callback(lambda _task: self._late.pop(watched, None))

    async def _listed_late(self, watched: _Watched) -> None:
        await watched.monitor.wait_listed()
        # One that is asked for in the meantime has its Synchronization in the usual way; one that was stopped, never.
        ready = watched.gate == "closed" and watched.monitor.listed and watched in self._all()
        if ready and self._on_listed(watched.hook, Synchronization(watched.binding)):
            watched.gate = "held"

    def progress(self) -> None:
        """Wakes those who wait for Synchronizations."""
        self._progress.set()
        self._progress = asyncio.Event()


class _Watched:
    """One binding: its monitor, which it listens to, and its gate.

    Attributes:
        gate: `closed` before the Synchronization is asked for, `held` until it is over, then `open`.
    """

    def __init__(self, owner: HookMonitors, hook: Hook, binding: Kubernetes, place: int) -> None:
        self.hook, self.binding = hook, binding
        key = "kubernetes" if hook.config.version == "v1" else "onKubernetesEvent"
        self.title = f"{hook.id}, binding {binding.name}, {key}[{place}]"
        self.labels = BindingLabels(hook.id.module, hook.id.name, binding.name, binding.queue, binding.kind)
        self.fields = {
            "hook": hook.id.name, "module": hook.id.module, "binding": binding.name, "field": f"{key}[{place}]",
        }  # fmt: skip
        self.gate: Literal["closed", "held", "open"] = "closed"
        self._owner = owner
        self._held: list[Context] = []
        self._most_held = MOST_CONTEXTS
        self._warned_at = -_WARN_EVERY_S
        self.monitor = owner.watch(self)

    @property
    def settled(self) -> bool:
        return self.monitor.listed or self.monitor.blocked_reason is not None

    @property
    def awaited(self) -> bool:
        can_come = self.gate != "closed" or self.monitor.blocked_reason is None
        return self.binding.wait_for_synchronization and self.gate != "open" and can_come

    @property
    def misleads(self) -> bool:
        """Whether its snapshot is empty for a reason that somebody has to mend, and the hook would believe it.

        A kind that the server does not name has no objects; and a hook that only reacts simply has nothing to react to.
        """
        blocked = not self.monitor.listed and self.monitor.blocked_reason and not self.monitor.kind_missing
        return bool(blocked) and any(binding.kind != "onStartup" for binding in self.hook.config.lifecycle)

    def open(self) -> None:
        self.gate = "open"
        held, self._held = self._held, []
        for event in held:
            assert isinstance(event, ObjectEvent)
            self._owner.passed(self, event)

    def close(self) -> None:
        self.gate = "closed"
        self._held = []

    def stop(self) -> None:
        self.close()
        self.monitor.stop()

    def may_warn(self) -> bool:
        now = asyncio.get_running_loop().time()
        allowed = now - self._warned_at >= _WARN_EVERY_S
        self._warned_at = now if allowed else self._warned_at
        return allowed

    # --- the listener of the monitor

    def changed(self, change: Change) -> None:
        if self.gate == "closed" or change.kind not in self.binding.events:
            return
        event = ObjectEvent(
            self.binding, change.kind, change.object, change.filter_result,
            kind=change.object_kind, namespace=change.namespace, name=change.name,
        )  # fmt: skip
        if self.gate == "open":
            self._owner.passed(self, event)
            return
        self._held.append(event)
        if len(self._held) > self._most_held:
            self._held = list(compact(tuple(self._held), maybe_seen=0))
            self._most_held = max(MOST_CONTEXTS, 2 * len(self._held))

    def filter_failed(self, about: ObjectKey, error: str) -> None:
        self._owner.filter_failed(self, about, error)

    def filtered(self, seconds: float) -> None:
        self._owner.filtered(self, seconds)

    def blocked(self, reason: str | None) -> None:
        self._owner.blocked(self, reason)


def _spec(binding: Kubernetes) -> WatchSpec:
    return WatchSpec(
        kind=binding.kind,
        api_version=binding.api_version,
        names=binding.names,
        label_selector=binding.label_selector,
        field_selector=binding.field_selector,
        namespaces=binding.namespaces,
        namespace_labels=binding.namespace_labels,
        jq_filter=binding.jq_filter,
        keep_objects=binding.keep_full_objects,
    )
