"""Ending what child processes leave behind, and reaping it.

The operator adopts orphans: a process whose parent ends becomes a child of the operator. At the end of a run
the reaper ends the orphans of that run, at the end of the operator all of them, at its start those of operators that
were killed. Which process belongs to which run is up to `orphans`. Only pidfds and children of our own are signalled,
so that no process is hit that got a reused process id.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from addon_operator.cancellation import outlast
from addon_operator.logs import get_logger
from addon_operator.process import orphans

KILLED_WITHIN_S: Final = 5.0
_EXAMINED_AGAIN_S: Final = 0.005
_WATCHED_AT_ONCE: Final = 100
_ROUNDS: Final = 5
_PR_SET_CHILD_SUBREAPER: Final = 36

_log = get_logger("process")
# The runs in progress, by the process id of the leader.
_runs: dict[int, orphans.Run] = {}
_adopting_since: int | None = None


def adopt_orphans(*, on: bool = True) -> None:
    """Makes this process the parent of what its children leave behind, so that it can be found, killed and reaped.

    Called once by the app, before it runs anything; holds for the whole process until it is switched off again.

    Raises:
        OSError: the kernel refused.
    """
    global _adopting_since  # noqa: PLW0603 -- mirrors a flag that the kernel has once for each process
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot adopt orphaned processes: {os.strerror(number)}")
    _adopting_since = orphans.now() if on else None


def end_stale_orphans() -> int:
    """Kills what operators that have ended left behind in this process ID namespace; returns how many processes.

    Called once by the app, before it runs anything.
    """
    ended: set[int] = set()
    for _ in range(_ROUNDS):
        found = set(orphans.stale()) - ended
        if not found:
            break
        for pid in found:
            with contextlib.suppress(OSError):
                fd = os.pidfd_open(pid)
                try:
                    if orphans.is_stale(pid):
                        signal.pidfd_send_signal(fd, signal.SIGKILL)
                        ended.add(pid)
                finally:
                    os.close(fd)
    return len(ended)


async def end_orphans() -> None:
    """Kills every child in a foreign session that was started after `adopt_orphans`.

    Called once by the app, after the last run.
    """
    if _adopting_since is None:
        return
    since = _adopting_since
    cancelled = await _end_all(lambda: dict.fromkeys((pid for pid, _ in orphans.foreign(since, _runs)), True))
    if cancelled is not None:
        raise cancelled


@contextlib.contextmanager
def registered(leader: int, run: orphans.Run) -> Iterator[None]:
    """Registers a run in progress and the leader that its caller waits for, for the length of a `with` block."""
    _runs[leader] = run
    try:
        yield
    finally:
        del _runs[leader]


async def end_family(leader: int, run: orphans.Run) -> asyncio.CancelledError | None:
    """Kills the orphans of a run whose leader has been reaped; does nothing unless orphans are adopted.

    Returns:
        The cancellation that came meanwhile, for the caller to raise.
    """
    if _adopting_since is None:
        return None
    sessions = {leader}

    def family() -> dict[int, bool]:
        found: dict[int, bool] = {}
        others = [other for pid, other in _runs.items() if pid != leader]
        for pid, stat in orphans.foreign(run.since, _runs):
            marked = run.id if stat.session in sessions else orphans.run_of(pid)
            if marked == run.id:
                sessions.add(stat.session)
            if marked is None:
                found[pid] = False
            elif orphans.is_to_end(marked, stat.start, others):
                found[pid] = True
        return found

    return await _end_all(family)


async def _end_all(find: Callable[[], Mapping[int, bool]]) -> asyncio.CancelledError | None:
    """Kills children of ours until none is left; returns the cancellation that came meanwhile.

    Args:
        find: returns those that are left, and whether each is to be killed (else it is not known yet which run it
            belongs to, and it is examined again). Each round reaches those whose parent died in the round before.
    """
    cancelled: asyncio.CancelledError | None = None
    deadline = time.monotonic() + KILLED_WITHIN_S
    while found := find():
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            _log.warning("processes outlive the run that started them", reason=f"{len(found)} left")
            break
        for pid in (pid for pid, known in found.items() if known):
            with contextlib.suppress(PermissionError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.ExitStack() as stack:
            ends = {stack.enter_context(end_of(pid)) for pid in list(found)[:_WATCHED_AT_ONCE]}
            cancelled = await outlast(ends, left_s if all(found.values()) else _EXAMINED_AGAIN_S) or cancelled
    return cancelled


@contextlib.contextmanager
def end_of(pid: int) -> Iterator[asyncio.Future[None]]:
    """Yields a future that is done when an unreaped child has ended.

    Raises:
        OSError: there is no file descriptor left.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    fd = os.pidfd_open(pid)

    def on_end() -> None:
        loop.remove_reader(fd)
        ended.set_result(None)

    loop.add_reader(fd, on_end)
    try:
        yield ended
    finally:
        loop.remove_reader(fd)
        os.close(fd)
