"""The output of child processes: read while they run, in bounded memory.

A line of more than 10,000 characters is cut; after 10,000 lines of one stream the rest is only counted. Both are noted
in the output itself.
"""

from __future__ import annotations

import asyncio
import codecs
import errno
import fcntl
import os
from collections.abc import Callable
from typing import IO, Final, Literal

Stream = Literal["stdout", "stderr"]
LineSink = Callable[[Stream, str], None]

MAX_LINE_CHARS: Final = 10_000
MAX_LINES: Final = 10_000
_TAIL_BYTES: Final = 8192
_CHUNK_BYTES: Final = 64 * 2**10


class Pipe:
    """Our end of one output pipe of a child.

    Args:
        file: the read end; closed by `close`.
        sink: what the bytes are fed to.
        problem: set to an OSError of reading or of the sink; whoever waits for it ends the child.
    """

    def __init__(self, file: IO[bytes], sink: Sink, problem: asyncio.Future[OSError]) -> None:
        self._file = file
        self._fd = file.fileno()
        self._sink = sink
        self._problem = problem
        self._loop = asyncio.get_running_loop()
        os.set_blocking(self._fd, False)

    def open(self) -> None:
        """Begins to read, whenever there is something."""
        self._loop.add_reader(self._fd, self._read)

    def _read(self) -> int:
        """Feeds one chunk to the sink; returns its size, 0 when there is none."""
        try:
            data = os.read(self._fd, _CHUNK_BYTES)
            self._sink.feed(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            self._loop.remove_reader(self._fd)
            if not self._problem.done():
                self._problem.set_result(error)
            return 0
        if not data:
            self._loop.remove_reader(self._fd)
        return len(data)

    def drain(self) -> None:
        """Reads what an ended child left in the pipe, and no more: another process may still be writing into it."""
        self._loop.remove_reader(self._fd)
        left = fcntl.fcntl(self._fd, fcntl.F_GETPIPE_SZ)
        while left > 0 and not self._problem.done() and (size := self._read()):
            left -= size
        self._sink.end()

    def close(self) -> None:
        """Stops reading and closes the pipe."""
        self._loop.remove_reader(self._fd)
        self._file.close()


class Sink:
    """Consumer of the bytes of one stream; this one discards them. An OSError from `feed` ends the child."""

    def feed(self, data: bytes) -> None:
        """Consumes the next bytes."""

    def end(self) -> None:
        """Called once, after the last bytes."""


class Lines(Sink):
    """Splits a stream into lines; never holds more than one chunk and one cut line."""

    def __init__(self, stream: Stream, on_line: LineSink) -> None:
        self._stream = stream
        self._on_line = on_line
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._partial = ""
        self._left = MAX_LINES
        self._dropped = 0

    def feed(self, data: bytes) -> None:
        """Consumes the next bytes."""
        if self._left == 0:
            self._dropped += data.count(b"\n")
            return
        *lines, partial = (self._partial + self._decoder.decode(data)).split("\n")
        self._partial = partial[: MAX_LINE_CHARS + 1]  # one more than allowed, to know that it is too long
        for line in lines:
            self._emit(line)

    def end(self) -> None:
        """Called once, after the last bytes."""
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


class Tail(Sink):
    """Keeps the last bytes and passes everything on."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Consumes the next bytes."""
        self._data += data
        del self._data[:-_TAIL_BYTES]
        self._sink.feed(data)

    def end(self) -> None:
        """Called once, after the last bytes."""
        self._sink.end()

    def text(self) -> str:
        """Returns what was kept, trimmed."""
        return self._data.decode("utf-8", "replace").strip()


class Buffer(Sink):
    """Keeps everything, within a bound."""

    def __init__(self, max_bytes: int) -> None:
        self.data = bytearray()
        self._max_bytes = max_bytes

    def feed(self, data: bytes) -> None:
        """Consumes the next bytes."""
        self.data += data
        if len(self.data) > self._max_bytes:
            raise OSError(errno.EFBIG, f"more than {self._max_bytes} bytes on standard output")
