"""Clusters in a process of their own, which outlives the command that started it: `up`, `down`, `status`.

The process holds the cluster's lock; its children are on its leash, so that they end with it, even when it is killed.
`python -m addon_operator.devcluster.daemon DIRECTORY` is that process.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from addon_operator.devcluster import files
from addon_operator.devcluster.cluster import DevCluster, Progress
from addon_operator.devcluster.errors import DevClusterError

_DOWN_S: Final = 40.0
_POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Status:
    """The status of one cluster.

    Attributes:
        directory: absolute.
        state: `running`, `starting` or `stopped`.
        pid: of the process that owns it; None if it is stopped.
        version: of the API server; empty unless running.
        server: its address; empty unless running.
        uptime_s: seconds since its start; 0 unless running.
        components: name -> pid; empty unless running.
    """

    directory: Path
    state: str
    pid: int | None
    version: str
    server: str
    uptime_s: float
    components: dict[str, int]

    @property
    def name(self) -> str:
        """The name of its directory."""
        return self.directory.name

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.directory / "kubeconfig"


def status(directory: Path) -> Status:
    """Returns the status of one cluster, without a request to its API server."""
    directory = directory.absolute()
    pid = files.Lock(directory).holder()
    state = files.read_state(directory)
    if pid is None or state is None:
        return Status(directory, "stopped" if pid is None else "starting", pid, "", "", 0.0, {})
    word = "running" if state.version else "starting"
    uptime_s = max(0.0, time.time() - state.started_at)
    return Status(directory, word, pid, state.version, state.server, uptime_s, dict(state.components))


def statuses(home: Path) -> list[Status]:
    """Returns the status of all clusters below a directory, ordered by name."""
    return [status(path.parent) for path in sorted(home.glob("*/state.json"))]


def up(directory: Path, *, on_progress: Progress = lambda _: None) -> Status:
    """Starts a cluster in the background unless it is running; returns when it is ready.

    Raises:
        DevClusterError: as `DevCluster.open`.
    """
    found = status(directory)
    if found.state == "running":
        return found
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for line in _spawn(directory):
        word, _, rest = line.partition(" ")
        if word == "ready":
            return status(directory)
        if word == "error":
            raise DevClusterError(rest.replace("\\n", "\n"))
        on_progress(rest)
    raise DevClusterError(f"the cluster's process ended at its start; see {directory / 'daemon.log'}")


def down(directory: Path) -> bool:
    """Stops a cluster; returns when no process of it is left, and False if it was not running.

    Whoever owns the cluster gets SIGTERM, and SIGKILL after 40 s.

    Raises:
        DevClusterError: its process belongs to somebody else.
    """
    lock = files.Lock(directory)
    pid = lock.holder()
    if pid is None:
        return False
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # Still held by the same process, so the handle belongs to it and not to a later process with its id.
        if lock.holder() == pid:
            _end(handle, signal.SIGTERM, _DOWN_S) or _end(handle, signal.SIGKILL, _DOWN_S)
    except PermissionError as error:
        raise DevClusterError(
            f"process {pid}, which runs the cluster in {directory}, belongs to another user"
        ) from error
    finally:
        os.close(handle)
    _await_end_of_components(directory)
    return True


def _end(handle: int, number: signal.Signals, limit_s: float) -> bool:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, number)
    return bool(select.select([handle], [], [], limit_s)[0])


def _await_end_of_components(directory: Path) -> None:
    """Waits for the processes on the leash of a killed process, which die within milliseconds."""
    state = files.read_state(directory)
    deadline = time.monotonic() + _DOWN_S
    for pid in state.components.values() if state is not None else ():
        while _runs_in(pid, directory) and time.monotonic() < deadline:
            time.sleep(_POLL_S)


def _runs_in(pid: int, directory: Path) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == directory.absolute()
    except OSError:
        return False


def _spawn(directory: Path) -> Iterator[str]:
    """Starts the process and yields what it reports, until it is ready or has failed."""
    with (directory / "daemon.log").open("wb") as log:
        popen = subprocess.Popen(
            [sys.executable, "-m", "addon_operator.devcluster.daemon", str(directory)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
    # Without a reader the process exits, so that Ctrl-C here ends it.
    with popen:
        assert popen.stdout is not None
        yield from (line.rstrip("\n") for line in popen.stdout)


def _report(word: str, text: str) -> None:
    escaped = text.replace("\n", "\\n")
    try:
        os.write(1, f"{word} {escaped}\n".encode())
    except BrokenPipeError:
        sys.exit(1)


def _stop(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)
    sys.exit(0)


def _serve(directory: Path) -> None:
    with DevCluster(directory, on_progress=lambda text: _report("progress", text)) as cluster:
        _report("ready", "")
        # The starter reads until all copies of the pipe are closed, and must not wait for ours.
        os.dup2(2, 1)
        cluster.wait()


def main() -> None:
    """Runs the cluster until SIGTERM; exits with status 1 when a component ends, with a message in its log."""
    if os.fork() > 0:
        # The starter reaps this process; the daemon has no parent that would have to reap it.
        os._exit(0)
    signal.signal(signal.SIGTERM, _stop)
    try:
        _serve(Path(sys.argv[1]))
    except DevClusterError as error:
        _report("error", str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
