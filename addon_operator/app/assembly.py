"""Builds the parts of an operator and joins them; starts nothing.

Which part gets what can be read here; in which order they start and stop, in `app/lifecycle.py`, which calls it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from addon_operator.app.inspection import OperatorInspector
from addon_operator.bindings.hook_bindings import Reactions
from addon_operator.bindings.kubernetes import HookMonitors, Warn
from addon_operator.configmap.config import OperatorConfig
from addon_operator.configmap.source import ConfigMapSource
from addon_operator.dispatch.converge import ConvergeHandler
from addon_operator.dispatch.global_hooks import GlobalHookHandler
from addon_operator.dispatch.handlers import Handlers
from addon_operator.dispatch.hook_runs import HookRunHandler
from addon_operator.dispatch.intake import Intake
from addon_operator.dispatch.module_runs import ModuleRunHandler
from addon_operator.dispatch.reviews import HookReviewer
from addon_operator.dispatch.synchronizations import Synchronizations
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
from addon_operator.kube.client import KubeClient
from addon_operator.kube.filters import Filters
from addon_operator.kube.monitor import Monitors
from addon_operator.kube.patcher import ObjectPatcher
from addon_operator.kube.refs import ObjectKey
from addon_operator.metrics.operator import Metrics
from addon_operator.modules.crds import CrdInstaller
from addon_operator.modules.deployment import ModuleDeployment
from addon_operator.modules.enablement import Enablement
from addon_operator.modules.holding import Holding
from addon_operator.modules.loader import ModuleLoader, Scan
from addon_operator.modules.registry import ModuleRegistry
from addon_operator.modules.removals import config_map_was_missing
from addon_operator.modules.runner import ModuleRunner
from addon_operator.schedule.timer import Cron
from addon_operator.settings import Settings
from addon_operator.tasks.queue_set import QueueSet
from addon_operator.values.store import ValuesStore
from addon_operator.webhooks.endpoint import WebhookSettings
from addon_operator.webhooks.host import WebhookHost
from addon_operator.webhooks.listener import tls_listeners


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
    filters: Filters


class Parts:
    """The parts of one operator, put together; `app/lifecycle.py`, and nobody else, starts, stops and asks them."""

    def __init__(self, given: Foundation, *, warn: Warn, on_refused: Callable[[AddonOperatorError], None]) -> None:
        """Puts an operator together.

        Args:
            given: what it is built from.
            warn: writes a Kubernetes Event.
            on_refused: told when a new state of the ConfigMap is refused.
        """
        self._given = given
        self._warn = warn
        self._config_map = ObjectKey("v1", "ConfigMap", given.settings.namespace, given.settings.config_map)
        self._build_values(on_refused)
        self._build_releases()
        self._build_hooks()
        self._build_dispatch()

    def _build_values(self, on_refused: Callable[[AddonOperatorError], None]) -> None:
        given, chosen = self._given, self._given.settings
        registry = given.registry
        registry.replace_modules(given.disk.scan.modules)
        registry.scan_warnings = given.disk.scan.warnings
        self.store = ValuesStore(given.disk.scan.global_section)
        self.store.replace_modules(given.disk.scan.sections)
        config_name = f"{chosen.namespace}/{chosen.config_map}"
        self.source = ConfigMapSource(
            given.client,
            chosen.namespace,
            chosen.config_map,
            on_change=lambda data: self.config.receive(data),  # noqa: PLW0108 -- comes later
            before_create=lambda: self.deployment.hold_enabled_by_config_map(
                config_map_was_missing(f"ConfigMap {config_name}")
            ),
        )

        def refused(error: AddonOperatorError) -> None:
            on_refused(error)
            self.converge.look_again()  # what allows it may have come with it

        self.config = OperatorConfig(
            self.source,
            self.store,
            where=f"ConfigMap {config_name}",
            module_keys=lambda: {module.key for module in registry.modules},
            checked_keys=lambda document: {"global", *(module.key for module in self.enablement.flagged(document))},
            on_accepted=given.intake.config_accepted,
            on_rejected=refused,
        )
        self.enablement = Enablement(
            registry=registry,
            store=self.store,
            engine=given.engine,
            config=lambda: self.config.in_force,
            config_name=config_name,
        )

    def _build_releases(self) -> None:
        given, chosen = self._given, self._given.settings
        self.storage = ReleaseStorage(given.client, chosen.namespace, on_change=self._release_changed)
        self.healing = Healing(
            given.client,
            chosen.namespace,
            cluster=given.cluster,
            on_absent=given.intake.objects_absent,
            on_undefined=given.intake.definition_gone,
        )
        self._charts = ChartReader()
        self.deployment = ModuleDeployment(
            deployer=Deployer(
                client=given.helm,
                storage=self.storage,
                healing=self.healing,
                cluster=given.cluster,
                charts=self._charts,
                stop_grace_s=chosen.shutdown_grace_s,
            ),
            storage=self.storage,
            healing=self.healing,
            store=self.store,
            maintenance=lambda: self.config.in_force.maintenance,
            metrics=given.metrics,
        )

    def _release_changed(self, name: str) -> None:
        self._given.intake.release_changed(self.storage.facts(name), self.deployment.attends)

    def _build_hooks(self) -> None:
        given, chosen, client = self._given, self._given.settings, self._given.client
        self.monitors = HookMonitors(
            Monitors(client, client.discover, on_watch_error=given.metrics.kube.watch_failed, run_jq=given.filters.run),
            given.metrics,
            on_event=given.intake.object_changed,
            on_listed=given.intake.listed_late,
            warn=self._warn,
        )
        self._hooks = HookRuns(
            engine=given.engine,
            store=self.store,
            config=self.config,
            patcher=ObjectPatcher(
                client,
                client.discover,
                on_delete=lambda key: self.healing.expect_deletion((key,)),
                on_delete_refused=lambda key: self.healing.deletion_refused((key,)),
                run_jq=given.filters.run,
            ),
            metrics=given.metrics,
            enabled_modules=lambda: given.registry.enabled,
            items=self.monitors.items,
            timeout_s=chosen.hook_timeout_s,
        )
        self.cron = Cron()
        webhooks = WebhookSettings(
            namespace=chosen.namespace,
            config_map=chosen.config_map,
            validating_name=chosen.validating_webhook_name,
            mutating_name=chosen.mutating_webhook_name,
            admission=chosen.validating_webhook,
            conversion=chosen.conversion_webhook,
            host=chosen.webhook_host,
        )
        admission, conversion = tls_listeners(webhooks)
        self.webhooks = WebhookHost(
            client,
            admission=admission,
            conversion=conversion,
            reviewer=HookReviewer(
                hooks=self._hooks,
                find_hook=self._find_hook,
                on_changes=given.intake.values_changed,
                metrics=given.metrics,
            ),
            settings=webhooks,
        )
        self.reactions = Reactions(
            monitors=self.monitors, cron=self.cron, webhooks=self.webhooks, on_tick=given.intake.ticked
        )

    def _find_hook(self, hook: HookId) -> Hook | None:
        given = self._given
        return given.disk.hooks.find(hook) if hook.module is None else given.registry.find_hook(hook)

    def _build_dispatch(self) -> None:
        given, chosen = self._given, self._given.settings
        runner = self._build_runner()
        self.holding = Holding(
            registry=given.registry,
            runner=runner,
            deployment=self.deployment,
            config_map=self.config.where,
            config_map_uid=lambda: self.source.uid if self.config.in_force.exists else "",
            ignored_release=chosen.helm_ignore_release,
            limit=chosen.max_removals,
            metrics=given.metrics,
            warn=lambda reason, message: self._warn(self._config_map, reason, message),
        )
        self.converge = ConvergeHandler(
            queue=given.queues.main,
            loader=given.disk.loader,
            registry=given.registry,
            store=self.store,
            enablement=self.enablement,
            runner=runner,
            holding=self.holding,
            global_hooks=lambda binding: [hook.id for hook in given.disk.hooks.bound_to(binding)],
            recheck_config=self.config.recheck,
            metrics=given.metrics,
        )
        synchronizations = Synchronizations(given.queues, self.monitors)
        self.handlers = Handlers(
            queue=given.queues.main,
            converge=self.converge,
            hook_runs=HookRunHandler(
                queue=given.queues.main,
                progress=self.converge.progress,
                registry=given.registry,
                runner=runner,
                hooks=self._hooks,
                monitors=self.monitors,
                find_hook=self._find_hook,
            ),
            module_runs=ModuleRunHandler(
                queue=given.queues.main,
                converge=self.converge,
                registry=given.registry,
                runner=runner,
                monitors=self.monitors,
                synchronizations=synchronizations,
                workers=chosen.module_workers,
            ),
            global_hooks=GlobalHookHandler(
                queues=given.queues,
                reactions=self.reactions,
                synchronizations=synchronizations,
                hooks=given.disk.hooks,
            ),
            registry=given.registry,
            runner=runner,
            holding=self.holding,
            config=self.config,
            enablement=self.enablement,
        )
        self.inspector = OperatorInspector(
            queues=given.queues,
            hooks=given.disk.hooks,
            store=self.store,
            registry=given.registry,
            enablement=self.enablement,
            deployment=self.deployment,
            config=self.config,
            monitors=self.monitors,
            reachability=given.client.reachability,
            namespace=chosen.namespace,
            on_removals_confirmed=given.intake.removals_confirmed,
        )

    def _build_runner(self) -> ModuleRunner:
        given, chosen = self._given, self._given.settings
        return ModuleRunner(
            registry=given.registry,
            catalog=given.disk.catalog,
            hooks=self._hooks,
            reactions=self.reactions,
            end_tasks=given.intake.end_module,
            store=self.store,
            deployment=self.deployment,
            crds=CrdInstaller(
                given.client,
                charts=self._charts,
                labels=dict(chosen.crd_extra_labels),
                filter_prefixes=chosen.crd_filter_prefixes,
                on_installed=given.cluster.learn,
            ),
            metrics=given.metrics,
        )
