"""What only the ConfigMap enabled survives its absence: neither upgraded nor removed, until somebody decides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from addon_operator.devcluster import DevCluster
from tests.cluster.operator import Operator, adding, config_map, config_map_chart, eventually, noting_hook, operator

BASE = config_map_chart("base", 'of: {{ .Values.global.of | default "-" | quote }}')
DATA = config_map_chart("data", 'size: {{ .Values.data.size | default "-" | quote }}')
MISSING = "was missing, which existed when the module was enabled"


def platform(made: Operator) -> None:
    """`base` is enabled by a file; `data` only by the ConfigMap, against a file."""
    made.files({"modules/values.yaml": "baseEnabled: true\ndataEnabled: false\n"})
    made.module("010-base", BASE)
    made.module("020-data", {**DATA, "hooks/h.sh": noting_hook("data", "afterDeleteHelm: 1")})
    made.configure({"global": "of: all", "dataEnabled": "true", "data": "size: 3"})
    made.start_ready()
    assert made.deployed("data") == {"size": "3"}


def is_held(made: Operator) -> bool:
    return made.modules()["data"]["state"] == "held"


def untouched(made: Operator) -> bool:
    return made.revisions("data") == {1: "deployed"} and made.deployed("data") == {"size": "3"} and made.seen() == []


def test_started_without_the_configmap_nothing_that_it_enabled_is_uninstalled(
    cluster: DevCluster, tmp_path: Path
) -> None:
    with operator(cluster, tmp_path) as made:
        platform(made)
        saved = made.config_data()
        made.stop()
        made.delete("addon-operator")
        made.start_ready()

        made.wait_idle()
        assert untouched(made)
        assert is_held(made)
        assert made.deployed("base") == {"of": "-"}, "the converge goes on with what the files say"

        # It is said wherever somebody may look.
        listed = made.cli("module", "list", "-o", "text").stdout
        assert "NOTE: held, neither upgraded nor removed: data" in listed
        assert f"ConfigMap {made.namespace}/addon-operator {MISSING}" in listed
        assert "MODULES_HELD: data" in made.http("/status/converge")[1]
        assert made.metric('module_held{module="data"}') == 1
        assert "module is held: neither upgraded nor removed" in made.text()
        eventually(lambda: ("Warning", "ModulesHeld") in made.events())

        # A restart finds the same.
        made.stop()
        made.start_ready()
        made.wait_idle()
        assert untouched(made)
        assert is_held(made)

        # It is back: the module goes on as if nothing had been.
        made.configure(saved)
        eventually(lambda: made.modules()["data"]["state"] == "ready")
        made.wait_idle()
        assert untouched(made)
        assert "MODULES_HELD" not in made.http("/status/converge")[1]
        eventually(lambda: made.deployed("base") == {"of": "all"})


def test_a_configmap_deleted_while_the_operator_runs_uninstalls_nothing_until_it_is_confirmed(
    cluster: DevCluster, tmp_path: Path
) -> None:
    with operator(cluster, tmp_path) as made:
        platform(made)
        made.delete("addon-operator")
        eventually(lambda: is_held(made))
        made.wait_idle()
        assert untouched(made)

        # Somebody makes a new one, step by step.
        made.create(config_map("addon-operator"))
        made.configure({"global": "of: new"})
        eventually(lambda: made.deployed("base") == {"of": "new"})
        made.wait_idle()
        assert untouched(made)
        assert is_held(made)

        refused = made.cli("confirm-removals", "base")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "not held: base" in refused.stderr
        asked = made.cli("confirm-removals")  # nobody answers
        assert asked.returncode == 1
        assert f"data: ConfigMap {made.namespace}/addon-operator {MISSING}" in asked.stdout
        made.wait_idle()
        assert untouched(made)

        confirmed = made.cli("confirm-removals", "--yes")
        assert confirmed.returncode == 0, confirmed.stderr
        eventually(lambda: made.revisions("data") == {})
        made.wait_idle()
        assert made.modules()["data"]["state"] == "disabled"
        assert made.runs() == ["data afterDeleteHelm"]
        assert made.cli("confirm-removals").stdout == "No module is held.\n"


@pytest.mark.parametrize("stopped", [False, True], ids=["while it runs", "while it is stopped"])
def test_a_configmap_that_is_replaced_at_once_by_an_empty_one_uninstalls_nothing(
    cluster: DevCluster, tmp_path: Path, *, stopped: bool
) -> None:
    with operator(cluster, tmp_path) as made:
        platform(made)
        if stopped:
            made.stop()
        made.delete("addon-operator")
        made.create(config_map("addon-operator"))
        if stopped:
            made.start_ready()
        eventually(lambda: made.deployed("base") == {"of": "-"})
        made.wait_idle()
        assert untouched(made)
        assert is_held(made)

        made.configure({"dataEnabled": "true", "data": "size: 4"})
        eventually(lambda: made.deployed("data") == {"size": "4"})
        made.configure({"dataEnabled": None})
        eventually(lambda: made.revisions("data") == {})


def test_a_hook_that_creates_the_configmap_anew_decides_nothing_about_modules(
    cluster: DevCluster, tmp_path: Path
) -> None:
    with operator(cluster, tmp_path) as made:
        platform(made)
        made.stop()
        made.delete("addon-operator")
        made.files(
            {
                "global-hooks/config.sh": noting_hook(
                    "config", "onStartup: 1", adding({"/global/of": "hook"}, to="CONFIG_VALUES")
                )
            }
        )
        made.start_ready()
        made.wait_idle()
        assert json.dumps(made.config_data()) == '{"global": "of: hook\\n"}'
        assert made.revisions("data") == {1: "deployed"}
        assert made.deployed("data") == {"size": "3"}
        assert is_held(made)
        made.stop()
        made.start_ready()
        assert is_held(made)

        made.configure({"dataEnabled": "false"})
        eventually(lambda: made.revisions("data") == {})
        made.wait_idle()
        assert made.modules()["data"]["state"] == "disabled"


def test_directories_of_many_modules_that_are_gone_purge_nothing(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as made:
        names = [f"m{number}" for number in range(5)]
        made.files({"modules/values.yaml": "".join(f"{name}Enabled: true\n" for name in names)})
        for name in names:
            made.module(f"010-{name}", config_map_chart(name, "a: '1'"))
        made.start_ready()
        (tmp_path / "hidden").mkdir()
        for name in names[:4]:
            (tmp_path / f"modules/010-{name}").rename(tmp_path / f"hidden/010-{name}")
        made.configure({"global": "a: 1"})
        eventually(lambda: "MODULES_HELD: m0, m1, m2, m3" in made.http("/status/converge")[1])
        made.wait_idle()
        assert [made.revisions(name) for name in names] == [{1: "deployed"}] * 5
        listed = made.debug("module", "list", "-o", "json")
        assert isinstance(listed, dict)
        held = listed["held"]
        assert isinstance(held, list)
        assert [entry["name"] for entry in held if isinstance(entry, dict)] == names[:4]
        assert "more than 3 (ADDON_OPERATOR_MAX_REMOVALS)" in json.dumps(held)

        for name in names[:4]:
            (tmp_path / f"hidden/010-{name}").rename(tmp_path / f"modules/010-{name}")
        made.configure({"global": "a: 2"})
        eventually(lambda: "MODULES_HELD" not in made.http("/status/converge")[1])
        made.wait_idle()
        assert [made.revisions(name) for name in names] == [{1: "deployed"}] * 5
