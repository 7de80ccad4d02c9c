"""What people read of the views of an Inspector: tables, notes and paragraphs. Pure; called by `server.pages`.

`app` prints `modules_table` at the end of `start --once`. Source: contract.md 2.17 (queue text).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from addon_operator.server.inspector import (
    MAIN_QUEUE,
    ExplainView,
    FlagView,
    ModuleView,
    ParameterView,
    QueueView,
    ReleaseView,
    ScriptView,
)
from addon_operator.server.layout import cell, duration_text, indented, shifted, table


def queue_text(queue: QueueView) -> str:
    """Shows one queue with its tasks."""
    tasks = "".join(
        f"{number:2d}. {indented(task.description.rstrip(), 4)}\n" for number, task in enumerate(queue.tasks, 1)
    )
    return f"Queue '{queue.name}': length {len(queue.tasks)}, status: '{queue.shown_status}'\n\n{tasks}\n"


def empty_queues_text(queues: Sequence[QueueView]) -> str:
    """Names queues that are empty."""
    if not queues:
        return ""
    return f"Empty queues ({len(queues)}):\n" + "".join(f"- {queue.name}\n" for queue in queues) + "\n"


def summary_text(queues: Sequence[QueueView]) -> str:
    """Counts tasks in `main` and in the other queues."""
    main = sum(len(queue.tasks) for queue in queues if queue.name == MAIN_QUEUE)
    others = [len(queue.tasks) for queue in queues if queue.name != MAIN_QUEUE]
    active = sum(1 for length in others if length)
    total = main + sum(others)
    return (
        "Summary:\n"
        f"- '{MAIN_QUEUE}' queue: {_count(main, 'task') if main else 'empty'}.\n"
        f"- {_count(len(others), 'other queue')} ({active} active, {len(others) - active} empty): "
        f"{_count(sum(others), 'task')}.\n"
        + (f"- total {_count(total, 'task')} to handle.\n" if total else "- no tasks to handle.\n")
    )


def notes(texts: Iterable[str]) -> str:
    """Writes each text as a note above a page."""
    return "".join(f"NOTE: {indented(text, 6)}\n\n" for text in texts)


def failing_heads(queues: Iterable[QueueView]) -> str:
    """Notes the queues whose head has failed: everything behind it waits."""
    heads = ((queue.name, queue.tasks[0]) for queue in queues if queue.tasks)
    return notes(f"queue {name} is held up: {head.description}" for name, head in heads if head.failures)


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


def held_table(held: Mapping[str, str]) -> str:
    """Draws what is held, with the reason of each."""
    return table(("NAME", "REASON"), list(held.items()))


def monitor_text(watched: Mapping[str, Sequence[str] | None]) -> str:
    """Lists the watched objects of each module."""
    return "".join(
        f"{name}: No monitor\n" if objects is None else f"{name}:\n" + "".join(f"  {item}\n" for item in objects)
        for name, objects in sorted(watched.items())
    )


def explain_text(view: ExplainView) -> str:
    """Shows all that led to the state of a module."""
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


def parameters_table(parameters: Sequence[ParameterView]) -> str:
    """Draws what can be changed at run time."""
    rows = [(view.name, view.value, _expiry(view), view.description) for view in parameters]
    return table(("NAME", "VALUE", "EXPIRES IN", "DESCRIPTION"), rows)


def _expiry(view: ParameterView) -> str:
    return "" if view.expires_in_s is None else duration_text(view.expires_in_s)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"
