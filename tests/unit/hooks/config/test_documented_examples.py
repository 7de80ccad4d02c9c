"""One configuration for each example that authors of hooks find in the documents about shell hooks and module hooks."""

from __future__ import annotations

import json
import textwrap

import pytest

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.hooks.call import HookId, Scope
from addon_operator.hooks.config.model import HookConfig, Kubernetes, Lifecycle, LifecycleKind, Schedule, Throttle
from addon_operator.hooks.config.parser import parse_config


def parsed(text: str | JsonObject, scope: Scope = "global") -> HookConfig:
    printed = textwrap.dedent(text) if isinstance(text, str) else json.dumps(text)
    return parse_config(printed, scope=scope, hook=HookId("m" if scope == "module" else None, "hooks/x"))


def timed(
    crontab: str, name: str = "schedule", *, allow_failure: bool = False, include: tuple[str, ...] = ()
) -> Schedule:
    return Schedule(name, crontab, allow_failure, "main", include, "")


# --- shell hooks ----------------------------------------------------------------------------------------------------

CACHES: JsonObject = {
    "matchLabels": {"app": "shop", "part": "cache"},
    "matchExpressions": [{"key": "tier", "operator": "In", "values": ["memory"]}],
}
STAGES: JsonObject = {
    "matchLabels": {"team": "shop"},
    "matchExpressions": [{"key": "stage", "operator": "In", "values": ["live"]}],
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            {
                "configVersion": "v1",
                "onStartup": 7,
                "schedule": [{"crontab": "0 4 * * *"}, {"name": "weekly", "crontab": "0 5 * * 0"}],
                "kubernetes": [{"kind": "Service"}, {"name": "ingresses", "kind": "Ingress"}],
            },
            HookConfig(
                "v1",
                (Lifecycle("onStartup", 7),),
                (timed("0 4 * * *"), timed("0 5 * * 0", "weekly")),
                (Kubernetes("kubernetes", "Service"), Kubernetes("ingresses", "Ingress")),
            ),
            id="all bindings, JSON",
        ),
        pytest.param(
            """
            configVersion: v1
            onStartup: 7
            schedule:
            - {crontab: "0 4 * * *"}
            kubernetes:
            - {kind: Service}
            """,
            HookConfig(
                "v1", (Lifecycle("onStartup", 7),), (timed("0 4 * * *"),), (Kubernetes("kubernetes", "Service"),)
            ),
            id="all bindings, YAML",
        ),
        pytest.param(
            {"configVersion": "v1", "onStartup": 1},
            HookConfig("v1", (Lifecycle("onStartup", 1),)),
            id="start",
        ),
        pytest.param(
            {
                "configVersion": "v1",
                "schedule": [
                    {"crontab": "*/15 * * * *", "allowFailure": False},
                    {"name": "twice an hour", "crontab": "*/30 * * * *", "allowFailure": True},
                    {"name": "pulse", "crontab": "*/20 * * * * *", "allowFailure": True},
                ],
            },
            HookConfig(
                "v1",
                schedules=(
                    timed("*/15 * * * *"),
                    timed("*/30 * * * *", "twice an hour", allow_failure=True),
                    timed("*/20 * * * * *", "pulse", allow_failure=True),
                ),
            ),
            id="schedules of five and of six fields",
        ),
        pytest.param(
            {
                "configVersion": "v1",
                "kubernetes": [
                    {
                        "name": "follow the caches",
                        "apiVersion": "v1",
                        "kind": "Pod",
                        "watchEvent": ["Added", "Modified", "Deleted"],
                        "nameSelector": {"matchNames": ["cache-0", "cache-1"]},
                        "labelSelector": CACHES,
                        "fieldSelector": {
                            "matchExpressions": [{"field": "status.phase", "operator": "Equals", "value": "Failed"}]
                        },
                        "namespace": {
                            "nameSelector": {"matchNames": ["shop", "shop-test"]},
                            "labelSelector": STAGES,
                        },
                        "jqFilter": ".metadata.annotations",
                        "includeSnapshotsFrom": ["follow the caches", "all nodes"],
                        "allowFailure": True,
                        "queue": "caches",
                    },
                    {"name": "all nodes", "kind": "node"},
                ],
            },
            HookConfig(
                "v1",
                kubernetes=(
                    Kubernetes(
                        name="follow the caches",
                        kind="Pod",
                        api_version="v1",
                        names=("cache-0", "cache-1"),
                        label_selector="app=shop,part=cache,tier in (memory)",
                        field_selector="status.phase=Failed",
                        namespaces=("shop", "shop-test"),
                        namespace_labels="team=shop,stage in (live)",
                        jq_filter=".metadata.annotations",
                        allow_failure=True,
                        queue="caches",
                        include_snapshots_from=("follow the caches", "all nodes"),
                    ),
                    Kubernetes("all nodes", "node"),
                ),
            ),
            id="objects, every parameter",
        ),
        pytest.param(
            """
            configVersion: v1
            kubernetes:
            # only what changes about the web pods of one namespace
            - name: "web-pods"
              kind: pod
              watchEvent: ["Modified"]
              labelSelector:
                matchLabels:
                  app: "web"
              namespace:
                nameSelector: ["front"]
              jqFilter: .spec.nodeName
              allowFailure: true
              includeSnapshotsFrom: ["web-pods"]
            """,
            HookConfig(
                "v1",
                kubernetes=(
                    Kubernetes(
                        "web-pods",
                        "pod",
                        events=("Modified",),
                        label_selector="app=web",
                        namespaces=("front",),
                        jq_filter=".spec.nodeName",
                        allow_failure=True,
                        include_snapshots_from=("web-pods",),
                    ),
                ),
            ),
            id="changes of a field, with a snapshot of itself",
        ),
        pytest.param(
            {"configVersion": "v1", "kubernetes": [{"kind": "cm", "namespace": {"nameSelector": ["default"]}}]},
            HookConfig("v1", kubernetes=(Kubernetes("kubernetes", "cm", namespaces=("default",)),)),
            id="the namespace default",
        ),
        pytest.param(
            """
            configVersion: v1
            kubernetes:
            - kind: Pod
            """,
            HookConfig("v1", kubernetes=(Kubernetes("kubernetes", "Pod"),)),
            id="nothing but a kind",
        ),
        pytest.param(
            """
            configVersion: v1
            schedule:
            - name: backup
              crontab: "0 7 */4 * * *"
              allowFailure: true
            """,
            HookConfig("v1", schedules=(timed("0 7 */4 * * *", "backup", allow_failure=True),)),
            id="a named schedule with seconds",
        ),
        pytest.param(
            """
            configVersion: v1
            schedule:
            - name: report
              crontab: "0 7 */4 * * *"
              includeSnapshotsFrom: ["volumes"]
            kubernetes:
            - name: volumes
              kind: PersistentVolumeClaim
              jqFilter: '.spec.resources'
              includeSnapshotsFrom: ["volumes"]
            """,
            HookConfig(
                "v1",
                schedules=(timed("0 7 */4 * * *", "report", include=("volumes",)),),
                kubernetes=(
                    Kubernetes(
                        "volumes",
                        "PersistentVolumeClaim",
                        jq_filter=".spec.resources",
                        include_snapshots_from=("volumes",),
                    ),
                ),
            ),
            id="a schedule that sees objects",
        ),
    ],
)
def test_shell_hooks(text: str | JsonObject, expected: HookConfig) -> None:
    assert parsed(text) == expected
    assert parsed(text, "module") == expected


