"""One real control plane for all tests of this directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from addon_operator.devcluster import DevCluster

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks every test of this directory."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """The whole control plane; tests keep to namespaces of their own (`cluster.namespace()`).

    It fails with "run `make tools`" where the programs are missing.
    """
    with DevCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(autouse=True)
def _cluster_is_well(request: pytest.FixtureRequest) -> Iterator[None]:
    """A component that died fails the test that saw it, with the tail of its log."""
    yield
    if "cluster" in request.fixturenames:
        request.getfixturevalue("cluster").check()
