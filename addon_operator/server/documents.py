"""What JSON and YAML show of the views of an Inspector. Pure; called by `server.pages`.

Keys are those of the contract where it has any (contract.md 2.17); ours stand beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.server.inspector import (
    MAIN_QUEUE,
    ExplainView,
    ModuleView,
    ParameterView,
    QueueView,
    ReleaseView,
    ScriptView,
)


def queue_document(queue: QueueView) -> JsonObject:
    """Shows one queue with its tasks."""
    tasks: list[JsonValue] = [
        {
            "index": number,
            "description": task.description,
            "failures": task.failures,
            "ageSeconds": round(task.age_s, 3),
        }
        for number, task in enumerate(queue.tasks, 1)
    ]
    return {"name": queue.name, "tasksCount": len(tasks), "status": queue.shown_status, "tasks": tasks}


def summary_document(queues: Sequence[QueueView]) -> JsonObject:
    """Counts tasks in `main` and in the other queues."""
    others = [len(queue.tasks) for queue in queues if queue.name != MAIN_QUEUE]
    active = sum(1 for length in others if length)
    total = sum(len(queue.tasks) for queue in queues)
    return {
        "mainQueueTasks": total - sum(others),
        "otherQueues": {"active": active, "empty": len(others) - active, "tasks": sum(others)},
        "totalTasks": total,
    }


def held_document(held: Mapping[str, str]) -> list[JsonValue]:
    """Lists what is held, with the reason of each."""
    return [{"name": name, "reason": reason} for name, reason in held.items()]


def module_document(module: ModuleView) -> JsonObject:
    """Shows one module as a list of modules does."""
    return {
        "name": module.name,
        "order": module.order,
        "enabled": module.enabled,
        "state": module.state,
        "reason": module.reason,
        "release": module.release,
        "revision": module.revision,
        "durationSeconds": None if module.duration_s is None else round(module.duration_s, 3),
        "lastError": module.last_error,
    }


def explain_document(view: ExplainView) -> JsonObject:
    """Shows all that led to the state of a module."""
    decisive = view.decisive_flag
    return {
        **module_document(view.module),
        "path": view.path,
        "flags": [
            {"source": flag.source, "value": flag.value, "place": flag.place, "decides": flag is decisive}
            for flag in view.flags
        ],
        "script": None if view.script is None else _script_document(view.script),
        "helmRelease": None if view.release is None else _release_document(view.release),
    }


def _script_document(script: ScriptView) -> JsonObject:
    return {"path": script.path, "result": script.result, "reason": script.reason, "error": script.error}


def _release_document(release: ReleaseView) -> JsonObject:
    return {
        "name": release.name,
        "namespace": release.namespace,
        "status": release.status,
        "revision": release.revision,
        "absent": list(release.absent),
        "decision": release.decision,
        "decisionReason": release.decision_reason,
        "decidedAt": release.decided_at.isoformat() if release.decided_at else None,
    }


def monitor_document(watched: Mapping[str, Sequence[str] | None]) -> JsonObject:
    """Lists the watched objects of each module."""
    return {name: "No monitor" if objects is None else list(objects) for name, objects in sorted(watched.items())}


def patches_document(operations: Sequence[JsonObject]) -> JsonValue:
    """Shows stored patches: one list of operations, or nothing."""
    return [{"Operations": list(operations)}] if operations else []


def parameters_document(parameters: Sequence[ParameterView]) -> list[JsonValue]:
    """Lists what can be changed at run time."""
    return [
        {
            "name": view.name,
            "value": view.value,
            "description": view.description,
            "expiresInSeconds": view.expires_in_s,
        }
        for view in parameters
    ]
