"""Options, seeds and the control plane of the robustness tests.

`--robustness` runs the long part; without it only what has no mark `robustness` is run. A failing test says its seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from addon_operator.devcluster import DevCluster
from addon_operator.devcluster.commands import API_ONLY

_HERE = Path(__file__).parent
# What `make test` runs, so that it is the same each time.
SHORT_SEED = 1
_SEED = pytest.StashKey[int]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the long part out unless it was asked for, and the short one if it was."""
    long = bool(config.getoption("--robustness"))
    kept, left = [], []
    for item in items:
        if _HERE in item.path.parents and (item.get_closest_marker("robustness") is not None) != long:
            left.append(item)
        else:
            kept.append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """What everything random is drawn from: `--seed`, or `SHORT_SEED`."""
    given = request.config.getoption("--seed")
    chosen = SHORT_SEED if given is None else int(given)
    request.config.stash[_SEED] = chosen
    return chosen


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Says with each failure which seed and which command repeat it."""
    report: pytest.TestReport = yield  # type: ignore[assignment]
    if report.failed and _HERE in item.path.parents and _SEED in item.config.stash:
        chosen = item.config.stash[_SEED]
        flag = " --robustness" if item.get_closest_marker("robustness") is not None else ""
        text = f"seed {chosen}\nrepeat: .venv/bin/pytest '{item.nodeid}'{flag} --seed={chosen}"
        report.sections.append(("robustness", text))
    return report  # type: ignore[return-value]


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """etcd and the API server: nothing else changes objects, so that what is seen is what the operator did.

    Cases keep to namespaces of their own, and name what is cluster-wide after them (see `workload`).
    """
    with DevCluster(tmp_path_factory.mktemp("plane"), components=API_ONLY) as running:
        yield running
