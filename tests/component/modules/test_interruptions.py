"""What comes in between while modules start, run and end; in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from addon_operator.dispatch.routing import startup_tasks
from addon_operator.tasks.task import Reason, RunModules, Task
from tests.component.modules.configurations import (
    AFTER_DELETE,
    ASIDE,
    BEFORE_HELM,
    EVERY_5_MINUTES,
    IN_MAIN,
    SEE_PODS,
    SEE_WIDGETS,
    STAGES,
    STARTUP,
    SYNCHRONIZATION,
    Play,
    Window,
)
from tests.fakes.bench import Answer, Bench


@pytest.mark.parametrize("config", [IN_MAIN, ASIDE], ids=["main", "aside"])
@pytest.mark.parametrize(
    ("edit", "first"),
    [({"global": "{a: 1}"}, Answer(fails=True)), ({"global": "{a: 1}"}, Answer(lasts_s=10)),
     ({"alpha": "{a: 1}"}, Answer(fails=True))],
    ids=["all again while it waits", "all again while it runs", "the module again while it waits"],
)  # fmt: skip
def test_a_converge_that_begins_again_finds_its_synchronizations(
    play: Play, config: str, edit: dict[str, str], first: Answer
) -> None:
    async def steps(bench: Bench) -> None:
        await asyncio.sleep(1)
        bench.edit(**edit)
        await bench.rest()
        assert bench.converged

    bench = play({"alpha/x": config}, steps, answers={"alpha/x": [Answer(), first]})
    tries = 2 if first.fails else 1
    assert bench.hooks.runs[: 2 + tries] == [STARTUP, *[SYNCHRONIZATION] * tries, BEFORE_HELM]


def test_a_start_waits_for_synchronizations_that_something_has_overtaken(play: Play) -> None:
    async def steps(bench: Bench) -> None:
        await asyncio.sleep(1)
        bench.edit(**{"global": "{a: 1}"})
        bench.queues.main.add_head(startup_tasks(bench.global_hooks)[-2:-1])
        await bench.rest()

    bench = play({"global/x": f"{SEE_PODS}\nbeforeAll: 1"}, steps, answers={"global/x": [Answer(fails=True)] * 3})
    seen, before = ("global/x", "pods: Synchronization"), ("global/x", "beforeAll")
    assert bench.hooks.runs[:5] == [seen] * 4 + [before]


@pytest.mark.parametrize(
    ("edit", "first"),
    [
        pytest.param({"alphaEnabled": "false"}, "ConvergeModules:main:StandBy", id="its module goes"),
        pytest.param({"betaEnabled": "false"}, "ConvergeModules:main:StandBy", id="another module goes"),
        pytest.param({"global": "{a: 1}"}, "ConvergeModules:main:StandBy", id="global values"),
        pytest.param({"beta": "{a: 1}"}, "ModuleRun:main:beta", id="values of another module"),
    ],
)
@pytest.mark.parametrize("waits", [False, True], ids=["nothing waits", "what the edit leads to waits already"])
def test_an_edit_takes_effect_although_a_hook_fails_for_ever(
    play: Play, edit: dict[str, str], first: str, waits: bool
) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        bench.hooks.failing.add("alpha/x")
        bench["pods"].change("Added", "a")
        await asyncio.sleep(7)
        if waits:
            bench.converge_again()
            bench.queues.main.add_tail([Task(RunModules(("beta",)), Reason.ABSENT_OBJECTS)])
        bench.since()
        bench.edit(**edit)
        await asyncio.sleep(1)
        did = bench.since()
        assert did[0].startswith("ApplyKubeConfigValues")
        assert did[1].startswith(first)
        assert [line for line in did if line.startswith(first)] == did[1:2]
        if edit.get("alphaEnabled"):
            await bench.rest()
            assert bench.registry.alive == ("beta",)

    play({"alpha/x": SEE_PODS, "beta/x": "beforeHelm: 1"}, steps)


@pytest.mark.parametrize("config", [IN_MAIN, ASIDE], ids=["main", "aside"])
@pytest.mark.parametrize("gate", ["held", "open"])
def test_what_could_not_be_deleted_begins_a_new_life_when_it_is_enabled_again(
    play: Play, config: str, gate: str
) -> None:
    async def steps(bench: Bench) -> None:
        await asyncio.sleep(100)
        bench.hooks.failing.add("alpha/x")
        bench.edit(alphaEnabled="false")
        await asyncio.sleep(20)
        assert bench.registry.state("alpha").error == "hook hooks/x of module alpha: run ended with exit code 1"
        bench.runs()
        bench["pods"].change("Added", "a")
        bench.hooks.failing.clear()
        bench.hooks.answers.clear()
        bench.edit(alphaEnabled=None)
        await bench.rest()
        bench["pods"].change("Added", "b")
        await bench.rest()

    endless = [Answer(), *[Answer(fails=True)] * 20]
    bench = play({"alpha/x": config}, steps, answers={"alpha/x": endless if gate == "held" else []})
    assert bench.hooks.runs == [STARTUP, SYNCHRONIZATION, BEFORE_HELM, ("alpha/x", "pods: Added b")]


def test_a_new_life_begins_with_on_startup_although_a_kind_comes_before_it(play: Play) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        bench.hooks.failing.add("alpha/x")
        bench.edit(alphaEnabled="false")
        await asyncio.sleep(20)
        bench.edit(alphaEnabled=None)
        await bench.tick()
        assert bench.registry.state("alpha").error == "hook hooks/x of module alpha: run ended with exit code 1"
        bench.runs()
        bench["widgets"].answer()
        await bench.tick()
        assert bench.runs() == []
        bench.hooks.failing.clear()
        await bench.rest()

    bench = play({"alpha/x": f"{STAGES}{SEE_WIDGETS}"}, steps)
    assert bench.hooks.runs == [STARTUP, ("alpha/x", "widgets: Synchronization"), BEFORE_HELM]


def test_a_module_that_was_disabled_for_a_moment_sees_what_happened_meanwhile(play: Play) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        lists = bench["pods"].lists
        await Window.opens(bench)
        bench["pods"].change("Added", "meanwhile")
        bench.runs()
        await Window.closes(bench)
        bench["pods"].change("Added", "after")
        await bench.rest()
        assert bench["pods"].lists == lists

    bench = play({"alpha/x": f"{EVERY_5_MINUTES}{IN_MAIN}", **Window.HOOKS}, steps)
    runs = [run for run in bench.hooks.runs if run[0] == "alpha/x"]
    assert runs[:2] == [SYNCHRONIZATION, BEFORE_HELM]
    assert ("alpha/x", "pods: Added after") in runs
    assert ("alpha/x", "often: Schedule") in runs
    assert STARTUP not in runs


@pytest.mark.parametrize("config", [IN_MAIN, ASIDE], ids=["main", "aside"])
def test_a_synchronization_that_waited_when_its_module_was_disabled_for_a_moment_comes(play: Play, config: str) -> None:
    async def steps(bench: Bench) -> None:
        await asyncio.sleep(1)
        await Window.opens(bench)
        bench.hooks.failing.discard("alpha/x")
        await Window.closes(bench)
        bench["pods"].change("Added", "after")
        await bench.rest()

    answers = {"alpha/x": [Answer(), *[Answer(fails=True)] * 2, Answer(lasts_s=50)]}
    bench = play({"alpha/x": config, **Window.HOOKS}, steps, answers=answers)
    runs = [run for run in bench.hooks.runs if run[0] == "alpha/x"]
    assert runs[-2:] == [BEFORE_HELM, ("alpha/x", "pods: Added after")]
    assert runs[-3] == SYNCHRONIZATION


def test_hooks_of_a_disabled_module_that_are_at_work_are_ended(play: Play) -> None:
    async def steps(bench: Bench) -> None:
        await asyncio.sleep(1)
        bench.edit(alphaEnabled="false")
        await asyncio.sleep(1)
        assert bench.registry.alive == ()
        bench.edit(alphaEnabled=None)
        await asyncio.sleep(1)
        assert bench.hooks.runs[-3:] == [STARTUP, SYNCHRONIZATION, BEFORE_HELM]
        await bench.rest()

    bench = play({"alpha/x": ASIDE}, steps, answers={"alpha/x": [Answer(), Answer(lasts_s=500)]})
    assert bench.hooks.runs == [STARTUP, SYNCHRONIZATION, AFTER_DELETE, STARTUP, SYNCHRONIZATION, BEFORE_HELM]


def test_what_is_listed_while_its_module_is_disabled_for_a_moment_is_shown_afterwards(play: Play) -> None:
    async def steps(bench: Bench) -> None:
        await asyncio.sleep(1)
        await bench.rest()
        await Window.opens(bench)
        bench["widgets"].answer()
        await asyncio.sleep(1)
        bench["widgets"].change("Added", "meanwhile")
        await asyncio.sleep(1)
        bench.runs()
        await Window.closes(bench)
        bench["widgets"].change("Added", "after")
        await bench.rest()

    bench = play({"alpha/x": f"{STAGES}{SEE_WIDGETS}", **Window.HOOKS}, steps)
    runs = [run for run in bench.hooks.runs if run[0] == "alpha/x"]
    assert runs == [("alpha/x", "widgets: Synchronization"), BEFORE_HELM, ("alpha/x", "widgets: Added after")]
