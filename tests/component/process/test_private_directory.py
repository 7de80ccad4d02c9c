"""Directories that others remove, own, or open to everybody."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from addon_operator.process.private_directory import PrivateDirectory


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def directory(tmp_path: Path) -> PrivateDirectory:
    return PrivateDirectory(tmp_path / "no" / "tmp").below("run-1").below("helm")


def test_it_is_made_with_all_above_whatever_the_umask(directory: PrivateDirectory, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert directory.make() == tmp_path / "no" / "tmp" / "run-1" / "helm"
    finally:
        os.umask(before)
    assert {_mode(tmp_path / name) for name in ("no", "no/tmp", "no/tmp/run-1", "no/tmp/run-1/helm")} == {0o700}


@pytest.mark.parametrize("removed", ["no", "no/tmp", "no/tmp/run-1", "no/tmp/run-1/helm"])
def test_it_is_made_again_when_it_or_one_above_was_removed(
    directory: PrivateDirectory, tmp_path: Path, removed: str
) -> None:
    first = directory.make_unique("x-")
    shutil.rmtree(tmp_path / removed)
    again = directory.make_unique("x-")
    assert (first.exists(), again.parent, _mode(again)) == (False, first.parent, 0o700)


def test_our_own_rights_come_back(directory: PrivateDirectory, tmp_path: Path) -> None:
    directory.make()
    (tmp_path / "no/tmp/run-1").chmod(0)
    directory.make()
    assert _mode(tmp_path / "no/tmp/run-1") == 0o700


def _link(path: Path) -> None:
    path.rename(f"{path}-elsewhere")
    path.symlink_to(f"{path}-elsewhere")


def _file(path: Path) -> None:
    shutil.rmtree(path)
    path.touch()


@pytest.mark.parametrize("level", ["no/tmp", "no/tmp/run-1", "no/tmp/run-1/helm"])
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        pytest.param(lambda path: path.chmod(0o770), "others can write to it (mode 0770)", id="group"),
        pytest.param(lambda path: path.chmod(0o1777), "others can write to it (mode 1777)", id="everybody"),
        pytest.param(_link, "is a symbolic link", id="link"),
        pytest.param(_file, "Not a directory", id="file"),
        pytest.param(
            lambda path: os.chown(path, 12345, -1),
            "belongs to the user 12345, the operator is 0",
            id="somebody else",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away"),
        ),
    ],
)
def test_one_that_is_not_ours_alone_is_refused_and_named(
    directory: PrivateDirectory, tmp_path: Path, level: str, spoil: Callable[[Path], None], message: str
) -> None:
    directory.make()
    spoil(tmp_path / level)
    with pytest.raises(OSError) as caught:  # noqa: PT011 -- told apart by its parts
        directory.make_unique("x-")
    assert caught.value.filename == str(tmp_path / level)
    assert str(caught.value.strerror).startswith(message)
