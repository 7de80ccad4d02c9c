"""`DevCluster`: one real control plane on loopback, owned by this process and ended with it.

Three ways to use it:

    with DevCluster(directory) as cluster: ...              # tests, the command line
    async with DevCluster.start(directory) as cluster: ...  # asynchronous callers
    daemon.up(directory), daemon.down(directory)            # in a process of its own

It is meant for one machine and one user: etcd listens on loopback without authentication.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import platform
import secrets
import select
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from addon_operator.devcluster import files
from addon_operator.devcluster.api import Api
from addon_operator.devcluster.binaries import require
from addon_operator.devcluster.commands import API_ONLY, CONTROL_PLANE, ETCD_DATA, arguments
from addon_operator.devcluster.component import Component
from addon_operator.devcluster.errors import DevClusterError

if TYPE_CHECKING:  # this package runs before anything is installed
    from addon_operator.documents.jsondoc import JsonObject

NODE: Final = "node-1"
_STAGES: Final = Path(__file__).with_name("stages.yaml")
_READY_S: Final = 120.0
_TICK_S: Final = 0.02
_CAPACITY: Final = {"cpu": "64", "memory": "256Gi", "pods": "1000", "ephemeral-storage": "1Ti"}
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}

Progress = Callable[[str], None]


class DevCluster:
    """One control plane in one directory.

    Args:
        directory: its own; existing data are used again. Created with mode 0700 if missing.
        components: which programs, `CONTROL_PLANE` or the first two of it (`API_ONLY`).
        on_progress: called with each step.

    Attributes:
        directory: absolute.
        kubeconfig: the administrator's, mode 0600.
    """

    def __init__(
        self,
        directory: Path,
        *,
        components: Sequence[str] = CONTROL_PLANE,
        on_progress: Progress = lambda _: None,
    ) -> None:
        self.directory = directory.absolute()
        self.kubeconfig = self.directory / "kubeconfig"
        self._names = tuple(components)
        self._on_progress = on_progress
        self._lock = files.Lock(self.directory)
        self._ports: dict[str, socket.socket] = {}
        self._components: dict[str, Component] = {}
        self._api: Api | None = None
        self._closing = threading.Event()
        self._version = ""
        self._started_at = 0.0

    @classmethod
    @contextlib.asynccontextmanager
    async def start(cls, directory: Path, *, components: Sequence[str] = CONTROL_PLANE) -> AsyncIterator[Self]:
        """Runs a cluster for the length of an `async with` block, without blocking the loop while it starts.

        Raises:
            DevClusterError: as `open`.
        """
        cluster = cls(directory, components=components)
        opening = asyncio.create_task(asyncio.to_thread(cluster.open), name=f"devcluster {directory.name}")
        try:
            await asyncio.shield(opening)
            yield cluster
        finally:
            cluster.abort()
            await asyncio.wait([opening])
            cluster.close()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def server(self) -> str:
        """The address of the API server, as `https://127.0.0.1:12345`."""
        return f"https://127.0.0.1:{self._port('api')}"

    @property
    def etcd_endpoint(self) -> str:
        """The address of etcd, as `http://127.0.0.1:12345`."""
        return f"http://127.0.0.1:{self._port('etcd')}"

    @property
    def version(self) -> str:
        """The version of the API server, as `v1.36.3`; empty until it is ready."""
        return self._version

    @property
    def pids(self) -> dict[str, int]:
        """Component -> pid, of the running ones."""
        return {name: part.pid for name, part in self._components.items() if part.pid is not None}

    def open(self) -> None:
        """Starts everything and returns when Pods can be scheduled (or, with `API_ONLY`, when the API is ready).

        Raises:
            DevClusterError: a program is missing or ended (the message has the tail of its log), the directory is in
                use, or it took too long.
        """
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock.acquire()
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stops all components; returns when no process is left. Does nothing the second time."""
        self.abort()
        for name in reversed(self._components):
            # Only etcd has data to lose.
            self._components[name].stop(gently=name == "etcd")
        self._components.clear()
        if self._api is not None:
            self._api.close()
        for reserved in self._ports.values():
            reserved.close()
        self._ports.clear()
        self._lock.release()

    def abort(self) -> None:
        """Aborts an `open` in another thread; may be called by any thread."""
        self._closing.set()

    def check(self) -> None:
        """Raises an error for components that ended by themselves.

        Raises:
            DevClusterError: one did; the message has the tail of its log.
        """
        for component in self._components.values():
            component.check()

    def wait(self, other: int | None = None) -> None:
        """Blocks until a child process of the caller ends, or, without one, until a component does.

        Raises:
            DevClusterError: a component ended by itself; the message has the tail of its log.
        """
        with contextlib.ExitStack() as stack:
            handles = []
            for pid in [*self.pids.values(), *([other] if other is not None else [])]:
                # No such process: it has ended, and is reaped.
                with contextlib.suppress(ProcessLookupError):
                    handles.append(os.pidfd_open(pid))
                    stack.callback(os.close, handles[-1])
            select.select(handles, [], [])
        self.check()

    def stop_apiserver(self) -> None:
        """Kills the API server (SIGKILL); its port stays reserved."""
        self._components["kube-apiserver"].stop()

    def start_apiserver(self) -> None:
        """Starts a killed API server again, on the same port, and waits until it is ready.

        Raises:
            DevClusterError: as `open`.
        """
        self._components["kube-apiserver"].start()
        self._wait("the API server", self._client().ready)

    def back_up(self, to: Path) -> None:
        """Copies the data of etcd into a new directory; etcd and the API server are stopped meanwhile.

        Raises:
            DevClusterError: as `open`.
        """
        with self._without_etcd():
            shutil.copytree(self.directory / ETCD_DATA, to)

    def restore(self, backup: Path, *, behind_the_apiserver: bool = False) -> None:
        """Restores a copy of `back_up`, resource versions included; etcd and the API server are stopped meanwhile.

        Controllers are not started again, and do not notice by themselves.

        Args:
            backup: the copy.
            behind_the_apiserver: leaves the API server running, which continues with its watch cache.

        Raises:
            DevClusterError: as `open`.
        """
        with self._without_etcd(behind_the_apiserver=behind_the_apiserver):
            shutil.rmtree(self.directory / ETCD_DATA)
            shutil.copytree(backup, self.directory / ETCD_DATA)

    @contextlib.contextmanager
    def _without_etcd(self, *, behind_the_apiserver: bool = False) -> Iterator[None]:
        if not behind_the_apiserver:
            self.stop_apiserver()
        self._components["etcd"].stop(gently=True)
        yield
        self._components["etcd"].start()
        if behind_the_apiserver:
            self._wait("the API server", self._client().ready)
        else:
            self.start_apiserver()

    def environment(self) -> dict[str, str]:
        """Returns the variables with which a child process uses this cluster: kubeconfig, helm, and kubectl on PATH."""
        helm, kubectl = require("helm"), require("kubectl")
        return {
            "KUBECONFIG": str(self.kubeconfig),
            "KUBE_CONFIG": str(self.kubeconfig),
            "HELM_BIN_PATH": str(helm),
            "PATH": os.pathsep.join([str(kubectl.parent), os.environ.get("PATH", os.defpath)]),
        }

    def kubectl(self, *words: str, stdin: str | None = None, timeout_s: float = 90.0) -> str:
        """Runs kubectl as administrator; returns its output.

        Raises:
            DevClusterError: it failed; the message has what it said. Or it was ended because it took too long.
        """
        argv = [str(require("kubectl")), "--kubeconfig", str(self.kubeconfig), *words]
        title = f"kubectl {' '.join(words[:4])}"
        try:
            ended = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False, timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            self.check()
            raise DevClusterError(
                f"{title}: did not finish within {timeout_s:g} s; see {self.directory}/*.log"
            ) from error
        if ended.returncode != 0:
            self.check()
            raise DevClusterError(f"{title}: exit code {ended.returncode}: {ended.stderr.strip()}")
        return ended.stdout

    def namespace(self, prefix: str = "t") -> str:
        """Creates a new namespace; returns its name when Pods can be created in it."""
        name = f"{prefix}-{secrets.token_hex(4)}"
        self.create_namespace(name)
        return name

    def create_namespace(self, name: str) -> None:
        """Creates a namespace unless it exists, and waits until Pods can be created in it.

        Raises:
            DevClusterError: it was refused.
        """
        self._client().create("/api/v1/namespaces", {"metadata": {"name": name}})
        if "kube-controller-manager" in self._names:
            self._wait(f"namespace {name}", lambda: self._has_service_account(name))

    def _open(self) -> None:
        self._closing.clear()
        self._version = ""
        self._started_at = time.time()
        self._reserve_ports()
        self._prepare()
        self._launch(*API_ONLY)
        authority = self.directory / "certs" / "apiserver.crt"
        self._wait("the API server's certificate", lambda: _is_complete(authority))
        bearer = files.token(self.directory)
        files.write_kubeconfig(self.kubeconfig, server=self.server, bearer=bearer, authority=authority.read_bytes())
        self._api = Api(port=self._port("api"), bearer=bearer, authority=authority)
        # The other components would only wait for the API server.
        self._wait("the API server's first answer", self._ask_version)
        self._launch(*[name for name in self._names if name not in API_ONLY])
        self._wait("the API server", self._api.ready)
        if "kwok" in self._names:
            self._api.create("/api/v1/nodes", _node(self._version))
        self._wait("the controllers", self._controllers_ready)
        self._save()

    def _ask_version(self) -> bool:
        answer = self._client().get("/version")
        self._version = str(answer["gitVersion"]) if answer is not None else ""
        return answer is not None

    def _reserve_ports(self) -> None:
        """Binds the ports and keeps them reserved: only the programs share them (SO_REUSEPORT).

        Those of the last time are taken if they are free, so that its kubeconfig stays right.
        """
        state = files.read_state(self.directory)
        known = state.ports if state is not None else {}
        for purpose in ("api", "etcd", "peer"):
            self._ports[purpose] = reserve(known.get(purpose, 0))
        self._save()

    def _port(self, purpose: str) -> int:
        if purpose not in self._ports:
            raise DevClusterError(f"the cluster in {self.directory} is not running")
        port: int = self._ports[purpose].getsockname()[1]
        return port

    def _prepare(self) -> None:
        programs = {name: require(name) for name in self._names}
        files.token(self.directory)
        files.make_service_account_key(self.directory)
        ports = {purpose: self._port(purpose) for purpose in self._ports}
        for name, program in programs.items():
            argv = [str(program), *arguments(name, ports=ports, stages=_STAGES)]
            self._components[name] = Component(name, argv, directory=self.directory)
            self._components[name].log.unlink(missing_ok=True)

    def _launch(self, *names: str) -> None:
        if names:
            self._on_progress(f"starting {', '.join(names)}")
        for name in names:
            self._components[name].start()

    def _client(self) -> Api:
        if self._api is None:
            raise DevClusterError(f"the cluster in {self.directory} is not running")
        return self._api

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        self._on_progress(f"waiting for {what}")
        deadline = time.monotonic() + _READY_S
        while not condition():
            self.check()
            if self._closing.wait(_TICK_S):
                raise DevClusterError(f"the cluster in {self.directory} is being stopped")
            if time.monotonic() > deadline:
                raise DevClusterError(f"{what}: not ready after {_READY_S:.0f} s; see {self.directory}/*.log")

    def _controllers_ready(self) -> bool:
        if "kwok" in self._names and not self._node_ready():
            return False
        return "kube-controller-manager" not in self._names or self._has_service_account("default")

    def _node_ready(self) -> bool:
        node = self._client().get(f"/api/v1/nodes/{NODE}")
        return node is not None and is_schedulable(node)

    def _has_service_account(self, namespace: str) -> bool:
        return self._client().get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default") is not None

    def _save(self) -> None:
        ports = {purpose: self._port(purpose) for purpose in self._ports}
        state = files.State(
            server=f"https://127.0.0.1:{ports.get('api', 0)}",
            version=self._version,
            started_at=self._started_at,
            ports=ports,
            components=self.pids,
        )
        files.write_state(self.directory, state)


