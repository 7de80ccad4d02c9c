"""Puts labels on every object of a rendered manifest, as a text edit.

Pure. Only the lines of the labels change; every other byte stays, since a YAML text that is read and written again may
mean something else to helm (quoted numbers, y and n). The exceptions are documents that use aliases or explicit keys: a
label added to an anchored map would appear wherever the alias stands. Such a document is written anew without them.
Source: contract.md 2.12 (labels on resources).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

import yaml

from addon_operator.documents import yamldoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import InputError
from addon_operator.helm.manifest import Document, child, entry_of, scalar

_Edit = tuple[int, int, str]
_NULL = "tag:yaml.org,2002:null"


def add_labels(parts: Iterable[Document], labels: Mapping[str, str]) -> str:
    """Returns the manifest with `labels` on each object, in place of other values of the same labels.

    Documents that are not YAML stay as they are: helm has the better words for them. So do objects without metadata.
    """
    return "".join(_labelled(part, labels) for part in parts) if labels else "".join(part.text for part in parts)


def _labelled(document: Document, labels: Mapping[str, str]) -> str:
    edits = None if _has_aliases(document) else list(_edits(document, labels))
    if edits is None or None in edits:
        return _rewritten(document, labels)
    text = document.text
    for start, end, new in sorted((edit for edit in edits if edit), reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _edits(document: Document, labels: Mapping[str, str]) -> Iterator[_Edit | None]:
    """Yields what to change, None for what cannot be changed in place."""
    for node in document.objects():
        metadata = child(node, "metadata")
        if not isinstance(metadata, yaml.MappingNode) or not metadata.value:
            continue
        entry = entry_of(metadata, "labels")
        if entry is None:
            yield _insert(document.text, metadata, f'"labels": {_flow(labels)}', _block(metadata, labels))
        elif _is_empty(entry[1]):
            yield _fill(document.text, *entry, labels)
        elif isinstance(entry[1], yaml.MappingNode):
            yield from _merge(document.text, entry[1], labels)


def _is_empty(node: yaml.Node) -> bool:
    return node.tag == _NULL or (isinstance(node, yaml.MappingNode) and not node.value)


def _merge(text: str, current: yaml.MappingNode, labels: Mapping[str, str]) -> Iterator[_Edit | None]:
    present = {scalar(key): value for key, value in current.value}
    missing = {name: value for name, value in labels.items() if name not in present}
    for name, node in present.items():
        if name in labels and scalar(node) != labels[name]:
            yield _end_trimmed(text, node, json.dumps(labels[name])) if node.tag != _NULL else None
    if missing:
        indent = " " * current.value[0][0].start_mark.column
        lines = "".join(f"{line}\n{indent}" for line in _pairs(missing))
        yield _insert(text, current, ", ".join(_pairs(missing)), lines)


def _insert(text: str, node: yaml.MappingNode, flow: str, block: str) -> _Edit | None:
    """Puts something in front of the first key of a map that is not empty."""
    first = node.value[0][0].start_mark.index
    if text[:first].rstrip().endswith("?"):
        return None
    return first, first, f"{flow}, " if node.flow_style else block


def _fill(text: str, key: yaml.Node, current: yaml.Node, labels: Mapping[str, str]) -> _Edit | None:
    """Fills a value that is absent, null or an empty map; it stands between the colon and the end of the value."""
    colon = key.end_mark.index
    if text[colon : colon + 1] != ":":
        return None
    written = current.start_mark.index < current.end_mark.index
    return colon + 1, current.end_mark.index if written else colon + 1, f" {_flow(labels)}"


def _end_trimmed(text: str, node: yaml.Node, new: str) -> _Edit:
    """Replaces a value; the end of a block scalar lies behind its line break, which stays."""
    start, end = node.start_mark.index, node.end_mark.index
    return start, start + len(text[start:end].rstrip()), new


def _block(metadata: yaml.MappingNode, labels: Mapping[str, str]) -> str:
    indent = " " * metadata.value[0][0].start_mark.column
    return "".join(["labels:\n", *(f"{indent}  {line}\n" for line in _pairs(labels)), indent])


def _flow(labels: Mapping[str, str]) -> str:
    return "{" + ", ".join(_pairs(labels)) + "}"


def _pairs(labels: Mapping[str, str]) -> list[str]:
    # Quoted as JSON, so that the text is right in block style, in flow style and in JSON.
    return [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in labels.items()]


def _has_aliases(document: Document) -> bool:
    try:
        return "*" in document.text and any(
            isinstance(event, yaml.AliasEvent) for event in yaml.parse(document.text, Loader=yaml.CSafeLoader)
        )
    except yaml.YAMLError:
        return False


def _rewritten(document: Document, labels: Mapping[str, str]) -> str:
    try:
        value = yamldoc.load(document.text, document.source).value
    except InputError:
        return document.text
    head = f"---\n# Source: {document.source}\n" if document.source else "---\n"
    return head + yamldoc.dump(_with_labels(value, labels))


def _with_labels(value: JsonValue, labels: Mapping[str, str]) -> JsonValue:
    if not isinstance(value, dict):
        return value
    items, metadata = value.get("items"), value.get("metadata")
    if isinstance(items, list) and str(value.get("kind")).endswith("List"):
        return {**value, "items": [_with_labels(item, labels) for item in items]}
    if not isinstance(metadata, dict) or not metadata:
        return value
    present = metadata.get("labels")
    if present is not None and not isinstance(present, dict):
        return value
    merged: JsonObject = {**(present or {}), **labels}
    return {**value, "metadata": {**metadata, "labels": merged}}
