"""The timer of schedules, in virtual time, with a clock that jumps."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import structlog

from addon_operator.schedule.crontab import Crontab
from addon_operator.schedule.timer import FORGET_S, LOOK_EVERY_S, Cron
from tests.fakes import clock

HOUR_S = 3600.0


class Bench:
    """A Cron, a clock that can be set, and what has ticked: the second since the start on the clock, and the key."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        self.looks = 0
        self.ticks: list[tuple[float, str]] = []
        self._start = datetime(2026, 2, 1, tzinfo=UTC)
        self.cron = Cron(now=self._now)

    def _now(self) -> datetime:
        self.looks += 1
        return self._start + timedelta(seconds=self.clock_s())

    def clock_s(self) -> float:
        return round(asyncio.get_running_loop().time() + self.ahead_s, 3)

    def add(self, key: str, text: str, on_tick: Callable[[], None] = lambda: None) -> None:
        def tick() -> None:
            self.ticks.append((self.clock_s(), key))
            on_tick()

        self.cron.add(key, Crontab.parse(text, local=ZoneInfo("UTC")), tick)

    def of(self, key: str) -> list[float]:
        return [at_s for at_s, ticked in self.ticks if ticked == key]

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.cron.run(), name="cron")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()


def test_schedules_tick_in_the_order_of_time() -> None:
    async def main() -> None:
        bench = Bench()
        bench.add("minute", "* * * * *")
        bench.add("third", "*/20 * * * * *")
        bench.add("never", "0 0 30 2 *")
        async with bench.at_work():
            await asyncio.sleep(10)
            bench.add("every", "@every 35s")
            await asyncio.sleep(75)
        assert bench.ticks == [
            (20, "third"), (40, "third"), (45, "every"), (60, "minute"), (60, "third"), (80, "third"), (80, "every"),
        ]  # fmt: skip

    clock.run(main())


def test_a_nearer_tick_that_is_added_does_not_wait_for_the_farther() -> None:
    async def main() -> None:
        bench = Bench()
        bench.add("far", "@every 20s")
        async with bench.at_work():
            await asyncio.sleep(1)
            bench.add("near", "*/2 * * * * *")
            await asyncio.sleep(2)
        assert bench.ticks == [(2, "near")]

    clock.run(main())


def test_every_begins_at_a_full_second_and_keeps_its_rhythm() -> None:
    async def main() -> None:
        bench = Bench()
        async with bench.at_work():
            await asyncio.sleep(0.4)
            bench.add("every", "@every 10s")
            await asyncio.sleep(35)
        assert bench.of("every") == [10, 20, 30]

    clock.run(main())


def test_what_is_removed_is_silent() -> None:
    async def main() -> None:
        bench = Bench()
        async with bench.at_work():
            bench.add("clock", "* * * * * *")
            bench.add("loop", "@every 1s")
            bench.add("other", "* * * * * *")
            await asyncio.sleep(2.5)
            for key in ("clock", "loop", "unknown"):
                bench.cron.remove(key)
            await asyncio.sleep(1)
        assert (bench.of("clock"), bench.of("loop"), bench.of("other")) == ([1, 2], [1, 2], [1, 2, 3])

    clock.run(main())


def test_a_key_has_one_crontab() -> None:
    async def main() -> None:
        bench = Bench()
        async with bench.at_work():
            bench.add("key", "* * * * * *")
            bench.add("key", "@every 3s")
            await asyncio.sleep(10)
        assert bench.of("key") == [3, 6, 9]

    clock.run(main())


def test_adding_the_same_again_does_not_put_the_tick_off() -> None:
    async def main() -> None:
        bench, told = Bench(), []
        async with bench.at_work():
            for number in range(5):
                bench.add("key", "@every 10s", lambda number=number: told.append(number))  # type: ignore[misc]
                await asyncio.sleep(3)
        assert bench.of("key") == [10]
        assert told == [3]

    clock.run(main())


def test_a_tick_may_change_the_schedules() -> None:
    async def main() -> None:
        bench = Bench()

        def change() -> None:
            bench.cron.remove("first")
            bench.cron.remove("same second")
            bench.add("next", "* * * * * *")

        async with bench.at_work():
            bench.add("first", "*/2 * * * * *", change)
            bench.add("same second", "*/2 * * * * *")
            await asyncio.sleep(4.5)
        assert bench.ticks == [(2, "first"), (3, "next"), (4, "next")]

    clock.run(main())


def test_a_tick_that_raises_is_logged_and_does_not_stop_the_others() -> None:
    async def main() -> None:
        bench = Bench()

        def fail() -> None:
            raise ValueError("no")

        with structlog.testing.capture_logs() as logs:
            async with bench.at_work():
                bench.add("bad", "*/2 * * * * *", fail)
                bench.add("bad every", "@every 2s", fail)
                bench.add("good", "*/2 * * * * *")
                await asyncio.sleep(5)
        assert bench.of("bad") == bench.of("bad every") == bench.of("good") == [2, 4]
        assert [(entry["log_level"], entry["reason"]) for entry in logs[:2]] == [
            ("error", "*/2 * * * * *"),
            ("error", "@every 2s"),
        ]

    clock.run(main())


