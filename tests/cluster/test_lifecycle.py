"""Lifecycle of global hooks and modules, seen from outside: what runs in which order, with which input."""

from __future__ import annotations

import functools
import json
import re
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


def queue_shows(made: Operator, pattern: str) -> bool:
    return re.search(pattern, made.queue()) is not None


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


def test_a_failing_hook_is_repeated_and_the_order_is_kept(cluster: DevCluster, tmp_path: Path) -> None:
    """Retry from the hooks before Helm (contract 3.9); what comes after waits; the queue says what is wrong."""
    with operator(cluster, tmp_path) as made:
        with_noting_helm(made)
        fails = 'if [ "$binding" = afterHelm ] && [ ! -e "$OUT/well" ]; then echo "not today" >&2; exit 3; fi'
        made.files({"modules/values.yaml": "firstEnabled: true\nsecondEnabled: true\n"})
        hooks = lifecycle_hook("first", "onStartup", "beforeHelm", "afterHelm", body=fails)
        made.module("010-first", {**config_map_chart("first", "a: b"), "hooks/h.sh": hooks})
        made.module("020-second", {"hooks/h.sh": lifecycle_hook("second", "onStartup")})
        made.start()

        def failed_twice() -> str:
            text = made.queue()
            assert re.search(r"ModuleRun:main:first:OperatorStartup:failures ([2-9]|\d\d):", text), text
            return text

        text = eventually(failed_twice)
        assert "hook hooks/h.sh of module first: run ended with exit code 3: not today" in text
        assert text.splitlines()[2] == "ModuleRun:main:second:OperatorStartup"
        assert made.http("/readyz") == (500, "Startup converge in progress")
        assert "not today" in str(made.modules()["first"]["lastError"])
        assert made.metric('module_run_errors_total{module="first"}') >= 2
        (made.root / "well").touch()
        made.wait_ready()

        runs = made.runs()
        attempts = runs.count("first afterHelm")
        assert attempts >= 3
        # The release is there after the first attempt, so Helm has nothing to do in the others.
        first = ["first onStartup", "first beforeHelm", "first upgrade", "first afterHelm"]
        assert runs == [*first, *["first beforeHelm", "first afterHelm"] * (attempts - 1), "second onStartup"]
        assert made.modules()["first"]["lastError"] is None
        assert made.revisions("first") == {1: "deployed"}


