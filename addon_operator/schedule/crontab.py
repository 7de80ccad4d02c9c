"""Crontabs: what `schedule[].crontab` may say, and when the next tick is.

Pure, but the zone database and the zone of this process are read from files. The timers are in `schedule/timer.py`.

The dialect is that of robfig cron v2 (contract.md 2.2): five fields, or six with the seconds first; `?` means `*`;
ranges, lists, steps, names of months and weekdays; `@every 1h30m`, `@hourly` and so on; perhaps after `TZ=Area/City` or
`CRON_TZ=Area/City`. A day must fit both day fields when one of them contains `*`, else either. Beyond the dialect, 7 is
Sunday and ranges wrap.

When clocks are set for summer time:

- A crontab of every hour goes by elapsed time: it ticks in both passes of an hour that comes twice, and not for an hour
  that does not come.
- Any other ticks once for a local time that comes twice, at its first pass, and for one that does not come right after
  the gap.
"""

from __future__ import annotations

import bisect
import math
import os
import re
import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Final, Literal

from addon_operator.documents.durations import parse_duration
from addon_operator.errors import InputError

_SECOND: Final = timedelta(seconds=1)
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_NUMBERS: Final = {name: str(number) for number, name in (*enumerate(_MONTHS, 1), *enumerate(_WEEKDAYS))}
_RANGE: Final = re.compile(r"([^-/]+)-([^-/]+)(/[1-9]\d*)?")
_SHORTCUTS: Final[Mapping[str, str]] = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}


@dataclass(frozen=True, slots=True)
class Crontab:
    """A checked crontab; made by `parse`.

    Attributes:
        text: as it was written.
        zone_name: the time zone in which the fields are read, as `TZ=` names it; for logs.
        zone: the zone itself.
        fields: six fields, seconds first; empty for `@every`.
        every_s: the interval of `@every` in whole seconds, else None. It goes by elapsed time, in no zone.
    """

    text: str
    zone_name: str
    zone: tzinfo = field(compare=False, repr=False)
    fields: str = ""
    every_s: float | None = None

    @classmethod
    def parse(cls, text: str, *, local: zoneinfo.ZoneInfo | None = None) -> Crontab:
        """Reads a crontab.

        Args:
            text: as a hook declares it.
            local: the zone of a crontab that names none; `local_zone()` unless given.

        Raises:
            InputError: what is wrong with it.
        """
        name, rest = _split_zone(text)
        zone = (local or local_zone()) if name is None else _zone(name)
        if rest.startswith("@every "):
            return cls(text, str(zone), zone, every_s=_interval_s(rest.removeprefix("@every ")))
        if rest.startswith("@"):
            if rest not in _SHORTCUTS:
                raise InputError(f"unknown shortcut {rest!r}")
            return cls(text, str(zone), zone, _SHORTCUTS[rest])
        return cls(text, str(zone), zone, _checked_fields(rest))

    def after(self, moment: datetime) -> datetime | None:
        """Returns the first tick after an aware moment, in the crontab's zone; None if there is none in 50 years.

        A tick of `@every` is the moment plus the interval, at a full second, as if counting began at the moment.
        Datetimes of one zone compare by the wall clock: to compare ticks, convert them to UTC.
        """
        try:
            if self.every_s is not None:
                start = moment.replace(microsecond=0).astimezone(UTC)
                return (start + timedelta(seconds=self.every_s)).astimezone(self.zone)
            tick = self._next_instant(moment.astimezone(UTC))
        except OverflowError:  # after the year 9999
            return None
        return tick.astimezone(self.zone) if tick else None

    def _next_instant(self, moment: datetime) -> datetime | None:
        wall = moment.astimezone(self.zone).replace(tzinfo=None, fold=0, microsecond=0)
        found, change = self._search(moment, wall), self._change_at(wall)
        if change and moment < change.at and (found is None or found >= change.at) and self._is_hourly():
            # Nothing is left of the first pass; the second goes back to local times before this one.
            return self._search(change.at - _SECOND, change.wall_after - _SECOND)
        return found

    def _search(self, moment: datetime, wall: datetime) -> datetime | None:
        """Returns the first tick after a moment, among those whose local time is after `wall`."""
        while fitting := self._next_wall(wall):
            change = self._change_at(fitting)
            if change is None:
                return self._instant(fitting)
            if change.wall_before > change.wall_after:
                if passes := [instant for instant in self._passes(fitting) if instant > moment]:
                    return passes[0]
                wall = change.wall_before - _SECOND
            elif not self._is_hourly():
                return change.at
            else:
                wall = change.wall_after - _SECOND
        return None

    def _next_wall(self, wall: datetime) -> datetime | None:
        from croniter import CroniterBadDateError, croniter  # noqa: PLC0415 -- 60 ms that most starts do not need

        _, _, _, days, _, weekdays = self.fields.split()
        times = croniter(
            self.fields,
            wall,
            ret_type=datetime,
            day_or="*" not in days and "*" not in weekdays,
            second_at_beginning=True,
        )
        try:
            found: datetime = times.get_next()
        except CroniterBadDateError:
            return None
        return found

    def _is_hourly(self) -> bool:
        return _expanded(self.fields)[1] == ["*"]

    def _instant(self, wall: datetime, *, fold: Literal[0, 1] = 0) -> datetime:
        return wall.replace(tzinfo=self.zone, fold=fold).astimezone(UTC)

    def _passes(self, wall: datetime) -> tuple[datetime, ...]:
        first, second = self._instant(wall), self._instant(wall, fold=1)
        return (first, second) if self._is_hourly() else (first,)

    def _change_at(self, wall: datetime) -> _Change | None:
        """Returns the change of the clocks that makes a local time absent or ambiguous; None for most."""
        early, late = sorted((self._instant(wall), self._instant(wall, fold=1)))
        if early == late:
            return None
        before, after = self._offset(early), self._offset(late)
        within = range(int((late - early).total_seconds()))
        seconds = bisect.bisect_left(within, True, key=lambda second: self._offset(early + second * _SECOND) != before)
        at = early + seconds * _SECOND
        wall_before, wall_after = ((at + offset).replace(tzinfo=None) for offset in (before, after))
        return _Change(at, wall_before, wall_after)

    def _offset(self, moment: datetime) -> timedelta:
        return moment.astimezone(self.zone).utcoffset() or timedelta()


