"""Child processes on a leash: they end with this process, in whatever way it ends.

The leash is a pipe whose read end the child inherits and whose write end only this process has. When this process ends,
the kernel closes the write end and sends SIGKILL to the child's process group (fcntl F_SETSIG, F_SETOWN). Unlike
PR_SET_PDEATHSIG

- it is set from outside, so that the child can be started with vfork, which is five times as fast as fork from a
  process of the operator's size;
- it reaches the whole process group;
- it does not depend on the thread that started the child.

The owner of a pipe can only be a group that exists, so there is a gap of microseconds: a child that is started while
this process is killed may survive it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class LeashedProcess:
    """One child process, leader of a session and process group of its own; reads nothing.

    Whoever starts it ends it: with `end`, or by reaping `popen` and calling `release`.

    Args:
        argv: the program and its arguments; found through `PATH` unless there is a slash in it.
        env: its whole environment.
        cwd: its working directory; ours if None.
        stdout: a file descriptor or `subprocess.PIPE`; ours if None.
        stderr: likewise.
        pass_fds: file descriptors that it inherits.

    Raises:
        OSError: it cannot be executed, or there is no file descriptor left.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        inherited, self._ours = os.pipe()
        try:
            self.popen = subprocess.Popen(
                list(argv),
                bufsize=0,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=cwd,
                env=env,
                start_new_session=True,
                pass_fds=(inherited, *pass_fds),
            )
            _attach(inherited, self.popen.pid)
        except BaseException:
            os.close(self._ours)
            raise
        finally:
            os.close(inherited)

    def release(self) -> None:
        """Lets go of the leash: what is left of the process group is killed. May be called once."""
        os.close(self._ours)

    def end(self, *, terminate_s: float, kill_s: float = 10.0) -> int:
        """Ends the process, releases the leash and returns the exit code as `subprocess` does. May be called once.

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
            self.release()


def _attach(inherited: int, pid: int) -> None:
    # The program may have ended already, and its group with it; a kernel without these commands only loses the leash.
    with contextlib.suppress(OSError):
        fcntl.fcntl(inherited, fcntl.F_SETOWN, -pid)
        fcntl.fcntl(inherited, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(inherited, fcntl.F_SETFL, os.O_ASYNC)
