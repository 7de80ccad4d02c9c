"""The pages of the debug socket: what the operator says of itself, as documents, tables and commented YAML.

Pure: from the views of an Inspector to text. `server.debug` serves `ROUTES`; `app` prints `modules_table` at the end of
`start --once`. Keys of JSON documents are those of the peer where it has any; ours stand beside them.

Source: contract.md 2.17.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from addon_operator.documents import jsondoc, yamldoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.server.inspector import (
    ExplainView,
    FlagView,
    Inspector,
    ModuleView,
    ParameterView,
    QueueView,
    ReleaseView,
    ScriptView,
)
from addon_operator.server.layout import cell, commented_yaml, duration_text, indented, printable, shifted, table

Format = Literal["text", "yaml", "json"]

_MAIN = "main"


@dataclasses.dataclass(frozen=True, slots=True)
class Query:
    """What a request asks for beyond its path.

    Attributes:
        module: name of the module in the path, empty if there is none.
        show_empty: list empty queues too.
        with_global: put the global section beside the module's.
        with_origin: say where each value came from.
    """

    module: str = ""
    show_empty: bool = False
    with_global: bool = False
    with_origin: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """One answer in all its formats.

    Attributes:
        document: what JSON shows, and YAML unless `yaml` is given.
        text: for people.
        yaml: YAML that says more than the document, in comments.
    """

    document: JsonValue
    text: str = ""
    yaml: str | None = None

    def encode(self, form: Format) -> bytes:
        """Writes the page in one format; always ends with a line end."""
        match form:
            case "json":
                return jsondoc.dumps(self.document) + b"\n"
            case "yaml":
                return (yamldoc.dump(self.document) if self.yaml is None else self.yaml).encode()
            case "text":
                return printable(self.text).encode(errors="replace")


@dataclasses.dataclass(frozen=True, slots=True)
class Route:
    """One address of the debug socket.

    Attributes:
        path: without the dot and the format; `{module}` stands for a module's name.
        formats: those it is served in.
    """

    path: str
    formats: tuple[Format, ...]
    answer: Callable[[Inspector, Query], Page]


def queue_list(inspector: Inspector, query: Query) -> Page:
    """Shows all queues: `main` first, the others by name; empty ones only if asked for."""
    queues = sorted(inspector.queues(), key=lambda queue: (queue.name != _MAIN, queue.name))
    active = [queue for queue in queues if queue.tasks]
    empty = [queue for queue in queues if not queue.tasks]
    shown = empty if query.show_empty else []
    queues_text = "".join(map(_queue_text, active)) + _empty_queues_text(shown)
    document: JsonObject = {
        "active": [_queue_document(queue) for queue in active],
        "empty": [_queue_document(queue) for queue in shown],
        "summary": _summary_document(queues),
        "apiServerAwaySince": _away_since(inspector),
    }
    return Page(document, _notices(inspector) + queues_text + _summary_text(queues))


def queue_main(inspector: Inspector, _query: Query) -> Page:
    """Shows the queue `main` only."""
    main = next(queue for queue in inspector.queues() if queue.name == _MAIN)
    return Page(_queue_document(main), _queue_text(main).rstrip("\n") + "\n")


def _queue_text(queue: QueueView) -> str:
    tasks = "".join(
        f"{number:2d}. {indented(task.description.rstrip(), 4)}\n" for number, task in enumerate(queue.tasks, 1)
    )
    return f"Queue '{queue.name}': length {len(queue.tasks)}, status: '{_status(queue)}'\n\n{tasks}\n"


def _empty_queues_text(queues: Sequence[QueueView]) -> str:
    if not queues:
        return ""
    return f"Empty queues ({len(queues)}):\n" + "".join(f"- {queue.name}\n" for queue in queues) + "\n"


def _summary_text(queues: Sequence[QueueView]) -> str:
    main = sum(len(queue.tasks) for queue in queues if queue.name == _MAIN)
    others = [len(queue.tasks) for queue in queues if queue.name != _MAIN]
    active = sum(1 for length in others if length)
    total = main + sum(others)
    return (
        "Summary:\n"
        f"- '{_MAIN}' queue: {_count(main, 'task') if main else 'empty'}.\n"
        f"- {_count(len(others), 'other queue')} ({active} active, {len(others) - active} empty): "
        f"{_count(sum(others), 'task')}.\n"
        + (f"- total {_count(total, 'task')} to handle.\n" if total else "- no tasks to handle.\n")
    )


def _summary_document(queues: Sequence[QueueView]) -> JsonObject:
    others = [len(queue.tasks) for queue in queues if queue.name != _MAIN]
    active = sum(1 for length in others if length)
    total = sum(len(queue.tasks) for queue in queues)
    return {
        "mainQueueTasks": total - sum(others),
        "otherQueues": {"active": active, "empty": len(others) - active, "tasks": sum(others)},
        "totalTasks": total,
    }


def _queue_document(queue: QueueView) -> JsonObject:
    tasks: list[JsonValue] = [
        {
            "index": number,
            "description": task.description,
            "failures": task.failures,
            "ageSeconds": round(task.age_s, 3),
        }
        for number, task in enumerate(queue.tasks, 1)
    ]
    return {"name": queue.name, "tasksCount": len(tasks), "status": _status(queue), "tasks": tasks}


def _status(queue: QueueView) -> str:
    return queue.status if queue.tasks else "empty"


def global_list(inspector: Inspector, _query: Query) -> Page:
    """Names the global hooks."""
    return Page({"globalHooks": list(inspector.global_hooks())})


def global_values(inspector: Inspector, _query: Query) -> Page:
    """Shows the effective global values, not wrapped into `global`."""
    return Page(inspector.global_values())


def global_config(inspector: Inspector, _query: Query) -> Page:
    """Shows the global section of the ConfigMap, not wrapped into `global`."""
    return Page(inspector.global_config())


def global_patches(inspector: Inspector, _query: Query) -> Page:
    """Shows the stored patches of global values."""
    return Page(_patches(inspector.global_patches()))


def global_snapshots(inspector: Inspector, _query: Query) -> Page:
    """Shows the snapshots of global hooks."""
    return Page(inspector.global_snapshots())


def module_list(inspector: Inspector, _query: Query) -> Page:
    """Lists all modules in run order, disabled ones too; `enabledModules` has the sorted names of the enabled ones."""
    modules = inspector.modules()
    document: JsonObject = {
        "enabledModules": [*sorted(module.name for module in modules if module.enabled)],
        "modules": [_module_document(module) for module in modules],
        "apiServerAwaySince": _away_since(inspector),
        "held": _held_document(inspector),
    }
    return Page(document, _notices(inspector) + _held_up(inspector) + modules_table(modules))


def removals_list(inspector: Inspector, _query: Query) -> Page:
    """Lists what is held: neither upgraded nor removed until somebody decides."""
    return Page(_held_document(inspector), table(("NAME", "REASON"), list(inspector.held().items())))


def _held_document(inspector: Inspector) -> list[JsonValue]:
    return [{"name": name, "reason": reason} for name, reason in inspector.held().items()]


def _notices(inspector: Inspector) -> str:
    return _notes(inspector.notices())


def _away_since(inspector: Inspector) -> str | None:
    away = inspector.api_server_away_since()
    return None if away is None else away.isoformat(timespec="seconds")


def _held_up(inspector: Inspector) -> str:
    heads = ((queue.name, queue.tasks[0]) for queue in inspector.queues() if queue.tasks)
    return _notes(f"queue {name} is held up: {head.description}" for name, head in heads if head.failures)


def _notes(texts: Iterable[str]) -> str:
    return "".join(f"NOTE: {indented(text, 6)}\n\n" for text in texts)


def modules_table(modules: Iterable[ModuleView]) -> str:
    """Draws the module list as a table, one line for each module; long reasons and errors are cut."""
    header = ("NAME", "ORDER", "ENABLED", "STATE", "RELEASE", "REVISION", "DURATION", "REASON", "LAST ERROR")
    return table(header, [_module_row(module) for module in modules])


def _module_row(module: ModuleView) -> Sequence[str]:
    return (
        module.name,
        str(module.order),
        _yes(module.enabled),
        module.state,
        module.release or "",
        "" if module.revision is None else str(module.revision),
        "" if module.duration_s is None else duration_text(module.duration_s),
        cell(module.reason),
        cell(module.last_error or ""),
    )


def _module_document(module: ModuleView) -> JsonObject:
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


def module_values(inspector: Inspector, query: Query) -> Page:
    """Shows effective values under the module's camelCase key; with origins, YAML gets a comment at each leaf."""
    values = inspector.module_values(query.module, with_global=query.with_global)
    if not query.with_origin:
        return Page(values)
    origins = inspector.module_origins(query.module, with_global=query.with_global)
    return Page({"values": values, "origins": dict(origins)}, yaml=commented_yaml(values, origins))


