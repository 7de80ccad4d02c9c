"""Edits of the ConfigMap that are refused change nothing, and the rest goes on; in virtual time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonValue, lookup
from addon_operator.kube.refs import CONFIG_MAPS
from tests.fakes.bench import NAMESPACE, Bench, play, write_template
from tests.fakes.helm import ALL_VALUES

HOOKS = {"global/around": "beforeAll: 1\nafterAll: 1", "010-alpha/h": "beforeHelm: 1", "020-off/h": "beforeHelm: 1"}
SCHEMA = "type: object\nproperties:\n  own: {type: integer}\n"
CONVERGE = [("global/around", "beforeAll"), ("alpha/h", "beforeHelm"), ("global/around", "afterAll")]
STORED = {"global": "of: x", "alpha": "own: 1", "off": "own: wrong"}
# A change that would be good, beside a bad one: it must not be half-applied.
GOOD = {"global": "of: y", "alpha": "own: 2"}


def write_schema(bench: Bench, directory: str, schema: str) -> None:
    path = bench.root / directory / "openapi/config-values.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(schema)


def prepare(bench: Bench) -> None:
    """Module `off` has a section that its schema forbids, and is disabled."""
    write_schema(bench, "global", "type: object\nproperties:\n  of: {type: string}\n")
    for directory in ("010-alpha", "020-off"):
        write_schema(bench, f"modules/{directory}", SCHEMA)
    write_template(bench.root, "010-alpha", values=ALL_VALUES)
    (bench.root / "modules/values.yaml").write_text("alphaEnabled: true\n")
    bench.edit(**STORED)


def replace_data(bench: Bench, **data: str) -> None:
    bench.edit(**{**dict.fromkeys(bench.config_map), **data})


def own_and_of(bench: Bench, module: str) -> tuple[JsonValue, JsonValue]:
    """What the deployed chart has got of the module's own values and of the global ones."""
    values = jsondoc.loads(str((bench.deployed(module) or {})["values"]))
    return lookup(values, f"/{module}/own"), lookup(values, "/global/of")


@pytest.mark.parametrize(
    ("bad", "messages"),
    [
        pytest.param({"global": "of: [x"}, ["ConfigMap ns/cm, key global:"], id="not YAML"),
        pytest.param({"alpha": "text"}, ["ConfigMap ns/cm, key alpha:1: must be a map or a list"], id="not a section"),
        pytest.param(
            {"some-module": "a: 1"}, ["ConfigMap ns/cm, key some-module: bad module name"], id="not camelCase"
        ),
        pytest.param(
            {"alphaEnabled": "yes"},
            ['ConfigMap ns/cm, key alphaEnabled: must be "true" or "false"'],
            id="not a flag",
        ),
        pytest.param(
            {"alphaMaintenance": "Always"},
            ["ConfigMap ns/cm, key alphaMaintenance: must be empty or"],
            id="not a mode",
        ),
        pytest.param(
            {"offEnabled": "true"}, ["off.own in body must be of type integer"], id="enables what is wrong"
        ),
        pytest.param(
            {"alpha": "{own: text, more: 1}", "global": "of: 1"},
            [
                "alpha.own in body must be of type integer", "alpha.more is a forbidden property",
                "global.of in body",
            ],
            id="against two schemas",
        ),
    ],
)  # fmt: skip
def test_a_refused_edit_changes_nothing(tmp_path: Path, bad: dict[str, str], messages: list[str]) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        bench.runs()
        with capture_logs() as lines:
            replace_data(bench, **{**STORED, **GOOD, **bad})
            await bench.tick()
        assert bench.metric("config_values_errors_total") == 1
        errors = [str(line["error"]) for line in lines if line["event"].startswith("ConfigMap refused")]
        assert len(errors) == 1
        assert len(bench.refused) == 1
        assert [text for text in messages if text not in errors[0] or text not in bench.refused[0]] == []
        await bench.rest()
        assert bench.metric("config_values_errors_total") == 1
        assert bench.operator.inspector.global_config() == {"of": "x"}
        assert bench.runs() == []
        assert own_and_of(bench, "alpha") == (1, "x")
        assert bench.operator.status().ready

        # The rest goes on with the old values: an object comes back.
        bench.api.remove(CONFIG_MAPS, NAMESPACE, "alpha")
        await bench.rest()
        assert own_and_of(bench, "alpha") == (1, "x")
        bench.runs()
        replace_data(bench, **{**STORED, **GOOD})
        await bench.rest()
        assert own_and_of(bench, "alpha") == (2, "y")
        assert bench.runs() == CONVERGE

    play(tmp_path, HOOKS, steps, prepare=prepare)


def test_each_refused_edit_is_counted_and_an_event_of_its_own(tmp_path: Path) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        bench.runs()
        for count, bad in enumerate(("of: [x", "text", "of: 1"), 1):
            replace_data(bench, **{**STORED, **GOOD, "global": bad})
            await bench.tick()
            assert bench.metric("config_values_errors_total") == len(bench.refused) == count
        assert bench.operator.inspector.global_config() == {"of": "x"}
        await bench.rest()
        assert bench.runs() == []
        replace_data(bench, **STORED)
        assert await bench.rest() == []

    play(tmp_path, HOOKS, steps, prepare=prepare)


def test_a_schema_that_allows_more_is_read_when_the_edit_that_needs_it_is_refused(tmp_path: Path) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        write_schema(bench, "modules/010-alpha", f"{SCHEMA}  more: {{}}\n")
        bench.edit(alpha="{own: 4, more: 1}")
        await bench.rest()
        assert own_and_of(bench, "alpha") == (4, "x")

    play(tmp_path, HOOKS, steps, prepare=prepare)


def test_a_module_that_a_file_enables_later_does_not_begin_with_its_bad_section(tmp_path: Path) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        write_template(bench.root, "020-off", values=ALL_VALUES)
        (bench.root / "modules/values.yaml").write_text("alphaEnabled: true\noffEnabled: true\n")
        bench.edit(**{"global": "of: z"})
        await asyncio.sleep(60)
        shown = {module.name: module.last_error for module in bench.operator.inspector.modules()}
        error = shown["off"] or ""
        assert error.startswith("values of module 'off':")
        assert "off.own in body must be of type integer (ConfigMap key off)" in error
        assert ("off/h", "beforeHelm") not in bench.hooks.runs
        assert "off" not in bench.releases
        bench.edit(off="own: 3")
        await bench.rest()
        assert own_and_of(bench, "off") == (3, "z")

    play(tmp_path, HOOKS, steps, prepare=prepare)
