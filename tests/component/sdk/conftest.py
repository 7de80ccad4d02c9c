from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.component.shell.bench import HookBench

WriteHook = Callable[[str], Path]


@pytest.fixture
def bench(tmp_path: Path) -> HookBench:
    return HookBench(tmp_path)


@pytest.fixture
def write_hook(bench: HookBench) -> WriteHook:
    """Writes a hook for the interpreter that runs the tests; answers its path."""

    def write(body: str) -> Path:
        return bench.write("hook.py", f"#!{sys.executable}\nfrom addon_operator.sdk import *\n{body}\n")

    return write
