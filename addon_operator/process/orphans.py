"""Which run an orphaned process belongs to.

A process that a run has started may leave its session, empty its environment, and lose its parents. What is left that
identifies its run:

- its session, as long as it is one that the run is known to have;
- the run's mark: the run id in the environment, and an open file that is named after the run, which every descendant
  inherits unless it closes what it does not know;
- time: it was started by a run that was in progress at that moment. A process without a mark may belong to any of
  these, and is ended when the last of them has ended.

An operator that is killed cannot end anything. Its process groups end with it (`leash`); what has left them, but keeps
a mark, is ended by the next operator on the same host (`reaper`). A container ends as a whole.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import os
import re
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final, Self

RUN_ID: Final = "ADDON_OPERATOR_RUN_ID"
_MARK: Final = "addon-operator-run-"
_ID: Final = r"(\d+)-(\d+)-(\d+)-\d+"
_IN_ENVIRONMENT: Final = re.compile(rf"(?:^|\0){RUN_ID}=({_ID})(?:\0|$)".encode())
_IN_FILES: Final = re.compile(rf"/memfd:{_MARK}({_ID})(?: \(deleted\))?")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PROC: Final = Path("/proc")

_numbers = itertools.count(1)


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """One run of a program.

    Attributes:
        id: unique in this process ID namespace: the operator, its start, and a number.
        since: a moment before its first process was started, as `now` returns it.
    """

    id: str
    since: int

    @classmethod
    def begin(cls) -> Self:
        """Begins the next run."""
        return cls(f"{_operator()}-{next(_numbers)}", now())

    def mark(self) -> int:
        """Opens a file named after it, to be inherited by its processes; the caller closes it."""
        return os.memfd_create(_MARK + self.id)


@dataclasses.dataclass(frozen=True, slots=True)
class Stat:
    """What /proc shows of a process, ended ones included.

    Attributes:
        ended: whether it has ended and only waits to be reaped.
        session: the id of its session.
        start: when it was started, as `now` returns it.
        bare: whether its environment is known to be empty.
    """

    ended: bool
    session: int
    start: int
    bare: bool

    @classmethod
    def read(cls, pid: int) -> Self | None:
        """Reads it; returns None when there is no such process."""
        try:
            text = (_PROC / str(pid) / "stat").read_bytes()
        except OSError:
            return None
        # The second field is the name in parentheses, and may itself hold blanks and parentheses.
        fields = text[text.rindex(b")") + 2 :].split()
        return cls(
            ended=fields[0] in {b"Z", b"X"},
            session=int(fields[3]),
            start=int(fields[19]),
            bare=fields[47] == fields[48] != b"0",
        )


def now() -> int:
    """Returns the time on the clock that dates processes: ticks since boot."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS)


def is_to_end(marked: str, start: int, others: Iterable[Run]) -> bool:
    """Returns whether to end a process that is found at the end of a run and was started after that run began.

    Args:
        marked: the id of the run that it belongs to; empty if it has no mark.
        start: when it was started, as `now` returns it.
        others: the other runs in progress. A process that belongs to one of them, or may belong to it, is left running.
    """
    return not any(run.id == marked if marked else run.since <= start for run in others)


def foreign(since: int, leaders: Collection[int]) -> Iterator[tuple[int, Stat]]:
    """Yields our children in foreign sessions that still run, and reaps those that have ended.

    Only unreaped children of ours are examined, so no process id is reused. What is started in other ways than by a run
    has to stay in our own session. An ended process has no environment left that names its run: session and age must
    do.

    Args:
        since: processes that were started before are left out.
        leaders: children that are waited for already; left out.
    """
    seen, reaped = set(leaders), True
    while reaped:
        reaped = False
        for pid in _children() - seen:
            seen.add(pid)
            stat = Stat.read(pid)
            if stat is None or stat.session == os.getsid(0) or stat.start < since:
                continue
            if stat.ended:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
                # What it had started is our child now, and may have been its child when we listed ours.
                reaped = True
            else:
                yield pid, stat


def run_of(pid: int) -> str | None:
    """Returns the id of the run of this operator that a process is marked with; empty without such a mark.

    Returns None while the process has no environment: it is just ending, or between the middle and the end of execve.
    """
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except ProcessLookupError:
        return None
    except OSError:
        return ""
    if not environment:
        stat = Stat.read(pid)
        if stat is not None and not stat.bare:
            return None
    return next((run for run in _marks(pid, environment) if run.startswith(f"{_operator()}-")), "")


def stale() -> Iterator[int]:
    """Yields the processes of this process ID namespace that were started by operators that have ended."""
    for path in _PROC.glob("[0-9]*"):
        if is_stale(int(path.name)):
            yield int(path.name)


def is_stale(pid: int) -> bool:
    """Returns whether the operator that started a process has ended; False for processes that no operator started."""
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return any(_has_ended_operator(run) for run in _marks(pid, environment))


def _has_ended_operator(run: str) -> bool:
    space, pid, start, _ = run.split("-")
    if space != _process_id_namespace():
        return False
    operator = Stat.read(int(pid))
    return operator is None or operator.ended or operator.start != int(start)


def _marks(pid: int, environment: bytes) -> Iterator[str]:
    """Yields the ids of the runs that a process is marked with."""
    if found := _IN_ENVIRONMENT.search(environment):
        yield found[1].decode()
    files = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for number in os.listdir(files):  # noqa: PTH208 -- a start reads thousands of them
            with contextlib.suppress(OSError):
                if match := _IN_FILES.fullmatch(os.readlink(f"{files}/{number}")):  # noqa: PTH115 -- likewise
                    yield match[1]


def _children() -> set[int]:
    """Returns our children, the adopted and the unreaped included."""
    found: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            found.update(map(int, (thread / "children").read_bytes().split()))
    return found


@functools.cache
def _operator() -> str:
    """Returns a name of this process that no other process gets as long as any descendant of it is left."""
    stat = Stat.read(os.getpid())
    return f"{_process_id_namespace()}-{os.getpid()}-{stat.start if stat else 0}"


@functools.cache
def _process_id_namespace() -> str:
    return "".join(letter for letter in str(Path("/proc/self/ns/pid").readlink()) if letter.isdigit())
