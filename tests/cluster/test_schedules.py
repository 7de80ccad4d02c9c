"""Hooks with `schedule` bindings: when they begin, what they are told, what becomes of ticks that nobody had time for.

Every schedule here ticks each second, so a test takes some. Source: contract.md 2.2, 2.3, 3.1, 3.5.
"""

from __future__ import annotations

from pathlib import Path

from addon_operator.devcluster import DevCluster
from addon_operator.documents.jsondoc import JsonObject
from tests.cluster.operator import adding, bindings, config_map, eventually, hold, noting_hook, operator

EACH_SECOND = "* * * * * *"


def test_ticks(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path, {"LOG_LEVEL": "debug", "TZ": "Europe/Berlin"}) as made:
        maps = made.watching("maps", "x", executeHookOnSynchronization=False, executeHookOnEvent=[])
        grouped: JsonObject = {**maps, "group": "g"}
        each: JsonObject = {"name": "each", "crontab": EACH_SECOND, "queue": "each", "includeSnapshotsFrom": ["maps"]}
        slow: JsonObject = {"name": "slow", "crontab": "@every 1s", "queue": "slow"}
        member: JsonObject = {"name": "member", "crontab": "*/1 * * * * *", "queue": "each", "group": "g"}
        yearly: list[JsonObject] = [{"crontab": "TZ=Asia/Tokyo 30 1 1 1 *"}, {"crontab": "@yearly"}]
        old: JsonObject = {"name": "old", "crontab": EACH_SECOND}
        made.files(
            {
                "modules/values.yaml": "appEnabled: true\n",
                "global-hooks/each.sh": noting_hook(
                    "each", bindings(schedule=[each], kubernetes=[maps]), adding({"/global/ticked": True})
                ),
                "global-hooks/member.sh": noting_hook("member", bindings(schedule=[member], kubernetes=[grouped])),
                "global-hooks/old.sh": noting_hook("old", bindings(schedule=[old]), version=""),
                "global-hooks/slow.sh": noting_hook("slow", bindings(schedule=[slow]), hold("slow")),
                "global-hooks/yearly.sh": noting_hook("yearly", bindings(schedule=[*yearly])),
            }
        )
        made.module("app", {
            "hooks/life.sh": noting_hook("app", "beforeHelm: 1", hold("app")),
            "hooks/tick.sh": noting_hook(
                "tick", bindings(schedule=[{"crontab": EACH_SECOND, "queue": "app"}]), adding({"/app/ticked": True})
            ),
        })  # fmt: skip
        made.create(config_map("one", labels={"app": "x"}))
        made.start()
        eventually((tmp_path / "at-app").exists)
        eventually(lambda: made.in_log("tick dropped, the first converge is not done hook=each.sh"))
        assert made.runs() == ["app beforeHelm"]
        made.touch("go-app")
        made.wait_ready()

        eventually((tmp_path / "at-slow").exists)
        seen = len(made.told("each"))
        eventually(lambda: len(made.told("each")) >= seen + 3)
        # Three ticks later the slow one has missed as many, and owes one run for them.
        eventually(lambda: made.queues()["slow"] == ["GlobalHookRun:slow:schedule:slow.sh:slow:Schedule"] * 2)
        made.touch("go-slow")
        eventually(lambda: len(made.runs_of("slow")) >= 2)
        assert made.runs_of("slow")[1] == [{"binding": "slow", "type": "Schedule"}]

        # Each in its own time: they are in different queues.
        eventually(lambda: all(made.runs_of(name) for name in ("member", "old", "tick")))
        eventually(lambda: made.in_log("converge done reason=Schedule-Change-GlobalValues"))
        eventually(lambda: made.in_log("scope=app reason=Schedule-Change-ModuleValues"))

        (context,) = made.runs_of("each")[0]
        assert (context["binding"], context["type"]) == ("each", "Schedule")
        snapshots = context["snapshots"]
        assert isinstance(snapshots, dict)
        assert [*snapshots] == ["maps"]
        assert made.contexts("member")[0] == {
            "binding": "member", "type": "Group", "groupName": "g", "snapshots": snapshots,
        }  # fmt: skip
        assert made.runs_of("old")[0] == [{"binding": "old"}]
        assert made.runs_of("tick")[0] == [{"binding": "schedule", "type": "Schedule"}]
        assert made.told("yearly") == []

        # Values that change lead to one more converge, one more run of the module; the same ones again to nothing.
        log = made.text()
        assert log.count("converge done reason=Schedule-Change-GlobalValues") == 1
        assert log.count("task=ModuleRun ") == 3
        assert made.metric('convergence_total{activation=""}') == 1
        starts = [line for line in log.splitlines() if "schedule starts" in line]
        assert any("hook=yearly.sh" in line and "time_zone=Asia/Tokyo next=" in line for line in starts)
        assert any(
            "hook=yearly.sh" in line and "crontab=@yearly time_zone=Europe/Berlin next=" in line for line in starts
        )
