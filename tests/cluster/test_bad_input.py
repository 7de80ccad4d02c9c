"""What people get wrong, and hooks that misbehave: a message says what and where, and the state stays what it was.

Source: contract.md 2.1 to 2.12, 6.1, 6.3.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from addon_operator.devcluster import DevCluster
from addon_operator.values.layers import section_key
from tests.cluster.operator import Operator, config_map_chart, eventually, operator

SECRET = "s3cret-marker"


def configured(text: str, body: str = "") -> str:
    """A hook that prints this configuration and does `body` otherwise."""
    return f"#!/bin/bash\nif [ \"$1\" = --config ]; then cat <<'END'\n{text}\nEND\nexit; fi\n{body}\n"


def refusal(made: Operator, *arguments: str) -> list[str]:
    """Starts an operator that must end with exit code 1; answers the message, line by line."""
    made.start(*arguments)
    assert made.process is not None
    code = made.process.wait(timeout=60)
    assert code == 1, made.text()
    return made.text().partition("Error: ")[2].splitlines()


def failure(made: Operator, module: str) -> str:
    """Waits until a module has failed; answers the error that `module list` shows."""

    def error() -> object:
        if made.process is not None and made.process.poll() is not None:
            raise RuntimeError(f"the operator ended with {made.process.returncode}:\n{made.text()}")
        return made.modules()[module]["lastError"]

    return str(eventually(error, what=f"{module} fails"))


# --- the operator does not start


def test_all_that_is_wrong_on_disk_is_told_at_once(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as made:
        made.files(
            {
                "modules/values.yaml": "a: 1\ndEnabled: maybe\n",
                "modules/010-a/values.yaml": "a: {b: [1\n",
                "modules/b/openapi/values.yaml": "type: strin\n",
                "modules/c/openapi/values.yaml": "x-extend: {schema: other.yaml}\n",
                "modules/d/values.yaml": "d: {}\ndEnabled: 1\n",
                "modules/e/openapi/config-values.yaml": "properties: {a: {$ref: '#/definitions/none'}}\n",
                "modules/f/openapi/config-values.yaml": "a: [\n",
                "modules/module_one/README.md": "",
                "global-hooks/openapi/values.yaml": "x-extend: {schema: config-values.yaml}\n",
            }
        )
        (tmp_path / "modules/g/values.yaml").mkdir(parents=True)
        assert [line.replace(str(tmp_path), "") for line in refusal(made)] == [
            "/modules/values.yaml:1: a must be a map or a list",
            "/modules/values.yaml:2: dEnabled must be true or false",
            "/modules/010-a/values.yaml:2: did not find expected ',' or ']'",
            "/modules/b/openapi/values.yaml: /type: has none of the forms that are allowed here",
            "/modules/c/openapi/values.yaml: /x-extend: must name the schema config-values.yaml",
            "/modules/d/values.yaml:2: dEnabled must be true or false",
            "/modules/e/openapi/config-values.yaml: $ref '#/definitions/none': there is nothing at this place",
            "/modules/f/openapi/config-values.yaml:2: did not find expected node content",
            "/modules/g/values.yaml: cannot be read: Is a directory",
            "/modules/module_one: module 'module_one': the name does not survive camelCase: its values key would be "
            "'moduleOne', which is the key of 'module-one'",
            "/global-hooks/openapi/values.yaml: /x-extend/schema: there is no config-values.yaml beside it, or it is "
            "empty",
        ]


GLOBAL_HOOKS = {
    "place.sh": configured("configVersion: v1\nbeforeHelm: 1\nafterDeleteHelm: 1"),
    "fails.sh": "#!/bin/bash\necho 'jq: command not found' >&2; exit 4\n",
    "later.sh": configured(
        "configVersion: v1\nkubernetes: [{kind: Pod}]\nschedule: [{crontab: '61 * * * *', includeSnapshotsFrom: [x]}]"
    ),
    "shebang.sh": "#!/no/such/shell\n",
    "unknown.sh": configured("configVersion: v1\nonStartup: 1\nonstartup: 2\nsettings: {timeout: 5, burst: 1}"),
    "version.sh": configured("configVersion: v7\nonStartup: 1"),
    "watch.sh": configured("configVersion: v1\nkubernetes: [{jqFilter: '.a |', executeHookOnEvent: [Seen]}]"),
    "yaml.sh": configured("configVersion: v1\nonStartup: [1"),
}

GLOBAL_HOOK_ERRORS = """\
global hook fails.sh: --config ended with exit code 4: jq: command not found
global hook later.sh: bad configuration:
  - schedule[0].crontab: [61 * * * *] is not acceptable, out of range
  - schedule[0].includeSnapshotsFrom: 'x' binding name not found
