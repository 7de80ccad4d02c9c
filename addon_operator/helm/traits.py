"""What a chart's templates depend on besides its files and values.

Pure. A template that looks into the cluster, draws random data or takes the time can render differently from the same
input, and one that asks for APIs depends on those. Only what can be reached from a rendered file counts: many charts
carry a library of helpers of which they use few. Source: design.md 5.2.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator

from addon_operator.documents.jsondoc import JsonValue

# Reads go-template actions; strings and comments in them may hold braces.
_ACTION = re.compile(r"\{\{((?:\"(?:\\.|[^\"\\\n])*\"|`[^`]*`|/\*.*?\*/|[^\"`])*?)\}\}", re.DOTALL)
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r"\"((?:\\.|[^\"\\\n])*)\"|`([^`]*)`")
_WORD = re.compile(r"(?<![\w.$])[A-Za-z_]\w*")
_ASKED = re.compile(r"APIVersions\.Has\s+(?:\"([^\"]+)\"|`([^`]+)`)")
_ASKS = re.compile(r"\bAPIVersions\b")
_CALLED = re.compile(r"\b(?:include|template)\s+(?:\"([^\"]+)\"|`([^`]+)`)")
_CALLS = frozenset({"include", "template"})
_OPENING = frozenset({"if", "range", "with", "block", "define"})

_RANDOM = {"randAlphaNum", "randAlpha", "randAscii", "randNumeric", "randBytes", "randInt", "shuffle", "uuidv4"}
_KEYS = {"genCA", "genCAWithKey", "genPrivateKey", "htpasswd", "bcrypt", "encryptAES"}
_CERTIFICATES = {"genSelfSignedCert", "genSelfSignedCertWithKey", "genSignedCert", "genSignedCertWithKey"}
_DRAWING = frozenset(_RANDOM | _KEYS | _CERTIFICATES | {"now", "ago"})


@dataclasses.dataclass(frozen=True, slots=True)
class ChartTraits:
    """What the rendering of a chart depends on.

    Attributes:
        reads_cluster: it calls `lookup`.
        draws: where it draws random data or takes the time: `templates/x.yaml: genCA`, sorted.
        asked_apis: the APIs that it asks for, sorted; None if it looks at the list in another way.
        expands: it calls `tpl`, so that values may hold templates.
        has_hooks: it may have Helm hooks; they are named somewhere in its files or values.
        has_install_hooks: its templates or values name some of these for an installation.
    """

    reads_cluster: bool = False
    draws: tuple[str, ...] = ()
    asked_apis: tuple[str, ...] | None = ()
    expands: bool = False
    has_hooks: bool = False
    has_install_hooks: bool = False

    @property
    def varies(self) -> bool:
        """Whether the same input can render differently."""
        return self.reads_cluster or bool(self.draws)

    @property
    def needs_cluster(self) -> bool:
        """Whether only a rendering that asks the cluster equals that of an upgrade."""
        return self.reads_cluster or self.asked_apis != ()


@dataclasses.dataclass(slots=True)
class _Unit:
    """A named template, or what stands outside of them in one file."""

    path: str
    words: set[str] = dataclasses.field(default_factory=set)
    called: set[str] = dataclasses.field(default_factory=set)
    asked: set[str] = dataclasses.field(default_factory=set)
    calls_unknown: bool = False
    asks_unknown: bool = False


def scan_chart(templates: Iterable[tuple[str, str]], others: Iterable[tuple[str, str]] = ()) -> ChartTraits:
    """Finds out what a chart depends on.

    Args:
        templates: path and text of each file in `templates/`, those of subcharts included.
        others: path and text of what `tpl` may be given: values and other files. Looked at only if `tpl` is called.
    """
    roots: list[_Unit] = []
    named: dict[str, list[_Unit]] = {}
    for path, text in templates:
        rendered = not path.rpartition("/")[2].startswith(("_", "NOTES.txt"))
        outside = _read(path, text, named)
        roots += [outside] if rendered else []
    reached = _reach(roots, named)
    if any("tpl" in unit.words for unit in reached):
        more = [_read(path, text, named) for path, text in others]
        reached = _reach([*roots, *more], named)
    return _traits(reached)


def api_answer(traits: ChartTraits, api_versions: Iterable[str], digest: str) -> str:
    """Returns what a fingerprint has of the cluster's APIs: answers to what the chart asks, or the whole digest."""
    if traits.asked_apis is None:
        return digest
    served = set(api_versions) if traits.asked_apis else set()
    return ",".join(f"{name}={name in served}" for name in traits.asked_apis)


def changed_words(before: JsonValue, after: JsonValue) -> frozenset[str]:
    """Returns the keys on the way to everything that differs between two sets of values, without the outermost."""
    return frozenset(word for path in _changed_paths(before, after) for word in path[1:])


def _changed_paths(before: JsonValue, after: JsonValue) -> Iterator[tuple[str, ...]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before.keys() | after.keys():
            yield from ((key, *path) for path in _changed_paths(before.get(key), after.get(key)))
    elif before != after:
        yield ()


def _traits(units: Iterable[_Unit]) -> ChartTraits:
    found = list(units)
    draws = {f"{unit.path}: {word}" for unit in found for word in unit.words & _DRAWING}
    asked = tuple(sorted({name for unit in found for name in unit.asked}))
    return ChartTraits(
        reads_cluster=any("lookup" in unit.words for unit in found),
        draws=tuple(sorted(draws)),
        asked_apis=None if any(unit.asks_unknown for unit in found) else asked,
        expands=any("tpl" in unit.words for unit in found),
    )


def _reach(roots: Iterable[_Unit], named: dict[str, list[_Unit]]) -> list[_Unit]:
    waiting, reached, seen = list(roots), [], set[int]()
    while waiting:
        unit = waiting.pop()
        if id(unit) in seen:
            continue
        seen.add(id(unit))
        reached.append(unit)
        names = named if unit.calls_unknown else unit.called
        waiting += [callee for name in names for callee in named.get(name, ())]
    return reached


def _read(path: str, text: str, named: dict[str, list[_Unit]]) -> _Unit:
    """Reads one file: adds its named templates to `named`, returns the rest."""
    top = _Unit(path)
    open_units = [top]
    for body in _actions(text):
        words = _WORD.findall(_STRING.sub(" ", body))
        first = words[0] if words else ""
        if first == "end" and len(open_units) > 1:
            open_units.pop()
        elif first in {"define", "block"}:
            unit, name = _Unit(path), _string(_STRING.search(body))
            named.setdefault(name, []).append(unit)
            if first == "block":
                open_units[-1].called.add(name)
            open_units.append(unit)
        else:
            _note(open_units[-1], body, words)
            if first in _OPENING:
                open_units.append(open_units[-1])
    return top


def _actions(text: str) -> Iterator[str]:
    return (_COMMENT.sub("", match[1]).strip("- \t\r\n") for match in _ACTION.finditer(text))


def _note(unit: _Unit, body: str, words: list[str]) -> None:
    unit.words.update(words)
    called, asked = _CALLED.findall(body), _ASKED.findall(body)
    unit.called.update(name for pair in called for name in pair if name)
    unit.asked.update(name for pair in asked for name in pair if name)
    unit.calls_unknown |= sum(word in _CALLS for word in words) > len(called)
    unit.asks_unknown |= len(_ASKS.findall(_STRING.sub(" ", body))) > len(asked)


def _string(match: re.Match[str] | None) -> str:
    return (match[1] or match[2] or "") if match else ""
