"""Lifecycle of global hooks and modules, seen from outside: what runs in which order, with which input.

What is repeated, and what leads to one more converge, is in `tests/component/modules/test_lifecycle.py`.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from addon_operator.devcluster import DevCluster
from addon_operator.documents.jsondoc import JsonObject
from tests.cluster.operator import Operator, adding, config_map_chart, eventually, noting_hook, operator

# Helm's place in the order of hooks: a helm that notes `helm COMMAND` before it starts.
NOTING_HELM = """#!/bin/bash
case "$1" in upgrade|uninstall) jq -cn --arg hook "$2" --arg binding "$1" '{$hook, $binding}' >>"$OUT/seen";; esac
exec "$OUT/helm" "$@"
"""
ENABLED_NOTE = """#!/bin/bash
files=$(stat -c '%n %a %s' "$VALUES_PATH" "$CONFIG_VALUES_PATH" "$MODULE_ENABLED_RESULT" "$MODULE_ENABLED_REASON" \\
  "${VALUES_PATH%/*}")
more="$BINDING_CONTEXT_PATH$VALUES_JSON_PATCH_PATH"
jq -cn --arg files "$files" --arg more "$more" \\
  --slurpfile values "$VALUES_PATH" --slurpfile config "$CONFIG_VALUES_PATH" \\
  '{$files, $more, values: $values[0], config: $config[0]}' >>"$OUT/asked"
echo true >"$MODULE_ENABLED_RESULT"
"""


def with_noting_helm(made: Operator) -> None:
    made.files({"noting-helm": NOTING_HELM})
    made.environment["HELM_BIN_PATH"] = str(made.root / "noting-helm")


def lifecycle_hook(name: str, *bindings: str, body: str = "") -> str:
    """A module's hook with these bindings, all of order 1."""
    return noting_hook(name, "\n".join(f"{binding}: 1" for binding in bindings), body)


def run_of(made: Operator, run: str) -> JsonObject:
    """What a noting hook was given in its only run of this kind."""
    (found,) = [seen for seen in made.seen() if f"{seen['hook']} {seen['binding']}" == run]
    return found


def check_files(made: Operator, seen: JsonObject, *, result_files: int) -> None:
    """The files are private, those for results were empty, and all are gone."""
    *lines, directory = [line.rsplit(" ", 2) for line in str(seen["files"]).splitlines()]
    assert directory[1] == "700"
    assert {mode for _, mode, _ in lines} == {"600"}
    assert [size for _, _, size in lines].count("0") == result_files
    assert {Path(path).is_relative_to(made.root / "tmp") for path, _, _ in lines} == {True}
    assert not any(Path(path).exists() for path, _, _ in lines)


