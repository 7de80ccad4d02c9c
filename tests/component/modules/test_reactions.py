"""Everything between what happens and the run of a hook, put together; only the edges are fakes.

In virtual time. Modules of these tests have hooks only, nothing for Helm.
"""

from __future__ import annotations

import asyncio

import pytest

from addon_operator.dispatch.routing import startup_tasks
from addon_operator.documents.jsondoc import JsonObject
from tests.component.modules.configurations import SEE_PODS, SEE_WIDGETS, Play
from tests.fakes.bench import Answer, Bench, write_hook


def test_the_order_of_a_start(play: Play) -> None:
    """Contract.md 3.7, from the first task to the last."""

    async def steps(bench: Bench) -> None:
        assert [line.replace(":OperatorStartup", "") for line in await bench.rest()] == [
            "GlobalHookRun:main:onStartup:hook02",
            "GlobalHookRun:main:onStartup:hook03",
            "GlobalHookRun:main:onStartup:hook01",
            "GlobalHookEnableScheduleBindings:main:hook02",
            "GlobalHookEnableScheduleBindings:main:hook03",
            "GlobalHookEnableKubernetesBindings:main:hook01",
            "GlobalHookRun:main:kubernetes:hook01:pods",
            "GlobalHookEnableKubernetesBindings:main:hook03",
            "GlobalHookRun:main:kubernetes:hook03:nodes",
            "GlobalHookWaitKubernetesSynchronization:main",
            "ConvergeModules:main:StandBy",
            "GlobalHookRun:main:beforeAll:hook02",
            "GlobalHookRun:main:beforeAll:hook01",
            "ConvergeModules:main:WaitBeforeAll",
            "ModuleRun:main:alpha",
            "ModuleHookRun:main:kubernetes:hooks/hook01:services",
            "ModuleRun:main:alpha",
            "ConvergeModules:main:WaitDeleteAndRunModules",
            "GlobalHookRun:main:afterAll:hook03",
            "ConvergeModules:main:WaitAfterAll",
        ]

    bench = play(
        {
            "global/hook01": f"onStartup: 20\nbeforeAll: 10\n{SEE_PODS}\n",
            "global/hook02": "onStartup: 1\nbeforeAll: 1\nschedule: [{crontab: '0 * * * *'}]\n",
            "global/hook03": (
                "onStartup: 10\nafterAll: 1\nschedule: [{crontab: '0 * * * *'}]\n"
                "kubernetes: [{name: nodes, kind: Node, executeHookOnSynchronization: false}]\n"
            ),
            "alpha/hook01": (
                "onStartup: 1\nbeforeHelm: 1\nafterHelm: 1\nkubernetes: [{name: services, kind: Service}]\n"
            ),
        },
        steps,
    )
    assert bench.hooks.runs == [
        ("global/hook02", "onStartup"),
        ("global/hook03", "onStartup"),
        ("global/hook01", "onStartup"),
        ("global/hook01", "pods: Synchronization"),
        ("global/hook02", "beforeAll"),
        ("global/hook01", "beforeAll"),
        ("alpha/hook01", "onStartup"),
        ("alpha/hook01", "services: Synchronization"),
        ("alpha/hook01", "beforeHelm"),
        ("alpha/hook01", "afterHelm"),
        ("global/hook03", "afterAll"),
    ]


QUEUES = """
kubernetes:
- {name: here, kind: Pod}
- {name: silent, kind: Pod, queue: silent, executeHookOnSynchronization: false}
- {name: aside, kind: Pod, queue: aside}
- {name: parallel, kind: Pod, queue: parallel, waitForSynchronization: false}
"""


@pytest.mark.parametrize(
    ("scope", "binding"), [("global", "beforeAll"), ("alpha", "beforeHelm")], ids=["global", "module"]
)
def test_the_rest_waits_for_the_synchronizations_that_are_waited_for(play: Play, scope: str, binding: str) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()

    # The runs take their time in the order: here (main), then aside and parallel side by side.
    answers = {f"{scope}/x": [Answer(lasts_s=1), Answer(lasts_s=5), Answer(lasts_s=50)]}
    bench = play({f"{scope}/x": f"{binding}: 1\n{QUEUES}"}, steps, answers=answers)
    shown = [what for _, what in bench.hooks.runs]
    assert sorted(shown[:3]) == [f"{name}: Synchronization" for name in ("aside", "here", "parallel")]
    assert shown[3:] == [binding]


