"""Section names, the static layers of values.yaml files, and where a value came from.

Pure. A section is `global` or the values of one module. Its static part is a stack of layers, lowest first. The store
lays schema defaults, the ConfigMap and the patches of hooks on top of it. Reading files is the caller's part.

Source: contract.md 2.7.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Literal

from addon_operator.documents import jsondoc, yamldoc
from addon_operator.documents.jsondoc import JsonValue
from addon_operator.errors import ModuleError

GLOBAL = "global"
"""The key of the section that every module sees."""

ENABLED_SUFFIX = "Enabled"
"""What follows the section key in the name of an enable flag."""

CONFIG_MAP_SOURCE = "ConfigMap"
"""The `EnableFlag.source` of flags in the operator's ConfigMap."""

VALUES_FILE_SOURCE = "values file"
"""The `EnableFlag.source` of flags in values.yaml files."""

_KEY = re.compile(r"[a-z0-9][A-Za-z0-9]*")


@dataclasses.dataclass(frozen=True, slots=True)
class StaticLayer:
    """One section of one values.yaml.

    Attributes:
        value: a map or a list.
        file: the file as messages shall name it.
        lines: JSON pointer in the whole file (`/simpleModule/param`) -> line from 1.
        chart: this file is also the chart's own values.yaml, which helm merges below the values that it gets.
    """

    value: JsonValue = dataclasses.field(repr=False)
    file: str
    lines: Mapping[str, int] = dataclasses.field(repr=False)
    chart: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class EnableFlag:
    """One place that enables or disables a module.

    Attributes:
        value: true to enable.
        source: the kind of place: `values file`, `global hook`, `ConfigMap`.
        place: the place itself: `modules/values.yaml:4`, `addon-operator/addon-operator, key fooEnabled`.
    """

    value: bool
    source: str
    place: str

    def __str__(self) -> str:
        return f"{self.source} {self.place}".rstrip()


@dataclasses.dataclass(frozen=True, slots=True)
class EnabledBy:
    """What is recorded of a module that is enabled, to find out later what has changed.

    Attributes:
        flags: source -> value of its enable flag.
        config_map: uid of the operator's ConfigMap; empty if there is none.
    """

    flags: Mapping[str, bool] = dataclasses.field(default_factory=dict)
    config_map: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class ValuesFile:
    """The content of one values.yaml.

    Attributes:
        layers: section key -> its layer.
        flags: section key (without the suffix) -> its enable flag.
        warnings: what was ignored or may be meant otherwise, one line each.
    """

    layers: Mapping[str, StaticLayer]
    flags: Mapping[str, EnableFlag]
    warnings: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Origin:
    """Where one value came from.

    Attributes:
        source: file, configmap, default (of a schema) or hook.
        where: the file, the key in the ConfigMap, the schema file, or the hook.
        line: in the file, from 1; None for other sources and if it is not known.
        at: when the hook's patch was committed; None for other sources.
    """

    source: Literal["file", "configmap", "default", "hook"]
    where: str
    line: int | None = None
    at: datetime | None = None

    def __str__(self) -> str:
        if self.source == "configmap":
            return f"ConfigMap key {self.where}"
        if self.source == "default":
            return f"default in {self.where}"
        if self.source == "hook":
            return f"hook {self.where}" + (f" at {self.at.isoformat(timespec='seconds')}" if self.at else "")
        return self.where if self.line is None else f"{self.where}:{self.line}"


def section_key(module: str) -> str:
    """Returns the section key of a module: `l2-load-balancer` -> `l2LoadBalancer`."""
    first, *others = re.split(r"[-_. ]", module)
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def module_name(key: str) -> str:
    """Returns the name of the module of a section key: `l2LoadBalancer` -> `l2-load-balancer`."""
    return re.sub(r"[A-Z]", lambda upper: "-" + upper.group().lower(), key)


def enabled_key(module: str) -> str:
    """Returns the key of a module's enable flag: `simple-module` -> `simpleModuleEnabled`."""
    return section_key(module) + ENABLED_SUFFIX


