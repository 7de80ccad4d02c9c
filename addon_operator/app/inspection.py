"""Answers the questions of the debug socket from the parts of a running operator; the server's `Inspector`.

Everything is read at the moment of the question; nothing is kept for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime

from addon_operator import logs
from addon_operator.bindings.kubernetes import BindingMonitors
from addon_operator.configmap.config import OperatorConfig
from addon_operator.dispatch.events import EventSink
from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import InputError
from addon_operator.hooks.config.model import Kubernetes
from addon_operator.hooks.hook import Hook, LoadedHooks
from addon_operator.kube.reachability import Reachability
from addon_operator.modules.deployment import ModuleDeployment
from addon_operator.modules.enablement import Enablement
from addon_operator.modules.holding import WHAT_NEXT
from addon_operator.modules.module import Module
from addon_operator.modules.registry import ModulePhase, ModuleRegistry, ModuleState
from addon_operator.server.inspector import (
    ExplainView,
    FlagView,
    ModuleView,
    ParameterView,
    QueueView,
    ReleaseView,
    ScriptView,
    TaskView,
)
from addon_operator.tasks.queue_set import QueueSet
from addon_operator.tasks.task import RunHook
from addon_operator.values.store import ValuesStore

LOG_LEVEL = "log.level"


class OperatorInspector:
    """Looks at queues, hooks, values and modules."""

    def __init__(
        self,
        *,
        queues: QueueSet,
        store: ValuesStore,
        registry: ModuleRegistry,
        enablement: Enablement,
        deployment: ModuleDeployment,
        config: OperatorConfig,
        monitors: BindingMonitors,
        reachability: Reachability,
        namespace: str,
        events: EventSink,
    ) -> None:
        self._queues = queues
        self._store = store
        self._registry = registry
        self._enablement = enablement
        self._deployment = deployment
        self._config = config
        self._monitors = monitors
        self._reachability = reachability
        self._namespace = namespace
        self._events = events
        self._level_before: logs.LogLevel | None = None
        self._level_timer: asyncio.TimerHandle | None = None

    def notices(self) -> tuple[str, ...]:
        """Returns whether the API server is away, ConfigMap or files were refused, and which bindings cannot watch."""
        refused, unread = self._config.error, self._registry.scan_error
        notes = [_unreachable(away)] if (away := self.api_server_away_since()) else []
        notes += [f"the ConfigMap is refused, former values are in force: {refused}"] if refused else []
        notes += [f"files are refused, the modules known so far stay: {unread}"] if unread else []
        notes += self._held_notices()
        return (*notes, *self._monitors.problems())

    def api_server_away_since(self) -> datetime | None:
        """Returns since when the API server does not answer."""
        return self._reachability.away_since

    def _held_notices(self) -> list[str]:
        by_reason: dict[str, list[str]] = {}
        for name, reason in self._registry.held.items():
            by_reason.setdefault(reason, []).append(name)
        return [
            f"held, neither upgraded nor removed: {', '.join(names)}\n{reason}\n{WHAT_NEXT}"
            for reason, names in by_reason.items()
        ]

    def held(self) -> Mapping[str, str]:
        """Returns name -> reason."""
        return self._registry.held

    def confirm_removals(self, names: Sequence[str]) -> None:
        """Lets held modules be removed.

        Raises:
            InputError: one of them is not held.
        """
        if unknown := sorted(set(names) - self._registry.held.keys()):
            raise InputError(f"not held: {', '.join(unknown)}; `addon-operator module list` shows what is held")
        self._events.removals_confirmed(names)

    def queues(self) -> tuple[QueueView, ...]:
        """Lists all queues."""
        return tuple(
            QueueView(
                queue.name,
                queue.status(),
                tuple(TaskView(task.description, task.failures, task.age_s) for task in queue.listing()),
            )
            for queue in self._queues.all()
        )

    def global_hooks(self) -> tuple[str, ...]:
        """Lists the names of the global hooks, sorted."""
        return tuple(sorted(hook.id.name for hook in self._registry.global_hooks.hooks))

    def global_values(self) -> JsonValue:
        """Returns the effective global values."""
        return self._store.effective("global")

    def global_config(self) -> JsonValue:
        """Returns the global section of the ConfigMap."""
        return self._store.config("global")

    def global_patches(self) -> tuple[JsonObject, ...]:
        """Lists the stored operations on global values."""
        return tuple(operation.as_json() for operation in self._store.patches("global"))

    def global_snapshots(self) -> JsonObject:
        """Returns hook -> binding -> items."""
        return self._snapshots(self._registry.global_hooks)

    def modules(self) -> tuple[ModuleView, ...]:
        """Lists all modules in run order."""
        failing = self._failing_hooks()
        return tuple(self._view(module, failing) for module in self._registry.modules)

    def module_values(self, name: str, *, with_global: bool) -> JsonObject:
        """Returns the effective values of a module."""
        key = self._registry.get(name).key
        values: JsonObject = {"global": self._store.effective("global")} if with_global else {}
        return values | {key: self._store.effective(key)}

    def module_config(self, name: str, *, with_global: bool) -> JsonObject:
        """Returns the ConfigMap's section of a module."""
        key = self._registry.get(name).key
        values: JsonObject = {"global": self._store.config("global")} if with_global else {}
        return values | {key: self._store.config(key)}

    def module_origins(self, name: str, *, with_global: bool) -> Mapping[str, str]:
        """Returns where each leaf of the module's values came from."""
        keys = [*(["global"] if with_global else []), self._registry.get(name).key]
        return {f"/{key}{pointer}": str(origin) for key in keys for pointer, origin in self._store.origins(key).items()}

    def module_patches(self, name: str) -> tuple[JsonObject, ...]:
        """Lists the stored operations on a module's values."""
        return tuple(operation.as_json() for operation in self._store.patches(self._registry.get(name).key))

    def module_snapshots(self, name: str) -> JsonObject:
        """Returns hook -> binding -> items."""
        self._registry.get(name)
        return self._snapshots(self._registry.state(name).hooks or LoadedHooks())

    def _snapshots(self, hooks: LoadedHooks) -> JsonObject:
        return {
            hook.id.name: {binding.name: self._items(hook, binding) for binding in hook.config.kubernetes}
            for hook in hooks.hooks
            if hook.config.kubernetes
        }

    def _items(self, hook: Hook, binding: Kubernetes) -> JsonValue:
        return [
            {
                name: jsondoc.loads(data)
                for name, data in (("object", item.object), ("filterResult", item.filter_result))
                if data is not None
            }
            for item in self._monitors.items(hook.id, binding)
        ]

    def module_explain(self, name: str) -> ExplainView:
        """Explains one module."""
        module = self._registry.get(name)
        chain = self._enablement.chain(module)
        return ExplainView(
            module=self._view(module, self._failing_hooks()),
            path=str(module.path),
            flags=tuple(FlagView(flag.source, flag.value, flag.place or None) for flag in chain),
            script=self._script(module),
            release=self._release(module),
        )

    def resource_monitor(self) -> Mapping[str, tuple[str, ...] | None]:
        """Returns enabled module -> watched objects."""
        return {name: self._deployment.watched(name) for name in self._registry.enabled}

    def parameters(self) -> tuple[ParameterView, ...]:
        """Lists what can be changed at run time."""
        left_s = None
        if self._level_timer:
            left_s = max(0.0, self._level_timer.when() - asyncio.get_running_loop().time())
        text = f"lowest level shown: {', '.join(logs.LEVELS)}"
        return (ParameterView(LOG_LEVEL, logs.level(), text, left_s),)

    def set_parameter(self, name: str, value: str, *, duration_s: float | None) -> None:
        """Changes the log level, for ever or for some seconds.

        Raises:
            InputError: no such parameter or level.
        """
        if name != LOG_LEVEL:
            raise InputError(f"no parameter {name}; there is {LOG_LEVEL}")
        level: logs.LogLevel
        match value:
            case "debug" | "info" | "warning" | "error":
                level = value
            case _:
                raise InputError(f"{value!r} is not a log level; choose one of {', '.join(logs.LEVELS)}")
        before = self._level_before or logs.level()
        self._forget_timer()
        logs.set_level(level)
        if duration_s is not None:
            self._level_before = before
            self._level_timer = asyncio.get_running_loop().call_later(duration_s, self._restore_level, before)

    def _restore_level(self, level: logs.LogLevel) -> None:
        self._forget_timer()
        logs.set_level(level)

    def _forget_timer(self) -> None:
        if self._level_timer:
            self._level_timer.cancel()
        self._level_timer = self._level_before = None

    def _failing_hooks(self) -> Mapping[str, str]:
        """Returns module -> which of its hooks a queue tries again, and why."""
        failing = ((queue.name, queue.failing) for queue in self._queues.all())
        tried_again = [(name, *found) for name, found in failing if found]
        return {
            task.payload.hook.module: f"in queue {queue}: {error}"
            for queue, task, error in tried_again
            if isinstance(task.payload, RunHook) and task.payload.hook.module
        }

    def _view(self, module: Module, failing_hooks: Mapping[str, str]) -> ModuleView:
        state, verdict = self._registry.state(module.name), self._registry.verdict(module.name)
        release = self._deployment.facts(module.name) if module.has_release else None
        enabled = self._registry.is_enabled(module.name)
        return ModuleView(
            name=module.name,
            order=module.order,
            enabled=enabled,
            state="failed" if state.error else state.phase.value,
            reason=self._registry.held.get(module.name)
            or self._waits_for(state)
            or (verdict.reason if verdict else "no converge has looked at it yet"),
            release=module.name if release and release.exists else None,
            revision=release.revision if release and release.exists else None,
            duration_s=state.duration_s,
            last_error=state.error or failing_hooks.get(module.name),
        )

    def _waits_for(self, state: ModuleState) -> str:
        """Returns which Synchronizations the module waits for; empty if none."""
        if state.phase is not ModulePhase.SYNCHRONIZATION or state.hooks is None:
            return ""
        outstanding = self._monitors.outstanding(hook.id for hook in state.hooks.hooks)
        texts = [
            f"{hook.id.name}, binding {context.binding.name}, queue {context.binding.queue}"
            for hook, context in outstanding
            if context.binding.wait_for_synchronization
        ]
        return f"waits for the Synchronization of {'; '.join(texts)}" if texts else ""

    def _script(self, module: Module) -> ScriptView | None:
        if module.enabled_script is None:
            return None
        verdict = self._registry.verdict(module.name)
        answer = verdict.script if verdict else None
        return ScriptView(
            path=str(module.enabled_script),
            result=answer.enabled if answer else None,
            reason=answer.reason or None if answer else None,
            error=self._enablement.script_errors.get(module.name),
        )

    def _release(self, module: Module) -> ReleaseView | None:
        if not module.has_release:
            return None
        facts, decision = self._deployment.facts(module.name), self._registry.state(module.name).decision
        return ReleaseView(
            name=module.name,
            namespace=self._namespace,
            status=facts.status if facts.exists else None,
            revision=facts.revision if facts.exists else None,
            absent=tuple(str(key) for key in facts.absent),
            decision=decision.action if decision else None,
            decision_reason=decision.reason if decision else None,
            decided_at=decision.at if decision else None,
        )


def _unreachable(since: datetime) -> str:
    return (
        f"the API server has not answered since {since:%Y-%m-%dT%H:%M:%SZ}: what is shown is what was known then, "
        "and nothing can change until it answers"
    )
