"""Whatever ends the operator, helm or the API server, at whatever moment: the next converge puts everything right."""

from __future__ import annotations

import base64
import functools
import gzip
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from addon_operator.devcluster import DevCluster
from addon_operator.kube.refs import metadata_of
from tests.cluster.operator import Operator, config_map_chart, eventually, hold, noting_hook, operator
from tests.cluster.outage import outage

# A Job that is suspended never ends, so that helm waits for it.
WAIT = """---
{{{{- if .Values.{key}.wait }}}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {key}-wait
  annotations: {{"helm.sh/hook": {event}, "helm.sh/hook-delete-policy": before-hook-creation}}
spec:
  suspend: true
  template: {{spec: {{restartPolicy: Never, containers: [{{name: a, image: a}}]}}}}
{{{{- end }}}}
"""


def chart(key: str, event: str = "pre-upgrade") -> dict[str, str]:
    """A module whose helm waits when its value `wait` is true, and that deploys its value `text`."""
    data = f'text: {{{{ .Values.{key}.text | default (.Values.global).text | default "-" | quote }}}}'
    return config_map_chart(key, data, more=WAIT.format(key=key, event=event))


def uids(made: Operator) -> dict[str, str]:
    """ConfigMap -> uid: another one means that the object was deleted and made again."""
    listed = map(metadata_of, made.objects.list("configmap"))
    return {str(metadata["name"]): str(metadata["uid"]) for metadata in listed}


def helm(made: Operator, *words: str) -> None:
    """Somebody else's helm; one that competes with the operator may lose."""
    argv = [made.cluster.environment()["HELM_BIN_PATH"], *words, "-n", made.namespace]
    subprocess.run(argv, env=made.environment, check=False, capture_output=True)


def set_statuses(made: Operator, statuses: Mapping[str, Sequence[str]]) -> None:
    """Makes releases look as if helm was interrupted: in the labels and in what helm itself reads."""
    secrets: list[Any] = [*made.objects.list("secret", labels="owner=helm")]
    for secret in secrets:
        labels = secret["metadata"]["labels"]
        labels["status"] = statuses[labels["name"]][int(labels["version"]) - 1]
        document = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(secret["data"]["release"]))))
        document["info"]["status"] = labels["status"]
        packed = base64.b64encode(gzip.compress(json.dumps(document).encode()))
        secret["data"]["release"] = base64.b64encode(packed).decode()
        made.replace({**secret, "kind": "Secret"})


def gone(made: Operator) -> None:
    """Nothing that the operator started runs any more."""
    eventually(lambda: not made.processes(), what=str(made.processes()))


def unchanged_by_a_restart(made: Operator) -> None:
    """A start that finds everything as it should be starts no helm."""
    before = made.helm_processes()
    made.start_ready()
    made.wait_idle()
    assert made.helm_processes() == before
    assert made.stop() == 0


@pytest.mark.parametrize("event", ["pre-install", "post-upgrade"])
def test_killed_in_the_middle_of_helm(cluster: DevCluster, tmp_path: Path, event: str) -> None:
    with operator(cluster, tmp_path) as made:
        made.files({"modules/values.yaml": "appEnabled: true\nnextEnabled: true\n"})
        made.module("010-app", chart("app", event))
        made.module("020-next", config_map_chart("next", "a: b"))
        upgrades = event != "pre-install"
        if upgrades:
            made.start_ready()
            before = uids(made)["app"]
        made.configure({"app": "{wait: true, text: half}"})
        if not upgrades:
            made.start()
        pending, revision = ("pending-upgrade", 2) if upgrades else ("pending-install", 1)
        eventually(lambda: made.revisions("app").get(revision) == pending)
        assert any(" upgrade app " in command for command in made.processes().values())
        assert made.stop(signal.SIGKILL) == -signal.SIGKILL
        gone(made)
        assert made.revisions("app")[revision] == pending

        made.configure({"app": "text: whole"})
        made.start_ready()
        assert made.deployed("app") == {"text": "whole"}
        assert made.revisions("app")[revision] == "deployed"
        assert set(made.revisions("app").values()) <= {"deployed", "superseded"}
        assert f"revision {revision} is {pending}" in made.text()
        assert made.deployed("next") == {"a": "b"}
        if upgrades:
            assert uids(made)["app"] == before
        assert made.stop() == 0
        unchanged_by_a_restart(made)


