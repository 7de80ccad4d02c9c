"""What a request to the API server is about, and the points at which a case may strike (pure)."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from tests.robustness.workload import CLOCKWORK

_WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_RECORD: Final = re.compile(rb"sh\.helm\.release\.v1\.[a-z0-9-]+\.v\d+")
# Said about what was done, renewed by the clock: not what a converge consists of.
_BYSTANDERS: Final = frozenset({"events", "leases"})


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    """A write or the start of a process.

    Attributes:
        what: `POST secrets/x`, `start helm upgrade x`, without the namespace, the same in each run.
        number: 1 for the first time that this happens.
    """

    what: str
    number: int

    def __str__(self) -> str:
        return self.what if self.number == 1 else f"{self.what} #{self.number}"

    @classmethod
    def parse(cls, text: str) -> Point:
        """Reads what `str` gives."""
        what, mark, number = text.rpartition(" #")
        return cls(what, int(number)) if mark else cls(text, 1)


class Numbers:
    """Numbers what happens again and again."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def next(self, what: str) -> Point:
        """The point for what happens now."""
        self._seen[what] += 1
        return Point(what, self._seen[what])


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """What a path names.

    Attributes:
        collection: path of the collection that the object is in, or would be.
        resource: plural, as `configmaps`; empty if the path is about no objects (`/version`, discovery).
        name: of the object; empty for the collection.
        subresource: as `status`; empty if none.
    """

    collection: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""


def target(path: str) -> Target:
    """Takes a path apart; `/api/v1/namespaces/x` is the object x, not a collection."""
    parts = path.strip("/").split("/")
    root = 2 if parts[0] == "api" else 3 if parts[0] == "apis" else len(parts)
    rest = parts[root:]
    if not rest:
        return Target()
    start = root + 2 if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in {"status", "finalize"} else root
    resource, name, *sub = [*parts[start:], ""][:3] if len(parts) > start + 1 else [parts[start], ""]
    return Target("/" + "/".join(parts[: start + 1]), resource, name, sub[0] if sub else "")


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """One request.

    Attributes:
        method: in capital letters.
        path: without the query.
        query: parameters.
        body: as it was sent.
    """

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes = b""

    @property
    def target(self) -> Target:
        """What it is about; a POST names its object in the body."""
        found = target(self.path)
        if self.method == "POST" and found.resource and not found.name:
            return dataclasses.replace(found, name=_name(self.body))
        return found

    @property
    def watches(self) -> bool:
        """Whether the answer is a stream of events."""
        return self.method == "GET" and self.query.get("watch") in {"1", "true"}

    @property
    def writes(self) -> bool:
        """Whether it changes something that a converge consists of."""
        resource = self.target.resource
        return (
            self.method in _WRITES
            and bool(resource)
            and resource not in _BYSTANDERS
            and not resource.endswith("reviews")
            and "dryRun" not in self.query
        )

    def what(self, namespace: str) -> str:
        """What it is, the same in each run."""
        about = self.target
        verb = "WATCH" if self.watches else self.method
        words = "/".join(part for part in (about.resource or self.path, about.name, about.subresource) if part)
        return f"{verb} {words}".replace(namespace, "NAMESPACE")


def counts(what: str) -> bool:
    """Whether a write or the start of a process is one of the converge, and not of the schedule."""
    return CLOCKWORK not in what


def _name(body: bytes) -> str:
    if body.startswith(b"k8s\0"):
        # Protobuf, as helm writes its records; nothing else does.
        found = _RECORD.search(body)
        return found[0].decode() if found else ""
    try:
        metadata = json.loads(body).get("metadata") or {}
    except (ValueError, AttributeError):
        return ""
    return str(metadata.get("name") or metadata.get("generateName") or "")
