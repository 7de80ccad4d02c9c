"""Child processes that behave and that do not; all real."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from addon_operator.process import child, orphans, output, reaper
from addon_operator.process.child import Exit
from tests.fakes.children import children

ENV = {"PATH": os.environ["PATH"]}


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    """No test leaves a process, a zombie or a file descriptor behind."""
    descriptors, before = set(Path("/proc/self/fd").iterdir()), children()
    reaper.adopt_orphans()
    yield
    reaper.adopt_orphans(on=False)
    assert children() - before == set()
    assert set(Path("/proc/self/fd").iterdir()) - descriptors == set()


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _pids(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()] if file.exists() else []


async def _until_written(file: Path, lines: int) -> None:
    while len(_pids(file)) < lines:
        await asyncio.sleep(0.01)


async def _next_tick() -> None:
    """What is started now is younger than what was started before: processes are dated in hundredths of a second."""
    now = orphans.now()
    while orphans.now() <= now:
        await asyncio.sleep(0.001)


async def _bash(script: str, *, timeout_s: float = 60, grace_s: float = 60, **env: str) -> Exit:
    return await child.run(["bash", "-c", script], env={**ENV, **env}, timeout_s=timeout_s, grace_s=grace_s)


async def test_tells_how_it_ended() -> None:
    ended = await _bash("echo no >&2; exit 7")
    assert (ended.code, ended.timed_out, ended.stderr_tail) == (7, False, "no")
    assert ended.duration_s > 0
    assert ended.max_rss_bytes > 2**20


async def test_counts_the_cpu_time_of_its_children() -> None:
    ended = await _bash("(i=0; while ((i < 60000)); do ((i+=1)); done); true")
    assert ended.user_cpu_s + ended.sys_cpu_s > 0.01


async def test_a_signal_is_a_negative_code() -> None:
    assert (await _bash("kill -SEGV $$")).code == -signal.SIGSEGV


async def test_gives_lines_while_it_runs(tmp_path: Path) -> None:
    answer = tmp_path / "answer"
    seen: list[tuple[str, str]] = []

    def on_line(stream: str, line: str) -> None:
        seen.append((stream, line))
        answer.touch()  # only now can the child go on

    script = f"echo first; while [ ! -e {answer} ]; do sleep 0.01; done; echo second >&2"
    await child.run(["bash", "-c", script], env=ENV, timeout_s=60, on_line=on_line)
    assert seen == [("stdout", "first"), ("stderr", "second")]


async def test_environment_directory_and_input() -> None:
    ended, printed = await child.capture(
        ["bash", "-c", 'pwd; echo "$A-$HOME"; cat'], env={**ENV, "A": "1"}, timeout_s=60, max_bytes=1000
    )
    assert ended.code == 0
    assert printed.decode().splitlines() == [str(Path.cwd()), "1-"]


async def test_too_much_output_ends_the_child() -> None:
    with pytest.raises(OSError, match="more than 1000 bytes") as caught:
        await child.capture(["yes"], env=ENV, timeout_s=60, max_bytes=1000)
    assert caught.value.errno == errno.EFBIG


@pytest.mark.parametrize(
    ("content", "mode", "number"),
    [
        pytest.param(None, 0, errno.ENOENT, id="no file"),
        pytest.param("#!/bin/sh\n", 0o600, errno.EACCES, id="not executable"),
        pytest.param("#!/no/such/shell\n", 0o700, errno.ENOENT, id="no interpreter"),
        pytest.param("echo\n", 0o700, errno.ENOEXEC, id="no program"),
    ],
)
async def test_what_cannot_be_started(tmp_path: Path, content: str | None, mode: int, number: int) -> None:
    path = tmp_path / "program"
    if content is not None:
        path.write_text(content)
        path.chmod(mode)
    with pytest.raises(OSError, match="program") as caught:
        await child.run([str(path)], env=ENV, timeout_s=60)
    assert caught.value.errno == number


@pytest.fixture
def deaf() -> Iterator[None]:
    """Children begin with SIGTERM blocked, so that it waits for them however long they take to be ready for it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.mark.usefixtures("deaf")
async def test_the_deadline_asks_first() -> None:
    program = textwrap.dedent(
        """
        import signal, sys
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("bye"))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        signal.pause()
        """
    )
    ended = await child.run([sys.executable, "-ISc", program], env=ENV, timeout_s=0.1, grace_s=60)
    assert (ended.code, ended.timed_out, ended.stderr_tail) == (1, True, "bye")


