"""A scripted API server, and a client of it: over HTTP, or in memory where time is virtual.

Time is virtual in modules and tests with the mark `asyncio(loop_factories=["virtual"])`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from addon_operator.kube.client import KubeClient
from tests.component.kube.api import Api, serving
from tests.component.kube.api_in_memory import ApiInMemory
from tests.connection import connected
from tests.fakes.clock import VirtualLoop

# What waits for something that never comes, and retries meanwhile, would go on for ever.
_VIRTUAL_LIMIT_S: Final = 600.0


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """One only: a test that names none runs with all that there are."""
    return {"virtual": lambda: VirtualLoop(_VIRTUAL_LIMIT_S)} if _is_virtual(item) else {"real": asyncio.new_event_loop}


@pytest.fixture
async def api(request: pytest.FixtureRequest) -> AsyncIterator[Api | ApiInMemory]:
    if _is_virtual(request.node):
        yield ApiInMemory()
        return
    async with serving() as running:
        yield running


@pytest.fixture
async def client(api: Api | ApiInMemory, tmp_path: Path) -> AsyncIterator[KubeClient]:
    if isinstance(api, ApiInMemory):
        yield KubeClient(api)
        return
    async with connected(api.kubeconfig(tmp_path)) as client:
        yield client


def _is_virtual(item: pytest.Item) -> bool:
    mark = item.get_closest_marker("asyncio")
    return mark is not None and "virtual" in mark.kwargs.get("loop_factories", ())
