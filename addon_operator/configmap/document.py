"""The content of the operator's ConfigMap: read it, compare two states, write a changed section into it.

Pure. Reading from and writing to the cluster is the part of `source`.

Source: contract.md 2.8.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping

from addon_operator.documents import jsondoc, yamldoc
from addon_operator.documents.jsondoc import JsonValue
from addon_operator.errors import ConfigMapError
from addon_operator.values import layers
from addon_operator.values.layers import ENABLED_SUFFIX, GLOBAL

MAINTENANCE_SUFFIX = "Maintenance"
"""What follows the section key in the name of a maintenance flag."""

_SHOWN_KEYS = 5
_SHOWN_PROBLEMS = 20

NO_RECONCILIATION = "NoResourceReconciliation"
"""The only maintenance mode: helm is left alone."""


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigDocument:
    """The content of a ConfigMap.

    Attributes:
        sections: section key -> its content, a map or a list; also of modules that are not known.
        flags: section key -> enable flag.
        maintenance: section key -> maintenance mode; keys without one are left out.
        warnings: what is probably a mistake, one line each.
        exists: whether there is a ConfigMap; what a missing one does not set is nobody's decision.
    """

    sections: Mapping[str, JsonValue] = dataclasses.field(repr=False)
    flags: Mapping[str, bool]
    maintenance: Mapping[str, str]
    warnings: tuple[str, ...] = ()
    exists: bool = True

    def with_changes(self, sections: Mapping[str, JsonValue], flags: Mapping[str, bool | None]) -> ConfigDocument:
        """Returns the document after `to_data` has written the same changes."""
        kept = {key: flag for key, flag in {**self.flags, **flags}.items() if flag is not None}
        return dataclasses.replace(self, sections={**self.sections, **sections}, flags=kept, exists=True)


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigChange:
    """How two documents differ; an empty section is the same as none.

    Attributes:
        global_changed: whether the section `global` changed.
        sections: keys of other sections that changed.
        flags: section keys whose enable flag changed.
        maintenance: section keys whose maintenance mode changed.
    """

    global_changed: bool
    sections: frozenset[str]
    flags: frozenset[str]
    maintenance: frozenset[str]

    @property
    def empty(self) -> bool:
        """Whether nothing differs."""
        return not (self.global_changed or self.sections or self.flags or self.maintenance)


def empty_document() -> ConfigDocument:
    """Returns the document of a ConfigMap that does not exist."""
    return ConfigDocument({}, {}, {}, exists=False)


def parse(data: Mapping[str, str], *, where: str, known: Collection[str]) -> ConfigDocument:
    """Reads a ConfigMap.

    Args:
        data: its data.
        where: what messages call it, such as `ConfigMap ns/name`.
        known: section keys of the modules that exist.

    Raises:
        ConfigMapError: a key that is no camelCase name, a section that is not YAML or neither map nor list, a flag that
            is neither "true" nor "false"; all problems, each with the key, and with the line where there is one.
    """
    reader = _Reader(where, frozenset(known))
    for key, text in data.items():
        reader.read(key, text)
    if reader.problems:
        shown, left = reader.problems[:_SHOWN_PROBLEMS], reader.problems[_SHOWN_PROBLEMS:]
        raise ConfigMapError("\n".join([*shown, *([f"{where}: {len(left)} more problems"] if left else [])]))
    # An explicit flag is stronger than the old form, whichever comes first.
    flags = reader.bare_flags | reader.flags
    return ConfigDocument(reader.sections, flags, reader.maintenance, (*reader.warnings, *reader.unknown()))


def diff(old: ConfigDocument, new: ConfigDocument) -> ConfigChange:
    """Returns how two documents differ."""
    keys = frozenset(old.sections) | frozenset(new.sections)
    changed = {key for key in keys if not _same(old.sections.get(key, {}), new.sections.get(key, {}))}
    return ConfigChange(
        global_changed=GLOBAL in changed,
        sections=frozenset(changed - {GLOBAL}),
        flags=_differing(old.flags, new.flags),
        maintenance=_differing(old.maintenance, new.maintenance),
    )


def to_data(
    data: Mapping[str, str], sections: Mapping[str, JsonValue], flags: Mapping[str, bool | None]
) -> dict[str, str]:
    """Returns the data with some sections and enable flags changed; all other keys stay byte for byte.

    Args:
        data: the data as it is.
        sections: section key -> its new content; a text with the same content is kept, too.
        flags: section key -> its new enable flag; None removes it.
    """
    written = dict(data)
    for key, value in sections.items():
        text = data.get(key, "")
        bare = _bare_flag(text)
        if bare is not None:
            # The old form of a flag makes room for the section.
            written.setdefault(key + ENABLED_SUFFIX, str(bare).lower())
        if not _says(text, value):
            written[key] = yamldoc.dump(value)
    for key, flag in flags.items():
        if flag is not None:
            written[key + ENABLED_SUFFIX] = str(flag).lower()
        else:
            written.pop(key + ENABLED_SUFFIX, None)
            if _bare_flag(data.get(key, "")) is not None and key not in sections:
                written.pop(key, None)
    return written


class _Reader:
    """Collects the content of a ConfigMap, key by key."""

    def __init__(self, where: str, known: frozenset[str]) -> None:
        self.sections: dict[str, JsonValue] = {}
        self.flags: dict[str, bool] = {}
        self.bare_flags: dict[str, bool] = {}
        self.maintenance: dict[str, str] = {}
        self.warnings: list[str] = []
        self.problems: list[str] = []
        self._unknown: dict[str, str] = {}
        self._where = where
        self._known = known | {GLOBAL}

    def read(self, key: str, text: str) -> None:
        """Takes one key. A known module comes first: `nodeMaintenance` may be the section of `node-maintenance`."""
        enabled = layers.flag_section(key)
        maintained = key.removesuffix(MAINTENANCE_SUFFIX)
        if key in self._known:
            self._section(key, text)
        elif enabled is not None:
            self._note_unknown(enabled, key)
            self._flag(enabled, key, text)
        elif maintained != key and (maintained in self._known or text.strip() in {"", NO_RECONCILIATION}):
            self._note_unknown(maintained, key)
            self._maintenance(maintained, key, text)
        elif layers.is_section_key(key):
            self._note_unknown(key, key)
            self._section(key, text)
        else:
            self._problem(key, f"bad module name, it should be camelCased, such as {_camel(key)!r}")

    def unknown(self) -> Iterator[str]:
        """Yields one warning about all keys of modules that do not exist."""
        keys = sorted(self._unknown)
        if len(set(self._unknown.values())) == 1:
            yield f"{self._place(keys[0])}: there is no module {self._unknown[keys[0]]!r}"
        elif keys:
            left = f" and {len(keys) - _SHOWN_KEYS} more" if len(keys) > _SHOWN_KEYS else ""
            yield f"{self._where}: {len(keys)} keys of modules that do not exist: {', '.join(keys[:_SHOWN_KEYS])}{left}"

    def _section(self, key: str, text: str) -> None:
        place = self._place(key)
        try:
            document = yamldoc.load(text, place)
        except yamldoc.YamlError as error:
            self.problems.append(str(error))
            return
        self.warnings.extend(document.warnings)
        if document.value is None or isinstance(document.value, dict | list):
            self.sections[key] = {} if document.value is None else document.value
        elif isinstance(document.value, bool) and key != GLOBAL:
            self.bare_flags[key] = document.value
            self.warnings.append(f"{place}: used as an enable flag; its key should be {key + ENABLED_SUFFIX!r}")
        else:
            self.problems.append(f"{place}:1: must be a map or a list")

    def _flag(self, section: str, key: str, text: str) -> None:
        flag = layers.parse_flag(text.strip())
        if flag is None:
            self._problem(key, 'must be "true" or "false"')
        else:
            self.flags[section] = flag

    def _maintenance(self, section: str, key: str, text: str) -> None:
        mode = text.strip()
        if mode not in {"", NO_RECONCILIATION}:
            self._problem(key, f"must be empty or {NO_RECONCILIATION!r}")
        elif mode:
            self.maintenance[section] = mode

    def _note_unknown(self, section: str, key: str) -> None:
        if section == GLOBAL or section not in self._known:
            self._unknown[key] = layers.module_name(section)

    def _problem(self, key: str, problem: str) -> None:
        self.problems.append(f"{self._place(key)}: {problem}")

    def _place(self, key: str) -> str:
        return f"{self._where}, key {key}"


def _camel(key: str) -> str:
    return layers.section_key(layers.module_name(key).lstrip("-"))


def _bare_flag(text: str) -> bool | None:
    try:
        value = yamldoc.load(text, "").value
    except yamldoc.YamlError:
        return None
    return value if isinstance(value, bool) else None


def _says(text: str, value: JsonValue) -> bool:
    try:
        written = yamldoc.load(text, "").value
        return _same({} if written is None else written, value)
    except (yamldoc.YamlError, ValueError):
        return False


def _same(first: JsonValue, second: JsonValue) -> bool:
    """Unlike Python's equality, this distinguishes true from 1."""
    return jsondoc.digest(first) == jsondoc.digest(second)


def _differing(old: Mapping[str, object], new: Mapping[str, object]) -> frozenset[str]:
    return frozenset(key for key in {*old, *new} if old.get(key) != new.get(key))
