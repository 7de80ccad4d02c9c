"""What people see of a running operator: debug commands, HTTP pages, log level, the socket (contract 2.15 to 2.17)."""

from __future__ import annotations

import json
import re
import signal
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from addon_operator.devcluster import DevCluster
from addon_operator.documents.jsondoc import JsonObject, JsonValue, lookup
from tests.cluster.operator import Operator, config_map_chart, eventually, operator

MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00"

DISCOVER = """#!/bin/bash
if [ "$1" = --config ]; then echo '{"configVersion":"v1","onStartup":1,"afterAll":5}'; exit; fi
echo '[{"op":"add","path":"/global/nodes","value":3},{"op":"add","path":"/byHookEnabled","value":true}]' \
  >$VALUES_JSON_PATCH_PATH
echo '{"name":"platform_nodes","set":3,"labels":{"pool":"a"}}' >$METRICS_PATH
"""

TOKEN = """#!/bin/bash
if [ "$1" = --config ]; then echo '{"configVersion":"v1","beforeHelm":1}'; exit; fi
echo '{"op":"add","path":"/byFile/internal/token","value":"t0k"}' >$VALUES_JSON_PATCH_PATH
echo '{"op":"add","path":"/byFile/mode","value":"fast"}' >$CONFIG_VALUES_JSON_PATCH_PATH
"""

FAIL = """#!/bin/bash
if [ "$1" = --config ]; then echo '{"configVersion":"v1","beforeHelm":5}'; exit; fi
[ -e $OUT/repaired ] || { echo 'the disk of node-3 is full' >&2; exit 3; }
"""

COMMON_VALUES = """global: {region: north}
byFileEnabled: true
byScriptEnabled: true
overruledEnabled: true
failingEnabled: true
byFile:
  common: 1
"""

CONFIG_SCHEMA = """
type: object
properties:
  common: {type: integer}
  own: {type: string}
  list: {type: array, items: {type: string}}
  size: {type: integer, default: 7}
  mode: {type: string}
  zone: {type: string}
"""

VALUES_SCHEMA = """
x-extend: {schema: config-values.yaml}
type: object
properties:
  internal: {type: object, default: {}, properties: {token: {type: string}}}
"""


def platform(made: Operator) -> None:
    """One module for each way to be enabled or not; the last one fails until `$OUT/repaired` is there."""
    made.files({"modules/values.yaml": COMMON_VALUES, "global-hooks/hooks/discover.sh": DISCOVER})
    made.module(
        "010-by-file",
        {
            **config_map_chart("by-file", 'nodes: "{{ .Values.global.nodes }}"'),
            "values.yaml": "byFile:\n  own: two\n  list: [a, b]\n",
            "openapi/config-values.yaml": CONFIG_SCHEMA,
            "openapi/values.yaml": VALUES_SCHEMA,
            "hooks/token.sh": TOKEN,
        },
    )
    made.module("020-by-config-map", config_map_chart("by-config-map", "a: b"))
    made.module("030-by-hook", config_map_chart("by-hook", "a: b"))
    refusal = "#!/bin/bash\necho false >$MODULE_ENABLED_RESULT\necho 'needs a load balancer' >$MODULE_ENABLED_REASON\n"
    made.module("040-by-script", {**config_map_chart("by-script", "a: b"), "enabled": refusal})
    made.module("050-silent", config_map_chart("silent", "a: b"))
    made.module("060-overruled", config_map_chart("overruled", "a: b"))
    made.module("900-failing", {**config_map_chart("failing", "a: b"), "hooks/fail.sh": FAIL})
    made.configure({"byConfigMapEnabled": "true", "overruledEnabled": "false", "byFile": "zone: west\n"})


@pytest.fixture(scope="module")
def broken(cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """An operator whose last module fails for ever, so that the first converge does not end; only looked at."""
    with operator(cluster, tmp_path_factory.mktemp("broken")) as made:
        platform(made)
        made.start()
        eventually(lambda: made.modules()["failing"]["lastError"])
        yield made


def in_all_formats(made: Operator, *arguments: str) -> JsonValue:
    """The document of a command; JSON and YAML say the same."""
    document = made.debug(*arguments, "-o", "json")
    done = made.cli(*arguments, "-o", "yaml")
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout) == document
    return document


