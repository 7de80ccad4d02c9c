"""One `kubernetes` binding of a hook: what it watches, the gate in front of its events, and what is reported of it.

Source: contract.md 2.2, 2.3, 3.1.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

from addon_operator.bindings.gate import Gate
from addon_operator.hooks.config.model import Kubernetes
from addon_operator.hooks.context import ObjectEvent, Synchronization
from addon_operator.hooks.hook import Hook
from addon_operator.kube.events import Warn
from addon_operator.kube.informers.monitor import MonitorHandler, WatchSpec
from addon_operator.kube.informers.store import Item
from addon_operator.kube.refs import ObjectKey, WatchEvent
from addon_operator.logs import get_logger
from addon_operator.metrics.bindings import BindingLabels, BindingMetrics

_log = get_logger("hook")

_WARN_EVERY_S: Final = 60.0


class ObjectMonitor(Protocol):
    """What watches the objects that a binding selects.

    Attributes:
        listed: whether everything was listed once, and the filter worked on all of it; stays true.
        blocked_reason: why nothing can be listed or watched; None if nothing is wrong, or if a server is just away.
        kind_missing: whether it is blocked because the server does not name the kind: there are no such objects.
    """

    listed: bool
    blocked_reason: str | None
    kind_missing: bool

    @property
    def last_error(self) -> Exception | None:
        """How the last attempt to find, list or watch failed; None if none did, or it was made good since."""

    async def settled(self) -> None:
        """Returns as soon as everything is listed, or the monitor is blocked or stopped."""

    async def wait_listed(self) -> None:
        """Returns as soon as everything is listed, or the monitor is stopped, however long it is blocked before."""

    def items(self) -> list[Item]:
        """Returns the snapshot of now, ordered by namespace, then name; empty until `listed` and after `stop`."""

    def stats(self) -> tuple[int, int]:
        """Counts the objects, and the bytes of JSON that are kept of them."""

    def stop(self) -> None:
        """Ends it; may be called again."""


class ObjectMonitors(Protocol):
    """What starts monitors, and watches for all of them."""

    async def run(self) -> None:
        """Lists and watches until it is cancelled; monitors may be started before and meanwhile."""

    def start(self, spec: WatchSpec, handler: MonitorHandler, *, title: str) -> ObjectMonitor:
        """Begins to watch.

        Args:
            spec: what.
            handler: receives events.
            title: for the log.
        """


class BindingEvents(Protocol):
    """Who acts on what bindings see; must not block."""

    def object_changed(self, hook: Hook, event: ObjectEvent) -> None:
        """An event has passed the gate."""

    def synchronization_due(self, hook: Hook, context: Synchronization) -> bool:
        """A binding that nobody waited for can have its Synchronization after all; returns whether it has it."""


class BindingMonitor:
    """One binding, from its monitor to the events that reach the hook.

    Attributes:
        hook, binding: whose, and which one.
        title: hook, binding and the place of the binding in the hook's configuration, for messages.
        labels: of its metrics.
        gate: what stands between the monitor and the hook.
        monitor: what watches.
    """

    def __init__(
        self,
        hook: Hook,
        binding: Kubernetes,
        place: int,
        *,
        monitors: ObjectMonitors,
        metrics: BindingMetrics,
        events: BindingEvents,
        on_status: Callable[[], None],
        warn: Warn,
    ) -> None:
        """Begins to watch; the gate is closed.

        Args:
            hook: whose binding it is.
            binding: which one.
            place: of the binding among those of the hook.
            monitors: what watches.
            metrics: of bindings.
            events: receives what has passed the gate.
            on_status: called when it can watch or cannot watch any more.
            warn: writes a Kubernetes Event: object, reason, message.
        """
        self.hook, self.binding = hook, binding
        key = "kubernetes" if hook.config.version == "v1" else "onKubernetesEvent"
        self.title = f"{hook.id}, binding {binding.name}, {key}[{place}]"
        self.labels = BindingLabels(hook.id.module, hook.id.name, binding.name, binding.queue, binding.kind)
        self.gate = Gate()
        self._fields = {
            "hook": hook.id.name, "module": hook.id.module, "binding": binding.name, "field": f"{key}[{place}]",
        }  # fmt: skip
        self._metrics = metrics
        self._events, self._on_status, self._warn = events, on_status, warn
        self._warned_at = -_WARN_EVERY_S
        self.monitor = monitors.start(_spec(binding), self, title=self.title)

    @property
    def is_settled(self) -> bool:
        """Whether its objects are listed, or cannot be now."""
        return self.monitor.listed or self.monitor.blocked_reason is not None

    @property
    def is_awaited(self) -> bool:
        """Whether others wait for its Synchronization, and it can come."""
        can_come = not self.gate.drops or self.monitor.blocked_reason is None
        return self.binding.wait_for_synchronization and self.gate.state != "open" and can_come

    @property
    def would_show_empty_snapshot(self) -> bool:
        """Whether its snapshot is empty for a reason that somebody has to mend, and the hook would believe it.

        A kind that the server does not name has no objects; and a hook that only reacts simply has nothing to react to.
        """
        blocked = not self.monitor.listed and self.monitor.blocked_reason and not self.monitor.kind_missing
        return bool(blocked) and any(binding.kind != "onStartup" for binding in self.hook.config.lifecycle)

    def open(self) -> None:
        """Lets events through, those held back first."""
        for event in self.gate.open():
            self._pass(event)

    def stop(self) -> None:
        """Stops watching; events that are held back go away."""
        self.gate.close()
        self.monitor.stop()

    # --- the handler of the monitor

    def on_event(self, event: WatchEvent, about: ObjectKey, document: bytes, filter_result: bytes | None, /) -> None:
        """Lets an event that the binding asks for through its gate, or holds it back."""
        if self.gate.drops or event not in self.binding.events:
            return
        context = ObjectEvent(
            self.binding, event, document, filter_result, kind=about.kind, namespace=about.namespace, name=about.name
        )
        if self.gate.state == "open":
            self._pass(context)
        else:
            self.gate.hold(context)

    def on_filtered(self, seconds: float) -> None:
        """Counts a run of the filter."""
        self._metrics.jq_finished(self.labels, seconds)

    def on_filter_failed(self, about: ObjectKey, error: str) -> None:
        """Makes visible that the filter failed on an object."""
        self._metrics.jq_failed(self.labels)
        _log.error("jqFilter failed", object=str(about), error=error, **self._fields)
        now = asyncio.get_running_loop().time()
        if now - self._warned_at >= _WARN_EVERY_S:
            self._warned_at = now
            self._warn(about, "JqFilterFailed", f"{self.title}.jqFilter: {error}")

    def on_blocked(self, reason: str | None) -> None:
        """Makes visible that the binding cannot watch, or can again."""
        self._on_status()
        if reason is None:
            _log.info("binding watches", **self._fields)
            return
        self._metrics.monitor_missing(self.binding.name)
        effect = (
            "binding cannot watch any more, its snapshot is no longer kept up to date"
            if self.monitor.listed
            else "binding cannot watch, its Synchronization waits"
        )
        _log.warning(effect, error=reason, **self._fields)

    def _pass(self, event: ObjectEvent) -> None:
        began = time.monotonic()
        self._events.object_changed(self.hook, event)
        self._metrics.event_handled(self.labels, time.monotonic() - began)


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