def test_nothing_wakes_without_a_schedule() -> None:
    async def main() -> None:
        bench = Bench()
        async with bench.at_work():
            bench.add("clock", "* * * * *")
            bench.add("loop", "@every 1m")
            bench.cron.remove("clock")
            bench.cron.remove("loop")
            await asyncio.sleep(1)
            before = bench.looks
            await asyncio.sleep(24 * HOUR_S)
            assert bench.looks == before
        assert bench.ticks == []

    clock.run(main())


# --- the clock jumps ------------------------------------------------------------------------------------------------


def test_ticks_that_a_jump_forwards_passes_over_are_made_up_for_by_one() -> None:
    async def main() -> None:
        bench = Bench()
        bench.add("minute", "* * * * *")
        bench.add("noon", "0 12 * * *")
        bench.add("evening", "0 18 * * *")
        async with bench.at_work():
            await asyncio.sleep(125)
            bench.ahead_s = 13 * HOUR_S
            await asyncio.sleep(LOOK_EVERY_S)
            assert (len(bench.of("minute")), len(bench.of("noon")), len(bench.of("evening"))) == (3, 1, 0)
            await asyncio.sleep(6 * HOUR_S)
        assert bench.of("evening") == [18 * HOUR_S]
        assert len(bench.of("noon")) == 1
        assert bench.of("minute")[:4] == [60, 120, bench.of("noon")[0], 13 * HOUR_S + 180]

    clock.run(main())


def test_a_small_jump_backwards_repeats_nothing() -> None:
    async def main() -> None:
        bench = Bench()
        bench.add("minute", "* * * * *")
        bench.add("hour", "@hourly")
        async with bench.at_work():
            await asyncio.sleep(HOUR_S + 30)
            bench.ahead_s = -1800.0
            await asyncio.sleep(2 * HOUR_S)
        assert bench.of("hour") == [HOUR_S, 2 * HOUR_S]
        minutes = bench.of("minute")
        assert minutes == [60.0 * number for number in range(1, 151)]

    clock.run(main())


def test_a_clock_that_goes_to_and_fro_ticks_once_for_each_minute() -> None:
    async def main() -> None:
        bench = Bench()
        bench.add("minute", "* * * * *")
        async with bench.at_work():
            for number in range(400):
                bench.ahead_s = 0.9 * (number % 3 - 1)
                await asyncio.sleep(1.7)
        assert [int(at_s // 60) for at_s in bench.of("minute")] == list(range(1, 12))
        assert all(at_s % 60 < 2 for at_s in bench.of("minute"))

    clock.run(main())


def test_a_large_jump_backwards_plans_anew() -> None:
    async def main() -> None:
        bench = Bench()
        bench.ahead_s = 1000 * HOUR_S
        bench.add("hour", "@hourly")
        bench.add("never", "0 0 30 2 *")
        async with bench.at_work():
            await asyncio.sleep(HOUR_S + 60)
            bench.ahead_s = 0.0
            await asyncio.sleep(2 * HOUR_S)
        assert bench.of("hour") == [1001 * HOUR_S, 2 * HOUR_S, 3 * HOUR_S]

    clock.run(main())


def test_small_jumps_backwards_that_add_up_plan_anew() -> None:
    async def main() -> None:
        bench = Bench()
        bench.ahead_s = 10 * HOUR_S
        bench.add("minute", "* * * * *")
        async with bench.at_work():
            await asyncio.sleep(90)
            for _ in range(4):
                bench.ahead_s -= FORGET_S / 3
                await asyncio.sleep(LOOK_EVERY_S)
            await asyncio.sleep(120)
        assert len(bench.of("minute")) >= 3
        assert bench.of("minute")[-1] < 10 * HOUR_S

    clock.run(main())


def test_a_schedule_added_while_the_clock_was_wrong_is_planned_anew() -> None:
    async def main() -> None:
        bench = Bench()
        async with bench.at_work():
            bench.ahead_s = 1000 * HOUR_S
            bench.add("hour", "@hourly")
            bench.ahead_s = 0.0
            await asyncio.sleep(HOUR_S + 60)
        assert bench.of("hour") == [HOUR_S]

    clock.run(main())


def test_every_does_not_notice_jumps() -> None:
    async def main() -> None:
        bench = Bench()
        loop = asyncio.get_running_loop()
        ticked: list[float] = []
        bench.add("every", "@every 50s", lambda: ticked.append(round(loop.time(), 3)))
        async with bench.at_work():
            await asyncio.sleep(60)
            bench.ahead_s = 10 * HOUR_S
            await asyncio.sleep(60)
            bench.ahead_s = -10 * HOUR_S
            await asyncio.sleep(60)
        assert ticked == [50, 100, 150]

    clock.run(main())


def test_a_busy_loop_makes_one_tick_of_several() -> None:
    async def main() -> None:
        bench, loop = Bench(), asyncio.get_running_loop()
        bench.add("clock", "* * * * * *")
        bench.add("loop", "@every 1s")
        async with bench.at_work():
            await asyncio.sleep(1.5)
            vars(loop)["_jumping"].skipped_s += 10  # somebody blocks the loop
            await asyncio.sleep(1)
        assert bench.of("clock") == bench.of("loop") == [1, 11.5, 12]

    clock.run(main())