def module_config(inspector: Inspector, query: Query) -> Page:
    """Shows the ConfigMap's section under the module's camelCase key."""
    return Page(inspector.module_config(query.module, with_global=query.with_global))


def module_patches(inspector: Inspector, query: Query) -> Page:
    """Shows the stored patches of a module's values."""
    return Page(_patches(inspector.module_patches(query.module)))


def module_snapshots(inspector: Inspector, query: Query) -> Page:
    """Shows the snapshots of a module's hooks."""
    return Page(inspector.module_snapshots(query.module))


def resource_monitor(inspector: Inspector, _query: Query) -> Page:
    """Shows which objects of which module are watched for absence."""
    watched = inspector.resource_monitor()
    document: JsonObject = {
        name: "No monitor" if objects is None else list(objects) for name, objects in sorted(watched.items())
    }
    text = "".join(
        f"{name}: No monitor\n" if objects is None else f"{name}:\n" + "".join(f"  {item}\n" for item in objects)
        for name, objects in sorted(watched.items())
    )
    return Page(document, text)


def module_explain(inspector: Inspector, query: Query) -> Page:
    """Shows why a module is in its state: sources of the flag, script, release, last error."""
    view = inspector.module_explain(query.module)
    return Page(_explain_document(view), _notices(inspector) + _held_up(inspector) + _explain_text(view))