def test_values_changed_after_helm_and_after_all_lead_to_one_more_run(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as made:
        with_noting_helm(made)
        found = adding({"/global/found": "by afterAll", "/lateEnabled": True})
        counted = adding({"/reader/seen": "by afterHelm"})
        made.files(
            {
                "modules/values.yaml": "readerEnabled: true\n",
                "global-hooks/choose.sh": noting_hook("choose", "beforeAll: 1", adding({"/chosenEnabled": True})),
                "global-hooks/find.sh": noting_hook("find", "afterAll: 1", found),
            }
        )
        data = 'seen: {{ .Values.reader.seen | default "" }}\nfound: {{ .Values.global.found | default "" }}'
        hooks = lifecycle_hook("reader", "onStartup", "beforeHelm", "afterHelm", body=(
            f'if [ "$binding" = afterHelm ]; then {counted}; fi'
        ))  # fmt: skip
        made.module("010-reader", {**config_map_chart("reader", data), "hooks/h.sh": hooks})
        made.module("020-chosen", {"hooks/h.sh": lifecycle_hook("chosen", "onStartup", "beforeHelm")})
        made.module("030-late", {"hooks/h.sh": lifecycle_hook("late", "onStartup", "beforeHelm")})
        needs = 'jq -e \'.global.enabledModules | index("late")\' "$VALUES_PATH" >"$MODULE_ENABLED_REASON"'
        made.module("040-follower", {
            "enabled": f'#!/bin/bash\n{needs} && r=true || r=false; echo $r >"$MODULE_ENABLED_RESULT"\n',
            "values.yaml": "followerEnabled: true\n",
            "hooks/h.sh": lifecycle_hook("follower", "onStartup"),
        })  # fmt: skip
        made.start_ready()
        made.wait_idle()

        upgrade = ["reader beforeHelm", "reader upgrade", "reader afterHelm"]
        assert made.runs() == [
            *("choose beforeAll", "reader onStartup", *upgrade, *upgrade),
            *("chosen onStartup", "chosen beforeHelm", "find afterAll"),
            *("choose beforeAll", *upgrade, "chosen beforeHelm"),
            *("late onStartup", "late beforeHelm", "follower onStartup", "find afterAll"),
        ]
        assert made.deployed("reader") == {"seen": "by afterHelm", "found": "by afterAll"}
        assert made.metric('convergence_total{activation="OperatorStartup"}') == 1
        assert made.metric('convergence_total{activation=""}') == 1
        log = made.text()
        assert "reason=AfterHelm-Hooks-Change-Values" in log
        assert "reason=AfterAll-Hooks-Change-GlobalValues" in log


def test_flags_that_a_hook_stores_in_the_config_map_take_effect(cluster: DevCluster, tmp_path: Path) -> None:
    """`fooEnabled` in a config patch is long-term (contract 3.9) and asks for one more converge; so does removal."""
    with operator(cluster, tmp_path) as made:
        remove = """echo '[{"op":"remove","path":"/keptEnabled"}]' >"$CONFIG_VALUES_JSON_PATCH_PATH\""""
        body = f"""case $(cat "$OUT/wish") in
          on) {adding({"/keptEnabled": True}, to="CONFIG_VALUES")};;
          off) {remove};;
        esac
        echo nothing >"$OUT/wish\""""
        made.files({"global-hooks/keep.sh": noting_hook("keep", "afterAll: 1", body), "wish": "on"})
        made.module("kept", {"hooks/h.sh": lifecycle_hook("kept", "onStartup", "afterDeleteHelm")})
        made.start_ready()
        made.wait_idle()
        assert made.config_data() == {"keptEnabled": "true"}
        assert made.runs() == ["keep afterAll", "kept onStartup", "keep afterAll"]
        made.files({"wish": "off"})
        made.configure({"global": "a: 1"})
        eventually(lambda: len(made.runs()) == 6)
        made.wait_idle()
        assert made.config_data() == {"global": "a: 1"}
        assert made.runs()[3:] == ["keep afterAll", "kept afterDeleteHelm", "keep afterAll"]


def test_modules_of_equal_order_run_side_by_side(cluster: DevCluster, tmp_path: Path) -> None:
    """Each waits for the other; only the one that fails is repeated; the next order waits for both."""
    with operator(cluster, tmp_path, {"ADDON_OPERATOR_MODULE_WORKERS": "2"}) as made:
        meet = 'touch "$OUT/{0}"; until [ -e "$OUT/{1}" ]; do sleep 0.02; done'
        fails = '\n[ "$binding" != afterHelm ] || [ -e "$OUT/well" ]'
        made.files({"modules/values.yaml": "aEnabled: true\nbEnabled: true\ncEnabled: true\n"})
        hooks = {"a": lifecycle_hook("a", "beforeHelm", "afterHelm", body=meet.format("a", "b") + fails)}
        hooks["b"] = lifecycle_hook("b", "beforeHelm", body=meet.format("b", "a"))
        for name, hook in hooks.items():
            made.module(f"010-{name}", {**config_map_chart(name, "a: b"), "hooks/h.sh": hook})
        made.module("020-c", {"hooks/h.sh": lifecycle_hook("c", "beforeHelm")})
        made.start()
        eventually(lambda: queue_shows(made, r"^sleep.*\nModuleRun:main:a:OperatorStartup:failures ([2-9]|\d\d):"))
        made.files({"well": ""})
        made.wait_ready()
        runs = made.runs()
        assert set(runs[:2]) == {"a beforeHelm", "b beforeHelm"}
        assert runs.count("b beforeHelm") == 1
        assert runs[2:] == [*["a afterHelm", "a beforeHelm"] * (len(runs) // 2 - 2), "a afterHelm", "c beforeHelm"]


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


def test_a_failing_enabled_script_is_asked_again(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as made:
        made.files({
            "modules/values.yaml": "askEnabled: true\n",
            "global-hooks/around.sh": noting_hook("around", "beforeAll: 1\nafterAll: 1"),
            "answer": "exit 4",
        })  # fmt: skip
        script, hooks = '#!/bin/bash\n. "$OUT/answer"\n', lifecycle_hook("ask", "onStartup")
        made.module("ask", {"enabled": script, "hooks/h.sh": hooks})
        made.start()
        for following, trouble in (
            ("true", "run ended with exit code 4"),
            ("echo maybe >$MODULE_ENABLED_RESULT", "MODULE_ENABLED_RESULT must be true or false, but is empty"),
            ("echo ' true ' >$MODULE_ENABLED_RESULT", "MODULE_ENABLED_RESULT must be true or false, but holds"),
        ):
            expected = rf"\nConvergeModules:main:WaitBeforeAll:OperatorStartup:failures \d+:.* ask: {trouble}"
            eventually(functools.partial(queue_shows, made, expected), what=trouble)
            made.files({"answer": following})
        made.wait_ready()
        assert made.metric("module_discover_errors_total") >= 3
        assert made.runs() == ["around beforeAll", "ask onStartup", "around afterAll"]
