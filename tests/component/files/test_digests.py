"""Whether a file is still the one that was read, with real files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from addon_operator.files.digests import FileDigests
from tests.fakes.git_sync import GitSync


def _later() -> int:
    """Everything has been changed long ago."""
    return time.time_ns() + 3600 * 10**9


@pytest.fixture(params=[time.time_ns, _later], ids=["just written", "written long ago"])
def digests(request: pytest.FixtureRequest) -> FileDigests:
    clock: Callable[[], int] = request.param
    return FileDigests(clock)


def _rewrite(path: Path, text: str) -> None:
    """Writes into a file and gives it its former times."""
    before = path.stat()
    time.sleep(0.02)  # the kernel dates changes by a clock that ticks every few milliseconds
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _replace(path: Path, text: str) -> None:
    """Puts another file in its place, with its times."""
    before = path.stat()
    other = path.with_name("other")
    other.write_text(text)
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.rename(path)


@pytest.mark.parametrize("change", [_rewrite, _replace])
def test_another_content_of_equal_time_and_size_is_seen(
    digests: FileDigests, tmp_path: Path, change: Callable[[Path, str], None]
) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    old = digests.digest(path)
    assert digests.digest(path) == old
    change(path, "new")
    new = digests.digest(path)
    assert new != old
    change(path, "old")
    assert digests.digest(path) == old


def test_a_flipped_link_is_seen(digests: FileDigests, tmp_path: Path) -> None:
    repository = GitSync(tmp_path)
    repository.check_out({"file": "old"})
    old = digests.digest(repository.link / "file")
    repository.check_out({"file": "new"})
    assert digests.digest(repository.link / "file") != old
    repository.check_out({"file": "old"})
    assert digests.digest(repository.link / "file") == old


def test_two_writes_within_one_tick_of_the_kernels_clock_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "file"
    digests = FileDigests()
    for number in range(200):
        path.write_text(f"{number:03}")
        os.utime(path, ns=(0, 0))
        assert digests.digest(path) == FileDigests().digest(path)


def test_only_what_has_settled_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("text")
    young, old = FileDigests(), FileDigests(_later)
    assert young.digest(path) == old.digest(path)
    assert (set(young._known), set(old._known)) == (set(), {path})
    old.forget(tmp_path)
    assert old._known == {}


def test_a_missing_file_is_an_error(digests: FileDigests, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        digests.digest(tmp_path / "nothing")
