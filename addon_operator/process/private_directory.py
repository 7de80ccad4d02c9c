"""Directories that only this process can write to, for files with values.

Other programs remove directories at any time (cleaners of /tmp, a hook), and whoever can write into one decides what is
read from it. So a directory is created and checked before each use, not once at the start.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import stat
import tempfile
from pathlib import Path
from typing import Final

_ATTEMPTS: Final = 3


@dataclasses.dataclass(frozen=True, slots=True)
class PrivateDirectory:
    """A directory that only the user of this process can change; `make` it before each use.

    Attributes:
        path: absolute.
        above: the private directory that contains it; None if a foreign one does, such as /tmp.
    """

    path: Path
    above: PrivateDirectory | None = None

    def below(self, name: str) -> PrivateDirectory:
        """Returns the subdirectory of that name; creates nothing."""
        return PrivateDirectory(self.path / name, self)

    def make(self) -> Path:
        """Creates it (mode 0700) with its parents, unless it exists; returns its path.

        Raises:
            OSError: it cannot be created; or what exists is no directory, is a symbolic link, belongs to another user,
                or others can write to it. `strerror` says which, `filename` names the directory.
        """
        if self.above is not None:
            self.above.make()
        else:
            for parent in reversed([parent for parent in self.path.parents if not parent.exists()]):
                _mkdir(parent)
        _mkdir(self.path)
        _check(self.path)
        return self.path

    def make_unique(self, prefix: str) -> Path:
        """Creates a new subdirectory (mode 0700) whose name begins with a prefix.

        Raises:
            OSError: as `make`.
        """
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._unique(prefix)
            except FileNotFoundError:  # removed in between
                continue
        return self._unique(prefix)

    def _unique(self, prefix: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=prefix, dir=self.make()))


def _mkdir(path: Path) -> None:
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        return


def _check(path: Path) -> None:
    found = path.lstat()
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, "is a symbolic link; name the directory itself", str(path))
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    if found.st_uid != os.geteuid():
        message = f"belongs to the user {found.st_uid}, the operator is {os.geteuid()}; remove it or use another one"
        raise PermissionError(errno.EPERM, message, str(path))
    if mode & 0o022:
        message = f"others can write to it (mode {mode:04o}); remove it, or set its mode to 0700"
        raise PermissionError(errno.EPERM, message, str(path))
    if mode & 0o700 != 0o700:
        path.chmod(0o700)
