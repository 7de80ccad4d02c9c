"""The configuration that bindings become, read with the operator's reader (contract.md 2.2)."""

from __future__ import annotations

import json

import pytest

from addon_operator import sdk
from addon_operator.hooks.call import HookId, Scope
from addon_operator.hooks.config import model
from addon_operator.hooks.config.model import HookConfig, Lifecycle, Throttle
from addon_operator.hooks.config.parser import parse_config
from addon_operator.sdk.bindings import Binding

LABELS: sdk.JsonObject = {"matchLabels": {"a": "b"}}
RULE = sdk.Rule(resources=["pods"], api_groups=[""], api_versions=["v1"], operations=["CREATE"], scope="Namespaced")


def _read(*declared: Binding, settings: sdk.Settings | None = None, scope: Scope = "module") -> HookConfig:
    @sdk.hook(*declared, settings=settings)
    def main(ctx: sdk.Context) -> None: ...

    return parse_config(json.dumps(main.config()), scope=scope, hook=HookId(None, "hooks/x.py"))


MODULE = [
    sdk.OnStartup(0), sdk.BeforeHelm(1), sdk.AfterHelm(2), sdk.BeforeDeleteHelm(3), sdk.AfterDeleteHelm(4),
]  # fmt: skip


def test_points_of_a_module() -> None:
    assert _read(*MODULE).lifecycle == (
        Lifecycle("onStartup", 0),
        Lifecycle("beforeHelm", 1),
        Lifecycle("afterHelm", 2),
        Lifecycle("beforeDeleteHelm", 3),
        Lifecycle("afterDeleteHelm", 4),
    )


def test_points_of_global_hooks() -> None:
    config = _read(sdk.OnStartup(0), sdk.BeforeAll(1), sdk.AfterAll(-2), scope="global")
    assert config.lifecycle == (Lifecycle("onStartup", 0), Lifecycle("beforeAll", 1), Lifecycle("afterAll", -2))


def test_schedule() -> None:
    pods = sdk.Kubernetes("pods", kind="Pod")
    short = sdk.Schedule("short", "* * * * *")
    full = sdk.Schedule(
        "full", "@every 1h", queue="q", allow_failure=True, include_snapshots_from=["pods"], group="g"
    )  # fmt: skip
    assert _read(pods, short, full).schedules == (
        model.Schedule("short", "* * * * *", allow_failure=False, queue="main", include_snapshots_from=(), group=""),
        model.Schedule("full", "@every 1h", allow_failure=True, queue="q", include_snapshots_from=("pods",), group="g"),
    )


def test_kubernetes_with_defaults() -> None:
    assert _read(sdk.Kubernetes("pods", kind="Pod")).kubernetes == (model.Kubernetes("pods", "Pod"),)


def test_kubernetes_in_full() -> None:
    declared = sdk.Kubernetes(
        "pods",
        kind="Deployment",
        api_version="apps/v1",
        events=["Added", "Deleted"],
        run_on_synchronization=False,
        wait_for_synchronization=False,
        keep_full_objects=False,
        names=["x"],
        label_selector=LABELS,
        field_selector=[("status.phase", "!=", "Running")],
        namespaces=["n"],
        namespace_selector={"matchExpressions": [{"key": "k", "operator": "Exists"}]},
        jq_filter=".metadata",
        queue="q",
        allow_failure=True,
        include_snapshots_from=["pods"],
        group="g",
    )
    assert _read(declared).kubernetes == (
        model.Kubernetes(
            name="pods",
            kind="Deployment",
            api_version="apps/v1",
            events=("Added", "Deleted"),
            run_on_synchronization=False,
            wait_for_synchronization=False,
            keep_full_objects=False,
            names=("x",),
            label_selector="a=b",
            field_selector="status.phase!=Running",
            namespaces=("n",),
            namespace_labels="k",
            jq_filter=".metadata",
            allow_failure=True,
            queue="q",
            include_snapshots_from=("pods",),
            group="g",
        ),
    )


def test_kubernetes_for_the_snapshot_only() -> None:
    assert _read(sdk.Kubernetes("pods", kind="Pod", events=())).kubernetes[0].events == ()


@pytest.mark.parametrize(
    ("declared", "kind"),
    [(sdk.Validating, "kubernetesValidating"), (sdk.Mutating, "kubernetesMutating")],
    ids=["validating", "mutating"],
)
def test_admission(declared: type[sdk.Validating | sdk.Mutating], kind: model.AdmissionKind) -> None:
    short = declared("a.b.example", rules=[sdk.Rule(resources=["pods"])])
    full = declared(
        "c.b.example",
        rules=[RULE],
        failure_policy="Ignore",
        side_effects="NoneOnDryRun",
        timeout_s=5,
        match_conditions={"n": "true"},
        label_selector=LABELS,
        namespace_selector=LABELS,
        include_snapshots_from=["pods"],
        group="g",
    )
    first, second = _read(sdk.Kubernetes("pods", kind="Pod"), short, full).admissions
    assert first.rules == (model.AdmissionRule(("*",), ("*",), ("pods",), ("CREATE", "UPDATE"), "*"),)
    assert second == model.Admission(
        kind=kind,
        name="c.b.example",
        rules=(model.AdmissionRule(("",), ("v1",), ("pods",), ("CREATE",), "Namespaced"),),
        failure_policy="Ignore",
        side_effects="NoneOnDryRun",
        timeout_s=5,
        match_conditions=(("n", "true"),),
        label_selector=LABELS,
        namespace_labels=LABELS,
        include_snapshots_from=("pods",),
        group="g",
    )


def test_conversion() -> None:
    declared = sdk.Conversion("tabs", crd="tabs.x.io", steps=[("x.io/v1", "x.io/v2")])
    assert _read(declared).conversions == (
        model.Conversion("tabs", "tabs.x.io", (("x.io/v1", "x.io/v2"),), include_snapshots_from=(), group=""),
    )


def test_settings() -> None:
    config = _read(sdk.BeforeHelm(1), settings=sdk.Settings(timeout="90s", min_interval="1m", burst=3))
    assert (config.timeout_s, config.throttle) == (90, Throttle(60, 3))
    config = _read(sdk.BeforeHelm(1), settings=sdk.Settings(timeout="90s"))
    assert (config.timeout_s, config.throttle) == (90, None)


@pytest.mark.parametrize(
    ("declared", "message"),
    [((), "a hook needs a binding"), ((sdk.BeforeHelm(1), sdk.BeforeHelm(2)), "BeforeHelm is given twice")],
    ids=["none", "twice"],
)
def test_refused(declared: tuple[Binding, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _read(*declared)


def test_points_differ_by_class() -> None:
    assert sdk.BeforeHelm(1) == sdk.BeforeHelm(1)
    assert len({sdk.BeforeHelm(1), sdk.AfterHelm(1)}) == 2
    assert repr(sdk.BeforeHelm(1)) == "BeforeHelm(order=1)"
