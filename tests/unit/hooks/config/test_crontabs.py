"""Crontabs of bindings."""

from __future__ import annotations

import pytest

from tests.unit.hooks.config.declared import problems, schedule, v1


@pytest.mark.parametrize(
    "crontab",
    ["* * * * *", "*/10 * * * * *", "0 2 */3 * * *", "0 0 1 JAN,feb mon-FRI", "0 5 ? * ?", "5/15 * * * *", "@hourly",
     "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually", "@every 1h30m", "@every 500ms",
     "TZ=Europe/Berlin 0 6 * * *", "CRON_TZ=UTC @daily", "59 59 23 31 12 *"],
)  # fmt: skip
def test_good_crontabs(crontab: str) -> None:
    assert schedule(crontab=crontab).crontab == crontab


@pytest.mark.parametrize(
    "crontab",
    ["", "   ", "* * * *", "* * * * * * *", "60 * * * *", "60 * * * * *", "a b c d e", "*/0 * * * *", "@often",
     "@every", "@every 5", "@every soon", "@every 0s", "@reboot", "TZ=Nowhere/At-All * * * * *", "0 0 L * *",
     "0 0 * * 5#2", "R * * * *", "H * * * *", "0 0 0 * 13 *", "5-1-2 * * * *"],
)  # fmt: skip
def test_bad_crontabs(crontab: str) -> None:
    (problem,) = problems(v1(schedule=[{"crontab": crontab}]))
    assert problem.startswith("schedule[0].crontab: ")
