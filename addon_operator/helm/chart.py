"""A chart on disk: its digest, traits and CRDs, and the chart that is made up for a module without `Chart.yaml`.

Reads files only; what a chart renders to is helm's business. Subcharts count, unpacked ones and archives alike.
Source: contract.md 2.11, 2.12.
"""

from __future__ import annotations

import dataclasses
import os
import re
import tarfile
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath

from addon_operator.documents import jsondoc, yamldoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import ModuleError
from addon_operator.files.digests import FileDigests
from addon_operator.helm.traits import ChartTraits, scan_chart
from addon_operator.helm.values_schema import ClosedRoot, closed_root, without_disallowed

_YAML = frozenset({".yaml", ".yml"})
_ARCHIVES = (".tgz", ".tar.gz")
_LARGEST_FILE = 16 * 2**20
_HOOK = b"helm.sh/hook"
_INSTALLS = re.compile(rb"helm\.sh/hook(?![\w-])[^\n]*\b(?:pre|post)-install\b")
_SCHEMA = "values.schema.json"
_NEVER_EXPANDED = frozenset({"crds", "docs", "hooks", "images", "openapi"})
_NOT_IN_SYNTHETIC = frozenset({"crds", "docs", "hooks", "images", "lib"})


@dataclasses.dataclass(frozen=True, slots=True)
class _File:
    """A file of a chart; inside of an archive, `path` is below the archive's own."""

    path: PurePosixPath
    data: bytes

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


class ChartReader:
    """Reads charts and remembers what has not changed since."""

    def __init__(self) -> None:
        self._digests = FileDigests()
        self._traits: dict[Path, tuple[str, ChartTraits]] = {}
        self._schemas: dict[Path, tuple[str, ClosedRoot | None]] = {}

    def digest(self, module_dir: Path) -> str:
        """Returns a digest over names and contents of all files of a chart; an unchanged file is not read again.

        Raises:
            ModuleError: a file cannot be read.
        """
        parts: list[bytes] = []
        for name, path in _walk(module_dir):
            parts += [name.encode("utf-8", "surrogateescape"), self._file_digest(path)]
        return jsondoc.digest_bytes(*parts)

    def traits(self, module_dir: Path, digest: str, values: JsonObject) -> ChartTraits:
        """Returns what the chart's rendering depends on.

        Args:
            module_dir: the chart.
            digest: its digest.
            values: what helm will get; looked at if the chart expands templates in values.

        Raises:
            ModuleError: a file or an archive cannot be read.
        """
        known, traits = self._traits.get(module_dir, ("", ChartTraits()))
        if known != digest:
            traits = _scan(module_dir, None)
            self._traits[module_dir] = (digest, traits)
        text = jsondoc.dumps(values)
        if traits.expands and b"{{" in text:
            traits = _scan(module_dir, text.decode())
        if _HOOK not in text:
            return traits
        installs = traits.has_install_hooks or _INSTALLS.search(text) is not None
        return dataclasses.replace(traits, has_hooks=True, has_install_hooks=installs)

    def without_disallowed(self, module_dir: Path, digest: str, values: JsonObject) -> JsonObject:
        """Returns values without what a `values.schema.json` with a closed root cannot take although it says nothing.

        Args:
            module_dir: the chart.
            digest: its digest.
            values: what helm shall get.

        Raises:
            ModuleError: the schema cannot be read.
        """
        known, root = self._schemas.get(module_dir, ("", None))
        if known != digest:
            root = closed_root(_schema(module_dir))
            self._schemas[module_dir] = (digest, root)
        return without_disallowed(root, values)

    def mentions(self, module_dir: Path, words: Collection[str]) -> bool:
        """Returns whether a template of the chart mentions one of these words.

        Raises:
            ModuleError: a file or an archive cannot be read.
        """
        wanted = re.compile(rb"\b(?:%s)\b" % b"|".join(re.escape(word.encode()) for word in words))
        return bool(words) and any(wanted.search(file.data) for file in _files(module_dir, "templates"))

    def forget(self, module_dir: Path) -> None:
        """Drops what is remembered of a chart: its directory is gone."""
        self._digests.forget(module_dir)
        self._traits.pop(module_dir, None)
        self._schemas.pop(module_dir, None)

    def _file_digest(self, path: Path) -> bytes:
        try:
            return self._digests.digest(path)
        except OSError as error:
            raise ModuleError(f"{path}: {error.strerror}") from error


def prepare_chart(module_dir: Path, name: str, directory: Path) -> Path:
    """Returns the directory that helm can take for the module's chart.

    Args:
        module_dir: the module.
        name: of the module.
        directory: an existing directory of this run; a module without `Chart.yaml` gets its chart made up there, of
            links to its files.

    Source: contract.md 2.12 (Chart-less).
    """
    if (module_dir / "Chart.yaml").is_file():
        return module_dir
    chart = directory / "chart"
    chart.mkdir(mode=0o700)
    (chart / "Chart.yaml").write_text(yamldoc.dump({"apiVersion": "v2", "name": name, "version": "0.2.0"}))
    for entry in sorted(module_dir.iterdir()):
        if entry.name not in _NOT_IN_SYNTHETIC:
            (chart / entry.name).symlink_to(entry.absolute())
    return chart


