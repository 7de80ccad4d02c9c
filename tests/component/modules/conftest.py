"""An operator in an empty directory."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests.component.modules.configurations import Play
from tests.fakes import bench


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Starts an operator with these hooks (`global/name` or `module/name` -> configuration), and does some steps."""
    return functools.partial(bench.play, tmp_path)
