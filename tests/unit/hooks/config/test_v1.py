"""Version v1 of `--config`: settings, schedules, objects (contract.md 2.2)."""

from __future__ import annotations

import pytest

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.hooks.config.model import (
    Kubernetes,
    Schedule,
    Throttle,
)
from tests.unit.hooks.config.declared import kubernetes, parse, problems, v1


@pytest.mark.parametrize(
    ("settings", "timeout_s", "throttle"),
    [
        pytest.param({"executionMinInterval": "30s", "executionBurst": 2}, None, Throttle(30, 2), id="interval"),
        pytest.param({"executionMinPeriod": "1m30s", "executionBurst": 1}, None, Throttle(90, 1), id="older name"),
        pytest.param({"timeout": "1.5h"}, 5400, None, id="timeout alone"),
        pytest.param(
            {"timeout": "5s", "executionMinInterval": "250ms", "executionBurst": 1}, 5, Throttle(0.25, 1), id="all"
        ),
    ],
)
def test_settings(settings: JsonObject, timeout_s: float | None, throttle: Throttle | None) -> None:
    config = parse(v1(onStartup=1, settings=settings))
    assert (config.timeout_s, config.throttle) == (timeout_s, throttle)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param({}, ["executionMinInterval: is required", "executionBurst: is required"], id="empty"),
        pytest.param({"executionMinInterval": "1s"}, ["executionBurst: is required"], id="no burst"),
        pytest.param({"executionBurst": 1}, ["executionMinInterval: is required"], id="no interval"),
        pytest.param(
            {"executionMinInterval": "", "executionBurst": 1},
            ["executionMinInterval: must not be empty"],
            id="empty interval",
        ),
        *(
            pytest.param({"timeout": text}, ["timeout: must be a positive duration such as 90s or 1h30m"], id=text)
            for text in ("5", "0s", "-1s", "soon", "1d", "1.2.3s")
        ),
        pytest.param({"timeout": 5}, ["timeout: must be a string, not an integer"], id="number"),
    ],
)
def test_bad_settings(settings: JsonObject, expected: list[str]) -> None:
    assert problems(v1(onStartup=1, settings=settings)) == [f"settings.{problem}" for problem in expected]


def test_schedule_defaults() -> None:
    config = parse(v1(schedule=[{"crontab": "*/5 * * * *"}]))
    assert config.schedules == (Schedule("schedule", "*/5 * * * *", False, "main", (), ""),)


def test_schedule_in_full() -> None:
    config = parse(
        v1(
            schedule=[
                {
                    "name": "every", "crontab": "@every 1h", "allowFailure": True, "queue": "q",
                    "includeSnapshotsFrom": ["pods"], "group": "g",
                }
            ],
            kubernetes=[{"name": "pods", "kind": "pod"}],
        )
    )  # fmt: skip
    assert config.schedules == (Schedule("every", "@every 1h", True, "q", ("pods",), "g"),)


def test_kubernetes_defaults() -> None:
    config = parse(v1(kubernetes=[{"kind": "ds"}]))
    assert config.kubernetes == (Kubernetes("kubernetes", "ds"),)


def test_kubernetes_in_full() -> None:
    selector: JsonObject = {
        "matchLabels": {"a": "b"},
        "matchExpressions": [{"key": "tier", "operator": "In", "values": ["x"]}, {"key": "y", "operator": "Exists"}],
    }
    watch = kubernetes(
        name="n", apiVersion="apps/v1", kind="Deployment", watchEvent=["Added"], executeHookOnSynchronization=False,
        waitForSynchronization=False, keepFullObjectsInMemory=False, resynchronizationPeriod="5m",
        nameSelector={"matchNames": ["p0", "p1"]}, labelSelector=selector,
        fieldSelector={"matchExpressions": [
            {"field": "status.phase", "operator": "Equals", "value": "Pending"},
            {"field": "spec.nodeName", "operator": "!=", "value": ""},
        ]},
        namespace={"nameSelector": {"matchNames": ["ns"]}, "labelSelector": {"matchLabels": {"c": "d"}}},
        jqFilter=".metadata.labels", allowFailure=True, includeSnapshotsFrom=["n"], queue="q", group="",
    )  # fmt: skip
    assert watch == Kubernetes(
        name="n", kind="Deployment", api_version="apps/v1", events=("Added",), run_on_synchronization=False,
        wait_for_synchronization=False, keep_full_objects=False, names=("p0", "p1"),
        label_selector="a=b,tier in (x),y", field_selector="status.phase=Pending,spec.nodeName!=",
        namespaces=("ns",), namespace_labels="c=d", jq_filter=".metadata.labels",
        allow_failure=True, queue="q", include_snapshots_from=("n",), group="",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "events"),
    [
        pytest.param({}, ("Added", "Modified", "Deleted"), id="all"),
        pytest.param({"watchEvent": []}, (), id="none"),
        pytest.param({"executeHookOnEvent": []}, (), id="none, newer name"),
        pytest.param({"watchEvent": ["Added"], "executeHookOnEvent": ["Deleted"]}, ("Deleted",), id="second wins"),
        pytest.param({"watchEvent": ["Deleted", "Added", "Added"]}, ("Added", "Deleted"), id="repeated"),
    ],
)
def test_events(fields: JsonObject, events: tuple[str, ...]) -> None:
    assert kubernetes(**fields).events == events


@pytest.mark.parametrize(("queue", "waits"), [("main", True), ("own", False)])
def test_not_waiting_needs_a_queue_of_its_own(queue: str, waits: bool) -> None:
    assert kubernetes(queue=queue, waitForSynchronization=False).wait_for_synchronization is waits


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        pytest.param({"kind": ""}, "kind: must not be empty", id="no kind"),
        pytest.param({"apiVersion": "a/b/c"}, "apiVersion: must be version or group/version", id="api version"),
        pytest.param({"apiVersion": "/v1"}, "apiVersion: must be version or group/version", id="empty group"),
        pytest.param({"watchEvent": ["Changed"]}, "watchEvent[0]: must be one of Added, Modified, Deleted", id="event"),
        pytest.param({"watchEvent": "Added"}, "watchEvent: must be a list, not a string", id="event not a list"),
        pytest.param(
            {"executeHookOnSynchronization": "no"},
            "executeHookOnSynchronization: must be a boolean, not a string",
            id="flag",
        ),
        pytest.param({"includeSnapshotsFrom": []}, "includeSnapshotsFrom: must not be empty", id="no includes"),
        pytest.param(
            {"includeSnapshotsFrom": ["x"]}, "includeSnapshotsFrom: 'x' binding name not found", id="unknown include"
        ),
        pytest.param(
            {"includeSnapshotsFrom": [1]}, "includeSnapshotsFrom[0]: must be a string, not an integer", id="include"
        ),
    ],
)
def test_bad_kubernetes(fields: JsonObject, problem: str) -> None:
    assert problems(v1(kubernetes=[{"kind": "Pod", **fields}])) == [f"kubernetes[0].{problem}"]


@pytest.mark.parametrize("key", ["schedule", "kubernetes", "kubernetesValidating", "kubernetesMutating"])
def test_lists_are_not_empty(key: str) -> None:
    assert problems(v1(**{key: []})) == [f"{key}: must not be empty"]
