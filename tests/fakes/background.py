"""Something that runs for ever, for the length of a test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Protocol


class Runner(Protocol):
    """What works until it is cancelled."""

    async def run(self) -> None:
        """Works."""


@contextlib.asynccontextmanager
async def running(one: Runner) -> AsyncIterator[None]:
    """Has it work while the block lasts."""
    task = asyncio.create_task(one.run(), name=f"{type(one).__name__} under test")
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
