"""Reads the module directories and the directory of global hooks: values files, schemas, which files exist.

Hooks are not run here (`hooks/catalog.py`). A module whose files did not change since the last scan is not read again,
so that the scan at every converge costs a few system calls. Source: contract.md 2.7, 2.9, 2.10, 2.11.
"""

from __future__ import annotations

import dataclasses
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from addon_operator.documents import yamldoc
from addon_operator.documents.jsondoc import JsonValue
from addon_operator.errors import AddonOperatorError, ModuleError
from addon_operator.files.digests import FileDigests
from addon_operator.modules.module import Module, split_directory_name
from addon_operator.values.layers import (
    EnableFlag,
    StaticLayer,
    ValuesFile,
    check_module_name,
    module_name,
    parse_values_file,
    section_key,
)
from addon_operator.values.schema import SectionSchemas, parse_schemas
from addon_operator.values.store import SectionSpec

_SCHEMA_FILES = ("openapi/config-values.yaml", "openapi/values.yaml")
_IGNORED_FILES = {"values.yaml", "README.md", ".gitkeep"}


@dataclasses.dataclass(frozen=True, slots=True)
class Scan:
    """What all directories hold.

    Attributes:
        modules: in run order.
        global_section: static global values and their schemas.
        warnings: what was skipped and why, one line each.
    """

    modules: tuple[Module, ...]
    global_section: SectionSpec
    warnings: tuple[str, ...]

    @property
    def sections(self) -> Mapping[str, SectionSpec]:
        """All sections of values by key, `global` among them."""
        return {"global": self.global_section} | {module.key: module.section for module in self.modules}


@dataclasses.dataclass(frozen=True, slots=True)
class _Common:
    """`values.yaml` of the modules directories, merged in order."""

    layers: Mapping[str, tuple[StaticLayer, ...]]
    flags: Mapping[str, tuple[EnableFlag, ...]]


@dataclasses.dataclass(frozen=True, slots=True)
class _State:
    """What decides how a directory is read; equal states are read to equal results.

    Attributes:
        names: of what is in it; None if it cannot be listed.
        enabled: whether its `enabled` file is executable.
        contents: digest of each file that is read; None if there is none that can be read.
    """

    names: frozenset[str] | None
    enabled: bool
    contents: tuple[bytes | None, ...]


class ModuleLoader:
    """Scans the directories; keeps what it read for the next scan."""

    def __init__(
        self, *, modules_dirs: Sequence[Path], global_hooks_dir: Path, default_order: int, strict_values: bool
    ) -> None:
        self._modules_dirs = tuple(modules_dirs)
        self._global_hooks_dir = global_hooks_dir
        self._default_order = default_order
        self._strict_values = strict_values
        self._digests = FileDigests()
        self._cache: dict[Path, tuple[_State, _Common, Module, tuple[str, ...]]] = {}
        self._global: tuple[_State, SectionSpec] | None = None

    def scan(self) -> Scan:
        """Reads everything that changed.

        Raises:
            ModuleError: all that is wrong, one line for each problem, each naming its file.
        """
        problems: list[str] = []
        warnings: list[str] = []
        common = self._common(problems, warnings)
        found: dict[str, Module] = {}
        directories = tuple(self._module_directories(problems, warnings))
        for gone in self._cache.keys() - set(directories):
            del self._cache[gone]
            self._digests.forget(gone)
        for directory in directories:
            try:
                module = self._module(directory, common, warnings)
            except AddonOperatorError as error:
                problems.append(str(error))
                continue
            except OSError as error:
                problems.append(f"{error.filename}: cannot be read: {error.strerror}")
                continue
            if module.name in found:
                warnings.append(f"{directory}: module {module.name} is already at {found[module.name].path}, skipped")
            else:
                found[module.name] = module
        warnings += _flags_of_nobody(common, {module.key for module in found.values()})
        section = self._global_section(common, problems)
        if problems or section is None:
            raise ModuleError("\n".join(problems))
        return Scan(tuple(sorted(found.values(), key=lambda module: module.sort_key)), section, tuple(warnings))

    def names(self) -> frozenset[str]:
        """Lists the names that modules would have of everything in the directories: broken links and files, too.

        Raises:
            ModuleError: a directory cannot be read; names the first one.
        """
        entries = [entry for directory in self._modules_dirs for entry in _entries(directory)]
        return frozenset(split_directory_name(entry.name, self._default_order)[1] for entry in entries)

    def _common(self, problems: list[str], warnings: list[str]) -> _Common:
        layers: dict[str, tuple[StaticLayer, ...]] = {}
        flags: dict[str, tuple[EnableFlag, ...]] = {}
        for directory in self._modules_dirs:
            path = directory / "values.yaml"
            if not os.path.isfile(path):  # noqa: PTH113 -- answers also where the directory must not be searched
                if self._strict_values:
                    problems.append(f"{path}: missing, and strict checking of values files is on")
                continue
            try:
                content = _values_file(path, None, warnings)
            except AddonOperatorError as error:
                problems.append(str(error))
                continue
            for key, layer in content.layers.items():
                layers[key] = (*layers.get(key, ()), layer)
            for key, flag in content.flags.items():
                flags[key] = (*flags.get(key, ()), flag)
        return _Common(layers, flags)

    def _module_directories(self, problems: list[str], warnings: list[str]) -> Iterable[Path]:
        for directory in self._modules_dirs:
            try:
                entries = sorted(_entries(directory), key=lambda entry: entry.name)
            except ModuleError as error:
                problems.append(str(error))
                continue
            for entry in entries:
                try:
                    is_directory = stat.S_ISDIR(entry.stat().st_mode)
                except OSError as error:
                    what = "broken symbolic link" if entry.is_symlink() else "cannot be read"
                    warnings.append(f"{entry.path}: {what} ({error.strerror}), skipped; its release stays")
                    continue
                if is_directory:
                    yield Path(entry.path)
                elif entry.name not in _IGNORED_FILES:
                    warnings.append(f"{entry.path}: not a module directory, skipped")

    def _module(self, directory: Path, common: _Common, warnings: list[str]) -> Module:
        order, name = split_directory_name(directory.name, self._default_order)
        state = self._state(directory, "values.yaml", *_SCHEMA_FILES)
        cached = self._cache.get(directory)
        if cached and cached[0] == state and _same_common(cached[1], common, cached[2].key):
            warnings.extend(cached[3])
            return cached[2]
        try:
            check_module_name(name)
        except ModuleError as error:
            raise ModuleError(f"{directory}: {error}") from error
        own: list[str] = []
        module = _read_module(directory, name, order, common, own)
        self._cache[directory] = (state, common, module, tuple(own))
        warnings.extend(own)
        return module

    def _global_section(self, common: _Common, problems: list[str]) -> SectionSpec | None:
        state = self._state(self._global_hooks_dir, *_SCHEMA_FILES)
        layers = common.layers.get("global", ())
        if self._global is None or self._global[0] != state or self._global[1].static != layers:
            try:
                schemas = _schemas(self._global_hooks_dir)
            except AddonOperatorError as error:
                problems.append(str(error))
                return None
            self._global = (state, SectionSpec("global", layers, schemas))
        return self._global[1]

    def _state(self, directory: Path, *files: str) -> _State:
        try:
            names = frozenset(entry.name for entry in os.scandir(directory))
        except OSError:
            names = None
        enabled = os.access(directory / "enabled", os.X_OK)
        return _State(names, enabled, tuple(self._content(directory / name) for name in files))

    def _content(self, path: Path) -> bytes | None:
        try:
            return self._digests.digest(path)
        except OSError:
            return None


