"""What the cluster is as charts see it: its version and the APIs that it serves.

Kept in memory; asked again when told so, or when a kind turns out to be unknown. Source: design.md 6 (charts render
with the cluster's own version and API list).
"""

from __future__ import annotations

import asyncio
from typing import Self

from addon_operator.errors import KubeError
from addon_operator.kube.client import KubeClient
from addon_operator.kube.discovery import Discovery
from addon_operator.kube.refs import Resource


class Cluster:
    """The version and the APIs of one cluster; made by `ask`.

    Attributes:
        version: such as `v1.36.3`.
        apis: what is served.
    """

    def __init__(self, client: KubeClient, version: str, apis: Discovery) -> None:
        self.version = version
        self.apis = apis
        self._client = client
        self._refreshing = asyncio.Lock()

    @classmethod
    async def ask(cls, client: KubeClient) -> Self:
        """Asks the API server.

        Raises:
            KubeError: it does not answer.
        """
        version, apis = await asyncio.gather(client.server_version(), client.discover())
        return cls(client, version, apis)

    async def refresh(self) -> None:
        """Asks again; callers at the same time share one answer. To be called after CRDs were installed.

        Raises:
            KubeError: the API server does not answer.
        """
        before = self.apis
        async with self._refreshing:
            if self.apis is before:
                self.version, self.apis = await asyncio.gather(self._client.server_version(), self._client.discover())

    def resource(self, kind: str, api_version: str) -> Resource | None:
        """Finds the resource of a kind; None if nobody serves it, as far as known."""
        try:
            return self.apis.resource(kind, api_version)
        except KubeError as error:
            if error.status != 404:
                raise
            return None
