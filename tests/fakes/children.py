"""The processes that a test has started."""

from __future__ import annotations

import contextlib
from pathlib import Path


def children() -> set[str]:
    """Answers the pids of this process's children, those that wait to be reaped included."""
    found: set[str] = set()
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread of another test may end at this moment
            found.update((thread / "children").read_text().split())
    return found
