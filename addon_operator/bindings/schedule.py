"""The `schedule` bindings of all hooks: their timers. Source: contract.md 2.2, 3.4."""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from typing import Protocol

from addon_operator.hooks.config.model import Schedule
from addon_operator.hooks.hook import Hook
from addon_operator.logs import get_logger
from addon_operator.schedule.crontab import Crontab
from addon_operator.schedule.timer import Cron

_log = get_logger("hook")


class ScheduleEvents(Protocol):
    """Who acts on ticks; must not block."""

    def ticked(self, hook: Hook, schedule: Schedule) -> None:
        """The time of a schedule has come."""


class ScheduleBindings:
    """Starts and stops the timers of hooks."""

    def __init__(self, cron: Cron, *, events: ScheduleEvents) -> None:
        """Takes its dependencies.

        Args:
            cron: the timers.
            events: receives the ticks.
        """
        self._cron = cron
        self._events = events

    def start(self, hook: Hook) -> None:
        """Starts the schedules of a hook; those that run already go on."""
        for place, schedule in enumerate(hook.config.schedules):
            crontab = Crontab.parse(schedule.crontab)
            following = crontab.after(datetime.now(UTC))
            self._cron.add((hook.id, place), crontab, functools.partial(self._events.ticked, hook, schedule))
            _log.info(
                "schedule starts", hook=hook.id.name, module=hook.id.module, binding=schedule.name,
                crontab=schedule.crontab, time_zone=crontab.zone_name,
                next=following.isoformat() if following else "never",
            )  # fmt: skip

    def stop(self, hook: Hook) -> None:
        """Stops the schedules of a hook."""
        for place, _ in enumerate(hook.config.schedules):
            self._cron.remove((hook.id, place))
