"""Clients and readers that misbehave do not keep the operator from its work."""

from __future__ import annotations

import contextlib
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

from addon_operator.devcluster import DevCluster
from tests.cluster.operator import WITHIN_S, Operator, bindings, config_map, eventually, noting_hook, operator

NINE_MEGABYTES = 'seq -f "%g $(printf "x%.0s" {1..1000})" 9000'

# {"name":"m","set":1,"labels":{"n":"NUMBER"}}
SERIES = r"""seq 200000 | sed 's/.*/{"name":"m","set":1,"labels":{"n":"&"}}/' >"$METRICS_PATH" """


def prepared(made: Operator, body: str = "") -> None:
    maps = made.watching("maps", "x", executeHookOnSynchronization=False)
    made.files({"global-hooks/maps.sh": noting_hook("maps", bindings(kubernetes=[maps], onStartup=1), body)})


def test_1100_idle_connections_starve_neither_probes_nor_cli_nor_hooks(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as made, contextlib.ExitStack() as silent:
        prepared(made, 'ulimit -Sn >"$OUT/soft-limit"')
        made.start()
        assert made.process is not None
        # What a container runtime gives; Python takes longer to start than this call.
        resource.prlimit(made.process.pid, resource.RLIMIT_NOFILE, (1000, 1024))
        made.wait_ready()
        for _ in range(1100):
            silent.enter_context(socket.create_connection(made.endpoint))
        for path in ("/healthz", "/readyz", "/metrics"):
            assert made.http(path)[0] == 200, path
        assert made.cli("module", "list").returncode == 0
        made.create(config_map("one", labels={"app": "x"}))
        eventually(lambda: "maps Added one" in made.told("maps"), what="the hook runs")
        assert made.lines("soft-limit") == ["1000"]
        assert len(made.text().splitlines()) < 500
        assert made.stop() == 0


def test_a_log_pipe_that_nobody_reads_stops_neither_probes_nor_hooks_nor_sigterm(
    cluster: DevCluster, tmp_path: Path
) -> None:
    with operator(cluster, tmp_path) as made:
        prepared(made, f'if [ "$binding" = onStartup ]; then {NINE_MEGABYTES}; fi')
        argv = [sys.executable, "-m", "addon_operator", "start"]
        pipe = subprocess.PIPE
        with subprocess.Popen(argv, env=made.environment, cwd=made.root, stdout=pipe, stderr=pipe) as made.process:
            made.wait_ready()
            assert made.metric("log_lines_dropped_total") > 1000
            made.create(config_map("one", labels={"app": "x"}))
            eventually(lambda: "maps Added one" in made.told("maps"), what="the hook runs")
            made.process.send_signal(signal.SIGTERM)
            assert made.process.wait(timeout=WITHIN_S) == 0


def test_hundreds_of_thousands_of_series_of_a_hook_are_bounded_and_hold_up_nobody(
    cluster: DevCluster, tmp_path: Path
) -> None:
    with operator(cluster, tmp_path) as made:
        prepared(made, f'[ "$binding" != onStartup ] || {SERIES}')
        made.start()
        dropped = 'hook_metrics_dropped_total{hook="maps.sh",module=""}'
        probes = eventually_counting(made, dropped)
        assert probes > 5
        assert made.metric(dropped) == 190_000
        assert made.http("/metrics/hooks")[1].count("\nm{") == 10_000
        assert made.text().count("hook has too many metric series") == 1
        made.wait_ready()


def eventually_counting(made: Operator, series: str) -> int:
    """Waits for a series; returns how often a probe was answered meanwhile, after the hook had begun."""
    eventually(made.seen, what="the hook runs")
    probes = 0

    def there() -> bool:
        nonlocal probes
        probes += made.http("/healthz")[0] == 200
        return made.metric(series) > 0

    eventually(there, within_s=150, what=series)
    return probes
