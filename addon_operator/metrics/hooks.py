"""The series that hooks make through METRICS_PATH: the operations of a run applied to the series so far.

The operations of a run become a proposal, which may be made in a thread, and takes effect as a whole. Families are
never changed in place, so that rendering in pieces shows one moment.

Source: contract.md 2.5, 3.9.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Final, TypeAlias

from prometheus_client import Metric

from addon_operator.metrics.operations import Expire, MetricOperation, MetricsError, Record, SeriesKind
from addon_operator.metrics.series import Distribution, State, add_samples, render

LabelPairs: TypeAlias = tuple[tuple[str, str], ...]

_BLOCK_LINES: Final = 200


@dataclasses.dataclass(frozen=True, slots=True)
class _Series:
    """One series of a hook's metric: its value, the group it expires with, and the hook it counts for."""

    state: State
    group: str | None
    owner: str


@dataclasses.dataclass(frozen=True, slots=True)
class _HookFamily:
    """One metric that hooks make.

    Attributes:
        label_names: all that its series ever had; a series shows those that it does not have as empty.
        groups: all that its series ever had.
        declared_by: the hook that made it first, for messages.
        series: labels -> series. Empty labels are left out: for Prometheus they do not exist.
    """

    name: str
    kind: SeriesKind
    buckets: tuple[float, ...]
    label_names: frozenset[str]
    groups: frozenset[str | None]
    declared_by: str
    series: dict[LabelPairs, _Series]

    @property
    def weight(self) -> int:
        """How many series one of its entries is for Prometheus, to which each bucket is one."""
        return _weight(self.kind, self.buckets)

    def samples(self) -> dict[str, str]:
        """Returns the names of its samples, and whose they are for messages."""
        owner = f"the {self.kind} {self.name} of hook {self.declared_by}"
        return dict.fromkeys(_sample_names(self.name, self.kind), owner)


