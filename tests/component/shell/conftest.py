from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.component.shell.bench import PROJECT, HookBench, HookRun

LIBRARY = PROJECT / "addon_operator" / "shell" / "shell_lib.sh"

RunHandler = Callable[..., HookRun]


@pytest.fixture
def bench(tmp_path: Path) -> HookBench:
    return HookBench(tmp_path)


@pytest.fixture
def run_script(bench: HookBench) -> RunHandler:
    """Runs a script that has the library; `strict` is how the documents tell authors to begin."""

    def run(body: str, *arguments: str, strict: bool = True, **given: object) -> HookRun:
        options = "set -Eeuo pipefail" if strict else ":"
        path = bench.write("hook.sh", f"#!/usr/bin/env bash\n{options}\nsource '{LIBRARY}'\n{body}\n")
        return bench.run(path, *arguments, **given)  # type: ignore[arg-type]  # passed on as it is

    return run


@pytest.fixture
def run_handler(run_script: RunHandler) -> RunHandler:
    """Runs a hook whose beforeHelm handler is the body, which begins at line 5 of the file."""

    def run(body: str, **given: object) -> HookRun:
        return run_script(f'__before_helm() {{\n{body}\n}}\nhook::run "$@"', **given)

    return run
