"""Commits as git-sync checks them out: a directory for each, and a symbolic link that is flipped to the one in
force."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_INSTANT_NS = 1_700_000_000 * 10**9


class GitSync:
    """A repository of which one commit at a time is in force.

    Attributes:
        link: leads to the commit in force.
    """

    def __init__(self, root: Path) -> None:
        self.link = root / "current"
        self._root = root
        self._commits = 0

    def check_out(self, files: Mapping[str, str], *, executable: frozenset[str] = frozenset()) -> None:
        """Puts another commit in force; all times of all commits are equal.

        Args:
            files: path in the commit -> content.
            executable: those of the files that can be executed.
        """
        self._commits += 1
        commit = self._root / f"commit-{self._commits}"
        for name, text in files.items():
            path = commit / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755 if name in executable else 0o644)
        for path in (*commit.rglob("*"), commit):
            os.utime(path, ns=(_INSTANT_NS, _INSTANT_NS))
        following = self._root / "following"
        following.symlink_to(commit)
        following.rename(self.link)
