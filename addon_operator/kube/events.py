"""Kubernetes Events: what the operator tells people who look at an object with kubectl.

An Event is a courtesy: if it cannot be written, the log says so and nothing else changes. Messages hold what the log
may hold: paths and names, never values.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import AddonOperatorError
from addon_operator.kube.client import KubeClient
from addon_operator.kube.refs import ObjectKey
from addon_operator.logs import get_logger

_log = get_logger("kube")

_LONGEST_NOTE = 1000


async def warn(client: KubeClient, about: ObjectKey, *, reason: str, message: str) -> None:
    """Writes a warning about an object of a namespace.

    Args:
        client: the connection.
        about: the object; its namespace is that of the Event.
        reason: one CamelCase word.
        message: for people; cut at 1,000 characters.
    """
    # What has no namespace of its own has its Events in this one, as everywhere in Kubernetes.
    namespace = about.namespace or "default"
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    body: JsonObject = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
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
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    try:
        await client.request("POST", path, body=jsondoc.dumps(body), timeout_s=10.0)
    except AddonOperatorError as error:
        _log.warning("an Event could not be written", reason=str(about), error=error)
