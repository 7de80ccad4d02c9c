"""The operator's own series, read back with the parser of prometheus_client."""

from __future__ import annotations

import pytest

from addon_operator.metrics.bindings import BindingLabels, SnapshotSize
from addon_operator.metrics.hook_runs import HookLabels, RunOutcome
from addon_operator.metrics.operator import Metrics
from addon_operator.metrics.queues import HeadTask
from tests.unit.metrics.exposition import samples, types

NO_NAME_TWICE = {
    "addon_operator_global_hook_run_errors_total": "addon_operator_global_hook_errors_total",
    "addon_operator_module_hook_run_errors_total": "addon_operator_module_hook_errors_total",
    "addon_operator_module_hook_run_allowed_errors_total": "addon_operator_module_hook_allowed_errors_total",
    "addon_operator_module_hook_run_success_total": "addon_operator_module_hook_success_total",
    "addon_operator_module_discover_errors_total": "addon_operator_modules_discover_errors_total",
}


def hook_run(metrics: Metrics, module: str | None, outcome: RunOutcome) -> None:
    labels = HookLabels(module, "hooks/a.sh", "pods", "main", "OperatorStartup")
    metrics.hook_runs.finished(labels, outcome, duration_s=1.5, user_cpu_s=0.25, sys_cpu_s=0.05, max_rss_bytes=1024)


def everything() -> Metrics:
    """Metrics with every method called once."""
    metrics = Metrics()
    outcomes: tuple[RunOutcome, ...] = ("success", "allowed_error", "error")
    for outcome in outcomes:
        hook_run(metrics, None, outcome)
        hook_run(metrics, "m", outcome)
    metrics.modules.run_finished("m", "", duration_s=3)
    metrics.modules.run_failed("m")
    metrics.modules.delete_failed("m")
    metrics.helm.release_finished("m", "", duration_s=70)
    metrics.helm.operation_finished("m", "", "upgrade", duration_s=0.1)
    metrics.helm.redeployed("m")
    metrics.helm.object_absent("m", "ns/Pod/x")
    metrics.modules.state("m", enabled=True, version="1.2")
    metrics.modules.maintenance("m", "NoResourceReconciliation")
    metrics.hook_runs.bindings(None, "hooks/a.sh", 2)
    metrics.config.refused()
    metrics.modules.discovery_failed()
    metrics.modules.converged("OperatorStartup", duration_s=2.5)
    metrics.queues.task_waited(module="m", hook="", binding="", queue="main", seconds=0.5)
    metrics.live_tick()
    metrics.kube.request(verb="GET", url="/api", host="h:1", code="200", latency_s=0.004, limiter_wait_s=0)
    metrics.queues.read(lambda: {"main": 3, "other": 0}, lambda: {"main": HeadTask("m", "ModuleRun", "")})
    watching(metrics)
    return metrics


PODS = BindingLabels("m", "hooks/a.sh", "pods", "main", "Pod")
NODES = BindingLabels(None, "b.sh", "nodes", "slow", "Node")


def watching(metrics: Metrics) -> None:
    for labels in (PODS, NODES):
        metrics.bindings.event_handled(labels, 0.004)
        metrics.bindings.jq_finished(labels, 0.0015)
        metrics.bindings.jq_failed(labels)
    metrics.kube.watch_failed("410 Expired")
    metrics.bindings.monitor_missing("pods")
    metrics.queues.action("main", "AddTail", 0.00015)
    metrics.hook_runs.reviewed(module="m", hook="hooks/a.sh", binding="check", outcome="denied")
    metrics.bindings.read_snapshots(lambda: [SnapshotSize(PODS, 3, 1000), SnapshotSize(NODES, 1, 10)])
    metrics.config.read_refused(lambda: True)
    metrics.kube.read_unreachable(lambda: 75)


RUN_LABELS = "{activation=OperatorStartup,binding=pods,hook=hooks/a.sh,queue=main}"
POD_LABELS = "{binding=pods,hook=hooks/a.sh,kind=Pod,module=m,queue=main}"
MODULE_RUN_LABELS = "{activation=OperatorStartup,binding=pods,hook=hooks/a.sh,module=m,queue=main}"


