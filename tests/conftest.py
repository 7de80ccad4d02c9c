"""What holds for all tests."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import structlog
from hypothesis import settings

from addon_operator.devcluster import DevCluster

_HERE: Final = Path(__file__).parent
_DIRECTORIES: Final = {"component": 1, "unit": 2}

# How long an example takes says nothing on a machine that others use, too.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

# A shell without job control starts background jobs with SIGINT ignored, and children inherit that; tests that press
# Ctrl-C need it as a terminal would have it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of tests/robustness; pytest reads options from this file only."""
    group = parser.getgroup("robustness")
    group.addoption("--robustness", action="store_true", help="run the long part of tests/robustness, and only that")
    group.addoption("--seed", type=int, default=None, help="what random cases are drawn from")
    group.addoption("--case", default=None, help="run only this case of a robustness test with many")
    group.addoption("--minutes", type=float, default=None, help="how long each robustness test may take")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """The whole control plane; tests keep to namespaces of their own (`cluster.namespace()`).

    It fails with "run `make tools`" where the programs are missing.
    """
    with DevCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(autouse=True)
def _log_is_set_up_anew() -> Iterator[None]:
    """A log that one test has set up holds back nothing in the next: lines that repeat would be missing there."""
    yield
    structlog.reset_defaults()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begins with what takes longest, so that workers end at the same time; within that, the random order stays."""
    items.sort(key=lambda item: _DIRECTORIES.get(item.path.relative_to(_HERE).parts[0], 0))


def pytest_collection_finish() -> None:
    """What was imported and collected stays: it need not be looked through for garbage time and again."""
    gc.collect()
    gc.freeze()
