"""Values of all sources are held to the schemas of their module (contract 2.8, 6.3); in virtual time."""

from __future__ import annotations

from pathlib import Path

from structlog.testing import capture_logs

from addon_operator.documents.jsondoc import JsonValue
from addon_operator.modules.registry import ModulePhase
from tests.component.modules.lab import Lab, charted, play_lab, release_records

FILES = {
    "modules/values.yaml": "labEnabled: true\nglobal: {}\n",
    "global/openapi/values.yaml": (
        "type: object\nx-required-for-helm: [domain]\nproperties: {domain: {type: string}}\n"
    ),
    "modules/lab/openapi/config-values.yaml": (
        "type: object\nproperties:\n  tick: {type: integer}\n  text: {type: string, nullable: true}\n"
        "  zone: {type: string, enum: [a, b]}\n"
    ),
    "modules/lab/openapi/values.yaml": (
        "x-extend: {schema: config-values.yaml}\ntype: object\nx-required-for-helm: [password]\n"
        "properties:\n  password: {type: string}\n"
        "  tls:\n    type: object\n    default: {}\n    x-required-for-helm: key\n"
        "    properties: {key: {type: string}}\n"
    ),
}  # fmt: skip
HOOKS = {"lab/lab.sh": "beforeHelm: 1\n"}
NEEDED: list[JsonValue] = [
    {"op": "add", "path": "/lab/password", "value": "s3cret"},
    {"op": "add", "path": "/lab/tls", "value": {"key": "k"}},
]


async def complete(lab: Lab) -> None:
    """Whatever the chart needs comes from the ConfigMap and from the hook."""
    lab.lay(NEEDED)
    lab.bench.edit(**{"global": "domain: example.com\n", "lab": "text: null\n"})
    await lab.bench.rest()
    lab.lay()


def test_what_a_chart_needs_is_named_and_nothing_is_installed_before_it_is_there(tmp_path: Path) -> None:
    async def steps(lab: Lab) -> None:
        await lab.bench.tick()
        assert str(lab.view.last_error).splitlines() == [
            "check helm values of module 'lab':",
            "  - global.domain is required",
            "  - lab.password is required",
            "  - lab.tls.key is required",
        ]
        assert release_records(lab.bench) == []
        assert lab.bench.helm.operations == []
        assert not lab.bench.converged
        await complete(lab)
        assert lab.bench.converged
        assert lab.bench.registry.state("lab").phase is ModulePhase.READY
        assert charted(lab.bench)["lab"] == {"text": None, "password": "s3cret", "tls": {"key": "k"}}

    play_lab(tmp_path, steps, hooks=HOOKS, files=FILES)


def test_patches_that_break_a_schema_are_refused_with_all_violations(tmp_path: Path) -> None:
    async def steps(lab: Lab) -> None:
        await complete(lab)
        await lab.run()
        error = await lab.refused(
            [
                {"op": "add", "path": "/lab/password", "value": 5},
                {"op": "add", "path": "/lab/extra", "value": "s3cret"},
            ],
            [{"op": "add", "path": "/lab/zone", "value": "s3cret"}],
        )
        assert error.splitlines() == [
            "hook hooks/lab.sh of module lab: the patched values are not valid:",
            "  - lab.extra is a forbidden property (hook hooks/lab.sh)",
            "  - lab.password in body must be of type string (hook hooks/lab.sh)",
            "  - lab.zone in body should be one of a or b (ConfigMap key lab)",
        ]
        assert lab.bench.config_map["lab"] == f"tick: {lab.ticks}\n"
        assert lab.section == {"tick": lab.ticks, "password": "s3cret", "tls": {"key": "k"}}
        assert lab.bench.operator.inspector.module_config("lab", with_global=False) == {"lab": {"tick": lab.ticks}}

    play_lab(tmp_path, steps, hooks=HOOKS, files=FILES)


def test_a_configmap_that_breaks_a_schema_is_refused_and_the_former_values_stay(tmp_path: Path) -> None:
    async def steps(lab: Lab) -> None:
        await complete(lab)
        await lab.run()
        expected = {"tick": lab.ticks, "password": "s3cret", "tls": {"key": "k"}}
        assert lab.section == expected
        # A null for a key that is not nullable.
        with capture_logs() as lines:
            lab.bench.edit(lab="zone: null\ntick: 1.5\n")
            await lab.bench.rest()
        for said in (str(lines), *lab.bench.refused):
            assert "lab.zone in body" in said
            assert "lab.tick in body must be of type integer (ConfigMap key lab)" in said
        assert len(lab.bench.refused) == 1
        assert lab.section == expected
        await lab.run()

    play_lab(tmp_path, steps, hooks=HOOKS, files=FILES)
