"""Finds the resources of kinds, and waits for kinds that are not served yet.

Used by monitors only. Source: contract.md 2.2; design.md 4 (waiting never polls).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from addon_operator.errors import KubeError
from addon_operator.kube.discovery import Discovery
from addon_operator.kube.informers.names import ObjectNames
from addon_operator.kube.informers.shared import Scope, SharedInformerFactory
from addon_operator.kube.refs import CUSTOM_RESOURCE_DEFINITIONS, Resource
from addon_operator.logs import get_logger
from addon_operator.retry import Backoff, RetryPolicy

_log = get_logger("informer")

_API_SERVICES: Final = Resource("apiregistration.k8s.io", "v1", "APIService", "apiservices", False)
_SOURCES: Final = (CUSTOM_RESOURCE_DEFINITIONS, _API_SERVICES)
# The aggregated discovery document lags behind the CRD.
_LAG: Final = RetryPolicy(0.1, 5.0)
_NOT_SERVED: Final = RetryPolicy(0.1, 60.0)
_LAGS_FOR_S: Final = 60.0
_BLIND_S: Final = 30.0
_RETRY: Final = RetryPolicy(0.2, 10.0)


class KindWaiter(Protocol):
    """Who needs the resource of a kind."""

    @property
    def kind(self) -> str:
        """Kind, plural or short name, case-insensitive."""

    @property
    def api_version(self) -> str | None:
        """`apps/v1`; None for the server's preferred one."""

    def on_kind_found(self, resource: Resource) -> None:
        """Takes the resource."""

    def on_kind_missing(self, reason: str, *, is_named: bool) -> None:
        """There is no such kind, so far, or, if discovery names it, its objects cannot be listed."""


class KindResolver:
    """Finds the resources of kinds, and waits for those that are not served yet.

    While somebody waits, the sources of kinds are watched, CRDs and API services, and each change of them is a reason
    to ask discovery again.

    Attributes:
        last_error: why discovery could not be asked the last time; None if it could.
    """

    def __init__(self, discover: Callable[[], Awaitable[Discovery]], factory: SharedInformerFactory) -> None:
        """Asks for nothing yet.

        Args:
            discover: asks what the server serves; each call must really ask, answers are kept here.
            factory: of the informers.
        """
        self.last_error: Exception | None = None
        self._discover, self._factory = discover, factory
        self._discovery: Discovery | None = None
        self._waiting: dict[KindWaiter, None] = {}
        # Watched while somebody waits.
        self._sources: list[ObjectNames] = []
        # When to ask next; None: not before something happens.
        self._due: float | None = None
        self._lags_until = 0.0
        self._attempts = 0
        self._backoff = Backoff(_RETRY)
        self._changed = asyncio.Event()

    def resolve(self, waiter: KindWaiter) -> None:
        """Gives the waiter its resource as soon as there is one."""
        self._waiting[waiter] = None
        self._ask_in(0.0)

    def resolve_again(self, waiter: KindWaiter, *, times: int) -> None:
        """Does so for a waiter whose resource is not served any more: discovery may name it a while longer.

        Args:
            waiter: who had it.
            times: how often in a row; each time it is asked for later.
        """
        self._discovery = None
        self._waiting[waiter] = None
        self._ask_in(_NOT_SERVED.delay_s(times))

    def forget(self, waiter: KindWaiter) -> None:
        """Lets a waiter wait no longer."""
        if self._waiting.pop(waiter, self) is None and not self._waiting:
            self._ask_in(0.0)

    async def run(self) -> None:
        """Searches until it is cancelled."""
        while True:
            self._changed.clear()
            if self._due is None or self._due > _now():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(self._due):
                        await self._changed.wait()
            else:
                await self._resolve_all()

    def _ask_in(self, delay_s: float) -> None:
        due = _now() + delay_s
        self._due = due if self._due is None else min(self._due, due)
        self._changed.set()

    async def _resolve_all(self) -> None:
        self._due = None
        self._hand_out()
        asking = tuple(self._waiting)
        if asking and await self._ask():
            self._hand_out()
            for waiter in [waiter for waiter in asking if waiter in self._waiting]:
                is_named = self._resource(waiter) is not None
                waiter.on_kind_missing(f"{_obstacle(waiter, is_named=is_named)}; waiting for it", is_named=is_named)
        self._watch_sources()
        if self._waiting and (delay_s := self._delay_s()) is not None:
            self._ask_in(delay_s)

    def _hand_out(self) -> None:
        for waiter in tuple(self._waiting):
            resource = self._resource(waiter)
            if resource and _can_be_listed(resource):
                del self._waiting[waiter]
                waiter.on_kind_found(resource)

    def _resource(self, waiter: KindWaiter) -> Resource | None:
        if self._discovery is None:
            return None
        try:
            return self._discovery.resource(waiter.kind, waiter.api_version)
        except KubeError:
            return None

    async def _ask(self) -> bool:
        """Asks what the server serves; returns False if it could not be asked."""
        try:
            self._discovery = await self._discover()
        except Exception as error:  # noqa: BLE001 -- one bad answer must not end the search
            self.last_error = error
            self._backoff.failed()
            log = _log.warning if self._backoff.take_warning() else _log.debug
            attempt = self._backoff.failures
            log("the API server cannot be asked for its kinds, trying again", error=error, attempt=attempt)
            return False
        self.last_error = None
        self._backoff.succeeded()
        return True

    def _delay_s(self) -> float | None:
        if self._backoff.failures:
            return self._backoff.delay_s
        if _now() < self._lags_until:
            self._attempts += 1
            return _LAG.delay_s(self._attempts)
        return _BLIND_S if any(source.informer.blocked_reason for source in self._sources) else None

    def _watch_sources(self) -> None:
        if not self._waiting:
            while self._sources:
                self._sources.pop().end()
        elif not self._sources and not self._backoff.failures:
            self._sources = [
                ObjectNames(self._factory, Scope(resource, None), self._on_source_changed) for resource in _SOURCES
            ]

    def _on_source_changed(self) -> None:
        self._attempts = 0
        self._lags_until = _now() + _LAGS_FOR_S
        self._ask_in(0.0)


def _can_be_listed(resource: Resource) -> bool:
    return not resource.verbs or "list" in resource.verbs


def _obstacle(waiter: KindWaiter, *, is_named: bool) -> str:
    kind = f"{waiter.kind} of {waiter.api_version}" if waiter.api_version else waiter.kind
    return f"the API server does not {f'let the kind {kind} be listed' if is_named else f'serve the kind {kind}'}"


def _now() -> float:
    return asyncio.get_running_loop().time()
