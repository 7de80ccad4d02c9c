from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest


@pytest.fixture
def socket_path() -> Iterator[Path]:
    """A path short enough for a unix socket, whatever the test is called; its directory does not exist yet."""
    with tempfile.TemporaryDirectory(prefix="ao-") as directory:
        yield Path(directory) / "run" / "debug.socket"


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session
