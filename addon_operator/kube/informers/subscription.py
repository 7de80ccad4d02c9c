"""What one subscriber asked a shared informer for, and what it receives of it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Protocol

from addon_operator.errors import KubeError
from addon_operator.kube import jq
from addon_operator.kube.informers.projection import Filtered, Projection, run_filter
from addon_operator.kube.informers.store import Item, Key, Store
from addon_operator.kube.refs import ObjectKey, WatchEvent
from addon_operator.logs import get_logger

_log = get_logger("informer")


class OnEvent(Protocol):
    """Receives what happened to one object; called in the event loop, must not block.

    Args:
        event: what happened.
        about: which object.
        document: the object as JSON; of a deleted one the last state, or, if that is not known, one with `apiVersion`,
            `kind` and `metadata` only.
        filter_result: JSON, of a deleted object the last one; None iff there is no filter.
    """

    def __call__(self, event: WatchEvent, about: ObjectKey, document: bytes, filter_result: bytes | None, /) -> None:
        """Takes the event; what it raises is logged, and keeps no event from others."""


class FilterObserver(Protocol):
    """Receives how the runs of a filter end; called in the event loop, must not block."""

    def on_filter_failed(self, about: ObjectKey, error: str) -> None:
        """The filter failed on an object that was added or modified; its event follows, with the result `null`."""

    def on_filtered(self, seconds: float) -> None:
        """A run of the filter took that long; of several subscriptions that share it, one receives this."""


@dataclasses.dataclass(frozen=True, slots=True)
class Subscriber:
    """Who receives what.

    Attributes:
        title: for the log, such as `hook hooks/x.sh of module m, binding pods`.
        on_event: receives changes of objects.
        on_status: called when the informer is listed, or blocked, or not any more, or when an object on which the
            filter failed is not in the way of the first list any more. Must not raise.
        filters: receives how filters end; None without a filter.
    """

    title: str
    on_event: OnEvent
    on_status: Callable[[], None]
    filters: FilterObserver | None = None


class SharedStore:
    """One store of an informer, and who shares it.

    Attributes:
        subscriptions: all of them.
        receiving: those that receive events; for the others everything still belongs to the first list.
    """

    def __init__(self, projection: Projection, run_jq: jq.Run) -> None:
        self.store = Store(keep_objects=projection.keep_objects)
        self.jq_filter = projection.jq_filter
        self.subscriptions: dict[Subscription, None] = {}
        self.receiving: dict[Subscription, None] = {}
        self._run_jq = run_jq

    def filter(self, document: bytes) -> Filtered | None:
        """Filters an object; None without a filter."""
        if not self.jq_filter:
            return None
        began = time.perf_counter()
        filtered = run_filter(self._run_jq, self.jq_filter, document)
        took_s = time.perf_counter() - began
        for subscription in self.subscriptions:
            if subscription.subscriber.filters is not None:
                subscription.subscriber.filters.on_filtered(took_s)
                break
        return filtered

    def put(
        self, key: Key, document: bytes, outcomes: dict[str, Filtered | None]
    ) -> tuple[WatchEvent | None, bytes | None]:
        """Keeps an object; returns what changed for the subscriptions, if anything, and the filter's result.

        Args:
            key: which object.
            document: the whole object.
            outcomes: by filter, what it made of this object; each runs once.
        """
        if self.jq_filter not in outcomes:
            outcomes[self.jq_filter] = self.filter(document)
        filtered = outcomes[self.jq_filter]
        return self.store.put(key, document, filtered), None if filtered is None else filtered.result

    def delete(self, key: Key) -> tuple[WatchEvent | None, bytes | None]:
        """Forgets an object; returns what changed for the subscriptions, if anything, and the filter's last result."""
        item = self.store.delete(key)
        return ("Deleted", item.filter_result) if item is not None else (None, None)


class Informer(Protocol):
    """What a subscription asks of its informer.

    Attributes:
        listed: whether its objects were listed once.
        blocked_reason: why it cannot list or watch; None unless somebody has to mend it.
        last_error: how its last attempt to list or watch failed; None if it did not.
    """

    listed: bool
    blocked_reason: str | None
    last_error: KubeError | None

    @property
    def not_served(self) -> bool:
        """Whether the server said last that it does not know the resource."""

    def about(self, key: Key) -> ObjectKey:
        """Returns the whole key of an object."""

    def document(self, key: Key) -> bytes:
        """Returns what is known of an object that exists."""

    def release(self) -> None:
        """Forgets what nobody needs any more, and ends with the last subscription."""


class Subscription:
    """One subscriber's share of one informer.

    Attributes:
        informer: lists and watches.
        store: what is kept of the objects.
    """

    def __init__(self, subscriber: Subscriber, informer: Informer, shared: SharedStore) -> None:
        self.subscriber, self.store = subscriber, shared.store
        self.informer = informer
        self._shared = shared
        self._ended = False
        shared.subscriptions[self] = None

    def receive(self, *, from_start: bool) -> None:
        """Lets the subscriber receive events from now on.

        Args:
            from_start: whether the objects that exist already are added now.
        """
        if self in self._shared.receiving:
            return
        if from_start:
            self._emit_all("Added")
        if not self._ended:
            self._shared.receiving[self] = None

    def emit(self, event: WatchEvent, about: ObjectKey, document: bytes, filter_result: bytes | None) -> None:
        """Hands one event to the subscriber, after the failure of the filter if it failed on this object."""
        if self._ended:
            return
        subscriber = self.subscriber
        try:
            if self.store.failing and event != "Deleted":
                self._emit_failure(about)
            subscriber.on_event(event, about, document, filter_result)
        except Exception as error:  # noqa: BLE001 -- a broken subscriber must not cost the others their event
            _log.error(
                "an event of an object could not be handled, and is lost for this binding",
                binding=subscriber.title,
                object=str(about),
                watch_event=event,
                exc_info=error,
            )

    def end(self, *, emit_deletes: bool) -> None:
        """Ends it.

        Args:
            emit_deletes: whether the subscriber receives the deletion of all objects first.
        """
        if emit_deletes and self in self._shared.receiving:
            self._shared.receiving.pop(self)
            self._emit_all("Deleted")
        self._ended = True
        self._shared.receiving.pop(self, None)
        self._shared.subscriptions.pop(self, None)
        self.informer.release()

    def _emit_failure(self, about: ObjectKey) -> None:
        error = self.store.failing.get((about.namespace, about.name))
        if error is not None and self.subscriber.filters is not None:
            self.subscriber.filters.on_filter_failed(about, error)

    def _emit_all(self, event: WatchEvent) -> None:
        entries: list[tuple[Key, Item]] = self.store.entries()
        for key, item in entries:
            self.emit(event, self.informer.about(key), self.informer.document(key), item.filter_result)
