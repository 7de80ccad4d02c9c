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
_DEFAULT_PORT: Final = 9650
_PORTS: Final = 100


def environment(cluster: DevCluster, *, namespace: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of an operator for a cluster, with its files in the directory of the cluster.

    Args:
        cluster: running.
        namespace: of the ConfigMap and the releases.
        inherited: the caller's environment; takes precedence except for the variables that lead to the cluster.
    """
    directory = cluster.directory
    defaults = {
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
        **defaults,
        **cluster.environment(),
        "ADDON_OPERATOR_NAMESPACE": namespace,
        "DEBUG_UNIX_SOCKET": str(directory / "debug.socket"),
    }


def run(cluster: DevCluster, arguments: Sequence[str], *, env: Mapping[str, str]) -> int:
    """Runs `addon-operator start` until it exits; returns its exit status.

    KeyboardInterrupt stops it gracefully, a second one at once; the first is raised again.

    Raises:
        DevClusterError: a component of the cluster ended; the operator is stopped.
    """
    child = LeashedProcess([sys.executable, "-m", "addon_operator", "start", *arguments], env=env)
    terminate_s = _STOP_S
    try:
        cluster.wait(child.popen.pid)
    except DevClusterError:
        # Without the cluster it cannot finish its work.
        terminate_s = 1.0
        raise
    finally:
        code = _end(child, terminate_s)
    if code < 0:
        print(f"the operator was terminated by {signal.Signals(-code).name}", file=sys.stderr)  # noqa: T201 -- a command
    return code if code >= 0 else 128 - code


def _end(child: LeashedProcess, terminate_s: float) -> int:
    with contextlib.suppress(KeyboardInterrupt):
        return child.end(terminate_s=terminate_s)
    # end() has released the leash, which killed it.
    return child.popen.wait()


def _free_port() -> int:
    """Returns the operator's default port, or the first one above it that is free.

    None that the kernel gives to connections, which could take it before the operator listens.
    """
    for port in range(_DEFAULT_PORT, _DEFAULT_PORT + _PORTS):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise DevClusterError(f"no port of 127.0.0.1 is free from {_DEFAULT_PORT} to {_DEFAULT_PORT + _PORTS - 1}")
