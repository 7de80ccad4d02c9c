"""Informers that are shared, and what is kept of their objects for those who share them.

An informer lives as long as somebody subscribes to it. Used by monitors, for their objects and for the namespaces that
they follow, and by the search for kinds. Source: design.md 5 (one informer, objects stay bytes), contract.md 2.3.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
import sys
from collections.abc import Callable
from typing import Final

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import KubeError
from addon_operator.kube import jq
from addon_operator.kube.client import KubeClient
from addon_operator.kube.informers.projection import Filtered, Projection
from addon_operator.kube.informers.reflector import Reflector
from addon_operator.kube.informers.store import Key, packed
from addon_operator.kube.informers.subscription import SharedStore, Subscriber, Subscription
from addon_operator.kube.refs import ObjectKey, Resource, WatchEvent, metadata_of, permission

_NOT_ALLOWED: Final = 405
# Only a person can mend these: a selector that the server does not understand, a missing permission, a resource that
# cannot be listed.
_TO_MEND: Final = frozenset({400, 403, _NOT_ALLOWED, 422})
# A server that is away or restarts says so for seconds; who says so for longer, about this resource, has a broken
# conversion or a broken aggregated API.
_MOST_FAILURES: Final = 8
_BARE: Final = frozenset({"apiVersion", "kind", "metadata"})


@dataclasses.dataclass(frozen=True, slots=True)
class Scope:
    """Which objects one informer lists and watches."""

    resource: Resource
    namespace: str | None
    label_selector: str = ""
    field_selector: str = ""
    metadata_only: bool = False


class SharedInformer:
    """One reflector, what is kept of its objects, and who shares it; ends with its last subscription.

    Attributes:
        listed: whether its objects were listed once.
        blocked_reason: why it cannot list or watch; None unless somebody has to mend it.
        last_error: how its last attempt to list or watch failed; None if it did not.
    """

    def __init__(self, scope: Scope, factory: SharedInformerFactory) -> None:
        self.scope = scope
        self.listed = False
        self.blocked_reason: str | None = None
        self.last_error: KubeError | None = None
        self._server_failures = 0
        self._factory = factory
        self._has_received = False
        self._stores: dict[Projection, SharedStore] = {}
        self._reflector = Reflector(
            factory.client,
            scope.resource,
            namespace=scope.namespace,
            label_selector=scope.label_selector,
            field_selector=scope.field_selector,
            metadata_only=scope.metadata_only,
            handler=self._receive,
            on_error=self._note_error,
        )

    @property
    def not_served(self) -> bool:
        """Whether the server said last that it does not know the resource."""
        return self.last_error is not None and self.last_error.status == 404

    async def run(self) -> None:
        """Lists and watches until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reflector.run(), name=f"reflector of {self.scope.resource.plural}")
            await self._reflector.synced.wait()
            self._note_listed()

    def suits(self, projection: Projection, *, replay: bool) -> bool:
        """Returns whether one more subscriber can get all it needs from what is kept.

        Args:
            projection: what the subscriber wants to be kept.
            replay: whether it wants to receive the objects that exist already.
        """
        if not self._has_received or any(kept.keep_objects for kept in self._stores):
            return True
        return not replay and (projection in self._stores or projection == Projection())

    def subscribe(self, subscriber: Subscriber, projection: Projection) -> Subscription:
        """Adds a subscriber; it receives nothing before `Subscription.receive`."""
        shared = self._stores.get(projection)
        if shared is not None:
            return Subscription(subscriber, self, shared)
        shared = SharedStore(projection, self._factory.run_jq)
        subscription = Subscription(subscriber, self, shared)
        # All stores know the same objects.
        for key in tuple(next(iter(self._stores.values())).store) if self._stores else ():
            shared.put(key, self.document(key), {})
        self._stores[projection] = shared
        return subscription

    # --- what subscriptions ask

    def about(self, key: Key) -> ObjectKey:
        """Returns the whole key of an object."""
        return ObjectKey(self.scope.resource.api_version, self.scope.resource.kind, *key)

    def document(self, key: Key) -> bytes:
        """Returns what is known of an object that exists: all of it if any store keeps it."""
        namespace, name = key
        place: JsonObject = {"namespace": namespace} if namespace else {}
        resource = self.scope.resource
        bare: JsonObject = {"apiVersion": resource.api_version, "kind": resource.kind}
        return self._kept(key) or jsondoc.dumps({**bare, "metadata": {**place, "name": name}})

    def release(self) -> None:
        """Forgets what nobody needs any more, and ends with the last subscription."""
        self._stores = {projection: shared for projection, shared in self._stores.items() if shared.subscriptions}
        if not self._stores:
            self._factory.end(self)

    # --- what the reflector delivers

    def _receive(self, event: WatchEvent, item: JsonObject) -> None:
        """Keeps what an object has become, and emits it to those for whom it is a change."""
        self._note_listed()
        self._has_received = True
        metadata = metadata_of(item)
        # One string for the namespace of thousands of objects.
        key = (sys.intern(str(metadata.get("namespace") or "")), str(metadata.get("name") or ""))
        is_deleted = event == "Deleted"
        # What went away unseen comes as a name only.
        document = (self._kept(key) if is_deleted and not item.keys() - _BARE else None) or packed(item)
        about: ObjectKey | None = None
        outcomes: dict[str, Filtered | None] = {}
        for shared in tuple(self._stores.values()):
            change, result = shared.delete(key) if is_deleted else shared.put(key, document, outcomes)
            if change is not None and shared.receiving:
                about = about or self.about(key)
                for subscription in tuple(shared.receiving):
                    subscription.emit(change, about, document, result)
            if self.listed and len(shared.receiving) < len(shared.subscriptions):
                # An object that the filter failed on may have been in the way of their first list.
                _notify(shared)

    def _kept(self, key: Key) -> bytes | None:
        for shared in self._stores.values():
            item = shared.store.get(key)
            if item is not None and item.object is not None:
                return item.object
        return None

    def _note_listed(self) -> None:
        if not self.listed and self._reflector.synced.is_set():
            self.listed = self._has_received = True
            self._notify_all()

    def _note_error(self, error: KubeError | None) -> None:
        self.last_error = error
        self._server_failures = self._server_failures + 1 if error is not None and error.status >= 500 else 0
        if error is not None:
            self._factory.on_error(error.reason)
        if self.not_served:
            self._notify_all()
        elif error is None or self._is_to_mend(error):
            # A server that is away for a while neither makes nor mends what a person has to.
            reason = None if error is None else _what_to_mend(error, self.scope)
            if reason != self.blocked_reason:
                self.blocked_reason = reason
                self._notify_all()

    def _is_to_mend(self, error: KubeError) -> bool:
        if error.status == _NOT_ALLOWED and self._reflector.synced.is_set():
            # A resource that can only be listed; after each refusal that is done again.
            return False
        return error.status in _TO_MEND or self._server_failures == _MOST_FAILURES

    def _notify_all(self) -> None:
        for shared in tuple(self._stores.values()):
            _notify(shared)


