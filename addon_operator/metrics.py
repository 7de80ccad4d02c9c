"""The operator's own series, each declared once, and the series that hooks make.

Values are kept here rather than in prometheus_client's own Counter and Histogram: those force `_total` onto counters
whose published names lack it (`live_ticks`, every hook's), and take 6 kB for each labelled histogram. Registry, sample
model and the process's figures are the library's. Everything is called from one event loop; nothing locks.
Source: contract.md 2.5, 2.15.
"""

from __future__ import annotations

import bisect
import copy
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.registry import Collector

from addon_operator.metric_ops import Expire, MetricOperation, MetricsError, Record, SeriesKind

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

RunOutcome = Literal["success", "allowed_error", "error"]
LabelPairs: TypeAlias = tuple[tuple[str, str], ...]

_FINE = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_RUN_BUCKETS = (*_FINE, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0)  # a hook or a helm may take 20 minutes
_CLIENT_BUCKETS = (*_FINE, 20.0, 50.0)


@dataclasses.dataclass(slots=True)
class _Distribution:
    """A histogram's state: how many observations fell below each bound (the last one is infinity), and their sum."""

    counts: list[int]
    total: float = 0.0

    @classmethod
    def empty(cls, bounds: Sequence[float]) -> _Distribution:
        return cls([0] * (len(bounds) + 1))

    def observe(self, bounds: Sequence[float], value: float) -> None:
        self.counts[bisect.bisect_left(bounds, value)] += 1
        self.total += value


_State: TypeAlias = float | _Distribution


@dataclasses.dataclass(frozen=True, slots=True)
class HookLabels:
    """Which run of which hook a value belongs to.

    Attributes:
        module: its module; None for a global hook.
        hook: its name, such as `hooks/sub/x.sh`.
        binding: the binding's name, not its type.
        queue: where the task waited.
        activation: the event type of the task during the operator's first converge, empty afterwards.
    """

    module: str | None
    hook: str
    binding: str
    queue: str
    activation: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class HeadTask:
    """The task at the head of a queue; empty texts where a label does not apply."""

    module: str
    task_type: str
    hook: str


class _Family(Collector):
    """One built-in metric: its names, labels and current values."""

    def __init__(
        self, names: Sequence[str], kind: SeriesKind, text: str, labels: Sequence[str], buckets: Sequence[float]
    ) -> None:
        self.names = tuple(names)
        self.kind = kind
        self.text = text
        self._labels = tuple(labels)
        self._buckets = tuple(buckets)
        self._states: dict[tuple[str, ...], _State] = {}
        if not labels and kind == "counter":
            self._states[()] = 0.0

    def add(self, amount: float, *labels: str) -> None:
        """Raises a counter."""
        before = self._states.get(labels, 0.0)
        assert not isinstance(before, _Distribution)
        self._states[labels] = before + amount

    def set(self, value: float, *labels: str) -> None:
        """Sets a gauge."""
        self._states[labels] = value

    def observe(self, value: float, *labels: str) -> None:
        """Puts one value into a histogram."""
        state = self._states.get(labels)
        if state is None:
            state = self._states[labels] = _Distribution.empty(self._buckets)
        assert isinstance(state, _Distribution)
        state.observe(self._buckets, value)

    def drop(self, first: str) -> None:
        """Forgets the series whose first label has this value."""
        self._states = {labels: state for labels, state in self._states.items() if labels[0] != first}

    def describe(self) -> list[Metric]:
        """Tells the registry the names, so that none is declared twice."""
        return [Metric(name, self.text, self.kind) for name in self.names]

    def collect(self) -> Iterator[Metric]:
        """Gives the same samples under each of the names."""
        for name in self.names:
            family = Metric(name, self.text, self.kind)
            for labels, state in self._states.items():
                _add_samples(family, dict(zip(self._labels, labels, strict=True)), state, self._buckets)
            yield family


