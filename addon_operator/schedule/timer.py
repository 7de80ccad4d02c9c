"""The timer of all schedules: calls back when a crontab ticks.

It knows neither hooks nor queues; what a crontab means is in `schedule/crontab.py`.

The clock of the machine may jump (suspend, NTP, somebody sets it), and no tick is lost or doubled by that:

- Forwards: ticks whose time has passed meanwhile are made up for, several of one crontab by one tick, within
  `LOOK_EVERY_S`: the clock is looked at that often as long as a crontab with fields is waited for. (The kernel could
  say when the clock is set, but only through a descriptor that Python wraps from 3.13 on and no test can make fire.)
- Backwards: what has ticked does not tick again; the next tick stays planned for its time. Only when the clock went
  back by more than `FORGET_S` since it was last ahead, all ticks are planned anew, or schedules would be silent for as
  long as that.
- `@every` goes by elapsed time, counted from when it was added, and does not notice jumps.

A busy event loop delays ticks, and makes one of several in the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import heapq
import itertools
from collections.abc import Callable, Hashable, Iterator
from datetime import UTC, datetime
from typing import Final

from addon_operator.logs import get_logger
from addon_operator.schedule.crontab import Crontab

LOOK_EVERY_S: Final = 30.0
FORGET_S: Final = 3 * 3600.0

_log = get_logger("cron")


@dataclasses.dataclass(slots=True)
class _Timer:
    """One key; `on_tick` may be exchanged."""

    crontab: Crontab
    on_tick: Callable[[], None]


# When (in the time of its heap), a number that is unlike all others, which timer.
_Planned = tuple[float, int, _Timer]


class Cron:
    """Calls back when crontabs tick; used on one event loop."""

    def __init__(self, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Prepares it; `run` makes it tick.

        Args:
            now: the clock, aware. `@every` and waiting go by the clock of the event loop.
        """
        self._now = now
        self._timers: dict[Hashable, _Timer] = {}
        self._by_clock: list[_Planned] = []  # seconds since 1970
        self._by_loop: list[_Planned] = []  # loop time
        self._numbers = itertools.count()
        self._latest_s = now().timestamp()
        self._changed = asyncio.Event()

    def add(self, key: Hashable, crontab: Crontab, on_tick: Callable[[], None]) -> None:
        """Ticks from now on; takes the place of what has the same key.

        If that has the same crontab, too, only `on_tick` changes, and the next tick stays planned.
        """
        present = self._timers.get(key)
        if present and present.crontab == crontab:
            present.on_tick = on_tick
            return
        self.remove(key)
        timer = self._timers[key] = _Timer(crontab, on_tick)
        self._plan(timer, self._look())
        self._changed.set()

    def remove(self, key: Hashable) -> None:
        """Stops ticking; nothing happens if there is no such key."""
        timer = self._timers.pop(key, None)
        if timer is None:
            return
        heap = self._heap(timer)
        heap[:] = [planned for planned in heap if planned[2] is not timer]
        heapq.heapify(heap)

    async def run(self) -> None:
        """Ticks until it is cancelled; an `on_tick` that raises is logged, and does not stop the others."""
        while True:
            self._changed.clear()
            self._tick_all()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._wait_s()):
                    await self._changed.wait()

    def _heap(self, timer: _Timer) -> list[_Planned]:
        return self._by_clock if timer.crontab.every_s is None else self._by_loop

    def _look(self) -> datetime:
        """Reads the clock, and makes new plans if it went far back."""
        now = self._now()
        if now.timestamp() < self._latest_s - FORGET_S:
            self._latest_s = now.timestamp()
            timers = [timer for _, _, timer in self._by_clock]
            self._by_clock.clear()
            for timer in timers:
                self._plan(timer, now)
        self._latest_s = max(self._latest_s, now.timestamp())
        return now

    def _plan(self, timer: _Timer, now: datetime) -> None:
        tick = timer.crontab.after(now)
        if tick is None:
            return
        by_loop = timer.crontab.every_s is not None
        self._push(timer, tick.timestamp() + (_loop_time() - now.timestamp() if by_loop else 0.0))

    def _push(self, timer: _Timer, at_s: float) -> None:
        heapq.heappush(self._heap(timer), (at_s, next(self._numbers), timer))

    def _tick_all(self) -> None:
        now, loop_time = self._look(), _loop_time()
        for _, timer in _due(self._by_clock, now.timestamp()):
            self._plan(timer, now)
            _tick(timer)
        for at_s, timer in _due(self._by_loop, loop_time):
            every_s = timer.crontab.every_s or 1.0
            self._push(timer, at_s + every_s * ((loop_time - at_s) // every_s + 1))
            _tick(timer)

    def _wait_s(self) -> float | None:
        waits_s = []
        if self._by_clock:
            waits_s.append(min(self._by_clock[0][0] - self._now().timestamp(), LOOK_EVERY_S))
        if self._by_loop:
            waits_s.append(self._by_loop[0][0] - _loop_time())
        return max(min(waits_s), 0.0) if waits_s else None


def _due(heap: list[_Planned], until_s: float) -> Iterator[tuple[float, _Timer]]:
    """Takes off what is due, one after the other; the heap may change in between."""
    while heap and heap[0][0] <= until_s:
        at_s, _, timer = heapq.heappop(heap)
        yield at_s, timer


def _tick(timer: _Timer) -> None:
    try:
        timer.on_tick()
    except Exception as error:  # noqa: BLE001 -- one schedule must not end the others
        _log.error("a tick of a schedule could not be handled", reason=timer.crontab.text, exc_info=error)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
