"""The parts of `devcluster` with small real programs in place of the big ones."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from addon_operator.devcluster import DevClusterError, binaries
from addon_operator.devcluster.cluster import is_schedulable, reserve
from addon_operator.devcluster.component import Component
from addon_operator.devcluster.files import Lock, State, read_state, remove, write_private, write_state
from addon_operator.documents.jsondoc import JsonObject

Write = Callable[[Path, str], Path]

SLEEPER = ("/bin/sh", "-c", "sleep 600")


@pytest.fixture
def program() -> Write:
    """Writes an executable that prints a text whatever it is asked."""

    def write(path: Path, prints: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\necho '{prints}'\n")
        path.chmod(0o755)
        return path

    return write


def until(condition: Callable[[], bool]) -> None:
    """Waits for another process."""
    while not condition():
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    """Says whether a process has ended, reaped or not."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True


@pytest.mark.parametrize(
    ("name", "prints", "fits"),
    [
        pytest.param("helm", "v3.21.4+g1234567", True, id="helm"),
        pytest.param("helm", "v3.21", True, id="helm-without-patch"),
        pytest.param("helm", "v3.16.4", False, id="helm-too-old"),
        pytest.param("helm", "v4.0.1", False, id="helm-too-new"),
        pytest.param("etcd", "etcd Version: 3.6.16", True, id="etcd"),
        pytest.param("etcd", "etcd Version: 3.5.24", False, id="etcd-too-old"),
        pytest.param("kube-apiserver", "Kubernetes v1.36.0", True, id="apiserver"),
        pytest.param("kube-apiserver", "Kubernetes v1.35.9", False, id="apiserver-too-old"),
        pytest.param("kube-scheduler", "Kubernetes v1.37.0", False, id="scheduler-newer-than-the-api"),
        pytest.param("kube-apiserver", "Kubernetes v0.0.0-master+$Format:%H$", False, id="built-without-version"),
        pytest.param("kubectl", "Client Version: v1.35.2", True, id="kubectl-one-behind"),
        pytest.param("kwok", "kwok version v0.8.0 go1.26 (linux/amd64)", True, id="kwok"),
        pytest.param("kwok", "segmentation fault", False, id="no-version"),
    ],
)
def test_a_program_on_path_is_used_if_its_version_fits(
    tmp_path: Path, program: Write, *, name: str, prints: str, fits: bool
) -> None:
    path = program(tmp_path / "path" / name, prints)
    found = binaries.find(name, environment={"PATH": str(path.parent)}, built=tmp_path / "built")
    assert found == (path if fits else None)


def test_the_order_is_named_then_assets_then_built_then_path(tmp_path: Path, program: Write) -> None:
    environment = {
        "HELM_BIN_PATH": str(program(tmp_path / "named" / "my-helm", "v3.20.0")),
        "KUBEBUILDER_ASSETS": str(program(tmp_path / "assets" / "helm", "v3.20.1").parent),
        "PATH": str(program(tmp_path / "path" / "helm", "v3.20.2").parent),
    }
    program(tmp_path / "built" / "helm", "not even asked")
    found = []
    for variable in ("HELM_BIN_PATH", "KUBEBUILDER_ASSETS", ""):
        path = binaries.find("helm", environment=environment, built=tmp_path / "built")
        assert path is not None
        found.append(path.parent.name)
        environment.pop(variable, None)
    path = binaries.find("helm", environment=environment, built=tmp_path / "nowhere")
    assert path is not None
    assert [*found, path.parent.name] == ["named", "assets", "built", "path"]


def test_etcd_is_also_found_under_the_name_that_go_gives_it(tmp_path: Path, program: Write) -> None:
    server = program(tmp_path / "server", "etcd Version: 3.6.16")
    assert binaries.find("etcd", environment={}, built=tmp_path) == server


def test_a_missing_program_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DevClusterError, match=r"^kwok is missing: run `make tools`"):
        binaries.require("kwok", environment={"PATH": str(tmp_path)}, built=tmp_path)


def test_the_versions_are_those_of_the_go_module() -> None:
    module = (binaries.TOOLS / "go.mod").read_text()
    wanted = {"k8s.io/kubernetes": binaries.KUBERNETES, "helm.sh/helm/v3": binaries.HELM}
    for path, version in wanted.items():
        found = re.search(rf"{re.escape(path)} v(\d+)\.(\d+)\.(\d+)", module)
        assert found is not None
        assert tuple(map(int, found.groups())) == version
    for program in binaries.PROGRAMS.values():
        assert f"\t{program.package}\n" in module
    named = {"v" + ".".join(map(str, version)) for version in wanted.values()}
    for name in ("Dockerfile", "addon_operator/devcluster/stages.yaml"):
        text = (binaries.TOOLS.parent / name).read_text()
        assert set(re.findall(r"[=: ](v\d+\.\d+\.\d+)", text)) <= named


