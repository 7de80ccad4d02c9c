"""Crontabs: what is accepted, and when they tick."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from addon_operator.errors import InputError
from addon_operator.schedule.crontab import Crontab, local_zone

BERLIN = ZoneInfo("Europe/Berlin")
# 2026-03-29: 01:59:59 +01:00 is followed by 03:00:00 +02:00; 2026-10-25: 02:59:59 +02:00 by 02:00:00 +01:00.
SPRING, AUTUMN = (datetime(2026, month, day, 1, tzinfo=UTC) for month, day in ((3, 29), (10, 25)))


def parse(text: str) -> Crontab:
    return Crontab.parse(text, local=ZoneInfo("UTC"))


def ticks(text: str, after: str, count: int = 1) -> list[str]:
    crontab, moment, found = parse(text), datetime.fromisoformat(after), []
    for _ in range(count):
        tick = crontab.after(moment)
        if tick is None:
            break
        found.append(tick.isoformat().removesuffix("+00:00").replace("T", " "))
        moment = tick
    return found


# --- what is accepted -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "must have 5 fields, or 6 with the seconds first"),
        ("* * * *", "must have 5 fields, or 6 with the seconds first"),
        ("* * * * * * *", "must have 5 fields, or 6 with the seconds first"),
        ("TZ=Europe/Berlin", "must have 5 fields, or 6 with the seconds first"),
        ("TZ=Nowhere/At-All @daily", "unknown time zone 'Nowhere/At-All'"),
        ("TZ=../../etc/passwd @daily", "unknown time zone '../../etc/passwd'"),
        ("CRON_TZ= * * * * *", "unknown time zone ''"),
        ("@reboot", "unknown shortcut '@reboot'"),
        ("@every", "unknown shortcut '@every'"),
        ("@every 5", "@every needs a positive duration such as 30s or 1h30m"),
        ("@every 0s", "@every needs a positive duration such as 30s or 1h30m"),
        ("@every  ", "unknown shortcut '@every'"),
        (f"@every {'9' * 400}h", "@every needs a positive duration such as 30s or 1h30m"),
        ("0 0 L * 5#2", "unknown '#', 'l'"),
        ("H R * * *", "unknown 'h', 'r'"),
        ("60 * * * *", "[60 * * * *] is not acceptable, out of range"),
    ],
)
def test_what_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text)
    assert str(caught.value) == problem


@pytest.mark.parametrize("text", ["0 0 jan * *", "0 0 0 * * jan", "1-2-3 * * * *", "*/0 * * * *", "1,,2 * * * *"])
def test_malformed_fields_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse(text)


def test_a_number_too_long_to_read_has_a_short_message() -> None:
    with pytest.raises(InputError) as caught:
        parse(f"{'1' * 5000} * * * *")
    assert "\n" not in str(caught.value)
    assert "Traceback" not in str(caught.value)


@given(st.lists(st.text("0123456789*,-/?janMON#lw@()é \t", max_size=5), min_size=4, max_size=7))
@example(["*-5", "*", "*", "*", "*"])
def test_any_text_is_a_crontab_or_an_input_error(words: list[str]) -> None:
    try:
        crontab = parse(" ".join(words))
    except InputError:
        return
    tick = crontab.after(SPRING)
    assert tick is None or tick.astimezone(UTC) > SPRING


def test_the_zone_is_named() -> None:
    assert Crontab.parse("TZ=Asia/Tokyo @daily", local=BERLIN).zone_name == "Asia/Tokyo"
    assert Crontab.parse("CRON_TZ=UTC  @daily", local=BERLIN).zone_name == "UTC"
    assert Crontab.parse("@daily", local=BERLIN).zone_name == "Europe/Berlin"
    assert Crontab.parse("@daily").zone_name == str(local_zone())


def test_equal_texts_in_equal_zones_are_equal() -> None:
    assert parse("@daily") == parse("@daily") != Crontab.parse("@daily", local=BERLIN)
    assert parse("@every 1m") != parse("@every 2m")


# --- when they tick -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        # 2026-02-01 is a Sunday.
        ("*/20 * * * *", "2026-02-01T10:05:00Z", ["2026-02-01 10:20:00", "2026-02-01 10:40:00", "2026-02-01 11:00:00"]),
        ("*/20 * * * * *", "2026-02-01T10:05:20.5Z", ["2026-02-01 10:05:40", "2026-02-01 10:06:00"]),
        ("30 5 * * * *", "2026-02-01T10:05:29.999999Z", ["2026-02-01 10:05:30", "2026-02-01 11:05:30"]),
        ("50/4 * * * *", "2026-02-01T10:05:00Z", ["2026-02-01 10:50:00", "2026-02-01 10:54:00", "2026-02-01 10:58:00"]),
        ("59/15 * * * *", "2026-02-01T10:05:00Z", ["2026-02-01 10:59:00", "2026-02-01 11:59:00"]),
        ("0 6 ? * 5-5", "2026-02-01T10:05:00Z", ["2026-02-06 06:00:00", "2026-02-13 06:00:00"]),
        ("0 6 * * sun-0", "2026-02-01T10:05:00Z", ["2026-02-08 06:00:00"]),
        ("7-07/3 6 * * *", "2026-02-01T10:05:00Z", ["2026-02-02 06:07:00", "2026-02-03 06:07:00"]),
        ("0 0 1 JAN,feb-FEB *", "2026-02-01T10:05:00Z", ["2027-01-01 00:00:00", "2027-02-01 00:00:00"]),
        ("0 0 * * 7", "2026-02-01T10:05:00Z", ["2026-02-08 00:00:00"]),
        ("0 0 * * 0-7", "2026-02-01T10:05:00Z", ["2026-02-02 00:00:00"]),
        ("0 22-1 * * *", "2026-02-01T22:30:00Z", ["2026-02-01 23:00:00", "2026-02-02 00:00:00", "2026-02-02 01:00:00"]),
        ("0 0 5 * mon", "2026-02-01T10:05:00Z", ["2026-02-02 00:00:00", "2026-02-05 00:00:00", "2026-02-09 00:00:00"]),
        ("0 0 */2 * mon", "2026-02-01T10:05:00Z", ["2026-02-09 00:00:00", "2026-02-23 00:00:00"]),
        ("0 0 5 * */3", "2026-02-01T10:05:00Z", ["2026-04-05 00:00:00", "2026-07-05 00:00:00", "2026-08-05 00:00:00"]),
        ("0 0 31 * *", "2026-02-01T10:05:00Z", ["2026-03-31 00:00:00", "2026-05-31 00:00:00"]),
        ("0 0 29 2 *", "2026-02-01T10:05:00Z", ["2028-02-29 00:00:00", "2032-02-29 00:00:00"]),
        ("0 0 30 2 *", "2026-02-01T10:05:00Z", []),
        ("@hourly", "2026-02-01T10:05:00Z", ["2026-02-01 11:00:00", "2026-02-01 12:00:00"]),
        ("@daily", "2026-02-01T10:05:00Z", ["2026-02-02 00:00:00"]),
        ("@midnight", "2026-02-01T00:00:00Z", ["2026-02-02 00:00:00"]),
        ("@weekly", "2026-02-01T10:05:00Z", ["2026-02-08 00:00:00", "2026-02-15 00:00:00"]),
        ("@monthly", "2026-02-01T10:05:00Z", ["2026-03-01 00:00:00"]),
        ("@yearly", "2026-02-01T10:05:00Z", ["2027-01-01 00:00:00"]),
        ("@annually", "2026-02-01T10:05:00Z", ["2027-01-01 00:00:00"]),
        ("@every 1h30m", "2026-02-01T10:05:10.9Z", ["2026-02-01 11:35:10", "2026-02-01 13:05:10"]),
        ("@every 500ms", "2026-02-01T10:05:10.9Z", ["2026-02-01 10:05:11", "2026-02-01 10:05:12"]),
        ("@every 2500ms", "2026-02-01T10:05:10.9Z", ["2026-02-01 10:05:12", "2026-02-01 10:05:14"]),
        ("@every 99999999999h", "2026-02-01T10:05:10Z", []),
        ("TZ=Asia/Tokyo 0 6 * * *", "2026-02-01T10:05:00Z", ["2026-02-02T06:00:00+09:00".replace("T", " ")]),
        ("0 6 * * *", "2026-02-01T06:30:00+02:00", ["2026-02-01 06:00:00"]),
    ],
)
def test_ticks(text: str, after: str, expected: list[str]) -> None:
    assert ticks(text, after, max(len(expected), 1)) == expected


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        # Clocks go forward.
        ("30 2 * * *", "03-28T12:00+01:00", ["03-29 03:00+02:00", "03-30 02:30+02:00"]),
        ("0 2 * * *", "03-29T01:59+01:00", ["03-29 03:00+02:00", "03-30 02:00+02:00"]),
        ("*/20 2 * * *", "03-29T01:59+01:00", ["03-29 03:00+02:00", "03-30 02:00+02:00"]),
        ("30 2,3 * * *", "03-29T01:59+01:00", ["03-29 03:00+02:00", "03-29 03:30+02:00", "03-30 02:30+02:00"]),
        ("0 2-3 * * *", "03-29T01:59+01:00", ["03-29 03:00+02:00", "03-30 02:00+02:00"]),
        ("*/30 * * * *", "03-29T01:15+01:00", ["03-29 01:30+01:00", "03-29 03:00+02:00", "03-29 03:30+02:00"]),
        ("30 * * * *", "03-29T01:15+01:00", ["03-29 01:30+01:00", "03-29 03:30+02:00"]),
        # Clocks go back.
        ("30 2 * * *", "10-24T12:00+02:00", ["10-25 02:30+02:00", "10-26 02:30+01:00"]),
        ("30 2 * * *", "10-25T02:10+01:00", ["10-26 02:30+01:00"]),
        ("0 */2 * * *", "10-25T00:30+02:00", ["10-25 02:00+02:00", "10-25 04:00+01:00"]),
        ("30 2,3 * * *", "10-25T02:10+02:00", ["10-25 02:30+02:00", "10-25 03:30+01:00"]),
        ("0 3 * * *", "10-25T02:10+02:00", ["10-25 03:00+01:00"]),
        ("*/30 * * * *", "10-25T02:10+02:00", ["10-25 02:30+02:00", "10-25 02:00+01:00", "10-25 02:30+01:00"]),
        ("*/30 0-23 * * *", "10-25T02:50+02:00", ["10-25 02:00+01:00", "10-25 02:30+01:00", "10-25 03:00+01:00"]),
        ("0 0-11,12-23 * * *", "10-25T02:59:59.5+02:00", ["10-25 02:00+01:00", "10-25 03:00+01:00"]),
        ("15 * 25 10 *", "10-25T02:15+02:00", ["10-25 02:15+01:00", "10-25 03:15+01:00"]),
    ],
)
def test_ticks_when_clocks_are_set(text: str, after: str, expected: list[str]) -> None:
    found = ticks(f"TZ=Europe/Berlin {text}", f"2026-{after}", len(expected))
    assert [tick.removeprefix("2026-").replace(":00+0", "+0") for tick in found] == expected


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        # Half an hour; a whole day that did not come; an hour before midnight that came twice.
        ("TZ=Australia/Lord_Howe 0 15 2 * * *", "2026-10-04T00:00+10:30", "2026-10-04 02:30:00+11:00"),
        ("TZ=Pacific/Apia 0 12 30 12 *", "2011-12-28T00:00-10:00", "2011-12-31 00:00:00+14:00"),
        ("TZ=America/Sao_Paulo 50 * 17 2 *", "2018-02-17T23:55-02:00", "2018-02-17 23:50:00-03:00"),
    ],
)
def test_other_ways_to_set_clocks(text: str, after: str, expected: str) -> None:
    assert ticks(text, after) == [expected]


def test_every_goes_by_elapsed_time() -> None:
    assert ticks("TZ=Europe/Berlin @every 1h", "2026-03-29T01:30+01:00") == ["2026-03-29 03:30:00+02:00"]


# --- the same, found by trying every moment -------------------------------------------------------------------------

Fits = Callable[[datetime], bool]


def numbers(low: int, high: int) -> st.SearchStrategy[tuple[str, frozenset[int]]]:
    """A field, as written and as what it means."""
    everything = frozenset(range(low, high + 1))
    number = st.integers(low, high)
    some = st.frozensets(number, min_size=1, max_size=4)
    span = st.tuples(number, number, st.integers(1, 7)).map(lambda span: (*sorted(span[:2]), span[2]))
    return st.one_of(
        st.just(("*", everything)),
        st.integers(1, 30).map(lambda step: (f"*/{step}", frozenset(range(low, high + 1, step)))),
        some.map(lambda chosen: (",".join(map(str, chosen)), chosen)),
        span.map(lambda span: (f"{span[0]}-{span[1]}/{span[2]}", frozenset(range(span[0], span[1] + 1, span[2])))),
    )


@st.composite
def crontabs(draw: st.DrawFn, *, daily: bool = False) -> tuple[str, Fits, bool]:
    """A crontab of five fields, whether it fits a local time, and whether its hours are all."""
    times = [numbers(0, 59), numbers(0, 23)]
    fields = [draw(field) for field in (*times, *([] if daily else [numbers(1, 31), numbers(1, 12), numbers(0, 6)]))]
    if daily:
        fields += [("*", frozenset(range(32)))] * 3
    (_, minutes), (_, hours), (day_text, days), (_, months), (weekday_text, weekdays) = fields
    both = "*" in day_text or "*" in weekday_text

    def fits(wall: datetime) -> bool:
        by_day, by_weekday = wall.day in days, wall.isoweekday() % 7 in weekdays
        day = (by_day and by_weekday) if both else (by_day or by_weekday)
        return wall.minute in minutes and wall.hour in hours and wall.month in months and day

    return " ".join(text for text, _ in fields), fits, len(hours) == 24


def first_fit(fits: Fits, moment: datetime, within: timedelta) -> datetime | None:
    full = moment.replace(second=0, microsecond=0)
    minutes = (full + timedelta(minutes=number) for number in range(1, int(within.total_seconds() // 60)))
    return next(filter(fits, minutes), None)


@settings(max_examples=50)
@given(crontabs(), st.datetimes(datetime(2024, 2, 20), datetime(2030, 1, 1)))
def test_in_utc_the_first_minute_that_fits(crontab: tuple[str, Fits, bool], moment: datetime) -> None:
    text, fits, _ = crontab
    start, within = moment.replace(tzinfo=UTC), timedelta(days=1)
    tick = parse(text).after(start)
    expected = first_fit(fits, start, within)
    if expected is None:
        assert tick is None or tick > start + within - timedelta(minutes=1)
    else:
        assert tick == expected


@settings(max_examples=50)
@given(crontabs(daily=True), st.sampled_from([SPRING, AUTUMN]), st.integers(-3 * 3600, 3 * 3600))
def test_when_clocks_are_set_the_rules_hold(crontab: tuple[str, Fits, bool], change: datetime, off_s: int) -> None:
    text, fits, hourly = crontab
    moment = change + timedelta(seconds=off_s)
    tick = Crontab.parse(text, local=BERLIN).after(moment)
    expected = min((item for item in _allowed(fits, change, hourly=hourly) if item > moment), default=None)
    if expected is None:
        assert tick is None or tick.astimezone(UTC) > change + timedelta(hours=5)
    else:
        assert tick is not None
        assert tick.astimezone(UTC) == expected


def _allowed(fits: Fits, change: datetime, *, hourly: bool) -> set[datetime]:
    """All ticks from four hours before a change of the clocks in Berlin to five hours after."""
    instants = [change + timedelta(minutes=minute) for minute in range(-240, 301)]
    walls = [instant.astimezone(BERLIN).replace(tzinfo=None) for instant in instants]
    found = {instant: wall for instant, wall in zip(instants, walls, strict=True) if fits(wall.replace(fold=0))}
    if hourly:
        return set(found)
    gap = [datetime(2026, 3, 29, 2, minute) for minute in range(60)]
    late = {change} if change == SPRING and any(map(fits, gap)) else set()
    return {instant for instant, wall in found.items() if not wall.fold} | late


@settings(max_examples=50)
@given(crontabs(), st.datetimes(datetime(2024, 1, 1), datetime(2030, 1, 1)), st.floats(0, 1))
def test_no_tick_lies_between(crontab: tuple[str, Fits, bool], moment: datetime, part: float) -> None:
    timer, start = Crontab.parse(crontab[0], local=BERLIN), moment.replace(tzinfo=UTC)
    tick = timer.after(start)
    if tick is not None:
        assert start < tick.astimezone(UTC)
        between = start + (tick.astimezone(UTC) - start) * part
        assert between >= tick.astimezone(UTC) or timer.after(between) == tick


# --- the zone of the process ----------------------------------------------------------------------------------------


def test_the_zone_of_the_process(tmp_path: Path) -> None:
    database = tmp_path / "zoneinfo" / "Europe" / "Berlin"
    link, copy, broken = tmp_path / "localtime", tmp_path / "copy", tmp_path / "broken"
    database.parent.mkdir(parents=True)
    database.touch()
    link.symlink_to(database)
    copy.write_bytes(_TOKYO)
    broken.write_bytes(b"no zone")

    def name(localtime: Path, **environment: str) -> str:
        return str(local_zone(environment, localtime))

    assert name(link) == name(copy, TZ="Europe/Berlin") == name(copy, TZ=":Europe/Berlin") == "Europe/Berlin"
    assert name(link, TZ=f":{copy}") == name(copy) == str(copy)
    assert local_zone({}, copy).utcoffset(datetime(2026, 1, 1)) == timedelta(hours=9)
    assert {name(link, TZ=""), name(link, TZ="Nowhere"), name(broken), name(tmp_path / "absent")} == {"UTC"}


# A zone file (RFC 8536) without changes: nine hours, JST.
_TOKYO = b"".join(
    (
        b"TZif\0" + bytes(15) + bytes((0, 0, 0, 0) * 4 + (0, 0, 0, 1) + (0, 0, 0, 4)),
        (9 * 3600).to_bytes(4, "big") + b"\0\0JST\0",
    )
)