global hook place.sh: bad configuration:
  - beforeHelm: not possible in a global hook, only in a module hook
  - afterDeleteHelm: not possible in a global hook, only in a module hook
global hook shebang.sh: ROOT/global-hooks/shebang.sh: its interpreter /no/such/shell does not exist
global hook unknown.sh: bad configuration:
  - settings.timeout: must be a string, not an integer
  - settings.burst: unknown field
  - onstartup: unknown field
global hook version.sh: bad configuration:
  - configVersion: unsupported version 'v7', supported: v1
global hook yaml.sh: bad configuration:
  - output:3: did not find expected ',' or ']'"""


def test_a_bad_global_hook_ends_the_start(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as made:
        made.files({f"global-hooks/{name}": text for name, text in GLOBAL_HOOKS.items()})
        made.files({"global-hooks/plain.sh": "echo"})
        lines = [line.replace(str(tmp_path), "ROOT") for line in refusal(made)]
        start = lines.index("global hook watch.sh: bad configuration:")
        watch, others = lines[start : start + 4], lines[:start] + lines[start + 4 :]
        assert others == GLOBAL_HOOK_ERRORS.splitlines()
        assert [line.partition(":")[0].strip() for line in watch[1:]] == [
            "- kubernetes[0].kind",
            "- kubernetes[0].executeHookOnEvent[0]",
            "- kubernetes[0].jqFilter",
        ]


SETTINGS: Mapping[str, tuple[Mapping[str, str], str]] = {
    "namespace": (
        {"ADDON_OPERATOR_NAMESPACE": ""},
        "the namespace is missing: set ADDON_OPERATOR_NAMESPACE or --names",
    ),
    "helm missing": ({"HELM_BIN_PATH": "/no/such/helm"}, "HELM_BIN_PATH: /no/such/helm is not a file: install one and"),
    "helm too old": ({"HELM_BIN_PATH": "helm-v3.8.0"}, "helm-v3.8.0 is helm v3.8.0: helm 3.17 or later is needed, but"),
    "helm 4": ({"HELM_BIN_PATH": "helm-v4.1.0"}, "helm-v4.1.0 is helm v4.1.0: helm 3.17 or later is needed, but not h"),
    "no helm at all": ({"HELM_BIN_PATH": "helm-?"}, "helm-? is helm of unknown version: helm 3.17 or later is needed"),
    "helm 2": ({"TILLER_NAMESPACE": "x"}, "TILLER_NAMESPACE is set: Helm 2 is not supported, remove it"),
    "duration": ({"HOOK_TIMEOUT": "soon"}, "HOOK_TIMEOUT (--hook-timeout): 'soon' is not a duration such as"),
    "number": ({"HELM_HISTORY_MAX": "ten"}, "HELM_HISTORY_MAX (--helm-history-max): 'ten' is not an integer"),
    "modules directory": (
        {"MODULES_DIR": "/no/such/modules"},
        "/no/such/modules: no such modules directory; create it",
    ),
    "kubeconfig": ({"KUBE_CONFIG": "/no/such/config", "KUBECONFIG": ""}, "kubeconfig /no/such/config: no such file"),
}


@pytest.mark.parametrize(("environment", "message"), SETTINGS.values(), ids=SETTINGS)
def test_a_bad_setting_ends_the_start(
    cluster: DevCluster, tmp_path: Path, environment: Mapping[str, str], message: str
) -> None:
    with operator(cluster, tmp_path) as made:
        for version in ("v3.8.0", "v4.1.0"):
            made.files({f"helm-{version}": f"#!/bin/sh\necho {version}\n"})
        made.files({"helm-?": "#!/bin/sh\nexit 1\n"})
        made.environment |= environment
        assert message in "\n".join(refusal(made))
        assert "Traceback" not in made.text()
        assert "WARNING" not in made.text()


def test_a_bad_config_map_ends_the_start(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as made:
        typed = "type: object\nproperties: {z: {type: string}}\n"
        made.files(
            {
                "modules/values.yaml": "simpleModuleEnabled: true\nsimpleModule: {z: 1}\n",
                "modules/simple-module/openapi/config-values.yaml": typed,
                "modules/off/openapi/config-values.yaml": typed,
                "global-hooks/openapi/config-values.yaml": f"{typed}required: [domain]\n",
            }
        )
        made.configure(
            {
                "global": "a: [",
                "simple-module": "a: 1",
                "simpleModule": "5",
                "off": "z: !!bool hunter2",
                "offEnabled": "yes",
                "offMaintenance": "on",
            }
        )
        where = f"ConfigMap {made.namespace}/addon-operator, key"
        assert sorted(refusal(made)) == [
            f"{where} global:2: did not find expected node content",
            f"{where} off:1: a value does not fit its tag",
            f'{where} offEnabled: must be "true" or "false"',
            f"{where} offMaintenance: must be empty or 'NoResourceReconciliation'",
            f"{where} simple-module: bad module name, it should be camelCased, such as 'simpleModule'",
            f"{where} simpleModule:1: must be a map or a list",
        ]
        assert "hunter2" not in made.text()
        assert "Traceback" not in made.text()

        made.delete("addon-operator")
        made.configure({"global": "z: 1\nq: 2\n", "off": "z: 1\n"})
        made.log.unlink()
        assert refusal(made) == [
            "values are not valid:",
            "  - global.domain is required",
            "  - global.q is a forbidden property (ConfigMap key global)",
            "  - global.z in body must be of type string (ConfigMap key global)",
            f"  - simpleModule.z in body must be of type string ({tmp_path}/modules/values.yaml:2)",
        ]

        # The same for programs that read the log.
        made.log.unlink()
        made.start("--log-type", "json")
        assert made.process is not None
        assert made.process.wait(timeout=60) == 1
        last = json.loads(made.text().splitlines()[-1])
        assert (last["level"], last["msg"]) == ("error", "operator cannot go on")
        assert "global.domain is required" in last["error"]


# --- the operator goes on


def test_a_bad_hook_of_a_module_concerns_that_module(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as made:
        made.files({"modules/values.yaml": "goodEnabled: true\nbadEnabled: true\n"})
        made.module("010-good", config_map_chart("good", "a: b"))
        made.module("030-good", config_map_chart("another", "a: b"))
        made.files({"modules/notes.txt": "", "modules/.git/config": ""})
        made.module(
            "020-bad",
            {
                **config_map_chart("bad", "a: b"),
                "hooks/good.sh": configured("configVersion: v1\nbeforeHelm: 1", "echo good >>$OUT/runs"),
                "hooks/place.sh": configured("configVersion: v1\nbeforeAll: 1"),
                "hooks/sub/later.sh": configured("configVersion: v1\nonStartup: 1\nschedule: [{crontab: '@noon'}]"),
                "hooks/plain.sh": "echo\n",
            },
        )
        made.start()
        assert failure(made, "bad").splitlines() == [
            "hook hooks/place.sh of module bad: bad configuration:",
            "  - beforeAll: not possible in a module hook, only in a global hook",
            "hook hooks/sub/later.sh of module bad: bad configuration:",
            "  - schedule[0].crontab: unknown shortcut '@noon'",
        ]
        assert made.modules()["good"]["state"] == "ready"
        assert made.revisions("bad") == {}
        assert made.lines("runs") == []

        made.module("020-bad", {"hooks/place.sh": configured("configVersion: v1\nbeforeHelm: 2", "exit 0")})
        (tmp_path / "modules/020-bad/hooks/sub/later.sh").unlink()
        made.wait_ready()
        assert made.revisions("bad") == {1: "deployed"}
        assert made.lines("runs") == ["good"]
        for warning in (
            "modules/020-bad/hooks/plain.sh: ignored: not executable",
            f"modules/030-good: module good is already at {tmp_path}/modules/010-good, skipped",
            "modules/notes.txt: not a module directory, skipped",
        ):
            assert made.text().count(f"{tmp_path}/{warning}") == 1
        assert not made.in_log(".git")


def test_scripts_that_hang_when_they_are_asked(cluster: DevCluster, tmp_path: Path) -> None:
    deadlines = {"ENABLED_SCRIPT_TIMEOUT": "300ms", "HOOK_CONFIG_TIMEOUT": "300ms", "HOOK_KILL_GRACE": "100ms"}
    hang = "#!/bin/bash\ntrap '' TERM\nsleep 300 &\nwhile :; do sleep 0.05; done\n"
    with operator(cluster, tmp_path, deadlines) as made:
        made.files({"modules/values.yaml": "slowEnabled: true\n"})
        made.module("slow", {"enabled": hang, "hooks/slow.sh": hang})
        made.start()
        error = "enabled script of module slow: run was ended after 0.3 s, its deadline"
        eventually(lambda: f"failed: {error}" in made.cli("module", "explain", "slow").stdout)
        assert error in made.cli("queue", "main").stdout
        assert made.metric("module_discover_errors_total") >= 1
        assert made.metric("modules_discover_errors_total") >= 1
        made.module("slow", {"enabled": "#!/bin/bash\necho yes >$MODULE_ENABLED_RESULT\n"})
        error = "enabled script of module slow: MODULE_ENABLED_RESULT must be true or false, but holds something else"
        eventually(lambda: error in made.cli("queue", "main").stdout)
        made.module("slow", {"enabled": "#!/bin/bash\necho true >$MODULE_ENABLED_RESULT\n"})
        named = "hook hooks/slow.sh of module slow: --config was ended after 0.3 s, its deadline"
        assert failure(made, "slow") == named
        made.module("slow", {"hooks/slow.sh": configured("configVersion: v1\nbeforeHelm: 1")})
        made.wait_ready()
        assert left_running(made) == []
        assert "failed" not in made.cli("module", "explain", "slow").stdout

        # Files that become unreadable later are said by the commands; the modules known so far stay.
        made.module("slow", {"values.yaml": "slow: ["})
        made.configure({"global": "a: 1"})
        refused = "NOTE: files are refused, the modules known so far stay: "
        eventually(lambda: made.cli("module", "list", "-o", "text").stdout.startswith(refused))
        assert made.modules()["slow"]["state"] == "ready"
        made.module("slow", {"values.yaml": ""})
        made.configure({"global": "a: 2"})
        eventually(lambda: made.cli("module", "list", "-o", "text").stdout.startswith("NAME"))


def test_a_chart_that_does_not_render(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as made:
        made.files({"modules/values.yaml": "goodEnabled: true\nbadEnabled: true\n"})
        made.module("010-bad", config_map_chart("bad", "a: {{ .Values.bad.name | quote }}"))
        made.start_ready()
        made.module("010-bad", config_map_chart("bad", 'a: {{ fail "no name is given" }}'))
        made.configure({"bad": f"name: {SECRET}\n"})
        error = failure(made, "bad")
        assert "module bad" in error
        assert "bad/templates/config.yaml:6" in error
        assert "no name is given" in error
        assert SECRET not in error
        assert made.revisions("bad") == {1: "deployed"}
        assert made.deployed("bad") == {"a": ""}

        # What the API server refuses is named, too; the objects of the last good revision stay.
        made.module("010-bad", config_map_chart("bad", "a: {nested: true}"))
        eventually(lambda: "ConfigMap" in failure(made, "bad"))
        assert "module bad" in failure(made, "bad")
        # The chart's own schema is told by path and rule.
        schema = tmp_path / "modules/010-bad/values.schema.json"
        schema.write_text('{"properties": {"bad": {"properties": {"name": {"pattern": "^[a-z]+$"}}}}}')
        eventually(lambda: "- at '/bad/name': does not match pattern '^[a-z]+$'" in failure(made, "bad"))
        assert SECRET not in failure(made, "bad")
        schema.unlink()
        made.module("010-bad", config_map_chart("bad", "a: {{ .Values.bad.name | quote }}"))
        made.wait_idle()
        assert made.deployed("bad") == {"a": SECRET}
        assert SECRET not in made.text()


def test_secrets_are_in_no_log_and_in_no_file_that_stays(cluster: DevCluster, tmp_path: Path) -> None:
    patch = json.dumps([{"op": "add", "path": "/lab/patched", "value": f"{SECRET}-patch"}])
    foreign = json.dumps([{"op": "add", "path": "/other", "value": f"{SECRET}-foreign"}])
    body = f"""
