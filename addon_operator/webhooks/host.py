"""Serves the webhook bindings of hooks: what is registered in the cluster, which server answers, which hook is asked.

Told by the dispatcher which hooks are there; asks a `Reviewer` to run them. Nothing listens and nothing is written
until a hook has such a binding.
"""

from __future__ import annotations

import asyncio
import datetime
import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import KubeError
from addon_operator.hooks.call import HookId
from addon_operator.hooks.config.model import Admission, AdmissionKind, Conversion
from addon_operator.kube.client import KubeClient
from addon_operator.kube.informers.known_objects import WatchEvent
from addon_operator.kube.informers.reflector import Reflector
from addon_operator.kube.refs import CUSTOM_RESOURCE_DEFINITIONS, metadata_of
from addon_operator.logs import get_logger
from addon_operator.retry import RetryPolicy
from addon_operator.settings import WebhookServer
from addon_operator.webhooks import configurations
from addon_operator.webhooks.admission import AdmissionRoute, DepartedRoute
from addon_operator.webhooks.conversion import ConversionRoute
from addon_operator.webhooks.endpoint import Address, WebhookSettings
from addon_operator.webhooks.listener import Listener
from addon_operator.webhooks.registration import ConfigurationGuard, Registration, Version
from addon_operator.webhooks.review import Reviewer
from addon_operator.webhooks.server import ReviewServer, Route, limits
from addon_operator.webhooks.table import Bindings, Table, tabulate

if TYPE_CHECKING:  # see listener.py
    from addon_operator.webhooks.certificates import Authority

_log = get_logger("webhooks")

_KINDS: Final[tuple[AdmissionKind, ...]] = ("kubernetesMutating", "kubernetesValidating")
_MIB: Final = 2**20
# An object and its former state, at most 3 MiB each for the API server; all objects of a list.
_LARGEST_ADMISSION: Final = 16 * _MIB
_LARGEST_CONVERSION: Final = 256 * _MIB
_RETRY: Final = RetryPolicy(1.0, 30.0)


