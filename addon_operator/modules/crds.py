"""Installs the CRDs of modules, so that no chart and no hook comes too early.

Source: contract.md 1.4 (`crds/`), 3.9 (applied when the content changes, also on converge).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import InputError, ModuleError
from addon_operator.helm.chart import ChartReader, crd_documents
from addon_operator.kube import crds
from addon_operator.kube.client import KubeClient
from addon_operator.logs import get_logger
from addon_operator.modules.module import Module

log = get_logger("crds")

_AT_ONCE = 8

Definitions = Mapping[str, crds.Source]


class CrdInstaller:
    """Applies CRD files with the operator's labels."""

    def __init__(
        self,
        client: KubeClient,
        *,
        charts: ChartReader,
        labels: Mapping[str, str],
        filter_prefixes: Sequence[str],
        on_installed: Callable[[Sequence[str]], Awaitable[None]],
    ) -> None:
        """Takes its dependencies.

        Args:
            client: the API server.
            charts: knows whether the files of a module have changed.
            labels: put on each definition.
            filter_prefixes: files whose names start so are left out.
            on_installed: called with the kinds of definitions that were created or updated, as `CrdReport.kinds`.
        """
        self._client = client
        self._charts = charts
        self._labels = dict(labels)
        self._filter_prefixes = tuple(filter_prefixes)
        self._on_installed = on_installed
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._read: dict[Path, tuple[str, Definitions]] = {}

    def definitions(self, module: Module) -> Definitions:
        """Returns the definitions of a module, by name; files are read again only if some of its files changed.

        Raises:
            InputError: a file cannot be read, is not YAML, or holds something else than definitions.
        """
        if not module.has_crds:
            return {}
        digest = self._charts.digest(module.path)
        known = self._read.get(module.path)
        if known is None or known[0] != digest:
            known = digest, crds.contents(self._documents(module))
            self._read[module.path] = known
        return known[1]

    def forget(self, module_dir: Path) -> None:
        """Forgets the files of a module whose directory is gone."""
        self._read.pop(module_dir, None)
        self._charts.forget(module_dir)

    async def install(self, module: Module, *, earlier: Iterable[Module]) -> Definitions:
        """Applies the CRDs of a module, waits until they are served, and returns which these are.

        Args:
            module: which one.
            earlier: the modules that run before it: the first one that contains a definition determines it.

        Raises:
            InputError: as `definitions`, or an earlier module contains a different definition of the same name.
            KubeError: one line for each that could not be applied, naming its file.
        """
        found = self.definitions(module)
        first = self._first(earlier) if found else {}
        for name in sorted(found.keys() & first.keys()):
            if found[name].digest != first[name].digest:
                where = f"{found[name].file}: CustomResourceDefinition {name}"
                raise ModuleError(f"{where}: {first[name].file}, which comes first, has another one")
        async with self._places:
            report = await crds.install(self._client, self._documents(module), labels=self._labels)
        if report.created or report.updated:
            log.info("CRDs applied", module=module.name, created=list(report.created), updated=list(report.updated))
            await self._on_installed(report.kinds)
        return found

    def _first(self, modules: Iterable[Module]) -> Definitions:
        """Returns the definitions of modules; of the same name the first one."""
        found: dict[str, crds.Source] = {}
        for module in modules:
            with contextlib.suppress(InputError):  # its own run reports it
                found = {**self.definitions(module), **found}
        return found

    def _documents(self, module: Module) -> list[tuple[str, JsonObject]]:
        return list(crd_documents(module.path, self._filter_prefixes))
