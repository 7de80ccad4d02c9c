"""What runs of hooks do, those that are functions as well as real processes."""

from __future__ import annotations

import asyncio
import dataclasses
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import pytest

from addon_operator.errors import BadReply, HookUnreachable
from addon_operator.hooks.call import HookId
from addon_operator.hooks.engine import HookTransport
from addon_operator.hooks.transport_local import LocalTransport
from addon_operator.process.child import Exit
from addon_operator.process.output import MAX_LINE_CHARS, MAX_LINES, Stream
from tests.fakes.hook_transport import FakeHookTransport, HookRun

HOOK: Final = HookId("alpha", "hooks/x")


@dataclasses.dataclass(frozen=True, slots=True)
class Act:
    """What a hook does, in this order.

    Attributes:
        out: what it prints.
        err: what it prints to stderr.
        copies: reads the file in the variable `IN` and writes it to the one in `OUT`.
        lasts_s: how long it takes then.
        code: its exit code; negative is the number of the signal that ends it.
    """

    out: str = ""
    err: str = ""
    copies: bool = False
    lasts_s: float = 0.0
    code: int = 0


class Make(Protocol):
    """Makes the file of a hook, and a transport that runs it."""

    def __call__(self, path: Path, act: Act, /) -> HookTransport: ...


def real(path: Path, act: Act) -> HookTransport:
    for name in ("out", "err"):
        path.with_suffix(f".{name}").write_text(act.out if name == "out" else act.err)
    lines = [
        "#!/bin/bash",
        f"cat {shlex.quote(str(path.with_suffix('.out')))}",
        f"cat {shlex.quote(str(path.with_suffix('.err')))} >&2",
        'cat "$IN" > "$OUT"' if act.copies else ":",
        f"sleep {act.lasts_s}" if act.lasts_s else ":",
        f"exit {act.code}" if act.code >= 0 else f"kill {act.code} $$",
    ]
    path.write_text("\n".join(lines))
    path.chmod(0o755)
    return LocalTransport()


def fake(path: Path, act: Act) -> HookTransport:
    async def run(hook: HookRun) -> int:
        hook.print(act.out)
        hook.print(act.err, "stderr")
        if act.copies:
            hook.write("OUT", Path(hook.environment["IN"]).read_bytes())
        await asyncio.sleep(act.lasts_s)
        return act.code

    path.write_text("#!/bin/bash\n")
    path.chmod(0o755)
    return FakeHookTransport(run, configure=run)


@pytest.fixture(params=[fake, real], ids=["fake", "real"])
def make(request: pytest.FixtureRequest) -> Make:
    chosen: Make = request.param
    return chosen


@dataclasses.dataclass(slots=True)
class Subject:
    """One hook, and the lines that it has printed."""

    make: Make
    path: Path
    lines: list[tuple[Stream, str]] = dataclasses.field(default_factory=list)
    harm: Callable[[Path], object] = lambda _path: None

    async def run(self, act: Act, *, timeout_s: float = 30.0, grace_s: float = 5.0) -> Exit:
        transport = self.make(self.path, act)
        self.harm(self.path)
        return await transport.execute(
            self.path,
            hook=HOOK,
            environment={"PATH": "/usr/bin:/bin", "IN": str(self.path.with_name("in")), "OUT": str(self.out)},
            timeout_s=timeout_s,
            grace_s=grace_s,
            on_line=lambda stream, line: self.lines.append((stream, line)),
        )

    async def configure(self, act: Act, *, timeout_s: float = 30.0) -> tuple[Exit, bytes]:
        transport = self.make(self.path, act)
        self.harm(self.path)
        environment = {"PATH": "/usr/bin:/bin"}
        return await transport.ask_config(
            self.path, hook=HOOK, environment=environment, timeout_s=timeout_s, grace_s=5.0
        )

    @property
    def out(self) -> Path:
        return self.path.with_name("out")


@pytest.fixture
def subject(make: Make, tmp_path: Path) -> Subject:
    (tmp_path / "in").write_text("contexts")
    return Subject(make, tmp_path / "x")