class _Live(Collector):
    """Gauges that are read when somebody looks, so that they are never late."""

    def __init__(self, name: str, text: str, read: Callable[[], Iterable[tuple[dict[str, str], float]]]) -> None:
        self.names = (name,)
        self.kind: SeriesKind = "gauge"
        self._text = text
        self._read = read

    def describe(self) -> list[Metric]:
        """Tells the registry the name."""
        return [Metric(self.names[0], self._text, self.kind)]

    def collect(self) -> Iterator[Metric]:
        """Reads the values of now."""
        family = Metric(self.names[0], self._text, self.kind)
        for labels, value in self._read():
            family.add_sample(family.name, labels, value)
        yield family


def _add_samples(family: Metric, labels: dict[str, str], state: _State, buckets: Sequence[float]) -> None:
    if not isinstance(state, _Distribution):
        family.add_sample(family.name, labels, state)
        return
    below = itertools.accumulate(state.counts)
    for bound, count in zip((*buckets, math.inf), below, strict=True):
        family.add_sample(family.name + "_bucket", {**labels, "le": _number(bound)}, count)
    family.add_sample(family.name + "_sum", labels, state.total)
    family.add_sample(family.name + "_count", labels, sum(state.counts))


class Metrics:
    """All series of the process: the operator's own, those of hooks (`hooks`), and the figures of the process itself.

    Source: contract.md 2.15; 3.9 for the metrics that go by two names.
    """

    def __init__(self, prefix: str = "addon_operator_") -> None:
        """Declares every series.

        Args:
            prefix: in front of each name of the operator's own.
        """
        self._prefix = prefix
        self._registry = CollectorRegistry()
        self._own: dict[str, SeriesKind] = {}
        self._declare_hook_runs()
        self._declare_modules()
        self._declare_operator()
        self.hooks = HookMetrics(self._own)
        process = ProcessCollector(registry=self._registry)
        self._own.update((sample.name, "gauge") for family in process.collect() for sample in family.samples)
        self._registry.register(self.hooks)

    def _declare_hook_runs(self) -> None:
        self._hook_runs = {
            scope: _HookRunFamilies(
                seconds=self._histogram(f"{scope}_hook_run_seconds", "Duration of hook runs.", labels),
                user_cpu=self._histogram(f"{scope}_hook_run_user_cpu_seconds", "CPU time of hook runs, user.", labels),
                sys_cpu=self._histogram(f"{scope}_hook_run_sys_cpu_seconds", "CPU time of hook runs, system.", labels),
                max_rss=self._gauge(f"{scope}_hook_run_max_rss_bytes", "Peak memory of the last hook run.", labels),
                outcomes={
                    outcome: self._counter(
                        f"{scope}_hook_run_{plural}_total {scope}_hook_{plural}_total", f"Hook runs: {text}.", labels
                    )
                    for outcome, plural, text in _OUTCOMES
                },
            )
            for scope, labels in (
                ("global", "hook binding queue activation"),
                ("module", "module hook binding queue activation"),
            )
        }

    def _declare_modules(self) -> None:
        self._module_run = self._histogram("module_run_seconds", "Duration of module runs.", "module activation")
        self._module_helm = self._histogram("module_helm_seconds", "Time in Helm of a module run.", "module activation")
        self._helm_operation = self._histogram(
            "helm_operation_seconds", "Duration of single Helm operations.", "module activation operation"
        )
        self._module_run_errors = self._counter("module_run_errors_total", "Failed module runs.", "module")
        self._module_delete_errors = self._counter("module_delete_errors_total", "Failed module deletions.", "module")
        self._redeployed = self._counter(
            "modules_helm_release_redeployed_total", "Releases deployed again because objects were absent.", "module"
        )
        self._absent = self._counter("modules_absent_resources_total", "Objects found absent.", "module resource")
        self._module_info = self._gauge("mm_module_info", "Known modules.", "module enabled critical")
        self._module_enabled = self._gauge("mm_module_enabled", "Whether a module is enabled.", "module version")
        self._module_maintenance = self._gauge("mm_module_maintenance", "Modules left alone.", "module state")

    def _declare_operator(self) -> None:
        self._binding_count = self._gauge("binding_count", "Bindings of a hook.", "module hook")
        self._config_values_errors = self._counter("config_values_errors_total", "ConfigMap states refused.", "")
        self._discover_errors = self._counter(
            "module_discover_errors_total modules_discover_errors_total", "Errors while planning modules.", ""
        )
        self._convergence_seconds = self._counter("convergence_seconds", "Time spent converging.", "activation")
        self._convergence_total = self._counter("convergence_total", "Converges.", "activation")
        self._task_wait = self._counter(
            "task_wait_in_queue_seconds_total", "Time tasks waited in queues.", "module hook binding queue"
        )
        self._live_ticks = self._counter("live_ticks", "Grows by one every 10 seconds.", "")
        self._client_results = self._counter(
            "kubernetes_client_request_result_total", "Answers of the API server.", "code method host"
        )
        self._client_latency = self._histogram(
            "kubernetes_client_request_latency_seconds", "Latency of API requests.", "verb url", _CLIENT_BUCKETS
        )
        self._client_limiter = self._histogram(
            "kubernetes_client_rate_limiter_latency_seconds",
            "Time API requests waited for the rate limit.",
            "verb url",
            _CLIENT_BUCKETS,
        )

    def _counter(self, names: str, text: str, labels: str) -> _Family:
        return self._family(names, "counter", text, labels)

    def _gauge(self, names: str, text: str, labels: str) -> _Family:
        return self._family(names, "gauge", text, labels)

    def _histogram(self, names: str, text: str, labels: str, buckets: Sequence[float] = _RUN_BUCKETS) -> _Family:
        return self._family(names, "histogram", text, labels, buckets)

    def _family(self, names: str, kind: SeriesKind, text: str, labels: str, buckets: Sequence[float] = ()) -> _Family:
        full_names = [self._prefix + name for name in names.split()]
        family = _Family(full_names, kind, text, labels.split(), buckets)
        self._register(family)
        return family

    def _register(self, collector: _Family | _Live) -> None:
        self._registry.register(collector)
        self._own.update(dict.fromkeys(collector.names, collector.kind))

    def hook_run(
        self,
        labels: HookLabels,
        outcome: RunOutcome,
        *,
        duration_s: float,
        user_cpu_s: float,
        sys_cpu_s: float,
        max_rss_bytes: int,
    ) -> None:
        """Counts one finished run of a hook, whatever started it (contract.md 6.3).

        Args:
            labels: which run it was.
            outcome: `allowed_error` is a failure of a binding with `allowFailure`.
            duration_s: wall-clock time of the process.
            user_cpu_s: as the system counted for the process and its children.
            sys_cpu_s: likewise.
            max_rss_bytes: its peak memory.
        """
        families = self._hook_runs["global" if labels.module is None else "module"]
        scope = () if labels.module is None else (labels.module,)
        series = (*scope, labels.hook, labels.binding, labels.queue, labels.activation)
        families.seconds.observe(duration_s, *series)
        families.user_cpu.observe(user_cpu_s, *series)
        families.sys_cpu.observe(sys_cpu_s, *series)
        families.max_rss.set(max_rss_bytes, *series)
        families.outcomes[outcome].add(1, *series)

    def module_run(self, module: str, activation: str, *, duration_s: float) -> None:
        """Counts one module run."""
        self._module_run.observe(duration_s, module, activation)

    def module_run_failed(self, module: str) -> None:
        """Counts one failed attempt to run a module."""
        self._module_run_errors.add(1, module)

    def module_delete_failed(self, module: str) -> None:
        """Counts one failed attempt to delete a module."""
        self._module_delete_errors.add(1, module)

    def module_helm(self, module: str, activation: str, *, duration_s: float) -> None:
        """Counts the part of a module run that was spent on its release."""
        self._module_helm.observe(duration_s, module, activation)

    def helm_operation(self, module: str, activation: str, operation: str, *, duration_s: float) -> None:
        """Counts one Helm operation: `template`, `check-upgrade`, `upgrade`, `rollback`, `uninstall`."""
        self._helm_operation.observe(duration_s, module, activation, operation)

    def redeployed(self, module: str) -> None:
        """Counts a release deployed again because objects of it were absent."""
        self._redeployed.add(1, module)

    def resource_absent(self, module: str, resource: str) -> None:
        """Counts an object of a release found absent, named `namespace/Kind/name`."""
        self._absent.add(1, module, resource)

    def module_state(
        self, module: str, *, enabled: bool, version: str = "", critical: bool = True, maintenance: str = ""
    ) -> None:
        """Says what a module is now; no other module's series change (contract.md 5.2 no. 21).

        Args:
            module: its name.
            enabled: whether the plan runs it.
            version: of its chart, if known.
            critical: whether the converge waits for it.
            maintenance: `NoResourceReconciliation`, or empty.
        """
        self.module_gone(module)
        self._module_info.set(1, module, _truth(enabled), _truth(critical))
        self._module_enabled.set(float(enabled), module, version)
        if maintenance:
            self._module_maintenance.set(1, module, maintenance)

    def module_gone(self, module: str) -> None:
        """Forgets the state of a module that has no directory any more."""
        for family in (self._module_info, self._module_enabled, self._module_maintenance):
            family.drop(module)

    def bindings(self, module: str | None, hook: str, count: int) -> None:
        """Says how many bindings a hook has; `module` is None for a global hook."""
        self._binding_count.set(count, module or "", hook)

    def config_values_error(self) -> None:
        """Counts one state of the ConfigMap that was refused."""
        self._config_values_errors.add(1)

    def discover_error(self) -> None:
        """Counts one error while finding out which modules to run."""
        self._discover_errors.add(1)

    def converged(self, activation: str, *, duration_s: float) -> None:
        """Counts one converge; `activation` is the event type of its task, such as `OperatorStartup`."""
        self._convergence_seconds.add(duration_s, activation)
        self._convergence_total.add(1, activation)

    def task_waited(self, *, module: str, hook: str, binding: str, queue: str, seconds: float) -> None:
        """Counts how long a task waited before it was run; empty texts where a label does not apply."""
        self._task_wait.add(seconds, module, hook, binding, queue)

    def live_tick(self) -> None:
        """Says that the process lives; to be called every 10 seconds."""
        self._live_ticks.add(1)

    def kube_request(
        self, *, verb: str, url: str, host: str, code: str, latency_s: float, limiter_wait_s: float
    ) -> None:
        """Counts one request to the API server.

        Args:
            verb: the HTTP method.
            url: the path without names of objects and namespaces, or there would be a series for each object.
            host: of the API server.
            code: the HTTP status, or `<error>` without an answer.
            latency_s: from sending to the whole answer.
            limiter_wait_s: how long the rate limit held it back before.
        """
        self._client_results.add(1, code, verb, host)
        self._client_latency.observe(latency_s, verb, url)
        self._client_limiter.observe(limiter_wait_s, verb, url)

    def watch_queues(
        self, lengths: Callable[[], Mapping[str, int]], heads: Callable[[], Mapping[str, HeadTask]]
    ) -> None:
        """Takes `tasks_queue_length` and `tasks_queue_head_info` from these whenever somebody looks; called once.

        Args:
            lengths: queue -> number of tasks, empty queues included.
            heads: queue -> the task at its head, without empty queues.
        """

        def read_lengths() -> Iterator[tuple[dict[str, str], float]]:
            return (({"queue": queue}, length) for queue, length in lengths().items())

        def read_heads() -> Iterator[tuple[dict[str, str], float]]:
            return (({"queue": queue, **dataclasses.asdict(head)}, 1) for queue, head in heads().items())

        self._register(_Live(self._prefix + "tasks_queue_length", "Tasks in a queue.", read_lengths))
        self._register(_Live(self._prefix + "tasks_queue_head_info", "The task at the head of a queue.", read_heads))

    def render(self) -> bytes:
        """Writes everything as Prometheus text: the answer of /metrics (`CONTENT_TYPE`)."""
        return _render(self._registry.collect())


