"""Asks the flags and the `enabled` scripts which modules are enabled.

Scripts are asked in run order, one after the other, because each sees the modules that were enabled before it.
Source: contract.md 2.10.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from addon_operator.configmap.document import ConfigDocument
from addon_operator.errors import HookError
from addon_operator.hooks.engine import HookEngine
from addon_operator.modules.module import Module
from addon_operator.modules.plan import Verdict, flag_chain, flag_says
from addon_operator.modules.registry import ModuleRegistry
from addon_operator.values.layers import CONFIG_MAP_SOURCE, EnableFlag
from addon_operator.values.store import ValuesStore


class Enablement:
    """Evaluates the enable state of modules.

    Attributes:
        script_errors: module name -> why its `enabled` script gave no answer when it was asked last.
    """

    def __init__(
        self,
        *,
        registry: ModuleRegistry,
        store: ValuesStore,
        engine: HookEngine,
        config: Callable[[], ConfigDocument],
        config_name: str,
    ) -> None:
        self._registry = registry
        self._store = store
        self._engine = engine
        self._config = config
        self._config_name = config_name
        self.script_errors: dict[str, str] = {}

    def chain(self, module: Module, config: ConfigDocument | None = None) -> tuple[EnableFlag, ...]:
        """Lists what all sources say about a module, weakest first.

        Args:
            module: which one.
            config: a ConfigMap that is not in force yet; None for the one that is.
        """
        dynamic = {
            key: EnableFlag(value, "global hook", str(self._store.enabled_origin(key) or "").removeprefix("hook "))
            for key, value in self._store.enabled_patches.items()
        }
        return flag_chain(module, dynamic=dynamic, config=self.config_flags(config))

    def config_flags(self, config: ConfigDocument | None = None) -> Mapping[str, EnableFlag]:
        """Returns section key -> flag of the ConfigMap, also of modules that do not exist; `config` as for `chain`."""
        return {
            key: EnableFlag(value, CONFIG_MAP_SOURCE, f"{self._config_name}, key {key}Enabled")
            for key, value in (config or self._config()).flags.items()
        }

    def flagged(self, config: ConfigDocument | None = None) -> tuple[Module, ...]:
        """Lists the modules whose flags say enabled, in run order, without asking scripts; `config` as for `chain`."""
        return tuple(module for module in self._registry.modules if flag_says(self.chain(module, config)))

    async def evaluate_all(self) -> Mapping[str, Verdict]:
        """Gives a verdict for every module.

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
        """Answers whether any module of these sections gets another enable state than the one in force.

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
