"""Does a series of samples rise? Least squares over medians of buckets, with the standard error of the slope. Pure."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import TypeAlias

Point: TypeAlias = tuple[float, float]


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A straight line through points.

    Attributes:
        slope: units of y for each unit of x.
        error: standard error of the slope; infinite with fewer than three points.
        start: y where x is that of the first point.
    """

    slope: float
    error: float
    start: float

    def surely_above(self, slope: float) -> bool:
        """Whether the slope is above a bound by more than chance explains (two standard errors)."""
        return self.slope - 2 * self.error > slope


def bucket_medians(points: Sequence[Point], count: int) -> list[Point]:
    """Divides points into buckets of equal length, in their order; answers the medians of each.

    What comes and goes (a garbage collection that is due, a page that the allocator keeps) moves a median little.
    """
    size = max(1, len(points) // count)
    whole = range(len(points) % size, len(points), size)
    buckets = [points[start : start + size] for start in whole]
    return [(statistics.median(x for x, _ in part), statistics.median(y for _, y in part)) for part in buckets]


def fit(points: Sequence[Point]) -> Line:
    """Lays the line of least squares through points.

    Raises:
        ValueError: fewer than two points with different x.
    """
    if len({x for x, _ in points}) < 2:
        raise ValueError("a line needs two points")
    mean_x, mean_y = (statistics.fmean(values) for values in zip(*points, strict=True))
    square = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / square
    rest = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in points)
    free = len(points) - 2
    error = math.sqrt(rest / free / square) if free > 0 else math.inf
    return Line(slope, error, mean_y + slope * (points[0][0] - mean_x))
