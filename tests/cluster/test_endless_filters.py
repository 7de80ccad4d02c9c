"""jq programs without end: they cost their own binding, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from addon_operator.devcluster import DevCluster
from addon_operator.documents.jsondoc import JsonObject
from tests.cluster.operator import Operator, config_map_chart, eventually, operator

ENDLESS = "def f: f; f"


def hook(*bindings: JsonObject, body: str = "") -> str:
    config = json.dumps({"configVersion": "v1", "kubernetes": list(bindings)})
    return (
        f"#!/bin/bash\nif [[ $1 == --config ]]; then echo '{config}'; exit; fi\necho run >>\"$OUT/${{0##*/}}\"\n{body}"
    )


def watched(made: Operator) -> JsonObject:
    metadata: JsonObject = {"name": "watched", "labels": {"app": "watched"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}}


@pytest.mark.parametrize("program", [ENDLESS, "[range(infinite)]"])
def test_a_filter_without_end_fails_its_binding_and_others_go_on(
    cluster: DevCluster, tmp_path: Path, program: str
) -> None:
    with operator(cluster, tmp_path) as made:
        made.create(watched(made))
        good = hook(made.watching("good", "watched", jqFilter=".data", queue="good"))
        made.module("020-good", {**config_map_chart("good", "a: b"), "hooks/good.sh": good})
        bad = made.watching("bad", "watched", jqFilter=program, queue="bad")
        made.module("010-bad", {**config_map_chart("bad", "a: b"), "hooks/bad.sh": hook(bad)})
        made.files({"modules/values.yaml": "badEnabled: true\ngoodEnabled: true\n"})
        made.start_ready()
        eventually(lambda: made.lines("good.sh"), what="a run of the other hook")
        [line] = [line for line in made.text().splitlines() if "jqFilter fails on" in line][:1]
        for words in ("hook=hooks/bad.sh", "module=bad", "binding=bad", "the program does not end"):
            assert words in line
        assert made.lines("bad.sh") == []
        assert made.modules()["good"]["state"] == "ready"
        made.module("010-bad", {"hooks/bad.sh": hook({**bad, "jqFilter": ".data"})})
        made.configure({"bad": "changed: true\n"})
        eventually(lambda: made.lines("bad.sh"), what="a run of the hook that was mended")


def test_a_patch_without_end_fails_its_hook_and_others_go_on(cluster: DevCluster, tmp_path: Path) -> None:
    patch = {"operation": "JQPatch", "apiVersion": "v1", "kind": "ConfigMap", "name": "watched", "jqFilter": ENDLESS}
    with operator(cluster, tmp_path) as made:
        made.create(watched(made))
        body = f"echo '{json.dumps({**patch, 'namespace': made.namespace})}' >\"$KUBERNETES_PATCH_PATH\""
        made.files(
            {
                "global-hooks/bad.sh": hook(made.watching("bad", "watched", queue="bad"), body=body),
                "global-hooks/good.sh": hook(made.watching("good", "watched", jqFilter=".data", queue="good")),
            }
        )
        made.start()
        target = f"{made.namespace}/ConfigMap/watched"
        error = f"global hook bad.sh: operation 1: JQPatch {target}: jqFilter: the program does not end"
        eventually(lambda: made.in_log(error), what="a patch that was stopped")
        eventually(lambda: made.lines("good.sh"), what="a run of the other hook")