def test_the_golden_order_of_a_start(cluster: DevCluster, tmp_path: Path) -> None:
    """Contract 3.7 without kubernetes and schedule bindings; 2.4 and 2.7 for what hooks are given."""
    with operator(cluster, tmp_path) as made:
        with_noting_helm(made)
        made.files(
            {
                # `a/` comes before `hook` by path, whatever the file is called.
                "global-hooks/a/hook04.sh": noting_hook("hook04", "onStartup: 10"),
                "global-hooks/hook01.sh": noting_hook("hook01", "onStartup: 20\nbeforeAll: 2"),
                "global-hooks/hook02.sh": noting_hook("hook02", "onStartup: 1\nbeforeAll: 1", "pwd >$OUT/cwd"),
                "global-hooks/hook03.sh": noting_hook("hook03", "onStartup: 10\nafterAll: 5"),
                "modules/values.yaml": "global: {file: 1}\nalpha: {file: 2}\nalphaEnabled: true\nlastEnabled: true\n"
                "emptyEnabled: true\n",
            }
        )
        chart = config_map_chart("golden", "seen: {{ .Values | toJson | quote }}")
        del chart["Chart.yaml"]  # a module may have templates only
        made.module("010-alpha", {
            **chart,
            "hooks/1.sh": noting_hook("alpha/1", "onStartup: 2\nbeforeHelm: 2\nafterHelm: 1"),
            "hooks/2.sh": noting_hook("alpha/2", "onStartup: 1\nbeforeHelm: 1\nafterHelm: 1"),
        })  # fmt: skip
        made.module("020-last", {
            "enabled": ENABLED_NOTE, "hooks/1.sh": lifecycle_hook("last", "onStartup", "beforeHelm", "afterHelm")
        })  # fmt: skip
        made.module("030-empty", {"README.md": "A module may have nothing at all."})
        made.module("015-off", {"hooks/1.sh": lifecycle_hook("off", "onStartup", "beforeHelm", "afterHelm")})
        made.configure({"global": "config: 3", "alpha": "config: 4"})
        made.start_ready()

        assert made.runs() == [
            *("hook02 onStartup", "hook04 onStartup", "hook03 onStartup", "hook01 onStartup"),
            *("hook02 beforeAll", "hook01 beforeAll"),
            *("alpha/2 onStartup", "alpha/1 onStartup", "alpha/2 beforeHelm", "alpha/1 beforeHelm"),
            *("alpha upgrade", "alpha/1 afterHelm", "alpha/2 afterHelm"),
            *("last onStartup", "last beforeHelm", "last afterHelm"),
            "hook03 afterAll",
        ]

        shared = {"file": 1, "config": 3}
        onstartup, before_all = run_of(made, "hook02 onStartup"), run_of(made, "hook02 beforeAll")
        assert onstartup["context"] == [{"binding": "onStartup"}]
        assert before_all["context"] == [{"binding": "beforeAll", "snapshots": {}}]
        assert onstartup["config"] == {"global": {"config": 3}}
        assert onstartup["values"] == {"global": shared}
        check_files(made, onstartup, result_files=4)
        assert made.lines("cwd")[0] == str(made.root)

        helm = run_of(made, "alpha/1 beforeHelm")
        assert helm["context"] == [{"binding": "beforeHelm", "snapshots": {}}]
        assert helm["config"] == {"global": {"config": 3}, "alpha": {"config": 4}}
        module_values = {"file": 2, "config": 4}
        with_names = shared | {"enabledModules": ["alpha", "last", "empty"]}
        assert helm["values"] == {"global": with_names, "alpha": module_values}
        check_files(made, helm, result_files=4)

        asked = json.loads(made.lines("asked")[0])
        assert asked["values"] == {"global": shared | {"enabledModules": ["alpha"]}, "last": {}}
        assert asked["config"] == {"global": {"config": 3}, "last": {}}
        assert asked["more"] == ""
        check_files(made, asked, result_files=2)

        passed = json.loads(made.deployed("golden")["seen"])
        assert passed == {"global": shared, "alpha": module_values}
        left = [path for path in (made.root / "tmp").glob("run-*/**/*") if path.is_file()]
        assert left == []
        assert {path.stat().st_mode & 0o777 for path in (made.root / "tmp").glob("run-*")} == {0o700}


