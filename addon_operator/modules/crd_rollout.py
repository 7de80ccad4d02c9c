"""Which CRDs of modules were applied in this process, and applying the others.

A module's own run applies its CRDs; a converge applies those of all modules before that, since others may need them.
Source: contract.md 1.4, 3.9.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from addon_operator.errors import AddonOperatorError, InputError, KubeError
from addon_operator.logs import get_logger
from addon_operator.modules.crds import CrdInstaller
from addon_operator.modules.registry import ModuleRegistry

log = get_logger("crds")


class CrdRollout:
    """The CRDs of all modules; what was applied is kept in the state of the module."""

    def __init__(self, registry: ModuleRegistry, installer: CrdInstaller) -> None:
        self._registry = registry
        self._installer = installer

    def pending(self, names: Iterable[str]) -> tuple[str, ...]:
        """Lists the modules whose CRDs were not applied in this process, changed or went away since."""
        return tuple(name for name in names if not self._is_applied(name))

    async def ensure(self, names: Iterable[str]) -> None:
        """Applies the CRDs of these modules, as far as they are enabled and their CRDs are pending.

        What is wrong with a file is the error of its module's run.

        Raises:
            KubeError: the API server does not answer, or cannot now.
        """
        pending = [name for name in self.pending(names) if self._registry.is_enabled(name)]
        results = await asyncio.gather(*(self.apply(name) for name in pending), return_exceptions=True)
        for name, error in zip(pending, results, strict=True):
            if isinstance(error, AddonOperatorError) and not _is_outage(error):
                log.warning("CRDs are not applied, so the run of the module will fail", module=name, error=error)
                self._registry.state(name).error = str(error)
            elif error is not None:
                raise error

    async def apply(self, name: str) -> None:
        """Applies the CRDs of a module unless they are; of several modules the first in run order decides.

        Raises:
            InputError: as `CrdInstaller.install`.
            KubeError: likewise.
        """
        if self._is_applied(name):
            return
        enabled = self._registry.enabled
        earlier = enabled[: enabled.index(name)] if name in enabled else ()
        modules = [self._registry.get(other) for other in earlier]
        self._registry.state(name).crds = await self._installer.install(self._registry.get(name), earlier=modules)

    def forget(self, module_dir: Path) -> None:
        """Forgets the files of a module whose directory is gone."""
        self._installer.forget(module_dir)

    def _is_applied(self, name: str) -> bool:
        try:
            definitions = self._installer.definitions(self._registry.get(name))
        except InputError:
            return False  # applying them reports why
        return definitions == self._registry.state(name).crds


def _is_outage(error: AddonOperatorError) -> bool:
    """Returns whether this is about the API server as a whole, and not about what it was asked for."""
    return isinstance(error, KubeError) and error.reason != "Timeout" and error.status in {0, 429, 502, 503, 504}
