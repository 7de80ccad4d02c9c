"""One program of the control plane as a child process with a log file."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from addon_operator.devcluster.errors import DevClusterError
from addon_operator.process.leash import LeashedProcess

_TAIL_BYTES: Final = 4096
_TAIL_LINES: Final = 15
_TERM_S: Final = 3.0


class Component:
    """One program; can be stopped and started again.

    Attributes:
        log: where its output goes; appended to.
    """

    def __init__(self, name: str, argv: Sequence[str], *, directory: Path) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self._argv = list(argv)
        self._directory = directory
        self._child: LeashedProcess | None = None

    @property
    def pid(self) -> int | None:
        """The process id; None while it is stopped."""
        return self._child.popen.pid if self._child is not None else None

    def start(self) -> None:
        """Starts the program.

        Raises:
            DevClusterError: it cannot be executed.
        """
        assert self._child is None
        # The caller's configuration must not affect the programs; kwok, for instance, reads files below HOME.
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self._directory)}
        output = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            self._child = LeashedProcess(self._argv, env=environment, cwd=self._directory, stdout=output, stderr=output)
        except OSError as error:
            raise DevClusterError(f"{self.name} cannot be started: {self._argv[0]}: {error.strerror}") from error
        finally:
            os.close(output)

    def check(self) -> None:
        """Raises an error if the program ended unexpectedly.

        Raises:
            DevClusterError: it ended by itself; the message has the tail of its log.
        """
        code = self._child.popen.poll() if self._child is not None else None
        if code is not None:
            how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
            raise DevClusterError(f"{self.name} ended ({how}); the end of {self.log}:\n{self.tail()}")

    def stop(self, *, gently: bool = False) -> None:
        """Ends the program and waits for it; does nothing if it does not run.

        Args:
            gently: with SIGTERM first. Only programs that write to disk need that.
        """
        if self._child is not None:
            self._child.end(terminate_s=_TERM_S if gently else 0.0)
            self._child = None

    def tail(self) -> str:
        """Returns the last lines of the log, indented."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return "  (no log)"
        return "\n".join(f"  {line}" for line in text.splitlines()[-_TAIL_LINES:])
