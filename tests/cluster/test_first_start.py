"""The first start of the samples, as `make run ARGS=--once` does it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from addon_operator.devcluster import DevCluster
from tests.cluster.operator import operator

PROJECT = Path(__file__).parents[2]


@pytest.mark.timeout(300)
def test_the_samples_come_up_and_a_second_start_does_nothing(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as made:
        made.environment |= {
            "MODULES_DIR": str(PROJECT / "modules"),
            "GLOBAL_HOOKS_DIR": str(PROJECT / "global-hooks"),
            "PATH": f"{Path(cluster.environment()['HELM_BIN_PATH']).parent}:{made.environment['PATH']}",
            # The third failure of a task ends it, and a busy machine is not to blame.
            "TASK_RETRY_FIRST": "2s",
            "TASK_RETRY_MOST": "2s",
        }
        # As a Deployment of another addon-operator might have it.
        argv = [sys.executable, "-m", "addon_operator", "start", "--once", "--helm-monitor-kube-client-qps", "5"]
        first = subprocess.run(argv, env=made.environment, capture_output=True, text=True, timeout=120, check=False)
        assert first.returncode == 0, first.stderr
        assert first.stderr.count("HELM_MONITOR_KUBE_CLIENT_QPS (--helm-monitor-kube-client-qps)") == 1
        rows = {line.split()[0]: line.split() for line in first.stdout.splitlines() if line.strip()}
        assert rows["internal-ca"][2:4] == ["yes", "ready"]
        assert rows["traffic-generator"][2:4] == ["no", "disabled"]
        certificate = made.config_data()["internalCa"]
        revisions = {name: made.revisions(name) for name in rows if name.islower()}
        assert revisions["registry"] == {1: "deployed"}

        again = subprocess.run(argv, env=made.environment, capture_output=True, text=True, timeout=120, check=False)
        assert again.returncode == 0, again.stderr
        assert {name: made.revisions(name) for name in revisions} == revisions
        assert made.config_data()["internalCa"] == certificate
