"""What hooks react to beside the lifecycle: objects, the clock, and requests to the API server.

One place that starts and stops all of it for the hooks of a module. What an event leads to is decided elsewhere
(`dispatch/events.py`). Source: contract.md 3.1, 3.3, 3.4.
"""

from __future__ import annotations

from collections.abc import Sequence

from addon_operator.bindings.kubernetes import BindingMonitors
from addon_operator.bindings.schedule import ScheduleBindings
from addon_operator.bindings.webhooks import WebhookBindings
from addon_operator.hooks.hook import Hook


class HookBindings:
    """Monitors, schedules and webhooks of hooks.

    Attributes:
        monitors: those of all hooks; they live longer than the rest, since delete hooks see snapshots too.
        schedules: those of all hooks.
        webhooks: those of all hooks.
    """

    def __init__(self, *, monitors: BindingMonitors, schedules: ScheduleBindings, webhooks: WebhookBindings) -> None:
        self.monitors, self.schedules, self.webhooks = monitors, schedules, webhooks

    async def start(self, module: str, hooks: Sequence[Hook]) -> None:
        """Starts the schedules and webhooks of a module's hooks; what other hooks of it had is withdrawn.

        Raises:
            AddonOperatorError: a webhook cannot be served; to be tried again.
        """
        for hook in hooks:
            self.schedules.start(hook)
        await self.webhooks.serve_module(module, hooks)

    def pause(self, hooks: Sequence[Hook]) -> None:
        """Stops schedules and events of hooks; snapshots and webhooks stay."""
        for hook in hooks:
            self.schedules.stop(hook)
        self.monitors.close(hook.id for hook in hooks)

    def stop(self, hooks: Sequence[Hook]) -> None:
        """Stops schedules and monitors of hooks; webhooks stay, so that nothing passes them unasked meanwhile."""
        self.pause(hooks)
        self.monitors.stop(hook.id for hook in hooks)
