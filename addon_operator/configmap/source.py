"""The operator's ConfigMap in the cluster: read it, watch it, write to it without losing concurrent changes.

Only the raw `data` passes through here; what it means is the business of the document's parser. Called by the
composition root and by the effects of hooks. Source: contract.md 2.8, 5.2 (1 to 3, 16).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import KubeError
from addon_operator.kube.client import KubeClient
from addon_operator.kube.history import version_number
from addon_operator.kube.informers.reflector import Reflector
from addon_operator.kube.refs import CONFIG_MAPS, ObjectRef, WatchEvent, metadata_of
from addon_operator.kube.retries import retry_on_conflict
from addon_operator.logs import get_logger

log = get_logger("configmap")

ConfigData = Mapping[str, str]

ABSENCE_COUNTS_AFTER_S = 3.0
"""How long a deleted ConfigMap must stay away before it counts as missing: `kubectl replace --force` and others
delete it a moment before they create it again, and each change of values may cost an upgrade."""


class ConfigMapSource:
    """One ConfigMap, which others may change, delete or create at any time."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        name: str,
        *,
        on_change: Callable[[ConfigData | None], None],
        before_create: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Prepares it; `run` watches.

        Args:
            client: the connection.
            namespace: the operator's own.
            name: of the ConfigMap.
            on_change: called with every state that is not older than the last `save` or look at the API server, the
                first one and those that `save` made included; None when there is no ConfigMap, which takes
                `ABSENCE_COUNTS_AFTER_S` if there was one, and the API server to confirm that. Not called
                while a `save` is under way: what arrives meanwhile is delivered after the caller of `save`
                had its turn.
            before_create: awaited before `save` creates the ConfigMap, and before a replacement is used that lacks
                flags or global values of the one it replaces. Afterwards nobody can tell that the former one was
                missing, so what must not be lost has to be recorded by then.
        """
        self._client = client
        self._ref = ObjectRef(CONFIG_MAPS, namespace, name)
        self._namespace = namespace
        self._name = name
        self._where = f"{namespace}/{name}"
        self._on_change = on_change
        self._before_create = before_create
        self._saving = asyncio.Lock()
        self._newest = 0  # version of what was saved or looked up last: the watch may still deliver older ones
        self._has_delivered = False
        self._exists = False  # as far as is known; still so while an absence does not count yet
        self._absence: asyncio.Task[None] | None = None
        self._held_back: list[tuple[int, ConfigData | None]] = []
        self.uid = ""
        self._last: ConfigData = {}  # what the ConfigMap with this uid was known to hold last
        self._replacement: asyncio.Task[None] | None = None
        self._reflector = Reflector(
            client,
            CONFIG_MAPS,
            namespace=namespace,
            field_selector=f"metadata.name={name}",
            handler=self._on_event,
            on_rewind=self._forget_versions,
            resumes=False,
        )

    async def read(self) -> ConfigData | None:
        """Gets the data as it is now; None if there is no ConfigMap.

        Raises:
            KubeError: it could not be read.
        """
        current = await self._get()
        if current is None:
            return None
        self._exists = True
        self._know(current)
        return _data(current)

    async def run(self) -> None:
        """Watches until it is cancelled; interruptions of the API server are survived and caught up with."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._reflector.run(), name="reflector of the ConfigMap")
                await self._reflector.synced.wait()
                if not self._has_delivered:
                    self._gone(version_number(self._reflector.resource_version))
        finally:
            if self._replacement is not None:
                self._replacement.cancel()
            ended = [task for task in (self._end_absence(), self._replacement) if task is not None]
            await asyncio.gather(*ended, return_exceptions=True)

    async def save(self, mutate: Callable[[ConfigData], ConfigData]) -> ConfigData:
        """Changes the data and returns what is stored afterwards.

        A missing ConfigMap is created, with the label `heritage: addon-operator`; if it was there a moment ago, it is
        waited for first. On a conflict, the change is made again on top of the newer state. Nothing
        is written if nothing would change.

        Args:
            mutate: old data -> new data; may be called several times and must not change its argument. What it raises
                comes out of `save`, and nothing is written.

        Raises:
            KubeError: it could not be read or written, or others write all the time (409).
        """
        async with self._saving:
            if (replacement := self._replacement) is not None:
                await asyncio.wait({replacement})
            try:
                return await retry_on_conflict(lambda: self._save(mutate))
            finally:
                # The caller of save continues before this callback runs: it knows its own change by then.
                asyncio.get_running_loop().call_soon(self._release)

    async def _save(self, mutate: Callable[[ConfigData], ConfigData]) -> ConfigData:
        current = await self._get()
        while current is None and self._exists:
            await self._await_return()
            current = await self._get()
        old = {} if current is None else _data(current)
        new = dict(mutate(old))
        if new == old:
            return old
        if self._before_create is not None and (current is None or self._replaces(current)):
            await self._before_create()
        seen = self._reflector.seen
        stored = await self._write(current, new)
        version = str(metadata_of(stored).get("resourceVersion") or "")
        # Not the highest: a server that has gone back gives lower ones.
        self._newest = version_number(version) or 0
        self._reflector.wrote(version, after=seen)
        self._exists = True
        self._know(stored)
        return new

    async def _get(self) -> JsonObject | None:
        return await self._client.get(self._ref)

    async def _write(self, current: JsonObject | None, data: dict[str, str]) -> JsonObject:
        if current is None:
            metadata: JsonObject = {
                "name": self._name,
                "namespace": self._namespace,
                "labels": {"heritage": "addon-operator"},
            }
            body: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {**data}}
            return await self._client.create(self._ref, body)
        return await self._client.replace(self._ref, {**current, "data": {**data}})

    def _on_event(self, event: WatchEvent, config_map: JsonObject) -> None:
        version = version_number(metadata_of(config_map).get("resourceVersion"))
        if event == "Deleted":
            self._gone(version)
            return
        self._exists = True
        if self._end_absence():
            log.info("ConfigMap exists again", config_map=self._where)
        before = self._before_create
        if before is not None and self._replacement is None and self._replaces(config_map):
            self._replacement = asyncio.create_task(self._replace(before), name="replacement of the ConfigMap")
        self._know(config_map)
        self._deliver(version, _data(config_map))

    def _know(self, config_map: JsonObject) -> None:
        self.uid, self._last = str(metadata_of(config_map).get("uid") or ""), _data(config_map)

    def _replaces(self, config_map: JsonObject) -> bool:
        """Returns whether this is another ConfigMap than the one before, and lacks what may have enabled modules."""
        if not self.uid or metadata_of(config_map).get("uid") == self.uid:
            return False
        return any(key == "global" or key.endswith("Enabled") for key in self._last.keys() - _data(config_map).keys())

    async def _replace(self, before: Callable[[], Awaitable[None]]) -> None:
        """Uses the new ConfigMap once what must not be lost is recorded."""
        while True:
            try:
                await before()
            except KubeError as error:
                message = (
                    "new ConfigMap is not used yet: which modules the former one enabled cannot be recorded, retrying"
                )
                log.warning(message, config_map=self._where, error=error)
                await asyncio.sleep(ABSENCE_COUNTS_AFTER_S)
            else:
                break
        self._replacement = None
        self._release()

    def _gone(self, version: int | None) -> None:
        version = self._newest if version is None else version
        if not self._exists:
            self._deliver(version, None)
        elif self._absence is None and version >= self._newest:
            log.warning(
                f"ConfigMap was deleted: unless it is created again within {ABSENCE_COUNTS_AFTER_S:g} s, the values "
                "of the files apply, and modules that only it enables are held: neither upgraded nor removed",
                config_map=self._where,
            )
            self._absence = asyncio.create_task(self._wait_for_return(version), name="absence of the ConfigMap")

    async def _wait_for_return(self, version: int) -> None:
        # An interrupted watch delivers the new one later than that.
        current = await self._look_later()
        self._absence = None
        if current is None:
            self._exists = version < self._newest
            self._deliver(version, None)
            return
        log.info("ConfigMap exists again, though the watch has not reported it yet", config_map=self._where)
        self._note(current)
        self._on_event("Modified", current)

    async def _look_later(self) -> JsonObject | None:
        """Returns the ConfigMap after the time an absence may take, or later, when the API server responds."""
        while True:
            await asyncio.sleep(ABSENCE_COUNTS_AFTER_S)
            try:
                return await self._get()
            except KubeError as error:
                message = "cannot read whether the ConfigMap still exists: its last state stays in use, retrying"
                log.warning(message, config_map=self._where, error=error)

    def _end_absence(self) -> asyncio.Task[None] | None:
        """Cancels and returns the task that waited for the end of an absence, if there was one."""
        absence, self._absence = self._absence, None
        if absence is not None:
            absence.cancel()
        return absence

    async def _await_return(self) -> None:
        # A write now would create a ConfigMap with that change alone, in conflict with the one that may be on its way.
        self._gone(None)
        if self._absence is not None:
            await asyncio.wait({self._absence}, timeout=ABSENCE_COUNTS_AFTER_S)

    def _forget_versions(self) -> None:
        """The API server has gone back to an older state: lower versions that it delivers from now on are newer."""
        self._newest = 0

    def _note(self, config_map: JsonObject) -> None:
        self._newest = max(self._newest, version_number(metadata_of(config_map).get("resourceVersion")) or 0)

    def _deliver(self, version: int | None, data: ConfigData | None) -> None:
        self._has_delivered = True
        self._held_back.append((self._newest if version is None else version, data))
        self._release()

    def _release(self) -> None:
        if self._saving.locked() or self._replacement is not None:
            return
        held_back, self._held_back = self._held_back, []
        for version, data in held_back:
            if version >= self._newest:
                self._on_change(data)


def _data(config_map: JsonObject) -> dict[str, str]:
    data = config_map.get("data")
    return {key: str(value) for key, value in data.items()} if isinstance(data, dict) else {}
