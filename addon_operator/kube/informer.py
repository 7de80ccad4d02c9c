"""Keeps an eye on the objects of one resource: a list, then a watch, for ever.

Both come in one stream from servers that can do that (KEP-3157), which spares them reading etcd, and us a request for
each page. From others the list comes in pages.

It keeps only the names and versions of objects; what they contain is the handler's to keep. After an interruption of
any length the handler hears of the difference, and of nothing else. That holds as well when the API server has gone
back to an older state (`history.py`), which is believed only when a second list confirms it. Not a cache, and not what
hooks bind to: monitors and the sources of the operator are built on it. Source: design.md 5 (no polling, one list),
contract.md 5.1 (8) and 5.2 (16), Kubernetes API concepts.

A connection can go silent without breaking, and an idle watch is silent for minutes: bookmarks only come after
something has changed. So every watch ends within a minute, by the server, and goes on where it was. That is one
request without a body on a connection that is open already; ending watches that are silent would break it each time.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import random
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Literal

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import KubeError
from addon_operator.kube.client import KubeClient
from addon_operator.kube.history import Progress, Rewind, is_older, newest
from addon_operator.kube.refs import Resource, metadata_of, permission
from addon_operator.logs import get_logger
from addon_operator.retry import RetryPolicy

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
# A change must be seen within a minute of silence: the longest watch, the grace, and the time to ask for the next.
_WATCH_TIMEOUT_S = 50.0
_SILENCE_GRACE = 1.08
_RESUMED_WITHIN_S = 5.0
_ANSWERED_WITHIN_S = 30.0
# The list at the beginning of a watch may take longer.
_LISTED_WITHIN_S = 300.0
_SHORT_S = 1.0
_OLDER = "OlderVersion"
_STEADY_S = 10.0
# After these the watch goes on where it was; any other refusal (404 of a kind that went away, 410 Gone, 504 from a
# restored etcd) needs a new list. Who may list but not watch must not list again and again.
_PASSING = frozenset({0, 401, 403, 429, 500, 502, 503})
# Who cannot even be asked again was away, and may come back from a backup: a new list, whatever was seen before.
_AWAY = frozenset({500, 502, 503})
_NO_ANSWER = frozenset({"Unreachable", "Timeout"})
_AWAY_AFTER = 2
# How long a list that is older than what was seen before waits for the second one that confirms it.
_CONFIRM_S = 3.0
_OUT_OF_STEP = 2
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
            handler: told about every change, in order, in the event loop: it must not block. If it raises, that event
                is logged and lost, the others are not.
            on_trouble: told of each attempt to list or watch that failed, and of None when it works again: the list is
                complete, or the watch brought something or ended as it should. Objects known so far stay, except that
                those of a kind that is not served any more (404) are deleted. Must not raise.
            on_rewind: told that the API server has gone back to an older state, before the handler hears of the
                difference: versions may be lower from now on. Must not raise.
            resumes: False lists anew whenever a watch has ended: for one or two objects, which costs no more than to go
                on, and shows each time whether the server has gone back.
            watch_timeout_s: how long one watch lasts; one that the server does not end by then is a dead connection.
            confirm_s: how long to wait for a second list when the first one is older than what was seen before.
        """
        self.synced = asyncio.Event()
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
        self._resumes, self._confirm_s = resumes, confirm_s
        self._on_rewind = on_rewind
        self._progress = Progress(confirm_s=confirm_s)
        self._rewinds = client.history.rewinds
        # Listed, but older than what was seen before: put off until the list is complete.
        self._doubtful: list[JsonObject] = []
        self._out_of_step = 0
        self._lasting: asyncio.Timeout | None = None
        self._must_list = True
        self._streams_list = True
        self._failures = 0
        self._warned = False
        self._trouble: KubeError | None = None

    @property
    def resource_version(self) -> str:
        """How far it has seen; empty before the first list is complete."""
        return self._progress.version

    @property
    def seen(self) -> str:
        """The newest version that is known, of a write as well as of the watch; empty before the first."""
        return self._progress.newest

    def wrote(self, version: str, *, after: str) -> None:
        """Notes the version of an own write, which is higher than all before unless the server has gone back.

        Args:
            version: what the server has answered.
            after: what was `seen` before the write was sent.
        """
        if self._progress.wrote(version, after=after):
            return
        self._client.history.rewound(Rewind(self._where, after, version), known=self._rewinds)

    async def run(self) -> None:
        """Lists and watches until it is cancelled; survives everything else."""
        while True:
            began = _now()
            try:
                await self._follow()
            except KubeError as error:
                self._must_list = self._must_list or error.status not in _PASSING
                await self._back_off(error, _now() - began)
                self._must_list = self._must_list or (self._failures >= _AWAY_AFTER and _is_away(error))
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
        if not self._resumes and not self._must_list:
            await self._compare_with_store()
        self._must_list = self._must_list or not self._resumes or self._is_rewound()
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
        if self._known and await self._is_served():
            message = f"{error}, though the API server serves the kind: a proxy in front of it may have said so"
            raise KubeError(message, status=502, reason="BadGateway") from error
        for key in tuple(self._known):
            self._gone(key, None)
        self._progress.forget()

    async def _is_served(self) -> bool:
        try:
            (await self._client.discover()).resource(self._resource.plural, self._api_version)
        except KubeError as error:
            if error.reason != "NoSuchKind":
                raise
            return False
        return True

    async def _list(self) -> None:
        try:
            await self._list_pages({**self._query, "limit": str(_PAGE)})
        except KubeError as error:
            if error.status != 410:
                raise
            # The pages took longer than the server keeps its state: once more, in one piece.
            await self._list_pages(self._query)

    async def _listed(self, absent: set[str], version: JsonValue) -> None:
        """Everything was listed; `absent` are those known before that were not among them."""
        seen, text, doubtful = self.seen, str(version or ""), self._doubtful
        if (verdict := self._progress.judge(text, _now())) != "goes on":
            await self._confirm(text, enough=verdict == "confirmed")
        if self._progress.listed(text, doubtful=bool(doubtful)):
            example = _named(doubtful[0]) if doubtful else ""
            self._client.history.rewound(Rewind(self._where, seen, text, example), known=self._rewinds)
            self._on_rewind()
        self._rewinds = self._client.history.rewinds
        for item in doubtful:
            self._present(item)
        for key in absent:
            self._gone(key, None)
        self._must_list = False
        self._recover()
        self.synced.set()
        self._synced_or_forbidden.set()

    async def _confirm(self, version: str, *, enough: bool) -> None:
        """Returns if the server has really gone back to that version, rather than showed a state that is out of date.

        Raises:
            KubeError: there were not lists `enough` to say so, or an object that is newer is still there.
        """
        what = f"list of {self._where}: version {version}, but {self.seen} was seen before"
        if not enough:
            raise KubeError(f"{what}; listing again", status=0, reason=_OLDER, retry_after_s=self._confirm_s)
        if await self._has_newer_than(version):
            self._progress.stays()
            self._must_list = False
            raise KubeError(f"{what}, and is still there: the list is out of date", status=0, reason=_OLDER)

    async def _has_newer_than(self, version: str) -> bool:
        key = newest(self._known, beyond=version)
        return key is not None and await self._stored(key) == "as known"

    async def _stored(self, key: str) -> Literal["as known", "older", "not to be read"]:
        """Says what etcd holds of an object: only reads by name are never answered from the API server's memory.

        Raises:
            KubeError: there was no answer.
        """
        namespace, _, name = key.partition("/")
        try:
            path = self._resource.path(namespace, name)
            metadata = metadata_of(_object(await self._client.request("GET", path, accept=self._accept[1])))
        except KubeError as error:
            if error.reason == "NotFound":
                return "older"
            if error.status == 403:
                return "not to be read"
            raise
        uid, _, known = self._known[key].partition("/")
        same = metadata.get("uid") == uid and not is_older(metadata.get("resourceVersion"), known)
        return "as known" if same else "older"

    async def _compare_with_store(self) -> None:
        """Notices an API server that goes on to list what it remembers, while etcd holds an older state."""
        key = newest(self._known, beyond="0")
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
                reason=self._where,
            )

    async def _list_pages(self, query: dict[str, str]) -> None:
        absent, self._doubtful = set(self._known), []
        coming = self._ask(query)
        try:
            while True:
                items, metadata = _page(await coming)
                if more := str(metadata.get("continue") or ""):
                    # The server works on the next page while this one is handed out.
                    coming = self._ask({**query, "continue": more})
                    await asyncio.sleep(0)
                for item in items:
                    absent.discard(self._list_one(item))
                if not more:
                    await self._listed(absent, metadata.get("resourceVersion"))
                    return
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)

    def _ask(self, query: dict[str, str]) -> asyncio.Task[bytes]:
        answer = self._client.request("GET", self._path, query=query, accept=self._accept[0], timeout_s=60)
        return asyncio.create_task(answer, name=f"next page of {self._where}")

    async def _watch(self) -> None:
        lasts_s = self._watch_timeout_s * random.uniform(0.85, 1.0)  # noqa: S311 -- spreads load, guards nothing
        asked_s = max(_LISTED_WITHIN_S, lasts_s) if self._must_list and self._resumes else lasts_s
        query = {
            **self._query,
            **(_INITIAL if self._must_list else {"resourceVersion": self.resource_version}),
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(int(asked_s), 1)),
        }
        lines = self._client.stream(
            self._path,
            query=query,
            accept=self._accept[1],
            idle_timeout_s=asked_s * _SILENCE_GRACE,
            answer_within_s=_ANSWERED_WITHIN_S if self._must_list or self._failures else _RESUMED_WITHIN_S,
        )
        began = _now()
        async with contextlib.aclosing(lines):
            if self._must_list:
                await self._take_list(lines)
            await self._take_changes(lines, lasts_s * _SILENCE_GRACE, by_server=asked_s == lasts_s)
        if _now() - began < _SHORT_S and not self._is_rewound():
            raise KubeError(f"watch of {self._where}: ended at once", status=0, reason="ShortWatch")
        self._well()

    async def _take_changes(self, lines: AsyncIterator[bytes], lasts_s: float, *, by_server: bool) -> None:
        """Takes what comes until the server ends the watch, has gone back, or the watch has lasted long enough.

        Raises:
            KubeError: the server should have ended it, and was silent all the time.
        """
        silent = True
        try:
            with self._client.history.listening(self._end_watch):
                async with asyncio.timeout(lasts_s) as self._lasting:
                    async for line in lines:
                        self._take(_object(line))
                        self._well()
                        silent = False
        except TimeoutError as error:
            if silent and by_server and not self._is_rewound():
                message = f"watch of {self._where}: silent, and not ended by the server after {lasts_s:.0f} s"
                raise KubeError(message, status=0, reason="Timeout") from error
        finally:
            self._lasting = None

    def _end_watch(self) -> None:
        """Ends the watch as if it had lasted long enough."""
        if self._lasting is not None and not self._lasting.expired():
            self._lasting.reschedule(_now())

    def _is_rewound(self) -> bool:
        """Returns whether the server has gone back since everything was listed."""
        return self._client.history.rewinds != self._rewinds

    async def _take_list(self, lines: AsyncIterator[bytes]) -> None:
        """Takes the part of the stream that shows what there is."""
        absent, self._doubtful = set(self._known), []
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
                        await self._listed(absent, metadata.get("resourceVersion"))
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
            self._advance(str(metadata.get("resourceVersion") or self._progress.version))
        if kind == "DELETED":
            self._gone(_key(metadata), item)
        elif kind != "BOOKMARK":
            self._list_one(item) if self._must_list else self._present(item)
        return metadata

    def _advance(self, version: str) -> None:
        seen = self._progress.version
        if not self._progress.advance(version):
            self._must_list = True
            message = f"watch of {self._where}: version {version} after {seen}; listing anew"
            raise KubeError(message, status=0, reason=_OLDER)

    def _list_one(self, item: JsonObject) -> str:
        """Takes an object of a list; one that is older than what was seen before has to wait until that is clear."""
        metadata = metadata_of(item)
        key = _key(metadata)
        if self._progress.is_doubtful(metadata.get("resourceVersion")) and self._known.get(key) != _state(metadata):
            self._doubtful.append(item)
            return key
        return self._present(item)

    def _refused(self, status: JsonObject) -> KubeError:
        code, reason = status.get("code"), str(status.get("reason") or "")
        message = f"watch of {self._where}: {code} {reason}"
        return KubeError(message, status=code if isinstance(code, int) else 0, reason=reason)

    def _present(self, item: JsonObject) -> str:
        metadata = metadata_of(item)
        key = _key(metadata)
        state = _state(metadata)
        before = self._known.get(key)
        if before is not None and before.partition("/")[0] != state.partition("/")[0]:
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
        if self._warned:
            self._warned = False
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
        # A server that does not answer at all is said once, for all that is watched.
        away = self._client.reachability.away_since is not None
        warns = self._failures >= _WORTH_A_WARNING and not self._warned and not away
        self._warned = self._warned or warns
        say = _log.warning if warns else _log.debug
        say("the API server cannot be watched, trying again", reason=self._where, error=error, attempt=self._failures)
        self._on_trouble(error)
        delay_s = _RETRY.delay_s(self._failures) * random.uniform(0.5, 1.0)  # noqa: S311 -- spreads load
        await asyncio.sleep(max(delay_s, error.retry_after_s or 0.0))


def _now() -> float:
    return asyncio.get_running_loop().time()


def _key(metadata: JsonObject) -> str:
    return f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}"


def _state(metadata: JsonObject) -> str:
    return f"{metadata.get('uid') or ''}/{metadata.get('resourceVersion') or ''}"


def _named(item: JsonObject) -> str:
    metadata = metadata_of(item)
    return f"{_key(metadata).removeprefix('/')} at {metadata.get('resourceVersion')}"


def _is_away(error: KubeError) -> bool:
    return error.status in _AWAY or error.reason in _NO_ANSWER


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
