"""What installations that failed have left in the cluster.

The record of one that never succeeded is dropped, so that its hooks run anew, and with it goes helm's only note of what
it made. Kept in memory until the release stands: a restart before that forgets it, and the objects stay.
Source: contract.md 3.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import HelmError, KubeError
from addon_operator.helm import manifest
from addon_operator.helm.cluster import Cluster
from addon_operator.helm.storage import ReleaseStorage
from addon_operator.kube.refs import CUSTOM_RESOURCE_DEFINITIONS, ObjectKey, metadata_of
from addon_operator.logs import get_logger

_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_INSTALL_EVENTS: Final = frozenset({"pre-install", "post-install"})

_log = get_logger("helm")


class Leftovers:
    """What failed installations of the releases of one namespace have left."""

    def __init__(self, storage: ReleaseStorage, cluster: Cluster) -> None:
        """Begins with nothing.

        Args:
            storage: of the releases.
            cluster: where the objects are.
        """
        self._storage, self._cluster = storage, cluster
        # By the key in no version of the API, so that what has only moved to another one is not taken for gone.
        self._objects: dict[str, dict[ObjectKey, ObjectKey]] = {}

    async def take(self, name: str, revision: int) -> None:
        """Remembers the objects of a record that is about to be dropped, and deletes hooks that helm would stumble on.

        Raises:
            KubeError: the record could not be read.
        """
        try:
            release = await self._storage.document(name, revision)
        except HelmError as error:
            _log.warning("what a failed installation has left is unknown", module=name, error=error)
            return
        found = manifest.objects(manifest.documents(str(release.get("manifest") or "")))
        left = {self._storage.anywhere(one.key): one.key for one in found if one.lasting}
        self._objects.setdefault(name, {}).update(left)
        for key in hooks_in_the_way(release):
            await self._delete(name, key, is_hook=True)

    async def remove(self, name: str, wanted: Iterable[ObjectKey] = ()) -> None:
        """Deletes what was remembered, except what is wanted, what belongs to others by now and what is to be kept."""
        left = self._objects.pop(name, {})
        for key in sorted(left.keys() - {self._storage.anywhere(key) for key in wanted}):
            await self._delete(name, left[key], is_hook=False)

    async def _delete(self, name: str, key: ObjectKey, *, is_hook: bool) -> None:
        """Deletes one object if it is there; one that cannot be deleted stays, with a line in the log."""
        client = self._cluster.client
        try:
            resource = self._cluster.resource(key.kind, key.api_version)
            if resource is None:
                return
            path = resource.path(key.namespace or self._storage.namespace, key.name)
            document = jsondoc.loads(await client.request("GET", path, accept=_METADATA_ONLY))
            metadata = metadata_of(document if isinstance(document, dict) else {})
            if is_hook or self._is_of(name, metadata):
                same: JsonObject = {"uid": metadata.get("uid")}
                body: JsonObject = {"propagationPolicy": "Background", "preconditions": same}
                await client.request("DELETE", path, body=jsondoc.dumps(body))
                _log.info("what a failed installation has left was deleted", module=name, reason=str(key))
        except KubeError as error:
            if error.status != 404:
                _log.warning("what a failed installation has left could not be deleted", module=name, error=error)

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

    Without a policy of their own they are deleted in time, and CRDs never. Source: helm's `execHook`.
    """
    hooks = release.get("hooks")
    for hook in hooks if isinstance(hooks, list) else []:
        if isinstance(hook, dict) and _was_run(hook) and _INSTALL_EVENTS.intersection(_texts(hook.get("events"))):
            policies = _texts(hook.get("delete_policies"))
            parts = manifest.documents(str(hook.get("manifest") or ""))
            if policies and "before-hook-creation" not in policies:
                keys = (one.key for one in manifest.objects(parts))
                yield from (key for key in keys if key.kind != CUSTOM_RESOURCE_DEFINITIONS.kind)


def _was_run(hook: JsonObject) -> bool:
    last = hook.get("last_run")
    return isinstance(last, dict) and bool(last.get("phase"))


def _texts(value: JsonValue) -> set[str]:
    return {str(text) for text in value} if isinstance(value, list) else set()