@dataclass(frozen=True, slots=True)
class _Change:
    """The clocks are set: at which instant, from which local time to which."""

    at: datetime
    wall_before: datetime
    wall_after: datetime


def local_zone(
    environment: Mapping[str, str] = os.environ, localtime: Path = Path("/etc/localtime")
) -> zoneinfo.ZoneInfo:
    """Returns the time zone of this process: that of TZ, else that of /etc/localtime.

    TZ is a name such as Europe/Berlin, or a file. What cannot be read is UTC, as for programs in Go.
    """
    name = environment.get("TZ", str(localtime)).removeprefix(":")
    try:
        return _zone_file(Path(name)) if name.startswith("/") else zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return zoneinfo.ZoneInfo("UTC")


def _zone_file(path: Path) -> zoneinfo.ZoneInfo:
    _, found, name = str(path.resolve()).rpartition("/zoneinfo/")
    if found:
        return zoneinfo.ZoneInfo(name)
    with path.open("rb") as file:
        return zoneinfo.ZoneInfo.from_file(file, key=str(path))


def _split_zone(text: str) -> tuple[str | None, str]:
    match = re.fullmatch(r"(?:CRON_)?TZ=(\S*)\s+(.*)", text.strip())
    return (match[1], match[2]) if match else (None, text.strip())


def _zone(name: str) -> zoneinfo.ZoneInfo:
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InputError(f"unknown time zone {name!r}") from error


def _interval_s(text: str) -> int:
    problem = "@every needs a positive duration such as 30s or 1h30m"
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise InputError(problem) from error
    if not (0 < seconds < math.inf and text.rstrip()[-1].isalpha()):
        raise InputError(problem)
    return max(int(seconds), 1)


def _checked_fields(text: str) -> str:
    words = text.replace("?", "*").lower().split()
    if len(words) not in {5, 6}:
        raise InputError("must have 5 fields, or 6 with the seconds first")
    # The library knows more than the dialect: last day, n-th weekday, hashed and random fields.
    unknown = {name for word in words for name in re.findall(r"[a-z#]+", word)} - _NUMBERS.keys()
    if unknown:
        raise InputError(f"unknown {', '.join(sorted(map(repr, unknown)))}")
    _expanded(text.replace("?", "*"))
    with_seconds = words if len(words) == 6 else ["0", *words]
    return " ".join(_without_trivial_ranges(word) for word in with_seconds)


def _without_trivial_ranges(word: str) -> str:
    """Writes `5` for `5-5`, which the library takes for everything."""
    return ",".join(
        match[1] if (match := _RANGE.fullmatch(part)) and _number(match[1]) == _number(match[2]) else part
        for part in word.split(",")
    )


def _number(name: str) -> str:
    return _NUMBERS.get(name) or name.lstrip("0") or "0"


def _expanded(fields: str) -> list[list[int | str]]:
    """Returns the values of each field, `["*"]` for all: minute, hour, day, month, weekday, second."""
    from croniter import croniter  # noqa: PLC0415 -- 60 ms that most starts do not need

    try:
        values: list[list[int | str]] = croniter.expand(fields, second_at_beginning=True)[0]
    except ValueError as error:
        # Some of its messages are a whole traceback.
        raise InputError(str(error).strip().rpartition("\n")[2]) from error
    return values
