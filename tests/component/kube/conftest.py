"""A scripted API server, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from addon_operator.kube.client import KubeClient
from tests.component.kube.api import Api, serving


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving() as running:
        yield running


@pytest.fixture
async def client(api: Api, tmp_path: Path) -> AsyncIterator[KubeClient]:
    made = await KubeClient.connect(config_file=api.kubeconfig(tmp_path), context=None, server=None, qps=0, burst=1)
    yield made
    await made.close()
