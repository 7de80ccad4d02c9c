"""Hooks with `schedule` bindings: when they begin, what they are shown, what becomes of ticks nobody had time for.

In virtual time. Source: contract.md 2.2, 2.3, 3.1, 3.5.
"""

from __future__ import annotations

import asyncio

from structlog.testing import LogCapture

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue, lookup
from tests.component.modules.configurations import Play, bindings, watching
from tests.fakes.bench import Answer, Bench, hook_file

EACH_SECOND = "* * * * * *"


def scheduled(**schedule: JsonValue) -> str:
    return bindings(schedule=[{**schedule}])


def adding(path: str) -> Answer:
    return Answer(({"op": "add", "path": path, "value": True},))


def test_ticks_during_the_first_converge_are_dropped(play: Play, log: LogCapture) -> None:
    async def steps(bench: Bench) -> None:
        await asyncio.sleep(9.5)
        dropped = [line for line in log.entries if line["event"] == "tick dropped, the first converge is not done"]
        assert [(line["hook"], line["log_level"]) for line in dropped] == [("each", "debug")] * 9
        assert bench.hooks.runs == [("app/life", "beforeHelm")]
        await asyncio.sleep(2)
        assert bench.converged
        assert bench.hooks.runs == [("app/life", "beforeHelm"), ("global/each", "each: Schedule")]

    hooks = {"global/each": scheduled(name="each", crontab=EACH_SECOND), "app/life": "beforeHelm: 1\n"}
    play(hooks, steps, answers={"app/life": [Answer(lasts_s=10.5)]})


def test_ticks_that_a_slow_hook_has_missed_become_one_run_and_hold_up_no_other_queue(play: Play) -> None:
    async def steps(bench: Bench) -> None:
        await asyncio.sleep(5.5)
        assert bench.listed == {"slow": ["GlobalHookRun:slow:schedule:slow:slow:Schedule"] * 2}
        assert sorted(bench.runs()) == [*[("global/each", "each: Schedule")] * 5, ("global/slow", "slow: Schedule")]
        await asyncio.sleep(1)
        assert ("global/slow", "slow: Schedule") in bench.runs()
        assert bench.hooks.contexts["global/slow"] == [[{"binding": "slow", "type": "Schedule"}]] * 2

    hooks = {
        "global/each": scheduled(name="each", crontab=EACH_SECOND, queue="each"),
        "global/slow": scheduled(name="slow", crontab="@every 1s", queue="slow"),
    }
    play(hooks, steps, answers={"global/slow": [Answer(lasts_s=5)]})


def test_what_hooks_are_shown_when_their_schedules_tick(play: Play) -> None:
    async def steps(bench: Bench) -> None:
        await asyncio.sleep(1.5)
        first = {name: runs[0] for name, runs in bench.hooks.contexts.items()}
        (context,) = first.pop("global/each")
        snapshots = context["snapshots"]
        assert context == {"binding": "each", "type": "Schedule", "snapshots": snapshots}
        assert isinstance(snapshots, dict)
        assert [*snapshots] == ["maps"]
        assert lookup(snapshots, "/maps/0/object/metadata/name") == "one"
        assert first == {
            "global/member": [{"binding": "member", "type": "Group", "groupName": "g", "snapshots": snapshots}],
            "global/old": [{"binding": "old"}],
            "app/tick": [{"binding": "schedule", "type": "Schedule"}],
        }

    def prepare(bench: Bench) -> None:
        bench.kind("ConfigMap").change("Added", "one", labels={"app": "x"})
        # Without a configVersion: a hook of v0.
        hook_file(bench.root, "global/old").write_text(jsondoc.dumps({"schedule": [old]}).decode())

    old: JsonObject = {"name": "old", "crontab": EACH_SECOND}
    maps = watching("maps", "x", executeHookOnSynchronization=False, executeHookOnEvent=[])
    each: JsonObject = {"name": "each", "crontab": EACH_SECOND, "queue": "each", "includeSnapshotsFrom": ["maps"]}
    member: JsonObject = {"name": "member", "crontab": "*/1 * * * * *", "queue": "each", "group": "g"}
    yearly: list[JsonValue] = [{"crontab": "TZ=Asia/Tokyo 30 1 1 1 *"}, {"crontab": "@yearly"}]
    hooks = {
        "global/each": bindings(schedule=[each], kubernetes=[maps]),
        "global/member": bindings(schedule=[member], kubernetes=[{**maps, "group": "g"}]),
        "global/old": "",
        "global/yearly": bindings(schedule=yearly),
        "app/tick": scheduled(crontab=EACH_SECOND, queue="app"),
    }
    play(hooks, steps, prepare=prepare)


def test_values_that_ticks_change_lead_to_one_converge_and_one_run_of_the_module(play: Play, log: LogCapture) -> None:
    async def steps(bench: Bench) -> None:
        await asyncio.sleep(10.5)
        assert [name for name, _ in bench.hooks.runs].count("global/each") == 10
        # The same values again lead to nothing.
        converges = [line["reason"] for line in log.entries if line["event"] == "converge done"]
        assert converges == ["OperatorStartup", "Schedule-Change-GlobalValues"]
        runs = [line["reason"] for line in log.entries if line.get("task") == "ModuleRun"]
        assert len(runs) == 3
        assert set(runs) == {"OperatorStartup", "Schedule-Change-GlobalValues", "Schedule-Change-ModuleValues"}
        assert bench.metric('convergence_total{activation=""}') == 1
        assert bench.store.effective("app") == {"ticked": True}
        assert lookup(bench.store.effective("global"), "/ticked") is True

    hooks = {
        "global/each": scheduled(name="each", crontab=EACH_SECOND, queue="each"),
        "app/tick": scheduled(crontab=EACH_SECOND, queue="app"),
    }
    answers = {"global/each": [adding("/global/ticked")] * 20, "app/tick": [adding("/app/ticked")] * 20}
    play(hooks, steps, answers=answers)
