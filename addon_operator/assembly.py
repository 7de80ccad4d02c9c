"""Builds the parts of an operator and joins them; starts nothing.

Which part gets what can be read here; in which order they start and stop, in `app.py`, which calls it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from addon_operator.configmap.config import OperatorConfig
from addon_operator.configmap.source import ConfigMapSource
from addon_operator.cron import Cron
from addon_operator.dispatch.converge import ConvergeHandler
from addon_operator.dispatch.handlers import Handlers
from addon_operator.dispatch.intake import Intake
from addon_operator.dispatch.reviews import HookReviewer
from addon_operator.errors import AddonOperatorError
from addon_operator.helm.chart import ChartReader
from addon_operator.helm.client import HelmClient
from addon_operator.helm.cluster import Cluster
from addon_operator.helm.deploy import Deployer
from addon_operator.helm.healing import Healing
from addon_operator.helm.storage import ReleaseStorage
from addon_operator.hooks.call import HookId
from addon_operator.hooks.catalog import HookCatalog
from addon_operator.hooks.effects import HookRuns
from addon_operator.hooks.engine import HookEngine
from addon_operator.hooks.hook import Hook, LoadedHooks
from addon_operator.hooks.monitors import HookMonitors, Warn
from addon_operator.inspection import OperatorInspector
from addon_operator.kube.client import KubeClient
from addon_operator.kube.monitor import Monitors
from addon_operator.kube.patcher import ObjectPatcher
from addon_operator.metrics import Metrics
from addon_operator.modules.crds import CrdInstaller
from addon_operator.modules.deployment import ModuleDeployment
from addon_operator.modules.enablement import Enablement
from addon_operator.modules.loader import ModuleLoader, Scan
from addon_operator.modules.registry import ModuleRegistry
from addon_operator.modules.runner import ModuleRunner
from addon_operator.reactions import Reactions
from addon_operator.settings import Settings
from addon_operator.tasks.queue import QueueSet
from addon_operator.values.store import ValuesStore
from addon_operator.webhooks.endpoint import EndpointSettings, WebhookSettings
from addon_operator.webhooks.host import WebhookHost


@dataclasses.dataclass(frozen=True, slots=True)
class Disk:
    """What was read from disk at the start, and what reads it again later; `hooks` are the global ones."""

    scan: Scan
    loader: ModuleLoader
    catalog: HookCatalog
    hooks: LoadedHooks


@dataclasses.dataclass(frozen=True, slots=True)
class Foundation:
    """What is there before an operator can be put together."""

    settings: Settings
    client: KubeClient
    cluster: Cluster
    helm: HelmClient
    disk: Disk
    engine: HookEngine
    queues: QueueSet
    registry: ModuleRegistry
    intake: Intake
    metrics: Metrics


@dataclasses.dataclass(frozen=True, slots=True)
class Parts:
    """The parts that are started, stopped or asked by `app.py`; they hold all others."""

    store: ValuesStore
    config: OperatorConfig
    source: ConfigMapSource
    enablement: Enablement
    storage: ReleaseStorage
    healing: Healing
    monitors: HookMonitors
    cron: Cron
    webhooks: WebhookHost
    reactions: Reactions
    deployment: ModuleDeployment
    converge: ConvergeHandler
    handlers: Handlers
    inspector: OperatorInspector


def assemble(given: Foundation, *, warn: Warn, on_refused: Callable[[AddonOperatorError], None]) -> Parts:
    """Puts an operator together.

    Args:
        given: what it is built from.
        warn: writes a Kubernetes Event.
        on_refused: told when a new state of the ConfigMap is refused.
    """
    chosen, client, registry, intake, metrics = (
        given.settings, given.client, given.registry, given.intake, given.metrics,
    )  # fmt: skip
    registry.replace_modules(given.disk.scan.modules)
    store = ValuesStore(given.disk.scan.global_section)
    store.replace_modules(given.disk.scan.sections)
    storage = ReleaseStorage(
        client,
        chosen.namespace,
        on_change=lambda name: intake.release_changed(storage.facts(name), deployment.attends),
    )
    healing = Healing(client, chosen.namespace, cluster=given.cluster, on_absent=intake.objects_absent)
    source = ConfigMapSource(
        client,
        chosen.namespace,
        chosen.config_map,
        on_change=lambda data: config.receive(data),  # noqa: PLW0108 -- comes later
    )
    config_name = f"{chosen.namespace}/{chosen.config_map}"
    config = OperatorConfig(
        source,
        store,
        where=f"ConfigMap {config_name}",
        module_keys=lambda: {module.key for module in registry.modules},
        checked_keys=lambda document: {"global", *(module.key for module in enablement.flagged(document))},
        on_accepted=intake.config_accepted,
        on_rejected=on_refused,
    )
    enablement = Enablement(
        registry=registry, store=store, engine=given.engine, config=lambda: config.in_force, config_name=config_name
    )
    monitors = HookMonitors(
        Monitors(client, client.discover, on_watch_error=metrics.watch_error),
        metrics,
        on_event=intake.object_changed,
        on_listed=intake.listed_late,
        warn=warn,
    )
    hooks = HookRuns(
        engine=given.engine,
        store=store,
        config=config,
        patcher=ObjectPatcher(client, client.discover, on_delete=lambda key: healing.expect((key,))),
        metrics=metrics,
        enabled_modules=lambda: registry.enabled,
        items=monitors.items,
        timeout_s=chosen.hook_timeout_s,
    )
    deployment = ModuleDeployment(
        deployer=Deployer(
            client=given.helm,
            storage=storage,
            healing=healing,
            cluster=given.cluster,
            charts=ChartReader(),
            stop_grace_s=chosen.shutdown_grace_s,
        ),
        storage=storage,
        healing=healing,
        store=store,
        maintenance=lambda: config.in_force.maintenance,
        metrics=metrics,
    )

    def find_hook(hook: HookId) -> Hook | None:
        return given.disk.hooks.find(hook) if hook.module is None else registry.find_hook(hook)

    cron = Cron()
    webhooks = WebhookHost(
        client,
        reviewer=HookReviewer(hooks=hooks, find_hook=find_hook, on_changes=intake.values_changed, metrics=metrics),
        settings=_webhook_settings(chosen),
    )
    reactions = Reactions(monitors=monitors, cron=cron, webhooks=webhooks, on_tick=intake.ticked)
    runner = ModuleRunner(
        registry=registry,
        catalog=given.disk.catalog,
        hooks=hooks,
        reactions=reactions,
        end_tasks=intake.end_module,
        store=store,
        deployment=deployment,
        crds=CrdInstaller(
            client,
            labels=dict(chosen.crd_extra_labels),
            filter_prefixes=chosen.crd_filter_prefixes,
            on_installed=given.cluster.refresh,
        ),
        metrics=metrics,
    )
    converge = ConvergeHandler(
        queue=given.queues.main,
        loader=given.disk.loader,
        registry=registry,
        store=store,
        enablement=enablement,
        runner=runner,
        global_hooks=lambda binding: [hook.id for hook in given.disk.hooks.bound_to(binding)],
        owned_releases=deployment.owned,
        ignored_release=chosen.helm_ignore_release,
        metrics=metrics,
    )
    handlers = Handlers(
        queues=given.queues,
        converge=converge,
        registry=registry,
        runner=runner,
        hooks=hooks,
        reactions=reactions,
        global_hooks=given.disk.hooks,
        find_hook=find_hook,
        config=config,
        enablement=enablement,
        workers=chosen.module_workers,
    )
    inspector = OperatorInspector(
        queues=given.queues,
        hooks=given.disk.hooks,
        store=store,
        registry=registry,
        enablement=enablement,
        deployment=deployment,
        config=config,
        monitors=monitors,
        namespace=chosen.namespace,
    )
    return Parts(
        store=store,
        config=config,
        source=source,
        enablement=enablement,
        storage=storage,
        healing=healing,
        monitors=monitors,
        cron=cron,
        webhooks=webhooks,
        reactions=reactions,
        deployment=deployment,
        converge=converge,
        handlers=handlers,
        inspector=inspector,
    )


def _webhook_settings(chosen: Settings) -> WebhookSettings:
    return WebhookSettings(
        namespace=chosen.namespace,
        config_map=chosen.config_map,
        validating_name=chosen.validating_webhook_name,
        mutating_name=chosen.mutating_webhook_name,
        host=chosen.webhook_host,
        admission=EndpointSettings(
            listen_address=chosen.validating_webhook_address,
            listen_port=chosen.validating_webhook_port,
            service_name=chosen.validating_webhook_service,
            service_port=chosen.validating_webhook_service_port,
            server_cert=chosen.validating_webhook_cert,
            server_key=chosen.validating_webhook_key,
            ca=chosen.validating_webhook_ca,
            client_ca=chosen.validating_webhook_client_ca or (),
        ),
        conversion=EndpointSettings(
            listen_address=chosen.conversion_webhook_address,
            listen_port=chosen.conversion_webhook_port,
            service_name=chosen.conversion_webhook_service,
            service_port=chosen.conversion_webhook_service_port,
            server_cert=chosen.conversion_webhook_cert,
            server_key=chosen.conversion_webhook_key,
            ca=chosen.conversion_webhook_ca,
            client_ca=chosen.conversion_webhook_client_ca or (),
        ),
    )
