"""Edits of the ConfigMap while the operator does something, or waits after a failure; in virtual time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject
from tests.fakes.bench import Bench, play, write_enabled_script, write_template
from tests.fakes.helm import ALL_VALUES
from tests.fakes.hook_transport import HookFunction, HookRun

HOOKS = {"global/around": "beforeAll: 1\nafterAll: 1", "010-alpha/h": "beforeHelm: 1", "020-beta/h": "beforeHelm: 1"}
BEFORE_ALL, AFTER_ALL = ("global/around", "beforeAll"), ("global/around", "afterAll")
ALPHA, BETA = ("alpha/h", "beforeHelm"), ("beta/h", "beforeHelm")
CONVERGE = [BEFORE_ALL, ALPHA, BETA, AFTER_ALL]
# What beta has seen of the ConfigMap last.
NOTHING: JsonObject = {"global": {}, "beta": {}}
OF_1: JsonObject = {"global": {"of": 1}, "beta": {}}
OF_2: JsonObject = {"global": {"of": 2}, "beta": {}}


class Held:
    """Runs of a script wait here while it is closed."""

    def __init__(self) -> None:
        self.waits = False
        self._opened = asyncio.Event()
        self._opened.set()

    def close(self) -> None:
        self._opened.clear()

    def open(self) -> None:
        self._opened.set()

    async def run(self, _run: HookRun) -> int:
        self.waits = True
        await self._opened.wait()
        self.waits = False
        return 0

    async def enable(self, run: HookRun) -> int:
        run.write("MODULE_ENABLED_RESULT", b"true")
        return await self.run(run)


def noting(seen: list[JsonObject]) -> HookFunction:
    async def note(run: HookRun) -> int:
        seen.append(run.config_values())
        return 0

    return note


def has_to_apply(bench: Bench) -> bool:
    return any("ApplyKubeConfigValues" in task for task in bench.listed["main"])


def test_an_edit_before_the_first_converge_leads_to_no_second_one(tmp_path: Path) -> None:
    first, seen = Held(), list[JsonObject]()
    first.close()

    async def steps(bench: Bench) -> None:
        bench.hooks.scripts = {"global/first": first.run, "global/around": noting(seen)}
        await bench.tick()
        assert bench.hooks.runs == [("global/first", "onStartup")]
        assert first.waits
        bench.edit(**{"global": "of: 1"})
        await bench.tick()
        assert has_to_apply(bench)
        first.open()
        await bench.rest()
        assert bench.converged
        assert bench.runs() == [("global/first", "onStartup"), *CONVERGE]
        assert seen[0] == {"global": {"of": 1}}

    play(tmp_path, {**HOOKS, "global/first": "onStartup: 1"}, steps)


@pytest.mark.parametrize(
    ("edit", "held", "runs", "beta"),
    [
        # The rest of the converge is dropped, a new one begins.
        pytest.param({"global": "of: 2"}, "alpha/h", CONVERGE, OF_2, id="global values, while a module runs"),
        # No module runs for a plan that is old already.
        pytest.param({"global": "of: 2"}, "slow/enabled", CONVERGE, OF_2, id="global values, while scripts are asked"),
        pytest.param({"beta": "own: 1"}, "alpha/h", CONVERGE[2:], OF_1 | {"beta": {"own": 1}}, id="a run that waits"),
        pytest.param({"alpha": "own: 1"}, "alpha/h", CONVERGE[1:], OF_1, id="the run that is under way"),
        # It changes something, and so it is like global values.
        pytest.param({"betaEnabled": "false"}, "alpha/h", [BEFORE_ALL, ALPHA, AFTER_ALL], NOTHING, id="a flag"),
    ],
)
def test_an_edit_during_a_converge_repeats_what_was_made_of_older_values(
    tmp_path: Path, *, edit: dict[str, str], held: str, runs: list[tuple[str, str]], beta: JsonObject
) -> None:
    alpha, slow, seen = Held(), Held(), list[JsonObject]()

    async def steps(bench: Bench) -> None:
        bench.hooks.scripts = {"alpha/h": alpha.run, "slow/enabled": slow.enable, "beta/h": noting(seen)}
        await bench.rest()
        gate = {"alpha/h": alpha, "slow/enabled": slow}[held]
        gate.close()
        bench.edit(**{"global": "of: 1"})
        await bench.tick()
        assert gate.waits
        bench.runs()
        bench.edit(**edit)
        await bench.tick()
        assert has_to_apply(bench)
        gate.open()
        await bench.rest()
        assert bench.runs() == runs
        assert seen[-1] == beta

    def prepare(bench: Bench) -> None:
        with (bench.root / "modules/values.yaml").open("a") as values:
            values.write("slowEnabled: true\n")
        write_enabled_script(bench.root, "015-slow")

    play(tmp_path, HOOKS, steps, prepare=prepare)


def test_an_edit_while_another_one_is_being_applied_is_not_lost(tmp_path: Path) -> None:
    script = Held()

    def values(bench: Bench) -> object:
        return jsondoc.loads(str((bench.deployed("alpha") or {})["values"]))

    async def steps(bench: Bench) -> None:
        bench.hooks.scripts = {"alpha/enabled": script.enable}
        await bench.rest()
        assert values(bench) == {"global": {}, "alpha": {"own": "none"}}
        script.close()
        bench.edit(alpha="own: first")
        await bench.tick()
        assert script.waits
        assert bench.listed["main"][0].startswith("ApplyKubeConfigValues"), "the first edit is being applied"
        bench.edit(**{"global": "of: second"})
        await bench.tick()
        script.open()
        await bench.rest()
        assert values(bench) == {"global": {"of": "second"}, "alpha": {"own": "first"}}

    def prepare(bench: Bench) -> None:
        write_template(bench.root, "alpha", values=ALL_VALUES)
        write_enabled_script(bench.root, "alpha")
        (bench.root / "modules/alpha/values.yaml").write_text("alpha: {own: none}\nalphaEnabled: true\n")

    play(tmp_path, {}, steps, prepare=prepare)


def test_an_edit_ends_the_sleep_after_a_failure(tmp_path: Path) -> None:
    """A second after an edit, nothing would have come of waiting."""

    async def is_well(run: HookRun) -> int:
        section = run.config_values().get(run.hook.module or "global")
        if isinstance(section, dict) and section.get("well") is True:
            return 0
        run.print("not well\n", "stderr")
        return 1

    async def steps(bench: Bench) -> None:
        def sleeps(for_s: int, task: str) -> bool:
            main = bench.queues.main
            return main.status() == f"sleep after fail for {for_s}s" and bench.listed["main"][0].startswith(task)

        bench.hooks.scripts = {"global/g": is_well, "alpha/h": is_well}
        await bench.tick()
        assert sleeps(5, "GlobalHookRun:main:onStartup:g:OperatorStartup:failures 1")
        bench.edit(**{"global": "well: true"})
        await bench.tick()
        assert sleeps(5, "ModuleRun:main:alpha:OperatorStartup:failures 1")
        # One that does not help, and one that is refused.
        bench.edit(alpha="well: false")
        await bench.tick()
        assert sleeps(10, "ModuleRun:main:alpha:OperatorStartup:failures 2")
        bench.edit(alpha="[")
        await bench.tick()
        assert bench.metric("config_values_errors_total") == 1
        assert sleeps(10, "ModuleRun:main:alpha:OperatorStartup:failures 2")
        bench.edit(alpha="well: true")
        await bench.tick()
        assert bench.converged
        await bench.rest()
        assert bench.runs() == [("global/g", "onStartup")] * 2 + [ALPHA] * 3

    play(tmp_path, {"global/g": "onStartup: 1", "alpha/h": "beforeHelm: 1"}, steps)
