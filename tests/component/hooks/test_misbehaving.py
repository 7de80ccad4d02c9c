"""Hooks that try to hurt the operator: no hang, no leak (see `nothing_leaks`), and a clear error where there is one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from addon_operator.errors import BadReply, HookError, HookTimedOut
from addon_operator.hooks.call import Effects, HookCall, HookId
from addon_operator.hooks.engine import HookEngine
from tests.component.hooks.conftest import WriteHook

HOOK = HookId("alpha", "hooks/hook.sh")
DIRECTORY = "dir=$(dirname $METRICS_PATH)"


def _call(path: Path, *, timeout_s: float = 60) -> HookCall:
    return HookCall(HOOK, path, (), {}, {}, timeout_s)


HARMLESS = {
    "children that outlive it": "sleep 1000 & setsid sleep 1000 & (setsid sleep 1000 &) ; echo ok > $METRICS_PATH",
    "closed pipes": "exec >&- 2>&-; sleep 0.1; echo ok > $METRICS_PATH",
    "children holding its pipes": "echo ok > $METRICS_PATH; (trap '' TERM; setsid sleep 1000) &",
    "files of its own": f"{DIRECTORY}; mkdir -p $dir/a/b; touch $dir/a/b/c; echo ok > $METRICS_PATH",
    "directories without rights": f"{DIRECTORY}; mkdir -p $dir/a/b; chmod 0 $dir/a; echo ok > $METRICS_PATH",
    "own directory without rights": f"{DIRECTORY}; echo ok > $METRICS_PATH; chmod 0 $dir",
    "the file read-only": "echo ok > $METRICS_PATH; chmod 400 $METRICS_PATH",
    "patch files removed": "rm $VALUES_JSON_PATCH_PATH $KUBERNETES_PATCH_PATH $VALUES_PATH; echo ok > $METRICS_PATH",
}


@pytest.mark.parametrize("body", HARMLESS.values(), ids=HARMLESS.keys())
async def test_it_still_counts_as_success(engine: HookEngine, write_hook: WriteHook, tmp_dir: Path, body: str) -> None:
    result = await engine.run(_call(write_hook(body)))
    assert result.effects == Effects(metrics=b"ok\n")
    assert list(tmp_dir.iterdir()) == []


async def test_removed_results_are_empty(engine: HookEngine, write_hook: WriteHook, tmp_dir: Path) -> None:
    result = await engine.run(_call(write_hook(f"{DIRECTORY}; rm $dir/*")))
    assert result.effects == Effects()
    assert list(tmp_dir.iterdir()) == []


REMOVED = {
    "the directory": f"{DIRECTORY}; rm -r $dir",
    "the directory of all runs": f"{DIRECTORY}; rm -r $(dirname $dir)",
    "the directory above": f"{DIRECTORY}; rm -r $(dirname $(dirname $dir))",
    "the directory, a link in its place": f"{DIRECTORY}; rm -r $dir; ln -s $KEEP $dir",
}


@pytest.mark.parametrize("body", REMOVED.values(), ids=REMOVED.keys())
async def test_results_that_were_removed_with_their_directory_are_no_success_and_the_next_run_has_one(
    make_engine: Callable[..., HookEngine], write_hook: WriteHook, tmp_dir: Path, tmp_path: Path, body: str
) -> None:
    keep = tmp_path / "keep"
    keep.mkdir(mode=0o500)
    (keep.parent / "precious").touch()
    engine = make_engine(KEEP=str(keep))
    with pytest.raises(BadReply, match="its files was removed while it ran, its results are lost"):
        await engine.run(_call(write_hook(f"echo ok > $METRICS_PATH; {body}")))
    assert not tmp_dir.exists() or list(tmp_dir.iterdir()) == []
    assert keep.stat().st_mode & 0o777 == 0o500

    result = await engine.run(_call(write_hook("echo ok > $METRICS_PATH")))
    assert result.effects == Effects(metrics=b"ok\n")
    assert tmp_dir.stat().st_mode & 0o777 == 0o700


UNUSABLE = {
    "100 MB": ("head -c 100M /dev/zero > $METRICS_PATH", "METRICS_PATH has 104857600 bytes, at most 16777216 are read"),
    "a sparse terabyte": ("truncate -s 1T $METRICS_PATH", "METRICS_PATH has 1099511627776 bytes, at most 16777216"),
    "a FIFO": ("rm $METRICS_PATH; mkfifo $METRICS_PATH", "METRICS_PATH is not a regular file any more"),
    "a directory": ("rm $METRICS_PATH; mkdir $METRICS_PATH", "METRICS_PATH is not a regular file any more"),
    "a link": ("ln -sf /etc/hostname $METRICS_PATH", "METRICS_PATH is a symbolic link"),
    "an endless device": ("ln -sf /dev/zero $METRICS_PATH", "METRICS_PATH is a symbolic link"),
    "a file instead of the directory": (
        f"{DIRECTORY}; rm -r $dir; touch $dir",
        "VALUES_JSON_PATCH_PATH cannot be read: Not a directory",
    ),
    "invalid JSON": ("echo '[{' > $VALUES_JSON_PATCH_PATH", "VALUES_JSON_PATCH_PATH: "),
    "binary data": ("head -c 1000 /dev/urandom > $CONFIG_VALUES_JSON_PATCH_PATH", "CONFIG_VALUES_JSON_PATCH_PATH: "),
}


@pytest.mark.parametrize(("body", "message"), UNUSABLE.values(), ids=UNUSABLE.keys())
async def test_unusable_results(
    engine: HookEngine, write_hook: WriteHook, tmp_dir: Path, body: str, message: str
) -> None:
    with pytest.raises(BadReply) as caught:
        await engine.run(_call(write_hook(body)))
    assert str(caught.value).startswith(f"{HOOK}: {message}")
    assert list(tmp_dir.iterdir()) == []


async def test_it_ignores_sigterm(make_engine: Callable[..., HookEngine], write_hook: WriteHook) -> None:
    engine = make_engine(kill_grace_s=0.1)
    with pytest.raises(HookTimedOut):
        await engine.run(_call(write_hook("trap '' TERM; while :; do sleep 0.01; done"), timeout_s=0.5))


@pytest.mark.parametrize("stream", ["1", "2"], ids=["stdout", "stderr"])
async def test_it_floods_the_log(engine: HookEngine, write_hook: WriteHook, log: LogCapture, stream: str) -> None:
    hook = write_hook(f"yes | head -c 20M >&{stream}; head -c 20M /dev/zero >&{stream}; exit 1")
    with pytest.raises(HookError) as caught:
        await engine.run(_call(hook))
    assert len(log.entries) == 10_001
    assert log.entries[-1]["event"].endswith("more lines, not shown)")
    assert len(str(caught.value)) < 2200
