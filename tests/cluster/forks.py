"""Starts operators by fork from a process that has imported the operator already.

Imports are most of the CPU that a start costs, and a suite that starts 150 operators on two cores waits for little
else. What runs is the command line, as it is: arguments, environment, working directory, output and exit status are
those of a process of its own. Only `/proc/PID/environ` and `/proc/PID/cmdline` are those of the parent. What begins
with the interpreter is shown by `test_first_start`, `test_devcluster` and the tests of the command line.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

# Reads a request a line: what to start, answered with its pid, or a pid that has ended, answered with its status.
_PARENT: Final = """
import json, os, random, sys
from addon_operator.cli import main, start
start.import_app()
for line in iter(sys.stdin.readline, ""):
    request = json.loads(line)
    if "reap" in request:
        answer = os.waitstatus_to_exitcode(os.waitpid(request["reap"], 0)[1])
    else:
        answer = os.fork()
        if not answer:
            break
    print(answer, flush=True)
else:
    sys.exit()
os.chdir(request["directory"])
os.environ.clear()
os.environ.update(request["environment"])
log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.dup2(log, 1)
os.dup2(log, 2)
os.closerange(3, log + 1)
random.seed()
main(request["arguments"])
"""
_one_at_a_time: Final = threading.Lock()


class ForkedProcess:
    """A started operator, to be used as a `subprocess.Popen`.

    Attributes:
        pid: its own.
        returncode: None until `poll` or `wait` has seen its end; negative is the number of a signal.
    """

    def __init__(self, arguments: Sequence[str], *, environment: Mapping[str, str], directory: Path, log: Path) -> None:
        """Starts `addon-operator ARGUMENTS`; its output is appended to `log`."""
        self.returncode: int | None = None
        self.pid = _ask(arguments=[*arguments], environment={**environment}, directory=str(directory), log=str(log))
        self._pidfd = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        """Returns the exit status if it has ended."""
        return self._wait(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the exit status.

        Raises:
            subprocess.TimeoutExpired: it did not end within `timeout` seconds.
        """
        status = self._wait(timeout)
        if status is None:
            raise subprocess.TimeoutExpired("addon-operator", timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        """Sends a signal if it has not ended."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        """Kills it."""
        self.send_signal(signal.SIGKILL)

    def _wait(self, timeout_s: float | None) -> int | None:
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            if poll.poll(None if timeout_s is None else timeout_s * 1000):
                os.close(self._pidfd)
                self.returncode = _ask(reap=self.pid)
        return self.returncode


@functools.cache
def _parent() -> tuple[IO[str], IO[str]]:
    parent = subprocess.Popen([sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdin is not None
    assert parent.stdout is not None
    requests, answers = parent.stdin, parent.stdout

    def end() -> None:
        with contextlib.suppress(BrokenPipeError):
            requests.close()
        parent.wait()
        answers.close()

    atexit.register(end)
    return requests, answers


def _ask(**request: object) -> int:
    # Some tests run operators in threads.
    with _one_at_a_time:
        requests, answers = _parent()
        requests.write(json.dumps(request) + "\n")
        requests.flush()
        return int(answers.readline())
