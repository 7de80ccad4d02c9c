"""Which losses are reported, and when: never while a release is paused, ever more slowly when it does not help.

Somebody who keeps deleting the same object is answered at once a few times; after that the losses of a release are
reported together, at the end of a delay that doubles.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable, Collection, Iterable
from typing import Final

from addon_operator.kube.refs import ObjectKey
from addon_operator.logs import get_logger
from addon_operator.retry import RetryPolicy

_REPORTED_AT_ONCE: Final = 3
_DELAYS: Final = RetryPolicy(5.0, 300.0)
_FORGOTTEN_AFTER_S: Final = 600.0

_log = get_logger("healing")


class LossReporter:
    """Reports the losses of all releases."""

    def __init__(
        self,
        find_lost: Callable[[str], tuple[ObjectKey, ...]],
        on_lost: Callable[[str, tuple[ObjectKey, ...]], None],
    ) -> None:
        """Reports nothing yet.

        Args:
            find_lost: returns the objects of a release that are missing at this moment and were not deleted on
                purpose.
            on_lost: receives a release and its lost objects; must not raise.
        """
        self._find_lost = find_lost
        self._on_lost = on_lost
        self._paused: collections.Counter[str] = collections.Counter()
        # How often, and when last, each object was reported: release -> object -> (count, instant).
        self._reported: dict[str, dict[ObjectKey, tuple[int, float]]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def pause(self, release: str) -> None:
        """Holds back all reports about a release. Pauses nest."""
        self._paused[release] += 1

    def resume(self, release: str) -> None:
        """Ends one pause; after the last one, what is missing is reported."""
        self._paused[release] -= 1
        if self._paused[release] <= 0:
            del self._paused[release]
            self._report(release)

    def forget(self, release: str) -> None:
        """Forgets what was reported about a release, and reports nothing that is due later."""
        self._reported.pop(release, None)
        if release in self._timers:
            self._timers.pop(release).cancel()

    def close(self) -> None:
        """Reports nothing that is due later."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def deleted(self, release: str, keys: Iterable[ObjectKey], *, expected: Collection[ObjectKey]) -> None:
        """Reports the deletion of objects of a release unless it was expected.

        Args:
            release: its name.
            keys: what was deleted.
            expected: those of them that were deleted on purpose.
        """
        lost = [key for key in keys if key not in expected]
        if lost:
            _log.info("objects of a release were deleted by somebody else", release=release, objects=_names(lost))
            self._report(release)
        else:
            _log.info(
                "objects of a release were deleted on purpose, the next run of the module restores them",
                release=release,
                objects=_names(expected),
            )

    def restorable(self, release: str, keys: tuple[ObjectKey, ...]) -> None:
        """Reports objects whose kind is served again, or will be in a moment: helm can restore them."""
        if not self._paused[release]:
            self._on_lost(release, keys)

    def _report(self, release: str) -> None:
        """Reports what is missing, at once or, if that has not helped, later."""
        lost = self._lost(release)
        if not lost:
            return
        count = max(self._count(release, key, _now()) for key in lost)
        if count < _REPORTED_AT_ONCE:
            self._report_now(release, lost)
        elif release not in self._timers:
            delay_s = _DELAYS.delay_s(count - _REPORTED_AT_ONCE + 1)
            self._timers[release] = asyncio.get_running_loop().call_later(delay_s, self._report_delayed, release)

    def _report_delayed(self, release: str) -> None:
        self._timers.pop(release, None)
        if lost := self._lost(release):
            self._report_now(release, lost)

    def _report_now(self, release: str, lost: tuple[ObjectKey, ...]) -> None:
        now = _now()
        self._reported[release] = {key: (self._count(release, key, now) + 1, now) for key in lost}
        self._on_lost(release, lost)

    def _lost(self, release: str) -> tuple[ObjectKey, ...]:
        return () if self._paused[release] else self._find_lost(release)

    def _count(self, release: str, key: ObjectKey, now: float) -> int:
        count, last = self._reported.get(release, {}).get(key, (0, now))
        return count if now - last < _FORGOTTEN_AFTER_S else 0


def _names(keys: Iterable[ObjectKey]) -> str:
    return ", ".join(str(key) for key in sorted(keys))


def _now() -> float:
    return asyncio.get_running_loop().time()
