"""Whether a series of samples rises."""

from __future__ import annotations

import math
from random import Random

import pytest

from tests.robustness.trend import Line, Point, bucket_medians, fit


def test_a_straight_line_is_found_exactly() -> None:
    assert fit([(1, 5), (2, 7), (3, 9)]) == Line(2, 0, 5)
    assert fit([(0, 3), (10, 3), (11, 3)]) == Line(0, 0, 3)
    assert fit([(0, 0), (1, 1)]) == Line(1, math.inf, 0)


@pytest.mark.parametrize("points", [[], [(1, 1)], [(1, 1), (1, 2)]])
def test_too_few_points_are_no_line(points: list[Point]) -> None:
    with pytest.raises(ValueError, match="two points"):
        fit(points)


def test_the_error_of_the_slope_is_that_of_the_textbook() -> None:
    # y = x with residuals +1 -1 -1 +1: rest 4, two degrees of freedom, square 5.
    line = fit([(0, 1), (1, 0), (2, 1), (3, 4)])
    assert line.slope == pytest.approx(1)
    assert line.error == pytest.approx(math.sqrt(4 / 2 / 5))
    assert not line.surely_above(0)
    assert fit([(0, 0), (1, 1), (2, 2.01)]).surely_above(0.9)


def test_medians_of_buckets_hide_what_comes_and_goes() -> None:
    flat: list[Point] = [(x, 100 if x % 5 else 300) for x in range(60)]
    assert {y for _, y in bucket_medians(flat, 6)} == {100}
    assert [x for x, _ in bucket_medians(flat, 6)] == [4.5, 14.5, 24.5, 34.5, 44.5, 54.5]
    # What does not fill a bucket is left out at the beginning.
    assert bucket_medians([(x, x) for x in range(7)], 3) == [(1.5, 1.5), (3.5, 3.5), (5.5, 5.5)]
    assert bucket_medians([(1, 1), (2, 2)], 10) == [(1, 1), (2, 2)]


def test_a_leak_of_one_unit_an_hour_is_seen_in_noise() -> None:
    random = Random(5)
    for leak in (0, 4):
        samples = [(minute / 60, 200 + leak * minute / 60 + random.expovariate(2)) for minute in range(30)]
        line = fit(bucket_medians(samples, 10))
        assert line.surely_above(1) == (leak == 4), line
