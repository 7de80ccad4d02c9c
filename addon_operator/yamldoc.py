"""YAML text <-> JSON values, with the line of every key.

Pure. The dialect is PyYAML's safe loader: yes/no/on/off are booleans, a bare `y` or `n` is a string. Helm's own reader
takes `y` and `n` for booleans, so they get a warning (contract.md 6.3).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping

import yaml

from addon_operator.errors import InputError
from addon_operator.jsondoc import JsonValue, escape


class YamlError(InputError):
    """A text is not YAML, or not the JSON subset of it. The message names the source and the line."""


@dataclasses.dataclass(frozen=True, slots=True)
class YamlDocument:
    """One document.

    Attributes:
        value: its content; an empty text is null.
        lines: JSON pointer -> line (from 1) of the key or list item.
        warnings: what another reader would understand differently, one line each.
    """

    value: JsonValue
    lines: Mapping[str, int]
    warnings: tuple[str, ...]


_ONE_LINE = frozenset("\u2028\u2029\x85")  # line breaks for some readers only
_DEEPEST = 200
_MOST_ALIASES = 1000


class _Loader(yaml.CSafeLoader):
    """The safe loader without timestamps: JSON has none, so they stay strings."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
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
    _check_depth(text, where)
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return YamlDocument(None, {}, ())
        value = loader.construct_document(node)
    except yaml.YAMLError as error:
        raise YamlError(_describe(error, where)) from error
    except (ValueError, TypeError) as error:
        raise YamlError(f"{where}: not a valid YAML document: {error}") from error
    finally:
        loader.dispose()
    lines = dict(_lines(node, ""))
    return YamlDocument(_as_json(value, where, lines, ""), lines, tuple(_warnings(node, where)))


def load_all(text: str, where: str) -> list[JsonValue]:
    """Reads a stream of documents; empty ones are left out.

    Raises:
        YamlError: as `load`.
    """
    _check_depth(text, where)
    try:
        values = list(yaml.load_all(text, Loader=_Loader))
    except yaml.YAMLError as error:
        raise YamlError(_describe(error, where)) from error
    return [_as_json(value, where, {}, "") for value in values if value is not None]


def dump(value: JsonValue) -> str:
    """Writes a value in block style, keys in their own order."""
    return yaml.dump(
        value, Dumper=_Dumper, default_flow_style=False, sort_keys=False, allow_unicode=True, width=1_000_000
    )


def _check_depth(text: str, where: str) -> None:
    # The library composes recursively in C and would overrun the stack; its events come without recursion. An anchor
    # that is used again and again would make a small text a huge document (contract: values are JSON, which has none).
    depth = aliases = 0
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            aliases += isinstance(event, yaml.AliasEvent)
            if depth > _DEEPEST or aliases > _MOST_ALIASES:
                what = (
                    f"nested deeper than {_DEEPEST} levels"
                    if depth > _DEEPEST
                    else f"more than {_MOST_ALIASES} aliases"
                )
                line = event.start_mark.line + 1 if event.start_mark else 0
                raise YamlError(f"{where}:{line}: {what}")
    except yaml.YAMLError as error:
        raise YamlError(_describe(error, where)) from error


def _describe(error: yaml.YAMLError, where: str) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "not a valid YAML document"
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


def _warnings(node: yaml.Node, where: str) -> Iterator[str]:
    if isinstance(node, yaml.MappingNode):
        for pair in node.value:
            for part in pair:
                yield from _warnings(part, where)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _warnings(item, where)
    elif isinstance(node, yaml.ScalarNode) and not node.style and node.value in {"y", "n", "Y", "N"}:
        line = node.start_mark.line + 1
        yield f"{where}:{line}: a bare {node.value} is a string here, a boolean for Helm: quote it or write true/false"


def _as_json(value: object, where: str, lines: Mapping[str, int], pointer: str) -> JsonValue:
    if isinstance(value, float) and not math.isfinite(value):
        raise YamlError(f"{where}{_line(lines, pointer)}: {pointer or '/'}: {value} has no JSON form")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [_as_json(item, where, lines, f"{pointer}/{index}") for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {
            _key(key, where, lines, pointer): _as_json(item, where, lines, f"{pointer}/{escape(str(key))}")
            for key, item in value.items()
        }
    raise YamlError(f"{where}{_line(lines, pointer)}: {pointer or '/'}: {type(value).__name__} has no JSON form")


def _key(key: object, where: str, lines: Mapping[str, int], pointer: str) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool | int | float):
        return str(key).lower() if isinstance(key, bool) else str(key)
    raise YamlError(f"{where}{_line(lines, pointer)}: a key below {pointer or '/'} is not a string")


def _line(lines: Mapping[str, int], pointer: str) -> str:
    return f":{lines[pointer]}" if pointer in lines else ""
