"""What the operator tells scripts that start it or wait for it."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from addon_operator.devcluster import DevCluster
from tests.cluster.operator import bindings, config_map_chart, eventually, hold, noting_hook, operator


def test_exit_codes_of_once(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as made:
        config = bindings(
            onStartup=1, kubernetes=[made.watching("maps", "x", queue="aside", waitForSynchronization=False)]
        )
        fails = 'if [ "$binding" = maps ] && [ ! -e "$OUT/well" ]; then echo ill >&2; exit 3; fi'
        made.files({"modules/values.yaml": "labEnabled: true\n"})
        made.module("lab", {"hooks/h.sh": noting_hook("lab", config, fails)})
        made.start("--once")
        assert made.process is not None
        assert made.process.wait(timeout=60) == 1
        row = next(line for line in made.text().splitlines() if line.startswith("lab "))
        assert row.endswith("in queue aside: hook hooks/h.sh of module lab: run ended with exit code 3: ill")

        (tmp_path / "well").touch()
        made.start("--once")
        assert made.process.wait(timeout=60) == 0

        made.module("lab", {"hooks/h.sh": noting_hook("lab", config, hold("lab"))})
        made.start("--once")
        eventually((tmp_path / "at-lab").exists)
        made.process.send_signal(signal.SIGTERM)
        assert made.process.wait(timeout=60) == 130


def test_converge_status_counts_module_runs(cluster: DevCluster, tmp_path: Path) -> None:
    """Whoever edits the ConfigMap and waits for the effect asks for it."""

    def status() -> tuple[int, bool]:
        document = json.loads(made.http("/status/converge?output=json")[1])
        return document["CONVERGE_IN_PROGRESS"], document["CONVERGE_WAIT_TASK"]

    with operator(cluster, tmp_path) as made:
        held = 'if [ -e "$OUT/armed" ]; then ' + hold("lab") + "; fi"
        hook = {"hooks/h.sh": noting_hook("lab", "beforeHelm: 1", held)}
        made.files({"modules/values.yaml": "labEnabled: true\n"})
        made.module("lab", {**config_map_chart("lab", "a: b"), **hook})
        made.start_ready()
        made.wait_idle()
        assert status() == (0, True)
        made.touch("armed")
        made.configure({"lab": "a: 1\n"})
        eventually((tmp_path / "at-lab").exists)
        assert status() == (1, False)
        made.touch("go-lab")
        eventually(lambda: status() == (0, True))
