"""The operator's ConfigMap in a cluster, where others create, replace and delete it, and write it at the same time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from addon_operator.devcluster import DevCluster
from tests.cluster.operator import (
    Operator,
    adding,
    bindings,
    config_map,
    config_map_chart,
    eventually,
    noting_hook,
    operator,
)

AROUND = {"global-hooks/around.sh": noting_hook("around", "beforeAll: 1\nafterAll: 1")}
ALPHA = config_map_chart(
    "alpha", 'own: {{ .Values.alpha.own | default "-" | quote }}\nof: {{ .Values.global.of | default "-" | quote }}'
)
WITH_SCRIPT = '#!/bin/bash\njq .scripted.run "$CONFIG_VALUES_PATH" | sed s/null/false/ >"$MODULE_ENABLED_RESULT"\n'


def module_hook(name: str, bindings: str = "beforeHelm: 1", body: str = "") -> dict[str, str]:
    return {"hooks/h.sh": noting_hook(name, bindings, body)}


def since(made: Operator, runs: list[str]) -> Callable[[], list[str]]:
    """The runs of hooks after those that are listed."""
    return lambda: made.runs()[len(runs) :]


def settled(made: Operator, *, shows: Callable[[], bool]) -> None:
    """Waits until the operator knows about an edit, and has done whatever it does about it."""
    eventually(shows)
    made.wait_idle()


def test_a_configmap_that_is_created_replaced_and_deleted(cluster: DevCluster, tmp_path: Path) -> None:
    """What edits of it set off is in `tests/component/modules/test_edits.py`."""
    with operator(cluster, tmp_path) as made:
        made.files({**AROUND, "modules/values.yaml": "alphaEnabled: true\nscriptedEnabled: true\n"})
        made.module("010-alpha", {**ALPHA, **module_hook("alpha")})
        made.module("020-scripted", {"enabled": WITH_SCRIPT, **module_hook("scripted", "onStartup: 1")})
        converge = ["around beforeAll", "alpha beforeHelm", "around afterAll"]
        made.start_ready()
        assert "ConfigMap does not exist: the values of the files apply" in made.text()
        assert made.runs() == converge

        # It comes to be later.
        before = made.runs()
        made.configure({"alpha": "own: 1"})
        settled(made, shows=lambda: made.deployed("alpha") == {"own": "1", "of": "-"})
        assert since(made, before)() == ["alpha beforeHelm"]
        assert "reason=KubeConfig-Changed-Modules" in made.text()
        made.configure({"global": "of: all", "scripted": "run: true"})
        settled(made, shows=lambda: "scripted onStartup" in made.runs())
        assert made.deployed("alpha") == {"own": "1", "of": "all"}

        # It is replaced, and so away for a moment: nothing.
        before, revisions = made.runs(), made.revisions("alpha")
        (tmp_path / "replaced.json").write_text(made.kubectl("get", "configmap", "addon-operator", "-o", "json"))
        made.kubectl("replace", "--force", "-f", str(tmp_path / "replaced.json"))
        settled(made, shows=lambda: "ConfigMap exists again" in made.text())
        assert since(made, before)() == []
        assert made.revisions("alpha") == revisions
        assert made.modules()["scripted"]["enabled"] is True

        # It goes away: its values are not in force any more, and what its absence disables is held.
        before = made.runs()
        made.delete("addon-operator")
        settled(made, shows=lambda: made.deployed("alpha") == {"own": "-", "of": "-"})
        assert since(made, before)() == converge
        assert made.modules()["scripted"]["enabled"] is False
        assert made.modules()["scripted"]["state"] == "held"
        assert made.ask("/global/config.json") == {}
        assert made.metric("config_values_errors_total") == 0


def test_config_patches_of_hooks_and_edits_of_others_at_the_same_time(cluster: DevCluster, tmp_path: Path) -> None:
    """Own writes set nothing off; what somebody wrote a moment before the hook ended is kept and takes effect."""
    with operator(cluster, tmp_path) as made:
        keep = adding({"/global/kept": {"by": "hook"}}, to="CONFIG_VALUES")
        made.files({**AROUND, "modules/values.yaml": "alphaEnabled: true\nbetaEnabled: true\nraceEnabled: true\n"})
        made.files({"global-hooks/keep.sh": noting_hook("keep", "beforeAll: 2", keep)})
        made.module("010-alpha", module_hook("alpha", body=adding({"/alpha/ca": "once"}, to="CONFIG_VALUES")))
        made.module("020-beta", module_hook("beta", "afterHelm: 1"))
        edit = json.dumps({"data": {"beta": "edited: true", "race": "theirs: 1", "other": "# as it is\na:   1"}})
        command = f"kubectl -n {made.namespace} patch configmap addon-operator --type=merge -p '{edit}'"
        race = f"{command}\n{adding({'/race/ours': 2}, to='CONFIG_VALUES')}"
        made.module("030-race", module_hook("race", "onStartup: 1\nbeforeHelm: 1", (
            f'if [ "$binding" = onStartup ]; then {race}\nfi'
        )))  # fmt: skip
        made.start_ready()
        made.wait_idle()
        # beta and race for the edit. alpha, race, keep for what they wrote: no.
        assert made.runs() == [
            *("around beforeAll", "keep beforeAll", "alpha beforeHelm", "beta afterHelm", "race onStartup"),
            *("race beforeHelm", "beta afterHelm", "race beforeHelm", "around afterAll"),
        ]
        data = made.config_data()
        assert data["global"] == "kept:\n  by: hook\n"
        assert data["alpha"] == "ca: once\n"
        assert data["beta"] == "edited: true"
        assert data["other"] == "# as it is\na:   1"
        last = {str(run["hook"]): run["config"] for run in made.seen()}
        kept = {"kept": {"by": "hook"}}
        assert last["beta"] == {"global": kept, "beta": {"edited": True}}
        assert last["race"] == {"global": kept, "race": {"theirs": 1, "ours": 2}}

        # They are there after a restart, too.
        assert made.stop() == 0
        made.start_ready()
        assert made.ask("/module/alpha/config.json") == {"alpha": {"ca": "once"}}


def test_nothing_that_a_hook_wants_is_done_while_its_config_patch_cannot_be_written(
    cluster: DevCluster, tmp_path: Path
) -> None:
    with operator(cluster, tmp_path) as made:
        metadata = {"name": "made", "namespace": made.namespace}
        create = json.dumps({"operation": "Create", "object": {**config_map("made"), "metadata": metadata}})
        body = f"""[ "$type" = Event ] || exit 0
            echo '{create}' >"$KUBERNETES_PATCH_PATH"
            echo '{{"name": "runs_total", "add": 1}}' >"$METRICS_PATH"
            {adding({"/global/seen": True}, to="CONFIG_VALUES")}
            {adding({"/nobodyEnabled": True})}"""
        made.files({"global-hooks/h.sh": noting_hook("h", bindings(kubernetes=[made.watching("maps", "x")]), body)})
        made.start_ready()
        made.configure({"bad-key": ""})
        eventually(lambda: made.in_log("ConfigMap refused"))
        eventually(lambda: ("Warning", "ConfigRefused") in made.events())
        made.create(config_map("trigger", labels={"app": "x"}))
        eventually(lambda: "bad-key" in made.queue())
        assert made.objects.get("configmap", "made") is None
        assert "runs_total" not in made.http("/metrics/hooks")[1]
        made.configure({"bad-key": None})
        made.wait_idle()
        assert made.objects.get("configmap", "made") is not None
        assert re.search(r"^runs_total\{.*\} 1(\.0)?$", made.http("/metrics/hooks")[1], re.MULTILINE)
        assert made.config_data()["global"] == "seen: true\n"
        assert made.in_log("there is no module 'nobody'")
