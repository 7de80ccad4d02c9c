"""Finds the resources of kinds, and waits for kinds that are not there yet.

Used by monitors only. Source: contract.md 2.2; design.md 4 (waiting never polls).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Protocol

from addon_operator.errors import KubeError
from addon_operator.kube.discovery import Discovery
from addon_operator.kube.refs import CUSTOM_RESOURCE_DEFINITIONS, Resource
from addon_operator.kube.watches import Names, Pool, Scope
from addon_operator.logs import get_logger
from addon_operator.retry import RetryPolicy

_log = get_logger("monitor")

_API_SERVICES = Resource("apiregistration.k8s.io", "v1", "APIService", "apiservices", False)
# The aggregated discovery document lags behind the CRD.
_LAG = RetryPolicy(0.1, 5.0)
_DENIED = RetryPolicy(0.1, 60.0)
_PATIENCE_S = 60.0
_BLIND_S = 30.0
_RETRY = RetryPolicy(0.2, 10.0)
_WORTH_A_WARNING = 3


class Seeker(Protocol):
    """Who needs the resource of a kind."""

    @property
    def kind(self) -> str:
        """Kind, plural or short name, in any case of letters."""

    @property
    def api_version(self) -> str | None:
        """`apps/v1`; None for the server's preferred one."""

    def attach(self, resource: Resource) -> None:
        """Takes what was found."""

    def missing(self, reason: str, *, named: bool) -> None:
        """Hears that there is no such kind, so far, or, if it is `named`, that its objects cannot be listed."""


class Kinds:
    """Finds the resources of kinds, and waits for those that are not there yet.

    While somebody waits, CRDs and API services are watched, and each change of them is a reason to ask discovery again.

    Attributes:
        error: why discovery could not be asked the last time; None if it could.
    """

    def __init__(self, discover: Callable[[], Awaitable[Discovery]], pool: Pool) -> None:
        self.error: Exception | None = None
        self._discover, self._pool = discover, pool
        self._known: Discovery | None = None
        self._waiting: dict[Seeker, None] = {}
        # What brings kinds; watched while somebody waits.
        self._bringers: list[Names] = []
        # When to ask next; None: not before something happens.
        self._due: float | None = None
        self._patient_until = 0.0
        self._looks = self._failures = 0
        self._changed = asyncio.Event()

    def seek(self, seeker: Seeker) -> None:
        """Gives the seeker its resource as soon as there is one."""
        self._waiting[seeker] = None
        self._hurry(0.0)

    def lose(self, seeker: Seeker, *, times: int) -> None:
        """Does so for a seeker whose resource went away: discovery may name it a while longer.

        Args:
            seeker: who had it.
            times: how often in a row; each time it is asked for later.
        """
        self._known = None
        self._waiting[seeker] = None
        self._hurry(_DENIED.delay_s(times))

    def forget(self, seeker: Seeker) -> None:
        """Lets a seeker wait no longer."""
        if self._waiting.pop(seeker, self) is None and not self._waiting:
            self._hurry(0.0)

    async def run(self) -> None:
        """Searches until it is cancelled."""
        while True:
            self._changed.clear()
            if self._due is None or self._due > _now():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(self._due):
                        await self._changed.wait()
            else:
                await self._look()

    def _hurry(self, delay_s: float) -> None:
        due = _now() + delay_s
        self._due = due if self._due is None else min(self._due, due)
        self._changed.set()

    async def _look(self) -> None:
        self._due = None
        self._hand_out()
        asking = tuple(self._waiting)
        if asking and await self._ask():
            self._hand_out()
            for seeker in [seeker for seeker in asking if seeker in self._waiting]:
                named = self._resource(seeker) is not None
                seeker.missing(f"{_obstacle(seeker, named=named)}; waiting for it", named=named)
        self._watch_bringers()
        if self._waiting and (delay_s := self._delay_s()) is not None:
            self._hurry(delay_s)

    def _hand_out(self) -> None:
        for seeker in tuple(self._waiting):
            resource = self._resource(seeker)
            if resource and _can_be_listed(resource):
                del self._waiting[seeker]
                seeker.attach(resource)

    def _resource(self, seeker: Seeker) -> Resource | None:
        if self._known is None:
            return None
        try:
            return self._known.resource(seeker.kind, seeker.api_version)
        except KubeError:
            return None

    async def _ask(self) -> bool:
        """Asks what the server serves; answers False if it could not be asked."""
        try:
            self._known = await self._discover()
        except Exception as error:  # noqa: BLE001 -- one bad answer must not end the search
            self._failures, self.error = self._failures + 1, error
            say = _log.warning if self._failures == _WORTH_A_WARNING else _log.debug
            say("the API server cannot be asked for its kinds, trying again", error=error, attempt=self._failures)
            return False
        self._failures, self.error = 0, None
        return True

    def _delay_s(self) -> float | None:
        if self._failures:
            return _RETRY.delay_s(self._failures)
        if _now() < self._patient_until:
            self._looks += 1
            return _LAG.delay_s(self._looks)
        return _BLIND_S if any(names.trouble for names in self._bringers) else None

    def _watch_bringers(self) -> None:
        if not self._waiting:
            while self._bringers:
                self._bringers.pop().end()
        elif not self._bringers and not self._failures:
            scopes = [Scope(resource, None) for resource in (CUSTOM_RESOURCE_DEFINITIONS, _API_SERVICES)]
            self._bringers = [Names(self._pool, scope, self._on_bringer) for scope in scopes]

    def _on_bringer(self) -> None:
        self._looks = 0
        self._patient_until = _now() + _PATIENCE_S
        self._hurry(0.0)


def _can_be_listed(resource: Resource) -> bool:
    return not resource.verbs or "list" in resource.verbs


def _obstacle(seeker: Seeker, *, named: bool) -> str:
    kind = f"{seeker.kind} of {seeker.api_version}" if seeker.api_version else seeker.kind
    return f"the API server does not {f'let the kind {kind} be listed' if named else f'serve the kind {kind}'}"


def _now() -> float:
    return asyncio.get_running_loop().time()
