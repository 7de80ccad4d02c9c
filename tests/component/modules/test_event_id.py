"""One id leads from an event through its tasks to the runs of hooks; in virtual time."""

from __future__ import annotations

from pathlib import Path

import structlog

from addon_operator.logs import event_id
from tests.fakes.bench import Answer, Bench, play

HOOKS = {
    "global/nodes": "kubernetes: [{name: nodes, kind: Node}]\n",
    "web/hook": "beforeHelm: 1\n",
}


def test_a_change_of_an_object_is_followed_through_the_log(tmp_path: Path) -> None:
    lines: list[dict[str, object]] = []

    def keep(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        lines.append({"event_id": event_id.current(), **event})
        raise structlog.DropEvent

    async def steps(bench: Bench) -> None:
        await bench.rest()
        lines.clear()
        bench["nodes"].change("Added", "node-1")
        bench["nodes"].change("Added", "node-2")
        await bench.rest()

    before = structlog.get_config()
    structlog.configure(processors=[keep])
    change = Answer(values=({"op": "add", "path": "/global/count", "value": 1},))
    try:
        play(tmp_path, HOOKS, steps, answers={"global/nodes": [Answer(), change]})
    finally:
        structlog.configure(**before)
    done = [(line["task"], line["event_id"]) for line in lines if line["event"] == "task done"]
    assert [task for task, _ in done] == ["GlobalHookRun", "ModuleRun", "ConvergeModules"]
    (first,) = {identity for _, identity in done}
    assert first
    assert {line["event_id"] for line in lines if line["event"] == "converge done"} == {first}