@pytest.mark.parametrize(
    ("script", "how"),
    [
        pytest.param("echo first; echo 'no room left' >&2; exit 7", "exit code 7", id="exit"),
        pytest.param("echo first; echo 'no room left'; kill -SEGV $$", "SIGSEGV", id="signal"),
    ],
)
def test_a_component_that_dies_shows_the_end_of_its_log(tmp_path: Path, script: str, how: str) -> None:
    component = Component("part", ("/bin/sh", "-c", script), directory=tmp_path)
    component.start()
    pid = component.pid
    assert pid is not None
    until(lambda: is_gone(pid))
    with pytest.raises(DevClusterError) as raised:
        component.check()
    assert str(raised.value) == f"part ended ({how}); the end of {tmp_path}/part.log:\n  first\n  no room left"
    component.stop()
    component.check()
    assert component.pid is None


def test_only_the_tail_of_a_long_log_is_shown(tmp_path: Path) -> None:
    component = Component("part", ("/bin/sh", "-c", "seq 100000"), directory=tmp_path)
    component.start()
    pid = component.pid
    assert pid is not None
    until(lambda: is_gone(pid))
    assert component.tail().split() == [str(number) for number in range(99986, 100001)]
    component.stop()


def test_a_component_that_cannot_be_started_names_its_program(tmp_path: Path) -> None:
    component = Component("part", (str(tmp_path / "absent"),), directory=tmp_path)
    with pytest.raises(DevClusterError, match=r"^part cannot be started: .*/absent: No such file or directory$"):
        component.start()
    assert component.pid is None


def test_a_component_sees_nothing_of_our_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/mine")
    component = Component("part", ("/bin/sh", "-c", "env; pwd; exec sleep 600"), directory=tmp_path)
    component.start()
    until(lambda: component.log.read_text().endswith(f"{tmp_path}\n") and "HOME" in component.log.read_text())
    component.stop(gently=True)
    assert f"HOME={tmp_path}\n" in component.log.read_text()
    assert "KUBECONFIG" not in component.log.read_text()
    assert component.log.stat().st_mode & 0o777 == 0o600


def test_a_directory_has_one_owner(tmp_path: Path) -> None:
    first, second = Lock(tmp_path), Lock(tmp_path)
    assert second.holder() is None
    first.acquire()
    assert second.holder() == os.getpid()
    with pytest.raises(DevClusterError, match=rf"is already running \(process {os.getpid()}\)"):
        second.acquire(patience_s=0.05)
    assert first.holder() == os.getpid()
    first.release()
    second.acquire()
    second.release()
    assert first.holder() is None


def test_a_reserved_port_stays_ours() -> None:
    with reserve(0) as first, reserve(0) as second:
        port = first.getsockname()[1]
        assert port != second.getsockname()[1]
        with pytest.raises(OSError, match="Address already in use"):
            socket.create_server(("127.0.0.1", port))
        # What is going to listen asks for the same sharing.
        listening = socket.create_server(("127.0.0.1", port), reuse_port=True)
        with listening, socket.create_connection(("127.0.0.1", port)):
            listening.accept()[0].close()
    with reserve(port) as again:
        assert again.getsockname()[1] == port


def test_a_taken_port_is_replaced() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, reserve(server.getsockname()[1]) as reserved:
        assert reserved.getsockname()[1] != server.getsockname()[1]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "{", '{"version": 1, "more": 2}'], ids=["empty", "list", "bare", "cut", "other"]
)
def test_a_state_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    write_private(tmp_path / "state.json", text)
    assert read_state(tmp_path) is None


def test_the_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    state = State("https://127.0.0.1:1", "v1.36.3", 12.5, {"api": 1, "etcd": 2, "peer": 3}, {"etcd": 17})
    write_state(tmp_path, state)
    assert read_state(tmp_path) == state
    assert (tmp_path / "state.json").stat().st_mode & 0o777 == 0o600


def test_only_a_cluster_directory_is_removed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    remove(precious)
    assert precious.exists()
    write_private(precious / "state.json", "{}")
    remove(precious)
    assert not precious.exists()


_READY: JsonObject = {"type": "Ready", "status": "True"}


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        pytest.param({"spec": {}, "status": {"conditions": [_READY]}}, True, id="ready"),
        pytest.param({"spec": {"taints": [{}]}, "status": {"conditions": [_READY]}}, False, id="tainted"),
        pytest.param({"spec": {}, "status": {"conditions": [{**_READY, "status": "Unknown"}]}}, False, id="unknown"),
        pytest.param({"spec": {}, "status": {}}, False, id="no-conditions"),
    ],
)
def test_a_node_is_schedulable_when_ready_without_taints(node: JsonObject, *, expected: bool) -> None:
    assert is_schedulable(node) is expected
