"""The single next step."""

from __future__ import annotations

import dataclasses

import pytest

from addon_operator.modules.phases import (
    AwaitSynchronization,
    DeleteFacts,
    DeleteStep,
    Deploy,
    Finish,
    LoadHooks,
    RunFacts,
    RunHooks,
    RunStep,
    StartMonitors,
    StartReactions,
    Uninstall,
    next_delete_step,
    next_run_step,
)

RESTING = RunFacts(hooks_loaded=True, started=True, watching=True, synchronized=True, reacting=True)


def walk(facts: RunFacts) -> list[RunStep]:
    """All steps of a run in which every step succeeds."""
    done = {"onStartup": "started", "beforeHelm": "before_helm", "afterHelm": "after_helm"}
    steps: list[RunStep] = []
    while not isinstance(step := next_run_step(facts), Finish):
        steps.append(step)
        match step:
            case LoadHooks():
                facts = dataclasses.replace(facts, hooks_loaded=True)
            case RunHooks(binding=binding):
                facts = dataclasses.replace(facts, **{done[binding]: True})
            case StartMonitors():
                facts = dataclasses.replace(facts, watching=True)
            case AwaitSynchronization():
                facts = dataclasses.replace(facts, synchronized=True)
            case StartReactions():
                facts = dataclasses.replace(facts, reacting=True)
            case Deploy():
                facts = dataclasses.replace(facts, helm=True)
    return steps


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param(
            RunFacts(),
            [
                LoadHooks(), RunHooks("onStartup"), StartMonitors(), AwaitSynchronization(), StartReactions(),
                RunHooks("beforeHelm"), Deploy(), RunHooks("afterHelm"),
            ],
            id="first run",
        ),
        pytest.param(
            RunFacts(hooks_loaded=True, started=True),
            [
                StartMonitors(), AwaitSynchronization(), StartReactions(),
                RunHooks("beforeHelm"), Deploy(), RunHooks("afterHelm"),
            ],
            id="onStartup is done",
        ),
        pytest.param(
            dataclasses.replace(RESTING, synchronized=False, reacting=False),
            [AwaitSynchronization(), StartReactions(), RunHooks("beforeHelm"), Deploy(), RunHooks("afterHelm")],
            id="hooks have not seen everything yet",
        ),
        pytest.param(
            dataclasses.replace(RESTING, synchronized=False),
            [AwaitSynchronization(), RunHooks("beforeHelm"), Deploy(), RunHooks("afterHelm")],
            id="a Synchronization came late",
        ),
        pytest.param(
            dataclasses.replace(RESTING, reacting=False),
            [StartReactions(), RunHooks("beforeHelm"), Deploy(), RunHooks("afterHelm")],
            id="a webhook could not be served",
        ),
        pytest.param(RESTING, [RunHooks("beforeHelm"), Deploy(), RunHooks("afterHelm")], id="later run"),
        pytest.param(
            dataclasses.replace(RESTING, has_release=False),
            [RunHooks("beforeHelm"), RunHooks("afterHelm")],
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
        pytest.param(DeleteFacts(), LoadHooks(), id="hooks first"),
        pytest.param(DeleteFacts(hooks_loaded=True, release=True), RunHooks("beforeDeleteHelm"), id="release exists"),
        pytest.param(DeleteFacts(hooks_loaded=True, release=True, before_delete=True), Uninstall(), id="uninstall"),
        pytest.param(DeleteFacts(hooks_loaded=True, before_delete=True), RunHooks("afterDeleteHelm"), id="gone"),
        pytest.param(DeleteFacts(hooks_loaded=True), RunHooks("afterDeleteHelm"), id="no release: no beforeDeleteHelm"),
        pytest.param(DeleteFacts(hooks_loaded=True, after_delete=True), Finish(), id="over"),
    ],
)
def test_a_module_delete(facts: DeleteFacts, expected: DeleteStep) -> None:
    assert next_delete_step(facts) == expected
