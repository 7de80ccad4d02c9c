"""Which lines pass, and what is said of the others."""

from __future__ import annotations

import gc

from addon_operator.logs.repeats import Repeats


def line(text: str = "failed", **fields: object) -> dict[str, object]:
    return {"event": text, "level": "error", "component": "queue", **fields}


def passing(repeats: Repeats, *lines: dict[str, object], now: float = 0.0) -> int:
    return sum([repeats.passes(one, now) for one in lines])


def test_the_same_line_passes_so_often_and_the_rest_is_counted_once_for_each_interval() -> None:
    repeats = Repeats(same=3, interval_s=10.0)
    assert passing(repeats, *[line(module="a", attempt=n, duration_s=n / 7, port=n) for n in range(10)]) == 3
    assert repeats.due(9.9) == []
    assert repeats.due(10.0) == [line(module="a", attempt=9, duration_s=9 / 7, port=9, repeated=7)]
    assert repeats.due(10.0) == []
    assert passing(repeats, *[line(module="a")] * 4, now=10.0) == 3
    assert repeats.holds_back()


def test_what_was_held_back_is_not_forgotten_when_the_interval_is_over_and_it_goes_on() -> None:
    repeats = Repeats(same=1, interval_s=10.0)
    assert passing(repeats, line(), line(), now=0.0) == 1
    assert passing(repeats, line(), now=11.0) == 0
    assert [event["repeated"] for event in repeats.due(11.0)] == [2]


def test_a_line_that_comes_again_later_passes() -> None:
    repeats = Repeats(same=1, interval_s=10.0)
    assert [repeats.passes(line(), now) for now in (0.0, 10.0, 20.0)] == [True] * 3
    assert repeats.due(100.0) == []


def test_errors_of_distinct_hooks_and_modules_are_not_held_back_for_each_other() -> None:
    repeats = Repeats(same=1, similar=1)
    lines = [line(module=f"module-{n}", hook=hook, error="exit code 1") for n in range(40) for hook in ("a", "b")]
    assert passing(repeats, *lines) == 80


def test_distinct_reasons_pass_up_to_a_larger_bound() -> None:
    repeats = Repeats(same=2, similar=100)
    assert passing(repeats, *[line("files", reason=f"module {n}: no chart") for n in range(100)]) == 100
    assert passing(repeats, *[line("files", reason=f"{n} more") for n in range(100)]) == 0
    assert [event["similar"] for event in repeats.due(1e9)] == [100]


def test_values_that_cannot_be_hashed_are_compared_by_their_text() -> None:
    repeats = Repeats(same=1)
    assert passing(repeats, line(scope=["a"]), line(scope=["b"]), line(scope=["a"])) == 2


def test_it_remembers_a_bounded_number_of_lines() -> None:
    repeats = Repeats(same=1)
    assert passing(repeats, *[line(str(n)) for n in range(20_000)]) == 20_000
    assert len(repeats._windows) <= 5000
    assert not repeats.passes(line("1"), 0.0)
    assert repeats.passes(line("new"), 1000.0)
    assert len(repeats._windows) < 10


def test_lines_that_come_once_are_not_remembered_for_longer_than_they_count() -> None:
    repeats = Repeats(interval_s=10.0)
    for number in range(2000):
        assert repeats.passes(line(module=f"module-{number}"), float(number))
    gc.collect()
    windows = [item for item in gc.get_objects() if type(item).__module__ == "addon_operator.logs.repeats"]
    assert len(windows) < 100