@dataclasses.dataclass(frozen=True, slots=True)
class _HookRunFamilies:
    seconds: _Family
    user_cpu: _Family
    sys_cpu: _Family
    max_rss: _Family
    outcomes: Mapping[RunOutcome, _Family]


_OUTCOMES: tuple[tuple[RunOutcome, str, str], ...] = (
    ("success", "success", "successes"),
    ("allowed_error", "allowed_errors", "failures that the binding allows"),
    ("error", "errors", "failures"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class _Series:
    """One series of a hook's metric: its value, and the group it expires with."""

    state: _State
    group: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class _HookFamily:
    """One metric that hooks make.

    Attributes:
        label_names: those that hooks give themselves; all series of the metric have the same ones.
        declared_by: the hook that brought it, for messages.
        series: all labels -> series.
    """

    name: str
    kind: SeriesKind
    buckets: tuple[float, ...]
    label_names: tuple[str, ...]
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
            MetricsError: a name that the operator uses, or a metric of another type, other buckets or other label
                names than the one that exists; all of them.
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
            for labels, series in family.series.items():
                _add_samples(metric, dict(labels), series.state, family.buckets)
            yield metric

    def describe(self) -> list[Metric]:
        """Tells the registry that the names are not known beforehand; `check` keeps them apart."""
        return []

    def render(self) -> bytes:
        """Writes the hooks' series as Prometheus text: the answer of /metrics/hooks (`CONTENT_TYPE`)."""
        return _render(self.collect())

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
        family = self._family(record)
        if family is None:
            return
        labels = tuple(sorted({**dict(record.labels), **self._hook_labels}.items()))
        state = self._next(record, family.series.get(labels) or self._earlier(record, labels))
        family.series[labels] = _Series(state, record.group)

    def _earlier(self, record: Record, labels: LabelPairs) -> _Series | None:
        family = self._before.get(record.name)
        if family is None or (family.kind, family.buckets) != (record.kind, record.buckets):
            return None
        series = family.series.get(labels)
        return None if series is None or series.group in self._expired else series

    def _next(self, record: Record, earlier: _Series | None) -> _State:
        if record.kind == "gauge":
            return record.value
        if record.kind == "counter":
            before = earlier.state if earlier else 0.0
            assert not isinstance(before, _Distribution)
            return before + record.value
        state = copy.deepcopy(earlier.state) if earlier else _Distribution.empty(record.buckets)
        assert isinstance(state, _Distribution)
        state.observe(record.buckets, record.value)
        return state

    def _family(self, record: Record) -> _HookFamily | None:
        names = tuple(name for name, _ in record.labels if name not in self._hook_labels)
        family = self._families.get(record.name)
        problem = self._taken(record) if family is None else _difference(family, record, names)
        if problem:
            self._problems.append(f"operation {record.index} ({record.name}): {problem}")
            return None
        if family is None:
            family = _HookFamily(record.name, record.kind, record.buckets, names, self._title, {})
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


def _difference(family: _HookFamily, record: Record, names: tuple[str, ...]) -> str | None:
    whose = f"hook {family.declared_by}"
    if family.kind != record.kind:
        return f"action: makes a {record.kind}, but {whose} made it a {family.kind}"
    if family.buckets != record.buckets:
        return f"buckets: differ from those that {whose} gave"
    if family.label_names != names:
        return f"labels: are {_listed(names)}, but {whose} gave {_listed(family.label_names)}"
    return None


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"


def _sample_names(name: str, kind: SeriesKind) -> frozenset[str]:
    suffixes = ("", "_bucket", "_sum", "_count") if kind == "histogram" else ("",)
    return frozenset(name + suffix for suffix in suffixes)


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _render(families: Iterable[Metric]) -> bytes:
    return "".join(line for family in families for line in _lines(family)).encode()


def _lines(family: Metric) -> Iterator[str]:
    if not family.samples:
        return
    # The library's counters carry _total in the sample, not in the family; ours carry the published name in both.
    name = family.samples[0].name if family.type == "counter" else family.name
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
