"""What the soak test says about samples: flat, a leak, or too restless to tell."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from random import Random

import pytest

from tests.robustness.growth import MIB, problems, summary
from tests.robustness.samples import Sample

FIRST = Sample(
    at_s=1000,
    resident=int(90 * MIB),
    in_use=int(70 * MIB),
    descriptors={"socket": 20},
    threads=("MainThread",),
    children=(),
    tasks={"main": 1},
    objects=1000,
    kinds={"dict": 500},
)


def series(change: Callable[[int, Sample], Sample], count: int = 60) -> list[Sample]:
    """A sample every 30 s."""
    return [change(number, dataclasses.replace(FIRST, at_s=1000 + 30 * number)) for number in range(count)]


def growing(mib_an_hour: float, noise: float) -> list[Sample]:
    random = Random(1)

    def change(number: int, sample: Sample) -> Sample:
        used = 70 + mib_an_hour * number / 120 + random.uniform(-noise, noise)
        return dataclasses.replace(sample, in_use=int(used * MIB))

    return series(change)


@pytest.mark.parametrize(
    ("samples", "says"),
    [
        (growing(0, 0.1), None),
        (growing(0.5, 0.1), None),
        (growing(2, 0.1), "more than 1 MiB an hour: memory in use, MiB: +"),
        (growing(0, 8), "too restless to tell"),
    ],
    ids=["flat", "within the bound", "leak", "restless"],
)
def test_the_slope_of_memory(samples: list[Sample], says: str | None) -> None:
    found = list(problems(samples, judge_slope=True))
    assert len(found) == (says is not None), found
    assert (says or "") in "".join(found)


def test_caches_that_fill_in_the_beginning_are_no_leak() -> None:
    def change(number: int, sample: Sample) -> Sample:
        return dataclasses.replace(sample, in_use=int((70 + min(number, 14) / 7) * MIB))

    assert list(problems(series(change), judge_slope=True)) == []


def test_a_short_series_is_judged_by_what_shows_at_once() -> None:
    assert list(problems(growing(4, 0.1), judge_slope=False)) == []
    assert "in a few cycles" in next(problems(growing(20, 0.1), judge_slope=False))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda n, s: dataclasses.replace(s, descriptors={"socket": 20 + n // 5}), "more and more: file descriptors"),
        (lambda n, s: dataclasses.replace(s, threads=("t",) * (1 + n // 8)), "more and more: threads"),
        (lambda n, s: dataclasses.replace(s, children=tuple(range(n // 20))), "more and more: child processes"),
        (lambda n, s: dataclasses.replace(s, tasks={"main": 1 + n // 20}), "more and more: asyncio tasks"),
    ],
)
@pytest.mark.parametrize("judge_slope", [True, False])
def test_what_becomes_more(change: Callable[[int, Sample], Sample], says: str, *, judge_slope: bool) -> None:
    (found,) = problems(series(change), judge_slope=judge_slope)
    assert says in found


def test_what_comes_and_goes_is_no_leak() -> None:
    def change(number: int, sample: Sample) -> Sample:
        return dataclasses.replace(sample, descriptors={"socket": 20 + number % 4}, children=(7,) * (number % 2))

    assert list(problems(series(change), judge_slope=True)) == []


def test_the_summary_has_the_figures_and_names_what_there_is_more_of() -> None:
    last = dataclasses.replace(FIRST, kinds={"dict": 600, "list": 3}, tasks={"main": 1, "new": 2})
    text = summary(series(lambda number, sample: dataclasses.replace(last if number else FIRST, at_s=sample.at_s)))
    assert "60 samples in 29.5 minutes" in text
    assert "memory in use, MiB: +0.000 ± 0.000 an hour (first 70.00, least 70.00, most 70.00, last 70.00)" in text
    assert "more objects: dict +100, list +3" in text
    assert "more tasks: new +2" in text
    assert "more descriptors: nothing" in text