@pytest.mark.parametrize(
    ("series", "value"),
    [
        (f"global_hook_run_seconds_sum{RUN_LABELS}", 4.5),
        (f"global_hook_run_success_total{RUN_LABELS}", 1),
        (f"global_hook_errors_total{RUN_LABELS}", 1),
        (f"module_hook_run_user_cpu_seconds_sum{MODULE_RUN_LABELS}", 0.75),
        (f"module_hook_run_sys_cpu_seconds_count{MODULE_RUN_LABELS}", 3),
        (f"module_hook_run_max_rss_bytes{MODULE_RUN_LABELS}", 1024),
        (f"module_hook_run_allowed_errors_total{MODULE_RUN_LABELS}", 1),
        ("module_run_seconds_sum{activation=,module=m}", 3),
        ("module_run_errors_total{module=m}", 1),
        ("module_delete_errors_total{module=m}", 1),
        ("module_helm_seconds_bucket{activation=,le=60,module=m}", 0),
        ("module_helm_seconds_bucket{activation=,le=120,module=m}", 1),
        ("helm_operation_seconds_bucket{activation=,le=0.1,module=m,operation=upgrade}", 1),
        ("helm_operation_seconds_bucket{activation=,le=0.05,module=m,operation=upgrade}", 0),
        ("modules_helm_release_redeployed_total{module=m}", 1),
        ("modules_absent_resources_total{module=m,resource=ns/Pod/x}", 1),
        ("mm_module_info{critical=true,enabled=true,module=m}", 1),
        ("mm_module_enabled{module=m,version=1.2}", 1),
        ("mm_module_maintenance{module=m,state=NoResourceReconciliation}", 1),
        ("binding_count{hook=hooks/a.sh,module=}", 2),
        ("config_values_errors_total{}", 1),
        ("modules_discover_errors_total{}", 1),
        ("convergence_seconds{activation=OperatorStartup}", 2.5),
        ("convergence_total{activation=OperatorStartup}", 1),
        ("task_wait_in_queue_seconds_total{binding=,hook=,module=m,queue=main}", 0.5),
        ("live_ticks{}", 1),
        ("kubernetes_client_request_result_total{code=200,host=h:1,method=GET}", 1),
        ("kubernetes_client_request_latency_seconds_sum{url=/api,verb=GET}", 0.004),
        ("kubernetes_client_rate_limiter_latency_seconds_bucket{le=0.001,url=/api,verb=GET}", 1),
        ("tasks_queue_length{queue=main}", 3),
        ("tasks_queue_length{queue=other}", 0),
        ("tasks_queue_head_info{hook=,module=m,queue=main,task_type=ModuleRun}", 1),
        (f"kube_event_duration_seconds_sum{POD_LABELS}", 0.004),
        (f"kube_jq_filter_duration_seconds_sum{POD_LABELS}", 0.0015),
        ("kube_jq_filter_duration_seconds_count{binding=nodes,hook=b.sh,kind=Node,module=,queue=slow}", 1),
        ("kube_jq_filter_duration_seconds_bucket{binding=nodes,hook=b.sh,kind=Node,le=0.001,module=,queue=slow}", 0),
        ("kube_jq_filter_errors_total{binding=pods,hook=hooks/a.sh,module=m}", 1),
        ("kube_jq_filter_errors_total{binding=nodes,hook=b.sh,module=}", 1),
        (f"kube_snapshot_objects{POD_LABELS}", 3),
        (f"kube_snapshot_bytes{POD_LABELS}", 1000),
        ("kube_snapshot_bytes{binding=nodes,hook=b.sh,kind=Node,module=,queue=slow}", 10),
        ("kubernetes_client_watch_errors_total{error_type=410 Expired}", 1),
        ("binding_monitor_missing_total{binding=pods}", 1),
        ("tasks_queue_action_duration_seconds_bucket{le=0.0001,queue_action=AddTail,queue_name=main}", 0),
        ("tasks_queue_action_duration_seconds_bucket{le=0.0002,queue_action=AddTail,queue_name=main}", 1),
        ("webhook_reviews_total{binding=check,hook=hooks/a.sh,module=m,outcome=denied}", 1),
        ("config_values_refused{}", 1),
        ("kubernetes_api_unreachable_seconds{}", 75),
    ],
)
def test_own_series(series: str, value: float) -> None:
    assert samples(everything().render())[f"addon_operator_{series}"] == value


def test_own_series_with_two_names_say_the_same_under_both() -> None:
    found = samples(everything().render())
    for documented, other in NO_NAME_TWICE.items():
        under_one = {
            line.removeprefix(documented): value for line, value in found.items() if line.startswith(documented)
        }
        under_other = {line.removeprefix(other): value for line, value in found.items() if line.startswith(other)}
        assert under_one
        assert under_one == under_other


def test_types_are_the_published_ones() -> None:
    found = types(everything().render())
    assert found["addon_operator_live_ticks"] == "counter"
    assert found["addon_operator_convergence_seconds"] == "counter"
    assert found["addon_operator_module_run_seconds"] == "histogram"
    assert found["addon_operator_tasks_queue_length"] == "gauge"
    assert found["process_cpu_seconds_total"] == "counter"


def test_prefix_and_counters_without_labels_are_there_from_the_start() -> None:
    found = samples(Metrics("x_").render())
    assert found["x_live_ticks{}"] == found["x_config_values_errors_total{}"] == 0
    assert found["process_resident_memory_bytes{}"] > 0


def test_queue_lengths_are_those_of_the_moment() -> None:
    metrics, lengths = Metrics(), {"main": 1}
    metrics.queues.read(lambda: lengths, dict)
    lengths["main"] = 7
    assert samples(metrics.render())["addon_operator_tasks_queue_length{queue=main}"] == 7