class WebhookHost:
    """All webhooks of one operator.

    Args:
        client: the connection.
        reviewer: runs the hooks.
        settings: as given from outside.
    """

    def __init__(self, client: KubeClient, *, reviewer: Reviewer, settings: WebhookSettings) -> None:
        self._client = client
        self._reviewer = reviewer
        self._settings = settings
        self._registration = Registration(client, identity=settings.identity)
        self._guards = {kind: self._guard(kind) for kind in _KINDS}
        self._authority: Authority | None = None
        self._admission_routes: dict[str, Route] = {}
        self._conversion_routes: dict[str, Route] = {}
        self._admission = self._listener(settings.admission, self._find_admission, _LARGEST_ADMISSION)
        self._conversion = self._listener(settings.conversion, self._find_conversion, _LARGEST_CONVERSION)
        # One change at a time: what is registered must not overtake what is served.
        self._lock = asyncio.Lock()
        self._served: dict[HookId, Bindings] = {}
        self._table = Table()
        # What is in the cluster; None if that is not certain.
        self._configured: dict[AdmissionKind, JsonObject | None] = {}
        self._converted: dict[str, JsonObject | None] = {}
        self._awaited: set[str] = set()
        self._has_conversions = asyncio.Event()
        self._stopped = False
        self._doubtful: set[str] = set()
        self._doubt = asyncio.Event()

    async def start(self) -> None:
        """Checks given certificates; nothing listens yet.

        Raises:
            SettingsError: they cannot be used.
        """
        self._admission.check()
        self._conversion.check()

    async def stop(self) -> None:
        """Ends both servers. What is registered stays: the next process takes it over."""
        async with self._lock:
            # Nothing that does not answer any more may be registered again by `run`.
            self._stopped = True
            await asyncio.gather(self._admission.stop(), self._conversion.stop())

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
            concerned = bindings.concerned() | before.get(hook, bindings).concerned()
            error = next((failures[what] for what in sorted(concerned & failures.keys())), None)
            if error is None:
                self._note(failures)
                return
            # What one hook wants and cannot have must not be in the way of the others.
            self._served, self._table = before, tabulate(before)
            self._doubt.set()
            message = f"{hook}: its webhooks cannot be registered: {error}"
            raise KubeError(
                message, status=error.status, reason=error.reason, retry_after_s=error.retry_after_s
            ) from error

    async def withdraw(self, hooks: Iterable[HookId]) -> None:
        """Serves these hooks no longer; those that were not served are ignored.

        Raises:
            KubeError: the API server refused; doing it again goes on with what failed.
        """
        async with self._lock:
            gone = set(hooks)
            kept = {hook: bindings for hook, bindings in self._served.items() if hook not in gone}
            failures = await self._switch(kept)
            self._note(failures)
            for what, error in sorted(failures.items()):
                if what not in self._table.conversions:
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
            try:
                for kind in _KINDS:
                    await self._clear_configurations(kind)
                for name in await self._registration.converted() if conversions else ():
                    if name not in self._table.conversions:
                        await self._registration.leave(name)
            except KubeError as error:
                # Who may not see them has not made any.
                if error.status != 403:
                    raise
                _log.info("no right to look for webhooks of a former run", error=error)

    async def run(self) -> None:
        """Renews certificates and keeps everything registered, until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._renew_forever(), name="webhook certificates")
            group.create_task(self._follow_definitions(), name="webhook definitions")
            group.create_task(self._repair_forever(), name="webhook registrations")
            for kind, guard in self._guards.items():
                group.create_task(guard.run(), name=f"webhook configuration {kind}")

    async def renew(self, now: datetime.datetime) -> None:
        """Renews the certificates that are due at an instant; called by `run`.

        If the authority of a given one is another, that is registered, too; what fails is tried again by `run`.
        """
        async with self._lock:
            self._admission.renew(now)
            self._conversion.renew(now)
            if not self._stopped:
                self._note(await self._register())

    def _listener(self, chosen: WebhookServer, find: Callable[[str], Route | None], largest: int) -> Listener:
        return Listener(
            chosen,
            ReviewServer(find, at_once=self._settings.at_once, limits=limits(largest)),
            names=self._settings.names(chosen),
            validity_s=self._settings.validity_s,
            authority=self._own_authority,
        )

    def _find_admission(self, path: str) -> Route | None:
        return self._admission_routes.get(path)

    def _find_conversion(self, path: str) -> Route | None:
        return self._conversion_routes.get(path)

    def _own_authority(self) -> Authority:
        from addon_operator.webhooks.certificates import Authority  # noqa: PLC0415 -- see listener.py

        self._authority = self._authority or Authority()
        return self._authority

    async def _switch(self, served: dict[HookId, Bindings]) -> dict[str, KubeError]:
        """Changes what is served, answers what could not be registered.

        Until the API server knows, what was served before is answered as well.
        """
        table = tabulate(served)
        if table.conversions:
            await self._conversion.start()
            self._has_conversions.set()
        if table.admitters:
            await self._admission.start()
        admission, conversion = self._routes(table)
        self._admission_routes |= admission
        self._conversion_routes |= conversion
        self._served, self._table = served, table
        failures = await self._register()
        if not failures:
            departed = self._admission_routes.keys() - admission.keys()
            self._admission_routes = {**dict.fromkeys(departed, DepartedRoute()), **admission}
            self._conversion_routes = conversion
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

    async def _register(self) -> dict[str, KubeError]:
        """Brings the cluster to what is served, as far as it is not known to be; answers what failed.

        The keys are kinds of bindings and names of definitions.
        """
        work: dict[str, Callable[[], Awaitable[None]]] = {}
        for kind in _KINDS:
            if self._table.admitters.get(kind) or kind in self._configured:
                work[kind] = functools.partial(self._configure, kind)
        for name in self._table.conversions:
            work[name] = functools.partial(self._convert, name)
        for name in self._converted.keys() - self._table.conversions.keys():
            work[name] = functools.partial(self._leave, name)
        failures: dict[str, KubeError] = {}
        for what, do in work.items():
            try:
                await do()
            except KubeError as error:
                failures[what] = error
        return failures

    def _note(self, failures: Mapping[str, KubeError]) -> None:
        """Says what failed, and has `run` try it again."""
        for what, error in failures.items():
            _log.error("webhooks could not be registered", reason=what, error=error)
            self._doubt.set()

    async def _configure(self, kind: AdmissionKind) -> None:
        document = self._document(kind)
        if self._configured.get(kind) != document:
            self._configured[kind] = None
            await self._registration.configure(kind, document)
            self._configured[kind] = document
            self._guards[kind].want(bool(document["webhooks"]))

    async def _convert(self, crd_name: str) -> None:
        wanted = configurations.conversion(crd_name, self._address(self._conversion))
        if self._converted.get(crd_name) == wanted:
            return
        self._converted[crd_name] = None
        if await self._registration.convert(crd_name, wanted):
            self._converted[crd_name] = wanted
            self._awaited.discard(crd_name)
        elif crd_name not in self._awaited:
            self._awaited.add(crd_name)
            _log.warning("waiting for the CustomResourceDefinition that a hook converts", reason=crd_name)

    async def _leave(self, crd_name: str) -> None:
        await self._registration.leave(crd_name)
        del self._converted[crd_name]
        self._awaited.discard(crd_name)

    def _guard(self, kind: AdmissionKind) -> ConfigurationGuard:
        return ConfigurationGuard(
            self._client,
            kind,
            name=self._name(kind),
            identity=self._settings.identity,
            restore=functools.partial(self._restore, kind),
            forbidden_pause_s=self._settings.forbidden_pause_s,
        )

    async def _restore(self, kind: AdmissionKind, seen: Version | None) -> bool:
        async with self._lock:
            if self._stopped or self._registration.is_as_written(kind, self._name(kind), seen):
                return False
            document = self._document(kind)
            if self._configured.get(kind) != document:
                return False  # it is about to be written anyway
            try:
                return await self._registration.restore(kind, document)
            except KubeError as error:
                self._configured[kind] = None
                self._note({kind: error})
                return True

    def _document(self, kind: AdmissionKind) -> JsonObject:
        found = self._table.admitters.get(kind, ())
        not_own = configurations.not_own(self._settings.namespace, self._settings.config_map)
        webhooks = [
            configurations.webhook(one.binding, self._address(self._admission), not_own=not_own) for one in found
        ]
        return configurations.configuration(kind, self._name(kind), identity=self._settings.identity, webhooks=webhooks)

    def _name(self, kind: AdmissionKind) -> str:
        names: Mapping[AdmissionKind, str] = {
            "kubernetesValidating": self._settings.validating_name,
            "kubernetesMutating": self._settings.mutating_name,
        }
        return f"{names[kind]}-hooks"

    def _address(self, listener: Listener) -> Address:
        return self._settings.address(listener.chosen, port=listener.port, authority=listener.authority)

    async def _clear_configurations(self, kind: AdmissionKind) -> None:
        served = {self._name(kind)} if self._table.admitters.get(kind) else set()
        for name in await self._registration.stale(kind):
            if name not in served:
                empty = configurations.configuration(kind, name, identity=self._settings.identity, webhooks=())
                await self._registration.configure(kind, empty)

    async def _renew_forever(self) -> None:
        while True:
            now = _now()
            await asyncio.sleep(min(self._admission.wait_s(now), self._conversion.wait_s(now)))
            await self.renew(_now())

    async def _follow_definitions(self) -> None:
        """Notices conversions that were lost, or could not be registered because there was no definition."""
        await self._has_conversions.wait()
        reflector = Reflector(
            self._client,
            CUSTOM_RESOURCE_DEFINITIONS,
            namespace=None,
            metadata_only=True,
            handler=self._definition_changed,
        )
        await reflector.run()

    def _definition_changed(self, _event: WatchEvent, definition: JsonObject) -> None:
        name = str(metadata_of(definition).get("name"))
        if name in self._table.conversions:
            self._doubtful.add(name)
            self._doubt.set()

    async def _repair_forever(self) -> None:
        attempts = 0
        while True:
            await self._doubt.wait()
            attempts = 1 if await self._repair() else attempts + 1
            # Two who do not agree about a definition must not write it without a pause.
            await asyncio.sleep(_RETRY.delay_s(attempts))

    async def _repair(self) -> bool:
        async with self._lock:
            self._doubt.clear()
            if self._stopped:
                return True
            for name in self._doubtful & self._converted.keys():
                self._converted[name] = None
            self._doubtful.clear()
            failures = await self._register()
            self._note(failures)
            return not failures


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
