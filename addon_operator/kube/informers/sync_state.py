"""How a reflector stands: listed or not, in trouble or not, and when to try again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

from addon_operator.errors import KubeError
from addon_operator.kube.reachability import Reachability
from addon_operator.kube.refs import Resource, permission
from addon_operator.logs import get_logger
from addon_operator.retry import Backoff, RetryPolicy

_log = get_logger("informer")

_RETRY: Final = RetryPolicy(0.2, 10.0)
_STEADY_S: Final = 10.0
# Who cannot even be asked again was away, and may come back from a backup.
_AWAY: Final = frozenset({500, 502, 503})
_NO_ANSWER: Final = frozenset({"Unreachable", "Timeout"})
_AWAY_AFTER: Final = 2


class SyncState:
    """The state of one reflector.

    Attributes:
        synced: set once all objects of the first list were handed out; never cleared.
    """

    def __init__(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        where: str,
        reachability: Reachability,
        on_error: Callable[[KubeError | None], None],
    ) -> None:
        """Begins unlisted.

        Args:
            resource: what is listed and watched.
            namespace: None for all.
            where: both, for messages.
            reachability: of the API server; one that does not answer at all is logged there, once for all.
            on_error: receives each failure, and None when it works again.
        """
        self.synced = asyncio.Event()
        self._backoff = Backoff(_RETRY)
        self._synced_or_forbidden = asyncio.Event()
        self._resource, self._namespace, self._where = resource, namespace, where
        self._reachability, self._on_error = reachability, on_error
        self._error: KubeError | None = None

    @property
    def failures(self) -> int:
        """Attempts to list or watch that failed since the last one that worked."""
        return self._backoff.failures

    async def wait_synced(self, timeout_s: float) -> None:
        """Waits until the first list has been handed out.

        Raises:
            KubeError: it is forbidden, or it has not been in time; names the resource and the last error.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._synced_or_forbidden.wait()
                if not self.synced.is_set():
                    needed = permission("list, watch", self._resource, namespace=self._namespace)
                    raise KubeError(f"missing permission: {needed}", status=403, reason="Forbidden")
        except TimeoutError as error:
            because = f": {self._error}" if self._error else ""
            message = f"{self._where}: not listed within {timeout_s:g} s{because}"
            raise KubeError(message, status=0, reason="Timeout") from error

    def listed(self) -> None:
        """Notes that a list is complete, and everything in it handed out."""
        self._recovered()
        self.synced.set()
        self._synced_or_forbidden.set()

    def works(self) -> None:
        """Notes that the watch brought something, or ended as it should."""
        if self._backoff.warned:
            _log.info("the API server is watched again", resource=self._where, attempt=self.failures)
        self._backoff.succeeded()
        self._recovered()

    def failed(self, error: KubeError, *, lasted_s: float) -> float:
        """Notes that listing or watching failed after `lasted_s` seconds; returns how long to wait before the next."""
        # A quiet watch has nothing to show for itself but its age.
        if lasted_s >= _STEADY_S:
            self._backoff.restart()
        delay_s = self._backoff.failed() * random.uniform(0.5, 1.0)  # noqa: S311 -- spreads load
        self._error = error
        if error.status == 403 or self.synced.is_set():
            self._synced_or_forbidden.set()
        else:
            self._synced_or_forbidden.clear()
        warns = self._reachability.away_since is None and self._backoff.take_warning()
        log = _log.warning if warns else _log.debug
        log("the API server cannot be watched, trying again", resource=self._where, error=error, attempt=self.failures)
        self._on_error(error)
        return max(delay_s, error.retry_after_s or 0.0)

    def was_away(self, error: KubeError) -> bool:
        """Returns whether a server that failed like this was away, so that what it has may be another state."""
        return self.failures >= _AWAY_AFTER and (error.status in _AWAY or error.reason in _NO_ANSWER)

    def _recovered(self) -> None:
        if self._error is not None:
            self._error = None
            self._on_error(None)
