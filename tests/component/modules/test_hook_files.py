"""Webhooks and schedules of modules that go, or whose files change; in virtual time."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from addon_operator.documents.jsondoc import JsonObject
from tests.component.modules.configurations import (
    AFTER_DELETE,
    EVERY_5_MINUTES,
    IN_MAIN,
    SEE_PODS,
    STAGES,
    SYNCHRONIZATION,
    Play,
    Window,
    validating,
)
from tests.fakes.bench import Answer, Bench, hook_file, write_hook


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
