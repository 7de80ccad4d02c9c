"""Asks the flags and the `enabled` scripts which modules are enabled.

Scripts are asked in run order, one after the other, because each sees the modules that were enabled before it.
Source: contract.md 2.10.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from addon_operator.configmap.config import OperatorConfig
from addon_operator.configmap.document import ConfigDocument
from addon_operator.errors import HookError
from addon_operator.hooks.engine import HookEngine
from addon_operator.modules.module import Module
from addon_operator.modules.plan import Verdict, flag_chain, flag_says
from addon_operator.modules.registry import ModuleRegistry
from addon_operator.values.layers import CONFIG_MAP_SOURCE, EnableFlag
from addon_operator.values.store import ValuesStore


class EnableFlags:
    """What the flags say about modules, without asking scripts."""

    def __init__(self, registry: ModuleRegistry, store: ValuesStore, *, config_map: str) -> None:
        """Takes its dependencies; `config_map` is `namespace/name` of the ConfigMap, as places of flags name it."""
        self._registry = registry
        self._store = store
        self._config_map = config_map

    def chain(self, module: Module, config: ConfigDocument) -> tuple[EnableFlag, ...]:
        """Lists what all sources say about a module, weakest first, if this state of the ConfigMap is in force."""
        dynamic = {
            key: EnableFlag(value, "global hook", str(self._store.enabled_origin(key) or "").removeprefix("hook "))
            for key, value in self._store.enabled_patches.items()
        }
        return flag_chain(module, dynamic=dynamic, config=self.of_config_map(config))

    def of_config_map(self, config: ConfigDocument) -> Mapping[str, EnableFlag]:
        """Returns section key -> flag of a state of the ConfigMap, also of modules that do not exist."""
        return {
            key: EnableFlag(value, CONFIG_MAP_SOURCE, f"{self._config_map}, key {key}Enabled")
            for key, value in config.flags.items()
        }

    def enabled(self, config: ConfigDocument) -> tuple[Module, ...]:
        """Lists the modules whose flags say enabled, in run order."""
        return tuple(module for module in self._registry.modules if flag_says(self.chain(module, config)))

    def checked_keys(self, config: ConfigDocument) -> frozenset[str]:
        """Returns the keys of the sections whose values have to be valid: `global` and the enabled modules."""
        return frozenset({"global", *(module.key for module in self.enabled(config))})


class Enablement:
    """Evaluates the enable state of modules.

    Attributes:
        script_errors: module name -> why its `enabled` script failed when it ran last.
    """

    def __init__(
        self,
        *,
        registry: ModuleRegistry,
        store: ValuesStore,
        flags: EnableFlags,
        engine: HookEngine,
        config: OperatorConfig,
    ) -> None:
        self._registry = registry
        self._store = store
        self._flags = flags
        self._engine = engine
        self._config = config
        self.script_errors: dict[str, str] = {}

    def chain(self, module: Module) -> tuple[EnableFlag, ...]:
        """Lists what all sources say about a module now, weakest first."""
        return self._flags.chain(module, self._config.in_force)

    def config_flags(self) -> Mapping[str, EnableFlag]:
        """Returns section key -> flag of the ConfigMap in force, also of modules that do not exist."""
        return self._flags.of_config_map(self._config.in_force)

    def flagged(self) -> tuple[Module, ...]:
        """Lists the modules whose flags say enabled now, in run order, without asking scripts."""
        return self._flags.enabled(self._config.in_force)

    async def evaluate_all(self) -> Mapping[str, Verdict]:
        """Returns a verdict for every module.

        Raises:
            HookError: a script failed; the message names module and script.
        """
        verdicts: dict[str, Verdict] = {}
        enabled: list[str] = []
        for module in self._registry.modules:
            verdict = verdicts[module.name] = await self._evaluate(module, enabled)
            if verdict.enabled:
                enabled.append(module.name)
        return verdicts

    async def changed(self, keys: Collection[str]) -> bool:
        """Returns whether the enable state of any module of these sections differs from the one in force.

        A verdict that only has another reason takes the place of the former one.

        Raises:
            HookError: as `evaluate_all`.
        """
        before: list[str] = []
        for module in self._registry.modules:
            current = self._registry.is_enabled(module.name)
            if module.key in keys:
                verdict = await self._evaluate(module, before)
                if verdict.enabled != current:
                    return True
                self._registry.replace_reason(module.name, verdict)
            if current:
                before.append(module.name)
        return False

    async def _evaluate(self, module: Module, enabled_before: list[str]) -> Verdict:
        chain = self.chain(module)
        self.script_errors.pop(module.name, None)
        if not flag_says(chain):
            return Verdict(chain, None, enabled=False)
        if module.enabled_script is None:
            return Verdict(chain, None, enabled=True)
        try:
            answer = await self._engine.enabled(
                module.enabled_script,
                module=module.name,
                values=self._store.hook_values(module.key, tuple(enabled_before)),
                config_values=self._store.hook_config_values(module.key),
            )
        except HookError as error:
            self.script_errors[module.name] = str(error)
            raise
        return Verdict(chain, answer, enabled=answer.enabled)
