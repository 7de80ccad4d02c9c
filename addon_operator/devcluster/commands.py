"""The command lines of the control plane's programs (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

CONTROL_PLANE: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
API_ONLY: Final = CONTROL_PLANE[:2]
ETCD_DATA: Final = "etcd"

# Reserved for documentation (RFC 5737): without it the API server looks for a default route, which a machine
# without network does not have; loopback it refuses.
_ADVERTISED: Final = "192.0.2.1"
# Lifts the default limits on requests (20 per second), which slow down a busy start.
_BRISK: Final = ("--kube-api-qps=200", "--kube-api-burst=400")


def arguments(name: str, *, ports: Mapping[str, int], stages: Path) -> tuple[str, ...]:
    """Returns the arguments of one program, to be run in the cluster's directory.

    Args:
        name: one of `CONTROL_PLANE`.
        ports: `api`, `etcd`, `peer`.
        stages: kwok's configuration.
    """
    match name:
        case "etcd":
            return _etcd(f"http://127.0.0.1:{ports['etcd']}", f"http://127.0.0.1:{ports['peer']}")
        case "kube-apiserver":
            return _apiserver(f"http://127.0.0.1:{ports['etcd']}", ports["api"])
        case "kube-controller-manager":
            return (
                "--kubeconfig=kubeconfig",
                "--service-account-private-key-file=sa.key",
                "--root-ca-file=certs/apiserver.crt",
                "--leader-elect=false",
                "--secure-port=0",
                *_BRISK,
            )
        case "kube-scheduler":
            return ("--kubeconfig=kubeconfig", "--leader-elect=false", "--secure-port=0", *_BRISK)
        case "kwok":
            return (
                "--kubeconfig=kubeconfig",
                f"--config={stages}",
                "--manage-all-nodes",
                "--node-ip=127.0.0.1",
                "--cidr=10.244.0.0/16",
                "--node-lease-duration-seconds=40",
            )
        case _:
            raise ValueError(f"{name} is not a component of the control plane")


def _etcd(client: str, peer: str) -> tuple[str, ...]:
    return (
        f"--data-dir={ETCD_DATA}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        "--socket-reuse-port",
        "--unsafe-no-fsync",
    )


def _apiserver(etcd: str, port: int) -> tuple[str, ...]:
    return (
        f"--etcd-servers={etcd}",
        "--bind-address=127.0.0.1",
        f"--advertise-address={_ADVERTISED}",
        f"--secure-port={port}",
        "--permit-port-sharing",
        "--cert-dir=certs",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-account-key-file=sa.key",
        "--service-account-signing-key-file=sa.key",
        "--token-auth-file=tokens.csv",
        "--authorization-mode=Node,RBAC",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--allow-privileged=true",
    )
