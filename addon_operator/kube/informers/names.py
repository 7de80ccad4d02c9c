"""Which objects of one scope exist, by name: the namespaces that a monitor follows, the sources of kinds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from addon_operator.kube.informers.projection import Projection
from addon_operator.kube.informers.shared import Scope, SharedInformerFactory
from addon_operator.kube.informers.subscription import Subscriber
from addon_operator.kube.refs import ObjectKey, WatchEvent


class ObjectNames:
    """The names of the objects of one scope, as they come and go.

    Attributes:
        informer: lists and watches them.
    """

    def __init__(self, factory: SharedInformerFactory, scope: Scope, on_change: Callable[[], None]) -> None:
        """Begins to watch.

        Args:
            factory: of the informers.
            scope: of which objects.
            on_change: called when `names` or how the informer stands may have changed.
        """
        self._on_change = on_change
        subscriber = Subscriber(f"names of {scope.resource.plural}", self._on_event, on_change)
        self._subscription = factory.subscribe(dataclasses.replace(scope, metadata_only=True), Projection(), subscriber)
        self.informer = self._subscription.informer
        self._subscription.receive(from_start=False)

    def names(self) -> list[str]:
        """Lists those that exist now; none before all are listed."""
        return sorted(name for _, name in self._subscription.store) if self.informer.listed else []

    def end(self) -> None:
        """Stops watching."""
        self._subscription.end(emit_deletes=False)

    def _on_event(self, _event: WatchEvent, _about: ObjectKey, _document: bytes, _result: bytes | None) -> None:
        if self.informer.listed:
            self._on_change()
