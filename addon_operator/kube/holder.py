"""Who holds a Lease, as text that people can read and that says whether its process still lives.

A process that ends without a word leaves its Lease behind, and everybody else waits until it has run out. Where the
next process can be sure that the former one is dead, it need not wait. A holder therefore binds a name in the abstract
socket namespace, which the kernel frees when the process ends, in whatever way. All see it that share the network
namespace: programs on one host, containers of one Pod (a restarted one too), Pods with hostNetwork. Names are used
once, so neither a process id that is used again nor another operator on the same host is mistaken for the holder. Who
is elsewhere learns nothing, and waits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import os
import secrets
import socket
from pathlib import Path
from typing import Self

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NETWORK_NAMESPACE = Path("/proc/self/ns/net")


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """What stands in `holderIdentity`: `NAME_PID_PLACE_RUN`.

    Attributes:
        name: the Pod, or the host.
        pid: the process id, in the holder's own namespace.
        place: digest of host name, boot and network namespace; empty if the holder could not bind its name.
        run: differs for every process.
    """

    name: str
    pid: int
    place: str
    run: str

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Reads it; None if another program has written it."""
        name, *rest = text.rsplit("_", 3)
        if len(rest) != 3 or not name or not rest[0].isdecimal() or not rest[2]:
            return None
        return cls(name, int(rest[0]), rest[1], rest[2])

    def __str__(self) -> str:
        """Returns what stands in the Lease."""
        return f"{self.name}_{self.pid}_{self.place}_{self.run}"

    @property
    def socket_name(self) -> str:
        """The name that the holder has bound."""
        return f"\0addon-operator/{self.place}-{self.run}"


def title(holder: str) -> str:
    """Names a holder for people: `addon-operator-0 (process 7)`; of other programs, what they have written."""
    identity = Identity.parse(holder)
    return f"{identity.name} (process {identity.pid})" if identity else holder


class Holder:
    """This process as a holder; its name stays bound until `close`, or until the process ends.

    Attributes:
        identity: what to write into the Lease.
    """

    def __init__(self, pod: str | None = None) -> None:
        """Binds the name.

        Args:
            pod: the name of the Pod; None for the name of the host.
        """
        self._place = _place()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        identity = Identity(pod or socket.gethostname(), os.getpid(), self._place, secrets.token_hex(6))
        try:
            self._socket.bind(identity.socket_name)
        except OSError:
            identity = dataclasses.replace(identity, place="")
        self.identity = identity

    def knows_dead(self, holder: str) -> bool:
        """Returns whether the process of another holder has surely ended; False also means that nobody can tell."""
        identity = Identity.parse(holder)
        if identity is None or not identity.place or identity.place != self._place:
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            probe.setblocking(False)
            return probe.connect_ex(identity.socket_name) == errno.ECONNREFUSED

    def close(self) -> None:
        """Frees the name."""
        self._socket.close()


def _place() -> str:
    """Digests where abstract names are the same; empty where that cannot be found out.

    Numbers of namespaces are used again, but only after every process of the former one has ended.
    """
    with contextlib.suppress(OSError):
        parts = (socket.gethostname(), _BOOT_ID.read_text().strip(), str(_NETWORK_NAMESPACE.readlink()))
        if all(parts):
            return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return ""
