"""The `schedule` bindings of all hooks: their timers. Source: contract.md 2.2, 3.4."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime

from addon_operator.hooks.config.model import Schedule
from addon_operator.hooks.hook import Hook
from addon_operator.logs import get_logger
from addon_operator.schedule.crontab import Crontab
from addon_operator.schedule.timer import Cron

_log = get_logger("hook")


class ScheduleBindings:
    """Starts and stops the timers of hooks."""

    def __init__(self, cron: Cron, *, on_tick: Callable[[Hook, Schedule], None]) -> None:
        """Takes what it uses.

        Args:
            cron: the timers.
            on_tick: called when the time of a schedule has come; must not block.
        """
        self._cron = cron
        self._on_tick = on_tick

    def start(self, hook: Hook) -> None:
        """Starts the schedules of a hook; those that run already go on."""
        for place, schedule in enumerate(hook.config.schedules):
            crontab = Crontab.parse(schedule.crontab)
            following = crontab.after(datetime.now(UTC))
            self._cron.add((hook.id, place), crontab, functools.partial(self._on_tick, hook, schedule))
            _log.info(
                "schedule starts", hook=hook.id.name, module=hook.id.module, binding=schedule.name,
                crontab=schedule.crontab, time_zone=crontab.zone_name,
                next=following.isoformat() if following else "never",
            )  # fmt: skip

    def stop(self, hook: Hook) -> None:
        """Stops the schedules of a hook."""
        for place, _ in enumerate(hook.config.schedules):
            self._cron.remove((hook.id, place))
