"""Durations as Go writes them."""

from __future__ import annotations

import pytest

from addon_operator.documents.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90.0), ("1.5s", 1.5), ("250ms", 0.25), ("1h2m3s", 3723.0), ("0s", 0.0), ("10us", 1e-5)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "5x", "1h-3m", "nan", "inf", "5 m"])
def test_not_durations(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)
