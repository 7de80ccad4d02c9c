"""What holds for tests against the real control plane (`cluster` in tests/conftest.py)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks every test of this directory."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(autouse=True)
def _cluster_is_well(request: pytest.FixtureRequest) -> Iterator[None]:
    """A component that died fails the test that saw it, with the tail of its log."""
    yield
    if "cluster" in request.fixturenames:
        request.getfixturevalue("cluster").check()
