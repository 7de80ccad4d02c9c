"""What edits of the ConfigMap set off while nothing runs: every row of contract 3.6; in virtual time.

That the ConfigMap is created, replaced or deleted is in `tests/cluster/test_configmap.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.server import pages
from tests.fakes.bench import Bench, play, write_enabled_script, write_template
from tests.fakes.helm import ALL_VALUES
from tests.fakes.hook_transport import HookRun

Runs = list[tuple[str, str]]

HOOKS = {
    "global/around": "beforeAll: 1\nafterAll: 1",
    "010-alpha/h": "beforeHelm: 1",
    "020-beta/h": "beforeHelm: 1",
    "030-off/h": "onStartup: 1\nafterDeleteHelm: 1",
    "040-scripted/h": "onStartup: 1",
}
BEFORE_ALL, AFTER_ALL = ("global/around", "beforeAll"), ("global/around", "afterAll")
ALPHA, BETA = ("alpha/h", "beforeHelm"), ("beta/h", "beforeHelm")
CONVERGE = [BEFORE_ALL, ALPHA, BETA, AFTER_ALL]
APPLY = "ApplyKubeConfigValues:main:Apply-Kube-Config-Values-Changes"


def start_with(bench: Bench, **data: str) -> None:
    """Enables alpha and beta in a file; the `enabled` script of the last module says what the ConfigMap says."""

    async def says_what_the_config_map_says(run: HookRun) -> int:
        section = run.config_values().get("scripted")
        run.write("MODULE_ENABLED_RESULT", jsondoc.dumps(isinstance(section, dict) and section.get("run", False)))
        return 0

    (bench.root / "modules/values.yaml").write_text("alphaEnabled: true\nbetaEnabled: true\nscriptedEnabled: true\n")
    write_template(bench.root, "010-alpha", values=ALL_VALUES)
    write_enabled_script(bench.root, "040-scripted")
    bench.hooks.scripts["scripted/enabled"] = says_what_the_config_map_says
    bench.edit(**data)


def in_force(bench: Bench, module: str) -> JsonValue:
    return bench.operator.inspector.module_config(module, with_global=False)[module]


def values_of_alpha(bench: Bench) -> JsonValue:
    """With what values its chart was deployed last."""
    return jsondoc.loads(str((bench.deployed("alpha") or {})["values"]))


async def settle(bench: Bench) -> None:
    """The start, which is not what these tests are about."""
    await bench.rest()
    bench.runs()


@pytest.mark.parametrize(
    ("before", "edit", "runs", "sections"),
    [
        pytest.param({}, {"alpha": "own: 1"}, [ALPHA], {"alpha": {"own": 1}}, id="a section"),
        pytest.param(
            {"alpha": "own: 1"},
            {"alpha": "# one\n{own: 1}", "off": "a: 1"},
            [],
            {"alpha": {"own": 1}, "off": {"a": 1}},
            id="the same in other words, and a section of a disabled module",
        ),
        pytest.param(
            {"alpha": "own: 1"},
            {"alpha": "own: 2", "beta": "[x]"},
            [ALPHA, BETA],
            {"alpha": {"own": 2}, "beta": ["x"]},
            id="two sections, one of them a list",
        ),
    ],
)
def test_an_edit_of_sections_runs_their_enabled_modules(
    tmp_path: Path, *, before: dict[str, str], edit: dict[str, str], runs: Runs, sections: JsonObject
) -> None:
    async def steps(bench: Bench) -> None:
        await settle(bench)
        bench.edit(**edit)
        modules = [name.removesuffix("/h") for name, _ in runs]
        assert await bench.rest() == [APPLY, *(f"ModuleRun:main:{name}:KubeConfig-Changed-Modules" for name in modules)]
        assert bench.runs() == runs
        assert {name: in_force(bench, name) for name in sections} == sections
        assert values_of_alpha(bench) == {"global": {}, "alpha": sections["alpha"]}

    play(tmp_path, HOOKS, steps, prepare=lambda bench: start_with(bench, **before))


def test_an_edit_of_the_global_section_runs_everything(tmp_path: Path) -> None:
    async def steps(bench: Bench) -> None:
        await settle(bench)
        bench.edit(**{"global": "of: all"})
        tasks = await bench.rest()
        assert tasks[:2] == [APPLY, "ConvergeModules:main:StandBy:ReloadAll-After-KubeConfigChange"]
        assert bench.runs() == CONVERGE
        assert values_of_alpha(bench) == {"global": {"of": "all"}, "alpha": {}}
        assert bench.metric("config_values_errors_total") == 0

    play(tmp_path, HOOKS, steps, prepare=start_with)


def test_flags_that_change_nothing_run_nothing(tmp_path: Path) -> None:
    async def steps(bench: Bench) -> None:
        await settle(bench)
        with capture_logs() as lines:
            bench.edit(betaEnabled="true", offEnabled="false", unknownEnabled="true", unknown="a: 1")
            assert await bench.rest() == [APPLY]
        assert bench.runs() == []
        warnings = [str(line["reason"]) for line in lines if line["event"] == "part of the ConfigMap has no effect"]
        assert any("there is no module 'unknown'" in warning for warning in warnings)
        # They decide nevertheless.
        explained = pages.module_explain(bench.operator.inspector, pages.Query(module="beta"))
        assert "key betaEnabled" in str(explained.document)

    play(tmp_path, HOOKS, steps, prepare=start_with)


def test_a_flag_enables_and_disables_a_module_and_the_section_that_was_there_counts(tmp_path: Path) -> None:
    seen: list[JsonObject] = []

    async def note(run: HookRun) -> int:
        seen.append(run.config_values())
        return 0

    async def steps(bench: Bench) -> None:
        bench.hooks.scripts["off/h"] = note
        await settle(bench)
        bench.edit(offEnabled="true")
        await bench.rest()
        assert bench.runs() == [*CONVERGE[:-1], ("off/h", "onStartup"), AFTER_ALL]
        assert seen == [{"global": {"of": "all"}, "off": {"a": 1}}]
        bench.edit(offEnabled="false")
        await bench.rest()
        assert bench.runs() == [BEFORE_ALL, ("off/h", "afterDeleteHelm"), ALPHA, BETA, AFTER_ALL]

    play(tmp_path, HOOKS, steps, prepare=lambda bench: start_with(bench, off="a: 1", **{"global": "of: all"}))


def test_a_section_that_changes_what_an_enabled_script_says_is_like_a_flag(tmp_path: Path) -> None:
    async def steps(bench: Bench) -> None:
        await settle(bench)
        assert not bench.registry.is_enabled("scripted")
        bench.edit(scripted="run: true")
        await bench.rest()
        assert bench.runs() == [*CONVERGE[:-1], ("scripted/h", "onStartup"), AFTER_ALL]
        # This one changes values only, and the module has nothing that runs for them.
        bench.edit(scripted="{run: true, more: 1}")
        await bench.rest()
        assert bench.runs() == []
        assert in_force(bench, "scripted") == {"run": True, "more": 1}

    play(tmp_path, HOOKS, steps, prepare=start_with)
