from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from addon_operator.hooks.engine import HookEngine
from addon_operator.hooks.transport_local import LocalTransport
from addon_operator.process import reaper
from addon_operator.process.private_directory import PrivateDirectory
from tests.fakes.children import children

WriteHook = Callable[..., Path]


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    """No test leaves a process, a zombie or a file descriptor behind."""
    descriptors, before = set(Path("/proc/self/fd").iterdir()), children()
    reaper.adopt_orphans()
    yield
    reaper.adopt_orphans(on=False)
    assert children() - before == set()
    assert set(Path("/proc/self/fd").iterdir()) - descriptors == set()


@pytest.fixture
def tmp_dir(tmp_path: Path) -> Path:
    """Where the files of runs go; made by the engine."""
    return tmp_path / "tmp" / "runs"


@pytest.fixture
def make_engine(tmp_dir: Path) -> Callable[..., HookEngine]:
    def make(
        *, keep_files: bool = False, kill_grace_s: float = 60, proxy_json: bool = False, limit_s: float = 60,
        **environment: str,
    ) -> HookEngine:  # fmt: skip
        inherited: Mapping[str, str] = {"PATH": os.environ["PATH"]}
        return HookEngine(
            transport=LocalTransport(),
            tmp_dir=PrivateDirectory(tmp_dir),
            environment={**inherited, **environment},
            keep_files=keep_files,
            kill_grace_s=kill_grace_s,
            config_timeout_s=limit_s,
            enabled_timeout_s=limit_s,
            proxy_json=proxy_json,
        )

    return make


@pytest.fixture
def engine(make_engine: Callable[..., HookEngine]) -> HookEngine:
    return make_engine()


@pytest.fixture
def write_hook(tmp_path: Path) -> WriteHook:
    """Writes an executable bash script below the directory of module alpha; answers its path."""

    def write(body: str, name: str = "hooks/hook.sh", *, shebang: str = "#!/bin/bash", mode: int = 0o755) -> Path:
        path = tmp_path / "001-alpha" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{shebang}\n{body}\n")
        path.chmod(mode)
        return path

    return write
