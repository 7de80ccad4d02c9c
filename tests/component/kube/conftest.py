"""A scripted API server, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from addon_operator.kube.client import KubeClient
from tests.component.kube.api import Api, serving
from tests.connection import connected


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving() as running:
        yield running


@pytest.fixture
async def client(api: Api, tmp_path: Path) -> AsyncIterator[KubeClient]:
    async with connected(api.kubeconfig(tmp_path)) as client:
        yield client
