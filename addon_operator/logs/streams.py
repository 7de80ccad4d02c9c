"""Standard output and error streams whose writers never wait, whether they are read or not.

A pipe that is not read is full after 64 KiB, and the next write to it stops the whole process, probes and signals
included. Here text is written at once where that cannot block, so that the last lines before a crash are not lost;
else it goes into a bounded buffer that a thread writes. What does not fit is dropped, and counted.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import io
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from typing import Final, TextIO

MAX_BYTES: Final = 4 * 2**20
_CHUNK_BYTES: Final = 64 * 2**10
_STUCK_AFTER_S: Final = 3.0

_installed: list[BackgroundStream] = []


class BackgroundStream(io.TextIOBase):
    """A text stream on a file descriptor whose `write` never waits.

    Attributes:
        lines_dropped: since the stream was created.
        on_flow: called by the thread with the number of lines dropped since its last call, once there is room again.
    """

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, fd: int, *, max_bytes: int = MAX_BYTES) -> None:
        """Starts the thread.

        Args:
            fd: stays open; it may be blocking or not.
            max_bytes: of text that waits to be written.
        """
        super().__init__()
        self.lines_dropped = 0
        self.on_flow: Callable[[int], None] | None = None
        self._fd = fd
        self._max_bytes = max_bytes
        self._changed = threading.Condition()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._waiting: collections.deque[bytes] = collections.deque()
        self._bytes = 0
        self._written = 0
        self._dropped = 0
        threading.Thread(target=self._run, name=f"writer of descriptor {fd}", daemon=True).start()

    def write(self, text: str, /) -> int:
        """Takes all of the text or, if there is no room for it, nothing; never waits."""
        data = text.encode(self.encoding, self.errors)
        with self._changed:
            if self._bytes and self._bytes + len(data) > self._max_bytes:
                self._dropped += data.count(b"\n") or 1
                self.lines_dropped += data.count(b"\n") or 1
            elif left := data if self._bytes else self._put_at_once(data):
                self._waiting.append(left)
                self._bytes += len(left)
                self._changed.notify_all()
        return len(text)

    def _put_at_once(self, data: bytes) -> bytes:
        """Writes what can be written without waiting; returns the rest.

        A pipe that has room at all has room for PIPE_BUF bytes (pipe(7)).
        """
        try:
            while data and self._poll.poll(0) == [(self._fd, select.POLLOUT)]:
                data = data[os.write(self._fd, data[: select.PIPE_BUF]) :]
        except BlockingIOError:
            return data
        except OSError:
            return b""
        return data

    def drain(self, stuck_after_s: float = _STUCK_AFTER_S) -> bool:
        """Waits until all is written, or until nothing has been for so long; returns whether all is."""
        with self._changed:
            written, until = self._written, time.monotonic() + stuck_after_s
            while self._bytes:
                if self._written != written:
                    written, until = self._written, time.monotonic() + stuck_after_s
                left_s = until - time.monotonic()
                if left_s <= 0:
                    return False
                self._changed.wait(left_s)
        return True

    def writable(self) -> bool:
        """Returns true."""
        return True

    def fileno(self) -> int:
        """Returns the descriptor written to."""
        return self._fd

    def isatty(self) -> bool:
        """Returns whether it is a terminal."""
        return os.isatty(self._fd)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                chunk = self._take()
            self._put(chunk)
            with self._changed:
                self._bytes -= len(chunk)
                flows = self._bytes <= self._max_bytes // 2
                dropped, self._dropped = (self._dropped, 0) if flows else (0, self._dropped)
            # Before the notification, so that `drain` waits for what it writes as well.
            if dropped and self.on_flow is not None:
                self.on_flow(dropped)
            with self._changed:
                self._changed.notify_all()

    def _take(self) -> bytes:
        taken = [self._waiting.popleft()]
        size = len(taken[0])
        while self._waiting and size + len(self._waiting[0]) <= _CHUNK_BYTES:
            size += len(self._waiting[0])
            taken.append(self._waiting.popleft())
        return b"".join(taken)

    def _put(self, chunk: bytes) -> None:
        """Writes all of it, however long that takes; gives up when the other end is closed."""
        left = memoryview(chunk)
        with contextlib.suppress(OSError):
            while left:
                try:
                    size = os.write(self._fd, left)
                except BlockingIOError:  # another process that shares it has made it non-blocking
                    poll = select.poll()
                    poll.register(self._fd, select.POLLOUT)
                    poll.poll()
                    continue
                left = left[size:]
                with self._changed:
                    self._written += size
                    self._changed.notify_all()


def unblock(on_flow: Callable[[int], None]) -> None:
    """Makes `sys.stdout` and `sys.stderr` such streams until the process exits, which waits a few seconds for them.

    Called once by the app, before anything is printed.

    Args:
        on_flow: called by a thread after lines had to be dropped, with their number.
    """
    sys.stdout, sys.stderr = (_background(stream, on_flow) for stream in (sys.stdout, sys.stderr))


def lines_dropped() -> int:
    """Returns how many lines were dropped since the start because they were not read in time."""
    return sum(stream.lines_dropped for stream in _installed)


def _background(stream: TextIO, on_flow: Callable[[int], None]) -> TextIO:
    background = BackgroundStream(stream.fileno())
    background.on_flow = on_flow
    _installed.append(background)
    atexit.register(background.drain)
    return background  # type: ignore[return-value]  # a TextIO for all who print