echo '{patch}' >$VALUES_JSON_PATCH_PATH
echo '{{"op":"add","path":"/lab/saved","value":"{SECRET}-saved"}}' >$CONFIG_VALUES_JSON_PATCH_PATH
[ -e $OUT/repaired ] || echo '{foreign}' >$VALUES_JSON_PATCH_PATH
"""
    with operator(cluster, tmp_path, {"LOG_LEVEL": "debug"}) as made:
        made.files({"modules/values.yaml": f"labEnabled: true\nlab: {{file: {SECRET}-file}}\n"})
        schema = "type: object\nadditionalProperties: true\nproperties: {saved: {type: string, maxLength: 40}}\n"
        made.module(
            "lab",
            {
                **config_map_chart(
                    "lab", 'a: {{ .Values | toJson | quote }}\nb: {{ required "no mode" .Values.lab.mode }}'
                ),
                "openapi/config-values.yaml": schema,
                "hooks/lab.sh": configured("configVersion: v1\nbeforeHelm: 1", body),
            },
        )
        made.configure({"lab": f"key: {SECRET}-config\n"})
        made.start()
        assert "unacceptable patch operation for path '/other'" in failure(made, "lab")
        (tmp_path / "repaired").touch()
        eventually(lambda: "no mode" in failure(made, "lab"))
        shown = made.cli("module", "list", "-o", "text").stdout + made.cli("queue", "list").stdout
        shown += made.cli("module", "explain", "lab").stdout
        assert SECRET not in shown
        made.configure({"lab": f"key: {SECRET}-config\nmode: {SECRET}-mode\n"})
        made.wait_ready()
        made.configure({"lab": f"saved: {SECRET * 5}\n"})
        eventually(lambda: made.in_log("lab.saved in body should be at most 40 chars long"))
        made.configure({"lab": f"mode: [{SECRET}, 'x\n"})
        eventually(lambda: made.in_log("key lab:2"))
        assert SECRET in str(made.debug("module", "values", "lab", "-o", "json"))
        made.wait_idle()
        assert holding(SECRET.encode(), tmp_path / "tmp") == []
        assert made.stop() == 0
        assert SECRET not in made.text()
        assert SECRET not in made.helm_calls.read_text()
        assert holding(SECRET.encode(), tmp_path / "tmp") == []


def holding(marker: bytes, directory: Path) -> list[Path]:
    """Files below a directory that hold a text."""
    return [path for path in directory.rglob("*") if path.is_file() and marker in path.read_bytes()]


# --- hooks that misbehave

FAILING: Mapping[str, tuple[str, str]] = {
    "no-patch": ("echo '[{' >$VALUES_JSON_PATCH_PATH", "VALUES_JSON_PATCH_PATH: not a JSON patch: "),
    "no-object": (
        "echo 5 >$CONFIG_VALUES_JSON_PATCH_PATH",
        "CONFIG_VALUES_JSON_PATCH_PATH: operation 1: must be a m",
    ),
    "no-metric": ('echo \'{"name":"x"}\' >$METRICS_PATH', "METRICS_PATH"),
    "no-operation": ('echo \'{"operation":"Paint"}\' >$KUBERNETES_PATCH_PATH', "KUBERNETES_PATCH_PATH"),
    "large-file": ("truncate -s 100M $VALUES_JSON_PATCH_PATH", "VALUES_JSON_PATCH_PATH has 104857600 bytes, at most"),
    "link": ("ln -sf /etc/passwd $VALUES_JSON_PATCH_PATH", "VALUES_JSON_PATCH_PATH is a symbolic link"),
    "no-files": ("rm -r $(dirname $VALUES_PATH)", "the directory of its files was removed while it ran"),
    "fifo": ("rm $METRICS_PATH; mkfifo $METRICS_PATH", "METRICS_PATH is not a regular file any more"),
    "deaf": ("trap '' TERM; while :; do sleep 0.05; done", "run was ended after 0.4 s"),
    "hanging-family": ("(trap '' TERM; sleep 300) & setsid sleep 300 & wait", "run was ended after 0.4 s"),
    "crashing": ("kill -SEGV $$", "run ended with signal SIGSEGV"),
    "complaining": ("yes 'no space left' | head -c 300000 >&2; exit 9", "run ended with exit code 9: ...no space left"),
}
"""What a hook does, and what its module's error says."""
ENDLESS = ("deaf", "hanging-family")

