"""What lists and watches look like on the wire: pages, lines of a stream, and what they say about objects.

Pure. Source: Kubernetes API concepts.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping
from typing import Final

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import KubeError
from addon_operator.kube.refs import metadata_of

PAGE_SIZE: Final = 500
INITIAL_EVENTS: Final[Mapping[str, str]] = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
"""Asks for the list as the beginning of the watch (KEP-3157)."""
_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


def key_of(metadata: JsonObject) -> str:
    """Returns `namespace/name`; the namespace is empty for objects without one."""
    return f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}"


def state_of(metadata: JsonObject) -> str:
    """Returns `uid/resourceVersion`."""
    return f"{metadata.get('uid') or ''}/{metadata.get('resourceVersion') or ''}"


def bare_object(key: str, state: str, version: str) -> JsonObject:
    """Returns what is left of an object that went away unseen: its names, and the version of the list without it."""
    namespace, _, name = key.partition("/")
    place: JsonObject = {"namespace": namespace} if namespace else {}
    return {"metadata": {**place, "name": name, "uid": state.partition("/")[0], "resourceVersion": version}}


def ends_initial_events(metadata: JsonObject) -> bool:
    """Returns whether this bookmark ends the list at the beginning of a watch."""
    annotations = metadata.get("annotations")
    return isinstance(annotations, dict) and annotations.get(_INITIAL_EVENTS_END) == "true"


def status_error(status: JsonObject, where: str) -> KubeError:
    """Makes an error of the Status in an ERROR event."""
    code, reason = status.get("code"), str(status.get("reason") or "")
    message = f"watch of {where}: {code} {reason}"
    return KubeError(message, status=code if isinstance(code, int) else 0, reason=reason)


def decode(data: bytes) -> JsonObject:
    """Reads one JSON object; anything else that is JSON is an empty one.

    Raises:
        KubeError: it is not JSON.
    """
    try:
        document = jsondoc.loads(data)
    except ValueError as error:
        raise KubeError("the API server sent something that is not JSON", status=0, reason="BadAnswer") from error
    return document if isinstance(document, dict) else {}


def decode_page(data: bytes) -> tuple[Iterator[JsonObject], JsonObject]:
    """Reads a page of a list: its objects, and the metadata of the list.

    Raises:
        KubeError: it is not JSON.
    """
    with _no_collection():
        page = decode(data)
    items: JsonValue = page.get("items")
    objects = (item for item in (items if isinstance(items, list) else ()) if isinstance(item, dict))
    return objects, metadata_of(page)


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
