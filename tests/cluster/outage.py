"""Takes the API server away for a while, and leaves a cluster behind that is whole again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Final

from addon_operator.devcluster import DevCluster
from addon_operator.devcluster.commands import API_ONLY
from addon_operator.documents.jsondoc import JsonObject

_SERVER: Final = "kube-apiserver"
_AGAIN: Final = "--timeout=80s"


@contextlib.contextmanager
def outage(cluster: DevCluster) -> Iterator[None]:
    """Kills the API server for the length of a block; afterwards it runs, and the controllers have noticed.

    A block may start it again itself, to do something that nobody has caught up with. The controllers sleep as long
    as the block lasts: those that try again and again wait for up to a minute between two tries in the end, and so
    would all tests behind this one.
    """
    others = [pid for name, pid in cluster.pids.items() if name not in API_ONLY]
    _signal(others, signal.SIGSTOP)
    try:
        cluster.stop_apiserver()
        yield
    finally:
        try:
            if _SERVER not in cluster.pids:
                cluster.start_apiserver()
        finally:
            _signal(others, signal.SIGCONT)
        _wait_for_the_controllers(cluster)


@contextlib.asynccontextmanager
async def outage_beside(cluster: DevCluster) -> AsyncIterator[None]:
    """As `outage`, for tests whose loop has to go on meanwhile."""
    with contextlib.ExitStack() as stack:
        await asyncio.to_thread(stack.enter_context, outage(cluster))
        try:
            yield
        finally:
            await asyncio.to_thread(stack.close)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        # One that has ended by itself is told by `DevCluster.check`.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _wait_for_the_controllers(cluster: DevCluster) -> None:
    """Returns when the garbage collector deletes, Jobs are made Pods of, and Pods run."""
    if "kube-controller-manager" not in cluster.pids:
        return
    name = f"after-outage-{secrets.token_hex(4)}"
    cluster.kubectl("create", "configmap", name)
    cluster.kubectl("delete", "configmap", name, "--cascade=foreground", _AGAIN)
    if "kwok" in cluster.pids:
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(_job(name)))
        cluster.kubectl("wait", "--for=condition=Complete", f"job/{name}", _AGAIN)
        cluster.kubectl("delete", "job", name, "--cascade=foreground", _AGAIN)


def _job(name: str) -> JsonObject:
    pod: JsonObject = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.invalid/none"}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": {"spec": pod}},
    }
