"""Values that a hook reads and changes; the changes are a JSON patch. Source: contract.md 2.7."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from addon_operator.sdk.jsondata import (
    JsonInput,
    JsonObject,
    JsonValue,
    Path,
    T,
    expect,
    find,
    index,
    plain,
    pointer,
    tokens,
)


class Values:
    r"""One document of values. What was changed is seen at once; the operator gets it when the hook has succeeded.

    Paths are `"myModule.list[0].\"key with.dots\""`, or the keys one by one, `("myModule", "list", 0, key)`. What is
    returned is a copy: changing it changes nothing here.
    """

    def __init__(self, read: Callable[[], JsonValue]) -> None:
        """Takes the function that reads the document; it is called when the document is needed first."""
        self._read = read
        self._document: list[JsonValue] = []
        self._patch: list[JsonObject] = []

    def __getitem__(self, path: Path) -> JsonValue:
        return plain(find(self._current(), tokens(path)))

    def __setitem__(self, path: Path, value: JsonInput) -> None:
        self.set(path, value)

    def __delitem__(self, path: Path) -> None:
        find(self._current(), tokens(path))
        self.unset(path)

    def __contains__(self, path: Path) -> bool:
        return self.has(path)

    def get(self, path: Path, default: JsonValue = None) -> JsonValue:
        """Returns what is there, the default if nothing is."""
        return self[path] if self.has(path) else default

    def expect(self, path: Path, kind: type[T]) -> T:
        """Returns what is there, known to be of one type; an integer is a float, too.

        Raises:
            KeyError: nothing is there.
            TypeError: it is of another type.
        """
        return expect(self[path], kind, pointer(tokens(path)))

    def has(self, path: Path) -> bool:
        """Returns whether something is there, be it null."""
        try:
            find(self._current(), tokens(path))
        except KeyError:
            return False
        return True

    def set(self, path: Path, value: JsonInput) -> None:
        """Sets what is at a path. Parents that are missing or null are made; `-` is the place behind a list.

        Raises:
            ValueError: the path is empty or leaves a gap in a list, or the value is not JSON.
            TypeError: the path goes through what is no map and no list, or the value is not JSON.
        """
        keys = tokens(path)
        if not keys:
            raise ValueError("the path is empty")
        parent, depth = self._deepest(keys)
        new = plain(value)
        for key in reversed(keys[depth + 1 :]):
            new = {key: new}
        above, key = keys[:depth], keys[depth]
        if isinstance(parent, dict):
            self._note("add", keys[: depth + 1], new)
            parent[key] = plain(new)
        elif isinstance(parent, list):
            self._set_item(parent, above, key, new)
        else:
            raise TypeError(f"{pointer(above)} is no map and no list")

    def unset(self, path: Path) -> None:
        """Removes what is at a path; without effect if nothing is there."""
        keys = tokens(path)
        if not keys:
            raise ValueError("the path is empty")
        # Global hooks set enable flags beside the sections: one that is to be unset need not be in the document.
        is_flag = len(keys) == 1 and keys[0].endswith("Enabled")
        if not self.has(keys) and not is_flag:
            return
        parent = find(self._current(), keys[:-1])
        if isinstance(parent, list):
            del parent[int(keys[-1])]
        elif isinstance(parent, dict):
            parent.pop(keys[-1], None)
        self._note("remove", keys)

    def patch(self) -> tuple[JsonObject, ...]:
        """Returns the changes as operations of a JSON patch, in their order."""
        return tuple(self._patch)

    def _current(self) -> JsonValue:
        if not self._document:
            self._document.append(self._read())
        return self._document[0]

    def _deepest(self, keys: Sequence[str]) -> tuple[JsonValue, int]:
        """Goes down as far as there are values; answers where that is, and the number of the key to set there."""
        node = self._current()
        for depth, key in enumerate(keys[:-1]):
            try:
                below = find(node, (key,))
            except KeyError:
                return node, depth
            if below is None:
                return node, depth
            node = below
        return node, len(keys) - 1

    def _set_item(self, items: list[JsonValue], above: Sequence[str], key: str, value: JsonValue) -> None:
        at = len(items) if key == "-" else index(key, len(items) + 1)
        if at is None:
            raise ValueError(f"{pointer((*above, key))} is no index of the list")
        if at == len(items):
            self._note("add", (*above, "-"), value)
            items.append(plain(value))
        else:
            self._note("replace", (*above, key), value)
            items[at] = plain(value)

    def _note(self, operation: str, keys: Sequence[str], value: JsonValue = None) -> None:
        noted: JsonObject = {"op": operation, "path": pointer(keys)}
        self._patch.append(noted if operation == "remove" else noted | {"value": value})
