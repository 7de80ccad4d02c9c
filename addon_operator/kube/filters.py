"""Runs jq programs where they can do no harm: in a child process with bounds of CPU time and memory.

A program of a hook may run for ever or eat all memory, and jq cannot be interrupted. The child is asked and waited for
within the call, so filters keep their place and order among events; that costs a fraction of what a filter costs, and
the bound is the longest wait. A program that went beyond is not run again in the life of this process.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from typing import Final

from addon_operator.kube.jq import Stopped
from addon_operator.kube.jq_worker import CPU_S, MEMORY_BYTES, REPLY, REQUEST
from addon_operator.logs import get_logger

_log = get_logger("jq")

# Of the clock, for a child that neither works nor ends.
_ANSWERED_WITHIN_S: Final = 20.0
_ENDS_WITHIN_S: Final = 1.0
_ATTEMPTS: Final = 2
_CHUNK_BYTES: Final = 64 * 2**10
_MOST_REFUSED: Final = 1000
_NOT_AGAIN: Final = "it is not run again until it is changed or the operator starts anew"
_ENDLESS: Final = f"the program does not end, or not within {CPU_S:g} s of CPU time for a small object; {_NOT_AGAIN}"
_TOO_MUCH: Final = (
    "the program ends the process that runs it, as one does that needs more than "
    f"{MEMORY_BYTES // 2**20} MiB of memory; {_NOT_AGAIN}"
)


class _WorkerEnded(Exception):
    """The child has ended instead of answering."""


class Filters:
    """Runs programs, one at a time; starts its child with the first, and again when one has ended it."""

    def __init__(self) -> None:
        """Starts nothing yet."""
        self._child: subprocess.Popen[bytes] | None = None
        self._refused: dict[str, str] = {}

    def run(self, source: str, document: bytes) -> tuple[bytes, ...]:
        """Returns all outputs for one JSON document, as compact JSON.

        Args:
            source: a program that compiles.
            document: JSON.

        Raises:
            Stopped: the program took too much time or memory, now or before, or cannot be run at the moment.
            ValueError: it failed on this document; the message may quote it.
        """
        for _ in range(_ATTEMPTS):
            if reason := self._refused.get(source):
                raise Stopped(reason)
            try:
                failed, data = self._ask(source.encode(), document)
            except _WorkerEnded:
                if self._end() == -signal.SIGPROF:
                    self._refuse(source, _ENDLESS)
                continue
            except OSError as error:  # for want of descriptors or memory: an object must not get lost for that
                raise Stopped(f"the process that runs jq programs cannot be started: {error.strerror}") from None
            if failed:
                raise ValueError(data.decode(errors="replace"))
            return tuple(data.split(b"\n")) if data else ()
        # Once may have been for want of memory on the machine, or somebody's kill.
        self._refuse(source, self._refused.get(source, _TOO_MUCH))
        raise Stopped(self._refused[source])

    def close(self) -> None:
        """Ends the child."""
        if self._child is not None:
            self._child.kill()
            self._end()

    def _ask(self, source: bytes, document: bytes) -> tuple[bool, bytes]:
        child = self._started()
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            rest = memoryview(b"".join((REQUEST.pack(len(source), len(document)), source, document)))
            while rest:
                rest = rest[os.write(child.stdin.fileno(), rest) :]
        except BrokenPipeError as error:
            raise _WorkerEnded from error
        answer = bytearray()
        while len(answer) < REPLY.size or len(answer) < REPLY.size + REPLY.unpack_from(answer)[1]:
            answer += _read(child.stdout.fileno())
        failed, _ = REPLY.unpack_from(answer)
        return bool(failed), bytes(memoryview(answer)[REPLY.size :])

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            # The path of this process rather than what its environment would make of it.
            code = f"import sys; sys.path[:] = {sys.path!r}; from addon_operator.kube.jq_worker import main; main()"
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-c", code],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        return self._child

    def _end(self) -> int:
        """Reaps the child; returns how it ended, as `subprocess` does."""
        child, self._child = self._child, None
        assert child is not None
        with child:  # closes the pipes and waits
            # One that is about to end by itself is a zombie already, or becomes one within this time.
            with contextlib.suppress(subprocess.TimeoutExpired):
                return child.wait(_ENDS_WITHIN_S)
            child.kill()
        return child.returncode

    def _refuse(self, source: str, reason: str) -> None:
        if source in self._refused:
            return
        _log.error("a jq program was stopped", reason=reason)
        if len(self._refused) >= _MOST_REFUSED:
            del self._refused[next(iter(self._refused))]
        self._refused[source] = reason


def _read(fd: int) -> bytes:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if not poll.poll(_ANSWERED_WITHIN_S * 1000):
        raise _WorkerEnded
    if data := os.read(fd, _CHUNK_BYTES):
        return data
    raise _WorkerEnded
