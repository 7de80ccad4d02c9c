"""What the cluster is as charts see it: its version and the APIs that it serves.

Kept in memory; asked again after CRDs have changed, or when a kind turns out to be unknown. Source: design.md 6 (charts
render with the cluster's own version and API list).
"""

from __future__ import annotations

import asyncio
import datetime
import math
import time
from collections.abc import Collection
from typing import Final, Self

from addon_operator.kube.client import KubeClient
from addon_operator.kube.discovery import Discovery
from addon_operator.kube.refs import Resource
from addon_operator.logs import get_logger

# The list of APIs lags behind the CRDs.
_LAG_S: Final = 10.0
# Most often it lags by some hundredths of a second.
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 1.0

_log = get_logger("helm")


class Cluster:
    """The version and the APIs of one cluster; built by `ask`.

    Attributes:
        version: such as `v1.36.3`.
        apis: what is served.
        client: the API server that is asked.
    """

    def __init__(self, client: KubeClient, version: str, apis: Discovery, *, asked_at: float = math.inf) -> None:
        self.version = version
        self.apis = apis
        self.client = client
        self._asked_at = asked_at
        self._refreshing = asyncio.Lock()
        # When CRDs changed last.
        self._changed_at = -math.inf
        self._is_current = True

    @classmethod
    async def ask(cls, client: KubeClient) -> Self:
        """Asks the API server.

        Raises:
            KubeError: it does not answer.
        """
        asked_at = time.time()
        version, apis = await asyncio.gather(client.server_version(), client.discover())
        return cls(client, version, apis, asked_at=asked_at)

    def mark_stale(self) -> None:
        """Notes that CRDs have changed, so that the API server serves other kinds now or within moments."""
        self._changed_at = asyncio.get_running_loop().time()
        self._is_current = False

    def may_lack(self, created: str) -> bool:
        """Returns whether the first answer may be without a CRD.

        Args:
            created: its `creationTimestamp`; one that is no time counts as late.
        """
        try:
            return datetime.datetime.fromisoformat(created).timestamp() >= self._asked_at - _LAG_S
        except ValueError:
            return True

    async def refresh_if_stale(self) -> None:
        """Asks again if CRDs have changed since the last answer, or so shortly before that it may not show it.

        Raises:
            KubeError: the API server does not answer.
        """
        if not self._is_current:
            now = asyncio.get_running_loop().time()
            await self.refresh()
            self._is_current = now - self._changed_at > _LAG_S

    async def wait_for_kinds(self, kinds: Collection[str]) -> None:
        """Asks again until the API server lists kinds whose CRDs were just installed, for at most ten seconds.

        Args:
            kinds: as in `.Capabilities.APIVersions`: `example.com/v1/Thing`.

        Raises:
            KubeError: the API server does not answer.
        """
        self.mark_stale()
        pause_s, until = _FIRST_PAUSE_S, self._changed_at + _LAG_S
        await self.refresh()
        while absent := sorted(set(kinds).difference(self.apis.api_versions())):
            if asyncio.get_running_loop().time() > until:
                _log.warning("the API server does not list kinds that were just installed", kinds=", ".join(absent))
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            await self.refresh()

    async def refresh(self) -> None:
        """Asks again; callers at the same time share one answer.

        Raises:
            KubeError: the API server does not answer.
        """
        before = self.apis
        async with self._refreshing:
            if self.apis is before:
                self.version, self.apis = await asyncio.gather(self.client.server_version(), self.client.discover())

    def resource(self, kind: str, api_version: str) -> Resource | None:
        """Returns the resource of a kind; None if nobody serves it, as far as known."""
        return self.apis.find(kind, api_version)