PASSING: Mapping[str, str] = {
    "children": "sleep 300 & (sleep 300 &) ; setsid sleep 300 & setsid -f sleep 300",
    "pipe-holders": "setsid sh -c 'trap \"\" TERM HUP; sleep 300' & disown",
    "flood": "yes 'a line that says nothing' | head -c 9000000",
    "one-line": "head -c 3000000 /dev/zero | tr '\\0' x; echo; printf 'no end'",
    "closed-pipes": "exec >&- 2>&- <&-; sleep 0.1",
    "more-files": "cd $(dirname $VALUES_PATH); mkdir -p a/b; touch a/b/c; chmod 000 a; ln -s / root",
}
"""What a hook does; nothing of it is a reason to fail."""


def misbehaving(body: str, timeout: str) -> dict[str, str]:
    head = f"configVersion: v1\nbeforeHelm: 1\nsettings: {{timeout: {timeout}}}"
    return {"hooks/hook.sh": configured(head, f"{body}\nexit 0")}


def left_running(made: Operator) -> list[str]:
    """Processes that hooks have started: they inherit `$OUT`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode().split("\0")
            inherited = f"OUT={made.root}\0".encode() in (process / "environ").read_bytes()
        except OSError:
            continue
        if inherited and made.process is not None and int(process.name) != made.process.pid:
            found.append(" ".join(words))
    return found


def test_hooks_that_misbehave_neither_hang_nor_kill_it(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path, {"HOOK_KILL_GRACE": "100ms", "LOG_LEVEL": "warning"}) as made:
        flags = {f"{section_key(name)}Enabled": True for name in {**FAILING, **PASSING}}
        made.files({"modules/values.yaml": json.dumps({**flags, "lastEnabled": True})})
        made.files({"global-hooks/escape.sh": configured("configVersion: v1\nonStartup: 1", PASSING["children"])})
        for name, (body, _) in FAILING.items():
            made.module(f"1-{name}", misbehaving(body, "400ms" if name in ENDLESS else "30s"))
        for name, body in PASSING.items():
            made.module(f"1-{name}", misbehaving(body, "30s"))
        made.module("2-last", config_map_chart("last", "a: b"))
        made.start()

        errors = {name: failure(made, name) for name in FAILING}
        wrong = {name: error for name, error in errors.items() if FAILING[name][1] not in error}
        assert wrong == {}
        assert [name for name in errors if not errors[name].startswith(f"hook hooks/hook.sh of module {name}: ")] == []
        assert max(map(len, errors.values())) < 3000
        eventually(lambda: {made.modules()[name]["state"] for name in PASSING} == {"ready"}, what="the others ready")
        assert made.http("/healthz")[0] == 200

        for name in FAILING:
            made.module(f"1-{name}", misbehaving("exit 0", "30s"))
        made.wait_ready()
        made.wait_idle()
        assert {name: module["lastError"] for name, module in made.modules().items() if module["lastError"]} == {}
        assert made.revisions("last") == {1: "deployed"}
        assert left_running(made) == []
        (directory,) = (tmp_path / "tmp").glob("run-*")
        assert {path.name for path in directory.rglob("*")} <= {"helm"}
        assert made.stop() == 0
        assert not directory.exists()