def chart_files(chart: Path) -> Iterator[Path]:
    """Yields all files of a chart; helm stores them in every release, unless `.helmignore` names them.

    Raises:
        ModuleError: a directory cannot be read.
    """
    return (path for _, path in _walk(chart))


def crd_documents(module_dir: Path, prefixes: Collection[str]) -> Iterator[tuple[str, JsonObject]]:
    """Yields file and content of each document in `crds/` of a chart and its subcharts, in order of file names.

    Args:
        module_dir: the chart, or a module without one.
        prefixes: files whose names start with one of these are left out.

    Raises:
        ModuleError: a file cannot be read.
        InputError: a file is not YAML; names file and line.

    Source: contract.md 1.4 (`crds/`), users.md 16.
    """
    for file in _files(module_dir, "crds"):
        if file.path.suffix in _YAML and not file.path.name.startswith(tuple(prefixes)):
            where = f"{module_dir.name}/{file.path}"
            for document in yamldoc.load_all(file.text, where):
                if not isinstance(document, dict):
                    raise ModuleError(f"{where}: a document is not a map")
                yield where, document


def _schema(module_dir: Path) -> JsonValue:
    """Reads the schema of the chart; None if there is none, or helm will say what is wrong with it."""
    path = module_dir / _SCHEMA
    try:
        return jsondoc.loads(path.read_bytes()) if path.is_file() else None
    except ValueError:
        return None
    except OSError as error:
        raise ModuleError(f"{path}: {error.strerror}") from error


def _scan(module_dir: Path, values: str | None) -> ChartTraits:
    templates = ((str(file.path), file.text) for file in _files(module_dir, "templates"))
    traits = scan_chart(templates, _expandable(module_dir, values))
    hooks = any(_HOOK in data for data in _contents(module_dir))
    installs = hooks and any(_INSTALLS.search(file.data) for file in _files(module_dir, "templates"))
    return dataclasses.replace(traits, has_hooks=hooks, has_install_hooks=installs)


def _expandable(module_dir: Path, values: str | None) -> Iterator[tuple[str, str]]:
    """Yields what `tpl` may be given; read only if it is asked for."""
    if values is not None:
        yield "values", values
    for name, path in _walk(module_dir):
        parts = PurePosixPath(name).parts
        if "templates" not in parts[:-1] and parts[0] not in _NEVER_EXPANDED and not name.endswith((".md", *_ARCHIVES)):
            try:
                yield name, path.read_text("utf-8", "replace")
            except OSError as error:
                raise ModuleError(f"{path}: {error.strerror}") from error


def _contents(module_dir: Path) -> Iterator[bytes]:
    """Yields the contents of all files, those in archives included."""
    for name, path in _walk(module_dir):
        try:
            yield path.read_bytes()
            if name.endswith(_ARCHIVES) and name.startswith("charts/"):
                yield from (file.data for file in _archived(path, PurePosixPath(name), ""))
        except OSError as error:
            raise ModuleError(f"{path}: {error.strerror}") from error


def _files(module_dir: Path, folder: str) -> Iterator[_File]:
    """Yields the files in a folder of a chart and its subcharts, in order of names."""
    for name, path in _walk(module_dir):
        place = PurePosixPath(name)
        try:
            if _in_folder(place, folder):
                yield _File(place, path.read_bytes())
            elif place.name.endswith(_ARCHIVES) and _chart_of(place.parts[:-1]) == ("charts",):
                yield from _archived(path, place, folder)
        except OSError as error:
            raise ModuleError(f"{path}: {error.strerror}") from error


def _chart_of(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Removes the leading `charts/NAME` pairs: what is left is a path inside of one chart."""
    while len(parts) > 2 and parts[0] == "charts":
        parts = parts[2:]
    return parts


def _in_folder(place: PurePosixPath, folder: str) -> bool:
    inside = _chart_of(place.parts)
    return len(inside) > 1 and inside[0] == folder


def _archived(path: Path, place: PurePosixPath, folder: str) -> Iterator[_File]:
    """Yields files of an archived subchart, all if no folder is given; its members start with the name of the chart."""
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in sorted(archive.getmembers(), key=lambda member: member.name):
                inside = PurePosixPath(*PurePosixPath(member.name).parts[1:])
                if member.isfile() and member.size <= _LARGEST_FILE and (not folder or _in_folder(inside, folder)):
                    data = archive.extractfile(member)
                    assert data is not None
                    yield _File(place / inside, data.read())
    except (tarfile.TarError, EOFError) as error:
        raise ModuleError(f"{path}: not a chart archive: {error}") from error


def _walk(directory: Path) -> Iterator[tuple[str, Path]]:
    """Yields all files below a directory with their relative names, sorted; links are followed, never in a circle."""
    yield from _walk_into(directory, "", frozenset())


def _walk_into(directory: Path, prefix: str, above: frozenset[str]) -> Iterator[tuple[str, Path]]:
    real = os.path.realpath(directory)
    if real in above:
        return
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError as error:
        raise ModuleError(f"{directory}: {error.strerror}") from error
    for entry in entries:
        if entry.is_dir():
            yield from _walk_into(Path(entry.path), f"{prefix}{entry.name}/", above | {real})
        elif entry.is_file():
            yield f"{prefix}{entry.name}", Path(entry.path)
