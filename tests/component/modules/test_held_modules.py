"""What was installed stays while what enabled it is missing; in virtual time."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from addon_operator.errors import InputError
from addon_operator.modules.registry import ModulePhase
from addon_operator.values.layers import EnabledBy
from tests.fakes.bench import Answer, Bench, play

EVENTS = "beforeHelm: 1\nafterDeleteHelm: 1\nkubernetes: [{name: pods, kind: Pod}]\n"
HOOKS = {"base/x": "beforeHelm: 1\n", "web/x": EVENTS}


def take_flags_out(bench: Bench, *modules: str) -> None:
    """What `play` writes enables all modules; these are enabled by nothing."""
    path = bench.root / "modules/values.yaml"
    lines = [line for line in path.read_text().splitlines() if line.removesuffix("Enabled: true") not in modules]
    path.write_text("".join(f"{line}\n" for line in lines))


async def enabled_by_config_map(bench: Bench) -> None:
    bench.edit(webEnabled="true", web="a: 1")
    take_flags_out(bench, "web")
    bench.converge_again()
    await bench.rest()
    assert bench.registry.state("web").phase is ModulePhase.READY
    bench.runs()


def deletions(bench: Bench) -> list[str]:
    return [run for run, what in bench.runs() if what == "afterDeleteHelm"]


def test_a_configmap_that_is_gone_uninstalls_nothing_and_its_return_brings_everything_back(tmp_path: Path) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        await enabled_by_config_map(bench)

        bench.delete_config_map()
        tasks = await bench.rest()
        assert not [task for task in tasks if task.startswith(("ModuleDelete", "ModulePurge"))]
        assert bench.registry.state("web").phase is ModulePhase.HELD
        assert bench.registry.held == {
            "web": "ConfigMap ns/cm was missing, which existed when the module was enabled",
        }
        assert bench.registry.enabled == ("base",), "the converge goes on with what the files say"
        assert 'module_held{module="web"} 1' in bench.metrics.render().decode()

        # Its hooks receive no events meanwhile, and see what exists when it is back.
        bench["pods"].change("Added", "one")
        await bench.rest()
        assert ("web/x", "pods: Added one") not in bench.runs()

        bench.edit(webEnabled="true", web="a: 2")
        await bench.rest()
        assert bench.registry.held == {}
        assert bench.registry.state("web").phase is ModulePhase.READY
        assert [what for run, what in bench.runs() if run == "web/x"] == ["pods: Synchronization", "beforeHelm"]
        assert "module_held{" not in bench.metrics.render().decode()

    play(tmp_path, HOOKS, steps)


def test_the_log_says_of_a_held_module_that_it_is_held_and_not_that_it_is_disabled(tmp_path: Path) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        await enabled_by_config_map(bench)
        with capture_logs() as lines:
            bench.delete_config_map()
            await bench.rest()
            take_flags_out(bench, "base")
            bench.edit(baseEnabled="false")
            await bench.rest()
        about = {(line["module"], line["event"]) for line in lines if line["event"].startswith("module ")}
        assert about >= {("web", "module is held: neither upgraded nor removed"), ("base", "module disabled")}
        assert ("web", "module disabled") not in about

    play(tmp_path, HOOKS, steps)


@pytest.mark.parametrize("says", ["ConfigMap", "file", "person"])
def test_a_held_module_is_removed_when_somebody_says_so(tmp_path: Path, says: str) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        await enabled_by_config_map(bench)
        bench.delete_config_map()
        await bench.rest()
        bench.edit(web="a: 1")
        await bench.rest()
        assert bench.registry.held.keys() == {"web"}, "a ConfigMap that says nothing of it decides nothing"
        assert deletions(bench) == []
        match says:
            case "ConfigMap":
                bench.edit(webEnabled="false")
            case "file":
                values = bench.root / "modules/values.yaml"
                values.write_text(f"{values.read_text()}webEnabled: false\n")
                bench.converge_again()
            case "person":
                with capture_logs() as lines:
                    bench.operator.inspector.confirm_removals(["web"])
                    await bench.rest()
                assert any("confirmed" in line["event"] and line["module"] == "web" for line in lines)
        await bench.rest()
        assert bench.registry.held == {}
        assert deletions(bench) == ["web/x"]
        bench.converge_again()
        await bench.rest()
        assert bench.registry.confirmed == frozenset()

    play(tmp_path, HOOKS, steps)


def test_a_held_module_whose_directory_was_a_broken_link_for_a_while_is_still_held(tmp_path: Path) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        await enabled_by_config_map(bench)
        bench.install("web", enabled_by=EnabledBy({"ConfigMap": True}, bench.config_map_uid))
        bench.delete_config_map()
        await bench.rest()
        bench.edit(web="a: 1")
        directory = bench.root / "modules/web"
        aside = directory.rename(bench.root / "aside")
        directory.symlink_to("nowhere")
        bench.converge_again()
        await bench.rest()
        assert bench.registry.held.keys() == {"web"}
        directory.unlink()
        aside.rename(directory)
        bench.converge_again()
        await bench.rest()
        assert bench.registry.held.keys() == {"web"}
        assert bench.registry.state("web").phase is ModulePhase.HELD
        assert deletions(bench) == []

    play(tmp_path, HOOKS, steps)


def test_a_confirmation_of_what_is_not_held_any_more_removes_nothing(tmp_path: Path) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        await enabled_by_config_map(bench)
        with pytest.raises(InputError, match="not held: nobody, web"):
            bench.operator.inspector.confirm_removals(["web", "nobody"])
        bench.delete_config_map()
        await bench.rest()
        assert bench.registry.held.keys() == {"web"}
        # The ConfigMap is back before the converge that the confirmation leads to.
        bench.edit(webEnabled="true")
        bench.operator.inspector.confirm_removals(["web"])
        await bench.rest()
        assert bench.registry.state("web").phase is ModulePhase.READY
        bench.delete_config_map()
        await bench.rest()
        assert bench.registry.held.keys() == {"web"}
        assert deletions(bench) == []

    play(tmp_path, HOOKS, steps)


def test_a_start_without_the_configmap_holds_what_is_installed_and_keeps_it_in_mind(tmp_path: Path) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        assert bench.registry.held.keys() == {"web"}
        assert bench.releases["web"].held
        # It comes back without a word about the module, and there may have been a restart since.
        bench.registry.held = {}
        bench.edit(web="a: 1")
        bench.converge_again()
        await bench.rest()
        assert bench.registry.held.keys() == {"web"}

    def prepare(bench: Bench) -> None:
        take_flags_out(bench, "web")
        bench.install("web", enabled_by=EnabledBy({"ConfigMap": True}, bench.config_map_uid))
        bench.delete_config_map()

    play(tmp_path, HOOKS, steps, prepare=prepare)


@pytest.mark.parametrize("replaced", [False, True], ids=["edited", "replaced"])
def test_a_configmap_edited_while_the_operator_was_stopped_decides_and_another_one_does_not(
    tmp_path: Path, replaced: bool
) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        assert bench.registry.held.keys() == ({"web"} if replaced else set())
        assert deletions(bench) == ([] if replaced else ["web/x"])
        if replaced:
            assert "was replaced by another one while the operator did not run" in bench.releases["web"].held
            bench.edit(webEnabled="false")
            await bench.rest()
            assert deletions(bench) == ["web/x"]

    def prepare(bench: Bench) -> None:
        take_flags_out(bench, "web")
        bench.install("web", enabled_by=EnabledBy({"ConfigMap": True}, bench.config_map_uid))
        if replaced:
            bench.replace_config_map()

    play(tmp_path, HOOKS, steps, prepare=prepare)


def test_a_configmap_that_is_replaced_by_the_same_decides_like_the_former(tmp_path: Path) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        await enabled_by_config_map(bench)
        bench.replace_config_map()
        await bench.rest()
        bench.edit(webEnabled=None)
        await bench.rest()
        assert bench.registry.held == {}
        assert deletions(bench) == ["web/x"]

    play(tmp_path, HOOKS, steps)


def test_directories_of_many_modules_that_vanish_at_once_purge_nothing(tmp_path: Path) -> None:
    hooks = {f"m{number}/x": EVENTS.replace("pods", f"pods{number}") for number in range(6)}

    async def steps(bench: Bench) -> None:
        await bench.rest()
        for number in range(4):
            bench.install(f"m{number}")
            shutil.rmtree(bench.root / f"modules/m{number}")
        bench.converge_again()
        tasks = await bench.rest()
        assert not [task for task in tasks if task.startswith("ModulePurge")]
        assert list(bench.registry.held) == ["m0", "m1", "m2", "m3"]

        # Some are uninstalled by hand, so that fewer than the limit are left: those are still held.
        for number in range(3):
            bench.uninstall(f"m{number}")
        bench.converge_again()
        await bench.rest()
        assert list(bench.registry.held) == ["m3"]

        bench.operator.inspector.confirm_removals(["m3"])
        purged = [task for task in await bench.rest() if task.startswith("ModulePurge")]
        assert [task.split(":")[2] for task in purged] == ["m3"]

    play(tmp_path, hooks, steps)


def test_a_false_in_the_configmap_lets_a_held_release_without_a_directory_go(tmp_path: Path) -> None:
    hooks = {f"m{number}/x": "beforeHelm: 1\n" for number in range(6)}

    async def steps(bench: Bench) -> None:
        await bench.rest()
        bench.edit(m1Enabled="true")
        for number in range(4):
            bench.install(f"m{number}")
            shutil.rmtree(bench.root / f"modules/m{number}")
        bench.converge_again()
        await bench.rest()
        assert list(bench.registry.held) == ["m0", "m1", "m2", "m3"]

        bench.edit(m0Enabled="false")
        purged = [task.split(":")[2] for task in await bench.rest() if task.startswith("ModulePurge")]
        assert purged == ["m0"]
        assert list(bench.registry.held) == ["m1", "m2", "m3"]

    play(tmp_path, hooks, steps)


@pytest.mark.parametrize("binding", ["beforeHelm", "afterDeleteHelm"])
def test_a_module_directory_that_goes_away_in_the_middle_of_its_run_leads_to_a_converge(
    tmp_path: Path, binding: str
) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        bench.install("web")
        bench.hooks.answers["web/x"] = [Answer(lasts_s=20)]
        bench.runs()
        if binding == "beforeHelm":
            bench.converge_again()
        else:
            bench.edit(webEnabled="false")
        while ("web/x", binding) not in bench.hooks.runs:
            await bench.tick()
        shutil.rmtree(bench.root / "modules/web")
        bench.hooks.failing.add("web/x")
        tasks = await bench.rest()
        assert [task for task in tasks if task.startswith("ModulePurge:main:web")]
        assert not [task for task in tasks if "failures 2" in task]
        assert [module.name for module in bench.registry.modules] == ["base"]

    play(tmp_path, HOOKS, steps)


@pytest.mark.parametrize("harm", ["directory of modules", "file of another module"])
def test_directories_that_cannot_be_read_lead_to_no_converge_after_the_other(tmp_path: Path, harm: str) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        (bench.root / "modules/web/templates").mkdir()
        bench.converge_again()
        await bench.rest()
        modules = bench.root / "modules"
        if harm == "directory of modules":
            modules.rename(bench.root / "away")
        else:
            shutil.rmtree(modules / "web")
            (modules / "base/values.yaml").write_text("base: [")
        bench.converge_again()
        await asyncio.sleep(600)
        runs = [task for task in bench.since() if task.startswith(("ModuleRun", "ParallelModuleRun"))]
        assert len(runs) < 60, "tried again after 5 to 30 s"

        if harm == "directory of modules":
            (bench.root / "away").rename(modules)
        else:
            (modules / "base/values.yaml").unlink()
        await bench.rest()
        left = ["base", "web"] if harm == "directory of modules" else ["base"]
        assert [module.name for module in bench.registry.modules] == left

    play(tmp_path, HOOKS, steps)