@dataclasses.dataclass(frozen=True, slots=True)
class _Content:
    """All series of a moment.

    Attributes:
        counts: hook -> how many series it has.
    """

    families: Mapping[str, _HookFamily]
    counts: Mapping[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class MetricsProposal:
    """The series after one run of a hook; for `HookMetrics.commit`.

    Attributes:
        dropped: operations that are dropped, since the hook would have too many series.
    """

    operations: Sequence[MetricOperation]
    module: str | None
    hook: str
    before: _Content
    after: _Content
    dropped: int


class HookMetrics:
    """The series that hooks make through METRICS_PATH.

    A series with a group lives as long as each run of a hook that mentions the group mentions the series again; a
    counter mentioned again goes on from where it was. A series without a group stays. Groups are common to all hooks.
    Source: contract.md 2.5 and 3.9; seed "Custom metrics".
    """

    def __init__(self, own: Mapping[str, SeriesKind], *, max_series: int = 10_000) -> None:
        """Starts empty.

        Args:
            own: names and kinds of the operator's series, which hooks may not take; read at each proposal.
            max_series: of one hook; each bucket of a histogram, its sum and its count are one. More are dropped.
        """
        self._own = own
        self._max_series = max_series
        self._content = _Content({}, {})

    def propose(self, operations: Sequence[MetricOperation], *, module: str | None, hook: str) -> MetricsProposal:
        """Computes the series after one run of a hook; changes nothing, and may be called in any thread.

        Args:
            operations: what it wrote.
            module: of the hook; None for a global one.
            hook: its name.

        Raises:
            MetricsError: a name that the operator uses, or a metric of another type or with other buckets than the one
                that exists; all of them.
        """
        before = self._content
        change = _Change(before, self._own, operations, module=module, hook=hook, max_series=self._max_series)
        after = change.result()
        return MetricsProposal(operations, module, hook, before, after, change.dropped)

    def commit(self, proposal: MetricsProposal) -> int:
        """Puts a proposal into effect, as a whole; returns the number of operations dropped.

        Raises:
            MetricsError: as `propose`, if another hook has committed in between.
        """
        if proposal.before is not self._content:
            proposal = self.propose(proposal.operations, module=proposal.module, hook=proposal.hook)
        self._content = proposal.after
        return proposal.dropped

    def blocks(self) -> Iterator[bytes]:
        """Writes the series of this moment as Prometheus text, names sorted, a few hundred lines at a time."""
        families = self._content.families
        for name in sorted(families):
            yield from _blocks(families[name])

    def render(self) -> bytes:
        """Writes them at once."""
        return b"".join(self.blocks())


def _blocks(family: _HookFamily) -> Iterator[bytes]:
    empty = dict.fromkeys(family.label_names, "")
    left, size = iter(family.series.items()), max(1, _BLOCK_LINES // family.weight)
    first = True
    while part := tuple(itertools.islice(left, size)):
        metric = Metric(family.name, family.name, family.kind)
        for labels, series in part:
            add_samples(metric, {**empty, **dict(labels)}, series.state, family.buckets)
        yield render([metric], headers=first)
        first = False


class _Change:
    """One run's operations laid on top of the families; those are not touched, so that an error changes nothing.

    Attributes:
        dropped: operations for which the hook had no series left.
    """

    def __init__(
        self,
        before: _Content,
        own: Mapping[str, SeriesKind],
        operations: Sequence[MetricOperation],
        *,
        module: str | None,
        hook: str,
        max_series: int,
    ) -> None:
        self.dropped = 0
        self._before = before.families
        self._counts = collections.Counter(before.counts)
        self._own = own
        self._operations = operations
        self._hook_labels = {"hook": hook} if module is None else {"hook": hook, "module": module}
        self._title = hook if module is None else f"{module}/{hook}"
        self._max_series = max_series
        self._expired: set[str] = set()
        self._problems: list[str] = []

    def result(self) -> _Content:
        """Returns all series as they are after the run.

        Raises:
            MetricsError: every operation that contradicts another hook's or the operator's series.
        """
        self._families = self._without_groups()
        self._samples = self._sample_owners()
        for operation in self._operations:
            if isinstance(operation, Expire):
                self._expire(operation.group)
            else:
                self._record(operation)
        if self._problems:
            raise MetricsError(f"metrics of hook {self._title}", tuple(self._problems))
        return _Content(self._families, +self._counts)

    def _without_groups(self) -> dict[str, _HookFamily]:
        """Copies what the run may change, without the series of its groups: those come back when mentioned."""
        groups = {operation.group for operation in self._operations} - {None}
        names = {operation.name for operation in self._operations if isinstance(operation, Record)}
        families = {}
        for name, family in self._before.items():
            if name not in names and family.groups.isdisjoint(groups):
                families[name] = family
            elif series := self._split(family, groups):
                families[name] = dataclasses.replace(family, series=series)
        return families

    def _split(self, family: _HookFamily, groups: Set[str | None]) -> dict[LabelPairs, _Series]:
        """Returns the series that are in none of the groups; the others do not count any more."""
        if family.groups.isdisjoint(groups):
            return dict(family.series)
        kept = {}
        for labels, series in family.series.items():
            if series.group in groups:
                self._counts[series.owner] -= family.weight
            else:
                kept[labels] = series
        return kept

    def _sample_owners(self) -> dict[str, str]:
        """Returns who has the names of samples: name -> text for messages."""
        taken: dict[str, str] = {}
        for family in self._families.values():
            taken.update(family.samples())
        for name, kind in self._own.items():
            taken.update(dict.fromkeys(_sample_names(name, kind), f"the operator's own {name}"))
        return taken

    def _expire(self, group: str) -> None:
        self._expired.add(group)
        for name, family in list(self._families.items()):
            if group not in family.groups:
                continue
            for labels in [labels for labels, series in family.series.items() if series.group == group]:
                self._counts[family.series.pop(labels).owner] -= family.weight
            if not family.series:
                del self._families[name]
                for sample in _sample_names(name, family.kind):
                    del self._samples[sample]

    def _record(self, record: Record) -> None:
        family = self._families.get(record.name)
        problem = self._taken(record) if family is None else _difference(family, record)
        if problem:
            self._problems.append(f"operation {record.index} ({record.name}): {problem}")
            return
        pairs = {**dict(record.labels), **self._hook_labels}
        labels = tuple(sorted((name, value) for name, value in pairs.items() if value))
        present = family.series.get(labels) if family else None
        if present is None:
            weight = _weight(record.kind, record.buckets)
            if self._counts[self._title] + weight > self._max_series:
                self.dropped += 1
                return
            self._counts[self._title] += weight
        family = self._family(record, pairs.keys())
        state = self._next(record, present or self._earlier(record, labels))
        family.series[labels] = _Series(state, record.group, present.owner if present else self._title)

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

    def _family(self, record: Record, names: Set[str]) -> _HookFamily:
        """Returns the family to put a series of this record into."""
        family = self._families.get(record.name)
        if family is None:
            groups = frozenset([record.group])
            family = _HookFamily(record.name, record.kind, record.buckets, frozenset(names), groups, self._title, {})
            self._samples.update(family.samples())
        elif not names <= family.label_names or record.group not in family.groups:
            family = dataclasses.replace(
                family, label_names=family.label_names | names, groups=family.groups | {record.group}
            )
        self._families[record.name] = family
        return family

    def _taken(self, record: Record) -> str | None:
        owners = (self._samples.get(name) for name in _sample_names(record.name, record.kind))
        owner = next((owner for owner in owners if owner), None)
        return f"name: taken by {owner}" if owner else None


def _difference(family: _HookFamily, record: Record) -> str | None:
    whose = f"hook {family.declared_by}"
    if family.kind != record.kind:
        return f"action: makes a {record.kind}, but {whose} made it a {family.kind}"
    if family.buckets != record.buckets:
        return f"buckets: differ from those that {whose} gave"
    return None


def _weight(kind: SeriesKind, buckets: Sequence[float]) -> int:
    return len(buckets) + 3 if kind == "histogram" else 1


def _sample_names(name: str, kind: SeriesKind) -> frozenset[str]:
    suffixes = ("", "_bucket", "_sum", "_count") if kind == "histogram" else ("",)
    return frozenset(name + suffix for suffix in suffixes)
