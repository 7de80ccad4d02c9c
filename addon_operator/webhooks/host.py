"""Serves the webhook bindings of hooks: which bindings there are, which hook answers, what is to be registered.

The dispatcher says which hooks there are; a `Reviewer` runs them. Nothing listens and nothing is written until a hook
has such a binding.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import KubeError
from addon_operator.hooks.call import HookId
from addon_operator.hooks.config.model import Admission, Conversion
from addon_operator.kube.client import KubeClient
from addon_operator.kube.refs import ObjectKey
from addon_operator.settings import WebhookServer
from addon_operator.webhooks import configurations, desired
from addon_operator.webhooks.admission import AdmissionRoute, DepartedRoute
from addon_operator.webhooks.conversion import ConversionRoute
from addon_operator.webhooks.dispatcher import FindRoute, Route
from addon_operator.webhooks.endpoint import Address, WebhookSettings
from addon_operator.webhooks.registrar import Registrar
from addon_operator.webhooks.review import Reviewer
from addon_operator.webhooks.table import Bindings, Table, tabulate


class WebhookListener(Protocol):
    """Where the API server sends reviews: one for admission, one for conversion.

    Attributes:
        port: where it listens; 0 before it does.
    """

    port: int

    @property
    def authority(self) -> bytes:
        """What verifies its certificate, PEM; empty for public roots.

        Raises:
            InvariantBroken: it does not listen.
        """

    def check(self) -> None:
        """Checks the certificate that it has from files, if any.

        Raises:
            SettingsError: it cannot be used.
        """

    async def start(self, find_route: FindRoute) -> None:
        """Begins to listen; does nothing if it does. A path without a route is answered with 404.

        Raises:
            SettingsError: it cannot listen.
        """

    async def stop(self) -> None:
        """Ends the reviews in flight, and listens no longer; does nothing if it does not listen."""

    def renewal_due_in_s(self, now: datetime.datetime) -> float:
        """Returns when to call `renew` next: seconds from now."""

    def renew(self, now: datetime.datetime) -> None:
        """Renews its certificate if that is due; `authority` may be another one then. Must not raise."""


@dataclass(slots=True)
class _Endpoint:
    """One listener, and the routes that it serves: path -> route."""

    listener: WebhookListener
    settings: WebhookServer
    routes: dict[str, Route] = field(default_factory=dict)

    async def start(self) -> None:
        await self.listener.start(self.find_route)

    def find_route(self, path: str) -> Route | None:
        return self.routes.get(path)

    def address(self, settings: WebhookSettings) -> Address:
        return settings.address(self.settings, port=self.listener.port, authority=self.listener.authority)


class WebhookHost:
    """All webhooks of one operator.

    Args:
        client: the connection.
        admission: the listener for validating and mutating webhooks.
        conversion: the listener for conversions.
        reviewer: runs the hooks.
        settings: names, addresses and limits.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        admission: WebhookListener,
        conversion: WebhookListener,
        reviewer: Reviewer,
        settings: WebhookSettings,
    ) -> None:
        self._reviewer = reviewer
        self._settings = settings
        self._admission = _Endpoint(admission, settings.admission)
        self._conversion = _Endpoint(conversion, settings.conversion)
        self._registrar = Registrar(client, settings)
        # One change at a time: what is registered must not overtake what is served.
        self._lock = asyncio.Lock()
        self._served: dict[HookId, Bindings] = {}
        self._stopped = False

    async def start(self) -> None:
        """Checks certificates from files; nothing listens yet.

        Raises:
            SettingsError: they cannot be used.
        """
        self._admission.listener.check()
        self._conversion.listener.check()

    async def stop(self) -> None:
        """Ends both listeners. What is registered stays: the next process takes it over."""
        async with self._lock:
            # Nothing that does not answer any more may be registered again by `run`.
            self._stopped = True
            await self._registrar.close()
            await asyncio.gather(self._admission.listener.stop(), self._conversion.listener.stop())

    async def serve(self, hook: HookId, admissions: Sequence[Admission], conversions: Sequence[Conversion]) -> None:
        """Serves these bindings of a hook, in the place of those that it had.

        Reviews are answered when it returns; the API server takes a moment more to send them. A definition that does
        not exist yet gets its conversion when it appears. Doing it again costs nothing, and goes on with what failed.

        Raises:
            HookConfigError: a binding conflicts with one of another hook; nothing was changed.
            SettingsError: a server cannot listen; nothing was changed.
            KubeError: the API server refused what was to be registered; the hook has what it had before.
        """
        bindings = Bindings(tuple(admissions), tuple(conversions))
        async with self._lock:
            before = self._served
            served = {**before, hook: bindings}
            if not admissions and not conversions:
                del served[hook]
            failures = await self._switch(served)
            concerned = self._targets(bindings) | self._targets(before.get(hook, bindings))
            error = next((failures[target] for target in sorted(concerned & failures.keys())), None)
            if error is None:
                self._registrar.retry(failures)
                return
            # What one hook wants and cannot have must not be in the way of the others.
            self._served = before
            self._registrar.revert(self._desired(tabulate(before)))
            raise error.with_message(f"{hook}: its webhooks cannot be registered: {error}") from error

    async def withdraw(self, hooks: Iterable[HookId]) -> None:
        """Serves these hooks no longer; those that were not served are ignored.

        Raises:
            KubeError: the API server refused; doing it again goes on with what failed.
        """
        async with self._lock:
            gone = set(hooks)
            kept = {hook: bindings for hook, bindings in self._served.items() if hook not in gone}
            failures = await self._switch(kept)
            self._registrar.retry(failures)
            converted = {desired.conversion_target(name) for name in tabulate(kept).conversions}
            for target, error in sorted(failures.items()):
                if target not in converted:
                    raise error

    async def clear_stale(self, *, conversions: bool = False) -> None:
        """Unregisters what a former process has left and nobody serves, so that it blocks nobody.

        Args:
            conversions: also those of CustomResourceDefinitions. Only once all hooks of this run are known: until its
                hook is back, a conversion that fails is better than none at all, which hands out objects unconverted
                and loses fields when they are written back.

        Raises:
            KubeError: the API server refused.
        """
        async with self._lock:
            await self._registrar.clear_stale(conversions=conversions)

    async def run(self) -> None:
        """Renews certificates and keeps everything registered, until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._renew_forever(), name="webhook certificates")
            group.create_task(self._registrar.run(), name="webhook registrations")

    async def renew(self, now: datetime.datetime) -> None:
        """Renews the certificates that are due at an instant; called by `run`.

        If the authority of one from a file has changed, that is registered, too; what fails is tried again by `run`.
        """
        async with self._lock:
            self._admission.listener.renew(now)
            self._conversion.listener.renew(now)
            if not self._stopped:
                self._registrar.retry(await self._registrar.apply(self._desired(tabulate(self._served))))

    async def _switch(self, served: dict[HookId, Bindings]) -> dict[ObjectKey, KubeError]:
        """Changes what is served, returns what could not be registered.

        Until the API server knows, what was served before is answered as well.
        """
        table = tabulate(served)
        if table.conversions:
            await self._conversion.start()
        if table.admitters:
            await self._admission.start()
        admission, conversion = self._routes(table)
        self._admission.routes |= admission
        self._conversion.routes |= conversion
        self._served = served
        failures = await self._registrar.apply(self._desired(table))
        if not failures:
            departed = self._admission.routes.keys() - admission.keys()
            self._admission.routes = {**dict.fromkeys(departed, DepartedRoute()), **admission}
            self._conversion.routes = conversion
        return failures

    def _routes(self, table: Table) -> tuple[dict[str, Route], dict[str, Route]]:
        admission: dict[str, Route] = {
            configurations.admission_path(admitter.binding): AdmissionRoute(
                admitter.hook, admitter.binding, self._reviewer
            )
            for admitters in table.admitters.values()
            for admitter in admitters
        }
        conversion: dict[str, Route] = {
            configurations.conversion_path(name): ConversionRoute(name, steps, self._reviewer)
            for name, steps in table.conversions.items()
        }
        return admission, conversion

    def _desired(self, table: Table) -> dict[ObjectKey, JsonObject]:
        return desired.registrations(
            table,
            self._settings,
            admission=self._admission.address(self._settings) if table.admitters else None,
            conversion=self._conversion.address(self._settings) if table.conversions else None,
        )

    def _targets(self, bindings: Bindings) -> frozenset[ObjectKey]:
        return desired.targets(bindings.admissions, bindings.conversions, self._settings)

    async def _renew_forever(self) -> None:
        listeners = (self._admission.listener, self._conversion.listener)
        while True:
            await asyncio.sleep(min(listener.renewal_due_in_s(_now()) for listener in listeners))
            await self.renew(_now())


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
