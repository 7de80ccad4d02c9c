"""Child processes: the only place that starts them for the operator (hooks, `enabled` scripts, helm).

A child cannot hurt the operator. It leads a session and process group of its own, so that it and everything it forked
can be ended together; its output is read in bounded memory while it runs (`output`); whatever it leaves behind is
killed and reaped before `run` returns. Nothing polls: the end of a process is seen through its pidfd, output through
its pipes.

Three ways to reach processes that the child started, from the cheap one to the thorough one:

- the process group gets SIGTERM, then SIGKILL, and always SIGKILL once the leader has ended;
- the session and the run's mark find processes that left the group or even the session, provided that the operator
  adopts orphans (`reaper`). A process that has shed both is ended as soon as no run is in progress that may have
  started it (`orphans`);
- the leash ends the group when the operator dies (`leash`).

Environments are never logged and never part of an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from addon_operator.cancellation import outlast
from addon_operator.logs import get_logger
from addon_operator.process import file_limit, orphans, reaper
from addon_operator.process.leash import LeashedProcess
from addon_operator.process.output import Buffer, Lines, LineSink, Pipe, Sink, Tail

_Usage: TypeAlias = tuple[float, float, int]

_log = get_logger("process")


@dataclass(frozen=True, slots=True)
class Exit:
    """How a child process ended.

    Attributes:
        code: exit code; negative is the number of the signal that ended it, as in `subprocess`.
        timed_out: whether it was ended because its time was over.
        duration_s: wall-clock time from its start until it and its family have ended.
        user_cpu_s: CPU time in user mode, its waited-for children included.
        sys_cpu_s: the same in kernel mode.
        max_rss_bytes: largest resident set of the process or of one of its waited-for children.
        stderr_tail: the last 8 KiB of stderr, trimmed.
    """

    code: int
    timed_out: bool
    duration_s: float
    user_cpu_s: float
    sys_cpu_s: float
    max_rss_bytes: int
    stderr_tail: str


async def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    timeout_s: float,
    grace_s: float = 5.0,
    on_line: LineSink | None = None,
) -> Exit:
    """Runs one program to its end, and ends everything that it started.

    Args:
        argv: the program and its arguments; found through `PATH` unless there is a slash in it.
        env: its whole environment; the run id is added.
        timeout_s: after this many seconds, and on cancellation, the group gets SIGTERM.
        grace_s: from SIGTERM to SIGKILL; ends early when a second cancellation arrives.
        on_line: called with each line as it comes, without its line end; `output` has the limits.

    Raises:
        OSError: the program cannot be started.
    """
    stdout, stderr = (Lines("stdout", on_line), Lines("stderr", on_line)) if on_line else (Sink(), Sink())
    child = _Child(argv, env=env, stdout=stdout, stderr=stderr)
    return await child.supervise(timeout_s=timeout_s, grace_s=grace_s)


async def capture(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    timeout_s: float,
    max_bytes: int,
    grace_s: float = 5.0,
) -> tuple[Exit, bytes]:
    """Runs one program as `run` does and returns its standard output as well.

    Raises:
        OSError: as `run`; EFBIG after more than `max_bytes` of output, which end it.
    """
    sink = Buffer(max_bytes)
    child = _Child(argv, env=env, stdout=sink, stderr=Sink())
    ended = await child.supervise(timeout_s=timeout_s, grace_s=grace_s)
    return ended, bytes(sink.data)


class _Child:
    """One child process and all that belongs to it; used once, by one task."""

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str], stdout: Sink, stderr: Sink) -> None:
        self._run = orphans.Run.begin()
        self._started = time.monotonic()
        self._problem: asyncio.Future[OSError] = asyncio.get_running_loop().create_future()
        self._tail = Tail(stderr)
        self._leashed = _start(argv, {**env, orphans.RUN_ID: self._run.id}, self._run)
        self._popen = self._leashed.popen
        self._pid = self._popen.pid
        assert self._popen.stdout is not None
        assert self._popen.stderr is not None
        self._pipes = (
            Pipe(self._popen.stdout, stdout, self._problem),
            Pipe(self._popen.stderr, self._tail, self._problem),
        )

    async def supervise(self, *, timeout_s: float, grace_s: float) -> Exit:
        """Waits for the end and cleans up, also when cancelled."""
        timed_out = False
        with reaper.registered(self._pid, self._run), contextlib.ExitStack() as stack:
            stack.callback(self._close)
            with reaper.end_of(self._pid) as gone:
                try:
                    for pipe in self._pipes:
                        pipe.open()
                    awaited: set[asyncio.Future[None] | asyncio.Future[OSError]] = {gone, self._problem}
                    done, _ = await asyncio.wait(awaited, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
                    timed_out = not done
                finally:
                    code, usage = await self._finish(gone, grace_s)
        if self._problem.done():
            raise self._problem.result()
        duration_s = time.monotonic() - self._started
        return Exit(code, timed_out, duration_s, *usage, self._tail.text())

    async def _finish(self, gone: asyncio.Future[None], grace_s: float) -> tuple[int, _Usage]:
        """Ends the child and its family, reads the rest of the output; re-raises a cancellation afterwards."""
        cancelled: asyncio.CancelledError | None = None
        if not gone.done():
            self._signal(signal.SIGTERM)
            cancelled = await outlast({gone}, grace_s, hurry=True)
        # While the leader is unreaped, the id of its group cannot have been reused.
        self._signal(signal.SIGKILL)
        cancelled = await outlast({gone}, reaper.KILLED_WITHIN_S) or cancelled
        ended = self._reap()
        cancelled = await reaper.end_family(self._pid, self._run) or cancelled
        for pipe in self._pipes:
            pipe.drain()
        if cancelled is not None:
            raise cancelled
        return ended

    def _signal(self, number: signal.Signals) -> None:
        # PermissionError: the whole group runs as another user (setuid), so nothing of ours can end it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, number)

    def _reap(self) -> tuple[int, _Usage]:
        pid, status, usage = os.wait4(self._pid, os.WNOHANG)
        if pid == 0:
            _log.warning("killed process does not end", reason="it hangs in the kernel")
            self._popen.returncode = -signal.SIGKILL
            return self._popen.returncode, (0.0, 0.0, 0)
        self._popen.returncode = os.waitstatus_to_exitcode(status)
        return self._popen.returncode, (usage.ru_utime, usage.ru_stime, usage.ru_maxrss * 1024)

    def _close(self) -> None:
        if self._popen.returncode is None:  # supervision itself failed, for want of a file descriptor
            self._signal(signal.SIGKILL)
            self._popen.wait()
        for pipe in self._pipes:
            pipe.close()
        self._leashed.release()


def _start(argv: Sequence[str], env: Mapping[str, str], run: orphans.Run) -> LeashedProcess:
    mark = run.mark()
    try:
        leashed = LeashedProcess(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=(mark,))
    finally:
        os.close(mark)
    file_limit.restore_for_child(leashed.popen.pid)
    return leashed