def is_section_key(key: str) -> bool:
    """Returns whether a key has the form of a section key: camelCase that survives conversion to a name and back."""
    return _KEY.fullmatch(key) is not None and section_key(module_name(key)) == key


def flag_section(key: str) -> str | None:
    """Returns the section of an enable flag's key (`fooEnabled` -> `foo`); None if it is no such key."""
    section = key.removesuffix(ENABLED_SUFFIX)
    return section if section != key and is_section_key(section) else None


def parse_flag(value: JsonValue) -> bool | None:
    """Returns the value of an enable flag: a boolean, or its name as a string; None if it is anything else."""
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(value) if isinstance(value, str) else None


def check_module_name(name: str) -> None:
    """Refuses a name whose section would be that of another name as well.

    Raises:
        ModuleError: the name does not survive the way to camelCase and back, or its section key has another meaning.

    Source: contract.md 2.7 "Key name".
    """
    key = section_key(name)
    if _KEY.fullmatch(key) is None or module_name(key) != name:
        raise ModuleError(
            f"module {name!r}: the name does not survive camelCase: its values key would be {key!r}, "
            f"which is the key of {module_name(key)!r}"
        )
    if key == GLOBAL or flag_section(key) is not None:
        raise ModuleError(f"module {name!r}: its values key would be {key!r}, which has another meaning")


def merge_layers(layers: Sequence[StaticLayer]) -> JsonValue:
    """Returns the static value of a section; `{}` if no layer has any."""
    merged: JsonValue = {}
    for layer in layers:
        merged = jsondoc.deep_merge(merged, layer.value) if layer.value != {} else merged
    return merged


def parse_values_file(text: str, where: str, module: str | None) -> ValuesFile:
    """Reads a values.yaml.

    Args:
        text: its content.
        where: the file as messages shall name it.
        module: the module whose own file it is: only its section and its flag are taken, the rest belongs to the
            chart. None for the file of a modules directory: all sections and flags are taken.

    Raises:
        ModuleError: not YAML, not a map, a section that is neither a map nor a list, a flag that is no boolean; all of
            them, each with file and line.

    Source: contract.md 2.7 "Static", 2.10.
    """
    document = _load(text, where)
    wanted = None if module is None else {section_key(module), enabled_key(module)}
    layers: dict[str, StaticLayer] = {}
    flags: dict[str, EnableFlag] = {}
    warnings = list(document.warnings)
    problems = []
    for key, value in _items(document, where, wanted):
        line = document.lines.get(jsondoc.join(key), 1)
        flagged = flag_section(key)
        if flagged is not None:
            enabled = parse_flag(value)
            if enabled is None:
                problems.append(f"{where}:{line}: {key} must be true or false")
            else:
                flags[flagged] = EnableFlag(enabled, VALUES_FILE_SOURCE, f"{where}:{line}")
        elif not is_section_key(key):
            warnings.append(f"{where}:{line}: {key} is ignored: it is not the camelCase name of a module")
        elif value is None or isinstance(value, dict | list):
            section = {} if value is None else value
            layers[key] = StaticLayer(section, where, document.lines, chart=module is not None)
        else:
            problems.append(f"{where}:{line}: {key} must be a map or a list")
    if problems:
        raise ModuleError("\n".join(problems))
    return ValuesFile(layers, flags, tuple(warnings))


def _load(text: str, where: str) -> yamldoc.YamlDocument:
    try:
        return yamldoc.load(text, where)
    except yamldoc.YamlError as error:
        raise ModuleError(str(error)) from error


def _items(document: yamldoc.YamlDocument, where: str, wanted: set[str] | None) -> Iterator[tuple[str, JsonValue]]:
    if document.value is None:
        return
    if not isinstance(document.value, dict):
        raise ModuleError(f"{where}:1: must be a map of sections")
    for key, value in document.value.items():
        if wanted is None or key in wanted:
            yield key, value
