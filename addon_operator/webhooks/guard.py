"""Notices what others do to the webhook configurations of this operator."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import KubeError
from addon_operator.hooks.config.model import AdmissionKind
from addon_operator.kube.client import KubeClient
from addon_operator.kube.informers.reflector import Reflector
from addon_operator.kube.refs import WatchEvent, metadata_of
from addon_operator.logs import get_logger
from addon_operator.retry import Backoff, RetryPolicy
from addon_operator.webhooks.configurations import OPERATOR, RESOURCES
from addon_operator.webhooks.registration import Version, version_of

_log = get_logger("webhooks")

_RETRY: Final = RetryPolicy(1.0, 30.0)
_UNGUARDED: Final = "no right to list and watch webhook configurations: what others do to them is not noticed"


class ConfigurationGuard:
    """Has a configuration of this operator written again once somebody else changes or removes it.

    Watches only while something is registered. Without the permission to watch it says so once, and tries again later.

    Args:
        client: the connection.
        kind: what kind of configuration.
        name: the configuration's name.
        identity: which operator this is.
        restore: receives what was seen (None for nothing) whenever that changes, also by writes of this operator;
            returns whether somebody else did it, and puts that right. Must not raise.
        forbidden_pause_s: how long it waits before it tries again to watch what it may not.
    """

    def __init__(
        self,
        client: KubeClient,
        kind: AdmissionKind,
        *,
        name: str,
        identity: str,
        restore: Callable[[Version | None], Awaitable[bool]],
        forbidden_pause_s: float,
    ) -> None:
        self._client = client
        self._resource = RESOURCES[kind]
        self._name = name
        self._identity = identity
        self._restore = restore
        self._forbidden_pause_s = forbidden_pause_s
        self._enabled, self._disabled = asyncio.Event(), asyncio.Event()
        self._seen: Version | None = None
        self._changed = asyncio.Event()

    def enable(self, enabled: bool) -> None:
        """Sets whether there is something to guard."""
        now, before = (self._enabled, self._disabled) if enabled else (self._disabled, self._enabled)
        now.set()
        before.clear()

    async def run(self) -> None:
        """Guards until it is cancelled."""
        while True:
            await self._enabled.wait()
            self._changed.clear()
            await _until(self._disabled, self._watch_forever(), self._restore_forever())

    async def _watch_forever(self) -> None:
        warned = False
        while True:
            forbidden = asyncio.Event()
            reflector = self._reflector(forbidden)
            self._seen = None
            await _until(forbidden, reflector.run(), self._await_list(reflector))
            if not warned:
                _log.warning(_UNGUARDED, resource=self._resource.plural)
                warned = True
            await asyncio.sleep(self._forbidden_pause_s)

    def _reflector(self, forbidden: asyncio.Event) -> Reflector:
        def note_permission(error: KubeError | None) -> None:
            if error is not None and error.status == 403:
                forbidden.set()

        return Reflector(
            self._client,
            self._resource,
            namespace=None,
            label_selector=f"{OPERATOR}={self._identity}",
            metadata_only=True,
            handler=self._receive,
            on_error=note_permission,
        )

    def _receive(self, event: WatchEvent, configuration: JsonObject) -> None:
        if metadata_of(configuration).get("name") == self._name:
            self._seen = None if event == "Deleted" else version_of(configuration)
            self._changed.set()

    async def _await_list(self, reflector: Reflector) -> None:
        """What was removed before the first list is in no event."""
        await reflector.synced.wait()
        self._changed.set()

    async def _restore_forever(self) -> None:
        backoff = Backoff(_RETRY)
        while True:
            await self._changed.wait()
            self._changed.clear()
            if await self._restore(self._seen):
                # Two who do not agree about it must not write it without a pause.
                await asyncio.sleep(backoff.failed())
            else:
                backoff.succeeded()


async def _until(event: asyncio.Event, *work: Coroutine[object, object, None]) -> None:
    """Works until an event is set."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part, name="webhook configurations") for part in work]
        await event.wait()
        for task in tasks:
            task.cancel()
