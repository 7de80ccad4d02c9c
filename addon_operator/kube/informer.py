"""Keeps an eye on the objects of one resource: a list, then a watch, for ever.

Both come in one stream from servers that can do that (KEP-3157), which spares them reading etcd, and us a request for
each page. From others the list comes in pages.

It keeps only the names and versions of objects; what they contain is the handler's to keep. After an interruption of
any length the handler hears of the difference, and of nothing else. Not a cache, and not what hooks bind to: monitors
and the sources of the operator are built on it. Source: design.md 5 (no polling, one list), contract.md 5.1 (8) and 5.2
(16), Kubernetes API concepts.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import random
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Literal

from addon_operator import jsondoc
from addon_operator.backoff import RetryPolicy
from addon_operator.errors import KubeError
from addon_operator.jsondoc import JsonObject, JsonValue
from addon_operator.kube.client import KubeClient
from addon_operator.kube.refs import Resource, metadata_of, permission
from addon_operator.logs import get_logger

_log = get_logger("informer")

_RETRY = RetryPolicy(0.2, 10.0)
_PAGE = 500
_INITIAL = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
_INITIAL_END = "k8s.io/initial-events-end"
_INITIAL_SILENCE_S = 30.0
# What servers answer that do not stream lists, or do not let this kind be watched.
_NO_STREAMING = frozenset({400, 405, 422})
_COLD = "initializing"
_WORTH_A_WARNING = 3
_SILENCE_GRACE = 1.05
_SHORT_S = 1.0
_STEADY_S = 10.0
# After these the watch goes on where it was; any other refusal (404 of a kind that went away, 410 Gone, 504 from a
# restored etcd) needs a new list. Who may list but not watch must not list again and again.
_PASSING = frozenset({0, 401, 403, 429, 500, 502, 503})
_WHOLE = ("application/json", "application/json")
_METADATA = (
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
)

EventKind = Literal["ADDED", "MODIFIED", "DELETED"]


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """A change of one object.

    Attributes:
        kind: what happened; an object that starts or ceases to match the selectors is added or deleted.
        object: the object after the change, always with `apiVersion` and `kind`, without `managedFields`. Of a deleted
            one the last state, or, if it went away unseen, only `metadata` with namespace, name, uid and the
            resourceVersion at which it was found missing.
    """

    kind: EventKind
    object: JsonObject


class Informer:
    """List and watch of one (resource, namespace, selectors).

    Attributes:
        synced: set once all objects of the first list were handed out; never cleared.
        resource_version: how far it has seen; empty before the first list is complete.
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
        handler: Callable[[Event], None],
        on_trouble: Callable[[KubeError | None], None] = lambda _error: None,
        watch_timeout_s: float = 300.0,
    ) -> None:
        """Prepares it; `run` does the work.

        Args:
            client: the connection.
            resource: what to watch.
            namespace: None for all.
            label_selector: as in the API.
            field_selector: as in the API.
            metadata_only: objects come with metadata only, and the server sends no more than that.
            handler: told about every change, in order, in the event loop: it must not block. If it raises, that event
                is logged and lost, the others are not.
            on_trouble: told of each attempt to list or watch that failed, and of None when it works again: the list is
                complete, or the watch brought something or ended as it should. Objects known so far stay, except that
                those of a kind that is not served any more (404) are deleted. Must not raise.
            watch_timeout_s: how long the server keeps one watch open; a silence longer than that is a dead connection.
        """
        self.synced = asyncio.Event()
        self.resource_version = ""
        self._client = client
        self._api_version, self._kind = resource.api_version, resource.kind
        self._resource, self._namespace = resource, namespace
        self._synced_or_forbidden = asyncio.Event()
        self._path = resource.path(namespace)
        self._where = f"{resource.plural} in {namespace}" if namespace else resource.plural
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._query = {name: text for name, text in selectors.items() if text}
        self._accept = _METADATA if metadata_only else _WHOLE
        self._handler = handler
        self._on_trouble = on_trouble
        self._watch_timeout_s = watch_timeout_s
        # Of each object that the handler knows: `namespace/name` -> `uid/version` when the handler heard of it last.
        # Two strings take half the memory of what they are made of, which counts with 20,000 objects.
        self._known: dict[str, str] = {}
        self._must_list = True
        self._streams_list = True
        self._failures = 0
        self._trouble: KubeError | None = None

    async def run(self) -> None:
        """Lists and watches until it is cancelled; survives everything else."""
        while True:
            began = _now()
            try:
                await self._follow()
            except KubeError as error:
                self._must_list = self._must_list or error.status not in _PASSING
                await self._back_off(error, _now() - began)
            except Exception as error:  # noqa: BLE001 -- one broken object or handler must not end the watch
                _log.error("an event of the API server could not be handled", reason=self._where, exc_info=error)
                self._must_list = True
                message = f"{self._where}: {type(error).__name__} while handling an event"
                await self._back_off(KubeError(message, status=0, reason="Unhandled"), _now() - began)

    async def wait_synced(self, timeout_s: float) -> None:
        """Waits until the first list has been handed out.

        Raises:
            KubeError: it is forbidden, or it has not been in time; names the resource and the last trouble.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._synced_or_forbidden.wait()
                if not self.synced.is_set():
                    needed = permission("list, watch", self._resource, namespace=self._namespace)
                    raise KubeError(f"missing permission: {needed}", status=403, reason="Forbidden")
        except TimeoutError as error:
            because = f": {self._trouble}" if self._trouble else ""
            message = f"{self._where}: not listed within {timeout_s:g} s{because}"
            raise KubeError(message, status=0, reason="Timeout") from error

    async def _follow(self) -> None:
        """Lists if need be, and watches until the server ends the watch."""
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
                await self._not_served()
            raise

    async def _not_served(self) -> None:
        if self._known:
            # A proxy that has lost its API server may say 404 too, but has no version to tell.
            await self._client.server_version()
        for key in tuple(self._known):
            self._gone(key, None)

    async def _list(self) -> None:
        try:
            await self._list_pages({**self._query, "limit": str(_PAGE)})
        except KubeError as error:
            if error.status != 410:
                raise
            # The pages took longer than the server keeps its state: once more, in one piece.
            await self._list_pages(self._query)

    def _listed(self, absent: set[str], version: JsonValue) -> None:
        """All objects were handed out; `absent` are those known before that were not among them."""
        self.resource_version = str(version or "")
        for key in absent:
            self._gone(key, None)
        self._must_list = False
        self._recover()
        self.synced.set()
        self._synced_or_forbidden.set()

    async def _list_pages(self, query: dict[str, str]) -> None:
        absent = set(self._known)
        coming = self._ask(query)
        try:
            while True:
                items, metadata = _page(await coming)
                if more := str(metadata.get("continue") or ""):
                    # The server works on the next page while this one is handed out.
                    coming = self._ask({**query, "continue": more})
                    await asyncio.sleep(0)
                for item in items:
                    absent.discard(self._present(item))
                if not more:
                    self._listed(absent, metadata.get("resourceVersion"))
                    return
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)

    def _ask(self, query: dict[str, str]) -> asyncio.Task[bytes]:
        answer = self._client.request("GET", self._path, query=query, accept=self._accept[0], timeout_s=60)
        return asyncio.create_task(answer, name=f"next page of {self._where}")

    async def _watch(self) -> None:
        timeout_s = self._watch_timeout_s * random.uniform(0.8, 1.0)  # noqa: S311 -- spreads load, guards nothing
        query = {
            **self._query,
            **(_INITIAL if self._must_list else {"resourceVersion": self.resource_version}),
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(int(timeout_s), 1)),
        }
        lines = self._client.stream(
            self._path, query=query, accept=self._accept[1], idle_timeout_s=self._watch_timeout_s * _SILENCE_GRACE
        )
        began = _now()
        async with contextlib.aclosing(lines):
            if self._must_list:
                await self._take_list(lines)
            async for line in lines:
                self._take(_object(line))
                self._well()
        if _now() - began < _SHORT_S:
            raise KubeError(f"watch of {self._where}: ended at once", status=0, reason="ShortWatch")
        self._well()

    async def _take_list(self, lines: AsyncIterator[bytes]) -> None:
        """Takes the part of the stream that shows what there is."""
        absent = set(self._known)
        silence_s = min(_INITIAL_SILENCE_S, self._watch_timeout_s)
        put_off_at = 0.0
        try:
            async with asyncio.timeout(silence_s) as deadline:
                async for line in lines:
                    # Not for each line: moving a timer takes as long as taking an object.
                    if (now := _now()) >= put_off_at:
                        put_off_at = now + silence_s / 10
                        deadline.reschedule(now + silence_s)
                    metadata = self._take(_object(line))
                    absent.discard(_key(metadata))
                    if _ends_list(metadata):
                        self._listed(absent, metadata.get("resourceVersion"))
                        return
        except TimeoutError as error:
            self._streams_list = False
            message = f"watch of {self._where}: no end of the list, silent for {silence_s:g} s"
            raise KubeError(message, status=0, reason="Timeout") from error
        raise KubeError(f"watch of {self._where}: ended within the list", status=0, reason="ShortWatch")

    def _take(self, line: JsonObject) -> JsonObject:
        """Tells of one event; answers the metadata of its object."""
        kind, item = line.get("type"), line.get("object")
        if not isinstance(item, dict):
            raise KubeError(f"watch of {self._where}: not an event", status=0, reason="BadAnswer")
        if kind == "ERROR":
            raise self._refused(item)
        metadata = metadata_of(item)
        if not self._must_list:
            self.resource_version = str(metadata.get("resourceVersion") or self.resource_version)
        if kind == "DELETED":
            self._gone(_key(metadata), item)
        elif kind != "BOOKMARK":
            self._present(item)
        return metadata

    def _refused(self, status: JsonObject) -> KubeError:
        code, reason = status.get("code"), str(status.get("reason") or "")
        message = f"watch of {self._where}: {code} {reason}"
        return KubeError(message, status=code if isinstance(code, int) else 0, reason=reason)

    def _present(self, item: JsonObject) -> str:
        metadata = metadata_of(item)
        key = _key(metadata)
        uid = f"{metadata.get('uid') or ''}/"
        state = f"{uid}{metadata.get('resourceVersion') or ''}"
        before = self._known.get(key)
        if before is not None and not before.startswith(uid):
            self._gone(key, None)
            before = None
        if before != state:
            self._known[key] = state
            self._tell("ADDED" if before is None else "MODIFIED", item, metadata)
        return key

    def _gone(self, key: str, item: JsonObject | None) -> None:
        before = self._known.pop(key, None)
        if before is None:
            return
        if item is None:
            namespace, _, name = key.partition("/")
            place: JsonObject = {"namespace": namespace} if namespace else {}
            uid, version = before.partition("/")[0], self.resource_version
            item = {"metadata": {**place, "name": name, "uid": uid, "resourceVersion": version}}
        self._tell("DELETED", item, metadata_of(item))

    def _tell(self, kind: EventKind, item: JsonObject, metadata: JsonObject) -> None:
        # Items of a list come without these two, metadata-only ones with those of the wrapper.
        item["apiVersion"], item["kind"] = self._api_version, self._kind
        metadata.pop("managedFields", None)
        self._handler(Event(kind, item))

    def _well(self) -> None:
        if self._failures >= _WORTH_A_WARNING:
            _log.info("the API server is watched again", reason=self._where, attempt=self._failures)
        self._failures = 0
        self._recover()

    def _recover(self) -> None:
        if self._trouble is not None:
            self._trouble = None
            self._on_trouble(None)

    async def _back_off(self, error: KubeError, lasted_s: float) -> None:
        # A quiet watch has nothing to show for itself but its age.
        self._failures = 1 if lasted_s >= _STEADY_S else self._failures + 1
        self._trouble = error
        if error.status == 403 or self.synced.is_set():
            self._synced_or_forbidden.set()
        else:
            self._synced_or_forbidden.clear()
        say = _log.warning if self._failures == _WORTH_A_WARNING else _log.debug
        say("the API server cannot be watched, trying again", reason=self._where, error=error, attempt=self._failures)
        self._on_trouble(error)
        delay_s = _RETRY.delay_s(self._failures) * random.uniform(0.5, 1.0)  # noqa: S311 -- spreads load
        await asyncio.sleep(max(delay_s, error.retry_after_s or 0.0))


def _now() -> float:
    return asyncio.get_running_loop().time()


def _key(metadata: JsonObject) -> str:
    return f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}"


def _ends_list(metadata: JsonObject) -> bool:
    annotations = metadata.get("annotations")
    return isinstance(annotations, dict) and annotations.get(_INITIAL_END) == "true"


def _page(data: bytes) -> tuple[Iterator[JsonObject], JsonObject]:
    with _no_collection():
        page = _object(data)
    items = page.get("items")
    return (item for item in items if isinstance(item, dict)) if isinstance(items, list) else iter(()), metadata_of(
        page
    )


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """JSON makes no cycles, and looking for them among the objects of a page takes longer than reading it."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _object(data: bytes) -> JsonObject:
    try:
        document = jsondoc.loads(data)
    except ValueError as error:
        raise KubeError("the API server sent something that is not JSON", status=0, reason="BadAnswer") from error
    return document if isinstance(document, dict) else {}