def test_every_status_that_helm_may_leave_behind(cluster: DevCluster, tmp_path: Path) -> None:
    """Two revisions of each; an interrupted helm leaves the former one deployed."""
    left = {
        "upgrading": ("deployed", "pending-upgrade"),
        "installing": ("failed", "pending-install"),
        "rolling": ("deployed", "pending-rollback"),
        "failing": ("deployed", "failed"),
        "replaced": ("superseded", "superseded"),
        "unknown": ("superseded", "unknown"),
        "removing": ("superseded", "uninstalling"),
        "removed": ("superseded", "uninstalled"),
    }
    with operator(cluster, tmp_path) as made:
        made.files({"modules/values.yaml": "".join(f"{name}Enabled: true\n" for name in left)})
        for name in left:
            made.module(name, chart(name))
        made.start_ready()
        made.configure({"global": "text: second"})
        eventually(lambda: {module["revision"] for module in made.modules().values()} == {2})
        made.wait_idle()
        assert made.stop() == 0
        before = uids(made)
        set_statuses(made, left)
        made.configure({"global": "text: third"})

        made.start_ready()
        for name in left:
            assert made.deployed(name) == {"text": "third"}, name
            revisions = made.revisions(name)
            assert revisions[max(revisions)] == "deployed", name
        # To finish a removal is the only recovery that takes objects away, as somebody wanted.
        after = uids(made)
        assert {name for name in left if after[name] != before[name]} <= {"removing"}
        assert "recovered: revision 2 is pending-upgrade" in made.cli("module", "explain", "upgrading").stdout
        assert made.stop() == 0
        unchanged_by_a_restart(made)