def _notify(shared: SharedStore) -> None:
    for subscription in tuple(shared.subscriptions):
        subscription.subscriber.on_status()


def _what_to_mend(error: KubeError, scope: Scope) -> str:
    if error.status != 403:
        return str(error)
    # If others than RBAC refuse, they name no verb, and either may be at fault.
    said = re.search(r" cannot (list|watch) ", str(error))
    verb = said[1] if said else "list, watch"
    return f"missing permission: {permission(verb, scope.resource, namespace=scope.namespace)}"


class SharedInformerFactory:
    """The informers, each of them as long as somebody subscribes to it."""

    def __init__(
        self, client: KubeClient, *, on_error: Callable[[str], None] = lambda _reason: None, run_jq: jq.Run = jq.run
    ) -> None:
        """Starts nothing yet.

        Args:
            client: the connection.
            on_error: receives the reason (`KubeError.reason`) of each list or watch that failed.
            run_jq: runs the filters.
        """
        self.client, self.on_error, self.run_jq = client, on_error, run_jq
        self._informers: dict[Scope, list[SharedInformer]] = {}
        self._tasks: dict[SharedInformer, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    @property
    def running(self) -> int:
        """Counts the informers in use."""
        return sum(map(len, self._informers.values()))

    def start(self, group: asyncio.TaskGroup) -> None:
        """Runs the informers that are subscribed to now or later; all tasks belong to the group."""
        self._group = group
        for informer in [informer for informers in self._informers.values() for informer in informers]:
            self._run(informer)

    def stop(self) -> None:
        """Starts nothing any more."""
        self._group = None

    def subscribe(
        self, scope: Scope, projection: Projection, subscriber: Subscriber, *, replay: bool = False
    ) -> Subscription:
        """Adds a subscriber to an informer that suits it, or to a new one.

        Args:
            scope: which objects.
            projection: what is to be kept of each.
            subscriber: receives nothing before `Subscription.receive`.
            replay: whether it is to receive the objects that exist already.
        """
        informers = self._informers.setdefault(scope, [])
        for informer in informers:
            if informer.suits(projection, replay=replay):
                return informer.subscribe(subscriber, projection)
        informers.append(informer := SharedInformer(scope, self))
        self._run(informer)
        return informer.subscribe(subscriber, projection)

    def end(self, informer: SharedInformer) -> None:
        """Ends an informer that nobody subscribes to any more."""
        informers = self._informers.get(informer.scope, [])
        if informer in informers:
            informers.remove(informer)
            if not informers:
                del self._informers[informer.scope]
        if task := self._tasks.pop(informer, None):
            task.cancel()

    def _run(self, informer: SharedInformer) -> None:
        if self._group is not None:
            name = f"informer of {informer.scope.resource.plural}"
            self._tasks[informer] = self._group.create_task(informer.run(), name=name)