def _flags_of_nobody(common: _Common, keys: Collection[str]) -> Iterator[str]:
    for key, flags in common.flags.items():
        if key not in keys:
            yield from (f"{flag.place}: {key}Enabled: there is no module {module_name(key)!r}" for flag in flags)


def _entries(directory: Path) -> Sequence[os.DirEntry[str]]:
    """Lists what is in a modules directory, hidden files left out."""
    try:
        with os.scandir(directory) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except FileNotFoundError as error:
        raise ModuleError(f"{directory}: no such modules directory; create it or set MODULES_DIR") from error
    except OSError as error:
        raise ModuleError(f"{directory}: cannot be read: {error.strerror}") from error


def _read_module(directory: Path, name: str, order: int, common: _Common, warnings: list[str]) -> Module:
    try:
        names = {entry.name for entry in os.scandir(directory)}
    except OSError as error:
        raise ModuleError(f"{directory}: cannot be read: {error.strerror}") from error
    key = section_key(name)
    own = _values_file(directory / "values.yaml", name, warnings) if "values.yaml" in names else None
    layers = (*common.layers.get(key, ()), *([own.layers[key]] if own and key in own.layers else []))
    flags = (*common.flags.get(key, ()), *([own.flags[key]] if own and key in own.flags else []))
    return Module(
        name=name,
        key=key,
        order=order,
        path=directory,
        has_chart="Chart.yaml" in names,
        has_templates="templates" in names,
        has_hooks="hooks" in names,
        enabled_script=_script(directory / "enabled", warnings) if "enabled" in names else None,
        has_crds=bool(names & {"crds", "charts"}),
        section=SectionSpec(key, layers, _schemas(directory)),
        flags=flags,
        chart_version=_chart_version(directory / "Chart.yaml") if "Chart.yaml" in names else "",
    )


def _chart_version(path: Path) -> str:
    """Reads the version of a chart; one that cannot be read is empty here, and refused by helm."""
    try:
        chart = yamldoc.load(_read(path), str(path)).value
    except AddonOperatorError:
        return ""
    return str(chart.get("version") or "") if isinstance(chart, dict) else ""


def _script(path: Path, warnings: list[str]) -> Path | None:
    if os.access(path, os.X_OK):
        return path
    warnings.append(f"{path}: not executable, so the module counts as enabled; make it executable or remove it")
    return None


def _values_file(path: Path, module: str | None, warnings: list[str]) -> ValuesFile:
    content = parse_values_file(_read(path), str(path), module)
    warnings.extend(content.warnings)
    return content


def _schemas(directory: Path) -> SectionSchemas:
    config, values = (directory / name for name in _SCHEMA_FILES)
    return parse_schemas(_document(config), _document(values), config_file=str(config), values_file=str(values))


def _document(path: Path) -> JsonValue:
    return yamldoc.load(_read(path), str(path)).value if path.exists() else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ModuleError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ModuleError(f"{path}: not UTF-8 text (byte {error.start})") from error


def _same_common(old: _Common, new: _Common, key: str) -> bool:
    return old.layers.get(key) == new.layers.get(key) and old.flags.get(key) == new.flags.get(key)
