"""Lists and watches the objects of one resource: a list, then a watch, for ever.

Both come in one stream from servers that can do that (KEP-3157), which spares them reading etcd, and us a request for
each page. From others the list comes in pages. After an interruption of any length the handler receives the difference,
and nothing else (`known_objects.py`). That holds as well when the API server has gone back to an older state
(`rewind.py`). Source: design.md 5 (no polling, one list), contract.md 5.1 (8) and 5.2 (16), Kubernetes API concepts.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable
from typing import Final

from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import KubeError
from addon_operator.kube.client import KubeClient
from addon_operator.kube.informers.known_objects import Handler, KnownObjects
from addon_operator.kube.informers.list_watch import SILENCE_GRACE, ListWatch, watch_durations
from addon_operator.kube.informers.rewind import RewindGuard
from addon_operator.kube.informers.sync_state import SyncState
from addon_operator.kube.informers.wire import (
    decode,
    ends_initial_events,
    key_of,
    status_error,
)
from addon_operator.kube.refs import Resource, metadata_of
from addon_operator.logs import event_id, get_logger
from addon_operator.retry import Backoff, RetryPolicy

_log = get_logger("informer")

_INITIAL_SILENCE_S: Final = 30.0
# What servers answer that do not stream lists, or do not let this kind be watched.
_NO_STREAMING: Final = frozenset({400, 405, 422})
_COLD: Final = "initializing"
# A change must be seen within a minute of silence: the longest watch, the grace, and the time to ask for the next.
_WATCH_TIMEOUT_S: Final = 50.0
_SHORT_S: Final = 1.0
# After these the watch goes on where it was; any other refusal (404 of a kind that went away, 410 Gone, 504 from a
# restored etcd) needs a new list. Who may list but not watch must not list again and again.
_PASSING: Final = frozenset({0, 401, 403, 429, 500, 502, 503})
# How long a list that is older than what was seen before waits for the second one that confirms it.
_CONFIRM_S: Final = 3.0
_REDELIVERY: Final = RetryPolicy(1.0, 300.0)


class Reflector:
    """List and watch of one resource in one namespace, or in all, narrowed by selectors.

    Attributes:
        synced: set once all objects of the first list were handed out; never cleared.
    """

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        *,
        namespace: str | None,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        handler: Handler,
        on_error: Callable[[KubeError | None], None] = lambda _error: None,
        on_rewind: Callable[[], None] = lambda: None,
        resumes: bool = True,
        watch_timeout_s: float = _WATCH_TIMEOUT_S,
        confirm_s: float = _CONFIRM_S,
    ) -> None:
        """Prepares it; `run` does the work.

        Args:
            client: the connection.
            resource: what to watch.
            namespace: None for all.
            label_selector: as in the API.
            field_selector: as in the API.
            metadata_only: objects come with metadata only, and the server sends no more than that.
            handler: receives every change, in order, in the event loop: it must not block. An object that it raises on
                is delivered again after a new list, which is made after a while; meanwhile the others go on.
            on_error: receives the error of each failed list or watch, and None when it works again: the list is
                complete, or the watch brought something or ended as it should. Objects known so far stay, except that
                those of a kind that is not served any more (404) are deleted. Must not raise.
            on_rewind: called when the API server has gone back to an older state, before the handler receives the
                difference: versions may be lower from now on. Must not raise.
            resumes: False lists anew whenever a watch has ended: for one or two objects, which costs no more than to go
                on, and shows each time whether the server has gone back.
            watch_timeout_s: how long one watch lasts; one that the server does not end by then is a dead connection.
            confirm_s: how long to wait for a second list when the first one is older than what was seen before.
        """
        self._client, self._resource = client, resource
        self._list_watch = ListWatch(
            client,
            resource,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            metadata_only=metadata_only,
        )
        self._where = where = self._list_watch.where
        self._resumes, self._watch_timeout_s = resumes, watch_timeout_s
        self._known = KnownObjects(resource, handler, self._schedule_redelivery)
        self._rewind = RewindGuard(client, resource, self._known, where=where, confirm_s=confirm_s, on_rewind=on_rewind)
        self._state = SyncState(resource, namespace, where=where, reachability=client.reachability, on_error=on_error)
        self.synced = self._state.synced
        self._deadline: asyncio.Timeout | None = None
        self._must_list = True
        self._streams_list = True
        self._redelivery = Backoff(_REDELIVERY)
        self._redeliver_at = math.inf

    @property
    def resource_version(self) -> str:
        """How far it has seen; empty before the first list is complete."""
        return self._rewind.version

    @property
    def seen(self) -> str:
        """The newest version that is known, of a write as well as of the watch; empty before the first."""
        return self._rewind.newest

    def wrote(self, version: str, *, after: str) -> None:
        """Notes the version of an own write, which is higher than all before unless the server has gone back.

        Args:
            version: what the server has answered.
            after: what was `seen` before the write was sent.
        """
        self._rewind.wrote(version, after=after)

    async def wait_synced(self, timeout_s: float) -> None:
        """Waits until the first list has been handed out.

        Raises:
            KubeError: it is forbidden, or it has not been in time; names the resource and the last error.
        """
        await self._state.wait_synced(timeout_s)

    async def run(self) -> None:
        """Lists and watches until it is cancelled; survives everything else."""
        event_id.forget()
        while True:
            began = _now()
            try:
                await self._list_and_watch()
                continue
            except KubeError as error:
                failure = error
            except Exception as error:  # noqa: BLE001 -- one answer that cannot be read must not end the watch
                _log.error(
                    "an answer of the API server is unreadable, listing anew", resource=self._where, exc_info=error
                )
                message = f"{self._where}: {type(error).__name__} while reading an answer"
                failure, self._must_list = KubeError(message, status=0, reason="Unhandled"), True
            self._must_list = self._must_list or failure.status not in _PASSING
            await asyncio.sleep(self._state.failed(failure, lasted_s=_now() - began))
            self._must_list = self._must_list or self._state.was_away(failure)

    async def _list_and_watch(self) -> None:
        """Lists if need be, and watches until the server ends the watch."""
        if not self._resumes and not self._must_list:
            await self._rewind.compare_with_store()
        self._must_list = self._must_list or not self._resumes or self._list_is_due()
        try:
            if self._must_list and not self._streams_list:
                await self._list()
            await self._watch()
        except KubeError as error:
            if self._must_list and self._streams_list and error.status in _NO_STREAMING:
                self._streams_list = False
                return
            if self._must_list and error.status == 429 and _COLD in str(error):
                # The server has only just met the kind, and cannot stream it for a second, but can read it.
                await self._list()
                return
            if error.status == 404:
                await self._not_served(error)
            raise

    async def _not_served(self, error: KubeError) -> None:
        """Deletes everything of a kind that is not served any more.

        Raises:
            KubeError: 502, it is served: a proxy in front of the API server may say 404 too.
        """
        if self._known.states and await self._client.is_served(self._resource):
            message = f"{error}, though the API server serves the kind: a proxy in front of it may have said so"
            raise KubeError(message, status=502, reason="BadGateway") from error
        for key in tuple(self._known):
            self._known.remove_unseen(key, self.resource_version)
        self._rewind.forget()

    # --- lists

    async def _list(self) -> None:
        try:
            await self._take_pages(limited=True)
        except KubeError as error:
            if error.status != 410:
                raise
            # The pages took longer than the server keeps its state: once more, in one piece.
            await self._take_pages(limited=False)

    async def _take_pages(self, *, limited: bool) -> None:
        absent = self._begin_list()
        version: JsonValue = None
        async with contextlib.aclosing(self._list_watch.pages(limited=limited)) as pages:
            async for items, metadata in pages:
                version = metadata.get("resourceVersion")
                for item in items:
                    if not self._rewind.doubts(item):
                        self._known.put(item, self.resource_version)
                    absent.discard(key_of(metadata_of(item)))
        await self._end_list(absent, version)

    def _begin_list(self) -> set[str]:
        """Returns the keys of all known objects: those that the list does not show are gone."""
        self._rewind.doubtful = []
        self._redeliver_at = math.inf
        return set(self._known)

    async def _end_list(self, absent: set[str], version: JsonValue) -> None:
        """Everything was listed; `absent` are those known before that were not among them.

        Raises:
            KubeError: the list is older than what was seen before, and does not count.
        """
        text = str(version or "")
        if await self._rewind.judge(text) == "out of date":
            self._must_list = False
            if self._known.undelivered:
                self._schedule_redelivery()
            raise self._rewind.stale(text, "the newer state is still there, so the list is out of date")
        for item in self._rewind.accept(text):
            self._known.put(item, text)
        for key in absent:
            self._known.remove_unseen(key, text)
        self._must_list = False
        if not self._known.undelivered:
            self._redelivery.succeeded()
        self._state.listed()

    # --- watches

    async def _watch(self) -> None:
        lasts_s, asked_s = watch_durations(self._watch_timeout_s, lists=self._must_list and self._resumes)
        lines = self._list_watch.watch(
            None if self._must_list else self.resource_version, lasts_s=asked_s, answers_late=self._state.failures > 0
        )
        began = _now()
        async with contextlib.aclosing(lines):
            if self._must_list:
                await self._take_initial_events(lines)
            await self._take_events(lines, lasts_s * SILENCE_GRACE, by_server=asked_s == lasts_s)
        if _now() - began < _SHORT_S and not self._list_is_due():
            raise KubeError(f"watch of {self._where}: ended at once", status=0, reason="ShortWatch")
        self._state.works()

    async def _take_initial_events(self, lines: AsyncIterator[bytes]) -> None:
        """Takes the part of the stream that shows what there is.

        Raises:
            KubeError: it does not come to an end.
        """
        absent = self._begin_list()
        silence_s = min(_INITIAL_SILENCE_S, self._watch_timeout_s)
        put_off_at = 0.0
        try:
            async with asyncio.timeout(silence_s) as deadline:
                async for line in lines:
                    # Not for each line: moving a timer takes as long as taking an object.
                    if (now := _now()) >= put_off_at:
                        put_off_at = now + silence_s / 10
                        deadline.reschedule(now + silence_s)
                    metadata = self._take(line)
                    absent.discard(key_of(metadata))
                    if ends_initial_events(metadata):
                        await self._end_list(absent, metadata.get("resourceVersion"))
                        return
        except TimeoutError as error:
            self._streams_list = False
            message = f"watch of {self._where}: no end of the list, silent for {silence_s:g} s"
            raise KubeError(message, status=0, reason="Timeout") from error
        raise KubeError(f"watch of {self._where}: ended within the list", status=0, reason="ShortWatch")

    async def _take_events(self, lines: AsyncIterator[bytes], lasts_s: float, *, by_server: bool) -> None:
        """Takes what comes until the server ends the watch, a list is due, or the watch has lasted long enough.

        Raises:
            KubeError: the server should have ended it, and was silent all the time.
        """
        silent = True
        try:
            with self._client.history.listening(self._end_watch):
                until = min(_now() + lasts_s, self._redeliver_at)
                async with asyncio.timeout_at(until) as self._deadline:
                    async for line in lines:
                        self._take(line)
                        self._state.works()
                        silent = False
        except TimeoutError as error:
            if silent and by_server and not self._list_is_due():
                message = f"watch of {self._where}: silent, and not ended by the server after {lasts_s:.0f} s"
                raise KubeError(message, status=0, reason="Timeout") from error
        finally:
            self._deadline = None

    def _take(self, line: bytes) -> JsonObject:
        """Takes one event, of the list or of the watch; returns the metadata of its object."""
        event = decode(line)
        type_, item = event.get("type"), event.get("object")
        if not isinstance(item, dict):
            raise KubeError(f"watch of {self._where}: not an event", status=0, reason="BadAnswer")
        if type_ == "ERROR":
            raise status_error(item, self._where)
        metadata = metadata_of(item)
        if not self._must_list and not self._rewind.advance(version := str(metadata.get("resourceVersion") or "")):
            self._must_list = True
            raise self._rewind.stale(version, "listing anew")
        if type_ == "DELETED":
            self._known.remove(key_of(metadata), item)
        elif type_ != "BOOKMARK" and not (self._must_list and self._rewind.doubts(item)):
            self._known.put(item, self.resource_version)
        return metadata

    def _end_watch(self, at: float = 0.0) -> None:
        """Ends the watch, as if it had lasted long enough, at an instant of the loop's clock, or now."""
        deadline = self._deadline
        if deadline is not None and not deadline.expired():
            deadline.reschedule(min(deadline.when() or math.inf, max(at, _now())))

    def _schedule_redelivery(self) -> None:
        if self._redeliver_at == math.inf:
            self._redeliver_at = _now() + self._redelivery.failed()
            self._end_watch(self._redeliver_at)

    def _list_is_due(self) -> bool:
        """Returns whether the server has gone back, or objects are to be delivered again."""
        return self._rewind.is_rewound or _now() >= self._redeliver_at


def _now() -> float:
    return asyncio.get_running_loop().time()
