"""Durations as Go writes them."""

from __future__ import annotations

from typing import Final

_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def parse_duration(text: str) -> float:
    """Reads a duration as Go writes it (`1h30m`, `250ms`) or plain seconds; returns seconds.

    Raises:
        ValueError: it is neither, or negative.
    """
    rest, total, seen = text.strip(), 0.0, False
    if rest and not rest[-1].isalpha():
        return _seconds(rest, text)
    while rest:
        digits = len(rest) - len(rest.lstrip("0123456789."))
        letters = digits + len(rest[digits:]) - len(rest[digits:].lstrip("hmsuµn"))
        unit = rest[digits:letters]
        if not digits or unit not in _UNITS:
            raise ValueError(f"{text!r} is not a duration such as 90s or 1h30m")
        total, rest, seen = total + float(rest[:digits]) * _UNITS[unit], rest[letters:], True
    if not seen:
        raise ValueError("an empty text is not a duration")
    return total


def _seconds(number: str, text: str) -> float:
    try:
        seconds = float(number)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a duration such as 90s or 1h30m") from error
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{text!r} is not a duration such as 90s or 1h30m")
    return seconds