def is_schedulable(node: JsonObject) -> bool:
    """Returns whether a Node is ready and has no taints."""
    status, spec = node.get("status"), node.get("spec")
    assert isinstance(status, dict)
    assert isinstance(spec, dict)
    conditions = status.get("conditions")
    ready = isinstance(conditions, list) and any(
        isinstance(condition, dict) and condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in conditions
    )
    return ready and not spec.get("taints")


def reserve(port: int) -> socket.socket:
    """Binds a loopback port, the preferred one if it is free, and does not listen."""
    reserved = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    with contextlib.suppress(OSError):
        reserved.bind(("127.0.0.1", port))
        return reserved
    reserved.bind(("127.0.0.1", 0))
    return reserved


def _is_complete(certificate: Path) -> bool:
    try:
        return certificate.read_bytes().rstrip().endswith(b"-----END CERTIFICATE-----")
    except OSError:
        return False


def _node(version: str) -> JsonObject:
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    labels: Mapping[str, str] = {
        "kubernetes.io/hostname": NODE,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture,
    }
    return {
        "metadata": {"name": NODE, "labels": dict(labels)},
        "status": {
            "capacity": dict(_CAPACITY),
            "allocatable": dict(_CAPACITY),
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": NODE}],
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "message": "simulated",
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": now,
                }
            ],
            "nodeInfo": {
                "kubeletVersion": version,
                "operatingSystem": "linux",
                "architecture": architecture,
                "osImage": "simulated",
                **dict.fromkeys(
                    (
                        "kernelVersion",
                        "machineID",
                        "systemUUID",
                        "bootID",
                        "containerRuntimeVersion",
                        "kubeProxyVersion",
                    ),
                    "",
                ),
            },
        },
    }
