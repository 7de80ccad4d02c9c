"""What tasks say about themselves (contract.md 2.13, task text)."""

from __future__ import annotations

import dataclasses

import pytest

from addon_operator.hooks.call import HookId
from addon_operator.hooks.config.model import Kubernetes, Schedule
from addon_operator.hooks.context import Context, LifecycleContext, ObjectEvent, Synchronization, Tick
from addon_operator.tasks.task import (
    AwaitSynchronization,
    EnableMonitors,
    EnableSchedules,
    EnableWebhooks,
    Payload,
    Reason,
    RunHook,
    Task,
    describe,
    kind,
)

GLOBAL, OF_MODULE = HookId(None, "hooks/g.sh"), HookId("m", "hooks/m.sh")
PODS, LENIENT = Kubernetes("pods", "Pod"), Kubernetes("lenient", "Pod", allow_failure=True)
HOURLY = Schedule("hourly", "0 * * * *", allow_failure=True, queue="main", include_snapshots_from=(), group="")
UNNAMED = dataclasses.replace(HOURLY, name="schedule", allow_failure=False)


def event(binding: Kubernetes = PODS) -> ObjectEvent:
    return ObjectEvent(binding, "Added", b"{}", None, kind="Pod", namespace="ns", name="secret")


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (RunHook(GLOBAL, (LifecycleContext("beforeAll"),)), "GlobalHookRun:q:beforeAll:hooks/g.sh:Kubernetes"),
        (RunHook(OF_MODULE, (event(),)), "ModuleHookRun:q:kubernetes:hooks/m.sh:pods:Kubernetes"),
        (
            RunHook(OF_MODULE, (event(), event(), Tick(HOURLY))),
            "ModuleHookRun:q:kubernetes:hooks/m.sh:pods,hourly in 3 contexts:Kubernetes",
        ),
        (RunHook(GLOBAL, (Synchronization(PODS),)), "GlobalHookRun:q:kubernetes:hooks/g.sh:pods:Kubernetes"),
        (RunHook(GLOBAL, (Tick(UNNAMED),)), "GlobalHookRun:q:schedule:hooks/g.sh:Kubernetes"),
        (RunHook(GLOBAL, (Tick(UNNAMED),) * 2), "GlobalHookRun:q:schedule:hooks/g.sh in 2 contexts:Kubernetes"),
        (EnableSchedules(GLOBAL), "GlobalHookEnableScheduleBindings:q:hooks/g.sh:Kubernetes"),
        (EnableMonitors(GLOBAL), "GlobalHookEnableKubernetesBindings:q:hooks/g.sh:Kubernetes"),
        (EnableWebhooks(GLOBAL), "GlobalHookEnableWebhookBindings:q:hooks/g.sh:Kubernetes"),
        (AwaitSynchronization(), "GlobalHookWaitKubernetesSynchronization:q:Kubernetes"),
    ],
)
def test_text(payload: Payload, expected: str) -> None:
    assert describe(Task(payload, Reason.KUBERNETES), queue="q") == expected
    assert expected.startswith(kind(payload))


@pytest.mark.parametrize(
    ("contexts", "expected"),
    [
        pytest.param((LifecycleContext("beforeHelm"),), False, id="lifecycle"),
        pytest.param((event(),), False, id="strict"),
        pytest.param((event(LENIENT), Tick(HOURLY)), True, id="all lenient"),
        pytest.param((event(LENIENT), event()), False, id="one is strict"),
        pytest.param((Synchronization(LENIENT),), True, id="Synchronization"),
    ],
)
def test_a_failed_run_is_let_go_only_if_all_bindings_say_so(contexts: tuple[Context, ...], expected: bool) -> None:
    assert RunHook(GLOBAL, contexts).allows_failure is expected


def test_a_run_is_called_by_its_first_binding() -> None:
    run = RunHook(GLOBAL, (Synchronization(LENIENT), Synchronization(PODS)))
    assert (run.binding, run.synchronizes) == ("lenient", True)
    assert not RunHook(GLOBAL, (event(),)).synchronizes


def test_ids_tell_equal_tasks_apart() -> None:
    first, second = (Task(AwaitSynchronization(), Reason.OPERATOR_STARTUP) for _ in range(2))
    assert first.id < second.id
