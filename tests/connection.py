"""A client of an API server, for the time of a test."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from addon_operator.kube.client import KubeClient
from addon_operator.kube.transport import HttpTransport, RequestStat


@contextlib.asynccontextmanager
async def transport(
    kubeconfig: Path | None, *, server: str | None = None, on_request: Callable[[RequestStat], None] | None = None
) -> AsyncIterator[HttpTransport]:
    """Connections without a limit."""
    made = await HttpTransport.connect(
        config_file=kubeconfig, context=None, server=server, qps=0, burst=1, on_request=on_request
    )
    try:
        yield made
    finally:
        await made.close()


@contextlib.asynccontextmanager
async def connected(
    kubeconfig: Path | None, *, server: str | None = None, on_request: Callable[[RequestStat], None] | None = None
) -> AsyncIterator[KubeClient]:
    """A client without a limit."""
    async with transport(kubeconfig, server=server, on_request=on_request) as made:
        yield KubeClient(made)