def test_a_module_is_deleted_and_begins_a_new_life(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as made:
        with_noting_helm(made)
        once = adding({"/one/note": "of the first life"})
        every = ("onStartup", "beforeHelm", "afterHelm", "beforeDeleteHelm", "afterDeleteHelm")
        body = f'if [ "$binding" = onStartup ] && [ ! -e $OUT/lived ]; then {once}; touch $OUT/lived; fi'
        chart = config_map_chart("one", 'note: {{ .Values.one.note | default "none" }}')
        made.module("010-one", {**chart, "hooks/h.sh": lifecycle_hook("one", *every, body=body)})
        made.module("020-two", {"hooks/h.sh": lifecycle_hook("two", *every)})
        made.configure({"oneEnabled": "true", "twoEnabled": "true"})
        made.start_ready()
        assert made.deployed("one") == {"note": "of the first life"}
        before = len(made.runs())

        made.configure({"oneEnabled": "false", "twoEnabled": "false"})
        eventually(lambda: "one afterDeleteHelm" in made.runs())
        made.wait_idle()
        # Exactly the reverse of the run order; two has no release, so nothing comes before the removal of one.
        deleted = ["two afterDeleteHelm", "one beforeDeleteHelm", "one uninstall", "one afterDeleteHelm"]
        assert made.runs()[before:] == deleted
        context = run_of(made, "one beforeDeleteHelm")["context"]
        assert context == [{"binding": "beforeDeleteHelm", "snapshots": {}}]
        assert made.revisions("one") == {}
        assert made.objects.get("configmap", "one") is None
        assert made.modules()["one"]["state"] == "disabled"

        made.configure({"oneEnabled": "true"})
        eventually(lambda: made.deployed("one") == {"note": "none"})
        made.wait_idle()
        assert made.runs()[before + 4 :] == ["one onStartup", "one beforeHelm", "one upgrade", "one afterHelm"]
        assert made.ask("/module/one/patches.json") == []


def test_only_releases_of_ours_without_a_module_are_purged(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path, {"HELM_IGNORE_RELEASE": "self"}) as made:
        names = ("gone-a", "gone-b", "self", "stays")
        made.files({"modules/values.yaml": "goneAEnabled: true\ngoneBEnabled: true\nselfEnabled: true\n"
                                           "staysEnabled: true\n"})  # fmt: skip
        for name in names:
            hooks = {"hooks/h.sh": lifecycle_hook(name, "beforeDeleteHelm", "afterDeleteHelm")}
            made.module(name, {**config_map_chart(name, "a: b"), **hooks})
        foreign = tmp_path / "foreign"
        foreign.mkdir()
        for name, text in config_map_chart("foreign", "a: b").items():
            made.files({f"foreign/{name}": text})
        argv = [cluster.environment()["HELM_BIN_PATH"], "install", "foreign", str(foreign), "-n", made.namespace]
        subprocess.run(argv, env=made.environment, check=True, capture_output=True)
        made.start_ready()

        for name in names[:3]:
            (made.root / "modules" / name).rename(made.root / name)
        made.configure({"global": "a: 1"})
        eventually(lambda: made.revisions("gone-a") == made.revisions("gone-b") == {})
        made.wait_idle()
        assert made.revisions("self") == made.revisions("stays") == made.revisions("foreign") == {1: "deployed"}
        uninstalled = [line.split()[1] for line in made.lines("helm-calls") if line.startswith("uninstall")]
        assert uninstalled == ["gone-b", "gone-a"]
        assert made.runs() == []
        assert list(made.modules()) == ["stays"]
        assert "modules on disk changed" in made.text()

        # A directory that is empty for a while, or a link that leads nowhere, is no reason to uninstall.
        (made.root / "modules/stays").rename(made.root / "stays")
        made.configure({"global": "a: 2"})
        eventually(lambda: "MODULES_HELD: stays" in made.http("/status/converge")[1])
        (made.root / "modules/another").mkdir()
        (made.root / "modules/stays").symlink_to(made.root / "nowhere")
        made.configure({"global": "a: 3"})
        eventually(lambda: made.in_log("stays: broken symbolic link"))
        made.wait_idle()
        assert made.revisions("stays") == {1: "deployed"}
        (made.root / "modules/stays").unlink()
        (made.root / "modules/another").rmdir()
        (made.root / "modules/stays").symlink_to(made.root / "stays")
        made.configure({"global": "a: 4"})
        eventually(lambda: list(made.modules()) == ["stays"] and made.modules()["stays"]["state"] == "ready")
        made.wait_idle()
        assert made.revisions("stays") == {1: "deployed"}

        # What was disabled or removed while the operator was down is found by its release.
        assert made.stop() == 0
        made.configure({"staysEnabled": "false"})
        (made.root / "gone-a").rename(made.root / "modules" / "gone-a")
        made.start_ready()
        assert made.runs() == ["stays beforeDeleteHelm", "stays afterDeleteHelm"]
        assert made.revisions("stays") == {}
        assert made.revisions("gone-a") == made.revisions("self") == made.revisions("foreign") == {1: "deployed"}
