"""Finds the hooks of a directory and asks each for its configuration (contract.md 2.1).

Called at the start for the global hooks and at the start of each module run for the module's own.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from addon_operator.errors import HookConfigError
from addon_operator.files.digests import FileDigests, Identity
from addon_operator.hooks.call import HookId
from addon_operator.hooks.config.model import HookConfig
from addon_operator.hooks.engine import HookEngine
from addon_operator.hooks.hook import Hook, LoadedHooks

# `venv` holds the interpreter of Python hooks: contract.md 1.1.
_SKIPPED_DIRECTORIES: Final = frozenset({"lib", "venv"})
_SKIPPED_SUFFIXES: Final = frozenset({".yaml", ".json", ".md", ".txt"})

_State: TypeAlias = tuple[Identity, bytes]


@dataclass(frozen=True, slots=True)
class HookFile:
    """An executable file in a place where hooks are."""

    path: Path
    name: str


def global_root(directory: Path) -> Path:
    """Returns where global hooks are: in `hooks` below the directory if that exists, else in the directory itself."""
    below = directory / "hooks"
    return below if below.is_dir() else directory


def hook_name(path: Path, root: Path) -> str:
    """Returns a hook's name: from the first `hooks` directory on, else relative to the root it was found in."""
    _, found, rest = str(path).partition("/hooks/")
    return f"hooks/{rest}" if found else str(path.relative_to(root))


def find_hooks(root: Path) -> tuple[tuple[HookFile, ...], tuple[str, ...]]:
    """Finds hook files, sorted by path, and warnings about files that are not executable.

    A root that does not exist holds no hooks. Hidden names, directories `lib` and `venv`, documents (.yaml, .json, .md,
    .txt) and symbolic links are ignored.

    Raises:
        HookConfigError: a directory cannot be read.
    """
    hooks: list[HookFile] = []
    warnings: list[str] = []
    try:
        found = sorted((str(path), path, path.lstat().st_mode) for path in _files(root)) if root.is_dir() else []
    except OSError as error:
        raise HookConfigError(f"{error.filename}: hooks cannot be searched: {error.strerror}") from error
    for _, path, mode in found:
        if stat.S_ISLNK(mode):
            warnings.append(f"{path}: ignored: a symbolic link is not a hook")
        elif not mode & 0o111:
            warnings.append(f"{path}: ignored: not executable")
        else:
            hooks.append(HookFile(path, hook_name(path, root)))
    return tuple(hooks), tuple(warnings)


def _files(directory: Path) -> Iterator[Path]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in _SKIPPED_DIRECTORIES:
                    yield from _files(path)
            elif _may_be_hook(entry) and path.suffix not in _SKIPPED_SUFFIXES:
                yield path


def _may_be_hook(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False) or (entry.is_symlink() and entry.is_file())


class HookCatalog:
    """Loads hooks; remembers the configuration of each file until the file changes."""

    def __init__(self, engine: HookEngine, *, parallelism: int | None = None) -> None:
        """Prepares; reads nothing.

        Args:
            engine: runs `--config`.
            parallelism: how many at once over all scopes; the number of processors by default.
        """
        self._engine = engine
        self._slots = asyncio.Semaphore(parallelism or len(os.sched_getaffinity(0)))
        self._digests = FileDigests()
        self._known: dict[HookFile, tuple[_State, HookConfig]] = {}

    async def load(self, root: Path, *, module: str | None) -> LoadedHooks:
        """Finds the hooks below a directory and asks them for their configuration, several at once.

        Args:
            root: `<module>/hooks`, or `global_root(...)`.
            module: whose they are; None for global hooks.

        Raises:
            HookConfigError: a directory cannot be read.
        """
        found, warnings = find_hooks(root)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._load(file, HookId(module, file.name)), name=f"--config of {file.path}")
                for file in found
            ]
        results = [task.result() for task in tasks]
        return LoadedHooks(
            tuple(result for result in results if isinstance(result, Hook)),
            warnings,
            tuple(str(result) for result in results if isinstance(result, HookConfigError)),
        )

    def forget(self, directory: Path) -> None:
        """Forgets the configurations of the hooks below a directory that is gone."""
        self._known = {file: known for file, known in self._known.items() if not file.path.is_relative_to(directory)}
        self._digests.forget(directory)

    async def _load(self, file: HookFile, hook: HookId) -> Hook | HookConfigError:
        async with self._slots:
            try:
                config = await self._config(file, hook)
            except HookConfigError as error:
                return error
            except OSError as error:
                return HookConfigError(f"{hook}: {file.path}: {error.strerror}")
        return Hook(hook, file.path, config)

    async def _config(self, file: HookFile, hook: HookId) -> HookConfig:
        # The identity as well: another file with the same content comes with other files that it may read.
        state = Identity.of(file.path), self._digests.digest(file.path)
        known = self._known.get(file)
        if known is not None and known[0] == state:
            return known[1]
        config = await self._engine.configure(file.path, hook, "global" if hook.module is None else "module")
        self._known[file] = (state, config)
        return config
