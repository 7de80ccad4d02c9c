"""What Helm has stored, watched from outside the operator, and the edits that the measurements make."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import NamedTuple

from addon_operator.documents import yamldoc
from addon_operator.documents.jsondoc import JsonObject, dumps, lookup
from addon_operator.errors import KubeError
from addon_operator.kube.client import KubeClient
from addon_operator.kube.informers.reflector import Reflector
from addon_operator.kube.refs import WatchEvent

_WAIT_S = 600.0


class Release(NamedTuple):
    """The newest revision of a release."""

    revision: int
    status: str


Releases = Mapping[str, Release]


class ReleaseWatch:
    """All releases of one namespace, as they are now."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._releases: dict[str, Release] = {}
        self._changed = asyncio.Event()
        self._sections: dict[str, JsonObject] = {}

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, client: KubeClient, namespace: str) -> AsyncIterator[ReleaseWatch]:
        """Creates the namespace if it is not there, and watches the release Secrets in it."""
        await _create(client, "/api/v1/namespaces", {"metadata": {"name": namespace}})
        watch = cls(client, namespace)
        secrets = (await client.discover()).resource("Secret", "v1")
        reflector = Reflector(
            client, secrets, namespace=namespace, label_selector="owner=helm", metadata_only=True, handler=watch.note
        )
        task = asyncio.create_task(reflector.run(), name=f"releases of {namespace}")
        try:
            await reflector.synced.wait()
            yield watch
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def note(self, event: WatchEvent, secret: JsonObject) -> None:
        """Takes in one event of the release Secrets."""
        if event == "Deleted":
            return
        labels = lookup(secret, "/metadata/labels")
        assert isinstance(labels, dict)
        name, release = str(labels["name"]), Release(int(str(labels["version"])), str(labels["status"]))
        known = self._releases.get(name)
        if known is None or release.revision >= known.revision:
            self._releases[name] = release
            self._changed.set()

    def now(self) -> Releases:
        """Answers the releases as they are."""
        return dict(self._releases)

    def revisions(self) -> int:
        """Answers how many revisions were ever made."""
        return sum(release.revision for release in self._releases.values())

    async def until(self, condition: Callable[[Releases], bool]) -> None:
        """Waits until the releases are as wanted."""
        async with asyncio.timeout(_WAIT_S):
            while not condition(self._releases):
                self._changed.clear()
                await self._changed.wait()

    async def upgraded(self, names: Mapping[str, int]) -> None:
        """Waits until each named release is deployed with a revision above the given one."""
        nothing = Release(0, "")
        await self.until(
            lambda releases: all(
                found.status == "deployed" and found.revision > revision
                for name, revision in names.items()
                for found in (releases.get(name, nothing),)
            )
        )

    async def configure(self, section: str, values: JsonObject) -> None:
        """Sets some values of a section of the operator's ConfigMap as a person would: the others stay."""
        self._sections[section] = {**self._sections.get(section, {}), **values}
        path = f"/api/v1/namespaces/{self._namespace}/configmaps"
        data: JsonObject = {section: yamldoc.dump(self._sections[section])}
        await _create(self._client, path, {"metadata": {"name": "addon-operator"}})
        await self._client.api.request(
            "PATCH", f"{path}/addon-operator", body=dumps({"data": data}), content_type="application/merge-patch+json"
        )


async def _create(client: KubeClient, path: str, document: JsonObject) -> None:
    try:
        await client.api.request("POST", path, body=dumps(document))
    except KubeError as error:
        if error.status != 409:
            raise
