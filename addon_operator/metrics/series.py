"""Metric families with their values, and their text for Prometheus.

Values are kept here rather than in prometheus_client's own Counter and Histogram: those force `_total` onto counters
whose published names lack it (`live_ticks`, every hook's), and take 6 kB for each labelled histogram. The sample model
is the library's. Everything is called from one event loop; nothing locks.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from prometheus_client import Metric
from prometheus_client.registry import Collector

from addon_operator.metrics.operations import SeriesKind


@dataclasses.dataclass(slots=True)
class Distribution:
    """A histogram's state: how many observations fell below each bound (the last one is infinity), and their sum."""

    counts: list[int]
    total: float = 0.0

    @classmethod
    def empty(cls, bounds: Sequence[float]) -> Distribution:
        """Makes one without observations; `bounds` rise and do without infinity."""
        return cls([0] * (len(bounds) + 1))

    def observe(self, bounds: Sequence[float], value: float) -> None:
        """Adds one value; `bounds` as it was made with."""
        self.counts[bisect.bisect_left(bounds, value)] += 1
        self.total += value


State: TypeAlias = float | Distribution


class Family(Collector):
    """One built-in metric: its names, labels and current values."""

    def __init__(
        self, names: Sequence[str], kind: SeriesKind, text: str, labels: Sequence[str], buckets: Sequence[float]
    ) -> None:
        self.names = tuple(names)
        self.kind = kind
        self.text = text
        self._labels = tuple(labels)
        self._buckets = tuple(buckets)
        self._states: dict[tuple[str, ...], State] = {}
        if not labels and kind == "counter":
            self._states[()] = 0.0

    def add(self, amount: float, *labels: str) -> None:
        """Raises a counter."""
        before = self._states.get(labels, 0.0)
        assert not isinstance(before, Distribution)
        self._states[labels] = before + amount

    def set(self, value: float, *labels: str) -> None:
        """Sets a gauge."""
        self._states[labels] = value

    def observe(self, value: float, *labels: str) -> None:
        """Adds one value to a histogram."""
        state = self._states.get(labels)
        if state is None:
            state = self._states[labels] = Distribution.empty(self._buckets)
        assert isinstance(state, Distribution)
        state.observe(self._buckets, value)

    def drop(self, first: str) -> None:
        """Drops the series whose first label has this value."""
        self._states = {labels: state for labels, state in self._states.items() if labels[0] != first}

    def keep(self, first: Collection[str]) -> None:
        """Drops the series whose first label has none of these values."""
        self._states = {labels: state for labels, state in self._states.items() if labels[0] in first}

    def describe(self) -> list[Metric]:
        """Returns the names, so that the registry refuses to declare one twice."""
        return [Metric(name, self.text, self.kind) for name in self.names]

    def collect(self) -> Iterator[Metric]:
        """Returns the same samples under each of the names."""
        for name in self.names:
            family = Metric(name, self.text, self.kind)
            for labels, state in self._states.items():
                add_samples(family, dict(zip(self._labels, labels, strict=True)), state, self._buckets)
            yield family


class LiveSeries(Collector):
    """Metrics that are read together whenever they are rendered, so that they are never stale."""

    def __init__(
        self,
        texts: Mapping[str, str],
        labels: Sequence[str],
        read: Callable[[], Iterable[tuple[Sequence[str], Sequence[float]]]],
        kind: SeriesKind,
    ) -> None:
        """Takes their names; reads nothing yet.

        Args:
            texts: name -> help.
            labels: the names of the labels, the same for all of them.
            kind: the same for all of them; no histogram.
            read: returns the labels' values with one value for each metric. Values with the same labels are added up: a
                series must not be rendered twice.
        """
        self.names = tuple(texts)
        self.kind = kind
        self._texts = texts
        self._labels = labels
        self._read = read

    def describe(self) -> list[Metric]:
        """Returns the names."""
        return [Metric(name, text, self.kind) for name, text in self._texts.items()]

    def collect(self) -> list[Metric]:
        """Reads the values of now."""
        families, sums = self.describe(), dict[tuple[str, ...], tuple[float, ...]]()
        for labels, values in self._read():
            earlier = sums.get(tuple(labels), (0.0,) * len(values))
            sums[tuple(labels)] = tuple(map(operator.add, earlier, values))
        for labels, values in sums.items():
            for family, value in zip(families, values, strict=True):
                family.add_sample(family.name, dict(zip(self._labels, labels, strict=True)), value)
        return families


def add_samples(family: Metric, labels: dict[str, str], state: State, buckets: Sequence[float]) -> None:
    """Writes one series into a family: one sample, or all those of a histogram with these bounds."""
    if not isinstance(state, Distribution):
        family.add_sample(family.name, labels, state)
        return
    below = itertools.accumulate(state.counts)
    for bound, count in zip((*buckets, math.inf), below, strict=True):
        family.add_sample(family.name + "_bucket", {**labels, "le": _number(bound)}, count)
    family.add_sample(family.name + "_sum", labels, state.total)
    family.add_sample(family.name + "_count", labels, sum(state.counts))


def render(families: Iterable[Metric], *, headers: bool = True) -> bytes:
    """Writes families as Prometheus text (0.0.4); those without a series are left out.

    Args:
        families: with their samples.
        headers: whether type and help come first; not for the rest of a family that is written in pieces.
    """
    return "".join(line for family in families for line in _lines(family, headers=headers)).encode()


def _lines(family: Metric, *, headers: bool) -> Iterator[str]:
    if not family.samples:
        return
    # The library's counters carry _total in the sample, not in the family; ours carry the published name in both.
    name = family.samples[0].name if family.type == "counter" else family.name
    if headers:
        yield f"# HELP {name} {family.documentation.replace(chr(92), chr(92) * 2)}\n# TYPE {name} {family.type}\n"
    for sample in family.samples:
        pairs = ",".join(f'{label}="{_escape(value)}"' for label, value in sorted(sample.labels.items()))
        yield f"{sample.name}{'{' + pairs + '}' if pairs else ''} {_number(sample.value)}\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if not math.isfinite(value):
        return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
