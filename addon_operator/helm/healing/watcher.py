"""Watches the kinds of objects that releases contain, and asks the API server for single objects by name.

One metadata-only watch for each kind, over all namespaces, narrowed to what helm has made by the label that helm puts
on everything; and one of all CustomResourceDefinitions. Kinds that may not be listed and watched everywhere are left
out until they may be.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import KubeError
from addon_operator.helm.healing.tracker import GroupVersionKind
from addon_operator.kube.client import KubeClient
from addon_operator.kube.informers.known_objects import Handler
from addon_operator.kube.informers.reflector import Reflector
from addon_operator.kube.refs import (
    CUSTOM_RESOURCE_DEFINITIONS,
    ObjectKey,
    ObjectRef,
    Resource,
    WatchEvent,
    metadata_of,
    permission,
)
from addon_operator.logs import get_logger

_SELECTOR: Final = "app.kubernetes.io/managed-by=Helm"

_log = get_logger("healing")


@dataclasses.dataclass(slots=True)
class _Watch:
    """The watch of one kind; `forbidden` while the operator may not list and watch it."""

    resource: Resource
    reflector: Reflector
    task: asyncio.Task[None] | None = None
    forbidden: bool = False


class KindWatcher:
    """The watches of all kinds that releases contain."""

    def __init__(
        self,
        client: KubeClient,
        *,
        on_object: Callable[[ObjectKey, WatchEvent, JsonObject], None],
        on_definition: Handler,
    ) -> None:
        """Watches nothing yet.

        Args:
            client: the API server.
            on_object: receives every change of an object of a watched kind that helm has made.
            on_definition: receives every change of a CustomResourceDefinition.
        """
        self._client = client
        self._on_object = on_object
        self._watches: dict[GroupVersionKind, _Watch] = {}
        self._group: asyncio.TaskGroup | None = None
        self._definitions = Reflector(
            client, CUSTOM_RESOURCE_DEFINITIONS, namespace=None, metadata_only=True, handler=on_definition
        )

    async def run(self) -> None:
        """Watches until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                group.create_task(self._definitions.run(), name="healing CRDs")
                for kind, watch in self._watches.items():
                    self._start(kind, watch)
                await asyncio.Event().wait()
            finally:
                self._group = None

    @property
    def definitions_listed(self) -> bool:
        """Whether all CustomResourceDefinitions that existed at the start have been received."""
        return self._definitions.synced.is_set()

    @property
    def listed(self) -> frozenset[GroupVersionKind]:
        """The kinds whose objects have all been received."""
        return frozenset(kind for kind, watch in self._watches.items() if watch.reflector.synced.is_set())

    @property
    def forbidden(self) -> frozenset[GroupVersionKind]:
        """The kinds that the operator may not list and watch."""
        return frozenset(kind for kind, watch in self._watches.items() if watch.forbidden)

    def watch(self, kinds: Mapping[GroupVersionKind, Resource]) -> None:
        """Watches these kinds from now on, and no others."""
        for kind in self._watches.keys() - kinds.keys():
            task = self._watches.pop(kind).task
            if task is not None:
                task.cancel()
        for kind in kinds.keys() - self._watches.keys():
            self._watches[kind] = watch = self._make_watch(kind, kinds[kind])
            self._start(kind, watch)

    async def wait_listed(self, kinds: Iterable[GroupVersionKind], timeout_s: float) -> None:
        """Waits until the objects of kinds have been received, except of kinds that the operator may not watch.

        Args:
            kinds: those that are not watched are skipped.
            timeout_s: for each kind.

        Raises:
            KubeError: a kind could not be listed in time.
        """
        for kind in kinds:
            try:
                if kind in self._watches:
                    await self._watches[kind].reflector.wait_synced(timeout_s)
            except KubeError as error:
                if error.status != 403:
                    raise

    async def exists(self, key: ObjectKey, resource: Resource) -> bool:
        """Asks the API server whether an object exists.

        Raises:
            KubeError: it cannot be told; 502 if something else than the API of its kind has answered 404.
        """
        ref = ObjectRef(resource, key.namespace, key.name)
        return await self._client.get(ref, metadata_only=True) is not None

    def _make_watch(self, kind: GroupVersionKind, resource: Resource) -> _Watch:
        def receive(event: WatchEvent, document: JsonObject) -> None:
            metadata = metadata_of(document)
            key = ObjectKey(*kind, str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))
            self._on_object(key, event, document)

        def note_permission(error: KubeError | None) -> None:
            if error is None:
                watch.forbidden = False
            elif error.status == 403 and not watch.forbidden:
                watch.forbidden = True
                needed = permission("list, watch", resource, namespace=None)
                message = "objects of releases cannot be watched, so deleted ones are not restored until the next run"
                _log.warning(message, kind=resource.kind, reason=f"missing permission: {needed}")

        reflector = Reflector(
            self._client,
            resource,
            namespace=None,
            label_selector=_SELECTOR,
            metadata_only=True,
            handler=receive,
            on_error=note_permission,
        )
        watch = _Watch(resource, reflector)
        return watch

    def _start(self, kind: GroupVersionKind, watch: _Watch) -> None:
        if self._group is not None:
            watch.task = self._group.create_task(watch.reflector.run(), name=f"healing {'/'.join(kind)}")
