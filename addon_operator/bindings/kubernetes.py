"""The `kubernetes` bindings of all hooks: when they watch, and when their Synchronization is due.

A binding that cannot watch (its kind does not exist yet, a permission is missing) is not waited for, and has its
Synchronization when it can, unless its hook would take an empty snapshot for the truth. Called by the module runner and
by the dispatcher, which makes tasks of the events. Source: contract.md 2.3, 3.1, 3.3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from addon_operator.bindings.binding_monitor import BindingEvents, BindingMonitor, ObjectMonitors
from addon_operator.errors import KubeError
from addon_operator.hooks.call import HookId
from addon_operator.hooks.config.model import Kubernetes
from addon_operator.hooks.context import Context, Synchronization, split_to_fit
from addon_operator.hooks.hook import Hook
from addon_operator.kube.events import Warn
from addon_operator.kube.informers.store import Item
from addon_operator.metrics.bindings import BindingMetrics, SnapshotSize

_LISTED_WITHIN_S: Final = 60.0


class BindingMonitors:
    """Starts, gates and ends the monitors of hooks, and gives their snapshots."""

    def __init__(
        self,
        monitors: ObjectMonitors,
        metrics: BindingMetrics,
        *,
        events: BindingEvents,
        warn: Warn,
    ) -> None:
        """Prepares it; `run` has to run while monitors are in use.

        Args:
            monitors: what watches.
            metrics: of bindings.
            events: receives what bindings see.
            warn: writes a Kubernetes Event: object, reason, message.
        """
        self._monitors = monitors
        self._metrics = metrics
        self._events, self._warn = events, warn
        self._bindings: dict[HookId, tuple[BindingMonitor, ...]] = {}
        self._late: dict[BindingMonitor, asyncio.Task[None]] = {}
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
        if hook.id not in self._bindings and hook.config.kubernetes:
            self._bindings[hook.id] = tuple(
                BindingMonitor(
                    hook, binding, place, monitors=self._monitors, metrics=self._metrics, events=self._events,
                    on_status=self._note_progress, warn=self._warn,
                )
                for place, binding in enumerate(hook.config.kubernetes)
            )  # fmt: skip

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
        bindings = self._of(hook.id for hook in hooks)
        try:
            async with asyncio.timeout(_LISTED_WITHIN_S):
                await asyncio.gather(*(binding.monitor.settled() for binding in bindings))
        except TimeoutError as error:
            unlisted = (
                f"{binding.title}: not listed within {_LISTED_WITHIN_S:g} s"
                + (f": {binding.monitor.last_error}" if binding.monitor.last_error else "")
                for binding in bindings
                if not binding.is_settled
            )
            raise KubeError("\n".join(unlisted), status=0, reason="Timeout") from error

    async def synchronize(self, hooks: Sequence[Hook]) -> tuple[tuple[Hook, Synchronization], ...]:
        """Starts the monitors of hooks, waits until they are listed, and returns the contexts to run first.

        Raises:
            KubeError: as `listed`; or a binding cannot watch although its kind is there, and the hook works with
                snapshots at other times too: it would take an empty one for the truth.
        """
        await self.listed(hooks)
        bindings = self._of(hook.id for hook in hooks)
        for binding in bindings:
            if binding.would_show_empty_snapshot:
                raise KubeError(f"{binding.title}: {binding.monitor.blocked_reason}", status=0, reason="Blocked")
        for binding in bindings:
            if binding.gate.drops and binding.monitor.listed:
                binding.gate.state = "held"
            elif binding.gate.drops:
                binding.gate.state = "due"
                self._synchronize_later(binding)
        # Perhaps none of them is waited for.
        self._note_progress()
        return self.outstanding(hook.id for hook in hooks)

    def outstanding(self, hooks: Iterable[HookId]) -> tuple[tuple[Hook, Synchronization], ...]:
        """Lists the Synchronizations that were asked for and are not over."""
        held = (binding for binding in self._of(hooks) if binding.gate.state == "held")
        return tuple((binding.hook, Synchronization(binding.binding)) for binding in held)

    def open(self, hook: Hook, bindings: Iterable[Kubernetes]) -> None:
        """Lets the events of bindings through, those held back first: their Synchronization is over.

        Nothing happens if the hook is another one by now, or if they were closed meanwhile.
        """
        synchronized = tuple(bindings)
        for binding in self._of((hook.id,)):
            if binding.hook == hook and binding.binding in synchronized and binding.gate.state == "held":
                binding.open()
        self._note_progress()

    def close(self, hooks: Iterable[HookId]) -> None:
        """Lets no events of hooks through, forgets those held back, and keeps the snapshots: all begins anew."""
        for binding in self._of(hooks):
            binding.gate.close()
        self._note_progress()

    def synchronized(self, hooks: Iterable[HookId]) -> bool:
        """Returns whether every binding that is to be waited for has had its Synchronization, or cannot have it now."""
        return not any(binding.is_awaited for binding in self._of(hooks))

    def next_progress(self) -> asyncio.Event:
        """Returns an event that is set when the result of `synchronized` may have changed."""
        return self._progress

    def items(self, hook: HookId, binding: Kubernetes) -> Sequence[Item]:
        """Returns the snapshot of a binding; empty while it is not watched."""
        found = (each for each in self._bindings.get(hook, ()) if each.binding == binding)
        return next((each.monitor.items() for each in found), ())

    def stop(self, hooks: Iterable[HookId]) -> None:
        """Ends the monitors of hooks; events that are held back go away."""
        for hook in hooks:
            for binding in self._bindings.pop(hook, ()):
                binding.stop()
        self._note_progress()

    def split_to_fit(self, hook: Hook, contexts: Sequence[Context]) -> tuple[tuple[Context, ...], tuple[Context, ...]]:
        """Returns the contexts, at least one, that one run of the hook gets, and those that are left for the next."""
        kept = [(each.binding, each.monitor.stats()[1]) for each in self._of((hook.id,))]
        return split_to_fit(contexts, hook.config, lambda binding: sum(size for each, size in kept if each == binding))

    def sizes(self) -> Iterator[SnapshotSize]:
        """Lists what snapshots hold, for the metrics."""
        for binding in self._all():
            yield SnapshotSize(binding.labels, *binding.monitor.stats())

    def problems(self) -> tuple[str, ...]:
        """Lists the bindings that cannot watch, with the reason."""
        blocked = ((binding.title, binding.monitor.blocked_reason) for binding in self._all())
        return tuple(f"{title}: {reason}" for title, reason in blocked if reason)

    def _all(self) -> Iterator[BindingMonitor]:
        return (binding for bindings in self._bindings.values() for binding in bindings)

    def _of(self, hooks: Iterable[HookId]) -> list[BindingMonitor]:
        return [binding for hook in hooks for binding in self._bindings.get(hook, ())]

    def _synchronize_later(self, binding: BindingMonitor) -> None:
        """Ensures that a binding has its Synchronization as soon as it can watch."""
        if binding in self._late:
            return
        task = asyncio.create_task(self._listed_late(binding), name=f"late list of {binding.title}")
        self._late[binding] = task
        task.add_done_callback(lambda _task: self._late.pop(binding, None))

    async def _listed_late(self, binding: BindingMonitor) -> None:
        await binding.monitor.wait_listed()
        # One that is asked for in the meantime has its Synchronization in the usual way, one that was closed when it is
        # asked for again (after onStartup, if its module begins a new life), one that was stopped never.
        ready = binding.gate.state == "due" and binding.monitor.listed and binding in self._all()
        if ready and self._events.synchronization_due(binding.hook, Synchronization(binding.binding)):
            binding.gate.state = "held"

    def _note_progress(self) -> None:
        """Wakes those who wait for Synchronizations."""
        self._progress.set()
        self._progress = asyncio.Event()
