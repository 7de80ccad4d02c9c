"""What is kept of the objects that bindings watch, and whether one really changed.

Pure: a shared informer fills it. Source: contract.md 2.3.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import TypeAlias

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonValue
from addon_operator.kube.informers.projection import Filtered
from addon_operator.kube.refs import WatchEvent

Key: TypeAlias = tuple[str, str]
"""Namespace (empty for objects without one) and name: the order of snapshots."""


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """One object of a snapshot, as JSON.

    Attributes:
        object: None if the binding does not keep full objects.
        filter_result: None if the binding has no jq filter.
    """

    object: bytes | None
    filter_result: bytes | None


_NOTHING_KEPT = Item(None, None)


def packed(value: JsonValue) -> bytes:
    """Encodes JSON that will be kept for long.

    Raises:
        ValueError: as `jsondoc.dumps`.
    """
    # The encoder gives its whole buffer away, of which a small object fills a part: 8 KiB for each.
    return bytes(memoryview(jsondoc.dumps(value)))


class Store:
    """What is kept of the objects of one informer, the same for all bindings with the same projection.

    It relies on the reflector to leave out versions of an object that were delivered already: without a filter each
    version that comes is a change.

    Attributes:
        failing: the objects on which the filter failed last, and why.
        kept_bytes: how much JSON it holds; bytes that another store holds as well count in both.
    """

    def __init__(self, *, keep_objects: bool) -> None:
        self.failing: dict[Key, str] = {}
        self.kept_bytes = 0
        self._keep_objects = keep_objects
        self._items: dict[Key, Item] = {}

    def __len__(self) -> int:
        return len(self._items)

    def put(self, key: Key, document: bytes, filtered: Filtered | None) -> WatchEvent | None:
        """Keeps a new or changed object; returns what changed for the bindings, None if nothing.

        An object whose filter result stays the same is refreshed, and that is no change. A failed filter is equal to
        nothing.

        Args:
            key: which object.
            document: the whole object as JSON.
            filtered: what the bindings' filter made of it; None without a filter.
        """
        before = self._items.get(key)
        same = before is not None and filtered is not None and _same(before.filter_result, filtered.result)
        failed_before = self.failing.pop(key, None) is not None if self.failing else False
        if filtered is not None and filtered.error is not None:
            self.failing[key] = filtered.error
            same = False
        self._keep(key, before, self._item(document, filtered))
        if before is None:
            return "Added"
        return None if same and not failed_before else "Modified"

    def delete(self, key: Key) -> Item | None:
        """Forgets an object; returns what was kept of it, None if it was not known."""
        self.failing.pop(key, None)
        before = self._items.pop(key, None)
        if before is not None:
            self.kept_bytes -= _size(before)
        return before

    def get(self, key: Key) -> Item | None:
        """Returns what is kept of one object; None if it is not known."""
        return self._items.get(key)

    def __iter__(self) -> Iterator[Key]:
        """Iterates over the objects, in no order."""
        return iter(self._items)

    def entries(self) -> list[tuple[Key, Item]]:
        """Lists what is kept, in the order of snapshots."""
        return [(key, self._items[key]) for key in sorted(self._items)]

    def _item(self, document: bytes, filtered: Filtered | None) -> Item:
        if filtered is None:
            return Item(document, None) if self._keep_objects else _NOTHING_KEPT
        return Item(document if self._keep_objects else None, filtered.result)

    def _keep(self, key: Key, before: Item | None, item: Item) -> None:
        self._items[key] = item
        self.kept_bytes += _size(item) - (0 if before is None else _size(before))


def _same(before: bytes | None, result: bytes) -> bool:
    """A program that puts maps together may write the same in another order, which takes as many bytes."""
    if before == result or before is None or len(before) != len(result):
        return before == result
    try:
        return _sorted(before) == _sorted(result)
    except (ValueError, RecursionError):  # thousands of digits, or of levels
        return False


def _sorted(document: bytes) -> str:
    # The standard library's reader keeps all digits of an integer.
    return json.dumps(json.loads(document), sort_keys=True)


def _size(item: Item) -> int:
    return len(item.object or b"") + len(item.filter_result or b"")
