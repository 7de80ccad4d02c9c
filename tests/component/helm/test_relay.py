"""The post-renderer, with a shell in the place of helm."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from addon_operator.helm.relay import relayed
from addon_operator.process import child
from addon_operator.process.child import Exit

LARGE = 3 * 2**18


def descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def renderer(flags: list[str]) -> list[str]:
    """The command that helm would start."""
    assert flags[:2] == ["--post-renderer", "/bin/sh"]
    return ["/bin/sh", *(flag.removeprefix("--post-renderer-args=") for flag in flags[2:])]


async def helm(flags: list[str], manifest: Path) -> tuple[Exit, bytes]:
    argv = ["/bin/sh", "-c", 'exec "$@" <"$0"', str(manifest), *renderer(flags)]
    return await child.capture(argv, env=dict(os.environ), timeout_s=60, max_bytes=2**24)


@pytest.mark.parametrize("size", [0, 1, LARGE])
async def test_hands_the_manifest_over_and_takes_it_back(tmp_path: Path, size: int) -> None:
    (tmp_path / "manifest").write_bytes(b"m" * size)
    before = descriptors()
    async with relayed(tmp_path, lambda data: data + b"labelled") as flags:
        ended, output = await helm(flags, tmp_path / "manifest")
    assert (ended.code, output) == (0, b"m" * size + b"labelled")
    assert descriptors() - before == set()


async def test_an_answer_larger_than_the_pipe(tmp_path: Path) -> None:
    (tmp_path / "manifest").write_bytes(b"m")
    async with relayed(tmp_path, lambda data: data * LARGE) as flags:
        ended, output = await helm(flags, tmp_path / "manifest")
    assert (ended.code, len(output)) == (0, LARGE)


async def test_an_error_fails_the_run_and_is_raised(tmp_path: Path) -> None:
    (tmp_path / "manifest").write_bytes(b"m")
    before, codes = descriptors(), []

    def edit(_data: bytes) -> bytes:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        async with relayed(tmp_path, edit) as flags:
            codes.append((await helm(flags, tmp_path / "manifest"))[0].code)
    assert codes == [1]
    assert descriptors() - before == set()


async def test_an_answer_that_is_cut_off_fails_the_run(tmp_path: Path) -> None:
    """As if the operator had died while it wrote: helm must not deploy half a manifest."""
    (tmp_path / "manifest").write_bytes(b"m")
    started = asyncio.Event()

    def edit(_data: bytes) -> bytes:
        started.set()
        return b"x" * LARGE

    async with relayed(tmp_path, edit) as flags:
        script = f"{renderer(flags)[2]}"
        slow = script.replace("cat <&3", "head -c 10 <&3")
        argv = ["/bin/sh", "-c", slow, *renderer(flags)[3:]]
        ended, output = await child.capture(argv, env=dict(os.environ), timeout_s=60, max_bytes=2**20)
    assert started.is_set()
    assert (ended.code, output) == (1, b"x" * 10)


async def test_helm_that_never_renders_leaves_nothing_behind(tmp_path: Path) -> None:
    before = descriptors()
    async with relayed(tmp_path, lambda data: data):
        pass
    assert descriptors() - before == set()


async def test_cancellation_leaves_nothing_behind(tmp_path: Path) -> None:
    before, entered = descriptors(), asyncio.Event()

    async def wait() -> None:
        async with relayed(tmp_path, lambda data: data):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert descriptors() - before == set()
