"""Asyncio tasks that run for ever, and their owner."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TypeAlias

StartTask: TypeAlias = Callable[[Coroutine[object, object, object], str], None]


@contextlib.asynccontextmanager
async def background_tasks() -> AsyncIterator[StartTask]:
    """Owns tasks that run for ever: all end with the block, and the block ends with the first that fails."""
    async with asyncio.TaskGroup() as group:
        tasks: list[asyncio.Task[object]] = []
        try:
            yield lambda work, name: tasks.append(group.create_task(work, name=name))
        finally:
            for task in tasks:
                task.cancel()
