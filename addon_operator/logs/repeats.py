"""Which lines of a log repeat too often.

A fault that recurs thousands of times per second must not fill disks or hide other lines, and other lines must not be
held back because of it: lines are the same if they agree in everything but numbers and fields that always differ.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Hashable, Mapping
from typing import Final, TypeAlias

Event: TypeAlias = Mapping[str, object]

# Fields that always differ.
_PASSING: Final = frozenset({"event_id", "task_id", "attempt", "duration_s", "stack", "time", "repeated", "similar"})
# Fields that name the subject of a line: lines with different subjects are never similar.
_ABOUT: Final = ("level", "component", "event", "task", "queue", "module", "hook", "binding", "release", "scope")
_MOST_KEYS: Final = 5000


@dataclasses.dataclass(slots=True)
class _Window:
    """The lines of one key in one interval."""

    until: float
    count: int = 0
    held_back: int = 0
    last: Event = dataclasses.field(default_factory=dict)


class Repeats:
    """Lets a number of lines of each kind pass in an interval, and counts the others.

    Two bounds: for lines that are the same, and a larger one for lines that are similar (with the same subject and
    message), so that a text which differs each time does not get around the first. May be called by any thread.
    """

    def __init__(self, *, same: int = 50, similar: int = 500, interval_s: float = 10.0) -> None:
        """Starts empty.

        Args:
            same: the number of same lines that pass in an interval.
            similar: the number of similar lines that pass in an interval.
            interval_s: seconds, from the first such line.
        """
        self.interval_s = interval_s
        self._most = {"repeated": same, "similar": similar}
        self._windows: dict[tuple[str, Hashable], _Window] = {}
        self._clear_again = 0.0
        self._lock = threading.Lock()

    def passes(self, event: Event, now: float) -> bool:
        """Returns whether to write this line; counts it."""
        keys = (("repeated", _same(event)), ("similar", _similar(event)))
        with self._lock:
            for key in keys:
                window = self._window(key, now)
                if window is None:
                    continue
                window.count += 1
                if window.count > self._most[key[0]]:
                    window.held_back += 1
                    window.last = dict(event)
                    return False
        return True

    def due(self, now: float) -> list[dict[str, object]]:
        """Removes the intervals that are over; returns the last line of each with the number of lines held back."""
        with self._lock:
            over = {key: window for key, window in self._windows.items() if window.until <= now}
            for key in over:
                del self._windows[key]
        return [{**window.last, key[0]: window.held_back} for key, window in over.items() if window.held_back]

    def holds_back(self) -> bool:
        """Returns whether `due` will have lines to return, now or later."""
        with self._lock:
            return any(window.held_back for window in self._windows.values())

    def _window(self, key: tuple[str, Hashable], now: float) -> _Window | None:
        window = self._windows.get(key)
        if window is not None and (window.until > now or window.held_back):
            return window
        if window is None:
            self._clear(now)
            if len(self._windows) >= _MOST_KEYS:
                return None
        self._windows[key] = _Window(now + self.interval_s)
        return self._windows[key]

    def _clear(self, now: float) -> None:
        """Drops intervals that are over and held nothing back; not at each line of a burst."""
        if now >= self._clear_again:
            self._clear_again = now + self.interval_s
            self._windows = {key: old for key, old in self._windows.items() if old.until > now or old.held_back}


def _same(event: Event) -> Hashable:
    return tuple(
        (name, str(value))
        for name, value in event.items()
        if name not in _PASSING and (isinstance(value, bool) or not isinstance(value, int | float))
    )


def _similar(event: Event) -> Hashable:
    return tuple(str(event.get(name, "")) for name in _ABOUT)
