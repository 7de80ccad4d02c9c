"""Everything between what happens and the run of a hook, put together; only the edges are fakes.

In virtual time. Modules of these tests have hooks only, nothing for Helm.
"""

from __future__ import annotations

import asyncio
import functools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from addon_operator.dispatch.routing import startup_tasks
from addon_operator.documents.jsondoc import JsonObject
from addon_operator.tasks.task import Reason, RunModules, Task
from tests.fakes import bench as benches
from tests.fakes.bench import Answer, Bench, hook_file, write_hook

Play = Callable[..., Bench]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Starts an operator with these hooks (`global/name` or `module/name` -> configuration), and does some steps."""
    return functools.partial(benches.play, tmp_path)


SEE_PODS = "kubernetes: [{name: pods, kind: Pod}]"
# A kind that no definition brings before a test says so.
SEE_WIDGETS = "kubernetes: [{name: widgets, kind: Widget}]"


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


# --- what comes in between ------------------------------------------------------------------------------------------

STAGES = "onStartup: 1\nbeforeHelm: 1\nafterDeleteHelm: 1\n"
IN_MAIN, ASIDE = f"{STAGES}{SEE_PODS}", f"{STAGES}kubernetes: [{{name: pods, kind: Pod, queue: aside}}]"
EVERY_5_MINUTES = "schedule: [{name: often, crontab: '*/5 * * * *'}]\n"
STARTUP, SYNCHRONIZATION, BEFORE_HELM, AFTER_DELETE = (
    ("alpha/x", what) for what in ("onStartup", "pods: Synchronization", "beforeHelm", "afterDeleteHelm")
)


def validating(*names: str) -> str:
    rule = "rules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]"
    return "kubernetesValidating:\n" + "".join(f"- {{name: {name}.example.com, {rule}}}\n" for name in names)


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


class Window:
    """Two modules are disabled; the delete of `beta` fails, so that of `alpha` does not begin before it is back."""

    HOOKS = {"beta/x": "afterDeleteHelm: 1"}  # noqa: RUF012 -- never changed

    @staticmethod
    async def opens(bench: Bench) -> None:
        bench.hooks.failing.add("beta/x")
        bench.edit(alphaEnabled="false", betaEnabled="false")
        await asyncio.sleep(60)
        assert not bench.registry.is_enabled("alpha")

    @staticmethod
    async def closes(bench: Bench) -> None:
        bench.edit(alphaEnabled=None)
        await asyncio.sleep(60)
        bench.hooks.failing.clear()
        assert not [line for line in await bench.rest() if line.startswith("ModuleDelete:main:alpha")]


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


# --- webhooks and schedules of modules that go, or whose files change -----------------------------------------------


def test_webhooks_are_answered_until_they_are_withdrawn(play: Play) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        hook = bench.hook("alpha/x").id
        await Window.opens(bench)
        assert bench.webhooks() == ["gate.example.com"]
        assert await bench.ask("alpha/x")
        bench.hooks.failing.clear()
        await bench.rest()
        assert bench.webhooks() == []
        assert bench.registry.find_hook(hook) is None

    play({"alpha/x": f"{STAGES}{validating('gate')}", **Window.HOOKS}, steps)


@pytest.mark.parametrize("step", ["monitors", "webhooks"])
def test_a_module_whose_first_run_never_ended_is_deleted(play: Play, step: str) -> None:
    async def steps(bench: Bench) -> None:
        await asyncio.sleep(100)
        state = bench.registry.state("alpha")
        assert ("not listed" if step == "monitors" else "cannot be registered") in (state.error or "")
        # Part of what was refused is registered for some time.
        bench.gate.unwritable.clear()
        bench.edit(alphaEnabled="false")
        bench.since()
        assert "ModuleDelete:main:alpha:ReloadAll-After-KubeConfigChange" in await bench.rest()
        assert bench["pods"].stopped
        assert bench.registry.alive == ()
        assert bench.webhooks() == []
        bench.runs()
        await bench.rest()

    admissions = validating("gate") + validating("change").replace("Validating", "Mutating")
    bench = play(
        {"alpha/x": f"{EVERY_5_MINUTES}{SEE_PODS}\n{admissions}"},
        steps,
        lists_at_once=step == "webhooks",
        prepare=lambda bench: bench.gate.unwritable.add("mutatingwebhookconfigurations"),
    )
    assert bench.hooks.runs == []


def test_a_broken_hook_does_not_keep_its_module_from_being_deleted(play: Play) -> None:
    """Whoever is held up by a broken hook switches its module off."""
    hooks = {"alpha/x": f"{EVERY_5_MINUTES}{IN_MAIN}\n{validating('gate')}", "alpha/y": "afterDeleteHelm: 1"}

    async def steps(bench: Bench) -> None:
        await bench.rest()
        bench.runs()
        write_hook(bench.root, "alpha/x", "nonsense: [")
        bench.edit(alphaEnabled="false")
        await bench.rest()
        assert bench.webhooks() == []
        assert bench.registry.alive == ()
        assert bench["pods"].stopped
        bench["pods"].change("Added", "a")
        await asyncio.sleep(900)

    assert play(hooks, steps).hooks.runs == [("alpha/y", "afterDeleteHelm")]


def test_a_hook_that_cannot_be_asked_once_still_cleans_up(play: Play) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        bench.runs()
        write_hook(bench.root, "alpha/x", "nonsense: [")
        bench.edit(alphaEnabled="false")
        await asyncio.sleep(2)
        assert "hooks/x" in (bench.registry.state("alpha").error or "")
        write_hook(bench.root, "alpha/x", "afterDeleteHelm: 1")
        await bench.rest()
        assert bench.registry.alive == ()

    assert play({"alpha/x": "afterDeleteHelm: 1"}, steps).hooks.runs == [AFTER_DELETE]


def test_webhooks_of_changed_files_are_served_until_others_take_their_place(play: Play) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        former = ["old.example.com", "gone.example.com", "dropped.example.com"]
        assert bench.webhooks() == former
        write_hook(bench.root, "alpha/x", f"{SEE_PODS}\n{validating('new', 'more')}")
        hook_file(bench.root, "alpha/y").unlink()
        write_hook(bench.root, "alpha/z", "beforeHelm: 1\n")
        bench.hooks.failing.add("alpha/x")
        bench.converge_again()
        await asyncio.sleep(100)
        assert bench.webhooks() == former
        bench.hooks.failing.clear()
        await bench.rest()
        assert bench.webhooks() == ["new.example.com", "more.example.com"]

    play({"alpha/x": validating("old"), "alpha/y": validating("gone"), "alpha/z": validating("dropped")}, steps)


CRD, STEP = "widgets.example.com", "{fromVersion: v1, toVersion: v2}"
CONVERTING = f"kubernetesCustomResourceConversion: [{{name: c, crdName: {CRD}, conversions: [{STEP}]}}]"


def define_widgets(bench: Bench) -> None:
    bench.kind("Widget").define("v1", "v2")


@pytest.mark.parametrize("hook", ["alpha/x", "global/x"], ids=["module", "global"])
def test_a_hook_converts_what_it_is_about_to_list_but_admits_nothing_before_it_has_seen_it(
    play: Play, hook: str
) -> None:
    async def steps(bench: Bench) -> None:
        await asyncio.sleep(100)
        assert bench.webhooks() == [CRD]
        bench["pods"].answer()
        await bench.rest()
        assert bench.webhooks() == ["gate.example.com", CRD]

    hooks = {hook: f"{SEE_PODS}\n{CONVERTING}\n{validating('gate')}", "alpha/y": "beforeHelm: 1"}
    play(hooks, steps, lists_at_once=False, prepare=define_widgets)


def test_a_changed_file_admits_as_before_until_its_hook_has_seen_what_exists(play: Play) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        write_hook(bench.root, "alpha/x", f"{SEE_PODS}\n{CONVERTING}\n{validating('new')}")
        bench.hooks.failing.add("alpha/x")
        bench.converge_again()
        await asyncio.sleep(100)
        assert bench.webhooks() == ["old.example.com", CRD]
        bench.hooks.failing.clear()
        await bench.rest()
        assert bench.webhooks() == ["new.example.com", CRD]

    play({"alpha/x": validating("old")}, steps, prepare=define_widgets)


@pytest.mark.parametrize(
    ("config", "name"), [(validating("gate"), "gate.example.com"), (CONVERTING, CRD)], ids=["admits", "converts"]
)
def test_a_hook_whose_file_gets_another_name_takes_over_its_webhooks(play: Play, config: str, name: str) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        file = hook_file(bench.root, "alpha/x")
        file.rename(file.with_name("y"))
        bench.converge_again()
        await bench.rest()
        assert bench.webhooks() == [name]
        bench.runs()
        if name != CRD:
            await bench.ask("alpha/y")
            assert bench.runs() == [("alpha/y", f"{name}: Validating")]

    play({"alpha/x": f"{SEE_PODS}\n{config}"}, steps, prepare=define_widgets)


@pytest.mark.parametrize("queue", ["main", "side"])
@pytest.mark.parametrize("what", ["the file", "the module", "the file for a moment"])
def test_a_hook_whose_file_goes_away_holds_up_nobody_and_loses_nothing(play: Play, queue: str, what: str) -> None:
    config = f"kubernetes: [{{name: pods, kind: Pod, queue: {queue}}}]\n{validating('gate')}"

    async def steps(bench: Bench) -> None:
        await bench.rest()
        file = hook_file(bench.root, "alpha/x")
        if what == "the module":
            shutil.rmtree(file.parents[1])
        else:
            file.unlink()
        bench.runs()
        bench.hooks.answers["global/x"] = [Answer(lasts_s=30)]
        bench["pods"].change("Added", "a")
        await asyncio.sleep(10)
        if what == "the file for a moment":
            write_hook(bench.root, "alpha/x", config)
        await bench.rest()
        runs = [run for run in bench.runs() if run[0] == "alpha/x"]
        if what == "the file for a moment":
            assert runs == [SYNCHRONIZATION]
            assert bench.webhooks() == ["gate.example.com"]
        else:
            assert runs == []
            assert bench["pods"].stopped
            assert bench.webhooks() == []

    play({"alpha/x": config, "alpha/y": "beforeHelm: 1", "global/x": "beforeAll: 1"}, steps)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        pytest.param(SEE_PODS, [], id="main: goes on without"),
        pytest.param("kubernetes: [{name: pods, kind: Pod, queue: aside}]", ["a"], id="aside: waits for its file"),
    ],
)
def test_a_global_hook_whose_file_goes_away_holds_up_nobody_else(play: Play, config: str, told: list[str]) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        (file := hook_file(bench.root, "global/x")).rename(file.with_suffix(".away"))
        bench["pods"].change("Added", "a")
        await asyncio.sleep(30)
        bench.edit(alpha="{a: 1}")
        await asyncio.sleep(30)
        assert ("alpha/y", "beforeHelm") in bench.runs()
        file.with_suffix(".away").rename(file)
        await bench.rest()

    runs = play({"global/x": config, "alpha/y": "beforeHelm: 1"}, steps).hooks.runs
    assert [text for hook, text in runs if hook == "global/x"][-1:] == [f"pods: Added {name}" for name in told]


def test_monitors_of_a_changed_file_stop_although_they_never_listed_anything(play: Play) -> None:
    async def steps(bench: Bench) -> None:
        await asyncio.sleep(61)
        former = bench["pods"]
        write_hook(bench.root, "alpha/x", "kubernetes: [{name: nodes, kind: Node}]")
        await asyncio.sleep(30)
        assert former.stopped
        bench["nodes"].answer()
        await bench.rest()

    bench = play({"alpha/x": SEE_PODS}, steps, lists_at_once=False)
    assert bench.hooks.runs == [("alpha/x", "nodes: Synchronization")]


# --- neighbours -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [Answer(breaks=True), Answer(fails=True)], ids=["a bug", "a failed hook"])
def test_a_neighbour_in_trouble_does_not_cost_a_module_its_synchronization(play: Play, wrong: Answer) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        assert bench.converged

    hooks = {"alpha/x": f"{SEE_PODS}\nbeforeHelm: 1", "beta/x": "beforeHelm: 1"}
    bench = play(hooks, steps, answers={"beta/x": [wrong] * 3})
    assert [run for run in bench.hooks.runs if run[0] == "alpha/x"] == [SYNCHRONIZATION, BEFORE_HELM]


SEE_PORTS = "kubernetes: [{name: pods, kind: Pod, jqFilter: '.spec.ports[]'}]"
CANNOT_LIST = "kubernetes[0]: missing permission: verb list, watch on resource pods"
CANNOT_FILTER = "kubernetes[0]: jqFilter fails on default/a: "


@pytest.mark.parametrize(
    ("config", "reason", "holds"),
    [
        pytest.param(f"{SEE_PODS}\nbeforeHelm: 1", CANNOT_LIST, True, id="works with snapshots"),
        pytest.param(f"{SEE_PODS}\nafterDeleteHelm: 1", CANNOT_LIST, True, id="works with snapshots at the end"),
        pytest.param(f"{SEE_PODS}\nonStartup: 1", CANNOT_LIST, False, id="only reacts"),
        pytest.param(f"{SEE_PORTS}\nbeforeHelm: 1", CANNOT_FILTER, True, id="works with filtered snapshots"),
        pytest.param(f"{SEE_PORTS}\nonStartup: 1", CANNOT_FILTER, False, id="only reacts, filters"),
    ],
)
def test_a_binding_that_cannot_watch_holds_up_those_who_would_take_nothing_for_the_truth(
    play: Play, config: str, reason: str, holds: bool
) -> None:
    async def steps(bench: Bench) -> None:
        await asyncio.sleep(100)
        assert bench.converged is not holds
        assert (bench.registry.state("alpha").error is not None) is holds
        [trouble] = bench.monitors.problems()
        assert trouble.startswith(f"hook hooks/x of module alpha, binding pods, {reason}")
        assert bench.registry.state("alpha").error == (trouble if holds else None)
        bench["pods"].answer()
        bench["pods"].change("Modified", "a", spec={"ports": [80]})
        await bench.rest()
        assert bench.converged

    def prepare(bench: Bench) -> None:
        bench.kind("Pod").change("Added", "a")
        if reason == CANNOT_LIST:
            bench.kind("Pod").refuse("User cannot list")

    assert SYNCHRONIZATION in play({"alpha/x": config}, steps, prepare=prepare).hooks.runs


@pytest.mark.parametrize("config", [f"{SEE_WIDGETS}\nbeforeHelm: 1", SEE_WIDGETS], ids=["snapshots", "only reacts"])
def test_a_kind_that_does_not_exist_holds_up_nobody(play: Play, config: str) -> None:
    async def steps(bench: Bench) -> None:
        await asyncio.sleep(100)
        assert bench.converged
        assert bench.registry.state("alpha").error is None
        [trouble] = bench.monitors.problems()
        assert "the API server does not serve the kind Widget" in trouble
        bench["widgets"].answer()
        await bench.rest()

    assert ("alpha/x", "widgets: Synchronization") in play({"alpha/x": config}, steps).hooks.runs


# --- what is changed while hooks are at work ------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("hook", "path", "expected"),
    [
        pytest.param("alpha/x", "/alpha/seen", "ModuleRun:main:alpha:Kubernetes-Change-ModuleValues", id="module"),
        pytest.param(
            "global/x", "/global/seen", "ConvergeModules:main:StandBy:Kubernetes-Change-GlobalValues", id="global"
        ),
    ],
)
def test_values_that_change_when_the_api_server_asks_are_brought_to_the_cluster(
    play: Play, hook: str, path: str, expected: str
) -> None:
    change: JsonObject = {"op": "add", "path": path, "value": 1}

    async def steps(bench: Bench) -> None:
        await bench.rest()
        for follows in ([expected], []):
            assert await bench.ask(hook)
            assert (await bench.rest())[:1] == follows

    answers = {hook: [Answer((change,)), Answer((change,))]}
    play({hook: validating("gate"), "alpha/y": "beforeHelm: 1"}, steps, answers=answers)


def test_a_webhook_that_is_refused_does_not_hold_the_first_converge(play: Play) -> None:
    async def steps(bench: Bench) -> None:
        await asyncio.sleep(100)
        assert bench.converged
        assert not bench.queues.main.tasks
        bench.gate.unwritable.clear()
        await bench.rest()
        assert bench.webhooks() == ["gate.example.com"]

    play(
        {"global/x": validating("gate"), "alpha/x": "beforeHelm: 1"},
        steps,
        prepare=lambda bench: bench.gate.unwritable.add("validatingwebhookconfigurations"),
    )
