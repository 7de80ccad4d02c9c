"""YAML text <-> JSON values, with the line of every key.

Pure. The dialect is PyYAML's safe loader: yes/no/on/off are booleans, a bare `y` or `n` is a string. Helm's own reader
takes `y` and `n` for booleans, so they get a warning (contract.md 6.3).
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping

import yaml

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonValue, escape
from addon_operator.errors import InputError


class YamlError(InputError):
    """A text is not YAML, or not the JSON subset of it. The message names the source and the line."""


@dataclasses.dataclass(frozen=True, slots=True)
class YamlDocument:
    """One document.

    Attributes:
        value: its content; an empty text is null.
        lines: JSON pointer -> line (from 1) of the key or list item.
        warnings: keys that are there twice, of which the last one wins, and what another reader would understand
            differently; one line each, the last one counts what is left out.
    """

    value: JsonValue
    lines: Mapping[str, int]
    warnings: tuple[str, ...]


_ONE_LINE = frozenset("\u2028\u2029\x85")  # line breaks for some readers only
_DEEPEST = 200
_MOST_REPEATED = 100_000
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1


_MISFIT = "a value does not fit its tag"
_MOST_WARNINGS = 10
_STRINGS = frozenset({"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value"})


_MERGE = "tag:yaml.org,2002:merge"


class _Loader(yaml.CSafeLoader):
    """The safe loader without timestamps, which JSON has not, and without the old meaning of `=`: they are strings.

    Whatever its constructors raise is a YAML error: they trust tags, which any text may follow (`!!bool word`).
    """

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:
        try:
            return super().construct_object(node, deep)
        except (yaml.YAMLError, RecursionError):
            raise
        except Exception:  # noqa: BLE001 -- KeyError, IndexError, OverflowError ...: each quotes the value
            raise yaml.constructor.ConstructorError(None, None, _MISFIT, node.start_mark) from None


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag not in _STRINGS]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


class _Dumper(yaml.CSafeDumper):
    """The safe dumper, with literal blocks for texts of several lines and without anchors."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def _represent_text(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=_style(text))


def _style(text: str) -> str | None:
    if not _ONE_LINE.isdisjoint(text):
        return '"'
    if "\n" in text:
        return "|"
    # Other readers take more plain scalars for booleans and numbers (y, 1e3, 0o7, 1_000) than this one writes quoted.
    return "'" if text[:1] in set("0123456789+-.") or text in {"y", "n", "Y", "N"} else None


_Dumper.add_representer(str, _represent_text)


def load(text: str, where: str) -> YamlDocument:
    """Reads exactly one document (none counts as null).

    Args:
        text: the YAML.
        where: what to call it in errors and warnings: a file name, or `ConfigMap ns/name, key global`.

    Raises:
        YamlError: not YAML, more than one document, a key that is not a string, a value that JSON cannot hold.
    """
    with _reading(text, where) as loader:
        node = loader.get_single_node()
        if node is None:
            return YamlDocument(None, {}, ())
        # Before the values are made: merged keys stand beside those that override them afterwards.
        warnings = tuple(_few(_warnings(loader, node, "", set()), where))
        return YamlDocument(_value(loader, node, where), dict(_lines(node, "")), warnings)


def load_all(text: str, where: str) -> list[JsonValue]:
    """Reads a stream of documents; empty ones are left out.

    Raises:
        YamlError: as `load`.
    """
    values = []
    with _reading(text, where) as loader:
        while (node := loader.get_node() if loader.check_node() else None) is not None:
            values.append(_value(loader, node, where))
    return [value for value in values if value is not None]


def dump(value: JsonValue) -> str:
    """Writes a value in block style, keys in their own order."""
    return yaml.dump(
        value, Dumper=_Dumper, default_flow_style=False, sort_keys=False, allow_unicode=True, width=1_000_000
    )


@contextlib.contextmanager
def _reading(text: str, where: str) -> Iterator[_Loader]:
    try:
        _check_size(text, where)
        loader = _Loader(text)
        try:
            yield loader
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise YamlError(_describe(error, where)) from None
    except UnicodeEncodeError:
        raise YamlError(f"{where}: not a valid Unicode text") from None


def _value(loader: _Loader, node: yaml.Node, where: str) -> JsonValue:
    try:
        value = _as_json(loader.construct_document(node), "")
        jsondoc.dumps(value)
    except _NotJson as error:
        raise YamlError(f"{_place(node, error.pointer, where)}: {error.pointer or '/'}: {error}") from None
    except ValueError:
        raise YamlError(f"{where}: JSON cannot hold a value") from None
    except RecursionError:
        raise YamlError(f"{where}: aliases make it nested too deeply") from None
    return value


