"""Child processes on a leash: they end with this process, in whatever way it ends.

A child inherits the read end of a pipe whose write end only this process has. When this process ends, the kernel closes
the write end and sends SIGKILL to the child's process group (F_SETSIG, F_SETOWN). PR_SET_PDEATHSIG would do that
only as long as the thread that started the child lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class Leashed:
    """One child process, leader of a session of its own.

    Args:
        argv: the program with its path, and its arguments.
        env: its whole environment.
        cwd: its working directory; ours if None.
        output: file descriptor for its stdout and stderr; ours if None.

    Raises:
        OSError: it cannot be executed.
    """

    def __init__(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path | None = None, output: int | None = None
    ) -> None:
        inherited, self._ours = os.pipe()
        try:
            self.popen = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=cwd,
                env=env,
                start_new_session=True,
                pass_fds=(inherited,),
            )
            _fasten(inherited, self.popen.pid)
        except BaseException:
            os.close(self._ours)
            raise
        finally:
            os.close(inherited)

    def end(self, *, terminate_s: float, kill_s: float = 10.0) -> int:
        """Ends it and returns its exit code as `subprocess` does; a second call is refused.

        Args:
            terminate_s: how long it may take to end after SIGTERM; 0 leaves SIGTERM out.
            kill_s: how long the kernel may take after SIGKILL.
        """
        try:
            if terminate_s > 0:
                self.popen.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return self.popen.wait(terminate_s)
            self.popen.kill()
            return self.popen.wait(kill_s)
        finally:
            os.close(self._ours)


def _fasten(inherited: int, pid: int) -> None:
    # A program that has ended already has no group any more.
    with contextlib.suppress(ProcessLookupError):
        fcntl.fcntl(inherited, fcntl.F_SETOWN, -pid)
        fcntl.fcntl(inherited, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(inherited, fcntl.F_SETFL, os.O_ASYNC)
