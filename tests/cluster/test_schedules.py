"""Hooks with `schedule` bindings tick by the clock and in the time zone of the machine.

What they are shown, and what becomes of ticks nobody had time for: tests/component/modules/test_ticks.py. Source:
contract.md 2.2, 3.1.
"""

from __future__ import annotations

from pathlib import Path

from addon_operator.devcluster import DevCluster
from addon_operator.documents.jsondoc import JsonObject
from tests.cluster.operator import bindings, eventually, noting_hook, operator

EACH_SECOND = "* * * * * *"


def test_ticks(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path, {"TZ": "Europe/Berlin"}) as made:
        each: JsonObject = {"name": "each", "crontab": EACH_SECOND, "queue": "each"}
        yearly: list[JsonObject] = [{"crontab": "TZ=Asia/Tokyo 30 1 1 1 *"}, {"crontab": "@yearly"}]
        made.files(
            {
                "global-hooks/each.sh": noting_hook("each", bindings(schedule=[each])),
                "global-hooks/yearly.sh": noting_hook("yearly", bindings(schedule=[*yearly])),
            }
        )
        made.start_ready()
        eventually(lambda: made.runs_of("each"))
        assert made.runs_of("each")[0] == [{"binding": "each", "type": "Schedule"}]
        assert made.told("yearly") == []
        starts = [line for line in made.text().splitlines() if "schedule starts" in line]
        assert any("hook=yearly.sh" in line and "time_zone=Asia/Tokyo next=" in line for line in starts)
        assert any(
            "hook=yearly.sh" in line and "crontab=@yearly time_zone=Europe/Berlin next=" in line for line in starts
        )
