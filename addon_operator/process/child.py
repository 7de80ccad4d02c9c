"""Child processes: the only place that starts them (hooks, `enabled` scripts, helm).

A child cannot hurt the operator. It leads a session and process group of its own, so that it and everything it forked
can be ended together; its output is read in bounded memory while it runs; whatever it leaves behind is killed and
reaped before `run` returns. Nothing polls: the end of a process is seen through its pidfd, output through its pipes.

Three ways to reach processes that the child started, from the cheap one to the thorough one:

- the process group: gets SIGTERM, then SIGKILL, and always SIGKILL once the leader has ended;
- the session, and the run's mark: find those that left the group or even the session, provided that the operator adopts
  orphans (`adopt_orphans`). Whoever has shed both is ended as soon as no run goes on that may have started it
  (`orphans`);
- the leash, a pipe whose read end the child inherits and whose write end only the operator has: when the operator dies,
  in whatever way, the kernel closes the write end and sends SIGKILL to the process group (fcntl F_SETSIG, F_SETOWN).
  Unlike PR_SET_PDEATHSIG it is set from outside, so the child can be started with vfork, which is five times as fast
  as fork from a process of this size, and it reaches the whole group. The owner of a pipe can only be a group that
  exists, so there is a gap of microseconds: what is started while the operator is killed may be missed.

Environments are never logged and never part of an error.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import ctypes
import errno
import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Final, Literal, TypeAlias

from addon_operator.logs import get_logger
from addon_operator.process import file_limit, orphans

Stream = Literal["stdout", "stderr"]
LineSink = Callable[[Stream, str], None]

MAX_LINE_CHARS: Final = 10_000
MAX_LINES: Final = 10_000
_TAIL_BYTES: Final = 8192
_CHUNK_BYTES: Final = 64 * 2**10
_KILLED_WITHIN_S: Final = 5.0
_LOOKED_AT_AGAIN_S: Final = 0.005
_WATCHED_AT_ONCE: Final = 100
_PR_SET_CHILD_SUBREAPER: Final = 36

_Usage: TypeAlias = tuple[float, float, int]

_log = get_logger("process")
# What runs now, by the process id of the leader.
_runs: dict[int, orphans.Run] = {}
_adopting_since: int | None = None


@dataclass(frozen=True, slots=True)
class Exit:
    """How a child process ended.

    Attributes:
        code: exit code; negative is the number of the signal that ended it, as in `subprocess`.
        timed_out: whether it was ended because its time was over.
        duration_s: wall-clock time from start to end, remains of its family included.
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


def adopt_orphans(*, on: bool = True) -> None:
    """Makes us the parent of what our children leave behind, so that `run` can find, kill and reap it.

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
        timeout_s: after this many seconds the group gets SIGTERM; so it does on cancellation.
        grace_s: from SIGTERM to SIGKILL; ends early when a second cancellation arrives.
        on_line: called with each line as it comes, without its line end. A line of more than 10,000 characters is cut;
            after 10,000 lines of one stream the rest is only counted. Both are noted in the output itself.

    Raises:
        OSError: the program cannot be started.
    """
    child = _Child(argv, env=env, stdout=_lines("stdout", on_line), stderr=_lines("stderr", on_line))
    return await child.supervise(timeout_s=timeout_s, grace_s=grace_s)


async def capture(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    timeout_s: float,
    max_bytes: int,
    grace_s: float = 5.0,
) -> tuple[Exit, bytes]:
    """Runs one program as `run` does and answers its standard output as well.

    Raises:
        OSError: as `run`; EFBIG after more than `max_bytes` of output, which end it.
    """
    sink = _Buffer(max_bytes)
    child = _Child(argv, env=env, stdout=sink, stderr=_Sink())
    ended = await child.supervise(timeout_s=timeout_s, grace_s=grace_s)
    return ended, bytes(sink.data)