@pytest.mark.usefixtures("deaf")
async def test_the_deadline_kills_what_ignores_it() -> None:
    ended = await _bash("exec sleep 1000", timeout_s=0.1, grace_s=0.1)
    assert (ended.code, ended.timed_out) == (-signal.SIGKILL, True)


async def test_a_stopped_child_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    task = asyncio.create_task(_bash("echo $$ >> $PIDS; kill -STOP $$", grace_s=0.1, PIDS=str(pids)))
    await _until_written(pids, 1)
    [pid] = _pids(pids)
    while _state(pid) != "T":
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not _alive(pid)


LEAVERS = {
    "same group": "sleep 1000 & echo $! >> $PIDS",
    "deaf": "(trap '' TERM HUP INT; echo $BASHPID >> $PIDS; while :; do sleep 0.01; done) &",
    "own group": "set -m; sleep 1000 & echo $! >> $PIDS",
    "own session": "setsid sh -c 'echo $$ >> $PIDS; exec sleep 1000' &",
    "daemon": "(setsid sh -c '(echo $$ >> $PIDS; sleep 1000 & echo $! >> $PIDS; wait) &' &)",
    "own session without environment": "setsid sh -c 'env -i sleep 1000 & echo $! >> $PIDS; echo $$ >> $PIDS; wait' &",
    "ended unseen in an own session": (
        "setsid sh -c 'until grep -qx sleep /proc/$PPID/comm; do sleep 0.01; done' & echo $! >> $PIDS; exec sleep 1"
    ),
}


@pytest.mark.parametrize("script", LEAVERS.values(), ids=LEAVERS.keys())
async def test_nothing_outlives_the_run(tmp_path: Path, script: str) -> None:
    pids = tmp_path / "pids"
    await _bash(f"{script}\nwhile [ ! -s $PIDS ]; do sleep 0.01; done", PIDS=str(pids))
    assert _pids(pids)
    assert not [pid for pid in _pids(pids) if _alive(pid)]


