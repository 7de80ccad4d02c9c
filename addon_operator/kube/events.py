"""Kubernetes Events: what the operator tells people who look at an object with kubectl.

Nobody waits for an Event: if it cannot be written, the log says so and nothing else changes. Messages hold what the log
may hold: paths and names, never values.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import AddonOperatorError
from addon_operator.kube.client import KubeClient
from addon_operator.kube.refs import EVENTS, ObjectKey, ObjectRef
from addon_operator.logs import get_logger

_log = get_logger("kube")

_LONGEST_NOTE = 1000

Warn: TypeAlias = Callable[[ObjectKey, str, str], None]
"""Writes a warning about an object, without waiting for it: object, reason, message (`EventRecorder.warn`)."""


class EventRecorder:
    """Writes Events in the background."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._writing: set[asyncio.Task[None]] = set()

    def warn(self, about: ObjectKey, reason: str, message: str) -> None:
        """Begins to write a warning about an object, and returns at once.

        Args:
            about: the object; its namespace is that of the Event.
            reason: one CamelCase word.
            message: for people; cut at 1,000 characters.
        """
        task = asyncio.create_task(self._write(about, reason, message), name=f"Event {reason} about {about}")
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def close(self) -> None:
        """Gives up what is not written yet."""
        for task in self._writing:
            task.cancel()
        await asyncio.gather(*self._writing, return_exceptions=True)

    async def _write(self, about: ObjectKey, reason: str, message: str) -> None:
        # What has no namespace of its own has its Events in this one, as everywhere in Kubernetes.
        namespace = about.namespace or "default"
        event = _warning(about, namespace, reason, message)
        try:
            await self._client.create(ObjectRef(EVENTS, namespace, ""), event, timeout_s=10.0)
        except AddonOperatorError as error:
            _log.warning("an Event could not be written", object=str(about), error=error)


def _warning(about: ObjectKey, namespace: str, reason: str, message: str) -> JsonObject:
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": f"{about.name}.{uuid.uuid4().hex[:16]}", "namespace": namespace},
        "regarding": {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "namespace": about.namespace,
            "name": about.name,
        },
        "eventTime": now,
        "type": "Warning",
        "reason": reason,
        "action": reason,
        "note": message[:_LONGEST_NOTE],
        "reportingController": "addon-operator",
        "reportingInstance": "addon-operator",
    }
