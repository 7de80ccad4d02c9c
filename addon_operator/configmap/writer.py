"""Writes what hooks change to the ConfigMap: the state of the cluster first, then the one in force.

Called by the effects of hooks. Source: contract.md 2.4, 2.8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from addon_operator.configmap.config import OperatorConfig
from addon_operator.values.store import Proposal


class Source(Protocol):
    """Where the ConfigMap is (`source.ConfigMapSource`)."""

    async def save(self, mutate: Callable[[Mapping[str, str]], Mapping[str, str]]) -> Mapping[str, str]:
        """Changes its data, on top of the current state, and returns what is stored afterwards."""


class ConfigMapWriter:
    """Saves config patches of hooks."""

    def __init__(self, config: OperatorConfig, source: Source) -> None:
        self._config = config
        self._source = source

    def check(self) -> None:
        """Checks that sections can be saved on top of the newest state of the ConfigMap.

        Raises:
            ConfigMapError: it is broken.
        """
        self._config.check_writable()

    async def save(self, key: str, proposal: Proposal) -> bool:
        """Applies a hook's config patch to the ConfigMap, on top of whatever it holds at that moment.

        Concurrent changes of others are kept, and take effect as a change of their own.

        Args:
            key: the section of the hook's owner, `global` or a module's.
            proposal: what the hook changes; its `config_section` is what the caller commits.

        Returns:
            Whether an enable flag differs now from the one that was in force.

        Raises:
            ConfigMapError: the ConfigMap is broken at this moment, so that it cannot be changed safely.
            PatchError: the patch does not fit what the ConfigMap holds now.
            KubeError: it cannot be written.
        """
        data = await self._source.save(lambda data: self._config.patched(data, key, proposal))
        return self._config.saved(key, proposal, data)
