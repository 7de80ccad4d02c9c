"""What hooks react to beside the lifecycle: objects, the clock, and requests to the API server.

One place that starts and stops it for any hook, global or of a module. What an event leads to is decided elsewhere
(`dispatch/events.py`). Source: contract.md 3.1, 3.3, 3.4.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime

from addon_operator.bindings.kubernetes import BindingMonitors
from addon_operator.errors import HookConfigError
from addon_operator.hooks.call import HookId
from addon_operator.hooks.config.model import Admission, Schedule
from addon_operator.hooks.hook import Hook
from addon_operator.logs import get_logger
from addon_operator.schedule.crontab import Crontab
from addon_operator.schedule.timer import Cron
from addon_operator.webhooks.host import WebhookHost

log = get_logger("hook")


class HookBindings:
    """Monitors, schedules and webhooks of hooks.

    Attributes:
        monitors: those of all hooks; they live longer than the rest, since delete hooks see snapshots too.
    """

    def __init__(
        self, *, monitors: BindingMonitors, cron: Cron, webhooks: WebhookHost, on_tick: Callable[[Hook, Schedule], None]
    ) -> None:
        self.monitors = monitors
        self._cron = cron
        self._webhooks = webhooks
        self._on_tick = on_tick
        # The admissions that are served. Also of hooks whose webhooks were refused: part of them may be registered.
        self._serving: dict[HookId, tuple[Admission, ...]] = {}

    async def start(self, module: str, hooks: Sequence[Hook]) -> None:
        """Starts the schedules and webhooks of a module's hooks; what other hooks of it had is withdrawn.

        Raises:
            AddonOperatorError: a webhook cannot be served; to be tried again.
        """
        for hook in hooks:
            self.schedule(hook)
        await self._serve(module, hooks, self.serve_webhooks)
        await self.withdraw(self._former(module, hooks))

    async def convert(self, module: str, hooks: Sequence[Hook]) -> None:
        """Registers the conversions of a module's hooks; to be called before anything is listed for them.

        Raises:
            AddonOperatorError: one cannot be served; to be tried again.
        """
        await self._serve(module, hooks, self.serve_conversions)

    def schedule(self, hook: Hook) -> None:
        """Starts the schedules of a hook; those that run already go on."""
        for place, schedule in enumerate(hook.config.schedules):
            crontab = Crontab.parse(schedule.crontab)
            following = crontab.after(datetime.now(UTC))
            self._cron.add((hook.id, place), crontab, functools.partial(self._on_tick, hook, schedule))
            log.info(
                "schedule starts", hook=hook.id.name, module=hook.id.module, binding=schedule.name,
                crontab=schedule.crontab, time_zone=crontab.zone_name,
                next=following.isoformat() if following else "never",
            )  # fmt: skip

    async def serve_conversions(self, hook: Hook) -> None:
        """Registers the conversions of a hook, and leaves its admissions as they are.

        What is listed may have to be converted first. What is admitted is a matter for hooks that have seen what
        exists.

        Raises:
            AddonOperatorError: one cannot be served; to be tried again.
        """
        if hook.config.conversions:
            admissions = self._serving.setdefault(hook.id, ())
            await self._webhooks.serve(hook.id, admissions, hook.config.conversions)

    async def serve_webhooks(self, hook: Hook) -> None:
        """Registers the webhooks of a hook, or takes away what it had; from then on requests are answered.

        Raises:
            AddonOperatorError: one cannot be served; to be tried again.
        """
        if hook.config.admissions or hook.config.conversions or hook.id in self._serving:
            self._serving.setdefault(hook.id, ())
            await self._webhooks.serve(hook.id, hook.config.admissions, hook.config.conversions)
            self._serving[hook.id] = hook.config.admissions

    def pause(self, hooks: Sequence[Hook]) -> None:
        """Ends schedules and events of hooks; snapshots and webhooks stay."""
        for hook in hooks:
            for place, _ in enumerate(hook.config.schedules):
                self._cron.remove((hook.id, place))
        self.monitors.close(hook.id for hook in hooks)

    def forget(self, hooks: Sequence[Hook]) -> None:
        """Ends schedules and monitors of hooks; webhooks stay, so that nothing passes them unasked meanwhile."""
        self.pause(hooks)
        self.monitors.stop(hook.id for hook in hooks)

    async def withdraw(self, hooks: Iterable[HookId]) -> None:
        """Ends the webhooks of hooks.

        Raises:
            AddonOperatorError: one cannot be withdrawn; to be tried again.
        """
        gone = set(hooks) & self._serving.keys()
        if gone:
            await self._webhooks.withdraw(gone)
            for hook in gone:
                del self._serving[hook]

    async def withdraw_module(self, module: str) -> None:
        """Ends the webhooks of all hooks of a module, also of those whose files are gone.

        Raises:
            AddonOperatorError: one cannot be withdrawn; to be tried again.
        """
        await self.withdraw(self._of_module(module))

    async def withdraw_all(self) -> None:
        """Ends all webhooks: nobody will answer them.

        Raises:
            AddonOperatorError: one cannot be withdrawn.
        """
        await self.withdraw(tuple(self._serving))

    async def _serve(self, module: str, hooks: Sequence[Hook], serve: Callable[[Hook], Awaitable[None]]) -> None:
        try:
            for hook in hooks:
                await serve(hook)
        except HookConfigError:
            # Perhaps only its file has another name now.
            former = self._former(module, hooks)
            if not former:
                raise
            await self.withdraw(former)
            await self._serve(module, hooks, serve)

    def _former(self, module: str, hooks: Sequence[Hook]) -> set[HookId]:
        return set(self._of_module(module)) - {hook.id for hook in hooks}

    def _of_module(self, module: str) -> tuple[HookId, ...]:
        return tuple(hook for hook in self._serving if hook.module == module)
