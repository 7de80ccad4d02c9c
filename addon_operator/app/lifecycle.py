"""The composition root: builds all parts from the settings, starts them in order, stops them in reverse.

Start: HTTP server (not ready), debug socket -> API server -> Lease -> what is on disk, global hooks' configuration and
monitors -> ConfigMap -> releases -> webhooks of former runs go -> queues. Stop: not ready -> no new work; the running
hook gets SIGTERM, a helm in flight may finish -> Lease released -> sockets. Source: contract.md 3.1, design.md 4.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path

import click

from addon_operator import __version__, logs
from addon_operator.app.assembly import Disk, Foundation, Parts
from addon_operator.dispatch.converge import ConvergeHandler
from addon_operator.dispatch.handlers import Handlers
from addon_operator.dispatch.intake import Intake
from addon_operator.dispatch.routing import startup_tasks
from addon_operator.errors import AddonOperatorError, HookConfigError, InvariantBroken, SettingsError, ValuesRejected
from addon_operator.helm.binary import find_helm
from addon_operator.helm.client import HelmClient
from addon_operator.helm.cluster import Cluster
from addon_operator.hooks.catalog import HookCatalog, global_root
from addon_operator.hooks.config.model import MAIN_QUEUE
from addon_operator.hooks.context import Synchronization
from addon_operator.hooks.engine import HookEngine
from addon_operator.kube import events
from addon_operator.kube.client import KubeClient
from addon_operator.kube.election import LEASE, Election
from addon_operator.kube.filters import Filters
from addon_operator.kube.holder import Holder
from addon_operator.kube.refs import ObjectKey
from addon_operator.kube.transport import HttpTransport, RequestStat
from addon_operator.logs import get_logger, streams
from addon_operator.metrics.operator import Metrics
from addon_operator.metrics.queues import HeadTask
from addon_operator.modules.enablement import Enablement
from addon_operator.modules.loader import ModuleLoader
from addon_operator.modules.registry import ModuleRegistry
from addon_operator.process import file_limit, heap, reaper
from addon_operator.process.private_directory import PrivateDirectory
from addon_operator.retry import RetryPolicy
from addon_operator.server.debug import DebugServer
from addon_operator.server.pages import modules_table
from addon_operator.server.public import PublicServer
from addon_operator.server.status import ConvergeStatus, Startup
from addon_operator.settings import Settings
from addon_operator.tasks.queue import Attempt
from addon_operator.tasks.queue_set import QueueSet
from addon_operator.tasks.task import (
    ApplyConfig,
    Converge,
    ConvergePhase,
    DeleteModule,
    Outcome,
    PurgeRelease,
    RunHook,
    RunModules,
    Task,
    kind,
)
from addon_operator.values.store import ValuesStore
from addon_operator.webhooks.host import WebhookHost

log = get_logger("operator")

SHELL_LIB = Path(__file__).parents[1] / "shell" / "shell_lib.sh"
_LIVE_TICK_S = 10.0
_SYNC_WITHIN_S = 60.0
_NOTED_WITHIN_S = 5.0
_RUN_DRY_WITHIN_S = 30.0
_ONCE_FAILURES = 3
_INTERRUPTED = 130
# What brings modules up to date outside of a converge.
_CHANGES = (RunModules, DeleteModule, PurgeRelease, ApplyConfig)


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
    operator = Operator(settings, directory)
    work = asyncio.create_task(operator.run(once=once), name="operator")

    def stop(number: signal.Signals) -> None:
        if operator.stopping:
            return
        log.info("operator stops; a helm in flight may finish", reason=number.name)
        operator.stopping = True
        work.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    try:
        return await work
    except asyncio.CancelledError:
        if not operator.stopping:
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


class Operator:
    """One operator: its parts, and the order in which they live.

    Attributes:
        stopping: a signal has ended it.
    """

    def __init__(self, settings: Settings, directory: PrivateDirectory) -> None:
        self.stopping = False
        self._settings = settings
        self._directory = directory
        self._metrics = Metrics(settings.metrics_prefix, max_hook_series=settings.hook_max_series)
        self._registry = ModuleRegistry()
        retry = RetryPolicy(settings.retry_first_s, settings.retry_most_s)
        on_action = self._metrics.queues.action if settings.queue_actions_metrics else None
        self._queues = QueueSet(self._handle, retry=retry, observe=self._observe, on_action=on_action)
        self._intake = Intake(queues=self._queues, registry=self._registry, ticks_count=self._has_converged)
        self._handlers: Handlers | None = None
        self._converge: ConvergeHandler | None = None
        self._client: KubeClient | None = None
        self._stuck = asyncio.Event()
        self._waits = ""
        self._courtesies: set[asyncio.Task[None]] = set()

    async def run(self, *, once: bool) -> int:
        """Starts, works and stops; see the function `run`."""
        chosen = self._settings
        log.info("operator starts", version=__version__, namespace=chosen.namespace)
        for reason in chosen.without_effect:
            log.warning("setting without effect", reason=reason)
        async with contextlib.AsyncExitStack() as stack:
            await self._serve_http(stack)
            debug = DebugServer(chosen.debug_socket)
            await debug.start()
            stack.push_async_callback(debug.stop)
            transport = await self._connect(stack)
            client = self._client = KubeClient(transport)
            await client.wait_reachable()
            await self._elect(transport, debug, stack)
            engine = self._engine(transport)
            async with asyncio.TaskGroup() as group:
                helm_found = group.create_task(
                    find_helm(chosen.helm_bin, os.environ, cache_dir=chosen.tmp_dir), name="find helm"
                )
                files_read = group.create_task(self._read_disk(engine), name="read files")
            binary, disk = helm_found.result(), files_read.result()
            cluster = await client.patiently(lambda: Cluster.ask(client))
            helm = HelmClient(
                kube=transport.credentials,
                binary=binary,
                namespace=chosen.namespace,
                tmp_dir=self._directory.below("helm"),
                cache_dir=PrivateDirectory(chosen.tmp_dir.absolute()).below("helm"),
                environment=os.environ,
                timeout_s=chosen.helm_timeout_s,
                history_max=chosen.helm_history_max,
                extra_labels=chosen.crd_extra_labels,
                keep_files=chosen.keep_tmp_files,
                on_operation=self._count_helm,
            )
            given = Foundation(
                settings=chosen,
                client=client,
                cluster=cluster,
                helm=helm,
                disk=disk,
                engine=engine,
                queues=self._queues,
                registry=self._registry,
                intake=self._intake,
                metrics=self._metrics,
                filters=stack.enter_context(contextlib.closing(Filters())),
            )
            return await self._work(given, stack, debug, once=once)

    # --- start

    def _engine(self, transport: HttpTransport) -> HookEngine:
        chosen = self._settings
        return HookEngine(
            tmp_dir=self._directory,
            environment={
                **transport.credentials.child_environment(),
                "ADDON_OPERATOR_SHELL_LIB": str(SHELL_LIB),
                **os.environ,
                # Also when it was given as a flag: hooks ask for it.
                "ADDON_OPERATOR_NAMESPACE": chosen.namespace,
            },
            keep_files=chosen.keep_tmp_files,
            kill_grace_s=chosen.kill_grace_s,
            config_timeout_s=chosen.hook_config_timeout_s,
            enabled_timeout_s=chosen.enabled_timeout_s,
            proxy_json=chosen.log_proxy_hook_json,
        )

    async def _read_disk(self, engine: HookEngine) -> Disk:
        chosen = self._settings
        loader = ModuleLoader(
            modules_dirs=chosen.modules_dirs,
            global_hooks_dir=chosen.global_hooks_dir,
            default_order=chosen.unnumbered_modules_order,
            strict_values=chosen.strict_values,
        )
        scan = loader.scan()
        root = global_root(chosen.global_hooks_dir)
        if not root.is_dir():
            log.info("no global hooks: the directory does not exist", reason=str(root))
        catalog = HookCatalog(engine)
        hooks = await catalog.load(root, module=None)
        if hooks.errors:
            raise HookConfigError("\n".join(hooks.errors))
        for warning in (*scan.warnings, *hooks.warnings):
            log.warning("something in the files has no effect", reason=warning)
        for hook in hooks.hooks:
            self._metrics.hook_runs.bindings(None, hook.id.name, len(hook.config.bindings()))
        log.info("files read", modules=len(scan.modules), global_hooks=len(hooks.hooks))
        return Disk(scan, loader, catalog, hooks)

    async def _serve_http(self, stack: contextlib.AsyncExitStack) -> None:
        server = PublicServer(
            converge=self._converge_status,
            troubles=tuple,
            unready=self._unready,
            metrics=self._metrics.blocks,
            hook_metrics=self._metrics.hooks.blocks,
        )
        self._metrics.queues.read(
            lambda: {queue.name: len(queue) for queue in self._queues.all()},
            lambda: {queue.name: _head(queue.tasks[0]) for queue in self._queues.all() if queue.tasks},
        )
        self._metrics.read_log(streams.lines_dropped)
        await server.start(address=self._settings.listen_address, port=self._settings.listen_port)
        stack.push_async_callback(server.stop)

    async def _connect(self, stack: contextlib.AsyncExitStack) -> HttpTransport:
        chosen = self._settings
        transport = await HttpTransport.connect(
            config_file=chosen.kube_config,
            context=chosen.kube_context,
            server=chosen.kube_server,
            qps=chosen.kube_qps,
            burst=chosen.kube_burst,
            on_request=self._count_request,
        )
        self._metrics.kube.read_unreachable(lambda: transport.reachability.away_s)
        stack.push_async_callback(transport.close)
        stack.push_async_callback(self._end_courtesies)
        return transport

    async def _elect(self, transport: HttpTransport, debug: DebugServer, stack: contextlib.AsyncExitStack) -> None:
        """Returns when no other operator works in the namespace; until the stack ends, none begins to."""
        usual = debug.waits

        def wait(reason: str) -> None:
            self._waits = debug.waits = reason

        apart = transport.apart()
        stack.push_async_callback(apart.close)
        holder = stack.enter_context(contextlib.closing(Holder(self._settings.pod)))
        election = Election(KubeClient(apart), namespace=self._settings.namespace, holder=holder, on_wait=wait)
        self._metrics.kube.read_lease(LEASE, lambda: election.held)
        await stack.enter_async_context(election.holding())
        self._waits, debug.waits = "", usual

    async def _end_courtesies(self) -> None:
        for task in self._courtesies:
            task.cancel()
        await asyncio.gather(*self._courtesies, return_exceptions=True)

    # --- work

    async def _work(
        self, given: Foundation, stack: contextlib.AsyncExitStack, debug: DebugServer, *, once: bool
    ) -> int:
        client, metrics = given.client, self._metrics
        parts = Parts(
            given,
            warn=lambda about, reason, message: self._warn(client, about, reason, message),
            on_refused=lambda error: self._config_refused(client, error),
        )
        self._converge, self._handlers = parts.converge, parts.handlers
        metrics.bindings.read_snapshots(parts.monitors.sizes)
        metrics.read_config(lambda: parts.config.error is not None)
        parts.monitors.start_early(given.disk.hooks.hooks)
        async with _background() as start_watch:
            start_watch(client.reachability.run(), "whether the API server answers")
            start_watch(parts.monitors.run(), "monitors of hooks")
            await client.patiently(parts.config.load)
            _check_static(parts.store, parts.enablement)
            start_watch(parts.storage.run(), "informer of releases")
            start_watch(parts.healing.run(), "healing")
            await parts.storage.wait_synced(_SYNC_WITHIN_S)
            debug.inspector = parts.inspector
            await parts.webhooks.start()
            stack.push_async_callback(parts.webhooks.stop)
            await parts.webhooks.clear_stale()
            self._queues.main.add_tail(startup_tasks(given.disk.hooks))
            done = parts.converge.progress.first_done
            try:
                async with _background() as start:
                    start(parts.source.run(), "watch of the ConfigMap")
                    start(self._queues.run(), "queues")
                    start(self._tick(), "live ticks")
                    start(parts.cron.run(), "schedules")
                    start(parts.webhooks.run(), "webhooks")
                    start(_clear_conversions(done, parts.webhooks), "conversions that nobody serves")
                    status = await self._first_converge(done) if once else await _for_ever()
                    if status == 0 and not await self._run_dry():
                        status = 1
                    await parts.reactions.withdraw_all()
            finally:
                await _within(_NOTED_WITHIN_S, parts.deployment.settle())
                await parts.deployment.close()
        modules = parts.inspector.modules()
        click.echo(modules_table(modules))
        return 1 if any(module.last_error for module in modules) else status

    async def _first_converge(self, done: asyncio.Event) -> int:
        """Waits for the end of the first converge, or until a task has failed too often."""
        waits = [
            asyncio.create_task(event.wait(), name=name) for event, name in ((done, "done"), (self._stuck, "stuck"))
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return 0 if done.is_set() else 1

    async def _run_dry(self) -> bool:
        """Gives hooks in named queues the time to end what the first converge has led to; answers whether they did."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RUN_DRY_WITHIN_S):
                # Once, before the end: no event says that all queues are empty.
                while any(map(len, self._queues.all())) and not self._stuck.is_set():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        left = {queue.name: len(queue) for queue in self._queues.all() if len(queue)}
        for name, count in left.items():
            log.error("a queue did not run dry", queue=name, tasks=count)
        return not left

    async def _tick(self) -> None:
        while True:
            self._metrics.live_tick()
            await asyncio.sleep(_LIVE_TICK_S)

    # --- what happens

    async def _handle(self, task: Task, queue: str) -> Outcome:
        if self._handlers is None:
            raise InvariantBroken("a task was queued before the operator was complete")
        return await self._handlers(task, queue)

    def _observe(self, attempt: Attempt) -> None:
        payload = attempt.task.payload
        hook = payload.hook if isinstance(payload, RunHook) else None
        module = hook.module if hook else payload.modules[0] if isinstance(payload, RunModules) else None
        self._metrics.queues.task_waited(
            module=module or "",
            hook=hook.name if hook else "",
            binding=payload.binding if isinstance(payload, RunHook) else "",
            queue=attempt.queue,
            seconds=attempt.waited_s,
        )
        if attempt.queue != MAIN_QUEUE and not _is_waited_for(attempt.task) and not self._has_converged():
            return
        if attempt.failures >= _ONCE_FAILURES:
            self._stuck.set()
        elif not attempt.failures and isinstance(payload, Converge) and payload.phase is ConvergePhase.WAIT_AFTER_ALL:
            heap.return_freed_memory()

    def _has_converged(self) -> bool:
        return self._converge is not None and self._converge.progress.first_done.is_set()

    def _config_refused(self, client: KubeClient, error: AddonOperatorError) -> None:
        self._metrics.config_refused()
        log.error("ConfigMap refused, the former values stay in force", error=error)
        about = ObjectKey("v1", "ConfigMap", self._settings.namespace, self._settings.config_map)
        self._warn(client, about, "ConfigRefused", " ".join(str(error).split()))

    def _warn(self, client: KubeClient, about: ObjectKey, reason: str, message: str) -> None:
        """Writes an Event without waiting for it."""
        event = asyncio.create_task(
            events.warn(client, about, reason=reason, message=message), name=f"Event {reason} about {about}"
        )
        self._courtesies.add(event)
        event.add_done_callback(self._courtesies.discard)

    def _unready(self) -> tuple[str, ...]:
        since = self._client.reachability.away_since if self._client else None
        if since is None or not self._settings.readyz_requires_api_server:
            return ()
        return (f"The API server has not answered since {since.isoformat(timespec='seconds')}",)

    def _converge_status(self) -> ConvergeStatus:
        progress = self._converge.progress if self._converge else None
        if progress is None or not progress.begun:
            return ConvergeStatus(Startup.NOT_STARTED, stopping=self.stopping, waits=self._waits)
        startup = Startup.DONE if progress.first_done.is_set() else Startup.IN_PROGRESS
        tasks = sum(task.converge or isinstance(task.payload, _CHANGES) for task in self._queues.main.tasks)
        return ConvergeStatus(startup, tasks=tasks, held=tuple(self._registry.held), stopping=self.stopping)

    def _count_request(self, stat: RequestStat) -> None:
        self._metrics.kube.request(
            verb=stat.verb,
            url=stat.path,
            host=stat.host,
            code=str(stat.code) if stat.code else "<error>",
            latency_s=stat.latency_s,
            limiter_wait_s=stat.wait_s,
        )

    def _count_helm(self, module: str, operation: str, duration_s: float) -> None:
        activation = self._converge.progress.activation if self._converge else ""
        self._metrics.helm.operation_finished(module, activation, operation, duration_s=duration_s)


