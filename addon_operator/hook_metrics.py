"""The series that hooks make through METRICS_PATH: what one run says laid on top of what there was.

Source: contract.md 2.5, 3.9.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TypeAlias

from prometheus_client import Metric
from prometheus_client.registry import Collector

from addon_operator.metric_ops import Expire, MetricOperation, MetricsError, Record, SeriesKind
from addon_operator.series import Distribution, State, add_samples, render

LabelPairs: TypeAlias = tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class _Series:
    """One series of a hook's metric: its value, and the group it expires with."""

    state: State
    group: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class _HookFamily:
    """One metric that hooks make.

    Attributes:
        label_names: all that its series ever had; a series shows those that it does not have as empty.
        declared_by: the hook that brought it, for messages.
        series: labels -> series. Labels that are empty are left out: for Prometheus they are as good as none.
    """

    name: str
    kind: SeriesKind
    buckets: tuple[float, ...]
    label_names: frozenset[str]
    declared_by: str
    series: dict[LabelPairs, _Series]


class HookMetrics(Collector):
    """The series that hooks make through METRICS_PATH.

    A series with a group lives as long as each run of a hook that mentions the group mentions the series again; a
    counter mentioned again goes on from where it was. A series without a group stays. Groups are common to all hooks.
    Source: contract.md 2.5 and 3.9; seed "Custom metrics".
    """

    def __init__(self, own: Mapping[str, SeriesKind]) -> None:
        """Starts empty.

        Args:
            own: names and kinds of the operator's series, which hooks may not take; read at each check.
        """
        self._own = own
        self._families: dict[str, _HookFamily] = {}

    def check(self, operations: Sequence[MetricOperation], *, module: str | None, hook: str) -> None:
        """Answers whether `apply` would succeed now; changes nothing.

        Raises:
            MetricsError: a name that the operator uses, or a metric of another type or with other buckets than the one
                that exists; all of them.
        """
        self._after(operations, module, hook)

    def apply(self, operations: Sequence[MetricOperation], *, module: str | None, hook: str) -> None:
        """Does what one run of a hook said, all of it or nothing; `module` is None for a global hook.

        Raises:
            MetricsError: as `check`; another hook may have come in between.
        """
        self._families = self._after(operations, module, hook)

    def collect(self) -> Iterator[Metric]:
        """Gives all series; names sorted."""
        for name in sorted(self._families):
            family = self._families[name]
            metric = Metric(name, name, family.kind)
            empty = dict.fromkeys(family.label_names, "")
            for labels, series in family.series.items():
                add_samples(metric, {**empty, **dict(labels)}, series.state, family.buckets)
            yield metric

    def describe(self) -> list[Metric]:
        """Tells the registry that the names are not known beforehand; `check` keeps them apart."""
        return []

    def render(self) -> bytes:
        """Writes the hooks' series as Prometheus text: the answer of /metrics/hooks."""
        return render(self.collect())

    def _after(self, operations: Sequence[MetricOperation], module: str | None, hook: str) -> dict[str, _HookFamily]:
        return _Change(self._families, self._own, operations, module=module, hook=hook).result()


class _Change:
    """One run's operations laid on top of the families; those are not touched, so that an error changes nothing."""

    def __init__(
        self,
        before: Mapping[str, _HookFamily],
        own: Mapping[str, SeriesKind],
        operations: Sequence[MetricOperation],
        *,
        module: str | None,
        hook: str,
    ) -> None:
        self._before = before
        self._own = own
        self._operations = operations
        self._hook_labels = {"hook": hook} if module is None else {"hook": hook, "module": module}
        self._title = hook if module is None else f"{module}/{hook}"
        self._expired: set[str] = set()
        self._problems: list[str] = []

    def result(self) -> dict[str, _HookFamily]:
        """Answers all families as they are after the run.

        Raises:
            MetricsError: every operation that contradicts another hook's or the operator's series.
        """
        self._families = self._without_groups()
        for operation in self._operations:
            if isinstance(operation, Expire):
                self._expire(operation.group)
            else:
                self._record(operation)
        if self._problems:
            raise MetricsError(f"metrics of hook {self._title}", tuple(self._problems))
        return self._families

    def _without_groups(self) -> dict[str, _HookFamily]:
        """Copies what the run may change, without the series of its groups: those come back when mentioned."""
        groups = {operation.group for operation in self._operations} - {None}
        names = {operation.name for operation in self._operations if isinstance(operation, Record)}
        families = {}
        for name, family in self._before.items():
            if not groups and name not in names:
                families[name] = family
            elif series := {labels: one for labels, one in family.series.items() if one.group not in groups}:
                families[name] = dataclasses.replace(family, series=series)
        return families

    def _expire(self, group: str) -> None:
        self._expired.add(group)
        for name, family in list(self._families.items()):
            for labels in [labels for labels, series in family.series.items() if series.group == group]:
                del family.series[labels]
            if not family.series:
                del self._families[name]

    def _record(self, record: Record) -> None:
        pairs = {**dict(record.labels), **self._hook_labels}
        family = self._family(record, pairs.keys())
        if family is None:
            return
        labels = tuple(sorted((name, value) for name, value in pairs.items() if value))
        state = self._next(record, family.series.get(labels) or self._earlier(record, labels))
        family.series[labels] = _Series(state, record.group)

    def _earlier(self, record: Record, labels: LabelPairs) -> _Series | None:
        family = self._before.get(record.name)
        if family is None or (family.kind, family.buckets) != (record.kind, record.buckets):
            return None
        series = family.series.get(labels)
        return None if series is None or series.group in self._expired else series

    def _next(self, record: Record, earlier: _Series | None) -> State:
        if record.kind == "gauge":
            return record.value
        if record.kind == "counter":
            before = earlier.state if earlier else 0.0
            assert not isinstance(before, Distribution)
            return before + record.value
        state = copy.deepcopy(earlier.state) if earlier else Distribution.empty(record.buckets)
        assert isinstance(state, Distribution)
        state.observe(record.buckets, record.value)
        return state

    def _family(self, record: Record, names: Set[str]) -> _HookFamily | None:
        family = self._families.get(record.name)
        problem = self._taken(record) if family is None else _difference(family, record)
        if problem:
            self._problems.append(f"operation {record.index} ({record.name}): {problem}")
            return None
        if family is None:
            family = _HookFamily(record.name, record.kind, record.buckets, frozenset(names), self._title, {})
        elif not names <= family.label_names:
            family = dataclasses.replace(family, label_names=family.label_names | names)
        self._families[record.name] = family
        return family

    def _taken(self, record: Record) -> str | None:
        wanted = _sample_names(record.name, record.kind)
        for name, kind in self._own.items():
            if wanted & _sample_names(name, kind):
                return f"name: taken by the operator's own {name}"
        for family in self._families.values():
            if wanted & _sample_names(family.name, family.kind):
                return f"name: taken by the {family.kind} {family.name} of hook {family.declared_by}"
        return None


def _difference(family: _HookFamily, record: Record) -> str | None:
    whose = f"hook {family.declared_by}"
    if family.kind != record.kind:
        return f"action: makes a {record.kind}, but {whose} made it a {family.kind}"
    if family.buckets != record.buckets:
        return f"buckets: differ from those that {whose} gave"
    return None


def _sample_names(name: str, kind: SeriesKind) -> frozenset[str]:
    suffixes = ("", "_bucket", "_sum", "_count") if kind == "histogram" else ("",)
    return frozenset(name + suffix for suffix in suffixes)
