"""Keeps an eye on the objects of one resource: a paged list, then a watch, for ever.

It keeps only the names and versions of objects; what they contain is the handler's to keep. After an interruption of
any length the handler hears of the difference, and of nothing else. Not a cache, and not what hooks bind to: monitors
and the sources of the operator are built on it. Source: design.md 5 (no polling, one list), Kubernetes API concepts.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from collections.abc import Callable
from typing import Literal

from addon_operator import jsondoc
from addon_operator.backoff import RetryPolicy
from addon_operator.errors import KubeError
from addon_operator.jsondoc import JsonObject
from addon_operator.kube.client import KubeClient
from addon_operator.kube.refs import Resource, metadata_of
from addon_operator.logs import get_logger

_log = get_logger("informer")

_RETRY = RetryPolicy(0.2, 10.0)
_PAGE = 250
_WORTH_A_WARNING = 3
_SILENCE_GRACE = 1.05
_SHORT_S = 1.0
_STEADY_S = 10.0
# After these the watch goes on where it was; any other refusal (410 Gone, 504 from a restored etcd) needs a new list.
_PASSING = frozenset({0, 429, 500, 502, 503})
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


@dataclasses.dataclass(frozen=True, slots=True)
class _Seen:
    uid: str
    version: str


_Key = tuple[str, str]


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
            watch_timeout_s: how long the server keeps one watch open; a silence longer than that is a dead connection.
        """
        self.synced = asyncio.Event()
        self.resource_version = ""
        self._client = client
        self._resource = resource
        self._path = resource.path(namespace)
        self._where = f"{resource.plural} in {namespace}" if namespace else resource.plural
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._query = {name: text for name, text in selectors.items() if text}
        self._accept = _METADATA if metadata_only else _WHOLE
        self._handler = handler
        self._watch_timeout_s = watch_timeout_s
        # Of each object that the handler knows: what it was when the handler heard of it last.
        self._known: dict[_Key, _Seen] = {}
        self._must_list = True
        self._failures = 0
        self._trouble = ""

    async def run(self) -> None:
        """Lists and watches until it is cancelled; survives everything else."""
        while True:
            began = _now()
            try:
                if self._must_list:
                    await self._list()
                await self._watch()
            except KubeError as error:
                self._must_list = self._must_list or error.status not in _PASSING
                await self._back_off(error, _now() - began)
            except Exception as error:  # noqa: BLE001 -- one broken object or handler must not end the watch
                _log.error("an event of the API server could not be handled", reason=self._where, exc_info=error)
                self._must_list = True
                await self._back_off(error, _now() - began)

    async def wait_synced(self, timeout_s: float) -> None:
        """Waits until the first list has been handed out.

        Raises:
            KubeError: it has not been in time; names the resource and the last trouble.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self.synced.wait()
        except TimeoutError as error:
            because = f": {self._trouble}" if self._trouble else ""
            message = f"{self._where}: not listed within {timeout_s:g} s{because}"
            raise KubeError(message, status=0, reason="Timeout") from error

    async def _list(self) -> None:
        try:
            present = await self._list_pages({**self._query, "limit": str(_PAGE)})
        except KubeError as error:
            if error.status != 410:
                raise
            # The pages took longer than the server keeps its state: once more, in one piece.
            present = await self._list_pages(dict(self._query))
        for key in self._known.keys() - present:
            self._gone(key, None)
        self._must_list = False
        self._trouble = ""
        self.synced.set()

    async def _list_pages(self, query: dict[str, str]) -> set[_Key]:
        present: set[_Key] = set()
        while True:
            data = await self._client.request("GET", self._path, query=query, accept=self._accept[0], timeout_s=60)
            page = _object(data)
            items, metadata = page.get("items"), metadata_of(page)
            for item in items if isinstance(items, list) else []:
                if isinstance(item, dict):
                    present.add(self._present(item))
            query["continue"] = str(metadata.get("continue") or "")
            if not query["continue"]:
                self.resource_version = str(metadata.get("resourceVersion") or "")
                return present

    async def _watch(self) -> None:
        timeout_s = self._watch_timeout_s * random.uniform(0.8, 1.0)  # noqa: S311 -- spreads load, guards nothing
        query = {
            **self._query,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.resource_version,
            "timeoutSeconds": str(max(int(timeout_s), 1)),
        }
        lines = self._client.stream(
            self._path, query=query, accept=self._accept[1], idle_timeout_s=self._watch_timeout_s * _SILENCE_GRACE
        )
        began = _now()
        async with contextlib.aclosing(lines):
            async for line in lines:
                self._take(_object(line))
                self._well()
        if _now() - began < _SHORT_S:
            raise KubeError(f"watch of {self._where}: ended at once", status=0, reason="ShortWatch")
        self._well()

    def _take(self, line: JsonObject) -> None:
        kind, item = line.get("type"), line.get("object")
        if not isinstance(item, dict):
            raise KubeError(f"watch of {self._where}: not an event", status=0, reason="BadAnswer")
        if kind == "ERROR":
            raise self._refused(item)
        self.resource_version = str(metadata_of(item).get("resourceVersion") or "")
        if kind == "DELETED":
            self._gone(_key(item), item)
        elif kind != "BOOKMARK":
            self._present(item)

    def _refused(self, status: JsonObject) -> KubeError:
        code, reason = status.get("code"), str(status.get("reason") or "")
        message = f"watch of {self._where}: {code} {reason}"
        return KubeError(message, status=code if isinstance(code, int) else 0, reason=reason)

    def _present(self, item: JsonObject) -> _Key:
        key, metadata = _key(item), metadata_of(item)
        seen = _Seen(str(metadata.get("uid") or ""), str(metadata.get("resourceVersion") or ""))
        before = self._known.get(key)
        if before is not None and before.uid != seen.uid:
            self._gone(key, None)
            before = None
        if before != seen:
            self._known[key] = seen
            self._tell("ADDED" if before is None else "MODIFIED", item)
        return key

    def _gone(self, key: _Key, item: JsonObject | None) -> None:
        before = self._known.pop(key, None)
        if before is None:
            return
        namespace, name = key
        place: JsonObject = {"namespace": namespace} if namespace else {}
        version = self.resource_version
        minimal: JsonObject = {"metadata": {**place, "name": name, "uid": before.uid, "resourceVersion": version}}
        self._tell("DELETED", minimal if item is None else item)

    def _tell(self, kind: EventKind, item: JsonObject) -> None:
        # Items of a list come without these two, metadata-only ones with those of the wrapper.
        item["apiVersion"], item["kind"] = self._resource.api_version, self._resource.kind
        metadata_of(item).pop("managedFields", None)
        self._handler(Event(kind, item))

    def _well(self) -> None:
        if self._failures >= _WORTH_A_WARNING:
            _log.info("the API server is watched again", reason=self._where, attempt=self._failures)
        self._failures = 0
        self._trouble = ""

    async def _back_off(self, error: Exception, lasted_s: float) -> None:
        # A quiet watch has nothing to show for itself but its age.
        self._failures = 1 if lasted_s >= _STEADY_S else self._failures + 1
        self._trouble = str(error)
        say = _log.warning if self._failures == _WORTH_A_WARNING else _log.debug
        say("the API server cannot be watched, trying again", reason=self._where, error=error, attempt=self._failures)
        asked_s = error.retry_after_s if isinstance(error, KubeError) else None
        delay_s = _RETRY.delay_s(self._failures) * random.uniform(0.5, 1.0)  # noqa: S311 -- spreads load
        await asyncio.sleep(max(delay_s, asked_s or 0.0))


def _now() -> float:
    return asyncio.get_running_loop().time()


def _key(item: JsonObject) -> _Key:
    metadata = metadata_of(item)
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")


def _object(data: bytes) -> JsonObject:
    try:
        document = jsondoc.loads(data)
    except ValueError as error:
        raise KubeError("the API server sent something that is not JSON", status=0, reason="BadAnswer") from error
    return document if isinstance(document, dict) else {}
