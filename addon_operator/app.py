"""The composition root: builds all parts from the settings, starts them in order, stops them in reverse.

Start: HTTP server (not ready) and debug socket -> API server -> what is on disk -> ConfigMap -> release storage -> queues.
Stop: not ready -> no new work, the running hook gets SIGTERM, a helm in flight may finish -> sockets last.
Source: contract.md 3.1, design.md 4.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from addon_operator import __version__, logs, process
from addon_operator.backoff import RetryPolicy
from addon_operator.configmap.config import OperatorConfig
from addon_operator.configmap.source import ConfigMapSource
from addon_operator.dispatch.converge import ConvergeHandler
from addon_operator.dispatch.handlers import Handlers
from addon_operator.dispatch.routing import absent_objects, config_accepted, startup_tasks
from addon_operator.errors import AddonOperatorError, InvariantBroken
from addon_operator.helm.client import HelmClient
from addon_operator.helm.healing import Healing
from addon_operator.helm.storage import ReleaseStorage
from addon_operator.hooks.bindings import LifecycleKind
from addon_operator.hooks.call import HookId
from addon_operator.hooks.catalog import Hook, HookCatalog, LoadedHooks
from addon_operator.hooks.effects import HookRuns
from addon_operator.hooks.engine import HookEngine
from addon_operator.inspection import OperatorInspector
from addon_operator.kube.client import KubeClient, RequestStat
from addon_operator.kube.discovery import Discovery
from addon_operator.kube.patcher import ObjectPatcher
from addon_operator.logs import get_logger
from addon_operator.metrics import HeadTask, Metrics
from addon_operator.modules.crds import CrdInstaller
from addon_operator.modules.deployment import Deployment
from addon_operator.modules.enablement import Enablement
from addon_operator.modules.loader import ModuleLoader, hooks_root
from addon_operator.modules.registry import ModuleRegistry
from addon_operator.modules.runner import ModuleRunner
from addon_operator.report import converge_table
from addon_operator.server.debug import DebugServer
from addon_operator.server.public import PublicServer
from addon_operator.server.status import ConvergeStatus, Startup
from addon_operator.settings import Settings
from addon_operator.tasks.queue import Attempt, QueueSet
from addon_operator.tasks.task import Outcome, RunHook, Task, kind
from addon_operator.values.store import SectionSpec, ValuesStore

log = get_logger("operator")

_LIVE_TICK_S = 10.0
_ONCE_FAILURES = 3


def run(settings: Settings, *, once: bool) -> int:
    """Runs the operator until SIGTERM, SIGINT, or, with `once`, the end of the first converge.

    Returns:
        The exit status: 0 stopped or converged, 1 a task kept failing (`once` only).

    Raises:
        AddonOperatorError: it could not start.
    """
    logs.configure(settings.log_type, settings.log_level, with_time=not settings.log_no_time)
    process.adopt_orphans()
    with _private_directory(settings.tmp_dir) as tmp_dir:
        return asyncio.run(Operator(settings, tmp_dir).run(once=once))


class Operator:
    """All parts of one operator."""

    def __init__(self, settings: Settings, tmp_dir: Path) -> None:
        self._settings = settings
        self._tmp_dir = tmp_dir
        self._stopping = asyncio.Event()
        self._stuck = asyncio.Event()
        self._failures: dict[int, int] = {}
        self._metrics = Metrics(settings.metrics_prefix)
        self._registry = ModuleRegistry()
        retry = RetryPolicy(settings.retry_first_s, settings.retry_most_s)
        self._queues = QueueSet(self._handle, retry=retry, observe=self._observe)
        self._handlers: Handlers | None = None
        self._converge: ConvergeHandler | None = None

    async def run(self, *, once: bool) -> int:
        """Starts, works and stops; see `run` above."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        log.info("operator starts", version=__version__, namespace=self._settings.namespace)
        async with contextlib.AsyncExitStack() as stack:
            await self._serve_http(stack)
            work = asyncio.create_task(self._work(stack, once=once), name="operator/work")
            stop = asyncio.create_task(self._stopping.wait(), name="operator/stop")
            try:
                await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
                return work.result() if work.done() else 0
            finally:
                self._stopping.set()
                for task in (work, stop):
                    task.cancel()
                await asyncio.gather(work, stop, return_exceptions=True)
                log.info("operator stops")

    def _stop(self, number: int) -> None:
        log.info("stopping, the running task may end first", reason=signal.Signals(number).name)
        self._stopping.set()

    async def _serve_http(self, stack: contextlib.AsyncExitStack) -> None:
        server = PublicServer(
            converge=self._converge_status,
            troubles=tuple,
            metrics=self._metrics.render,
            hook_metrics=self._metrics.hooks.render,
        )
        await server.start(address=self._settings.listen_address, port=self._settings.listen_port)
        stack.push_async_callback(server.stop)

    async def _work(self, stack: contextlib.AsyncExitStack, *, once: bool) -> int:
        client = await self._connect(stack)
        api_version = await client.wait_reachable()
        discovery = await client.discover()
        return await self._run_with(client, api_version, discovery, stack, once=once)

    async def _connect(self, stack: contextlib.AsyncExitStack) -> KubeClient:
        chosen = self._settings
        client = await KubeClient.connect(
            config_file=chosen.kube_config,
            context=chosen.kube_context,
            server=chosen.kube_server,
            qps=chosen.kube_qps,
            burst=chosen.kube_burst,
            on_request=self._count_request,
        )
        stack.push_async_callback(client.close)
        return client

    def _count_request(self, stat: RequestStat) -> None:
        self._metrics.kube_request(
            verb=stat.verb,
            url=stat.path,
            host=stat.host,
            code=str(stat.code) if stat.code else "<error>",
            latency_s=stat.latency_s,
            limiter_wait_s=stat.wait_s,
        )

    async def _run_with(
        self, client: KubeClient, kube_version: str, discovery: Discovery, stack: contextlib.AsyncExitStack, *, once: bool
    ) -> int:
        chosen, registry, queue = self._settings, self._registry, self._queues.main
        environment = {**os.environ, **{k: v for k, v in client.child_environment().items() if k not in os.environ}}
        engine = HookEngine(
            tmp_dir=self._tmp_dir,
            environment=environment,
            keep_files=chosen.keep_tmp_files,
            kill_grace_s=chosen.kill_grace_s,
            config_timeout_s=chosen.hook_config_timeout_s,
            enabled_timeout_s=chosen.enabled_timeout_s,
            proxy_json=chosen.log_proxy_hook_json,
        )
        catalog = HookCatalog(engine)
        loader = ModuleLoader(
            modules_dirs=chosen.modules_dirs,
            global_hooks_dir=chosen.global_hooks_dir,
            default_order=chosen.unnumbered_modules_order,
            strict_values=chosen.strict_values,
        )
        helm = await HelmClient.find(chosen, client, tmp_dir=self._tmp_dir)
        global_hooks = await self._load_global_hooks(catalog)
        store = self._scan(loader)
        storage = ReleaseStorage(client, chosen.namespace)
        healing = Healing(client, discovery, storage, on_absent=self._heal)
        crds = CrdInstaller(client, labels=dict(chosen.crd_extra_labels), filter_prefixes=chosen.crd_filter_prefixes)
        deployment = Deployment()
        config_name = f"{chosen.namespace}/{chosen.config_map}"
        source = ConfigMapSource(client, chosen.namespace, chosen.config_map, on_change=lambda data: config.receive(data))
        config = OperatorConfig(
            source,
            store,
            where=f"ConfigMap {config_name}",
            module_keys=lambda: {module.key for module in registry.modules},
            checked_keys=lambda: {"global", *(module.key for module in enablement.flagged())},
            on_accepted=lambda: queue.add_head(config_accepted(queue.tasks).head),
            on_rejected=self._config_rejected,
        )
        enablement = Enablement(
            registry=registry, store=store, engine=engine, config=lambda: config.in_force, config_name=config_name
        )
        hook_runs = HookRuns(
            engine=engine,
            store=store,
            config=config,
            patcher=ObjectPatcher(client, client.discover),
            metrics=self._metrics,
            enabled_modules=lambda: registry.enabled,
            timeout_s=chosen.hook_timeout_s,
        )
        return 0
