"""What one `kubernetes` binding watches: its kind once there is one, in the namespaces that it selects.

It knows nothing of hooks: a handler receives events, and what follows from them is the caller's business.
Source: contract.md 2.2, 2.3; design.md 5.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from addon_operator.kube import jq
from addon_operator.kube.client import KubeClient
from addon_operator.kube.discovery import Discovery
from addon_operator.kube.informers.kind_resolver import KindResolver
from addon_operator.kube.informers.names import ObjectNames
from addon_operator.kube.informers.projection import Projection
from addon_operator.kube.informers.shared import Scope, SharedInformerFactory
from addon_operator.kube.informers.store import Item
from addon_operator.kube.informers.subscription import FilterObserver, Informer, Subscriber, Subscription
from addon_operator.kube.refs import ObjectKey, Resource, WatchEvent
from addon_operator.logs import get_logger

_log = get_logger("informer")

# So often the server may deny a kind that it has just named: what it says about new kinds lags behind.
_MOST_DENIALS: Final = 5
_NAMESPACES: Final = Resource("", "v1", "Namespace", "namespaces", False)


@dataclasses.dataclass(frozen=True, slots=True)
class WatchSpec:
    """Which objects one binding watches, and what of them it keeps.

    Attributes:
        kind: kind, plural or short name, case-insensitive.
        api_version: `apps/v1`; None for the server's preferred one.
        names: only objects with these names; empty for all.
        label_selector: as in the API.
        field_selector: as in the API, in addition to `names`.
        namespaces: only objects in these; empty for all, unless `namespace_labels` is given. Both mean nothing for
            objects that have no namespace.
        namespace_labels: as in the API; objects in the namespaces that match, as these come and go, in addition to
            those in `namespaces`.
        jq_filter: a program that compiles; empty for none.
        keep_objects: False if snapshots shall hold filter results only.
    """

    kind: str
    api_version: str | None = None
    names: tuple[str, ...] = ()
    label_selector: str = ""
    field_selector: str = ""
    namespaces: tuple[str, ...] = ()
    namespace_labels: str | None = None
    jq_filter: str = ""
    keep_objects: bool = True


class MonitorHandler(FilterObserver, Protocol):
    """Who receives what one monitor sees; called in the event loop, must not block.

    What it raises is logged, and keeps no event from others. Nothing is called before `Monitors.start` has returned,
    nor after `Monitor.stop`.
    """

    def on_event(self, event: WatchEvent, about: ObjectKey, document: bytes, filter_result: bytes | None, /) -> None:
        """Something happened to an object after everything was listed; see `subscription.OnEvent`."""

    def on_blocked(self, reason: str | None) -> None:
        """Nothing can be listed or watched for a reason that somebody has to mend; None: that is over."""


class Monitor:
    """The subscriptions of one binding, which change with its kind and with the namespaces it follows.

    Attributes:
        listed: whether everything was listed once, and the filter worked on all of it; stays true.
        blocked_reason: why nothing can be listed or watched; None if nothing is wrong, or if a server is just away.
        kind_missing: whether it is blocked because the server does not name the kind: there are no such objects.
    """

    def __init__(
        self,
        spec: WatchSpec,
        handler: MonitorHandler,
        *,
        title: str,
        factory: SharedInformerFactory,
        resolver: KindResolver,
    ) -> None:
        """Watches nothing before its kind is found; made by `Monitors.start`."""
        self.listed = self.kind_missing = False
        self.blocked_reason: str | None = None
        self._spec, self._title, self._handler = spec, title, handler
        self._factory, self._resolver = factory, resolver
        self._projection = Projection(spec.jq_filter, spec.keep_objects)
        self._subscriber = Subscriber(title, handler.on_event, self._update, handler)
        self._resource: Resource | None = None
        # By namespace, None for all of them.
        self._subscriptions: dict[str | None, list[Subscription]] = {}
        self._followed: ObjectNames | None = None
        self._obstacle: str | None = None
        self._denials = 0
        self._stopped = False
        self._is_settled, self._is_listed = asyncio.Event(), asyncio.Event()

    @property
    def last_error(self) -> Exception | None:
        """How the last attempt to find, list or watch failed; None if none did, or it was made good since."""
        errors = (informer.last_error for informer in self._informers())
        return next(filter(None, errors), None if self._resource else self._resolver.last_error)

    async def settled(self) -> None:
        """Returns as soon as everything is listed, or the monitor is blocked or stopped."""
        await self._is_settled.wait()

    async def wait_listed(self) -> None:
        """Returns as soon as everything is listed, or the monitor is stopped, however long it is blocked before."""
        await self._is_listed.wait()

    def items(self) -> list[Item]:
        """Returns the snapshot of now, ordered by namespace, then name; empty until `listed` and after `stop`."""
        if not self.listed:
            return []
        subscriptions = self._all()
        entries = [entry for subscription in subscriptions for entry in subscription.store.entries()]
        if len(subscriptions) > 1:
            entries.sort(key=lambda entry: entry[0])
        return [item for _, item in entries]

    def stats(self) -> tuple[int, int]:
        """Counts the objects, and the bytes of JSON that are kept of them."""
        stores = [subscription.store for subscription in self._all()]
        return sum(map(len, stores)), sum(store.kept_bytes for store in stores)

    def stop(self) -> None:
        """Ends it; may be called again."""
        if self._stopped:
            return
        self._stopped = True
        self._resolver.forget(self)
        self._unsubscribe(emit_deletes=False)
        self._is_settled.set()
        self._is_listed.set()

    # --- the waiter of the resolver

    @property
    def kind(self) -> str:
        """Kind, plural or short name."""
        return self._spec.kind

    @property
    def api_version(self) -> str | None:
        """`apps/v1`; None for the server's preferred one."""
        return self._spec.api_version

    def on_kind_found(self, resource: Resource) -> None:
        """Begins to list and watch."""
        if self._stopped:
            return
        self._resource = resource
        if self.kind_missing:
            # It has just come, and what there is of it will be known in a moment.
            self._obstacle, self.kind_missing = None, False
        if resource.namespaced and self._spec.namespace_labels is not None:
            scope = Scope(_NAMESPACES, None, self._spec.namespace_labels)
            self._followed = ObjectNames(self._factory, scope, self._follow)
        self._follow()

    def on_kind_missing(self, reason: str, *, is_named: bool) -> None:
        """Notes that there is no such kind, or that it cannot be listed."""
        if self.listed and self._obstacle is None:
            _log.warning("what a binding watches is not served any more", binding=self._title, reason=reason)
        self._obstacle, self.kind_missing = reason, not is_named
        self._update()

    # --- subscriptions

    def _follow(self) -> None:
        """Watches in the namespaces that are selected now, and in no others."""
        if self._stopped or self._resource is None:
            return
        selected = self._selected(self._resource)
        for namespace in [namespace for namespace in self._subscriptions if namespace not in selected]:
            for subscription in self._subscriptions.pop(namespace, ()):
                subscription.end(emit_deletes=True)
        for namespace in selected:
            if namespace not in self._subscriptions and not self._stopped:
                self._subscribe(self._resource, namespace)
        self._update()

    def _selected(self, resource: Resource) -> list[str | None]:
        if not resource.namespaced or (self._followed is None and not self._spec.namespaces):
            return [None]
        followed = self._followed.names() if self._followed else []
        return [*dict.fromkeys([*self._spec.namespaces, *followed])]

    def _subscribe(self, resource: Resource, namespace: str | None) -> None:
        subscriptions = self._subscriptions.setdefault(namespace, [])
        for name in dict.fromkeys(self._spec.names) or (None,):
            fields = ",".join(filter(None, [self._spec.field_selector, f"metadata.name={name}" if name else ""]))
            scope = Scope(resource, namespace, self._spec.label_selector, fields)
            subscriptions.append(self._factory.subscribe(scope, self._projection, self._subscriber, replay=self.listed))
        for subscription in tuple(subscriptions) if self.listed else ():
            subscription.receive(from_start=True)

    def _unsubscribe(self, *, emit_deletes: bool) -> None:
        subscriptions, followed = self._all(), self._followed
        self._subscriptions, self._followed, self._resource = {}, None, None
        if followed:
            followed.end()
        for subscription in subscriptions:
            subscription.end(emit_deletes=emit_deletes)

    def _all(self) -> list[Subscription]:
        return [subscription for subscriptions in self._subscriptions.values() for subscription in subscriptions]

    def _informers(self) -> list[Informer]:
        followed = [self._followed.informer] if self._followed else []
        return [*followed, *(subscription.informer for subscription in self._all())]

    # --- how it stands

    def _update(self) -> None:
        """Notes how the subscriptions stand, and calls the handler when it becomes blocked or unblocked."""
        if self._stopped:
            return
        if any(subscription.informer.not_served for subscription in self._all()):
            self._lose_kind()
            return
        if any(subscription.informer.listed for subscription in self._all()):
            self._obstacle, self._denials = None, 0
        if not self.listed and self._is_complete():
            self.listed = True
            self._is_listed.set()
            for subscription in self._all():
                subscription.receive(from_start=False)
        reason = self._find_obstacle()
        if reason != self.blocked_reason:
            self.blocked_reason = reason
            self._emit_blocked(reason)
        if self.listed or self.blocked_reason is not None:
            self._is_settled.set()
        else:
            self._is_settled.clear()

    def _lose_kind(self) -> None:
        self._unsubscribe(emit_deletes=True)
        if self._stopped:
            return
        self._denials += 1
        if self._denials >= _MOST_DENIALS:
            reason = f"the API server names the kind {self.kind}, but does not serve it; trying again"
            self.on_kind_missing(reason, is_named=True)
        self._resolver.resolve_again(self, times=self._denials)

    def _is_complete(self) -> bool:
        if self._resource is None or (self._followed and not self._followed.informer.listed):
            return False
        return all(each.informer.listed and not each.store.failing for each in self._all())

    def _find_obstacle(self) -> str | None:
        reasons = (informer.blocked_reason for informer in self._informers())
        return next(filter(None, reasons), None) or (None if self.listed else self._obstacle or self._failing_filter())

    def _failing_filter(self) -> str | None:
        for subscription in self._all():
            if subscription.informer.listed and subscription.store.failing:
                (namespace, name), error = min(subscription.store.failing.items())
                where = f"{namespace}/{name}" if namespace else name
                return f"jqFilter fails on {where}: {error}"
        return None

    def _emit_blocked(self, reason: str | None) -> None:
        try:
            self._handler.on_blocked(reason)
        except Exception as error:  # noqa: BLE001 -- a broken handler must not end the watch of others
            _log.error("what blocks a binding could not be handled", binding=self._title, exc_info=error)


