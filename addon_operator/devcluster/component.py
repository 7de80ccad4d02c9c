"""One program of the control plane as a child process with a log file, on a leash.

The leash: the child inherits the read end of a pipe whose write end only this process has. When this process ends, in
whatever way, the kernel closes the write end and sends SIGKILL to the child's process group (F_SETSIG, F_SETOWN).
PR_SET_PDEATHSIG would do the same only as long as the thread that started the child lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from addon_operator.devcluster.errors import DevClusterError

_TAIL_BYTES: Final = 4096
_TAIL_LINES: Final = 15
_TERM_S: Final = 3.0
_KILL_S: Final = 10.0


class Component:
    """One program; can be stopped and started again."""

    def __init__(self, name: str, argv: Sequence[str], *, directory: Path) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self._argv = list(argv)
        self._directory = directory
        self._popen: subprocess.Popen[bytes] | None = None
        self._leash = -1

    @property
    def pid(self) -> int | None:
        """The process id; None while it is stopped."""
        return self._popen.pid if self._popen is not None else None

    def start(self) -> None:
        """Starts the program; its output is appended to its log.

        Raises:
            DevClusterError: it cannot be executed.
        """
        assert self._popen is None
        inherited, self._leash = os.pipe()
        try:
            self._popen = self._execute(inherited)
            self._fasten(inherited, self._popen.pid)
        except OSError as error:
            os.close(self._leash)
            raise DevClusterError(f"{self.name} cannot be started: {self._argv[0]}: {error.strerror}") from error
        finally:
            os.close(inherited)

    def check(self) -> None:
        """Notices an unexpected end.

        Raises:
            DevClusterError: it ended by itself; the message has the tail of its log.
        """
        if self._popen is not None and self._popen.poll() is not None:
            code = self._popen.returncode
            how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
            raise DevClusterError(f"{self.name} ended ({how}); the end of {self.log}:\n{self.tail()}")

    def stop(self, *, gently: bool = False) -> None:
        """Ends the program and waits for it; does nothing if it does not run.

        Args:
            gently: with SIGTERM first. Only what writes to disk needs that.
        """
        if self._popen is None:
            return
        if gently:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.terminate()
                self._popen.wait(_TERM_S)
        self._popen.kill()
        self._popen.wait(_KILL_S)
        os.close(self._leash)
        self._popen = None

    def tail(self) -> str:
        """Answers the last lines of the log, indented."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return "  (no log)"
        return "\n".join(f"  {line}" for line in text.splitlines()[-_TAIL_LINES:])

    def _execute(self, inherited: int) -> subprocess.Popen[bytes]:
        output = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            return subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._directory,
                # Nothing of the caller's configuration may reach the programs; kwok for one reads files below HOME.
                env={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self._directory)},
                start_new_session=True,
                pass_fds=(inherited,),
            )
        finally:
            os.close(output)

    @staticmethod
    def _fasten(inherited: int, pid: int) -> None:
        # A program that has ended already has no group left; check() tells.
        with contextlib.suppress(ProcessLookupError):
            fcntl.fcntl(inherited, fcntl.F_SETOWN, -pid)
            fcntl.fcntl(inherited, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(inherited, fcntl.F_SETFL, os.O_ASYNC)
