"""The files of one cluster's directory: keys, tokens, kubeconfig, state, lock. All are 0600 in a 0700 directory.

cluster/
  lock               held (flock) by the process that the cluster belongs to; holds its pid
  state.json         ports, pids and version, for `status` and for the next start
  kubeconfig         the administrator's
  tokens.csv sa.key certs/   made once
  etcd/              the data; kept over restarts
  *.log              one for each component
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import fcntl
import json
import os
import secrets
import shutil
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from addon_operator.devcluster.errors import DevClusterError

_P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_P256_OID: Final = bytes.fromhex("06082a8648ce3d030107")


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """The state that a cluster publishes.

    Attributes:
        server: address of the API server.
        version: of the API server, as `v1.36.3`; empty until it is ready.
        started_at: seconds since the epoch.
        ports: by purpose: `api`, `etcd`, `peer`.
        components: name -> pid of those that were started.
    """

    server: str
    version: str
    started_at: float
    ports: Mapping[str, int]
    components: Mapping[str, int]


def write_private(path: Path, text: str) -> None:
    """Replaces a file atomically by one with mode 0600."""
    part = path.with_name(f"{path.name}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    part.replace(path)


def read_state(directory: Path) -> State | None:
    """Returns the state of the last start; None if it cannot be read."""
    try:
        return State(**json.loads((directory / "state.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None


def write_state(directory: Path, state: State) -> None:
    """Replaces the state."""
    write_private(directory / "state.json", json.dumps(dataclasses.asdict(state)))


def remove(directory: Path) -> None:
    """Deletes the directory of a cluster with all data; does nothing to other directories."""
    if (directory / "state.json").exists():
        shutil.rmtree(directory)


def token(directory: Path) -> str:
    """Returns the administrator's token; creates it the first time."""
    path = directory / "tokens.csv"
    if not path.exists():
        write_private(path, f'{secrets.token_hex(24)},admin,admin,"system:masters"\n')
    return path.read_text().split(",", 1)[0]


def make_service_account_key(directory: Path) -> Path:
    """Returns the file with the key that signs service account tokens; creates it the first time."""
    path = directory / "sa.key"
    if not path.exists():
        write_private(path, _pem(_ec_private_key(secrets.randbelow(_P256_ORDER - 1) + 1)))
    return path


def write_kubeconfig(path: Path, *, server: str, bearer: str, authority: bytes) -> None:
    """Writes a self-contained kubeconfig; `authority` is the PEM text of the server's certificates."""
    name = path.parent.name
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {
                    "server": server,
                    "certificate-authority-data": base64.b64encode(authority).decode(),
                },
            }
        ],
        "users": [{"name": name, "user": {"token": bearer}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    # JSON is YAML, and the standard library writes it.
    write_private(path, json.dumps(document, indent=2) + "\n")


class Lock:
    """Marks a cluster directory as in use, and by whom; the kernel releases it when the holder ends."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "lock"
        self._fd = -1

    def acquire(self, *, patience_s: float = 2.0) -> None:
        """Acquires it.

        Args:
            patience_s: how long to wait for a process that only checks whether it is free, as `status` does.

        Raises:
            DevClusterError: another process has it.
        """
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        deadline = time.monotonic() + patience_s
        while not _flock(self._fd, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                holder = self._path.read_text().strip()
                self.release()
                raise DevClusterError(f"the cluster in {self._path.parent} is already running (process {holder})")
            time.sleep(0.01)
        os.ftruncate(self._fd, 0)
        os.write(self._fd, f"{os.getpid()}\n".encode())

    def release(self) -> None:
        """Releases it; does nothing if it is not held."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def holder(self) -> int | None:
        """Returns the pid of the process that holds it; None if it is free."""
        try:
            fd = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            if _flock(fd, fcntl.LOCK_SH):
                return None
            with contextlib.suppress(ValueError):
                return int(os.pread(fd, 32, 0))
            return None
        finally:
            os.close(fd)


def _flock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _ec_private_key(number: int) -> bytes:
    """Encodes a P-256 private key (RFC 5915); readers derive the public key."""
    inner = _der(0x02, b"\x01") + _der(0x04, number.to_bytes(32, "big")) + _der(0xA0, _P256_OID)
    return _der(0x30, inner)


def _der(tag: int, content: bytes) -> bytes:
    assert len(content) < 128, "the short form of the length is enough here"
    return bytes([tag, len(content)]) + content


def _pem(der: bytes) -> str:
    lines = "\n".join(textwrap.wrap(base64.b64encode(der).decode(), 64))
    return f"-----BEGIN EC PRIVATE KEY-----\n{lines}\n-----END EC PRIVATE KEY-----\n"
