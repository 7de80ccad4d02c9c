"""What becomes of a hook that runs in a queue of its own when its module is switched off. Source: contract.md 2.13."""

from __future__ import annotations

from pathlib import Path

from addon_operator.devcluster import DevCluster
from tests.cluster.operator import bindings, config_map, eventually, noting_hook, operator


def test_a_module_that_is_switched_off_takes_its_running_hooks_with_it(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as made:
        hangs = '[ "$type" != Event ] || { echo "$$" >"$OUT/pid"; exec sleep 1000; }'
        made.files({"modules/values.yaml": "labEnabled: true\n"})
        binding = made.watching("maps", "x", queue="slow")
        made.module("lab", {"hooks/slow.sh": noting_hook("slow", bindings(kubernetes=[binding]), hangs)})
        made.start_ready()
        made.create(config_map("a", labels={"app": "x"}))
        (pid,) = eventually(lambda: made.lines("pid"))
        made.configure({"labEnabled": "false"})
        eventually(lambda: not Path(f"/proc/{pid}").exists())
        eventually(lambda: made.modules()["lab"]["state"] == "disabled")
        assert made.queues().get("slow", []) == []
        made.configure({"labEnabled": "true"})
        eventually(lambda: made.told("slow").count("maps Synchronization a") == 1)
        eventually(lambda: made.modules()["lab"]["state"] == "ready")
