"""docs/hook-libraries.md: its examples work, its tables name what there is."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest

from addon_operator import sdk
from addon_operator.documents.jsondoc import JsonObject
from addon_operator.hooks.call import HookId
from addon_operator.hooks.config import parser
from addon_operator.sdk import operations
from tests.component.shell.bench import PROJECT, HookBench, HookRun
from tests.component.shell.conftest import LIBRARY

TEXT = (PROJECT / "docs" / "hook-libraries.md").read_text()
VALUES: JsonObject = {"global": {"discovery": {"nodeCount": 3}}, "myModule": {"maxReplicas": 2}}
ENVIRONMENT = {"ADDON_OPERATOR_SHELL_LIB": str(LIBRARY), "ADDON_OPERATOR_NAMESPACE": "ns"}


def _example(language: str, number: int = 0) -> str:
    found = re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    return str(found[number]).replace("#!/usr/bin/env python3", f"#!{sys.executable}")


def _check(config: HookRun, run: HookRun, deleted: str) -> None:
    parsed = parser.parse_config(config.stdout, scope="module", hook=HookId("my-module", "hooks/x"))
    assert parsed.order("beforeHelm") == 10
    assert (run.code, run.stderr) == (0, "")
    assert [(one.path, one.value) for one in run.patch()] == [("/myModule/internal", {"replicas": 2})]
    assert len(run.metrics()) == 1
    assert [str(one.common.target) for one in run.objects()] == [deleted]


def test_bash_example(bench: HookBench) -> None:
    hook = bench.write("example.sh", _example("bash"))
    config = bench.run(hook, "--config", environment=ENVIRONMENT)
    contexts: list[JsonObject] = [{"binding": "beforeHelm", "snapshots": {}}, {"binding": "afterDeleteHelm"}]
    run = bench.run(hook, contexts=contexts, values=VALUES, environment=ENVIRONMENT)
    _check(config, run, "ns/ConfigMap/my-module-state")


def test_reacting_example(bench: HookBench) -> None:
    hook = bench.write("reacting.sh", _example("bash", 1))
    config = bench.run(hook, "--config", environment=ENVIRONMENT)
    (binding,) = parser.parse_config(config.stdout, scope="module", hook=HookId("my-module", "hooks/x")).kubernetes
    snapshots: JsonObject = {binding.name: [{"filterResult": True}, {"filterResult": False}, {"filterResult": True}]}
    event: JsonObject = {"type": "Event", "watchEvent": "Added", "object": {}}
    contexts: list[JsonObject] = [{"binding": binding.name, "snapshots": snapshots, **event}]
    run = bench.run(hook, contexts=contexts, values=VALUES, environment=ENVIRONMENT)
    assert (run.code, run.stderr) == (0, "")
    assert [(one.path, one.value) for one in run.patch()] == [("/myModule/internal", {"readyNodes": 2})]


def test_python_example(bench: HookBench) -> None:
    hook = bench.write("example.py", _example("python"))
    nodes: JsonObject = {"nodes": [{"filterResult": unschedulable} for unschedulable in (False, False, False, True)]}
    event: JsonObject = {"type": "Event", "watchEvent": "Added", "object": {"metadata": {"name": "p"}}}
    contexts: list[JsonObject] = [{"binding": "beforeHelm", "snapshots": nodes}, {"binding": "done", **event}]
    _check(bench.run(hook, "--config"), bench.run(hook, contexts=contexts, values=VALUES), "my-module/Pod/p")


def test_bash_functions_are_those_in_the_tables() -> None:
    program = f"source '{LIBRARY}'; compgen -A function"
    names = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True).stdout.split()
    public = {name for name in names if not re.search(r"::_", name)}
    table = TEXT.split("### Functions")[1].split("\n- ")[0]
    assert set(re.findall(r"`([a-z]+::[a-z:_]+)", table)) | {"hook::run"} == public


def test_bash_handlers_are_those_in_the_table() -> None:
    known = set(re.findall(r'"(__[a-z_:]+)', (LIBRARY.parent / "contexts.jq").read_text()))
    table = TEXT.split("### Handlers")[1].split("`__on_before_helm`")[0]
    documented = set(re.findall(r"`(__[a-z_]+(?:::)?)", table)) - {"__config__"}
    assert {name for name in known if not re.match(r"__on_(before|after)_", name)} == documented


@pytest.mark.parametrize("name", [name for name in sdk.__all__ if not name.startswith("Json")])
def test_python_names_are_in_the_document(name: str) -> None:
    if name not in {"BindingContext", "Hook", "Values"}:
        assert re.search(rf"`[^`]*\b{name}\b[^`]*`|import .*\b{name}\b", TEXT)


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ("metrics", operations.Metrics),
        ("kube", operations.Kube),
        ("admission", operations.AdmissionAnswer),
        ("conversion", operations.ConversionAnswer),
    ],
)
def test_python_methods_are_those_in_the_table(row: str, kind: type) -> None:
    line = next(line for line in TEXT.splitlines() if line.startswith(f"| `{row}` |"))
    methods = {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}
    assert set(re.findall(r"`([a-z_]+)`", line.split("|")[2].split(";")[0])) == methods
