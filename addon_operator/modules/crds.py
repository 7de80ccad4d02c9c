"""Installs the CRDs of modules before the first of them runs, so that no chart and no hook comes too early.

Source: contract.md 1.4 (`crds/`), 3.9 (applied when the content changes, also on converge).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from addon_operator import jsondoc
from addon_operator.helm.chart import crd_documents
from addon_operator.jsondoc import JsonObject
from addon_operator.kube import crds
from addon_operator.kube.client import KubeClient
from addon_operator.logs import get_logger
from addon_operator.modules.module import Module

log = get_logger("crds")


class CrdInstaller:
    """Applies CRD files with the operator's labels."""

    def __init__(
        self,
        client: KubeClient,
        *,
        labels: Mapping[str, str],
        filter_prefixes: Sequence[str],
        on_installed: Callable[[], Awaitable[None]],
    ) -> None:
        self._client = client
        self._labels = dict(labels)
        self._filter_prefixes = tuple(filter_prefixes)
        self._on_installed = on_installed

    def digest(self, module: Module) -> str | None:
        """Answers whether the CRDs of a module are the same; None if it has none.

        Raises:
            InputError: a file cannot be read or is not YAML.
        """
        documents = self._documents(module)
        return jsondoc.digest([document for _, document in documents]) if documents else None

    async def install(self, modules: Sequence[Module]) -> None:
        """Applies the CRDs of these modules side by side and waits until they are served.

        Raises:
            AddonOperatorError: one line for each that could not be applied, naming its file.
        """
        documents = [document for module in modules for document in self._documents(module)]
        report = await crds.install(self._client, documents, labels=self._labels)
        if report.created or report.updated:
            log.info("CRDs applied", created=list(report.created), updated=list(report.updated))
            await self._on_installed()

    def _documents(self, module: Module) -> list[tuple[str, JsonObject]]:
        return list(crd_documents(module.path, self._filter_prefixes)) if module.has_crds else []
