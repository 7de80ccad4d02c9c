"""The operator beside a local cluster: its environment, and its run as a child process."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from addon_operator.devcluster.cluster import DevCluster
from addon_operator.devcluster.errors import DevClusterError
from addon_operator.process.leash import LeashedProcess

# Above what the operator itself allows a helm in flight.
_STOP_S: Final = 60.0
_USUAL_PORT: Final = 9650


def environment(cluster: DevCluster, *, namespace: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """Answers the environment of an operator that works on a cluster, and keeps its files in its directory.

    Args:
        cluster: which runs.
        namespace: of the ConfigMap and the releases.
        inherited: the caller's environment; where the cluster is not concerned, it wins.
    """
    directory = cluster.directory
    chosen = {
        "ADDON_OPERATOR_LISTEN_ADDRESS": "127.0.0.1",
        "ADDON_OPERATOR_LISTEN_PORT": str(_free_port()),
        "ADDON_OPERATOR_TMP_DIR": str(directory / "tmp"),
        # There is no network of Services: the API server calls webhooks directly.
        "WEBHOOK_HOST": "127.0.0.1",
        **{
            f"{server}_WEBHOOK_LISTEN_{what}": value
            for server in ("VALIDATING", "CONVERSION")
            for what, value in (("ADDRESS", "127.0.0.1"), ("PORT", "0"))
        },
        **{name: value for name, value in inherited.items() if name not in {"KUBE_CONTEXT", "KUBE_SERVER"}},
    }
    return {
        **chosen,
        **cluster.environment(),
        "ADDON_OPERATOR_NAMESPACE": namespace,
        "DEBUG_UNIX_SOCKET": str(directory / "debug.socket"),
    }


def run(cluster: DevCluster, arguments: Sequence[str], *, env: Mapping[str, str]) -> int:
    """Runs `addon-operator start` until it ends by itself; answers its exit code.

    KeyboardInterrupt stops it in its own time, a second one at once; the first is raised again.

    Raises:
        DevClusterError: a component of the cluster ended; the operator is stopped.
    """
    child = LeashedProcess([sys.executable, "-m", "addon_operator", "start", *arguments], env=env)
    terminate_s = _STOP_S
    try:
        cluster.wait(child.popen.pid)
    except DevClusterError:
        # Nothing is left that it could finish its work with.
        terminate_s = 1.0
        raise
    finally:
        code = _end(child, terminate_s)
    if code < 0:
        print(f"the operator was ended by {signal.Signals(-code).name}", file=sys.stderr)  # noqa: T201 -- a command
    return code if code >= 0 else 128 - code


def _end(child: LeashedProcess, terminate_s: float) -> int:
    with contextlib.suppress(KeyboardInterrupt):
        return child.end(terminate_s=terminate_s)
    # end() has released the leash, which killed it.
    return child.popen.wait()


def _free_port() -> int:
    """Answers the operator's usual port if it is free, else any other."""
    for port in (_USUAL_PORT, 0):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)) as server:
            chosen: int = server.getsockname()[1]
            return chosen
    raise DevClusterError("no port is free on 127.0.0.1")