@pytest.mark.parametrize("kind", ["StatefulSet", "Statefulset", "statefulsets", "StatefulSets", "sts"])
def test_kinds_are_left_as_they_are_written(kind: str) -> None:
    config = parsed({"configVersion": "v1", "kubernetes": [{"kind": kind}]})
    assert config.kubernetes == (Kubernetes("kubernetes", kind),)


@pytest.mark.parametrize(
    ("operator", "text"),
    [
        ("Equals", "status.phase=Pending,spec.nodeName=n1"),
        ("=", "status.phase=Pending,spec.nodeName=n1"),
        ("==", "status.phase=Pending,spec.nodeName=n1"),
        ("NotEquals", "status.phase!=Pending,spec.nodeName!=n1"),
        ("!=", "status.phase!=Pending,spec.nodeName!=n1"),
    ],
)
def test_fields_may_be_compared_in_words_and_in_signs(operator: str, text: str) -> None:
    expressions: list[JsonObject] = [
        {"field": "status.phase", "operator": operator, "value": "Pending"},
        {"field": "spec.nodeName", "operator": operator, "value": "n1"},
    ]
    config = parsed(
        {"configVersion": "v1", "kubernetes": [{"kind": "Pod", "fieldSelector": {"matchExpressions": [*expressions]}}]}
    )
    assert config.kubernetes[0].field_selector == text