def _explain_document(view: ExplainView) -> JsonObject:
    decisive = view.decisive_flag
    return {
        **_module_document(view.module),
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


def _explain_text(view: ExplainView) -> str:
    module = view.module
    head = [
        ("Module", module.name),
        ("Directory", view.path),
        ("Order", str(module.order)),
        ("Enabled", _yes(module.enabled)),
        ("State", module.state),
        ("Reason", indented(module.reason, 11)),
    ]
    if module.duration_s is not None:
        head.append(("Last run", duration_text(module.duration_s)))
    parts = ["".join(f"{title + ':':<11}{content}\n" for title, content in head), _flags_text(view)]
    if view.script:
        parts.append(_script_text(view.script))
    if view.release:
        parts.append(_release_text(view.release))
    if module.last_error:
        parts.append(f"Last error:\n  {indented(module.last_error.rstrip(), 2)}\n")
    return "\n".join(parts)


def _flags_text(view: ExplainView) -> str:
    decisive = view.decisive_flag
    said = [_flag_row(flag, decides=flag is decisive) for flag in view.flags]
    rows = table(("SOURCE", "SAYS", "WHERE", ""), said) if said else ""
    verdict = "" if decisive else "No source says anything, so the module is disabled.\n"
    return "Enable flag (the last source that says anything decides):\n" + shifted(rows + verdict)


def _flag_row(flag: FlagView, *, decides: bool) -> Sequence[str]:
    said = "" if flag.value is None else str(flag.value).lower()
    return (flag.source, said, flag.place or "", "decides" if decides else "")


def _script_text(script: ScriptView) -> str:
    if script.error is not None:
        verdict = f"failed: {indented(script.error.rstrip(), 2)}"
    elif script.result is None:
        verdict = "not run"
    else:
        verdict = "says enabled" if script.result else "says disabled"
    reason = f", reason: {indented(script.reason, 2)}" if script.reason else ""
    return f"Enabled script {script.path}:\n  {verdict}{reason}\n"


def _release_text(release: ReleaseView) -> str:
    there = f"revision {release.revision}, {release.status}" if release.status else "not installed"
    lines = [f"Release {release.name} in namespace {release.namespace}: {there}"]
    if release.decision:
        at = f" at {release.decided_at.isoformat(timespec='seconds')}" if release.decided_at else ""
        lines.append(f"  last decision{at}: {release.decision}: {indented(release.decision_reason or '', 2)}")
    lines += [f"  absent in the cluster: {key}" for key in release.absent]
    return "\n".join(lines) + "\n"


def config_list(inspector: Inspector, _query: Query) -> Page:
    """Shows what can be changed at run time."""
    parameters = inspector.parameters()
    rows = [(view.name, view.value, _expiry(view), view.description) for view in parameters]
    document: list[JsonValue] = [
        {
            "name": view.name,
            "value": view.value,
            "description": view.description,
            "expiresInSeconds": view.expires_in_s,
        }
        for view in parameters
    ]
    return Page(document, table(("NAME", "VALUE", "EXPIRES IN", "DESCRIPTION"), rows))


def _expiry(view: ParameterView) -> str:
    return "" if view.expires_in_s is None else duration_text(view.expires_in_s)


def _patches(operations: Sequence[JsonObject]) -> JsonValue:
    return [{"Operations": list(operations)}] if operations else []


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"


_DATA: tuple[Format, ...] = ("yaml", "json")
_ALL: tuple[Format, ...] = ("text", "yaml", "json")

ROUTES: tuple[Route, ...] = (
    Route("/queue/list", _ALL, queue_list),
    Route("/queue/main", _ALL, queue_main),
    Route("/global/list", _DATA, global_list),
    Route("/global/values", _DATA, global_values),
    Route("/global/config", _DATA, global_config),
    Route("/global/patches", _DATA, global_patches),
    Route("/global/snapshots", _DATA, global_snapshots),
    Route("/module/list", _ALL, module_list),
    Route("/module/resource-monitor", _ALL, resource_monitor),
    Route("/module/{module}/values", _DATA, module_values),
    Route("/module/{module}/config", _DATA, module_config),
    Route("/module/{module}/patches", _DATA, module_patches),
    Route("/module/{module}/snapshots", _DATA, module_snapshots),
    Route("/module/{module}/explain", _ALL, module_explain),
    Route("/config/list", _ALL, config_list),
    Route("/removals/list", _ALL, removals_list),
)
