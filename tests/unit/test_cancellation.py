"""Work that goes on for a while although whoever waits for it is cancelled, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from addon_operator.cancellation import finish, outlast
from tests.fakes import clock


def _now() -> float:
    return asyncio.get_running_loop().time()


class _Work:
    """Takes `lasts_s`, and `cleanup_s` more when it is cancelled.

    Attributes:
        ended: what it came to, and when.
        errors: what `on_error` was given.
    """

    def __init__(self, lasts_s: float, *, cleanup_s: float = 0.0, error: Exception | None = None) -> None:
        self._lasts_s = lasts_s
        self._cleanup_s = cleanup_s
        self._error = error
        self.ended: tuple[str, float] | None = None
        self.errors: list[BaseException] = []

    async def _run(self) -> str:
        try:
            await asyncio.sleep(self._lasts_s)
        except asyncio.CancelledError:
            await asyncio.sleep(self._cleanup_s)
            self.ended = ("cancelled", _now())
            raise
        self.ended = ("done", _now())
        if self._error is not None:
            raise self._error
        return "result"

    async def finish(self, *, hurry: bool = False) -> str:
        return await finish(self._run(), name="work", grace_s=5.0, on_error=self.errors.append, hurry=hurry)


async def _cancel_at(task: asyncio.Task[str], *instants: float) -> None:
    for instant in instants:
        await asyncio.sleep(instant - _now())
        task.cancel()


@pytest.mark.parametrize(
    ("lasts_s", "cleanup_s", "cancelled_at", "hurry", "ended"),
    [
        pytest.param(3, 0, [1], False, ("done", 3), id="ends within its grace"),
        pytest.param(3, 0, [1, 2], False, ("done", 3), id="a second cancellation changes nothing"),
        pytest.param(3, 0, [1, 2], True, ("cancelled", 2), id="a second cancellation ends the grace"),
        pytest.param(9, 0, [1], False, ("cancelled", 6), id="takes longer than its grace"),
        pytest.param(9, 2, [1], True, ("cancelled", 8), id="its cleanup is waited for"),
        pytest.param(9, 2, [1, 7], False, ("cancelled", 8), id="its cleanup is not cancelled"),
        pytest.param(9, 2, [1, 3, 4], True, ("cancelled", 5), id="its cleanup is not cancelled by more haste"),
    ],
)
def test_when_work_ends_whose_caller_is_cancelled(
    *, lasts_s: float, cleanup_s: float, cancelled_at: list[float], hurry: bool, ended: tuple[str, float]
) -> None:
    async def main() -> None:
        work = _Work(lasts_s, cleanup_s=cleanup_s)
        task = asyncio.create_task(work.finish(hurry=hurry))
        await _cancel_at(task, *cancelled_at)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert work.ended == ended
        assert _now() == ended[1]
        assert work.errors == []

    clock.run(main())


def test_the_result_is_returned_and_an_error_is_raised() -> None:
    async def main() -> None:
        assert await _Work(1).finish() == "result"
        work = _Work(1, error=ValueError("no"))
        with pytest.raises(ValueError, match="no"):
            await work.finish()
        assert work.errors == []

    clock.run(main())


def test_an_error_after_the_cancellation_is_reported() -> None:
    async def main() -> None:
        error = ValueError("no")
        work = _Work(3, error=error)
        task = asyncio.create_task(work.finish())
        await _cancel_at(task, 1)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert work.errors == [error]

    clock.run(main())


@pytest.mark.parametrize(
    ("limit_s", "cancelled_at", "hurry", "returns_at", "cancelled"),
    [
        pytest.param(None, None, False, 4, False, id="as long as it takes"),
        pytest.param(None, 1, False, 4, True, id="although cancelled"),
        pytest.param(2, 1, False, 2, True, id="but not longer than its limit"),
        pytest.param(3, 1, True, 1, True, id="in a hurry"),
        pytest.param(2, None, True, 2, False, id="the limit alone"),
    ],
)
def test_how_long_futures_are_waited_for(
    *, limit_s: float | None, cancelled_at: float | None, hurry: bool, returns_at: float, cancelled: bool
) -> None:
    async def wait() -> str:
        event = asyncio.create_task(asyncio.sleep(4))
        with contextlib.suppress(asyncio.CancelledError):
            returned = await outlast({event}, limit_s, hurry=hurry)
        assert _now() == returns_at
        assert (returned is not None) == cancelled
        event.cancel()
        return ""

    async def main() -> None:
        task = asyncio.create_task(wait())
        if cancelled_at is not None:
            await _cancel_at(task, cancelled_at)
        await asyncio.wait({task})
        assert not task.cancelled()
        assert task.exception() is None

    clock.run(main())
