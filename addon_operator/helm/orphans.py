"""Objects that failed installations have left in the cluster.

The record of a release that was never deployed is dropped, so that its hooks run again, and with it goes helm's only
note of what it created. The objects are kept in memory until the release is deployed: a restart before that forgets
them, and they stay.
Source: contract.md 3.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import HelmError, KubeError
from addon_operator.helm import manifest
from addon_operator.helm.cluster import Cluster
from addon_operator.helm.storage import ReleaseStorage
from addon_operator.kube.refs import CUSTOM_RESOURCE_DEFINITIONS, ObjectKey, ObjectRef, metadata_of
from addon_operator.logs import get_logger

_INSTALL_EVENTS: Final = frozenset({"pre-install", "post-install"})

_log = get_logger("helm")


class OrphanedObjects:
    """The orphaned objects of the releases of one namespace."""

    def __init__(self, storage: ReleaseStorage, cluster: Cluster) -> None:
        """Knows of none.

        Args:
            storage: of the releases.
            cluster: where the objects are.
        """
        self._storage, self._cluster = storage, cluster
        # By their keys without the version of the API, so that an object that has only moved to another one counts as
        # the same.
        self._objects: dict[str, dict[ObjectKey, ObjectKey]] = {}

    async def collect(self, name: str, revision: int) -> None:
        """Remembers the objects of a record that is about to be dropped, and deletes hooks that would make helm fail.

        Raises:
            KubeError: the record could not be read.
        """
        try:
            release = await self._storage.document(name, revision)
        except HelmError as error:
            _log.warning(
                "the stored release cannot be read, so objects of a failed installation stay", module=name, error=error
            )
            return
        found = manifest.objects(manifest.documents(str(release.get("manifest") or "")))
        lasting = {self._storage.anywhere(item.key): item.key for item in found if item.lasting}
        self._objects.setdefault(name, {}).update(lasting)
        for key in hooks_in_the_way(release):
            await self._delete(name, key, is_hook=True)

    async def remove(self, name: str, wanted: Iterable[ObjectKey] = ()) -> None:
        """Deletes what was remembered, except what is wanted, what belongs to others by now and what is to be kept."""
        orphans = self._objects.pop(name, {})
        for key in sorted(orphans.keys() - {self._storage.anywhere(key) for key in wanted}):
            await self._delete(name, orphans[key], is_hook=False)

    async def _delete(self, name: str, key: ObjectKey, *, is_hook: bool) -> None:
        """Deletes one object if it exists; one that cannot be deleted stays, with a line in the log."""
        client, resource = self._cluster.client, self._cluster.resource(key.kind, key.api_version)
        if resource is None:
            return
        ref = ObjectRef(resource, key.namespace or self._storage.namespace, key.name)
        try:
            existing = await client.get(ref, metadata_only=True)
            if existing is None:
                return
            metadata = metadata_of(existing)
            if is_hook or self._is_of(name, metadata):
                await client.delete(ref, propagation="Background", uid=str(metadata.get("uid") or ""))
                _log.info("an object of a failed installation was deleted", module=name, object=str(key))
        except KubeError as error:
            message = "an object of a failed installation cannot be deleted and stays"
            _log.warning(message, module=name, object=str(key), error=error)

    def _is_of(self, name: str, metadata: JsonObject) -> bool:
        """Returns whether helm made an object for this release, took it over for no other, and may delete it."""
        found = metadata.get("annotations")
        annotations = found if isinstance(found, dict) else {}
        return (
            annotations.get("meta.helm.sh/release-name") == name
            and annotations.get("meta.helm.sh/release-namespace") == self._storage.namespace
            and annotations.get("helm.sh/resource-policy") != "keep"
        )


def hooks_in_the_way(release: JsonObject) -> Iterator[ObjectKey]:
    """Yields the hooks of an installation that helm has run and will not delete before it runs them again.

    Those without a policy of their own are deleted in time, CRDs never. Source: helm's `execHook`.
    """
    hooks = release.get("hooks")
    for hook in hooks if isinstance(hooks, list) else []:
        if isinstance(hook, dict) and _was_run(hook) and _INSTALL_EVENTS.intersection(_texts(hook.get("events"))):
            policies = _texts(hook.get("delete_policies"))
            parts = manifest.documents(str(hook.get("manifest") or ""))
            if policies and "before-hook-creation" not in policies:
                keys = (item.key for item in manifest.objects(parts))
                yield from (key for key in keys if key.kind != CUSTOM_RESOURCE_DEFINITIONS.kind)


def _was_run(hook: JsonObject) -> bool:
    last = hook.get("last_run")
    return isinstance(last, dict) and bool(last.get("phase"))


def _texts(value: JsonValue) -> set[str]:
    return {str(text) for text in value} if isinstance(value, list) else set()
