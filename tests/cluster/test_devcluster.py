"""The control plane itself: what modules, tests and demonstrations rely on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from addon_operator.devcluster import DevCluster, DevClusterError, daemon
from addon_operator.devcluster.commands import API_ONLY
from addon_operator.documents.jsondoc import JsonObject, JsonValue, lookup
from tests.cluster.outage import outage

_POD: JsonObject = {"containers": [{"name": "main", "image": "example.invalid/none"}]}


def until(condition: Callable[[], bool]) -> None:
    """Waits for another process."""
    while not condition():
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    """Says whether a process has ended, reaped or not."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True


def deployment(replicas: int = 2) -> JsonObject:
    """Answers a Deployment without anything special."""
    labels: JsonObject = {"app": "web"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _POD},
        },
    }


def job() -> JsonObject:
    """Answers a Job whose Pod insists on a Linux node, as those of published charts do."""
    spec: JsonObject = {**_POD, "restartPolicy": "Never", "nodeSelector": {"kubernetes.io/os": "linux"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "once"},
        "spec": {"template": {"spec": spec}},
    }


def apply(cluster: DevCluster, namespace: str, document: JsonValue) -> None:
    cluster.kubectl("-n", namespace, "apply", "-f", "-", stdin=json.dumps(document))


def addon_operator(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Runs the command line to its end."""
    argv = [sys.executable, "-m", "addon_operator", *words, "--home", str(home)]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended


def test_it_reports_its_real_version(cluster: DevCluster) -> None:
    version = json.loads(cluster.kubectl("version", "-o", "json"))["serverVersion"]
    assert version["gitVersion"] == cluster.version
    assert cluster.version.split(".")[:2] == [f"v{version['major']}", version["minor"].rstrip("+")]


def test_its_node_is_ready_and_has_the_standard_labels(cluster: DevCluster) -> None:
    (node,) = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
    labels = node["metadata"]["labels"]
    assert {name: labels[f"kubernetes.io/{name}"] for name in ("os", "hostname")} == {
        "os": "linux",
        "hostname": "node-1",
    }
    assert labels["kubernetes.io/arch"] == node["status"]["nodeInfo"]["architecture"]
    assert lookup(node, "/status/nodeInfo/kubeletVersion") == cluster.version
    assert "taints" not in node["spec"]


def test_deployments_become_available_and_jobs_complete(cluster: DevCluster) -> None:
    namespace = cluster.namespace()
    apply(cluster, namespace, deployment())
    apply(cluster, namespace, job())
    cluster.kubectl("-n", namespace, "wait", "--for=condition=Complete", "job/once", "--timeout=60s")
    cluster.kubectl("-n", namespace, "wait", "--for=condition=Available", "deployment/web", "--timeout=60s")
    cluster.kubectl("-n", namespace, "delete", "deployment", "web")
    cluster.kubectl("-n", namespace, "wait", "--for=delete", "pod", "-l", "app=web", "--timeout=60s")


def test_a_node_that_somebody_adds_becomes_ready(cluster: DevCluster) -> None:
    node: JsonObject = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "extra", "labels": {"kubernetes.io/arch": "riscv64"}},
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(node))
    try:
        cluster.kubectl("wait", "--for=condition=Ready", "node/extra", "--timeout=60s")
        assert cluster.kubectl("get", "node", "extra", "-o", "jsonpath={.status.nodeInfo.architecture}") == "riscv64"
    finally:
        cluster.kubectl("delete", "node", "extra")


def test_its_certificate_is_checked_and_strangers_are_refused(cluster: DevCluster, tmp_path: Path) -> None:
    kubeconfig = json.loads(cluster.kubeconfig.read_text())
    assert cluster.kubeconfig.stat().st_mode & 0o777 == 0o600
    assert cluster.directory.stat().st_mode & 0o777 == 0o700
    assert "insecure-skip-tls-verify" not in cluster.kubeconfig.read_text()
    kubeconfig["users"][0]["user"]["token"] = "guessed"
    stranger = tmp_path / "kubeconfig"
    stranger.write_text(json.dumps(kubeconfig))
    with pytest.raises(DevClusterError, match=r"Unauthorized|logged in"):
        cluster.kubectl("--kubeconfig", str(stranger), "get", "namespaces")


def test_the_api_server_can_be_killed_and_started_again(cluster: DevCluster) -> None:
    namespace, server = cluster.namespace(), cluster.server
    before = cluster.pids["kube-apiserver"]
    with outage(cluster):
        assert is_gone(before)
        with pytest.raises(DevClusterError, match="refused"):
            cluster.kubectl("get", "namespaces")
    assert cluster.server == server
    apply(cluster, namespace, deployment(1))
    cluster.kubectl("-n", namespace, "wait", "--for=condition=Available", "deployment/web", "--timeout=60s")


def test_a_kubectl_that_does_not_end_is_ended(cluster: DevCluster) -> None:
    with pytest.raises(
        DevClusterError, match=r"kubectl get configmaps --watch: did not finish within 0\.5 s; see .*\.log"
    ):
        cluster.kubectl("get", "configmaps", "--watch", timeout_s=0.5)


def test_the_environment_is_enough_for_a_child_process(cluster: DevCluster) -> None:
    script = 'kubectl get namespace default -o name && "$HELM_BIN_PATH" list -q && test "$KUBECONFIG" = "$KUBE_CONFIG"'
    env = {**os.environ, **cluster.environment()}
    ended = subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True, check=True)
    assert ended.stdout == "namespace/default\n"


def test_clusters_live_side_by_side_and_keep_their_data(cluster: DevCluster, tmp_path: Path) -> None:
    directory = tmp_path / "second"
    with DevCluster(directory, components=API_ONLY) as second:
        assert second.server != cluster.server
        namespace, server = second.namespace("kept"), second.server
        assert namespace not in cluster.kubectl("get", "namespaces", "-o", "name")
        with pytest.raises(DevClusterError, match="is already running"):
            DevCluster(directory, components=API_ONLY).open()
        assert set(second.pids) == set(API_ONLY)
    with DevCluster(directory, components=API_ONLY) as again:
        assert again.server == server
        assert f"namespace/{namespace}\n" in again.kubectl("get", "namespaces", "-o", "name")


async def test_a_component_that_dies_is_reported_with_its_log(tmp_path: Path) -> None:
    async with DevCluster.start(tmp_path / "own", components=API_ONLY) as own:
        own.check()
        os.kill(own.pids["etcd"], signal.SIGKILL)
        with pytest.raises(DevClusterError) as raised:
            own.wait()
        with pytest.raises(DevClusterError, match="etcd ended"):
            own.check()
    first, *tail = str(raised.value).splitlines()
    assert first == f"etcd ended (SIGKILL); the end of {own.directory}/etcd.log:"
    assert any(line.strip() for line in tail)


def test_a_component_that_cannot_start_is_reported_with_its_log(tmp_path: Path) -> None:
    own = DevCluster(tmp_path / "own", components=API_ONLY)
    own.directory.mkdir(mode=0o700)
    (own.directory / "tokens.csv").write_text("token,user\n")
    with pytest.raises(DevClusterError, match=r"kube-apiserver ended \(exit code 1\)(.|\n)*columns"):
        own.open()
    assert own.pids == {}


def test_nothing_is_left_when_the_owner_is_killed(tmp_path: Path) -> None:
    script = (
        "import json, sys, time\n"
        "from pathlib import Path\n"
        "from addon_operator.devcluster import DevCluster\n"
        "with DevCluster(Path(sys.argv[1])) as cluster:\n"
        "    print(json.dumps(cluster.pids), flush=True)\n"
        "    time.sleep(600)\n"
    )
    argv = [sys.executable, "-c", script, str(tmp_path / "own")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pids = json.loads(owner.stdout.readline())
        assert len(pids) == 5
        owner.kill()
    until(lambda: all(is_gone(pid) for pid in pids.values()))


def test_up_status_and_down(tmp_path: Path) -> None:
    ended = addon_operator("dev", "up", "--name", "one", home=tmp_path)
    try:
        assert ended.stdout == f"export KUBECONFIG={tmp_path}/one/kubeconfig\n"
        (one,) = json.loads(addon_operator("dev", "status", "-o", "json", home=tmp_path).stdout)
        assert (one["name"], one["state"], one["kubeconfig"]) == ("one", "running", f"{tmp_path}/one/kubeconfig")
        assert addon_operator("dev", "up", "--name", "one", home=tmp_path).stdout == ended.stdout
        assert json.loads(addon_operator("dev", "status", "-o", "json", home=tmp_path).stdout)[0]["pid"] == one["pid"]
    finally:
        assert daemon.down(tmp_path / "one")
    assert all(is_gone(pid) for pid in [one["pid"], *one["components"].values()])
    assert daemon.down(tmp_path / "one") is False
    table = addon_operator("dev", "status", home=tmp_path).stdout.splitlines()
    assert [line.split()[:2] for line in table] == [["NAME", "STATE"], ["one", "stopped"]]
    addon_operator("dev", "down", "--name", "one", "--delete", home=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_down_after_the_daemon_was_killed_finds_nothing_left(tmp_path: Path) -> None:
    found = daemon.up(tmp_path / "one")
    assert found.pid is not None
    os.kill(found.pid, signal.SIGKILL)
    daemon.down(tmp_path / "one")
    until(lambda: all(is_gone(pid) for pid in found.components.values()))
    assert daemon.status(tmp_path / "one").state == "stopped"


def test_up_tells_why_it_failed(tmp_path: Path) -> None:
    directory = tmp_path / "one"
    directory.mkdir(mode=0o700)
    (directory / "sa.key").write_text("not a key\n")
    with pytest.raises(DevClusterError, match=r"kube-apiserver ended \(exit code 1\)(.|\n)*sa.key"):
        daemon.up(directory)
    assert daemon.status(directory).state == "stopped"


@pytest.fixture
def empty_modules(tmp_path: Path) -> tuple[str, ...]:
    """Answers options of an operator that has nothing to do."""
    for name in ("modules", "global-hooks"):
        (tmp_path / name).mkdir()
    return ("--modules-dir", str(tmp_path / "modules"), "--global-hooks-dir", str(tmp_path / "global-hooks"))


def test_run_once_ends_by_itself_and_leaves_nothing(tmp_path: Path, empty_modules: tuple[str, ...]) -> None:
    ended = addon_operator("dev", "run", "--once", "--namespace", "platform", *empty_modules, home=tmp_path / "dev")
    directory = tmp_path / "dev" / "dev"
    assert ended.stdout.startswith("NAME")
    assert f"export KUBECONFIG={directory}/kubeconfig" in ended.stderr
    assert f"export DEBUG_UNIX_SOCKET={directory}/debug.socket" in ended.stderr
    state = daemon.status(directory)
    assert state.state == "stopped"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "dev-down"])
def test_run_stops_cleanly(tmp_path: Path, empty_modules: tuple[str, ...], number: signal.Signals) -> None:
    home = tmp_path / "dev"
    argv = [sys.executable, "-m", "addon_operator", "dev", "run", "--home", str(home), *empty_modules]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        seen = next((line for line in process.stderr if "converge done" in line), "it ended too early")
        found = daemon.status(home / "dev")
        process.send_signal(number)
        rest = process.stderr.read()
    assert "converge done" in seen
    assert process.returncode == 0, rest
    assert rest.endswith("stopped\n")
    assert found.state == "running"
    assert all(is_gone(pid) for pid in found.components.values())
