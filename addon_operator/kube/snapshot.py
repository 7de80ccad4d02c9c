"""What bindings remember of the objects that they watch, and whether one really changed.

Pure. It does not watch: `monitor` fills a view from an informer. Source: contract.md 2.3.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Literal, TypeAlias

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonValue
from addon_operator.kube import jq

ChangeKind = Literal["Added", "Modified", "Deleted"]
Key: TypeAlias = tuple[str, str]
"""Namespace (empty for objects without one) and name: the order of snapshots."""

_TYPE = "(?:null|boolean|number|string|array|object)"
# Those of jq's messages of which we know where they quote the object.
_TELLING = tuple(
    (re.compile(pattern, re.DOTALL), words)
    for pattern, words in (
        (
            rf"({_TYPE}) \(.*\) and ({_TYPE}) \(.*\) cannot be (added|subtracted|multiplied|divided)",
            r"\1 and \2 cannot be \3",
        ),
        (rf"Cannot (index|iterate over) ({_TYPE})(?![a-z])", r"cannot \1 \2"),
        (rf"({_TYPE}) \(.*\) (cannot be [a-z]+|has no [a-z]+|is not a [a-z]+)", r"\1 \2"),
    )
)


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """One object of a snapshot, as JSON.

    Attributes:
        object: None if the binding does not keep full objects.
        filter_result: None if the binding has no jq filter.
    """

    object: bytes | None
    filter_result: bytes | None


@dataclasses.dataclass(frozen=True, slots=True)
class Filtered:
    """What a jq filter made of one object.

    Attributes:
        result: JSON: `null` for no output, the value for one, an array for several.
        error: why it failed, without what the object contains; the result is `null` then.
    """

    result: bytes
    error: str | None = None


def packed(value: JsonValue) -> bytes:
    """Encodes JSON that will be kept for long.

    Raises:
        ValueError: as `jsondoc.dumps`.
    """
    # The encoder gives its whole buffer away, of which a small object fills a part: 8 KiB for each.
    return bytes(memoryview(jsondoc.dumps(value)))


def run_filter(run: jq.Run, source: str, document: bytes) -> Filtered:
    """Runs a jq filter on one object."""
    try:
        outputs = run(source, document)
    except jq.Stopped as error:
        return Filtered(b"null", str(error))
    except ValueError as error:
        return Filtered(b"null", _without_contents(str(error)))
    return Filtered(outputs[0] if len(outputs) == 1 else b"[%s]" % b",".join(outputs) if outputs else b"null")


def _without_contents(message: str) -> str:
    for pattern, words in _TELLING:
        if match := pattern.match(message):
            return match.expand(words)
    return "the program ends with an error"


_NOTHING_KEPT = Item(None, None)


class View:
    """What is remembered of the objects of one informer, the same for all bindings that filter and keep alike.

    It relies on its feed to leave out versions of an object that it had already: without a filter each version that
    comes is a change.

    Attributes:
        failing: the objects on which the filter failed last, and why.
        kept_bytes: how much JSON it holds; bytes that another view holds as well count in both.
    """

    def __init__(self, *, keep_objects: bool) -> None:
        self.failing: dict[Key, str] = {}
        self.kept_bytes = 0
        self._keep_objects = keep_objects
        self._items: dict[Key, Item] = {}

    def __len__(self) -> int:
        return len(self._items)

    def put(self, key: Key, document: bytes, filtered: Filtered | None) -> ChangeKind | None:
        """Remembers a new or changed object; answers what changed for the bindings.

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

    def drop(self, key: Key) -> Item | None:
        """Forgets an object; answers what was kept of it, None if it was not known."""
        self.failing.pop(key, None)
        before = self._items.pop(key, None)
        if before is not None:
            self.kept_bytes -= _size(before)
        return before

    def get(self, key: Key) -> Item | None:
        """Answers what is kept of one object; None if it is not known."""
        return self._items.get(key)

    def __iter__(self) -> Iterator[Key]:
        """Lists the objects, in no order."""
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
