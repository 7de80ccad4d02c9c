"""The single next step."""

from __future__ import annotations

import dataclasses

import pytest

from addon_operator.modules.phases import (
    DeleteFacts,
    DeleteStep,
    RunFacts,
    RunStep,
    next_delete_step,
    next_run_step,
)

RESTING = RunFacts(hooks_loaded=True, started=True, watching=True, synchronized=True, bound=True)


def walk(facts: RunFacts) -> list[RunStep]:
    """All steps of a run in which every step succeeds."""
    done = {
        "load-hooks": "hooks_loaded",
        "onStartup": "started",
        "start-monitors": "watching",
        "await-synchronization": "synchronized",
        "start-bindings": "bound",
        "beforeHelm": "before_helm",
        "deploy": "helm",
        "afterHelm": "after_helm",
    }
    steps: list[RunStep] = []
    while (step := next_run_step(facts)) != "finish":
        steps.append(step)
        facts = dataclasses.replace(facts, **{done[step]: True})
    return steps


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param(
            RunFacts(),
            [
                "load-hooks", "onStartup", "start-monitors", "await-synchronization", "start-bindings",
                "beforeHelm", "deploy", "afterHelm",
            ],
            id="first run",
        ),
        pytest.param(
            RunFacts(hooks_loaded=True, started=True),
            [
                "start-monitors", "await-synchronization", "start-bindings",
                "beforeHelm", "deploy", "afterHelm",
            ],
            id="onStartup is done",
        ),
        pytest.param(
            dataclasses.replace(RESTING, synchronized=False, bound=False),
            ["await-synchronization", "start-bindings", "beforeHelm", "deploy", "afterHelm"],
            id="hooks have not seen everything yet",
        ),
        pytest.param(
            dataclasses.replace(RESTING, synchronized=False),
            ["await-synchronization", "beforeHelm", "deploy", "afterHelm"],
            id="a Synchronization came late",
        ),
        pytest.param(
            dataclasses.replace(RESTING, bound=False),
            ["start-bindings", "beforeHelm", "deploy", "afterHelm"],
            id="a webhook could not be served",
        ),
        pytest.param(RESTING, ["beforeHelm", "deploy", "afterHelm"], id="later run"),
        pytest.param(
            dataclasses.replace(RESTING, has_release=False),
            ["beforeHelm", "afterHelm"],
            id="nothing for helm",
        ),
        pytest.param(RunFacts(wanted=False), [], id="disabled meanwhile"),
    ],
)  # fmt: skip
def test_a_module_run(facts: RunFacts, expected: list[RunStep]) -> None:
    assert walk(facts) == expected


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param(DeleteFacts(), "load-hooks", id="hooks first"),
        pytest.param(DeleteFacts(hooks_loaded=True, release=True), "beforeDeleteHelm", id="release exists"),
        pytest.param(DeleteFacts(hooks_loaded=True, release=True, before_delete=True), "uninstall", id="uninstall"),
        pytest.param(DeleteFacts(hooks_loaded=True, before_delete=True), "afterDeleteHelm", id="gone"),
        pytest.param(DeleteFacts(hooks_loaded=True), "afterDeleteHelm", id="no release: no beforeDeleteHelm"),
        pytest.param(DeleteFacts(hooks_loaded=True, after_delete=True), "finish", id="over"),
    ],
)
def test_a_module_delete(facts: DeleteFacts, expected: DeleteStep) -> None:
    assert next_delete_step(facts) == expected