def test_queue_actions_are_told_apart_up_to_half_a_second() -> None:
    metrics = Metrics()
    metrics.queues.action("main", "Remove", 0.7)
    buckets = [value for line, value in samples(metrics.render()).items() if "action_duration_seconds_bucket" in line]
    assert buckets == [0] * 12 + [1]


def test_snapshots_and_the_config_are_those_of_the_moment() -> None:
    metrics, sizes, refused = Metrics(), [SnapshotSize(PODS, 3, 1000)], [True]
    metrics.bindings.read_snapshots(lambda: sizes)
    metrics.config.read_refused(lambda: refused[-1])
    assert shown(metrics) == (3, 1000, 1)
    sizes[:], refused[:] = [SnapshotSize(PODS, 4, 1100)], [False]
    assert shown(metrics) == (4, 1100, 0)
    sizes.clear()
    assert shown(metrics) == (None, None, 0)


def shown(metrics: Metrics) -> tuple[float | None, ...]:
    found = samples(metrics.render())
    names = (f"kube_snapshot_objects{POD_LABELS}", f"kube_snapshot_bytes{POD_LABELS}", "config_values_refused{}")
    return tuple(found.get(f"addon_operator_{name}") for name in names)


def test_bindings_that_go_by_the_same_labels_are_one_series() -> None:
    """Names of bindings may repeat in a hook; a series that is there twice makes Prometheus refuse the whole page."""
    metrics = Metrics()
    metrics.bindings.read_snapshots(lambda: [SnapshotSize(PODS, 3, 1000), SnapshotSize(PODS, 2, 500)])
    metrics.config.read_refused(bool)
    assert shown(metrics) == (5, 1500, 0)
    assert metrics.render().count(b"\naddon_operator_kube_snapshot_objects{") == 1


def test_module_state_replaces_its_own_series_only() -> None:
    metrics = Metrics()
    metrics.modules.state("a", enabled=True, version="1")
    metrics.modules.maintenance("a", "NoResourceReconciliation")
    metrics.modules.state("b", enabled=True, version="")
    metrics.modules.state("a", enabled=False, version="2")
    found = {line: value for line, value in samples(metrics.render()).items() if "_mm_" in line}
    assert found == {
        "addon_operator_mm_module_info{critical=true,enabled=false,module=a}": 1,
        "addon_operator_mm_module_info{critical=true,enabled=true,module=b}": 1,
        "addon_operator_mm_module_enabled{module=a,version=2}": 0,
        "addon_operator_mm_module_enabled{module=b,version=}": 1,
    }
    metrics.modules.keep(["b"])
    left = samples(metrics.render())
    assert not [line for line in left if "module=a" in line]
    assert "addon_operator_mm_module_enabled{module=b,version=}" in left


def test_maintenance_of_a_module_ends_with_it_or_with_the_mode() -> None:
    metrics = Metrics()

    def shown() -> list[str]:
        return [line for line in samples(metrics.render()) if "mm_module_maintenance" in line]

    metrics.modules.maintenance("a", "NoResourceReconciliation")
    metrics.modules.state("a", enabled=True, version="")
    assert shown() == ["addon_operator_mm_module_maintenance{module=a,state=NoResourceReconciliation}"]
    metrics.modules.maintenance("a", "")
    assert shown() == []
    metrics.modules.maintenance("a", "NoResourceReconciliation")
    metrics.modules.state("a", enabled=False, version="")
    assert shown() == []


def test_a_held_module_without_a_directory_is_still_shown() -> None:
    metrics = Metrics()
    metrics.modules.held("gone", held=True)
    metrics.modules.keep([])
    assert samples(metrics.render())["addon_operator_module_held{module=gone}"] == 1
    metrics.modules.held("gone", held=False)
    assert "addon_operator_module_held{module=gone}" not in samples(metrics.render())


def test_a_module_without_a_directory_leaves_no_series_behind() -> None:
    metrics = Metrics()
    for module in ("gone", "stays"):
        metrics.modules.run_finished(module, "", duration_s=1)
        metrics.modules.run_failed(module)
        metrics.helm.operation_finished(module, "", "upgrade", duration_s=1)
        metrics.helm.object_absent(module, "ns/ConfigMap/a")
        metrics.hook_runs.bindings(module, "hook", 1)
        metrics.queues.task_waited(module=module, hook="hook", binding="b", queue="main", seconds=1)
    metrics.hook_runs.bindings(None, "hook", 1)
    metrics.queues.task_waited(module="", hook="hook", binding="b", queue="main", seconds=1)

    def of_modules() -> dict[str, float]:
        return {line: value for line, value in samples(metrics.render()).items() if "module=" in line}

    before = of_modules()
    metrics.modules.keep(["stays"])
    after = of_modules()
    assert after == {line: value for line, value in before.items() if "module=gone" not in line}
    assert len(before) - len(after) == len([line for line in after if "module=stays" in line])
