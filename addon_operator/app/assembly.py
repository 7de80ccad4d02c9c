"""Puts an operator together: the only wiring, for the program, tests and benchmarks. Starts nothing.

Which part gets what can be read here from top to bottom: everything is built from what stands above it. In which order
the parts start and stop is in `operator.py`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from addon_operator.app.edges import Edges
from addon_operator.app.files import read_files
from addon_operator.app.inspection import OperatorInspector
from addon_operator.app.observer import AttemptObserver, head_task
from addon_operator.app.operator import Operator
from addon_operator.bindings.hook_bindings import HookBindings
from addon_operator.bindings.kubernetes import BindingMonitors
from addon_operator.bindings.schedule import ScheduleBindings
from addon_operator.bindings.webhooks import WebhookBindings
from addon_operator.configmap.config import OperatorConfig
from addon_operator.configmap.source import ConfigMapSource
from addon_operator.configmap.writer import ConfigMapWriter
from addon_operator.dispatch.converge import ConvergeHandler
from addon_operator.dispatch.events import EventSink
from addon_operator.dispatch.global_hooks import GlobalHookHandler
from addon_operator.dispatch.handlers import Handlers
from addon_operator.dispatch.hook_runs import HookRunHandler
from addon_operator.dispatch.module_runs import ModuleRunHandler
from addon_operator.dispatch.progress import Progress
from addon_operator.dispatch.reviews import HookReviewer
from addon_operator.dispatch.synchronizations import Synchronizations
from addon_operator.helm.chart import ChartReader
from addon_operator.helm.cluster import Cluster
from addon_operator.helm.deploy import Deployer
from addon_operator.helm.healing import Healing
from addon_operator.helm.storage import ReleaseStorage
from addon_operator.hooks.effects import HookRuns
from addon_operator.hooks.engine import HookEngine
from addon_operator.kube.client import KubeClient
from addon_operator.kube.events import EventRecorder
from addon_operator.kube.informers.monitor import Monitors
from addon_operator.kube.patcher import ObjectPatcher
from addon_operator.kube.refs import ObjectKey
from addon_operator.kube.retries import retry_until_answered
from addon_operator.metrics.operator import Metrics
from addon_operator.modules.crd_rollout import CrdRollout
from addon_operator.modules.crds import CrdInstaller
from addon_operator.modules.deployment import ModuleDeployment
from addon_operator.modules.enablement import EnableFlags, Enablement
from addon_operator.modules.holding import Holding
from addon_operator.modules.registry import ModuleRegistry
from addon_operator.modules.removals import config_map_was_missing
from addon_operator.modules.runner import ModuleRunner
from addon_operator.retry import RetryPolicy
from addon_operator.schedule.timer import Cron
from addon_operator.settings import Settings
from addon_operator.tasks.queue_set import QueueSet
from addon_operator.values.store import ValuesStore
from addon_operator.webhooks.endpoint import WebhookSettings
from addon_operator.webhooks.host import WebhookHost

SHELL_LIB: Final = Path(__file__).parents[1] / "shell" / "shell_lib.sh"


async def build(settings: Settings, edges: Edges, metrics: Metrics) -> Operator:
    """Reads what is on disk, finds helm, asks the cluster what it is, and puts an operator together.

    Args:
        settings: of the operator.
        edges: what it touches; the API server must be reachable.
        metrics: what it counts in.

    Raises:
        AddonOperatorError: something on disk cannot be used, or there is no usable helm.
    """
    client, engine, progress = KubeClient(edges.api_server), _engine(settings, edges), Progress()

    def count_helm(module: str, operation: str, duration_s: float) -> None:
        metrics.helm.operation_finished(module, progress.activation, operation, duration_s=duration_s)

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read_files(settings, engine, metrics), name="read files")
        finding = group.create_task(edges.find_helm(count_helm), name="find helm")
        asking = group.create_task(retry_until_answered(lambda: Cluster.ask(client)), name="ask the cluster")
    files, helm, cluster = reading.result(), finding.result(), asking.result()

    # --- state, queues, events
    config_map = ObjectKey("v1", "ConfigMap", settings.namespace, settings.config_map)
    config_name = f"{settings.namespace}/{settings.config_map}"
    registry = ModuleRegistry(files.hooks)
    registry.replace_modules(files.scan.modules)
    registry.scan_warnings = files.scan.warnings
    store = ValuesStore(files.scan.global_section)
    store.replace_modules(files.scan.sections)
    observer = AttemptObserver(progress, metrics.queues)
    queues = QueueSet(
        retry=RetryPolicy(settings.retry_first_s, settings.retry_most_s),
        observe=observer,
        on_action=metrics.queues.action if settings.queue_actions_metrics else None,
    )
    recorder = EventRecorder(client)
    events = EventSink(
        queues=queues,
        registry=registry,
        loader=files.loader,
        store=store,
        progress=progress,
        warn=recorder.warn,
        metrics=metrics.config,
        config_map=config_map,
    )

    # --- the ConfigMap and what it enables
    flags = EnableFlags(registry, store, config_map=config_name)
    config = OperatorConfig(
        store,
        where=f"ConfigMap {config_name}",
        module_keys=lambda: {module.key for module in registry.modules},
        checked_keys=flags.checked_keys,
        events=events,
    )
    enablement = Enablement(registry=registry, store=store, flags=flags, engine=engine, config=config)

    # --- releases
    storage = ReleaseStorage(client, settings.namespace)
    healing = Healing(
        client,
        settings.namespace,
        cluster=cluster,
        events=events,
    )
    charts = ChartReader()
    deployment = ModuleDeployment(
        deployer=Deployer(
            client=helm,
            storage=storage,
            healing=healing,
            cluster=cluster,
            charts=charts,
            stop_grace_s=settings.shutdown_grace_s,
        ),
        storage=storage,
        healing=healing,
        store=store,
        config=config,
        metrics=metrics,
        events=events,
    )
    source = ConfigMapSource(
        client,
        settings.namespace,
        settings.config_map,
        on_change=config.receive,
        before_create=lambda: deployment.hold_enabled_by_config_map(config_map_was_missing(config.where)),
    )

    # --- hooks and what makes them run
    monitors = BindingMonitors(
        Monitors(client, client.discover, on_watch_error=metrics.kube.watch_failed, run_jq=edges.run_jq),
        metrics.bindings,
        events=events,
        warn=recorder.warn,
    )
    hooks = HookRuns(
        engine=engine,
        store=store,
        config_map=ConfigMapWriter(config, source),
        patcher=ObjectPatcher(
            client,
            client.discover,
            on_delete=lambda key: healing.expect_deletion((key,)),
            on_delete_refused=lambda key: healing.deletion_refused((key,)),
            run_jq=edges.run_jq,
        ),
        metrics=metrics,
        enabled_modules=lambda: registry.enabled,
        items=monitors.items,
        timeout_s=settings.hook_timeout_s,
    )
    schedules = Cron(now=edges.now)
    webhook_settings = WebhookSettings(
        namespace=settings.namespace,
        config_map=settings.config_map,
        validating_name=settings.validating_webhook_name,
        mutating_name=settings.mutating_webhook_name,
        admission=settings.validating_webhook,
        conversion=settings.conversion_webhook,
        host=settings.webhook_host,
    )
    admission, conversion = edges.webhook_listeners(webhook_settings)
    webhooks = WebhookHost(
        client,
        reviewer=HookReviewer(hooks=hooks, registry=registry, events=events, metrics=metrics.hook_runs),
        admission=admission,
        conversion=conversion,
        settings=webhook_settings,
    )
    bindings = HookBindings(
        monitors=monitors,
        schedules=ScheduleBindings(schedules, events=events),
        webhooks=WebhookBindings(webhooks),
    )

    # --- modules
    crds = CrdRollout(
        registry,
        CrdInstaller(
            client,
            charts=charts,
            labels=dict(settings.crd_extra_labels),
            filter_prefixes=settings.crd_filter_prefixes,
            on_installed=cluster.wait_for_kinds,
        ),
    )
    runner = ModuleRunner(
        registry=registry,
        catalog=files.catalog,
        hooks=hooks,
        bindings=bindings,
        queues=queues,
        store=store,
        deployment=deployment,
        crds=crds,
        metrics=metrics,
    )
    holding = Holding(
        registry=registry,
        runner=runner,
        deployment=deployment,
        config=config,
        source=source,
        ignored_release=settings.helm_ignore_release,
        limit=settings.max_removals,
        metrics=metrics.modules,
        warn=lambda reason, message: recorder.warn(config_map, reason, message),
    )

    # --- tasks
    converge = ConvergeHandler(
        queue=queues.main,
        loader=files.loader,
        registry=registry,
        store=store,
        enablement=enablement,
        runner=runner,
        crds=crds,
        holding=holding,
        config=config,
        progress=progress,
        metrics=metrics.modules,
    )
    synchronizations = Synchronizations(queues, monitors)
    handlers = Handlers(
        queue=queues.main,
        converge=converge,
        hook_runs=HookRunHandler(
            queue=queues.main,
            progress=progress,
            registry=registry,
            runner=runner,
            hooks=hooks,
            monitors=monitors,
        ),
        module_runs=ModuleRunHandler(
            queue=queues.main,
            converge=converge,
            registry=registry,
            runner=runner,
            monitors=monitors,
            synchronizations=synchronizations,
            workers=settings.module_workers,
        ),
        global_hooks=GlobalHookHandler(
            queues=queues, bindings=bindings, synchronizations=synchronizations, hooks=files.hooks
        ),
        registry=registry,
        crds=crds,
        holding=holding,
        config=config,
        enablement=enablement,
    )
    inspector = OperatorInspector(
        queues=queues,
        store=store,
        registry=registry,
        enablement=enablement,
        deployment=deployment,
        config=config,
        monitors=monitors,
        reachability=client.reachability,
        namespace=settings.namespace,
        events=events,
    )
    metrics.queues.read(
        lambda: {queue.name: len(queue) for queue in queues.all()},
        lambda: {queue.name: head_task(queue.tasks[0]) for queue in queues.all() if queue.tasks},
    )
    metrics.bindings.read_snapshots(monitors.sizes)
    metrics.config.read_refused(lambda: config.error is not None)
    return Operator(
        client=client,
        registry=registry,
        store=store,
        queues=queues,
        progress=progress,
        observer=observer,
        recorder=recorder,
        config=config,
        source=source,
        enablement=enablement,
        storage=storage,
        healing=healing,
        deployment=deployment,
        monitors=monitors,
        schedules=schedules,
        webhooks=webhooks,
        bindings=bindings,
        handler=handlers,
        inspector=inspector,
        metrics=metrics,
    )


def _engine(settings: Settings, edges: Edges) -> HookEngine:
    return HookEngine(
        transport=edges.hook_transport,
        tmp_dir=edges.tmp_dir,
        environment={
            "ADDON_OPERATOR_SHELL_LIB": str(SHELL_LIB),
            **edges.environment,
            # Also when it was given as a flag: hooks ask for it.
            "ADDON_OPERATOR_NAMESPACE": settings.namespace,
        },
        keep_files=settings.keep_tmp_files,
        kill_grace_s=settings.kill_grace_s,
        config_timeout_s=settings.hook_config_timeout_s,
        enabled_timeout_s=settings.enabled_timeout_s,
        proxy_json=settings.log_proxy_hook_json,
    )
