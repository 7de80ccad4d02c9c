"""What a Lease says, when it may be taken, and what its holder writes. Pure: clocks are read by `election`."""

from __future__ import annotations

import dataclasses
import math
from typing import Final

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.kube.refs import LEASES, metadata_of

LEASE: Final = "addon-operator-leader-election"


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """What a Lease says.

    Attributes:
        holder: its `holderIdentity`; empty if nobody holds it.
        duration_s: how long it lasts after each renewal.
        acquired: when the holder took it, by the holder's clock, as it is written.
        renewed: when the holder renewed it, likewise.
        transitions: how often it has changed hands.
        version: its `resourceVersion`.
        metadata: all of it, to be written back.
    """

    holder: str
    duration_s: float
    acquired: str
    renewed: str
    transitions: int
    version: str
    metadata: JsonObject

    @classmethod
    def of(cls, document: JsonObject) -> Record:
        """Reads a Lease; what is missing or of another type counts as empty."""
        spec = document.get("spec")
        fields = spec if isinstance(spec, dict) else {}
        metadata = metadata_of(document)
        return cls(
            holder=str(fields.get("holderIdentity") or ""),
            duration_s=float(_integer(fields.get("leaseDurationSeconds"))),
            acquired=str(fields.get("acquireTime") or ""),
            renewed=str(fields.get("renewTime") or ""),
            transitions=_integer(fields.get("leaseTransitions")),
            version=str(metadata.get("resourceVersion") or ""),
            metadata=metadata,
        )

    def is_free(self, me: str, *, seen_for_s: float) -> bool:
        """Returns whether it may be taken: nobody's, one's own, or not renewed for too long.

        Args:
            me: the identity of who asks.
            seen_for_s: for how long it was seen unchanged.
        """
        return not self.holder or self.holder == me or seen_for_s >= self.duration_s

    def same_term(self, other: Record | None) -> bool:
        """Returns whether the holder has written nothing between the two."""
        return other is not None and (self.holder, self.acquired, self.renewed, self.transitions) == (
            other.holder, other.acquired, other.renewed, other.transitions,
        )  # fmt: skip


def next_lease(
    record: Record | None, *, namespace: str, me: str, acquired: str, now: str, duration_s: float, release: bool = False
) -> JsonObject:
    """Returns the Lease as this process writes it: taken, renewed or released.

    Args:
        record: what it says until now; None if there is none.
        namespace: of the Lease.
        me: the identity of this process.
        acquired: when this process took it.
        now: the clock of this process, in the format of the API.
        duration_s: how long it lasts after each renewal.
        release: it is given back.
    """
    transitions = 0 if record is None else record.transitions + (record.holder != me)
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"name": LEASE, "namespace": namespace} if record is None else record.metadata,
        "spec": {
            "holderIdentity": "" if release else me,
            # As client-go does: nobody has to wait for a Lease that was released.
            "leaseDurationSeconds": 1 if release else math.ceil(duration_s),
            "acquireTime": now if release else acquired,
            "renewTime": now,
            "leaseTransitions": transitions,
        },
    }


def _integer(value: object) -> int:
    return value if isinstance(value, int) else 0