def _place(node: yaml.Node, pointer: str, where: str) -> str:
    try:
        line = dict(_lines(node, "")).get(pointer)
    except RecursionError:  # an alias of itself besides
        line = None
    return where if line is None else f"{where}:{line}"


def _check_size(text: str, where: str) -> None:
    # The library composes recursively in C and would overrun the stack; its events come without recursion. Anchors that
    # are used again and again would make a small text a huge document (contract: values are JSON, which has none).
    values = repeated = 0
    sizes: dict[str, int] = {}
    above: list[tuple[str | None, int]] = []
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            above.append((event.anchor, values))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = above.pop()
            if anchor:
                sizes[anchor] = values - before
        elif isinstance(event, yaml.AliasEvent):
            size = sizes.get(str(event.anchor), 1)
            repeated, values = repeated + size, values + size
        values += 1
        if len(above) > _DEEPEST or repeated > _MOST_REPEATED:
            deep = len(above) > _DEEPEST
            what = f"nested deeper than {_DEEPEST} levels" if deep else "aliases repeat too much"
            line = event.start_mark.line + 1 if event.start_mark else 0
            raise YamlError(f"{where}:{line}: {what}")


# Messages of the library's constructors about nodes; all others may quote a value.
_CONSTANT = ("expected a ", "found unhashable key")


def _describe(error: yaml.YAMLError, where: str) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "not a valid YAML document"
    if problem.startswith("could not determine a constructor"):
        # The library's message quotes the tag, which may be an unquoted text, even a password.
        problem = "an unknown tag: quote a text that begins with '!'"
    elif isinstance(error, yaml.constructor.ConstructorError) and not problem.startswith(_CONSTANT):
        problem = _MISFIT
    return f"{where}:{mark.line + 1}: {problem}" if mark else f"{where}: {problem}"


def _lines(node: yaml.Node, pointer: str) -> Iterator[tuple[str, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            child = f"{pointer}/{escape(str(key.value))}"
            yield child, key.start_mark.line + 1
            yield from _lines(value, child)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            child = f"{pointer}/{index}"
            yield child, item.start_mark.line + 1
            yield from _lines(item, child)


def _warnings(loader: _Loader, node: yaml.Node, pointer: str, seen: set[int]) -> Iterator[tuple[int, str]]:
    """Yields line and text; a node that aliases repeat counts once."""
    if id(node) in seen:
        return
    seen.add(id(node))
    line = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        keys: set[str] = set()
        for key, value in node.value:
            child = f"{pointer}/{escape(str(key.value))}"
            name = _name(loader, key)
            if name in keys:
                yield key.start_mark.line + 1, f"{child}: duplicate key, the last one wins"
            if name is not None:
                keys.add(name)
            yield from _warnings(loader, key, child, seen)
            yield from _warnings(loader, value, child, seen)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _warnings(loader, item, f"{pointer}/{index}", seen)
    elif isinstance(node, yaml.ScalarNode) and not node.style and node.value in {"y", "n", "Y", "N"}:
        yield line, f"a bare {node.value} is a string here, a boolean for Helm: quote it or write true/false"


def _name(loader: _Loader, key: yaml.Node) -> str | None:
    """Returns the name that a key will have; None for a merge key, or a key that JSON does not allow."""
    if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
        return None
    try:
        return _key(loader.construct_object(key), "")
    except _NotJson:
        return None


def _few(warnings: Iterable[tuple[int, str]], where: str) -> Iterator[str]:
    found = list(warnings)
    yield from (f"{where}:{line}: {text}" for line, text in found[:_MOST_WARNINGS])
    if left := found[_MOST_WARNINGS:]:
        yield f"{where}:{left[0][0]}: {len(left)} more from here on"


class _NotJson(Exception):
    """What is at `pointer` has no JSON form."""

    def __init__(self, pointer: str, problem: str) -> None:
        super().__init__(problem)
        self.pointer = pointer


def _as_json(value: object, pointer: str) -> JsonValue:
    if isinstance(value, float) and not math.isfinite(value):
        raise _NotJson(pointer, f"{value} has no JSON form")
    if isinstance(value, int) and not _SMALLEST <= value <= _LARGEST:
        raise _NotJson(pointer, "JSON cannot hold an integer beyond 64 bits")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [_as_json(item, f"{pointer}/{index}") for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {_key(key, pointer): _as_json(item, f"{pointer}/{escape(str(key))}") for key, item in value.items()}
    raise _NotJson(pointer, f"{type(value).__name__} has no JSON form")


def _key(key: object, pointer: str) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool | int | float):
        return str(key).lower() if isinstance(key, bool) else str(key)
    raise _NotJson(pointer, "a key below it is not a string")
