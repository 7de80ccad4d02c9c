from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from addon_operator.server.debug import DebugServer
from tests.fakes.inspector import StillInspector


@pytest.fixture
def socket_path() -> Iterator[Path]:
    """A path short enough for a unix socket, whatever the test is called."""
    with tempfile.TemporaryDirectory(prefix="ao-") as directory:
        yield Path(directory) / "debug.socket"


@pytest.fixture
async def operator(socket_path: Path) -> AsyncIterator[StillInspector]:
    """An operator that can be asked at `socket_path`."""
    inspector = StillInspector()
    server = DebugServer(socket_path, inspector)
    await server.start()
    yield inspector
    await server.stop()
