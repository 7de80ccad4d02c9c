"""The text of manifests as helm renders them: its documents, its objects, its digest.

Pure. Documents are taken apart with YAML's own marks and never written anew, so that what helm reads is what the chart
rendered. Used by the post-renderer and by everything that must know what a release consists of.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

import yaml

from addon_operator.documents import jsondoc, yamldoc
from addon_operator.documents.jsondoc import JsonValue
from addon_operator.kube.refs import ObjectKey

DIGEST_CHARS = 40
NOTHING = "# no objects\n"

_SEPARATOR = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_SOURCE = re.compile(r"^# Source: (.+?)\s*$", re.MULTILINE)
_TTL = "ttlSecondsAfterFinished"


@dataclasses.dataclass(frozen=True, slots=True)
class ManifestObject:
    """One object of a manifest.

    Attributes:
        key: its names; the namespace is empty if the manifest leaves it to the release.
        size: characters of the document it is in.
        lasting: it stays until somebody deletes it. A Job that removes itself when finished does not.
    """

    key: ObjectKey
    size: int
    lasting: bool


@dataclasses.dataclass(frozen=True)
class Document:
    """One document of a manifest.

    Attributes:
        text: the document as it stands, from its `---` on.
        source: the template that it comes from, as helm notes it; empty if unknown.
    """

    text: str
    source: str

    @functools.cached_property
    def node(self) -> yaml.Node | None:
        """The YAML tree; None for an empty document and for what is not YAML."""
        try:
            return yaml.compose(self.text, Loader=yaml.CSafeLoader)
        except yaml.YAMLError:
            return None

    @property
    def body(self) -> str:
        """The text without separator, note of the source and surrounding space."""
        return _SOURCE.sub("", _SEPARATOR.sub("", self.text, count=1), count=1).strip()

    def objects(self) -> Iterator[yaml.MappingNode]:
        """Yields the objects in it; those inside of a list one by one."""
        yield from _objects(self.node)


def documents(manifest: str) -> tuple[Document, ...]:
    """Takes a manifest apart; the texts of the documents joined give the manifest again."""
    starts = [match.start() for match in _SEPARATOR.finditer(manifest)]
    if not starts or manifest[: starts[0]]:
        starts.insert(0, 0)
    pieces = [manifest[start:end] for start, end in zip(starts, [*starts[1:], len(manifest)], strict=True)]
    return tuple(Document(piece, _source(piece)) for piece in pieces if piece)


def objects(parts: Iterable[Document]) -> tuple[ManifestObject, ...]:
    """Lists the objects of a manifest in its order; what has no kind or no name is left out."""
    found: list[ManifestObject] = []
    for document in parts:
        for node in document.objects():
            key = _key(node)
            if key.kind and key.name:
                found.append(ManifestObject(key, len(document.text), lasting=not _removes_itself(key, node)))
    return tuple(found)


def without(
    parts: Iterable[Document],
    goes: Callable[[ObjectKey], bool],
    *,
    on_refused: Callable[[Document], None] = lambda _document: None,
) -> str:
    """Returns a manifest without some of its objects; the rest is not rewritten unless it is in a list with them.

    Args:
        parts: the manifest.
        goes: answers whether an object is to be left out; asked with the names that are in the manifest.
        on_refused: told each document with such an object that cannot be taken apart; all of it is left out.
    """
    return "".join(_without(part, goes, on_refused) for part in parts)


def rendered_digest(parts: Iterable[Document], hooks: Iterable[tuple[str, str]] = ()) -> str:
    """Returns whether two renderings are the same, whatever the order of their documents.

    Args:
        parts: the documents before any label was added; `helm template` prints hooks among them.
        hooks: template and text of hooks that are not among them.

    Source: design.md 5.2.
    """
    extra = (part for path, text in hooks for part in documents(f"---\n# Source: {path}\n{text}\n"))
    pairs = sorted((part.source, part.body) for part in (*parts, *extra) if part.body)
    flat = (text.encode() for pair in pairs for text in pair)
    return jsondoc.digest_bytes(*flat)[:DIGEST_CHARS]


def checksum(manifest: str) -> str:
    """Returns the MD5 that the label `moduleChecksum` holds. Source: contract.md 2.12."""
    return hashlib.md5(manifest.encode(), usedforsecurity=False).hexdigest()


def pack(keys: Iterable[ObjectKey]) -> str:
    """Writes object keys as compact JSON: `{"apps/v1 Deployment": ["name", "namespace/name"]}`."""
    grouped: dict[str, list[JsonValue]] = {}
    for key in keys:
        name = f"{key.namespace}/{key.name}" if key.namespace else key.name
        grouped.setdefault(f"{key.api_version} {key.kind}", []).append(name)
    return jsondoc.dumps({**grouped}).decode()


def unpack(text: str) -> tuple[ObjectKey, ...]:
    """Reads what `pack` wrote.

    Raises:
        ValueError: it did not write this.
    """
    grouped = jsondoc.loads(text)
    if not isinstance(grouped, dict):
        raise ValueError("the list of objects is not a map")  # noqa: TRY004 -- bad data, not a bad call
    return tuple(_unpacked(kind, names) for kind, names in _pairs(grouped))


def child(node: yaml.Node, key: str) -> yaml.Node | None:
    """Finds the value of a key; None if it is absent or the node is not a map."""
    entry = entry_of(node, key)
    return entry[1] if entry else None


def entry_of(node: yaml.Node, key: str) -> tuple[yaml.Node, yaml.Node] | None:
    """Finds the nodes of a key and its value."""
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((pair for pair in node.value if pair[0].value == key), None)


def scalar(node: yaml.Node | None) -> str:
    """Returns the text of a scalar; empty for anything else."""
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""


def _source(text: str) -> str:
    found = _SOURCE.search(text)
    return found[1] if found else ""


def _objects(node: yaml.Node | None) -> Iterator[yaml.MappingNode]:
    if not isinstance(node, yaml.MappingNode):
        return
    items = child(node, "items")
    if isinstance(items, yaml.SequenceNode) and scalar(child(node, "kind")).endswith("List"):
        for item in items.value:
            yield from _objects(item)
    elif child(node, "metadata") is not None:
        yield node


def _without(document: Document, goes: Callable[[ObjectKey], bool], on_refused: Callable[[Document], None]) -> str:
    leaving = [goes(_key(node)) for node in document.objects()]
    if not any(leaving):
        return document.text
    if all(leaving):
        return ""
    try:
        value = yamldoc.load(document.text, document.source).value
    except yamldoc.YamlError:
        on_refused(document)
        return ""
    return f"---\n{yamldoc.dump(_remaining(value, goes))}"


def _remaining(value: JsonValue, goes: Callable[[ObjectKey], bool]) -> JsonValue:
    items = value.get("items") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(items, list):
        return value
    kept = [item for item in items if not (isinstance(item, dict) and goes(ObjectKey.of(item)))]
    return {**value, "items": [_remaining(item, goes) for item in kept]}


def _key(node: yaml.MappingNode) -> ObjectKey:
    metadata = child(node, "metadata") or node
    names = (scalar(child(metadata, "namespace")), scalar(child(metadata, "name")))
    return ObjectKey(scalar(child(node, "apiVersion")), scalar(child(node, "kind")), *names)


def _removes_itself(key: ObjectKey, node: yaml.MappingNode) -> bool:
    spec = child(node, "spec")
    return key.kind == "Job" and spec is not None and child(spec, _TTL) is not None


def _pairs(grouped: Mapping[str, JsonValue]) -> Iterator[tuple[str, str]]:
    for kind, names in grouped.items():
        if not isinstance(names, list):
            raise ValueError("a kind without a list of names")  # noqa: TRY004 -- bad data, not a bad call
        yield from ((kind, str(name)) for name in names)


def _unpacked(kind: str, text: str) -> ObjectKey:
    api_version, space, name = kind.partition(" ")
    if not space:
        raise ValueError("the list of objects holds a kind without its version")
    namespace, slash, rest = text.partition("/")
    return ObjectKey(api_version, name, namespace if slash else "", rest if slash else text)
