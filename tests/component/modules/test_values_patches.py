"""Patches of hooks, from their files to values, charts, the ConfigMap and flags (contract 5.4); in virtual time.

How the layers of values lie over each other, with real hooks and charts, is in `tests/cluster/test_values.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from addon_operator.documents.jsondoc import JsonObject, JsonValue
from tests.component.modules.lab import Lab, charted, play_lab, release_records
from tests.fakes.bench import Bench

HOOKS = {"lab/lab.sh": "beforeHelm: 1\n", "lab/birth.sh": "onStartup: 1\n"}
BASE: JsonObject = {"keep": 1, "list": [1, 2], "deep": {"a": {"b": 1}}, "from": {"x": 7}}
FILES = {
    "modules/values.yaml": "labEnabled: true\nlab: {keep: 1, list: [1, 2], deep: {a: {b: 1}}, from: {x: 7}}\n",
}
# Several documents in one file, arrays and single operations.
SEVERAL = b"""\
[{"op":"add","path":"/lab/deep/a/c","value":2},{"op":"add","path":"/lab/list/-","value":3}]
{"op":"add","path":"/lab/list/0","value":0}
[{"op":"replace","path":"/lab/keep","value":null},{"op":"test","path":"/lab/from/x","value":7}]
"""
MOVED: list[JsonValue] = [
    {"op": "remove", "path": "/lab/deep/a"},
    {"op": "move", "from": "/lab/from/x", "path": "/lab/moved"},
    {"op": "copy", "from": "/lab/list/3", "path": "/lab/copied"},
]


def test_a_file_of_several_documents_is_one_patch_and_is_kept_compact(tmp_path: Path) -> None:
    async def steps(lab: Lab) -> None:
        await lab.bench.rest()
        await lab.run(SEVERAL)
        changes: JsonObject = {"keep": None, "list": [0, 1, 2, 3], "deep": {"a": {"b": 1, "c": 2}}, "tick": 1}
        assert lab.section == BASE | changes == charted(lab.bench)["lab"]
        assert lab.patches == [
            {"op": "add", "path": "/lab/deep/a/c", "value": 2},
            {"op": "add", "path": "/lab/keep", "value": None},
            {"op": "add", "path": "/lab/list", "value": [0, 1, 2, 3]},
        ]

    play_lab(tmp_path, steps, hooks=HOOKS, files=FILES)


def test_an_operation_on_a_parent_drops_what_was_below_it_and_moves_are_resolved(tmp_path: Path) -> None:
    async def steps(lab: Lab) -> None:
        await lab.bench.rest()
        await lab.run(SEVERAL)
        await lab.run(MOVED)
        assert lab.section == {
            "keep": None, "list": [0, 1, 2, 3], "deep": {}, "from": {}, "moved": 7, "copied": 3, "tick": 2,
        }  # fmt: skip
        assert lab.patches == [
            {"op": "add", "path": "/lab/copied", "value": 3},
            {"op": "remove", "path": "/lab/deep/a"},
            {"op": "remove", "path": "/lab/from/x"},
            {"op": "add", "path": "/lab/keep", "value": None},
            {"op": "add", "path": "/lab/list", "value": [0, 1, 2, 3]},
            {"op": "add", "path": "/lab/moved", "value": 7},
        ]

    play_lab(tmp_path, steps, hooks=HOOKS, files=FILES)


FOREIGN = ("/other/a", "/global/a", "/labEnabled")


@pytest.mark.parametrize(
    ("operations", "words"),
    [
        pytest.param(
            [{"op": "add", "path": path, "value": "s3cret"} for path in FOREIGN],
            [f"values patch: unacceptable patch operation for path '{path}'" for path in FOREIGN],
            id="not its own",
        ),
        pytest.param(
            [{"op": "remove", "path": "/lab/no"}],
            ["values patch: remove /lab/no: /lab/no does not exist"],
            id="not there",
        ),
        pytest.param(
            [{"op": "test", "path": "/lab/moved", "value": "s3cret"}],
            ["values patch: test /lab/moved: the value differs"],
            id="another value",
        ),
    ],
)
def test_a_patch_that_is_refused_changes_nothing_and_its_error_shows_no_value(
    tmp_path: Path, operations: list[JsonValue], words: list[str]
) -> None:
    async def steps(lab: Lab) -> None:
        await lab.bench.rest()
        await lab.run(SEVERAL)
        await lab.run(MOVED)
        first: JsonObject = {"op": "add", "path": "/lab/first", "value": "s3cret"}
        error = await lab.refused([first, *operations])
        assert error.startswith("hook hooks/lab.sh of module lab: ")
        assert [word for word in words if word not in error] == []
        assert "s3cret" not in error

    play_lab(tmp_path, steps, hooks=HOOKS, files=FILES)


def test_a_whole_section_is_removed_and_set_again(tmp_path: Path) -> None:
    """Contract 5.4 no. 4."""

    async def steps(lab: Lab) -> None:
        await lab.bench.rest()
        await lab.run(MOVED[:2])
        await lab.run([{"op": "remove", "path": "/lab"}])
        assert lab.section == {}
        assert lab.patches == [{"op": "remove", "path": "/lab"}]
        await lab.run({"op": "add", "path": "/lab", "value": {"new": True}})
        assert lab.section == {"new": True} == charted(lab.bench)["lab"]

    play_lab(tmp_path, steps, hooks=HOOKS, files=FILES)


def test_the_next_life_of_a_module_begins_without_patches_and_with_onstartup(tmp_path: Path) -> None:
    async def steps(lab: Lab) -> None:
        bench = lab.bench
        await bench.rest()
        await lab.run({"op": "add", "path": "/lab", "value": {"new": True}})
        births = [run for run in bench.runs() if run[0] == "lab/birth.sh"]
        assert births == [("lab/birth.sh", "onStartup")]

        lab.tick()
        bench.edit(labEnabled="false")
        await bench.rest()
        assert release_records(bench) == []
        assert bench.deployed("lab") is None
        assert lab.patches == []
        bench.edit(labEnabled="true")
        await bench.rest()
        assert [run for run in bench.runs() if run[0] == "lab/birth.sh"] == births
        assert lab.section == BASE | {"tick": lab.ticks}

    play_lab(tmp_path, steps, hooks=HOOKS, files=FILES)


def test_sections_that_are_lists_are_patched_saved_and_emptied(tmp_path: Path) -> None:
    async def steps(lab: Lab) -> None:
        bench = lab.bench
        await bench.rest()
        both: list[JsonValue] = [{"name": "saved"}, {"name": "hook"}]
        assert (lab.section, charted(bench)["lab"]) == (both, both)
        assert [config for _, config in lab.seen] == [{"global": {}, "lab": {}}]
        assert bench.config_map["lab"] == "- name: saved\n"

        lab.lay([{"op": "remove", "path": "/lab"}])
        bench.edit(lab="[1, 2]\n")
        await bench.rest()
        assert (lab.section, charted(bench)["lab"]) == ({}, {})

        lab.lay([{"op": "add", "path": "/lab", "value": []}])
        bench.edit(lab="[1, 2, 3]\n")
        await bench.rest()
        assert (lab.section, charted(bench)["lab"]) == ([], [])
        assert lab.seen[-1][1] == {"global": {}, "lab": [1, 2, 3]}

    start: tuple[JsonValue, JsonValue] = (
        [{"op": "add", "path": "/lab/-", "value": {"name": "hook"}}],
        [{"op": "add", "path": "/lab", "value": [{"name": "saved"}]}],
    )
    files = {"modules/values.yaml": "labEnabled: true\nlab: [{name: file}]\n"}
    play_lab(tmp_path, steps, hooks={"lab/lab.sh": "beforeHelm: 1\n"}, files=files, starts_with=start)


def test_a_global_hook_sets_and_takes_back_values_and_flags_in_one_patch(tmp_path: Path) -> None:
    """Contract 5.4 no. 3; the ConfigMap does not exist at the beginning."""

    async def steps(lab: Lab) -> None:
        bench = lab.bench
        await bench.rest()
        assert bench.config_map == {"global": "saved:\n  x:\n  - null\n", "twoEnabled": "true"}
        shared: JsonObject = {"a": 1, "b": 2, "saved": {"x": [None]}}
        assert charted(bench, "one") == {"global": shared, "one": {}}
        assert charted(bench, "two") == {"global": shared, "two": {}}
        assert len(lab.seen) == 1

        lab.lay(
            [{"op": "remove", "path": "/oneEnabled"}, {"op": "remove", "path": "/global/b"}],
            [{"op": "remove", "path": "/twoEnabled"}],
        )
        bench.edit(**{"global": "saved: again\n"})
        await bench.rest()
        assert release_records(bench) == []
        assert bench.config_map == {"global": "saved: again\n"}
        assert bench.operator.inspector.global_values() == {"a": 1, "saved": "again"}
        assert [module.enabled for module in bench.operator.inspector.modules()] == [False, False]

    start: tuple[JsonValue, JsonValue] = (
        [{"op": "add", "path": "/global/b", "value": 2}, {"op": "add", "path": "/oneEnabled", "value": "true"}],
        [
            {"op": "add", "path": "/global/saved", "value": {"x": [None]}},
            {"op": "add", "path": "/twoEnabled", "value": True},
        ],
    )
    play_lab(
        tmp_path, steps,
        hooks={"global/lab.sh": "beforeAll: 1\n"}, files={"modules/values.yaml": "global: {a: 1}\n"},
        charts=("one", "two"), starts_with=start, prepare=Bench.delete_config_map,
    )  # fmt: skip
