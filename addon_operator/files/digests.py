"""Whether a file is still the one that was read: its content decides.

Time and size do not tell: git-sync and its like put another commit in the place of the former one, whose files may have
equal times and sizes. So what is kept of a file is a digest of its content, for exactly the file that it was read from:
the same inode that nobody has written to since. Nobody can set the time of the last change of an inode (ctime), but the
kernel's clock is coarse: a file that has just been changed is read again the next time.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, Self

_SETTLED_NS: Final = 2 * 10**9


class Identity(NamedTuple):
    """Identifies a file and its state; two states of one file may be equal within a moment of a change.

    Attributes:
        device: the file system.
        inode: the file in it.
        changed_ns: when content or attributes were last changed (ctime).
        modified_ns: when the content was last modified, as far as its writer says.
        size: in bytes.
        mode: type and permissions.
    """

    device: int
    inode: int
    changed_ns: int
    modified_ns: int
    size: int
    mode: int

    @classmethod
    def of(cls, path: Path) -> Self:
        """Reads it; follows symbolic links.

        Raises:
            OSError: there is no such file, or it cannot be reached.
        """
        found = path.stat()
        return cls(found.st_dev, found.st_ino, found.st_ctime_ns, found.st_mtime_ns, found.st_size, found.st_mode)


class FileDigests:
    """Digests of the content of files; reads a file again only if it may have changed.

    Args:
        now_ns: the clock that the kernel dates changes by.
    """

    def __init__(self, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._now_ns = now_ns
        self._known: dict[Path, tuple[Identity, bytes]] = {}

    def digest(self, path: Path) -> bytes:
        """Returns the digest of a file's content; follows symbolic links.

        Raises:
            OSError: it cannot be read.
        """
        now_ns = self._now_ns()
        identity = Identity.of(path)
        known = self._known.get(path)
        if known is not None and known[0] == identity:
            return known[1]
        digest = hashlib.sha256(path.read_bytes()).digest()
        # What is written later than two seconds after `changed_ns` cannot have the same one.
        if identity.changed_ns < now_ns - _SETTLED_NS:
            self._known[path] = identity, digest
        else:
            self._known.pop(path, None)
        return digest

    def forget(self, directory: Path) -> None:
        """Drops what is kept of the files below a directory."""
        self._known = {path: known for path, known in self._known.items() if not path.is_relative_to(directory)}
