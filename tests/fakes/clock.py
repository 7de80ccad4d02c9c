"""Virtual time: an event loop whose clock jumps to the next timer instead of waiting for it."""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, limit_s: float) -> None:
        super().__init__()
        self.skipped_s = 0.0
        self._limit_s = limit_s

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise AssertionError("everything waits and no timer is set: deadlock")
        began_s, self.skipped_s = self.skipped_s, self.skipped_s + timeout
        # Once: what is cancelled then may take its time.
        if began_s <= self._limit_s < self.skipped_s:
            raise AssertionError(f"not done after {self._limit_s:g} s of virtual time")
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time starts at 0 s, and moves only while everything waits; beyond the limit there is an AssertionError."""

    def __init__(self, limit_s: float = math.inf) -> None:
        self._jumping = _JumpingSelector(limit_s)
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.skipped_s


def run(main: Coroutine[object, object, T]) -> T:
    """Runs a coroutine in virtual time, starting at 0 s."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
