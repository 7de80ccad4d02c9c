"""The operator's own series, each declared once; those that hooks make and those of the process beside them.

Everything is called from one event loop; nothing locks. Source: contract.md 2.5, 2.15.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from prometheus_client import CollectorRegistry, ProcessCollector

from addon_operator.metrics.hooks import HookMetrics
from addon_operator.metrics.operations import SeriesKind
from addon_operator.metrics.series import Family, LiveSeries, render

RunOutcome = Literal["success", "allowed_error", "error"]

_FINE = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_RUN_BUCKETS = (*_FINE, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0)  # a hook or a helm may take 20 minutes
_CLIENT_BUCKETS = (*_FINE, 20.0, 50.0)
_QUEUE_BUCKETS = (0.0001, 0.0002, 0.0005, *_FINE[: _FINE.index(0.5) + 1])
_BINDING = "module hook binding queue kind"


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
class BindingLabels:
    """Which kubernetes binding a value belongs to.

    Attributes:
        module: the module of its hook; None for a global hook.
        hook: the hook's name, such as `hooks/sub/x.sh`.
        binding: the binding's name.
        queue: where its events wait.
        kind: of the objects that it watches.
    """

    module: str | None
    hook: str
    binding: str
    queue: str
    kind: str

    @property
    def texts(self) -> tuple[str, str, str, str, str]:
        """Gives the values of all labels."""
        return (self.module or "", self.hook, self.binding, self.queue, self.kind)


@dataclasses.dataclass(frozen=True, slots=True)
class SnapshotSize:
    """How much one binding keeps in memory.

    Attributes:
        labels: which binding.
        objects: how many objects.
        bytes: how long what is kept of them is, objects and filter results.
    """

    labels: BindingLabels
    objects: int
    bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class HeadTask:
    """The task at the head of a queue; empty texts where a label does not apply."""

    module: str
    task_type: str
    hook: str


class Metrics:
    """All series of the process: the operator's own, those of hooks (`hooks`), and the figures of the process itself.

    Source: contract.md 2.15; 3.9 for the metrics that go by two names.
    """

    def __init__(self, prefix: str = "addon_operator_", *, max_hook_series: int = 10_000) -> None:
        """Declares every series.

        Args:
            prefix: in front of each name of the operator's own.
            max_hook_series: how many series the metrics of one hook may have.
        """
        self._prefix = prefix
        self._registry = CollectorRegistry()
        self._own: dict[str, SeriesKind] = {}
        self._of_modules: list[Family] = []
        self._declare_hook_runs()
        self._declare_modules()
        self._declare_operator()
        self._declare_watching()
        self.hooks = HookMetrics(self._own, max_series=max_hook_series)
        process = ProcessCollector(registry=self._registry)
        self._own.update((sample.name, "gauge") for family in process.collect() for sample in family.samples)

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
        self._module_held = self._gauge("module_held", "Modules that are neither upgraded nor removed.", "module")

    def _declare_operator(self) -> None:
        self._binding_count = self._gauge("binding_count", "Bindings of a hook.", "module hook")
        self._hook_metrics_dropped = self._counter(
            "hook_metrics_dropped_total",
            "Metric operations of a hook that were dropped, since it has too many series.",
            "module hook",
        )
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

    def _declare_watching(self) -> None:
        self._jq_seconds = self._histogram(
            "kube_jq_filter_duration_seconds", "Duration of jq filters.", _BINDING, _FINE
        )
        self._event_seconds = self._histogram(
            "kube_event_duration_seconds", "Time to take in one event of an object.", _BINDING, _FINE
        )
        self._jq_errors = self._counter("kube_jq_filter_errors_total", "jq filters that failed.", "module hook binding")
        self._watch_errors = self._counter(
            "kubernetes_client_watch_errors_total", "Watches that were interrupted.", "error_type"
        )
        self._monitor_missing = self._counter(
            "binding_monitor_missing_total", "Times a binding could not watch its objects.", "binding"
        )
        self._queue_actions = self._histogram(
            "tasks_queue_action_duration_seconds",
            "Duration of actions on a queue.",
            "queue_name queue_action",
            _QUEUE_BUCKETS,
        )
        self._webhook_reviews = self._counter(
            "webhook_reviews_total", "Reviews that a webhook answered.", "module hook binding outcome"
        )

    def _counter(self, names: str, text: str, labels: str) -> Family:
        return self._family(names, "counter", text, labels)

    def _gauge(self, names: str, text: str, labels: str) -> Family:
        return self._family(names, "gauge", text, labels)

    def _histogram(self, names: str, text: str, labels: str, buckets: Sequence[float] = _RUN_BUCKETS) -> Family:
        return self._family(names, "histogram", text, labels, buckets)

    def _family(self, names: str, kind: SeriesKind, text: str, labels: str, buckets: Sequence[float] = ()) -> Family:
        full_names = [self._prefix + name for name in names.split()]
        family = Family(full_names, kind, text, labels.split(), buckets)
        self._register(family)
        if labels.startswith("module"):
            self._of_modules.append(family)
        return family

    def _watch(
        self,
        texts: Mapping[str, str],
        labels: str,
        read: Callable[[], Iterable[tuple[tuple[str, ...], tuple[float, ...]]]],
        kind: SeriesKind = "gauge",
    ) -> None:
        full_names = {self._prefix + name: text for name, text in texts.items()}
        self._register(LiveSeries(full_names, labels.split(), read, kind))

    def _register(self, collector: Family | LiveSeries) -> None:
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
        for family in (self._module_info, self._module_enabled, self._module_maintenance):
            family.drop(module)
        self._module_info.set(1, module, _truth(enabled), _truth(critical))
        self._module_enabled.set(float(enabled), module, version)
        if maintenance:
            self._module_maintenance.set(1, module, maintenance)

    def module_held(self, module: str, *, held: bool) -> None:
        """Says whether a module is held."""
        if held:
            self._module_held.set(1, module)
        else:
            self._module_held.drop(module)

    def keep_modules(self, names: Iterable[str]) -> None:
        """Forgets the series of all modules but these: the others have no directory any more; they may yet be held."""
        kept = {*names, ""}  # no module: a global hook's
        for family in self._of_modules:
            if family is not self._module_held:
                family.keep(kept)

    def bindings(self, module: str | None, hook: str, count: int) -> None:
        """Says how many bindings a hook has; `module` is None for a global hook."""
        self._binding_count.set(count, module or "", hook)

    def hook_metrics_dropped(self, module: str | None, hook: str, count: int) -> None:
        """Counts operations of a hook's run that were dropped; `module` is None for a global hook."""
        self._hook_metrics_dropped.add(count, module or "", hook)

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

    def watch_error(self, error_type: str) -> None:
        """Counts one interruption of a watch, such as `410 Expired` or `Timeout`."""
        self._watch_errors.add(1, error_type)

    def event_handled(self, labels: BindingLabels, seconds: float) -> None:
        """Counts one event of an object that a binding has taken in, jq filter included."""
        self._event_seconds.observe(seconds, *labels.texts)

    def jq_filtered(self, labels: BindingLabels, seconds: float) -> None:
        """Counts one run of a binding's jq filter."""
        self._jq_seconds.observe(seconds, *labels.texts)

    def jq_failed(self, labels: BindingLabels) -> None:
        """Counts one run of a binding's jq filter that failed."""
        self._jq_errors.add(1, labels.module or "", labels.hook, labels.binding)

    def monitor_missing(self, binding: str) -> None:
        """Counts one time that a binding cannot watch: nobody serves the kind, or RBAC forbids it."""
        self._monitor_missing.add(1, binding)

    def queue_action(self, queue: str, action: str, seconds: float) -> None:
        """Counts one action on a queue, such as `AddLast` or `RemoveFirst`."""
        self._queue_actions.observe(seconds, queue, action)

    def webhook_review(self, *, module: str | None, hook: str, binding: str, outcome: str) -> None:
        """Counts one review that a webhook answered: `allowed`, `denied`, `converted`, `error`."""
        self._webhook_reviews.add(1, module or "", hook, binding, outcome)

    def watch_queues(
        self, lengths: Callable[[], Mapping[str, int]], heads: Callable[[], Mapping[str, HeadTask]]
    ) -> None:
        """Takes `tasks_queue_length` and `tasks_queue_head_info` from these whenever somebody looks; called once.

        Args:
            lengths: queue -> number of tasks, empty queues included.
            heads: queue -> the task at its head, without empty queues.
        """
        self._watch(
            {"tasks_queue_length": "Tasks in a queue."},
            "queue",
            lambda: (((queue,), (length,)) for queue, length in lengths().items()),
        )
        self._watch(
            {"tasks_queue_head_info": "The task at the head of a queue."},
            "queue module task_type hook",
            lambda: (((queue, *dataclasses.astuple(head)), (1,)) for queue, head in heads().items()),
        )

    def watch_snapshots(self, read: Callable[[], Iterable[SnapshotSize]]) -> None:
        """Takes `kube_snapshot_objects` and `kube_snapshot_bytes` from this whenever somebody looks; called once.

        Args:
            read: the bindings of now; those with the same labels are added up.
        """
        self._watch(
            {
                "kube_snapshot_objects": "Objects in the snapshot of a binding.",
                "kube_snapshot_bytes": "What the snapshot of a binding keeps in memory.",
            },
            _BINDING,
            lambda: ((size.labels.texts, (size.objects, size.bytes)) for size in read()),
        )

    def watch_lease(self, name: str, held: Callable[[], bool]) -> None:
        """Takes `leader_election_master_status` from this whenever somebody looks; called once.

        Args:
            name: of the Lease.
            held: whether this process holds it.
        """
        text = "Whether this operator holds the Lease of its namespace."
        self._watch({"leader_election_master_status": text}, "name", lambda: (((name,), (held(),)),))

    def watch_log(self, dropped: Callable[[], int]) -> None:
        """Takes `log_lines_dropped_total` from this whenever somebody looks; called once.

        Args:
            dropped: lines that were not written since the start, because nobody read those before them.
        """
        self._watch(
            {"log_lines_dropped_total": "Lines of the log that were dropped because nobody read it."},
            "",
            lambda: (((), (dropped(),)),),
            "counter",
        )

    def watch_config(self, refused: Callable[[], bool]) -> None:
        """Takes `config_values_refused` from this whenever somebody looks; called once.

        Args:
            refused: whether the ConfigMap as it is now is not in force because it was refused.
        """
        self._watch(
            {"config_values_refused": "Whether the ConfigMap is refused at this moment."},
            "",
            lambda: (((), (float(refused()),)),),
        )

    def watch_api_server(self, away_s: Callable[[], float]) -> None:
        """Takes `kubernetes_api_unreachable_seconds` from this whenever somebody looks; called once.

        Args:
            away_s: for how many seconds the API server has not answered; 0 while it does.
        """
        self._watch(
            {"kubernetes_api_unreachable_seconds": "For how long the API server has not answered; 0 while it does."},
            "",
            lambda: (((), (away_s(),)),),
        )

    def blocks(self) -> Iterator[bytes]:
        """Writes everything as Prometheus text: the operator's own at once, those of hooks in small pieces.

        Those of hooks are of the moment when their turn comes.
        """
        yield render(self._registry.collect())
        yield from self.hooks.blocks()

    def render(self) -> bytes:
        """Writes everything at once."""
        return b"".join(self.blocks())


@dataclasses.dataclass(frozen=True, slots=True)
class _HookRunFamilies:
    seconds: Family
    user_cpu: Family
    sys_cpu: Family
    max_rss: Family
    outcomes: Mapping[RunOutcome, Family]


_OUTCOMES: tuple[tuple[RunOutcome, str, str], ...] = (
    ("success", "success", "successes"),
    ("allowed_error", "allowed_errors", "failures that the binding allows"),
    ("error", "errors", "failures"),
)


def _truth(value: bool) -> str:
    return "true" if value else "false"