async def test_a_run_leaves_the_family_of_another_alone(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    other = asyncio.create_task(
        _bash("(setsid sh -c 'echo $$ >> $PIDS; exec sleep 1000' &); sleep 1000", PIDS=str(pids)), name="other"
    )
    await _until_written(pids, 1)
    await _bash("true")
    assert _alive(_pids(pids)[0])
    other.cancel()
    with pytest.raises(asyncio.CancelledError):
        await other
    assert not _alive(_pids(pids)[0])


async def test_children_of_others_are_left_alone() -> None:
    outsider = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    ours = subprocess.Popen(["sh", "-c", "exit 5"])
    os.waitid(os.P_PID, ours.pid, os.WEXITED | os.WNOWAIT)
    await _next_tick()
    await _bash("(setsid sleep 1000 &)")
    assert outsider.poll() is None
    assert ours.wait() == 5
    outsider.kill()
    outsider.wait()


# Leaves its session, empties its environment, and closes all that it does not know: nothing tells whose it is.
ESCAPE = f"""{sys.executable} -ISc '
import os
os.setsid()
os.closerange(3, 1024)
then = "echo $$ >> $0; exec " + os.environ.get("THEN", "sleep 1000")
os.execve("/bin/sh", ["sh", "-c", then, os.environ["PIDS"]], {{}})
' & until [ -s $PIDS ]; do sleep 0.01; done"""


@contextlib.asynccontextmanager
async def _beside(tmp_path: Path) -> AsyncIterator[None]:
    """Another run that goes on for the length of the block."""
    ready = tmp_path / "ready"
    other = asyncio.create_task(_bash("echo $$ >> $READY; sleep 1000", READY=str(ready)), name="other")
    await _until_written(ready, 1)
    try:
        yield
    finally:
        other.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await other


async def test_a_process_without_environment_in_its_own_session_ends_with_the_run(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    await _bash(ESCAPE, PIDS=str(pids))
    assert not _alive(_pids(pids)[0])


async def test_a_process_without_environment_ends_with_its_run_while_others_run(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with _beside(tmp_path):
        script = (
            "env -i setsid sh -c 'echo $$ >> $0; exec sleep 1000' \"$PIDS\" & until [ -s $PIDS ]; do sleep 0.01; done"
        )
        await _bash(script, PIDS=str(pids))
        assert not _alive(_pids(pids)[0])


async def test_a_process_without_any_mark_ends_when_nobody_runs_that_may_have_started_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with _beside(tmp_path):
        await _bash(ESCAPE, PIDS=str(pids))
        await _bash("true")
        assert _runs(_pids(pids)[0])
    assert not _alive(_pids(pids)[0])


async def test_a_process_without_any_mark_cannot_belong_to_a_run_that_began_later(tmp_path: Path) -> None:
    pids, go = tmp_path / "pids", tmp_path / "go"
    run = asyncio.create_task(
        _bash(f"{ESCAPE}; until [ -e $GO ]; do sleep 0.01; done", PIDS=str(pids), GO=str(go)), name="run"
    )
    await _until_written(pids, 1)
    await _next_tick()
    async with _beside(tmp_path):
        go.touch()
        await run
        assert not _alive(_pids(pids)[0])


async def test_output_pipes_kept_open_do_not_hold_it_up(tmp_path: Path) -> None:
    """A process that another run may have started keeps the pipe open; the run ends all the same."""
    pids = tmp_path / "pids"
    lines: list[str] = []
    async with _beside(tmp_path):
        await child.run(
            ["bash", "-c", f"{ESCAPE}\necho said"],
            env={**ENV, "PIDS": str(pids)}, timeout_s=60, on_line=lambda _stream, line: lines.append(line),
        )  # fmt: skip
        assert lines == ["said"]
        assert _runs(_pids(pids)[0])


async def test_what_belongs_to_no_run_is_ended_when_the_operator_stops(tmp_path: Path) -> None:
    """Another program of the operator's has left it behind; what is no orphan is left alone."""
    pids = tmp_path / "pids"
    subprocess.run(["bash", "-c", f"setsid sh -c 'echo $$ >> {pids}; exec sleep 1000' &"], check=True)
    await _until_written(pids, 1)
    [left] = _pids(pids)
    insider = subprocess.Popen(["sleep", "1000"])
    await reaper.end_orphans()
    assert not _alive(left)
    assert insider.poll() is None
    insider.kill()
    insider.wait()


async def test_becoming_another_program_does_not_hide_it() -> None:
    """In the middle of execve a process has no environment; this one gets there 50 times."""
    run = orphans.Run.begin()
    child = subprocess.Popen(["env"] * 50 + ["true"], env={**ENV, orphans.RUN_ID: run.id})
    told = {orphans.run_of(child.pid) for _ in iter(child.poll, 0)}
    assert told - {None} == {run.id}
    assert child.returncode == 0


async def test_endless_output_of_an_escaped_process_does_not_hold_it_up(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    env = {**ENV, "PIDS": str(pids), "THEN": "yes"}
    async with _beside(tmp_path):
        await child.run(["bash", "-c", ESCAPE], env=env, timeout_s=60, on_line=lambda _stream, _line: None)
        [pid] = _pids(pids)
        os.waitpid(pid, 0)  # our end of the pipe is closed, so it ends by itself


async def test_closed_pipes_do_not_end_it() -> None:
    ended = await _bash("exec >&- 2>&-; sleep 0.2; exit 4")
    assert ended.code == 4


async def test_a_flood_of_output_is_cut() -> None:
    lines: list[str] = []
    await child.run(
        ["bash", "-c", "yes | head -c 20000000; head -c 1000000 /dev/zero >&2"],
        env=ENV,
        timeout_s=60,
        on_line=lambda _stream, line: lines.append(line),
    )
    assert len(lines) == output.MAX_LINES + 2
    assert max(map(len, lines)) < 11_000
    assert [line for line in lines if "more lines" in line] == ["... (9990000 more lines, not shown)"]


async def test_the_last_words_are_kept() -> None:
    ended = await _bash("head -c 1000000 /dev/zero | tr '\\0' x >&2; echo end >&2; exit 1")
    assert ended.stderr_tail.endswith("xend")
    assert len(ended.stderr_tail) <= 8192


async def test_cancellation_ends_the_group_and_is_raised_again(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    task = asyncio.create_task(_bash("echo $$ >> $PIDS; sleep 1000 & echo $! >> $PIDS; wait", PIDS=str(pids)))
    await _until_written(pids, 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not [pid for pid in _pids(pids) if _alive(pid)]


async def test_a_second_cancellation_ends_the_grace(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = "trap 'echo 1 >> $PIDS' TERM; echo $$ >> $PIDS; while :; do sleep 0.01; done"
    task = asyncio.create_task(_bash(script, grace_s=3600, PIDS=str(pids)))
    await _until_written(pids, 1)
    task.cancel()
    await _until_written(pids, 2)  # it heard SIGTERM and goes on
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not _alive(_pids(pids)[0])


async def test_many_at_once() -> None:
    codes = await asyncio.gather(*(_bash(f"(setsid sleep 1000 &); exit {number}") for number in range(20)))
    assert [ended.code for ended in codes] == list(range(20))


async def test_the_group_dies_with_the_operator(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = textwrap.dedent(
        """
        import asyncio, os, sys
        from addon_operator.process import child
        script = "trap '' TERM HUP; echo $$ >> $PIDS; sleep 1000 & echo $! >> $PIDS; wait"
        env = {"PATH": os.environ["PATH"], "PIDS": sys.argv[1]}

        async def main():
            running = asyncio.create_task(child.run(["bash", "-c", script], env=env, timeout_s=1000))
            await asyncio.sleep(0)  # until it is started, and on its leash
            print("started", flush=True)
            await running

        asyncio.run(main())
        """
    )
    with subprocess.Popen([sys.executable, "-c", program, str(pids)], stdout=subprocess.PIPE) as operator:
        assert operator.stdout is not None
        await asyncio.to_thread(operator.stdout.readline)
        await _until_written(pids, 2)
        operator.kill()
    while [pid for pid in _pids(pids) if _runs(pid)]:
        await asyncio.sleep(0.01)
    for pid in _pids(pids):  # adopted by this process, unless its parent lived long enough to reap it
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _runs(pid: int) -> bool:
    try:
        return _state(pid) != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter if it goes between opening and reading
        return False


async def test_what_a_killed_operator_left_behind_is_ended_by_the_next_one(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = textwrap.dedent(
        """
        import asyncio, os, sys
        from addon_operator.process import child
        tail = "sh -c 'echo $$ >> $0; exec sleep 1000' $PIDS &"
        script = f"setsid {tail} env -i setsid {tail} sleep 1000"
        env = {"PATH": os.environ["PATH"], "PIDS": sys.argv[1]}
        asyncio.run(child.run(["bash", "-c", script], env=env, timeout_s=1000))
        """
    )
    live = tmp_path / "live"
    script = "setsid sh -c 'echo $$ >> $LIVE; exec sleep 1000' & sleep 1000"
    running = asyncio.create_task(_bash(script, LIVE=str(live)), name="running")
    await _until_written(live, 1)
    with subprocess.Popen([sys.executable, "-c", program, str(pids)]) as operator:
        await _until_written(pids, 2)
        operator.kill()
    # Any operator that starts on this host at this moment may be faster.
    next_one = [sys.executable, "-c", "from addon_operator.process import reaper; reaper.end_stale_orphans()"]
    subprocess.run(next_one, check=True)
    for pid in _pids(pids):  # this process has adopted it
        assert os.waitstatus_to_exitcode(os.waitpid(pid, os.WNOHANG if _runs(pid) else 0)[1]) == -signal.SIGKILL
    assert _runs(_pids(live)[0])
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_without_adoption_the_group_is_still_ended(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = textwrap.dedent(
        """
        import asyncio, os, sys
        from addon_operator.process import child
        env = {"PATH": os.environ["PATH"], "PIDS": sys.argv[1]}
        ended = asyncio.run(child.run(["bash", "-c", "sleep 1000 & echo $! >> $PIDS"], env=env, timeout_s=1000))
        sys.exit(ended.code)
        """
    )
    assert subprocess.run([sys.executable, "-c", program, str(pids)], check=False).returncode == 0
    while _runs(_pids(pids)[0]):
        await asyncio.sleep(0.01)
    os.waitpid(_pids(pids)[0], 0)


@contextlib.contextmanager
def _descriptors_left(count: int) -> Iterator[None]:
    """Lets this process open only so many more file descriptors."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (max(int(entry.name) for entry in Path("/proc/self/fd").iterdir()) + 50, limits[1])
    )
    taken: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for _ in range(count):
            os.close(taken.pop())
        yield
    finally:
        for number in taken:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize("left", range(6))
async def test_a_run_that_fails_for_want_of_file_descriptors_keeps_none(left: int) -> None:
    with _descriptors_left(left), pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        await _bash("true")