class _Child:
    """One child process and all that belongs to it; used once, by one task."""

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str], stdout: _Sink, stderr: _Sink) -> None:
        self._run = orphans.Run.begin()
        self._started = time.monotonic()
        self._trouble: asyncio.Future[OSError] = asyncio.get_running_loop().create_future()
        self._tail = _Tail(stderr)
        self._popen, self._leash = _start(argv, {**env, orphans.RUN_ID: self._run.id}, self._run)
        self._pid = self._popen.pid
        self._sessions = {self._pid}
        _runs[self._pid] = self._run
        assert self._popen.stdout is not None
        assert self._popen.stderr is not None
        self._pipes = (
            _Pipe(self._popen.stdout, stdout, self._trouble),
            _Pipe(self._popen.stderr, self._tail, self._trouble),
        )

    async def supervise(self, *, timeout_s: float, grace_s: float) -> Exit:
        """Waits for the end and cleans up, also when cancelled."""
        timed_out = False
        try:
            with _end_of(self._pid) as gone:
                try:
                    for pipe in self._pipes:
                        pipe.open()
                    awaited: set[asyncio.Future[None] | asyncio.Future[OSError]] = {gone, self._trouble}
                    done, _ = await asyncio.wait(awaited, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
                    timed_out = not done
                finally:
                    code, usage = await self._finish(gone, grace_s)
        finally:
            self._close()
        if self._trouble.done():
            raise self._trouble.result()
        duration_s = time.monotonic() - self._started
        return Exit(code, timed_out, duration_s, *usage, self._tail.text())

    async def _finish(self, gone: asyncio.Future[None], grace_s: float) -> tuple[int, _Usage]:
        """Ends the child and its family, reads the rest of the output; re-raises a cancellation afterwards."""
        cancelled: asyncio.CancelledError | None = None
        if not gone.done():
            self._signal(signal.SIGTERM)
            cancelled = await _outlast({gone}, grace_s, hurry=True)
        # While the leader is unreaped, the number of its group cannot have been given to anybody else.
        self._signal(signal.SIGKILL)
        cancelled = await _outlast({gone}, _KILLED_WITHIN_S) or cancelled
        ended = self._reap()
        if _adopting_since is not None:
            cancelled = await _end_all(self._family) or cancelled
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

    def _family(self) -> dict[int, bool]:
        """Returns adopted processes to end with this run; False stands for one that does not yet tell whose it is."""
        found: dict[int, bool] = {}
        others = [run for pid, run in _runs.items() if pid != self._pid]
        for pid, stat in orphans.foreign(self._run.since, _runs):
            marked = self._run.id if stat.session in self._sessions else orphans.run_of(pid)
            if marked == self._run.id:
                self._sessions.add(stat.session)
            if marked is None:
                found[pid] = False
            elif orphans.is_to_end(marked, stat.start, others):
                found[pid] = True
        return found

    def _close(self) -> None:
        if self._popen.returncode is None:  # supervision itself failed, for want of a file descriptor
            self._signal(signal.SIGKILL)
            self._popen.wait()
        for pipe in self._pipes:
            pipe.close()
        os.close(self._leash)
        _runs.pop(self._pid, None)


def _start(argv: Sequence[str], env: Mapping[str, str], run: orphans.Run) -> tuple[subprocess.Popen[bytes], int]:
    """Starts the program; answers it and our end of its leash."""
    mark = run.mark()
    try:
        inherited, ours = os.pipe()
    except OSError:
        os.close(mark)
        raise
    try:
        popen = subprocess.Popen(
            list(argv),
            bufsize=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            start_new_session=True,
            pass_fds=(inherited, mark),
        )
        file_limit.restore_for_child(popen.pid)
        # A kernel without these commands only loses the leash.
        with contextlib.suppress(OSError):
            fcntl.fcntl(inherited, fcntl.F_SETOWN, -popen.pid)
            fcntl.fcntl(inherited, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(inherited, fcntl.F_SETFL, os.O_ASYNC)
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(inherited)
        os.close(mark)
    return popen, ours


async def _end_all(look: Callable[[], Mapping[int, bool]]) -> asyncio.CancelledError | None:
    """Kills children of ours until there are none left; answers a cancellation, for the caller.

    Args:
        look: answers those that are there, and whether each is to be killed or to be looked at again. Each round
            reaches those whose parent died in the round before.
    """
    cancelled: asyncio.CancelledError | None = None
    deadline = time.monotonic() + _KILLED_WITHIN_S
    while found := look():
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            _log.warning("processes outlive the run that started them", reason=f"{len(found)} left")
            break
        for pid in (pid for pid, sure in found.items() if sure):
            with contextlib.suppress(PermissionError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.ExitStack() as stack:
            ends = {stack.enter_context(_end_of(pid)) for pid in list(found)[:_WATCHED_AT_ONCE]}
            cancelled = await _outlast(ends, left_s if all(found.values()) else _LOOKED_AT_AGAIN_S) or cancelled
    return cancelled


@contextlib.contextmanager
def _end_of(pid: int) -> Iterator[asyncio.Future[None]]:
    """Gives a future that is done when an unreaped child has ended."""
    loop = asyncio.get_running_loop()
    gone: asyncio.Future[None] = loop.create_future()
    fd = os.pidfd_open(pid)

    def ended() -> None:
        loop.remove_reader(fd)
        gone.set_result(None)

    loop.add_reader(fd, ended)
    try:
        yield gone
    finally:
        loop.remove_reader(fd)
        os.close(fd)


async def _outlast(
    awaited: Collection[asyncio.Future[None]], limit_s: float, *, hurry: bool = False
) -> asyncio.CancelledError | None:
    """Waits for all although cancelled (with `hurry`: until cancelled); answers the cancellation, for the caller."""
    cancelled: asyncio.CancelledError | None = None
    deadline = time.monotonic() + limit_s
    while not all(future.done() for future in awaited) and not (hurry and cancelled):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            break
        try:
            await asyncio.wait(awaited, timeout=left_s)
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


class _Pipe:
    """Our end of one output pipe of a child."""

    def __init__(self, file: IO[bytes], sink: _Sink, trouble: asyncio.Future[OSError]) -> None:
        self._file = file
        self._fd = file.fileno()
        self._sink = sink
        self._trouble = trouble
        self._loop = asyncio.get_running_loop()
        os.set_blocking(self._fd, False)

    def open(self) -> None:
        """Starts to read whenever there is something."""
        self._loop.add_reader(self._fd, self._read)

    def _read(self) -> int:
        """Hands one chunk on; answers its size, 0 when there is none."""
        try:
            data = os.read(self._fd, _CHUNK_BYTES)
            self._sink.feed(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            self._loop.remove_reader(self._fd)
            if not self._trouble.done():
                self._trouble.set_result(error)
            return 0
        if not data:
            self._loop.remove_reader(self._fd)
        return len(data)

    def drain(self) -> None:
        """Reads what an ended child left in the pipe, and no more: somebody else may still be writing into it."""
        self._loop.remove_reader(self._fd)
        left = fcntl.fcntl(self._fd, fcntl.F_GETPIPE_SZ)
        while left > 0 and not self._trouble.done() and (size := self._read()):
            left -= size
        self._sink.end()

    def close(self) -> None:
        """Stops reading."""
        self._loop.remove_reader(self._fd)
        self._file.close()


class _Sink:
    """Where the bytes of one stream go: this one forgets them. An OSError from `feed` ends the child."""

    def feed(self, data: bytes) -> None:
        """Takes the next bytes."""

    def end(self) -> None:
        """Learns that no more will come."""


class _Lines(_Sink):
    """Splits a stream into lines; never holds more than one chunk and one cut line."""

    def __init__(self, stream: Stream, on_line: LineSink) -> None:
        self._stream = stream
        self._on_line = on_line
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._partial = ""
        self._left = MAX_LINES
        self._dropped = 0

    def feed(self, data: bytes) -> None:
        """Takes the next bytes."""
        if self._left == 0:
            self._dropped += data.count(b"\n")
            return
        *lines, partial = (self._partial + self._decoder.decode(data)).split("\n")
        self._partial = partial[: MAX_LINE_CHARS + 1]  # one more than allowed, to know that it is too long
        for line in lines:
            self._emit(line)

    def end(self) -> None:
        """Learns that no more will come."""
        if self._partial:
            self._emit(self._partial)
        if self._dropped:
            self._on_line(self._stream, f"... ({self._dropped} more lines, not shown)")

    def _emit(self, line: str) -> None:
        if self._left == 0:
            self._dropped += 1
            return
        self._left -= 1
        cut = len(line) > MAX_LINE_CHARS
        shown = line[:MAX_LINE_CHARS] + f"... (cut after {MAX_LINE_CHARS} characters)" if cut else line
        self._on_line(self._stream, shown.removesuffix("\r"))


class _Tail(_Sink):
    """Keeps the last bytes and passes everything on."""

    def __init__(self, sink: _Sink) -> None:
        self._sink = sink
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Takes the next bytes."""
        self._data += data
        del self._data[:-_TAIL_BYTES]
        self._sink.feed(data)

    def end(self) -> None:
        """Learns that no more will come."""
        self._sink.end()

    def text(self) -> str:
        """Answers what was kept, trimmed."""
        return self._data.decode("utf-8", "replace").strip()


class _Buffer(_Sink):
    """Keeps everything, within a bound."""

    def __init__(self, max_bytes: int) -> None:
        self.data = bytearray()
        self._max_bytes = max_bytes

    def feed(self, data: bytes) -> None:
        """Takes the next bytes."""
        self.data += data
        if len(self.data) > self._max_bytes:
            raise OSError(errno.EFBIG, f"more than {self._max_bytes} bytes on standard output")


def _lines(stream: Stream, on_line: LineSink | None) -> _Sink:
    return _Lines(stream, on_line) if on_line is not None else _Sink()
