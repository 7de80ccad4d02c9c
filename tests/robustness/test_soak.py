"""Churn without end: an operator that runs for months must not grow.

After each cycle of churn all is as it was before, so that these moments can be compared. `make soak` churns for 30
minutes (`MINUTES=`) and judges the slope of memory; the short form in `make test-robustness` judges what shows after
some cycles: descriptors, threads, children, tasks, and a growth of memory that no allocator explains.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from addon_operator.devcluster import DevCluster
from tests.cluster.operator import operator
from tests.robustness import soak, workload
from tests.robustness.config_churn import ConfigChurn
from tests.robustness.growth import LONG_MINUTES, problems, summary
from tests.robustness.samples import Sample, environment, take
from tests.robustness.states import read_schemas

SHORT_MINUTES: Final = 3.0
# Pools, caches and code that is used for the first time.
WARM_UP_CYCLES: Final = 4
# What is known of revisions would grow for as many cycles as helm keeps revisions.
FEW_REVISIONS: Final = {"HELM_HISTORY_MAX": "2"}


@pytest.mark.robustness
@pytest.mark.timeout(0)
def test_churn_leaves_nothing_behind(
    plane: DevCluster, tmp_path: Path, seed: int, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    given = request.config.getoption("--minutes")
    minutes = SHORT_MINUTES if given is None else float(given)
    counts, samples = tmp_path / "counts.json", list[Sample]()
    with operator(plane, tmp_path, {**environment(counts), **FEW_REVISIONS}) as made:
        soak.install(made)
        with contextlib.closing(ConfigChurn(made, known=read_schemas(tmp_path))) as churn:
            churn.put(workload.START)
            made.start_ready()
            assert made.process is not None
            churner, end = soak.Soak(made, churn, seed), None
            while end is None or time.monotonic() < end or len(samples) < 4:
                order = churner.cycle()
                if churner.cycles >= WARM_UP_CYCLES:
                    samples.append(take(made.process.pid, counts))
                    end = end or time.monotonic() + minutes * 60
                    with (tmp_path / "samples.jsonl").open("a") as file:
                        file.write(json.dumps({"order": order, **dataclasses.asdict(samples[-1])}) + "\n")
    found = list(problems(samples, judge_slope=minutes >= LONG_MINUTES))
    if not found:
        capsys.readouterr()  # the log of an operator that did as it should
    text = f"seed {seed}: {summary(samples)}"
    if found:
        pytest.fail("\n".join([*found, text]), pytrace=False)
    sys.stdout.write(f"{text}\n")
