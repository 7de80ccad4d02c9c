"""The operator's ConfigMap in the cluster: read it, watch it, write to it without losing anybody's change.

Only the raw `data` passes through here; what it means is the business of the document's parser. Called by the
composition root and by the effects of hooks. Source: contract.md 2.8, 5.2 (1 to 3, 16).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping

from addon_operator import jsondoc
from addon_operator.errors import KubeError
from addon_operator.jsondoc import JsonObject
from addon_operator.kube.client import KubeClient
from addon_operator.kube.informer import Event, Informer
from addon_operator.kube.refs import CONFIG_MAPS, metadata_of

ConfigData = Mapping[str, str]

_ATTEMPTS = 10
_LONGEST_PAUSE_S = 0.2


class ConfigMapSource:
    """One ConfigMap that others may change, delete or create at any time."""

    def __init__(
        self, client: KubeClient, namespace: str, name: str, *, on_change: Callable[[ConfigData | None], None]
    ) -> None:
        """Prepares it; `run` watches.

        Args:
            client: the connection.
            namespace: the operator's own.
            name: of the ConfigMap.
            on_change: told about every state that is not older than the last `save`, the first one and those that
                `save` made included; None when there is no ConfigMap. Not told while a `save` is under way: what
                arrives meanwhile comes after the caller of `save` had its turn.
        """
        self._client = client
        self._collection = CONFIG_MAPS.path(namespace)
        self._path = CONFIG_MAPS.path(namespace, name)
        self._namespace = namespace
        self._name = name
        self._on_change = on_change
        self._saving = asyncio.Lock()
        self._written = 0
        self._heard = False
        self._held_back: list[tuple[int | None, ConfigData | None]] = []
        self._informer = Informer(
            client,
            CONFIG_MAPS,
            namespace=namespace,
            field_selector=f"metadata.name={name}",
            handler=self._take,
        )

    async def read(self) -> ConfigData | None:
        """Gets the data as it is now; None if there is no ConfigMap.

        Raises:
            KubeError: it could not be read.
        """
        current = await self._get()
        return None if current is None else _data(current)

    async def run(self) -> None:
        """Watches until it is cancelled; interruptions of the API server are survived and caught up with."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._informer.run(), name="informer of the ConfigMap")
            await self._informer.synced.wait()
            if not self._heard:
                self._hear(_version(self._informer.resource_version), None)

    async def save(self, mutate: Callable[[ConfigData], ConfigData]) -> ConfigData:
        """Changes the data and gives what is stored afterwards.

        A missing ConfigMap is created, with the label `heritage: addon-operator`. If somebody else writes at the same
        time, the change is made again on top of theirs. Nothing is written if nothing would change.

        Args:
            mutate: old data -> new data; may be called several times and must not change its argument. What it raises
                comes out of `save`, and nothing is written.

        Raises:
            KubeError: it could not be read or written, or others write all the time (409).
        """
        async with self._saving:
            try:
                return await self._save(mutate)
            finally:
                # The caller of save goes on before the event loop does: it knows its own change by then.
                asyncio.get_running_loop().call_soon(self._release)

    async def _save(self, mutate: Callable[[ConfigData], ConfigData]) -> ConfigData:
        attempts = 0
        while True:
            current = await self._get()
            old = {} if current is None else _data(current)
            new = dict(mutate(old))
            if new == old:
                return old
            try:
                stored = await self._write(current, new)
            except KubeError as error:
                attempts += 1
                if error.status != 409 or attempts == _ATTEMPTS:
                    raise
                await asyncio.sleep(random.uniform(0, _LONGEST_PAUSE_S))  # noqa: S311 -- parts two writers
            else:
                self._written = max(self._written, _version(metadata_of(stored).get("resourceVersion")) or 0)
                return new

    async def _get(self) -> JsonObject | None:
        try:
            return _object(await self._client.request("GET", self._path))
        except KubeError as error:
            if error.status == 404:
                return None
            raise

    async def _write(self, current: JsonObject | None, data: dict[str, str]) -> JsonObject:
        body: JsonObject
        if current is None:
            metadata: JsonObject = {
                "name": self._name,
                "namespace": self._namespace,
                "labels": {"heritage": "addon-operator"},
            }
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {**data}}
            return _object(await self._client.request("POST", self._collection, body=jsondoc.dumps(body)))
        body = {**current, "data": {**data}}
        return _object(await self._client.request("PUT", self._path, body=jsondoc.dumps(body)))

    def _take(self, event: Event) -> None:
        version = _version(metadata_of(event.object).get("resourceVersion"))
        self._hear(version, None if event.kind == "DELETED" else _data(event.object))

    def _hear(self, version: int | None, data: ConfigData | None) -> None:
        self._heard = True
        self._held_back.append((version, data))
        if not self._saving.locked():
            self._release()

    def _release(self) -> None:
        if self._saving.locked():
            return
        held_back, self._held_back = self._held_back, []
        for version, data in held_back:
            if version is None or version >= self._written:
                self._on_change(data)


def _version(text: object) -> int | None:
    """Reads a resourceVersion, which the API server promises to be a growing number; None if it is not."""
    return int(text) if isinstance(text, str) and text.isdecimal() else None


def _data(config_map: JsonObject) -> dict[str, str]:
    data = config_map.get("data")
    return {key: str(value) for key, value in data.items()} if isinstance(data, dict) else {}


def _object(data: bytes) -> JsonObject:
    document = jsondoc.loads(data)
    return document if isinstance(document, dict) else {}
