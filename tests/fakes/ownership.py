"""Server-side apply, as far as tests need it: whose fields of an object are. Lists are one field as a whole."""

from __future__ import annotations

from collections.abc import Iterator

from addon_operator.documents.jsondoc import JsonObject, JsonValue, deep_merge
from addon_operator.kube.refs import metadata_of

Path = tuple[str, ...]

UPDATER = "addon-operator"
"""Whose the fields are that came by another verb than apply."""

_IDENTITY = frozenset({"apiVersion", "kind"})
_OF_THE_SERVER = frozenset(
    {"name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"}
)


class Owners:
    """The field managers of one object's fields."""

    def __init__(self) -> None:
        self._of: dict[Path, set[str]] = {}

    def wrote(self, before: JsonObject, after: JsonObject) -> None:
        """Notes a write by another verb than apply: what it has changed belongs to nobody else."""
        old, new = dict(_leaves(before)), dict(_leaves(after))
        for path in old.keys() - new.keys():
            self._of.pop(path, None)
        for path, value in new.items():
            if path not in old or old[path] != value:
                self._of[path] = {UPDATER}

    def conflicts(self, live: JsonObject, wanted: JsonObject, manager: str) -> list[str]:
        """Returns which wanted fields others have in another state, as `"who": .field`."""
        now = dict(_leaves(live))
        return [
            f'conflict with "{other}": .{".".join(path)}'
            for path, value in _leaves(wanted)
            if path in now and now[path] != value
            for other in sorted(self._of.get(path, set()) - {manager})
        ]

    def applied(self, live: JsonObject, wanted: JsonObject, manager: str) -> JsonObject:
        """Returns the object with the wanted fields, and without those that only this manager wanted before."""
        now, fields = dict(_leaves(live)), dict(_leaves(wanted))
        result = live
        for path in [path for path, owners in self._of.items() if manager in owners and path not in fields]:
            self._of[path].discard(manager)
            if not self._of[path]:
                del self._of[path]
                result = _without(result, path)
        for path, value in fields.items():
            same = path in now and now[path] == value
            self._of[path] = self._of.get(path, set()) | {manager} if same else {manager}
        merged = deep_merge(result, wanted)
        assert isinstance(merged, dict)
        return merged


def _leaves(item: JsonObject) -> Iterator[tuple[Path, JsonValue]]:
    for name, value in item.items():
        if name == "metadata":
            metadata = metadata_of(item)
            yield from _below({key: metadata[key] for key in metadata.keys() - _OF_THE_SERVER}, ("metadata",))
        elif name not in _IDENTITY:
            yield from _below(value, (name,))


def _below(value: JsonValue, path: Path) -> Iterator[tuple[Path, JsonValue]]:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _below(item, (*path, name))
    elif not (isinstance(value, dict) and path == ("metadata",)):
        yield path, value


def _without(item: JsonObject, path: Path) -> JsonObject:
    name, *rest = path
    below = item.get(name)
    if rest and isinstance(below, dict):
        left = _without(below, tuple(rest))
        return {**item, name: left} if left else {key: value for key, value in item.items() if key != name}
    return {key: value for key, value in item.items() if key != name}