@pytest.mark.parametrize("code", [0, 1, 77, -15, -9])
async def test_exit_code(subject: Subject, code: int) -> None:
    ended = await subject.run(Act(code=code))
    assert (ended.code, ended.timed_out) == (code, False)
    ended, _ = await subject.configure(Act(code=code))
    assert (ended.code, ended.timed_out) == (code, False)


async def test_files_are_found_through_the_environment(subject: Subject) -> None:
    await subject.run(Act(copies=True))
    assert subject.out.read_text() == "contexts"


async def test_output_comes_line_by_line(subject: Subject) -> None:
    await subject.run(Act(out="a\n\nb\r\nlast"))
    assert subject.lines == [("stdout", "a"), ("stdout", ""), ("stdout", "b"), ("stdout", "last")]


async def test_stderr_is_told_apart_and_its_end_is_kept(subject: Subject) -> None:
    ended = await subject.run(Act(out="a\n", err=f"{'x' * 9000}\nno\n", code=1))
    assert sorted(subject.lines) == [("stderr", "no"), ("stderr", "x" * 9000), ("stdout", "a")]
    assert ended.stderr_tail == f"{'x' * (8192 - len('  no'))}\nno"


async def test_too_much_output_is_cut_and_counted(subject: Subject) -> None:
    await subject.run(Act(out=f"{'x' * (MAX_LINE_CHARS + 1)}\n" + "line\n" * (MAX_LINES + 6)))
    texts = [line for _, line in subject.lines]
    assert texts[0] == "x" * MAX_LINE_CHARS + f"... (cut after {MAX_LINE_CHARS} characters)"
    assert len(texts) == MAX_LINES + 1
    assert texts[-1] == "... (7 more lines, not shown)"


async def test_deadline(subject: Subject) -> None:
    ended = await subject.run(Act(out="begun\n", lasts_s=60), timeout_s=0.5)
    assert (ended.code, ended.timed_out) == (-15, True)
    assert ended.duration_s >= 0.5
    assert subject.lines == [("stdout", "begun")]


async def test_cancellation_ends_it(subject: Subject) -> None:
    run = asyncio.create_task(subject.run(Act(out="begun\n", lasts_s=60, copies=True)))
    while not subject.lines:
        await asyncio.sleep(0.01)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(run, 30)


def no_interpreter(path: Path) -> None:
    path.write_text("#!/nowhere/bash\n")


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        pytest.param(Path.unlink, "the file does not exist", id="no file"),
        pytest.param(lambda path: path.chmod(0o644), "the file is not executable", id="not executable"),
        pytest.param(no_interpreter, "its interpreter /nowhere/bash does not exist", id="no interpreter"),
    ],
)
async def test_hook_that_cannot_be_started(subject: Subject, harm: Callable[[Path], object], reason: str) -> None:
    subject.harm = harm
    message = f"hook hooks/x of module alpha: {subject.path}: {reason}"
    for attempt in (subject.run(Act()), subject.configure(Act())):
        with pytest.raises(HookUnreachable) as caught:
            await attempt
        assert str(caught.value) == message


async def test_configuration_is_what_is_printed(subject: Subject) -> None:
    ended, printed = await subject.configure(Act(out="configVersion: v1\n", err="working\n"))
    assert (ended.code, printed, ended.stderr_tail) == (0, b"configVersion: v1\n", "working")


async def test_configuration_has_a_deadline(subject: Subject) -> None:
    ended, printed = await subject.configure(Act(out="a", lasts_s=60), timeout_s=0.5)
    assert (ended.code, ended.timed_out, printed) == (-15, True, b"a")


@pytest.mark.parametrize("size", [2**20, 2**20 + 1], ids=["1 MiB", "more"])
async def test_configuration_has_a_limit(subject: Subject, size: int) -> None:
    if size == 2**20:
        _, printed = await subject.configure(Act(out="x" * size))
        assert len(printed) == size
        return
    with pytest.raises(BadReply, match=r"^hook hooks/x of module alpha: --config printed more than 1048576 bytes"):
        await subject.configure(Act(out="x" * size))
