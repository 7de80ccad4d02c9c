"""Python hooks as programs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.hooks.call import HookId
from addon_operator.hooks.config import model, parser
from addon_operator.metrics.operations import Record
from tests.component.sdk.conftest import WriteHook
from tests.component.shell.bench import HookBench

MAIN = 'if __name__ == "__main__":\n    main()'

HOOK = f"""
@hook(BeforeHelm(10), Kubernetes("nodes", kind="Node", jq_filter=".metadata.name"))
def main(ctx: Context) -> None:
    nodes = [node.filter_result for node in ctx.snapshots["nodes"]]
    ctx.values["myModule.internal.nodes"] = nodes
    ctx.config_values["myModule.seen"] = "ü \\"x\\"\\n"
    ctx.metrics.set("nodes", len(nodes))
    ctx.kube.delete("Pod", "p", namespace="n")
    print(ctx.module)

{MAIN}
"""


def test_config(bench: HookBench, write_hook: WriteHook) -> None:
    run = bench.run(write_hook(HOOK), "--config")
    config = parser.parse_config(run.stdout, scope="module", hook=HookId("my-module", "hooks/hook.py"))
    assert config.lifecycle == (model.Lifecycle("beforeHelm", 10),)
    assert config.kubernetes == (model.Kubernetes("nodes", "Node", jq_filter=".metadata.name"),)
    assert (run.code, run.is_silent) == (0, True)


def test_run(bench: HookBench, write_hook: WriteHook) -> None:
    contexts: list[JsonObject] = [{"binding": "beforeHelm", "snapshots": {"nodes": [{"filterResult": "n1"}]}}]
    run = bench.run(write_hook(HOOK), contexts=contexts)
    assert (run.code, run.stderr, run.lines) == (0, "", ["my-module"])
    assert run.new_values() == {
        "global": {"enabledModules": ["my-module"]},
        "myModule": {"internal": {"nodes": ["n1"]}},
    }
    assert run.new_config_values() == {"global": {}, "myModule": {"seen": 'ü "x"\n'}}
    assert run.metrics() == (Record(1, "nodes", "gauge", 1),)
    assert [str(one.common.target) for one in run.objects()] == ["n/Pod/p"]


def test_many_contexts_in_one_run(bench: HookBench, write_hook: WriteHook) -> None:
    body = f"""
@hook(Kubernetes("pods", kind="Pod"), Schedule("hourly", "@hourly"))
def main(ctx: Context) -> None:
    for context in ctx.bindings:
        match context:
            case Synchronization(binding="pods", items=items):
                print("all", len(items))
            case Event(binding="pods", event="Deleted", item=item):
                print("gone", item.object["metadata"]["name"])
            case AtTime(binding="hourly"):
                print("time")

{MAIN}
"""
    contexts: list[JsonObject] = [
        {"binding": "pods", "type": "Synchronization", "objects": [{"object": {}}] * 3},
        {"binding": "hourly", "type": "Schedule"},
        {"binding": "pods", "type": "Event", "watchEvent": "Deleted", "object": {"metadata": {"name": "p"}}},
    ]
    assert bench.run(write_hook(body), contexts=contexts).lines == ["all 3", "time", "gone p"]


@pytest.mark.parametrize(
    ("ending", "code", "message"),
    [
        ('raise RuntimeError("sorry")', 1, "RuntimeError: sorry"),
        ("sys.exit(3)", 3, ""),
        ('ctx.values["myModule.x"]', 1, "KeyError: '/myModule/x'"),
        ('ctx.values["myModule.x"] = object()', 1, "TypeError: object is not JSON"),
    ],
    ids=["raises", "exits", "missing value", "no JSON"],
)
def test_failure_writes_nothing_but_changes_to_objects(
    bench: HookBench, write_hook: WriteHook, ending: str, code: int, message: str
) -> None:
    body = f"""
import sys

@hook(BeforeHelm(10))
def main(ctx: Context) -> None:
    ctx.values["myModule.early"] = 1
    ctx.kube.delete("Pod", "p")
    {ending}

{MAIN}
"""
    run = bench.run(write_hook(body))
    assert (run.code, run.written) == (code, {"KUBERNETES_PATCH_PATH"})
    assert [str(one.common.target) for one in run.objects()] == ["Pod/p"]
    assert message in run.stderr
    assert not message or "in main\n" in run.stderr


@pytest.mark.parametrize("ending", ["sys.exit()", "sys.exit(0)"])
def test_an_exit_that_is_no_failure_writes_everything(bench: HookBench, write_hook: WriteHook, ending: str) -> None:
    body = f"""
import sys

@hook(BeforeHelm(10))
def main(ctx: Context) -> None:
    ctx.values["myModule.a"] = 1
    {ending}

{MAIN}
"""
    run = bench.run(write_hook(body))
    assert (run.code, run.written) == (0, {"VALUES_JSON_PATCH_PATH"})


def test_result_file_that_is_not_given(bench: HookBench, write_hook: WriteHook, tmp_path: Path) -> None:
    """What cannot be written fails the run before anything is written."""
    body = f"""
import os
del os.environ["METRICS_PATH"]

@hook(BeforeHelm(10))
def main(ctx: Context) -> None:
    ctx.values["myModule.a"] = 1
    ctx.metrics.set("m", 1)

{MAIN}
"""
    run = bench.run(write_hook(body))
    assert (run.code, run.is_silent) == (1, True)
    assert "METRICS_PATH is not set: it comes from the operator" in run.stderr


def test_what_the_hook_writes_itself_is_kept(bench: HookBench, write_hook: WriteHook) -> None:
    body = f"""
import os, pathlib

@hook(BeforeHelm(10))
def main(ctx: Context) -> None:
    own = '{{"op": "add", "path": "/myModule/own", "value": 1}}'
    pathlib.Path(os.environ["VALUES_JSON_PATCH_PATH"]).write_text(own)
    ctx.values["myModule.lib"] = 2

{MAIN}
"""
    assert [one.path for one in bench.run(write_hook(body)).patch()] == ["/myModule/own", "/myModule/lib"]


def test_importing_takes_only_what_a_hook_needs() -> None:
    """Neither the operator nor anything that is not Python's own."""
    program = (
        "import sys; before = set(sys.modules); import addon_operator.sdk\n"
        "import json; print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    names: list[str] = json.loads(done.stdout)
    ours = {name for name in names if name.startswith("addon_operator")}
    assert {name for name in ours if not name.startswith("addon_operator.sdk")} == {"addon_operator"}
    assert {name.partition(".")[0] for name in set(names) - ours} <= sys.stdlib_module_names
    assert not {"asyncio", "logging", "subprocess", "urllib.request", "tempfile"} & set(names)
