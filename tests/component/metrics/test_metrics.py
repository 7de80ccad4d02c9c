"""A real script writes METRICS_PATH the way the seed's examples do; its words end up as Prometheus text."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from addon_operator.metrics import operations
from addon_operator.metrics.operator import Metrics

SCRIPT = """#!/usr/bin/env bash
set -e
echo '{"name":"hook_metric_count","action":"add","value":1,"labels":{"label1":"value1"}}' >> $METRICS_PATH
echo '{"name":"hook_metric_items","add":2,"labels":{"label1":"a \\"quoted\\" value"}}' >> $METRICS_PATH
jq -n '{name: "hook_latency", action: "observe", value: 3, buckets: [1, 5], group: "latency"}' >> $METRICS_PATH
"""

EXPECTED = r"""# HELP hook_latency hook_latency
# TYPE hook_latency histogram
hook_latency_bucket{hook="hooks/a.sh",le="1",module="m"} 0
hook_latency_bucket{hook="hooks/a.sh",le="5",module="m"} 2
hook_latency_bucket{hook="hooks/a.sh",le="+Inf",module="m"} 2
hook_latency_sum{hook="hooks/a.sh",module="m"} 6
hook_latency_count{hook="hooks/a.sh",module="m"} 2
# HELP hook_metric_count hook_metric_count
# TYPE hook_metric_count counter
hook_metric_count{hook="hooks/a.sh",label1="value1",module="m"} 2
# HELP hook_metric_items hook_metric_items
# TYPE hook_metric_items counter
hook_metric_items{hook="hooks/a.sh",label1="a \"quoted\" value",module="m"} 4
"""


def test_two_runs_of_a_script(tmp_path: Path) -> None:
    script, output, metrics = tmp_path / "a.sh", tmp_path / "metrics.json", Metrics()
    script.write_text(SCRIPT)
    script.chmod(0o700)
    for _ in range(2):
        output.write_bytes(b"")
        subprocess.run([script], env={**os.environ, "METRICS_PATH": str(output)}, check=True)
        asked = operations.parse(output.read_bytes(), "m/hooks/a.sh: METRICS_PATH")
        metrics.hooks.commit(metrics.hooks.propose(asked, module="m", hook="hooks/a.sh"))
    assert metrics.hooks.render().decode() == EXPECTED
    assert metrics.render().decode().endswith(EXPECTED)
