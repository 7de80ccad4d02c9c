"""Brings the cluster to the registrations that are desired, and keeps it there.

What is desired (`desired.py`) is compared with what is known to be registered (`diff.py`), and the changes are written
(`registration.py`). What fails, what somebody else changes and what does not exist yet is tried again.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping
from typing import Final

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import KubeError
from addon_operator.kube.client import KubeClient
from addon_operator.kube.informers.reflector import Reflector
from addon_operator.kube.refs import CUSTOM_RESOURCE_DEFINITIONS, ObjectKey, WatchEvent, metadata_of
from addon_operator.logs import get_logger
from addon_operator.retry import Backoff, RetryPolicy
from addon_operator.webhooks.configurations import RESOURCES
from addon_operator.webhooks.desired import configuration_target, conversion_target
from addon_operator.webhooks.diff import Change, RegistrationState
from addon_operator.webhooks.endpoint import WebhookSettings
from addon_operator.webhooks.guard import ConfigurationGuard
from addon_operator.webhooks.registration import (
    ConfigurationRegistration,
    ConversionRegistration,
    Registration,
    Version,
)

_log = get_logger("webhooks")

_RETRY: Final = RetryPolicy(1.0, 30.0)


class Registrar:
    """What one operator registers in the cluster.

    Args:
        client: the connection.
        settings: names of the configurations, and whose they are.
    """

    def __init__(self, client: KubeClient, settings: WebhookSettings) -> None:
        self._client = client
        identity = settings.identity
        self._conversions = ConversionRegistration(client, identity=identity)
        self._configurations = {
            resource.kind: ConfigurationRegistration(client, kind, identity=identity)
            for kind, resource in RESOURCES.items()
        }
        targets = {kind: configuration_target(kind, settings) for kind in RESOURCES}
        self._guards = {
            target: ConfigurationGuard(
                client,
                kind,
                name=target.name,
                identity=identity,
                restore=functools.partial(self._restore, target),
                forbidden_pause_s=settings.forbidden_pause_s,
            )
            for kind, target in targets.items()
        }
        # One change at a time, so that none of them relies on what another one is about to write.
        self._lock = asyncio.Lock()
        self._desired: Mapping[ObjectKey, JsonObject] = {}
        self._state = RegistrationState()
        self._converts = asyncio.Event()
        self._due = asyncio.Event()
        self._closed = False

    async def apply(self, desired: Mapping[ObjectKey, JsonObject]) -> dict[ObjectKey, KubeError]:
        """Registers what is desired, and unregisters the rest; returns what failed. What is registered costs nothing.

        A conversion whose definition does not exist has not failed: it is written when the definition appears.
        """
        async with self._lock:
            self._desire(desired)
            return await self._apply()

    def revert(self, desired: Mapping[ObjectKey, JsonObject]) -> None:
        """Takes back the last change of what is desired; `run` applies it."""
        self._desire(desired)
        self._due.set()

    def retry(self, failures: Mapping[ObjectKey, KubeError]) -> None:
        """Logs what failed, and has `run` try it again."""
        for target, error in failures.items():
            _log.error("webhooks could not be registered, trying again", object=_what(target), error=error)
            self._due.set()

    async def clear_stale(self, *, conversions: bool) -> None:
        """Unregisters what a former process has left and is not desired.

        Args:
            conversions: also those of CustomResourceDefinitions.

        Raises:
            KubeError: the API server refused.
        """
        kinds = [*self._configurations, *([CUSTOM_RESOURCE_DEFINITIONS.kind] if conversions else [])]
        async with self._lock:
            desired = {(target.kind, target.name) for target in self._desired}
            try:
                for kind in kinds:
                    registration = self._registration(kind)
                    for name in await registration.owned():
                        if (kind, name) not in desired:
                            await registration.remove(name)
            except KubeError as error:
                # Who may not see them has not made any.
                if error.status != 403:
                    raise
                _log.info("no right to look for webhooks of a former run", error=error)

    async def close(self) -> None:
        """Waits for the change that is under way; `run` writes nothing any more."""
        async with self._lock:
            self._closed = True

    async def run(self) -> None:
        """Keeps everything registered, until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_definitions(), name="webhook definitions")
            group.create_task(self._repair_forever(), name="webhook registrations")
            for target, guard in self._guards.items():
                group.create_task(guard.run(), name=f"webhook configuration {target.kind}")

    def _desire(self, desired: Mapping[ObjectKey, JsonObject]) -> None:
        self._desired = desired
        if any(target.kind == CUSTOM_RESOURCE_DEFINITIONS.kind for target in desired):
            self._converts.set()

    async def _apply(self) -> dict[ObjectKey, KubeError]:
        failures: dict[ObjectKey, KubeError] = {}
        for change in self._state.changes(self._desired):
            try:
                await self._write(change)
            except KubeError as error:
                failures[change.target] = error
        return failures

    async def _write(self, change: Change) -> None:
        target, document = change.target, change.document
        registration = self._registration(target.kind)
        self._state.begin(target)
        if document is None:
            await registration.remove(target.name)
            self._state.removed(target)
        elif await registration.write(target.name, document):
            self._state.registered(target, document)
        elif self._state.awaits(target):
            _log.warning("a hook converts objects of a CustomResourceDefinition that does not exist", crd=target.name)
        if target in self._guards:
            self._guards[target].enable(document is not None)

    def _registration(self, kind: str) -> Registration:
        return self._configurations.get(kind, self._conversions)

    async def _restore(self, target: ObjectKey, seen: Version | None) -> bool:
        async with self._lock:
            registration, document = self._configurations[target.kind], self._desired.get(target)
            if self._closed or registration.is_as_written(target.name, seen):
                return False
            if document is None or not self._state.is_registered(target, document):
                return False  # it is about to be written anyway
            try:
                return await registration.restore(target.name, document)
            except KubeError as error:
                self._state.doubt(target)
                self.retry({target: error})
                return True

    async def _watch_definitions(self) -> None:
        """Notices conversions that were lost, or could not be registered because there was no definition."""
        await self._converts.wait()
        reflector = Reflector(
            self._client,
            CUSTOM_RESOURCE_DEFINITIONS,
            namespace=None,
            metadata_only=True,
            handler=self._definition_changed,
        )
        await reflector.run()

    def _definition_changed(self, _event: WatchEvent, definition: JsonObject) -> None:
        target = conversion_target(str(metadata_of(definition).get("name")))
        if target in self._desired:
            self._state.doubt(target)
            self._due.set()

    async def _repair_forever(self) -> None:
        backoff = Backoff(_RETRY)
        while True:
            await self._due.wait()
            if await self._repair():
                backoff.restart()
            # Two who do not agree about a definition must not write it without a pause.
            await asyncio.sleep(backoff.failed())

    async def _repair(self) -> bool:
        async with self._lock:
            self._due.clear()
            if self._closed:
                return True
            failures = await self._apply()
            self.retry(failures)
            return not failures


def _what(target: ObjectKey) -> str:
    return f"{target.kind} {target.name}"