def samples(text: str) -> dict[str, float]:
    """Series with labels -> value, of a page in Prometheus text format."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_module_list_shows_all_modules_and_why(broken: Operator) -> None:
    document = broken.debug("module", "list", "-o", "json")
    assert isinstance(document, dict)
    assert document["enabledModules"] == ["by-config-map", "by-file", "by-hook", "failing"]
    modules = broken.modules()
    assert list(modules) == ["by-file", "by-config-map", "by-hook", "by-script", "silent", "overruled", "failing"]
    shown = {
        name: tuple(module[key] for key in ("order", "enabled", "state", "release", "revision"))
        for name, module in modules.items()
    }
    assert shown == {
        "by-file": (10, True, "ready", "by-file", 1),
        "by-config-map": (20, True, "ready", "by-config-map", 1),
        "by-hook": (30, True, "ready", "by-hook", 1),
        "by-script": (40, False, "disabled", None, None),
        "silent": (50, False, "disabled", None, None),
        "overruled": (60, False, "disabled", None, None),
        "failing": (900, True, "failed", None, None),
    }
    assert modules["by-script"]["reason"] == "enabled script says false: needs a load balancer"
    assert modules["by-file"]["durationSeconds"]
    failure = "hook hooks/fail.sh of module failing: run ended with exit code 3: the disk of node-3 is full"
    assert modules["failing"]["lastError"] == failure

    in_yaml = yaml.safe_load(broken.cli("module", "list").stdout)
    assert [module["name"] for module in in_yaml["modules"]] == list(modules)
    note, _, text = broken.cli("module", "list", "-o", "text").stdout.partition("\n\n")
    assert re.fullmatch(rf"NOTE: queue main is held up: ModuleRun:main:failing:.*:failures \d+:{failure}", note)
    table = text.splitlines()
    assert " ".join(table[0].split()) == "NAME ORDER ENABLED STATE RELEASE REVISION DURATION REASON LAST ERROR"
    rows = {line.split()[0]: line for line in table[1:]}
    assert re.match(r"by-file +10 +yes +ready +by-file +1 +[\d.]+s +enabled by values file \S+:2 +-$", rows["by-file"])
    assert re.match(r"by-script +40 +no +disabled +- +- +- +enabled script says false: needs a", rows["by-script"])
    assert rows["failing"].endswith(failure)


EXPLAINED = {
    "by-file": (
        r"(?s).*Module: +by-file\nDirectory: \S+/modules/010-by-file\n.*Enabled: +yes\nState: +ready\n"
        r".*values file +true +\S+/modules/values\.yaml:2 +decides\n"
        rf".*Release by-file in namespace \S+: revision 1, deployed\n  last decision at {MOMENT}: install: there is no"
    ),
    "by-config-map": r"(?s).*\n  ConfigMap +true +\S+/addon-operator, key byConfigMapEnabled +decides\n",
    "by-hook": rf"(?s).*\n  global hook +true +hooks/discover\.sh at {MOMENT} +decides\n",
    "overruled": (
        r"(?s).*Enabled: +no\n.*\n  values file +true +\S+/modules/values\.yaml:4\n"
        r"  ConfigMap +false +\S+/addon-operator, key overruledEnabled +decides\n"
    ),
    "by-script": (
        r"(?s).*Enabled: +no\n.*values file +true +\S+/modules/values\.yaml:3 +decides\n"
        r".*Enabled script \S+/040-by-script/enabled:\n  says disabled, reason: needs a load balancer\n"
    ),
    "silent": r"(?s).*Enabled: +no\n.*\n  No source says anything, so the module is disabled\.\n",
    "failing": (
        r"(?s).*State: +failed\n.*Release failing in namespace \S+: not installed\n"
        r".*Last error:\n  hook hooks/fail\.sh of module failing: run ended with exit code 3: the disk of node-3 is"
    ),
}


@pytest.mark.parametrize("module", EXPLAINED)
def test_explain(broken: Operator, module: str) -> None:
    text = broken.cli("module", "explain", module).stdout
    assert re.match(EXPLAINED[module], text), text


def test_explain_as_a_document(broken: Operator) -> None:
    document = in_all_formats(broken, "module", "explain", "overruled")
    assert isinstance(document, dict)
    flags = [(flag["source"], flag["value"], flag["decides"]) for flag in _objects(document["flags"])]
    assert flags == [("values file", True, False), ("ConfigMap", False, True)]
    assert document["script"] is None
    script = lookup(broken.debug("module", "explain", "by-script", "-o", "json"), "/script")
    assert isinstance(script, dict)
    assert (script["result"], script["reason"]) == (False, "needs a load balancer")


def _objects(value: JsonValue) -> list[JsonObject]:
    assert isinstance(value, list)
    return [item for item in value if isinstance(item, dict)]


ORIGINS: Mapping[str, str] = {
    "/global/region": r"\S+/modules/values\.yaml:1",
    "/global/nodes": rf"hook hooks/discover\.sh at {MOMENT}",
    "/byFile/common": r"\S+/modules/values\.yaml:7",
    "/byFile/own": r"\S+/010-by-file/values\.yaml:2",
    "/byFile/list/0": r"\S+/010-by-file/values\.yaml:3",
    "/byFile/list/1": r"\S+/010-by-file/values\.yaml:3",
    "/byFile/size": r"default in \S+/010-by-file/openapi/config-values\.yaml",
    "/byFile/zone": "ConfigMap key byFile",
    "/byFile/mode": "ConfigMap key byFile",
    "/byFile/internal/token": rf"hook hooks/token\.sh at {MOMENT}",
}


def test_each_value_has_an_origin(broken: Operator) -> None:
    document = broken.debug("module", "values", "by-file", "--origin", "-g", "-o", "json")
    origins = lookup(document, "/origins")
    assert isinstance(origins, dict)
    assert origins.keys() == ORIGINS.keys()
    for pointer, text in origins.items():
        assert re.fullmatch(ORIGINS[pointer], str(text)), pointer

    commented = broken.cli("module", "values", "by-file", "--origin").stdout
    assert yaml.safe_load(commented) == broken.debug("module", "values", "by-file", "-o", "json")
    assert re.search(r"^  common: 1  # \S+/modules/values\.yaml:7$", commented, re.MULTILINE)
    assert re.search(rf"^    token: t0k  # hook hooks/token\.sh at {MOMENT}$", commented, re.MULTILINE)
    assert not re.search(r"^global:", commented, re.MULTILINE)


def test_values_config_and_patches(broken: Operator) -> None:
    internal: JsonObject = {"token": "t0k"}
    values: JsonObject = {
        "common": 1, "own": "two", "list": ["a", "b"], "size": 7, "zone": "west", "mode": "fast", "internal": internal,
    }  # fmt: skip
    shared: JsonObject = {"region": "north", "nodes": 3}
    token: JsonObject = {"op": "add", "path": "/byFile/internal/token", "value": "t0k"}
    nodes: JsonObject = {"op": "add", "path": "/global/nodes", "value": 3}
    assert in_all_formats(broken, "module", "values", "by-file") == {"byFile": values}
    assert in_all_formats(broken, "module", "values", "-g", "by-file") == {"global": shared, "byFile": values}
    assert in_all_formats(broken, "module", "config", "by-file") == {"byFile": {"zone": "west", "mode": "fast"}}
    assert in_all_formats(broken, "module", "config", "-g", "by-file") == {
        "global": {},
        "byFile": {"zone": "west", "mode": "fast"},
    }
    assert broken.debug("module", "patches", "by-file") == [{"Operations": [token]}]
    assert broken.debug("module", "patches", "by-config-map") == []
    assert in_all_formats(broken, "module", "snapshots", "by-file") == {}
    assert in_all_formats(broken, "global", "list") == {"globalHooks": ["hooks/discover.sh"]}
    assert in_all_formats(broken, "global", "values") == shared
    assert in_all_formats(broken, "global", "config") == {}
    assert in_all_formats(broken, "global", "patches") == [{"Operations": [nodes]}]
    assert in_all_formats(broken, "global", "snapshots") == {}


def test_resource_monitor(broken: Operator) -> None:
    watched = in_all_formats(broken, "module", "resource-monitor")
    assert isinstance(watched, dict)
    assert watched["by-file"] == [f"{broken.namespace}/ConfigMap/by-file"]
    assert watched["failing"] == "No monitor"
    text = broken.cli("module", "resource-monitor", "-o", "text").stdout
    assert f"by-file:\n  {broken.namespace}/ConfigMap/by-file\n" in text


def test_queues(broken: Operator) -> None:
    text = broken.cli("queue", "list").stdout
    assert re.fullmatch(
        r"Queue 'main': length 2, status: '(sleep after fail for [\d.]+s|repeat head task)'\n\n"
        r" 1\. ModuleRun:main:failing:OperatorStartup:failures \d+:hook hooks/fail\.sh of module failing: .* is full\n"
        r" 2\. ConvergeModules:main:WaitDeleteAndRunModules:OperatorStartup\n\n"
        r"Summary:\n- 'main' queue: 2 tasks\.\n- 0 other queues \(0 active, 0 empty\): 0 tasks\.\n"
        r"- total 2 tasks to handle\.\n",
        text,
    ), text
    assert broken.cli("queue", "main").stdout.startswith("Queue 'main': length 2, status: '")
    document = broken.debug("queue", "list", "-e", "-o", "json")
    assert lookup(document, "/summary") == {
        "mainQueueTasks": 2,
        "otherQueues": {"active": 0, "empty": 0, "tasks": 0},
        "totalTasks": 2,
    }
    assert lookup(document, "/active/0/name") == "main"
    assert lookup(document, "/active/0/tasksCount") == 2
    assert str(lookup(document, "/active/0/tasks/0/description")).startswith("ModuleRun:main:failing:OperatorStartup:")
    assert lookup(broken.debug("queue", "main", "-o", "json"), "/tasks/1/index") == 2
    assert yaml.safe_load(broken.cli("queue", "list", "-o", "yaml").stdout)["summary"]["totalTasks"] == 2


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("module", "values", "nope"), 1, "module not found: nope"),
        (("module", "explain", "byFile"), 1, "module not found: byFile"),
        (("raw", "/nope"), 1, "no such page"),
        (("config", "set", "log.level", "loud"), 1, "'loud' is not a log level"),
        (("config", "set", "log.colour", "red"), 1, "no parameter log.colour"),
        (("config", "set", "log.level", "debug", "soon"), 1, "duration"),
        (("global", "values", "-o", "text"), 2, "'text' is not one of"),
        (("queue", "list", "--debug-unix-socket", "nowhere"), 1, "no operator listens on nowhere"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_an_error_is_on_stderr_and_in_the_exit_code(
    broken: Operator, arguments: tuple[str, ...], code: int, words: str
) -> None:
    done = broken.cli(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr


def test_pages_while_the_first_converge_runs(broken: Operator) -> None:
    assert broken.http("/healthz")[0] == 200
    assert broken.http("/readyz") == (500, "Startup converge in progress")
    assert broken.http("/status/converge") == (
        200,
        "STARTUP_CONVERGE_IN_PROGRESS: 2 tasks\nCONVERGE_IN_PROGRESS: 2 tasks\n",
    )
    assert json.loads(broken.http("/status/converge?output=json")[1]) == {
        "CONVERGE_IN_PROGRESS": 2,
        "CONVERGE_WAIT_TASK": False,
        "STARTUP_CONVERGE_DONE": False,
        "STARTUP_CONVERGE_IN_PROGRESS": 2,
        "STARTUP_CONVERGE_NOT_STARTED": False,
    }
    assert "/status/converge" in broken.http("/")[1]
    assert broken.http("/nope")[0] == 404


def test_metrics_of_a_failing_module(broken: Operator) -> None:
    labels = 'activation="OperatorStartup",binding="beforeHelm",hook="hooks/fail.sh",module="failing",queue="main"'
    page = samples(broken.http("/metrics")[1])
    failures = page["addon_operator_module_run_errors_total" + '{module="failing"}']
    assert failures >= 1
    assert page[f"addon_operator_module_hook_errors_total{{{labels}}}"] == failures
    assert page[f"addon_operator_module_hook_run_errors_total{{{labels}}}"] == failures
    assert page['addon_operator_tasks_queue_length{queue="main"}'] == 2
    assert page['addon_operator_mm_module_enabled{module="by-script",version="0.0.1"}'] == 0
    started = 'activation="OperatorStartup",binding="onStartup",hook="hooks/discover.sh",queue="main"'
    assert page[f"addon_operator_global_hook_success_total{{{started}}}"] == 1
    assert page[f"addon_operator_global_hook_run_success_total{{{started}}}"] == 1
    made_by_hook = {'platform_nodes{hook="hooks/discover.sh",pool="a"}': 3.0}
    assert page.items() >= made_by_hook.items()
    assert samples(broken.http("/metrics/hooks")[1]) == made_by_hook


def test_from_the_first_converge_to_the_end(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as made:
        platform(made)
        made.start()
        eventually(lambda: made.modules()["failing"]["lastError"])
        (tmp_path / "repaired").touch()
        made.wait_ready()
        made.wait_idle()
        _check_pages_when_ready(made)
        _check_log_level(made)

        assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600
        made.stop(signal.SIGKILL)
        assert (tmp_path / "s").is_socket()
        done = made.cli("module", "list")
        assert (done.returncode, done.stdout) == (1, "")
        assert "no operator listens on" in done.stderr

        made.start_ready()
        assert made.modules()["failing"]["state"] == "ready"
        assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600
        assert made.stop() == 0
        assert not (tmp_path / "s").exists()


def _check_pages_when_ready(made: Operator) -> None:
    assert made.http("/healthz")[0] == 200
    assert made.http("/readyz") == (200, "Startup converge done.")
    assert made.http("/status/converge") == (200, "STARTUP_CONVERGE_DONE\nCONVERGE_WAIT_TASK\n")
    assert json.loads(made.http("/status/converge?output=json")[1]) == {
        "CONVERGE_IN_PROGRESS": 0,
        "CONVERGE_WAIT_TASK": True,
        "STARTUP_CONVERGE_DONE": True,
        "STARTUP_CONVERGE_IN_PROGRESS": 0,
        "STARTUP_CONVERGE_NOT_STARTED": False,
    }
    page = samples(made.http("/metrics")[1])
    startup = '{activation="OperatorStartup"}'
    assert page[f"addon_operator_convergence_total{startup}"] == 1
    assert page[f"addon_operator_convergence_seconds{startup}"] > 0
    for name in ("module_discover_errors_total", "modules_discover_errors_total", "config_values_errors_total"):
        assert page[f"addon_operator_{name}"] == 0, name
    operation = '{activation="OperatorStartup",module="by-file",operation="upgrade"}'
    assert page[f"addon_operator_helm_operation_seconds_count{operation}"] == 1
    assert page['addon_operator_module_helm_seconds_count{activation="OperatorStartup",module="by-file"}'] == 1
    assert page['addon_operator_module_run_seconds_count{activation="OperatorStartup",module="failing"}'] == 1
    assert page['addon_operator_binding_count{hook="hooks/discover.sh",module=""}'] == 2
    assert page['addon_operator_tasks_queue_length{queue="main"}'] == 0
    assert page["addon_operator_live_ticks"] >= 1
    assert made.modules()["failing"]["lastError"] is None


def _check_log_level(made: Operator) -> None:
    assert made.cli("config", "set", "log.level", "error").stdout == "log.level = error\n"
    before = len(made.text())
    made.configure({"byFile": "zone: south\n"})
    eventually(lambda: lookup(made.debug("module", "config", "by-file", "-o", "json"), "/byFile/zone") == "south")
    made.wait_idle()
    assert made.text()[before:] == ""
    made.cli("config", "set", "log.level", "debug", "1h")
    document = made.debug("config", "list", "-o", "json")
    assert lookup(document, "/0/name") == "log.level"
    assert lookup(document, "/0/value") == "debug"
    expires = lookup(document, "/0/expiresInSeconds")
    assert isinstance(expires, float)
    assert 3500 < expires <= 3600
    made.configure({"byFile": "zone: north\n"})
    eventually(lambda: " DEBUG " in made.text()[before:])
    made.cli("config", "set", "log.level", "info", "50ms")
    eventually(lambda: lookup(made.debug("config", "list", "-o", "json"), "/0/value") == "error")
