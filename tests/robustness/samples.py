"""What a process uses: memory, file descriptors, threads, children; and what is in its memory, as it says itself."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.cluster.operator import eventually

INSIDE: Final = Path(__file__).parent / "inside"
_KIB: Final = 1024


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """What the operator uses at one moment.

    Attributes:
        at_s: seconds of the monotonic clock.
        resident: resident set size as it was, bytes.
        in_use: memory that belongs to no file, after garbage was collected and free memory given back. (What is private
            otherwise depends on who else runs the same Python.)
        descriptors: open file descriptors, by what they lead to (`socket`, `pipe`, a path), with how many.
        threads: names of threads.
        children: pids of child processes.
        tasks: names of asyncio tasks, with how many.
        objects: objects that the garbage collector knows.
        kinds: the most frequent kinds of these, with how many.
    """

    at_s: float
    resident: int
    in_use: int
    descriptors: Mapping[str, int]
    threads: tuple[str, ...]
    children: tuple[int, ...]
    tasks: Mapping[str, int]
    objects: int
    kinds: Mapping[str, int]


def environment(counts: Path) -> dict[str, str]:
    """What an operator needs in its environment so that `take` can ask it; it answers in the file `counts`."""
    path = os.pathsep.join([str(INSIDE), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PYTHONPATH": path, "SOAK_COUNTS": str(counts)}


def take(pid: int, counts: Path) -> Sample:
    """Takes a sample of an operator that was started with `environment(counts)`."""
    resident = _memory(pid)["Rss"]
    counts.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR2)
    eventually(counts.exists, what="what the operator counts")
    said = json.loads(counts.read_text())
    memory = _memory(pid)
    return Sample(
        at_s=time.monotonic(),
        resident=resident,
        in_use=memory["Anonymous"] + memory["Swap"],
        descriptors=_descriptors(pid),
        threads=tuple(sorted(said["threads"])),
        children=tuple(children(pid)),
        tasks=said["tasks"],
        objects=said["objects"],
        kinds=said["kinds"],
    )


def children(pid: int) -> list[int]:
    """The pids of the children of a process, sorted."""
    found: set[int] = set()
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found.update(map(int, path.read_text().split()))
    return sorted(found)


def _memory(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {line.split(":")[0]: int(line.split()[1]) * _KIB for line in lines}


def _descriptors(pid: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            target = str(entry.readlink())
            # `socket:[123]` and `pipe:[123]` are never the same twice.
            kind = target.partition(":[")[0]
            found[kind] = found.get(kind, 0) + 1
    return dict(sorted(found.items()))
