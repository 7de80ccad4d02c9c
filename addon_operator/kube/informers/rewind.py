"""Whether what a reflector lists goes on from what it has seen, or shows that the API server has gone back.

A list that is older than what was seen is believed only when a second one confirms it, and what seems to be lost cannot
be read by name either: reads by name are never answered from the API server's memory. Source: `kube/history.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Literal

from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import KubeError
from addon_operator.kube.client import KubeClient
from addon_operator.kube.history import Progress, Rewind, is_older, newest
from addon_operator.kube.informers.known_objects import KnownObjects
from addon_operator.kube.informers.wire import key_of
from addon_operator.kube.refs import ObjectRef, Resource, metadata_of
from addon_operator.logs import get_logger

_log = get_logger("informer")

_OLDER: Final = "OlderVersion"
_OUT_OF_STEP: Final = 2


class RewindGuard:
    """What one reflector has seen, in versions, and whether the server has gone back since.

    Attributes:
        doubtful: objects of the list under way that are older than what was seen, and different from what is known:
            they count when the list is complete and accepted.
    """

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        known: KnownObjects,
        *,
        where: str,
        confirm_s: float,
        on_rewind: Callable[[], None],
    ) -> None:
        """Has seen nothing.

        Args:
            client: the connection.
            resource: what is listed.
            known: the objects that the handler knows.
            where: the resource and its namespace, for messages.
            confirm_s: how long to wait for a second list when the first one is older than what was seen.
            on_rewind: called when the server has gone back, before the handler receives the difference.
        """
        self.doubtful: list[JsonObject] = []
        self._client, self._resource, self._known, self._where = client, resource, known, where
        self._confirm_s, self._on_rewind = confirm_s, on_rewind
        self._progress = Progress(confirm_s=confirm_s)
        self._rewinds = client.history.rewinds
        self._out_of_step = 0

    @property
    def version(self) -> str:
        """The version of the last list or event; empty before the first list is complete."""
        return self._progress.version

    @property
    def newest(self) -> str:
        """The newest version that was seen, be it that of an own write."""
        return self._progress.newest

    @property
    def is_rewound(self) -> bool:
        """Whether the server has gone back since everything was listed."""
        return self._client.history.rewinds != self._rewinds

    def wrote(self, version: str, *, after: str) -> None:
        """Takes the version of an own write; notes that the server has gone back if it is lower than `after`."""
        if not self._progress.wrote(version, after=after):
            self._client.history.rewound(Rewind(self._where, after, version), known=self._rewinds)

    def advance(self, version: str) -> bool:
        """Takes the version of an event; returns False if it is older than the one before: a list has to show why."""
        return not version or self._progress.advance(version)

    def doubts(self, item: JsonObject) -> bool:
        """Returns whether an object of a list cannot be news, and puts it off if so."""
        metadata = metadata_of(item)
        if not self._progress.is_doubtful(metadata.get("resourceVersion")) or self._known.has(metadata):
            return False
        self.doubtful.append(item)
        return True

    def forget(self) -> None:
        """Begins again: what was seen is not served any more."""
        self._progress.forget()

    async def judge(self, version: str) -> Literal["accepted", "out of date"]:
        """Returns whether a complete list counts; if it is out of date, what was seen before still holds.

        Raises:
            KubeError: another list is needed to decide.
        """
        verdict = self._progress.judge(version, asyncio.get_running_loop().time())
        if verdict == "older":
            raise self.stale(version, "listing again", retry_after_s=self._confirm_s)
        if verdict == "confirmed" and await self._has_newer_than(version):
            self._progress.stays()
            return "out of date"
        return "accepted"

    def stale(self, version: str, what_next: str, *, retry_after_s: float | None = None) -> KubeError:
        """Makes the error of a list or an event that is older than what was seen."""
        message = f"{self._where}: version {version}, but {self.newest} was seen before; {what_next}"
        return KubeError(message, status=0, reason=_OLDER, retry_after_s=retry_after_s)

    def accept(self, version: str) -> list[JsonObject]:
        """Goes on from a complete list; returns the objects that were put off.

        Notes that the server has gone back if the list shows it.
        """
        seen, doubtful = self.newest, self.doubtful
        if self._progress.listed(version, doubtful=bool(doubtful)):
            example = _named(doubtful[0]) if doubtful else ""
            self._client.history.rewound(Rewind(self._where, seen, version, example), known=self._rewinds)
            self._on_rewind()
        self._rewinds = self._client.history.rewinds
        return doubtful

    async def compare_with_store(self) -> None:
        """Warns of an API server that goes on to list what it remembers, while etcd holds an older state."""
        key = newest(self._known.states, beyond="0")
        try:
            older = key is not None and await self._stored(key) == "older"
        except KubeError:
            return
        # Once, it may have been deleted since it was listed.
        self._out_of_step = self._out_of_step + 1 if older else 0
        if self._out_of_step == _OUT_OF_STEP:
            _log.warning(
                "the API server lists what it remembers, not what etcd holds, as after a restore of etcd without a "
                "restart of the API server: changes are not seen until it is restarted",
                resource=self._where,
            )

    async def _has_newer_than(self, version: str) -> bool:
        key = newest(self._known.states, beyond=version)
        return key is not None and await self._stored(key) == "as known"

    async def _stored(self, key: str) -> Literal["as known", "older", "not to be read"]:
        """Returns what etcd holds of an object.

        Raises:
            KubeError: there was no answer.
        """
        namespace, _, name = key.partition("/")
        try:
            item = await self._client.get(ObjectRef(self._resource, namespace, name), metadata_only=True)
        except KubeError as error:
            if error.status == 403:
                return "not to be read"
            raise
        if item is None:
            return "older"
        metadata = metadata_of(item)
        uid, _, known = self._known.states[key].partition("/")
        same = metadata.get("uid") == uid and not is_older(metadata.get("resourceVersion"), known)
        return "as known" if same else "older"


def _named(item: JsonObject) -> str:
    metadata = metadata_of(item)
    version: JsonValue = metadata.get("resourceVersion")
    return f"{key_of(metadata).removeprefix('/')} at {version}"