# --- hooks of modules and around all modules ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "kind"),
    [
        ("global", "onStartup"),
        ("global", "beforeAll"),
        ("global", "afterAll"),
        ("module", "onStartup"),
        ("module", "beforeHelm"),
        ("module", "afterHelm"),
        ("module", "afterDeleteHelm"),
    ],
)
def test_lifecycle(scope: Scope, kind: LifecycleKind) -> None:
    assert parsed(f"configVersion: v1\n{kind}: 15\n", scope) == HookConfig("v1", (Lifecycle(kind, 15),))


@pytest.mark.parametrize(("scope", "kind"), [("global", "beforeAll"), ("module", "beforeHelm")])
def test_a_lifecycle_hook_that_sees_objects(scope: Scope, kind: LifecycleKind) -> None:
    config = parsed(
        f"""
        configVersion: v1
        {kind}: 5
        kubernetes:
        - name: ingresses
          apiVersion: networking.k8s.io/v1
          kind: Ingress
          jqFilter: ".spec.rules"
        """,
        scope,
    )
    assert config == HookConfig(
        "v1",
        (Lifecycle(kind, 5),),
        kubernetes=(
            Kubernetes("ingresses", "Ingress", api_version="networking.k8s.io/v1", jq_filter=".spec.rules"),
        ),
    )  # fmt: skip


@pytest.mark.parametrize(("scope", "kind"), [("global", "beforeAll"), ("module", "beforeHelm")])
def test_what_is_run_and_waited_for_before_the_rest_goes_on(scope: Scope, kind: LifecycleKind) -> None:
    config = parsed(
        f"""
        configVersion: v1
        {kind}: 5
        kubernetes:
        - {{name: services, apiVersion: v1, kind: Service, jqFilter: .spec}}
        - name: endpoints
          apiVersion: v1
          kind: Endpoints
          jqFilter: .subsets
          queue: endpoints
          executeHookOnSynchronization: false
        - name: quotas
          apiVersion: v1
          kind: ResourceQuota
          jqFilter: .status
          queue: quotas
          waitForSynchronization: false
        - name: tokens
          apiVersion: v1
          kind: Secret
          jqFilter: .type
          queue: tokens
          executeHookOnSynchronization: false
          waitForSynchronization: false
        """,
        scope,
    )
    assert config.lifecycle == (Lifecycle(kind, 5),)
    found = [
        (one.name, one.kind, one.jq_filter, one.queue, one.run_on_synchronization, one.wait_for_synchronization)
        for one in config.kubernetes
    ]
    assert found == [
        ("services", "Service", ".spec", "main", True, True),
        ("endpoints", "Endpoints", ".subsets", "endpoints", False, True),
        ("quotas", "ResourceQuota", ".status", "quotas", True, False),
        ("tokens", "Secret", ".type", "tokens", False, False),
    ]
    assert {one.api_version for one in config.kubernetes} == {"v1"}


@pytest.mark.parametrize("scope", ["global", "module"])
@pytest.mark.parametrize("interval", ["executionMinPeriod", "executionMinInterval"])
def test_how_often_a_hook_runs(scope: Scope, interval: str) -> None:
    config = parsed(
        f"""
        configVersion: v1
        settings:
          {interval}: 4s
          executionBurst: 3
        kubernetes:
        - {{kind: Event}}
        """,
        scope,
    )
    assert config == HookConfig("v1", kubernetes=(Kubernetes("kubernetes", "Event"),), throttle=Throttle(4, 3))
