"""The process of the operator: starts it, handles signals, stops it, and prints what `--once` has done.

Start: HTTP server (not ready), debug socket -> API server -> Lease -> the operator itself (`operator.py`). Stop: not
ready -> the operator -> Lease released -> sockets. Source: contract.md 3.1, design.md 4.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import os
import shutil
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from addon_operator import __version__, logs
from addon_operator.app.assembly import build
from addon_operator.app.edges import Edges, OnHelmOperation
from addon_operator.app.operator import Operator
from addon_operator.errors import AddonOperatorError, SettingsError
from addon_operator.helm.binary import find_helm
from addon_operator.helm.client import HelmClient
from addon_operator.hooks.transport_local import LocalTransport
from addon_operator.kube.client import KubeClient
from addon_operator.kube.election import Election
from addon_operator.kube.filters import Filters
from addon_operator.kube.holder import Holder
from addon_operator.kube.lease import LEASE
from addon_operator.kube.transport import HttpTransport, RequestStat
from addon_operator.logs import get_logger, streams
from addon_operator.metrics.operator import Metrics
from addon_operator.process import file_limit, heap, reaper
from addon_operator.process.private_directory import PrivateDirectory
from addon_operator.server.debug import DebugServer
from addon_operator.server.public import PublicServer
from addon_operator.server.status import OperatorStatus, Startup
from addon_operator.server.texts import modules_table
from addon_operator.settings import Settings
from addon_operator.webhooks.listener import tls_listeners

log = get_logger("operator")

_INTERRUPTED: Final = 130


def run(settings: Settings, *, once: bool) -> int:
    """Runs the operator until SIGTERM, SIGINT, or, with `once`, the end of the first converge.

    With `once`, what was done is printed to stdout as a table.

    Returns:
        The exit status: 0 stopped or converged; only with `once`: 1 something kept failing, 130 a signal came first.

    Raises:
        AddonOperatorError: it could not start.
    """
    streams.unblock(logs.lines_dropped)
    logs.configure(settings.log_type, settings.log_level, with_time=not settings.log_no_time)
    file_limit.raise_soft_limit()
    heap.keep_large_blocks_apart()
    reaper.adopt_orphans()
    if ended := reaper.end_stale_orphans():
        log.warning("processes that a killed operator had left behind are ended", reason=f"{ended} ended")
    # What was imported stays, and is most of what there is: it need not be looked through for garbage time and again.
    gc.freeze()
    with _run_directory(settings.tmp_dir) as directory:
        return asyncio.run(_run(settings, directory, once=once))


async def _run(settings: Settings, directory: PrivateDirectory, *, once: bool) -> int:
    """Lets a signal end the work in an orderly way, at whatever point it is."""
    loop = asyncio.get_running_loop()
    process = OperatorProcess(settings, directory)
    work = asyncio.create_task(process.run(once=once), name="operator")

    def stop(number: signal.Signals) -> None:
        if process.stopping:
            return
        log.info("operator stops; a helm in flight may finish", reason=number.name)
        process.stopping = True
        work.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    try:
        return await work
    except asyncio.CancelledError:
        if not process.stopping:
            raise
        return _INTERRUPTED if once else 0
    except BaseExceptionGroup as group:
        # The groups of tasks wrap what ended them; the first error of ours says what it was.
        known = group.subgroup(AddonOperatorError)
        raise _first(known or group) from group
    finally:
        await reaper.end_orphans()
        log.info("operator stopped")


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@contextlib.contextmanager
def _run_directory(tmp_dir: Path) -> Iterator[PrivateDirectory]:
    """A private directory of this process; those of processes that were killed are cleared away."""
    top = PrivateDirectory(tmp_dir.absolute())
    directory = top.below(f"run-{os.getpid()}")
    try:
        for left in top.make().glob("run-*"):
            number = left.name.removeprefix("run-")
            if not number.isdecimal() or not Path("/proc", number).exists():
                shutil.rmtree(left, ignore_errors=True)
        shutil.rmtree(directory.path, ignore_errors=True)
        directory.make()
    except OSError as error:
        where = error.filename or tmp_dir
        raise SettingsError(f"{where}: cannot be used for temporary files: {error.strerror}") from error
    try:
        yield directory
    finally:
        shutil.rmtree(directory.path, ignore_errors=True)


class OperatorProcess:
    """What surrounds an operator: servers, connections, and the Lease.

    Attributes:
        stopping: a signal has ended it.
    """

    def __init__(self, settings: Settings, directory: PrivateDirectory) -> None:
        self.stopping = False
        self._settings = settings
        self._directory = directory
        self._metrics = Metrics(settings.metrics_prefix, max_hook_series=settings.hook_max_series)
        self._debug = DebugServer(settings.debug_socket)
        self._waits = ""
        self._transport: HttpTransport | None = None
        self._operator: Operator | None = None

    async def run(self, *, once: bool) -> int:
        """Starts, works and stops; see the function `run`."""
        settings = self._settings
        log.info("operator starts", version=__version__, namespace=settings.namespace)
        for reason in settings.without_effect:
            log.warning("setting without effect", reason=reason)
        async with contextlib.AsyncExitStack() as stack:
            await self._serve_http(stack)
            await self._debug.start()
            stack.push_async_callback(self._debug.stop)
            transport = self._transport = await self._connect(stack)
            await KubeClient(transport).wait_reachable()
            await self._elect(transport, stack)
            filters = stack.enter_context(contextlib.closing(Filters()))
            operator = self._operator = await build(settings, self._edges(transport, filters), self._metrics)
            async with operator.running():
                self._debug.inspector = operator.inspector
                if not once:
                    await asyncio.Event().wait()
                await operator.first_converge()
                if operator.status().startup is Startup.DONE:
                    await operator.drain()
                status = operator.status()
                await operator.bindings.webhooks.withdraw_all()
            modules = operator.inspector.modules()
        click.echo(modules_table(modules))
        return dataclasses.replace(status, failed=tuple(one.name for one in modules if one.last_error)).exit_code

    def status(self) -> OperatorStatus:
        """Returns the facts that probes conclude from."""
        status = self._operator.status() if self._operator else OperatorStatus(Startup.NOT_STARTED)
        away = self._transport.reachability.away_since if self._transport else None
        return dataclasses.replace(
            status,
            stopping=self.stopping,
            waits=self._waits,
            api_server_away_since=away if self._settings.readyz_requires_api_server else None,
        )

    async def _serve_http(self, stack: contextlib.AsyncExitStack) -> None:
        server = PublicServer(
            status=self.status,
            metrics=self._metrics.blocks,
            hook_metrics=self._metrics.hooks.blocks,
        )
        self._metrics.read_log(streams.lines_dropped)
        await server.start(address=self._settings.listen_address, port=self._settings.listen_port)
        stack.push_async_callback(server.stop)

    async def _connect(self, stack: contextlib.AsyncExitStack) -> HttpTransport:
        settings = self._settings
        transport = await HttpTransport.connect(
            config_file=settings.kube_config,
            context=settings.kube_context,
            server=settings.kube_server,
            qps=settings.kube_qps,
            burst=settings.kube_burst,
            on_request=self._count_request,
        )
        self._metrics.kube.read_unreachable(lambda: transport.reachability.away_s)
        stack.push_async_callback(transport.close)
        return transport

    async def _elect(self, transport: HttpTransport, stack: contextlib.AsyncExitStack) -> None:
        """Returns when no other operator works in the namespace; until the stack ends, none begins to."""
        usual = self._debug.waits

        def wait(reason: str) -> None:
            self._waits = self._debug.waits = reason

        apart = transport.apart()
        stack.push_async_callback(apart.close)
        holder = stack.enter_context(contextlib.closing(Holder(self._settings.pod)))
        election = Election(KubeClient(apart), namespace=self._settings.namespace, holder=holder, on_wait=wait)
        self._metrics.kube.read_lease(LEASE, lambda: election.held)
        await stack.enter_async_context(election.holding())
        self._waits, self._debug.waits = "", usual

    def _edges(self, transport: HttpTransport, filters: Filters) -> Edges:
        settings = self._settings

        async def connect_helm(on_operation: OnHelmOperation) -> HelmClient:
            return HelmClient(
                kube=transport.credentials,
                binary=await find_helm(settings.helm_bin, os.environ, cache_dir=settings.tmp_dir),
                namespace=settings.namespace,
                tmp_dir=self._directory.below("helm"),
                cache_dir=PrivateDirectory(settings.tmp_dir.absolute()).below("helm"),
                environment=os.environ,
                timeout_s=settings.helm_timeout_s,
                history_max=settings.helm_history_max,
                extra_labels=settings.crd_extra_labels,
                keep_files=settings.keep_tmp_files,
                on_operation=on_operation,
            )

        return Edges(
            api_server=transport,
            find_helm=connect_helm,
            hook_transport=LocalTransport(),
            webhook_listeners=tls_listeners,
            run_jq=filters.run,
            environment={**transport.credentials.child_environment(), **os.environ},
            tmp_dir=self._directory,
            now=lambda: datetime.now(UTC),
        )

    def _count_request(self, stat: RequestStat) -> None:
        self._metrics.kube.request(
            verb=stat.verb,
            url=stat.path,
            host=stat.host,
            code=str(stat.code) if stat.code else "<error>",
            latency_s=stat.latency_s,
            limiter_wait_s=stat.wait_s,
        )