def test_what_a_synchronization_is_not_shown_follows_as_events(play: Play) -> None:
    async def steps(bench: Bench) -> None:
        await asyncio.sleep(1)
        assert bench.hooks.runs == [("alpha/x", "pods: Synchronization")]
        bench["pods"].change("Added", "a")
        bench["pods"].change("Deleted", "b")
        await bench.rest()

    bench = play(
        {"alpha/x": SEE_PODS},
        steps,
        answers={"alpha/x": [Answer(lasts_s=5)]},
        prepare=lambda bench: bench.kind("Pod").change("Added", "b"),
    )
    assert bench.hooks.runs[1:] == [("alpha/x", "pods: Added a, pods: Deleted b")]


def test_a_failing_synchronization_is_tried_again_and_holds_its_events(play: Play) -> None:
    async def steps(bench: Bench) -> None:
        await asyncio.sleep(1)
        bench["pods"].change("Added", "a")
        await bench.rest()

    bench = play({"alpha/x": SEE_PODS}, steps, answers={"alpha/x": [Answer(fails=True)]})
    assert bench.hooks.runs == [
        ("alpha/x", "pods: Synchronization"), ("alpha/x", "pods: Synchronization"), ("alpha/x", "pods: Added a"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("hook", "path", "expected"),
    [
        pytest.param("alpha/x", "/alpha/seen", "ModuleRun:main:alpha:Kubernetes-Change-ModuleValues", id="module"),
        pytest.param(
            "global/x", "/global/seen", "ConvergeModules:main:StandBy:Kubernetes-Change-GlobalValues", id="global"
        ),
        pytest.param(
            "global/x",
            "/alphaEnabled",
            "ConvergeModules:main:StandBy:ReloadAll-After-GlobalHookDynamicUpdate",
            id="global, enable flag",
        ),
    ],
)
def test_values_that_a_reaction_changes_are_brought_to_the_cluster(
    play: Play, hook: str, path: str, expected: str
) -> None:
    change: JsonObject = {"op": "add", "path": path, "value": False}

    async def steps(bench: Bench) -> None:
        await bench.rest()
        for name in ("a", "b"):  # the second run changes nothing
            bench["pods"].change("Added", name)
            await asyncio.sleep(30)
        assert [line for line in await bench.rest() if "Change" in line or "Dynamic" in line][:1] == [expected]

    answers = {hook: [Answer(), Answer((change,)), Answer((change,))]}
    bench = play({hook: SEE_PODS, "alpha/other": "beforeHelm: 1"}, steps, answers=answers)
    assert len([run for run in bench.hooks.runs if run[0] == hook]) == 3
    runs_of_the_module = [run for run in bench.hooks.runs if run == ("alpha/other", "beforeHelm")]
    assert len(runs_of_the_module) == (1 if path == "/alphaEnabled" else 2)


def test_values_that_a_synchronization_changes_lead_to_nothing(play: Play) -> None:
    change: JsonObject = {"op": "add", "path": "/alpha/seen", "value": 1}

    async def steps(bench: Bench) -> None:
        assert not [line for line in await bench.rest() if "Change" in line]

    bench = play({"alpha/x": f"{SEE_PODS}\nbeforeHelm: 1"}, steps, answers={"alpha/x": [Answer((change,))]})
    assert bench.store.effective("alpha") == {"seen": 1}


def test_a_late_synchronization_does_not_wait_behind_the_run_that_waits_for_it(play: Play) -> None:
    async def steps(bench: Bench) -> None:
        await asyncio.sleep(1)
        bench["pods"].answer()
        assert [line for line in await bench.rest() if "Converge" in line][-1].startswith("ConvergeModules:main:WaitAf")
        bench.queues.main.add_tail(startup_tasks(bench.global_hooks))
        bench["widgets"].answer()
        await bench.rest()
        bench["widgets"].change("Added", "w")
        await bench.rest()

    hooks = {"alpha/x": f"{SEE_PODS}\nbeforeHelm: 1", "alpha/y": SEE_WIDGETS}
    bench = play(hooks, steps, lists_at_once=False)
    assert bench.hooks.runs == [
        ("alpha/x", "pods: Synchronization"),
        ("alpha/x", "beforeHelm"),
        ("alpha/y", "widgets: Synchronization"),
        ("alpha/x", "beforeHelm"),
        ("alpha/y", "widgets: Added w"),
    ]


def test_ticks_before_the_end_of_the_first_converge_do_not_count(play: Play) -> None:
    async def steps(bench: Bench) -> None:
        await asyncio.sleep(100)
        assert bench.hooks.runs == [("global/x", "beforeAll")], "it ticks after 60 s"
        assert bench.converged
        await asyncio.sleep(60)

    hooks = {"global/x": "beforeAll: 1\nschedule: [{crontab: '* * * * *'}]"}
    bench = play(hooks, steps, answers={"global/x": [Answer(lasts_s=90)]})
    assert bench.hooks.runs == [("global/x", "beforeAll"), ("global/x", "schedule: Schedule")]


def test_a_hook_that_must_not_run_often_gets_what_has_gathered(play: Play) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        for name in ("a", "b", "c"):
            bench["pods"].change("Added", name)
            await asyncio.sleep(1)
        await bench.rest()

    throttled = f"settings: {{executionMinInterval: 30s, executionBurst: 1}}\n{SEE_PODS}"
    bench = play({"alpha/x": throttled}, steps)
    assert bench.hooks.runs[1:] == [("alpha/x", "pods: Added a"), ("alpha/x", "pods: Added b, pods: Added c")]


def test_a_burst_is_told_in_portions_and_nothing_of_it_is_lost(play: Play) -> None:
    names = [f"p{number}" for number in range(2_500)]

    async def steps(bench: Bench) -> None:
        await bench.rest()
        for name in names:
            bench["pods"].change("Added", name)
        await bench.rest()

    bench = play({"alpha/x": SEE_PODS}, steps)
    portions = [what.split(", ") for _, what in bench.hooks.runs[1:]]
    assert [len(portion) for portion in portions] == [1_000, 1_000, 500]
    assert [text for portion in portions for text in portion] == [f"pods: Added {name}" for name in names]


def test_a_disabled_module_ends_what_its_hooks_react_to(play: Play) -> None:
    off: JsonObject = {"op": "add", "path": "/alphaEnabled", "value": False}

    async def steps(bench: Bench) -> None:
        await bench.rest()
        bench["pods"].change("Added", "a")
        assert "ModuleDelete:main:alpha:ReloadAll-After-GlobalHookDynamicUpdate" in await bench.rest()
        assert bench["services"].stopped
        bench["services"].change("Added", "s")
        await bench.rest()

    hooks = {"global/x": SEE_PODS, "alpha/y": "kubernetes: [{name: services, kind: Service}]\nafterDeleteHelm: 1"}
    bench = play(hooks, steps, answers={"global/x": [Answer(), Answer((off,))]})
    assert bench.hooks.runs[2:] == [("global/x", "pods: Added a"), ("alpha/y", "afterDeleteHelm")]


def test_a_hook_whose_file_changes_begins_anew(play: Play) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        former = bench["pods"]
        write_hook(bench.root, "alpha/x", "kubernetes: [{name: nodes, kind: Node}]\nbeforeHelm: 1")
        bench.queues.main.add_tail(startup_tasks(bench.global_hooks))
        await bench.rest()
        assert former.stopped
        bench["nodes"].change("Added", "n")
        await bench.rest()

    bench = play({"alpha/x": SEE_PODS}, steps)
    assert bench.hooks.runs == [
        ("alpha/x", "pods: Synchronization"),
        ("alpha/x", "nodes: Synchronization"),
        ("alpha/x", "beforeHelm"),
        ("alpha/x", "nodes: Added n"),
    ]


def test_another_limit_of_runs_takes_effect(play: Play) -> None:
    def limited(interval: str) -> str:
        return f"settings: {{executionMinInterval: {interval}, executionBurst: 1}}\n{SEE_PODS}"

    async def burst(bench: Bench) -> int:
        bench.runs()
        for number in range(30):
            bench["pods"].change("Added", f"o{number}")
            await asyncio.sleep(1)
        await bench.rest()
        for number in range(30):
            bench["pods"].change("Deleted", f"o{number}")
        await bench.rest()
        return len(bench.runs()) - 1

    async def steps(bench: Bench) -> None:
        await bench.rest()
        assert await burst(bench) == 2
        write_hook(bench.root, "alpha/x", limited("5s"))
        bench.converge_again()
        await bench.rest()
        assert await burst(bench) == 7

    play({"alpha/x": limited("60s")}, steps)


def test_the_same_flag_written_again_is_no_change(play: Play) -> None:
    on: JsonObject = {"op": "add", "path": "/alphaEnabled", "value": True}

    async def steps(bench: Bench) -> None:
        await bench.rest()
        bench["pods"].change("Added", "a")
        assert [line for line in await bench.rest() if "Converge" in line]
        bench["pods"].change("Added", "b")
        assert [line for line in await bench.rest() if "Converge" in line] == []
        assert bench.config_map == {"alphaEnabled": "true"}

    answers = {"global/x": [Answer(), Answer(config=(on,)), Answer(config=(on,))]}
    bench = play({"global/x": SEE_PODS, "alpha/x": "beforeHelm: 1"}, steps, answers=answers)
    assert ("global/x", "pods: Added b") in bench.hooks.runs
