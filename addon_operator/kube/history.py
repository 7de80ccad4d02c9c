"""Whether the API server goes on from what was seen of it, or has gone back, as after a restore of etcd.

Resource versions of one resource only grow, and the versions of all resources that etcd holds come from one counter
(KEP-5504). A server that has gone back does not say so: it accepts a watch from a version that it has not reached yet,
and withholds everything below it. What a list shows is therefore compared with what was seen before.

`History` is what all reflectors of one client share; the rest is pure.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from addon_operator.logs import get_logger

_log = get_logger("kube")


def version_number(version: object) -> int | None:
    """Reads a resourceVersion; None if it is not a number, which servers of other APIs may use."""
    return int(version) if isinstance(version, str) and version.isdecimal() else None


def is_older(version: object, than: object) -> bool:
    """Returns whether one resourceVersion is older than another; False unless both are numbers."""
    number, limit = version_number(version), version_number(than)
    return number is not None and limit is not None and number < limit


def newest(known: Mapping[str, str], *, beyond: object) -> str | None:
    """Returns the key of the object that changed last.

    Args:
        known: key -> `uid/version` of each object.
        beyond: None is returned unless it changed after this version.
    """
    versions = ((version_number(state.rpartition("/")[2]) or 0, key) for key, state in known.items())
    version, key = max(versions, default=(0, ""))
    return key if is_older(beyond, str(version)) else None


class Progress:
    """How far a reflector has seen, and what a list means that shows less than that.

    Attributes:
        version: of the last list or event; empty before the first list is complete.
    """

    def __init__(self, *, confirm_s: float) -> None:
        """Has seen nothing.

        Args:
            confirm_s: how long a list that is older waits for a second one that confirms it.
        """
        self.version = ""
        self._confirm_s = confirm_s
        self._written = ""
        self._ordered = True
        self._jumped_back = False
        self._older_since: float | None = None

    @property
    def newest(self) -> str:
        """The newest version that was seen, be it that of an own write."""
        return self._written if is_older(self.version or "0", self._written) else self.version

    def advance(self, version: str) -> bool:
        """Takes the version of an event; returns whether it is as it should be, or a list has to show what it means."""
        if self._ordered and is_older(version, self.version):
            self._jumped_back = True
            return False
        self.version = version
        return True

    def wrote(self, version: str, *, after: str) -> bool:
        """Takes the version of an own write; returns whether it is higher than what was the newest before it."""
        if is_older(version, after):
            return False
        self._written = version
        return True

    def is_doubtful(self, version: object) -> bool:
        """Returns whether an object in a list is older than what was seen, so that it cannot be news."""
        return self._ordered and is_older(version, self.version)

    def judge(self, version: str, now: float) -> Literal["goes on", "older", "confirmed"]:
        """Returns what a list of this version shows: it goes on, it is older, or it still is after the time to wait."""
        if not self._ordered or not is_older(version, self.newest):
            return "goes on"
        if self._older_since is None:
            self._older_since = now
        return "older" if now - self._older_since < self._confirm_s else "confirmed"

    def stays(self) -> None:
        """What seemed to be older was out of date."""
        self._older_since = None

    def listed(self, version: str, *, doubtful: bool) -> bool:
        """Takes the version of a list that counts; returns whether it shows that the server has gone back.

        Args:
            version: of the list.
            doubtful: whether objects in it were.
        """
        older = self._ordered and is_older(version, self.newest)
        if self._jumped_back and not older:
            # An event had a lower version, and the list has not: versions are no order here.
            self._ordered = False
        self.version, self._written = version, ""
        self._older_since, self._jumped_back = None, False
        return older or (doubtful and self._ordered)

    def forget(self) -> None:
        """Begins again: what was seen is not served any more."""
        self.version = self._written = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Rewind:
    """What shows that a server has gone back.

    Attributes:
        where: which objects, such as `configmaps in prod`.
        seen: the version that had been seen of them.
        version: the version that the server is at now.
        example: an object that was not there at the version seen, though its own is lower, as `prod/one at 17`; empty
            if the version alone shows it.
    """

    where: str
    seen: str
    version: str
    example: str = ""


class History:
    """How often the API server has gone back.

    Attributes:
        rewinds: grows with each time; who listed before that lists anew.
    """

    def __init__(self) -> None:
        self.rewinds = 0
        self._listeners: set[Callable[[], None]] = set()

    @contextlib.contextmanager
    def listening(self, listener: Callable[[], None]) -> Iterator[None]:
        """Calls the listener each time as long as the block lasts; it must not raise."""
        self._listeners.add(listener)
        try:
            yield
        finally:
            self._listeners.discard(listener)

    def rewound(self, rewind: Rewind, *, known: int) -> None:
        """Notes that the server has gone back, logs it and calls the listeners, unless it is known already.

        Args:
            rewind: what shows it.
            known: `rewinds` when whoever noticed it last listed everything: if it has grown since, it is the same time.
        """
        if self.rewinds != known:
            _log.debug("objects are in an older state, too", resource=rewind.where)
            return
        self.rewinds += 1
        _log.warning(
            "the API server has gone back to an older state, as after a restore of etcd: all objects are listed anew, "
            "what is not there any more counts as deleted, what is different as modified",
            resource=rewind.where,
            example=rewind.example,
            seen_version=rewind.seen,
            version=rewind.version,
        )
        for listener in tuple(self._listeners):
            listener()