StartTask = Callable[[Coroutine[object, object, object], str], None]


@contextlib.asynccontextmanager
async def _background() -> AsyncIterator[StartTask]:
    """Owns tasks that run for ever: all end with the block, and the block ends with the first that fails."""
    async with asyncio.TaskGroup() as group:
        tasks: list[asyncio.Task[object]] = []
        try:
            yield lambda work, name: tasks.append(group.create_task(work, name=name))
        finally:
            for task in tasks:
                task.cancel()


async def _within(limit_s: float, work: Awaitable[None]) -> None:
    """Waits for something that is worth some time at the end, but not more."""
    with contextlib.suppress(TimeoutError, AddonOperatorError):
        async with asyncio.timeout(limit_s):
            await work


def _is_waited_for(task: Task) -> bool:
    """Answers whether the main queue waits for a task of another one."""
    contexts = task.payload.contexts if isinstance(task.payload, RunHook) else ()
    return any(isinstance(one, Synchronization) and one.binding.wait_for_synchronization for one in contexts)


async def _for_ever() -> int:
    await asyncio.Event().wait()
    return 0


async def _clear_conversions(first_converge: asyncio.Event, webhooks: WebhookHost) -> None:
    """Once every module has had its turn, conversions that a former process registered and nobody serves go."""
    await first_converge.wait()
    try:
        await webhooks.clear_stale(conversions=True)
    except AddonOperatorError as error:
        log.warning("conversions that nobody serves are left registered", error=error)


def _check_static(store: ValuesStore, enablement: Enablement) -> None:
    """Values that break their schema end the start: of `global` and of the modules that flags enable.

    Raises:
        ValuesRejected: all violations. Source: contract.md 6.3 (schema violation at start).
    """
    violations = store.check_static(["global", *(module.key for module in enablement.flagged())])
    if violations:
        raise ValuesRejected("values at start are not valid:", violations)


def _head(task: Task) -> HeadTask:
    payload = task.payload
    hook = payload.hook if isinstance(payload, RunHook) else None
    modules = payload.modules if isinstance(payload, RunModules) else ()
    module = (hook.module or "") if hook else ",".join(modules)
    return HeadTask(module=module, task_type=kind(payload), hook=hook.name if hook else "")
