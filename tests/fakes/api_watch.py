"""Watches of an API server in memory: what happens from a version on, as selectors show it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from typing import Final

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.kube.refs import metadata_of
from tests.fakes.api_objects import ApiObjects, Kind, Refused, Target, served
from tests.fakes.object_store import Change, ObjectStore
from tests.fakes.selectors import Matches, selector

_ENDLESS_S: Final = 3600.0
_TRUE: Final = frozenset({"1", "true"})


async def events(
    objects: ApiObjects,
    target: Target,
    query: Mapping[str, str],
    *,
    idle_timeout_s: float,
    is_connected: Callable[[], bool],
) -> AsyncGenerator[tuple[str, JsonObject], None]:
    """Yields `(type, object)` until the time that the query names is over, or the kind is not served any more.

    A bookmark comes at the end, if the query allows bookmarks. Without a version it begins with the objects that exist.

    Raises:
        TimeoutError: nothing happened for `idle_timeout_s`.
        ConnectionError: `is_connected` says no; it is asked after each change of the store, and when that is woken.
    """
    store, matches, kind = objects.store, selector(query), target.kind
    clock = asyncio.get_running_loop().time
    heard_at = clock()
    ends_at = heard_at + float(query.get("timeoutSeconds") or _ENDLESS_S)
    version = int(query.get("resourceVersion") or 0)
    if query.get("sendInitialEvents") in _TRUE or version == 0:
        version = store.version
        for event in _initial(store, target, matches, ends=query.get("sendInitialEvents") in _TRUE):
            yield event
    while version >= store.oldest:
        for change in store.changes(kind.stored, version):
            if (found := _event(change, matches, target.namespace)) is not None:
                heard_at = clock()
                yield found[0], served(kind, found[1])
        # One that begins in the future, as after a restore of etcd, waits for it.
        version = max(version, store.version)
        if (kind.resource.group, kind.resource.version, kind.resource.plural) not in objects.kinds:
            return
        try:
            async with asyncio.timeout_at(min(ends_at, heard_at + idle_timeout_s)):
                await store.wait_change()
            if not is_connected():
                raise ConnectionError
        except TimeoutError:
            if clock() < ends_at:
                raise
            if query.get("allowWatchBookmarks") in _TRUE:
                yield "BOOKMARK", _bookmark(kind, version, {})
            return
    yield "ERROR", Refused(410, "Expired", f"too old resource version: {version}").status


def _initial(store: ObjectStore, target: Target, matches: Matches, *, ends: bool) -> Iterator[tuple[str, JsonObject]]:
    version = store.version
    for item in filter(matches, store.all(target.kind.stored, target.namespace)):
        yield "ADDED", served(target.kind, item)
    if ends:
        yield "BOOKMARK", _bookmark(target.kind, version, {"k8s.io/initial-events-end": "true"})


def _event(change: Change, matches: Matches, namespace: str) -> tuple[str, JsonObject] | None:
    """Returns what a watch with a selector shows of a change."""
    item = change.after or change.before
    assert item is not None
    if namespace and metadata_of(item).get("namespace") != namespace:
        return None
    before = change.before is not None and matches(change.before)
    if change.after is not None and matches(change.after):
        return ("MODIFIED" if before else "ADDED"), change.after
    gone: JsonObject = {**item, "metadata": {**metadata_of(item), "resourceVersion": str(change.version)}}
    return ("DELETED", gone) if before else None


def _bookmark(kind: Kind, version: int, annotations: Mapping[str, str]) -> JsonObject:
    metadata: JsonObject = {"resourceVersion": str(version), "annotations": dict(annotations)}
    return served(kind, {"metadata": metadata})
