"""The webhook bindings of all hooks: which of them are served. Source: contract.md 2.2, 3.3."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from addon_operator.errors import HookConfigError
from addon_operator.hooks.call import HookId
from addon_operator.hooks.config.model import Admission
from addon_operator.hooks.hook import Hook
from addon_operator.webhooks.host import WebhookHost


class WebhookBindings:
    """Registers and withdraws the webhooks of hooks.

    Every method raises AddonOperatorError: a webhook cannot be served or withdrawn; to be tried again.
    """

    def __init__(self, host: WebhookHost) -> None:
        """Serves nothing yet.

        Args:
            host: serves requests and registers with the API server.
        """
        self._host = host
        # The admissions that are served. Also of hooks whose webhooks were refused: part of them may be registered.
        self._serving: dict[HookId, tuple[Admission, ...]] = {}

    async def serve(self, hook: Hook) -> None:
        """Registers the webhooks of a hook, or takes away what it had; from then on requests are answered."""
        if hook.config.admissions or hook.config.conversions or hook.id in self._serving:
            self._serving.setdefault(hook.id, ())
            await self._host.serve(hook.id, hook.config.admissions, hook.config.conversions)
            self._serving[hook.id] = hook.config.admissions

    async def serve_conversions(self, hook: Hook) -> None:
        """Registers the conversions of a hook, and leaves its admissions as they are.

        What is listed may have to be converted first. What is admitted is a matter for hooks that have seen what
        exists.
        """
        if hook.config.conversions:
            admissions = self._serving.setdefault(hook.id, ())
            await self._host.serve(hook.id, admissions, hook.config.conversions)

    async def serve_module(self, module: str, hooks: Sequence[Hook]) -> None:
        """Registers the webhooks of a module's hooks; what other hooks of it had is withdrawn."""
        await self._serve_all(module, hooks, self.serve)
        await self.withdraw(self._former(module, hooks))

    async def serve_conversions_of_module(self, module: str, hooks: Sequence[Hook]) -> None:
        """Registers the conversions of a module's hooks; to be called before anything is listed for them."""
        await self._serve_all(module, hooks, self.serve_conversions)

    async def withdraw(self, hooks: Iterable[HookId]) -> None:
        """Ends the webhooks of hooks."""
        gone = set(hooks) & self._serving.keys()
        if gone:
            await self._host.withdraw(gone)
            for hook in gone:
                del self._serving[hook]

    async def withdraw_module(self, module: str) -> None:
        """Ends the webhooks of all hooks of a module, also of those whose files are gone."""
        await self.withdraw(self._of_module(module))

    async def withdraw_all(self) -> None:
        """Ends all webhooks: nobody will answer them."""
        await self.withdraw(tuple(self._serving))

    async def _serve_all(self, module: str, hooks: Sequence[Hook], serve: Callable[[Hook], Awaitable[None]]) -> None:
        try:
            for hook in hooks:
                await serve(hook)
        except HookConfigError:
            # Perhaps only its file has another name now.
            former = self._former(module, hooks)
            if not former:
                raise
            await self.withdraw(former)
            await self._serve_all(module, hooks, serve)

    def _former(self, module: str, hooks: Sequence[Hook]) -> set[HookId]:
        return set(self._of_module(module)) - {hook.id for hook in hooks}

    def _of_module(self, module: str) -> tuple[HookId, ...]:
        return tuple(hook for hook in self._serving if hook.module == module)