def test_what_others_do_to_a_release_is_put_right(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as made:
        made.files({"modules/values.yaml": "oneEnabled: true\ntwoEnabled: true\n"})
        made.module("010-one", chart("one"))
        made.module("020-two", chart("two"))
        made.configure({"one": "text: ours", "two": "text: ours"})
        # Made by somebody else before we came: adopted, its objects stay.
        helm(made, "install", "one", str(made.root / "modules/010-one"), "--set", "one.text=theirs")
        before = uids(made)["one"]
        made.start_ready()
        assert made.deployed("one") == {"text": "ours"}
        assert uids(made)["one"] == before
        assert made.revisions("one") == {1: "superseded", 2: "deployed"}

        def heals(revision: int) -> None:
            eventually(lambda: made.revisions("one").get(revision) == "deployed")
            assert made.deployed("one") == {"text": "ours"}
            made.wait_idle()
            assert max(made.revisions("one")) == revision

        made.delete("one")
        heals(3)
        assert "reason=AbsentHelmResourcesDetected" in made.text()
        assert made.metric('modules_helm_release_redeployed_total{module="one"}') == 1
        helm(made, "rollback", "one", "1")
        heals(5)
        assert "reason=HelmReleaseUnexpectedStatus" in made.text()
        helm(made, "upgrade", "one", str(made.root / "modules/010-one"), "--set", "one.text=theirs")
        heals(7)

        def comes_back(before: str) -> bool:
            revisions = made.revisions("one")
            return uids(made)["one"] != before and revisions[max(revisions)] == "deployed"

        for flags in ((), ("--keep-history",)):
            before = uids(made)["one"]
            helm(made, "uninstall", "one", *flags)
            eventually(functools.partial(comes_back, before))
            made.wait_idle()
            assert made.deployed("one") == {"text": "ours"}
        # Nobody touched the other one.
        assert made.revisions("two") == {1: "deployed"}
        # What was adopted is ours to remove.
        made.configure({"oneEnabled": "false"})
        eventually(lambda: made.revisions("one") == {} and "one" not in uids(made))


def test_killed_while_a_module_is_cleaned_up(cluster: DevCluster, tmp_path: Path) -> None:
    """Its release is gone already; the hook that removes what is left of it is still due."""
    body = f'if [ "$binding" = afterDeleteHelm ] && [ ! -e "$OUT/well" ]; then {hold("gone")}; fi'
    with operator(cluster, tmp_path) as made:
        hooks = {"hooks/h.sh": noting_hook("app", "beforeDeleteHelm: 1\nafterDeleteHelm: 1", body)}
        made.module("010-app", {**config_map_chart("app", "a: b"), **hooks})
        made.configure({"appEnabled": "true"})
        made.start_ready()
        made.configure({"appEnabled": "false"})
        eventually((made.root / "at-gone").exists)
        assert made.objects.get("configmap", "app") is None
        assert made.stop(signal.SIGKILL) == -signal.SIGKILL
        gone(made)

        made.touch("well")
        made.start_ready()
        made.wait_idle()
        assert made.runs() == ["app beforeDeleteHelm", "app afterDeleteHelm", "app afterDeleteHelm"]
        assert made.revisions("app") == {}
        assert made.modules()["app"]["state"] == "disabled"
        assert made.stop() == 0
        unchanged_by_a_restart(made)
        assert len(made.runs()) == 3


def test_stopped_while_a_hook_runs(cluster: DevCluster, tmp_path: Path) -> None:
    """One that ignores SIGTERM, and so do its children."""
    stuck = """if [ ! -e "$OUT/well" ]; then
      trap '' TERM
      (while :; do sleep 1000; done) &
      echo "$BINDING_CONTEXT_PATH" >>"$OUT/at"
      while :; do read -t 1000 <>"$OUT/fifo" || :; done
    fi"""
    with operator(cluster, tmp_path, {"HOOK_KILL_GRACE": "200ms"}) as made:
        os.mkfifo(made.root / "fifo")
        made.files({"modules/values.yaml": "appEnabled: true\n"})
        made.module("app", {**chart("app"), "hooks/h.sh": noting_hook("app", "onStartup: 1\nafterHelm: 1", stuck)})
        made.start()
        eventually(lambda: made.lines("at"))
        assert len(made.processes()) >= 3
        assert made.stop() == 0
        gone(made)
        assert not Path(made.lines("at")[0]).exists()
        made.files({"well": ""})
        made.start_ready()
        assert made.runs() == ["app onStartup", "app onStartup", "app afterHelm"]
        # Killed, it takes the hook and its children with it; the files of the run go away with the next start.
        (made.root / "well").unlink()
        made.configure({"app": "text: x"})
        eventually(lambda: len(made.lines("at")) == 2)
        made.stop(signal.SIGKILL)
        gone(made)
        assert Path(made.lines("at")[1]).exists()
        made.files({"well": ""})
        made.start_ready()
        assert made.deployed("app") == {"text": "x"}
        assert not Path(made.lines("at")[1]).exists()


def test_stopped_while_helm_runs(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path, {"SHUTDOWN_GRACE": "60s"}) as made:
        made.files({"modules/values.yaml": "appEnabled: true\n"})
        made.module("app", chart("app"))
        made.start_ready()
        made.configure({"app": "{wait: true, text: second}"})
        eventually(lambda: made.objects.get("job", "app-wait"))
        # In time: helm may finish, and what it did is noted.
        assert made.process is not None
        made.process.send_signal(signal.SIGTERM)
        eventually(lambda: made.http("/readyz") == (500, "Stopping"))
        assert "a helm in flight may finish" in made.text()
        made.objects.patch("job", "app-wait", {"spec": {"suspend": False}})
        assert made.process.wait(timeout=90) == 0
        gone(made)
        assert made.revisions("app") == {1: "superseded", 2: "deployed"}
        assert made.deployed("app") == {"text": "second"}
        unchanged_by_a_restart(made)

        # Not in time: it is ended, and the next start goes on from there.
        made.environment["SHUTDOWN_GRACE"] = "200ms"
        made.start_ready()
        before = uids(made)["app"]
        made.configure({"app": "{wait: true, text: third}"})
        eventually(lambda: made.revisions("app").get(3) == "pending-upgrade")
        assert made.stop() == 0
        gone(made)
        made.configure({"app": "text: fourth"})
        made.start_ready()
        assert made.deployed("app") == {"text": "fourth"}
        assert uids(made)["app"] == before
        assert made.stop() == 0
        unchanged_by_a_restart(made)


def test_without_an_api_server(cluster: DevCluster, tmp_path: Path) -> None:
    """One operator that works while the API server goes away, and one that is started meanwhile."""
    with operator(cluster, tmp_path) as made:
        hold = 'touch "$OUT/held"; until [ -e "$OUT/go" ]; do sleep 0.02; done'
        made.files({"modules/values.yaml": "appEnabled: true\n", "go": ""})
        made.module("app", {**chart("app"), "hooks/h.sh": noting_hook("app", "beforeHelm: 1", hold)})
        late_root = tmp_path / "late"
        late_root.mkdir()
        with operator(cluster, late_root) as late:
            made.start_ready()
            (made.root / "held").unlink()
            (made.root / "go").unlink()
            made.configure({"app": "text: second"})
            eventually((made.root / "held").exists)
            with outage(cluster):
                late.start()
                eventually(lambda: late.in_log("waiting for the API server"))
                assert late.in_log("Connection refused")
                assert late.http("/healthz")[0] == 200
                assert late.http("/readyz")[0] == 500
                # Signals are heard while it waits.
                assert late.stop() == 0
                late.log.unlink()
                late.start()
                eventually(lambda: late.in_log("waiting for the API server"))
                (made.root / "go").touch()
                eventually(lambda: "failures" in made.queue())
                assert made.http("/healthz")[0] == 200
            late.wait_ready()
            assert late.in_log("the API server answers")
            eventually(lambda: made.deployed("app") == {"text": "second"})
            made.wait_idle()
            # All watches see again: ConfigMap, objects, releases.
            made.configure({"app": "text: third"})
            eventually(lambda: made.deployed("app") == {"text": "third"})
            made.wait_idle()
            made.delete("app")
            eventually(lambda: made.deployed("app") == {"text": "third"})
            made.wait_idle()
            newest = max(made.revisions("app"))
            helm(made, "rollback", "app", "1")
            eventually(lambda: made.revisions("app").get(newest + 2) == "deployed")
            assert made.deployed("app") == {"text": "third"}
            assert late.stop() == 0
            assert made.stop() == 0
