"""Processes on a leash end with whoever started them; all real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from addon_operator.process.leash import LeashedProcess

SLEEPER = ("/bin/sh", "-c", "sleep 600")


def until(condition: Callable[[], bool]) -> None:
    """Waits for another process."""
    while not condition():
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    """Says whether a process has ended, reaped or not."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True


def test_a_child_dies_with_its_killed_parent(tmp_path: Path) -> None:
    script = (
        "import os, sys, time\n"
        "from addon_operator.process.leash import LeashedProcess\n"
        f"child = LeashedProcess({SLEEPER!r}, env=dict(os.environ))\n"
        "print(child.popen.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert not is_gone(child)
        parent.kill()
    until(lambda: is_gone(child))


def test_a_child_outlives_the_thread_that_started_it() -> None:
    started: list[LeashedProcess] = []
    thread = threading.Thread(target=lambda: started.append(LeashedProcess(SLEEPER, env=dict(os.environ))))
    thread.start()
    thread.join()
    with pytest.raises(subprocess.TimeoutExpired):
        started[0].popen.wait(0.2)
    assert started[0].end(terminate_s=5.0) == -signal.SIGTERM


def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    script = f"trap '' TERM; touch {ready}; while :; do sleep 600; done"
    child = LeashedProcess(("/bin/sh", "-c", script), env=dict(os.environ))
    until(ready.exists)
    assert child.end(terminate_s=0.2) == -signal.SIGKILL
