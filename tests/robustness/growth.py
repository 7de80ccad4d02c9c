"""Does an operator grow? From samples of what it uses, taken at like moments, to figures and a verdict. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from tests.robustness.samples import Sample
from tests.robustness.trend import Line, bucket_medians, fit

MIB: Final = 2.0**20
MOST_MIB_AN_HOUR: Final = 1.0
# Less says nothing about an hour.
LONG_MINUTES: Final = 20.0
BUCKETS: Final = 12
# This part of the samples, at the beginning, does not count for a slope.
FILLING: Final = 4
# The short form has no slope: what it takes for a leak.
SHORT_MOST_MIB: Final = 4.0
# Connections and threads of pools come as they are needed, and stay for a while.
SLACK: Final = {"descriptors": 3, "threads": 3, "children": 0, "tasks": 0}


@dataclasses.dataclass(frozen=True, slots=True)
class Course:
    """How one measure went on.

    Attributes:
        name: with the unit.
        points: hours and values, one for each cycle.
    """

    name: str
    points: Sequence[tuple[float, float]]

    @property
    def line(self) -> Line:
        """The line through the medians of buckets, without the first part, in which bounded caches fill."""
        return fit(bucket_medians(self.points[len(self.points) // FILLING :], BUCKETS))

    @property
    def growth(self) -> float:
        """How much more there is at least in the last quarter than in the first: what comes and goes does not count."""
        part = max(1, len(self.points) // 4)
        values = [value for _, value in self.points]
        return min(values[-part:]) - min(values[:part])

    def __str__(self) -> str:
        line = self.line
        values = [value for _, value in self.points]
        return (
            f"{self.name}: {line.slope:+.3f} ± {line.error:.3f} an hour "
            f"(first {values[0]:.2f}, least {min(values):.2f}, most {max(values):.2f}, last {values[-1]:.2f})"
        )


def courses(samples: Sequence[Sample]) -> dict[str, Course]:
    """The course of each measure, by a short name."""
    measures: dict[str, tuple[str, Callable[[Sample], float]]] = {
        "memory": ("memory in use, MiB", lambda sample: sample.in_use / MIB),
        "resident": ("resident memory before garbage is collected, MiB", lambda sample: sample.resident / MIB),
        "objects": ("Python objects", lambda sample: sample.objects),
        "descriptors": ("file descriptors", lambda sample: sum(sample.descriptors.values())),
        "threads": ("threads", lambda sample: len(sample.threads)),
        "children": ("child processes", lambda sample: len(sample.children)),
        "tasks": ("asyncio tasks", lambda sample: sum(sample.tasks.values())),
    }
    return {
        short: Course(name, [(sample.at_s / 3600, of(sample)) for sample in samples])
        for short, (name, of) in measures.items()
    }


def problems(samples: Sequence[Sample], *, judge_slope: bool) -> Iterator[str]:
    """Says what grows that should not."""
    found = courses(samples)
    for short, slack in SLACK.items():
        if found[short].growth > slack:
            yield f"more and more: {found[short]}"
    memory = found["memory"]
    if not judge_slope:
        if memory.growth > SHORT_MOST_MIB:
            yield f"more than {SHORT_MOST_MIB:g} MiB in a few cycles: {memory}"
        return
    if memory.line.error > MOST_MIB_AN_HOUR / 2:
        yield f"too restless to tell, churn for longer: {memory}"
    elif memory.line.slope > MOST_MIB_AN_HOUR:
        yield f"more than {MOST_MIB_AN_HOUR:g} MiB an hour: {memory}"


def more(first: Mapping[str, int], last: Mapping[str, int]) -> str:
    """What there is more of in the end, most first."""
    grown = {name: last[name] - first.get(name, 0) for name in last}
    ordered = sorted(((count, name) for name, count in grown.items() if count > 0), reverse=True)
    return ", ".join(f"{name} +{count}" for count, name in ordered[:15]) or "nothing"


def summary(samples: Sequence[Sample]) -> str:
    """The figures, one measure a line, and what there is more of."""
    first, last = samples[0], samples[-1]
    return "\n".join([
        f"{len(samples)} samples in {(last.at_s - first.at_s) / 60:.1f} minutes",
        *map(str, courses(samples).values()),
        f"more objects: {more(first.kinds, last.kinds)}",
        f"more descriptors: {more(first.descriptors, last.descriptors)}",
        f"more tasks: {more(first.tasks, last.tasks)}",
    ])  # fmt: skip