class Monitors:
    """All monitors, and the informers that they share."""

    def __init__(
        self,
        client: KubeClient,
        discover: Callable[[], Awaitable[Discovery]],
        *,
        on_watch_error: Callable[[str], None] = lambda _reason: None,
        run_jq: jq.Run = jq.run,
    ) -> None:
        """Prepares it; `run` does the work.

        Args:
            client: the connection.
            discover: asks what the server serves; each call must really ask.
            on_watch_error: receives the reason (`KubeError.reason`) of each list or watch that failed.
            run_jq: runs the filters.
        """
        self._factory = SharedInformerFactory(client, on_error=on_watch_error, run_jq=run_jq)
        self._resolver = KindResolver(discover, self._factory)

    async def run(self) -> None:
        """Lists and watches for all monitors until it is cancelled; they may be started before and meanwhile."""
        async with asyncio.TaskGroup() as group:
            self._factory.start(group)
            try:
                await self._resolver.run()
            finally:
                self._factory.stop()

    def start(self, spec: WatchSpec, handler: MonitorHandler, *, title: str) -> Monitor:
        """Begins to watch.

        Args:
            spec: what.
            handler: receives events.
            title: for the log, such as `hook hooks/x.sh of module m, binding pods`.

        Raises:
            ValueError: the jq filter does not compile.
        """
        if spec.jq_filter:
            jq.compiled(spec.jq_filter)
        monitor = Monitor(spec, handler, title=title, factory=self._factory, resolver=self._resolver)
        self._resolver.resolve(monitor)
        return monitor

    @property
    def watches(self) -> int:
        """Counts the informers in use."""
        return self._factory.running
