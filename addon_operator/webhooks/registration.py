"""Writes webhook configurations and conversions into the cluster, and takes them out again.

What is written carries the label of this operator; what another one wrote is not touched. Writing the same again is
harmless: the API server notices that nothing changed. A `ConfigurationGuard` notices what others do to a configuration.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, TypeAlias, TypeVar

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import KubeError
from addon_operator.hooks.config.model import AdmissionKind
from addon_operator.kube.client import KubeClient
from addon_operator.kube.informers.known_objects import WatchEvent
from addon_operator.kube.informers.reflector import Reflector
from addon_operator.kube.refs import CUSTOM_RESOURCE_DEFINITIONS, Resource, metadata_of
from addon_operator.logs import get_logger
from addon_operator.retry import RetryPolicy
from addon_operator.webhooks.configurations import CONVERTER, OPERATOR, RESOURCES

_log = get_logger("webhooks")

T = TypeVar("T")
Version: TypeAlias = tuple[JsonValue, JsonValue]
"""uid and generation of a configuration: they change with everything in it but its metadata."""

_CONFLICTS: Final = 5
_RETRY: Final = RetryPolicy(1.0, 30.0)
_REMOVED: Final = "webhooks were removed by somebody else, and are registered again"
_CHANGED: Final = "webhooks were changed by somebody else, and are registered again"
_UNGUARDED: Final = "no right to list and watch webhook configurations: what others do to them is not noticed"
_MERGE: Final = "application/merge-patch+json"
_METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class Registration:
    """What one operator has registered.

    Args:
        client: the connection.
        identity: which operator this is; the value of its labels.
    """

    def __init__(self, client: KubeClient, *, identity: str) -> None:
        self._client = client
        self._identity = identity
        # By kind and name, what the API server made of the last write.
        self._written: dict[str, Version] = {}

    async def configure(self, kind: AdmissionKind, document: JsonObject) -> None:
        """Writes a webhook configuration; one without webhooks is removed.

        Raises:
            KubeError: the API server refused it, or another operator has one of this name.
        """
        resource = RESOURCES[kind]
        await _again_on_conflict(lambda: self._configure(resource, document))

    def is_as_written(self, kind: AdmissionKind, name: str, seen: Version | None) -> bool:
        """Answers whether a configuration that was seen is the one that was written last.

        Args:
            kind: what kind of configuration.
            name: the configuration's name.
            seen: None if there is none.
        """
        return self._written.get(_what(RESOURCES[kind], name)) == seen

    async def restore(self, kind: AdmissionKind, document: JsonObject) -> bool:
        """Writes a configuration again if somebody else changed or removed it; answers whether that was so.

        Raises:
            KubeError: as `configure`.
        """
        resource = RESOURCES[kind]
        return await _again_on_conflict(lambda: self._restore(resource, document))

    async def stale(self, kind: AdmissionKind) -> tuple[str, ...]:
        """Lists the configurations of this operator by name, whoever wrote them."""
        return await self._labelled(RESOURCES[kind], OPERATOR)

    async def convert(self, crd_name: str, conversion: JsonObject) -> bool:
        """Writes the conversion of a definition; answers whether there is one.

        Raises:
            KubeError: the API server refused it, or another operator converts its objects.
        """
        return await _again_on_conflict(lambda: self._convert(crd_name, conversion))

    async def leave(self, crd_name: str) -> None:
        """Ends the conversion of a definition, if it is this operator's.

        Raises:
            KubeError: the API server refused.
        """
        await _again_on_conflict(lambda: self._leave(crd_name))

    async def converted(self) -> tuple[str, ...]:
        """Lists the definitions whose objects this operator converts, or did once.

        Raises:
            KubeError: the API server refused.
        """
        return await self._labelled(CUSTOM_RESOURCE_DEFINITIONS, CONVERTER)

    async def _labelled(self, resource: Resource, label: str) -> tuple[str, ...]:
        query = {"labelSelector": f"{label}={self._identity}"}
        answer = _object(await self._client.request("GET", resource.path(), query=query, accept=_METADATA))
        items = answer.get("items")
        found = [metadata_of(item) for item in items if isinstance(item, dict)] if isinstance(items, list) else []
        return tuple(sorted(str(metadata.get("name")) for metadata in found))

    async def _configure(self, resource: Resource, document: JsonObject) -> None:
        name = str(metadata_of(document)["name"])
        path, what = resource.path(name=name), _what(resource, name)
        existing = await self._get(path)
        if document["webhooks"]:
            await self._write(resource, existing, document)
            _log.info("webhooks registered", reason=what)
            return
        self._written.pop(what, None)
        if existing is not None and self._owns(existing, OPERATOR):
            await self._delete(path, existing)
            _log.info("webhooks unregistered", reason=what)

    async def _restore(self, resource: Resource, document: JsonObject) -> bool:
        name = str(metadata_of(document)["name"])
        what = _what(resource, name)
        existing = await self._get(resource.path(name=name))
        if existing is not None and self._owns(existing, OPERATOR) and version_of(existing) == self._written.get(what):
            return False
        await self._write(resource, existing, document)
        _log.warning(_REMOVED if existing is None else _CHANGED, reason=what)
        return True

    async def _write(self, resource: Resource, existing: JsonObject | None, document: JsonObject) -> None:
        name = str(metadata_of(document)["name"])
        what = _what(resource, name)
        if existing is None:
            method, path, body = "POST", resource.path(), document
        else:
            if not self._lost_label(existing, what):
                self._check_owner(existing, OPERATOR, what)
            metadata: JsonObject = {**metadata_of(existing), "labels": _labels(existing) | _labels(document)}
            method, path, body = "PUT", resource.path(name=name), {**document, "metadata": metadata}
        answer = await self._client.request(method, path, body=jsondoc.dumps(body))
        self._written[what] = version_of(_object(answer))

    def _lost_label(self, existing: JsonObject, what: str) -> bool:
        """Answers whether it is the very object that was written here, and nobody else claims it."""
        uid, _ = self._written.get(what, (None, None))
        return OPERATOR not in _labels(existing) and uid is not None and uid == version_of(existing)[0]

    async def _delete(self, path: str, existing: JsonObject) -> None:
        metadata = metadata_of(existing)
        same: JsonObject = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        try:
            await self._client.request("DELETE", path, body=jsondoc.dumps({"preconditions": same}))
        except KubeError as error:
            if error.status != 404:
                raise

    async def _convert(self, crd_name: str, conversion: JsonObject) -> bool:
        path = CUSTOM_RESOURCE_DEFINITIONS.path(name=crd_name)
        existing = await self._get(path)
        if existing is None:
            return False
        if CONVERTER in _labels(existing):
            self._check_owner(existing, CONVERTER, f"the conversion of {crd_name}")
        elif _strategy(existing) == "Webhook":
            _log.warning("the conversion by another webhook is taken over", reason=crd_name)
        if await self._patch(path, existing, label=self._identity, conversion=_replacing(conversion)):
            _log.info("conversion registered", reason=crd_name)
        return True

    async def _leave(self, crd_name: str) -> None:
        path = CUSTOM_RESOURCE_DEFINITIONS.path(name=crd_name)
        existing = await self._get(path)
        if existing is not None and self._owns(existing, CONVERTER):
            none: JsonObject = {"strategy": "None", "webhook": None}
            await self._patch(path, existing, label=None, conversion=none)
            _log.info("conversion unregistered", reason=crd_name)

    async def _patch(self, path: str, existing: JsonObject, *, label: str | None, conversion: JsonObject) -> bool:
        """Patches a definition unless it was changed meanwhile; answers whether that changed anything."""
        version = metadata_of(existing)["resourceVersion"]
        metadata: JsonObject = {"resourceVersion": version, "labels": {CONVERTER: label}}
        body = jsondoc.dumps({"metadata": metadata, "spec": {"conversion": conversion}})
        answer = await self._client.request("PATCH", path, body=body, content_type=_MERGE)
        return metadata_of(_object(answer)).get("resourceVersion") != version

    async def _get(self, path: str) -> JsonObject | None:
        try:
            return _object(await self._client.request("GET", path))
        except KubeError as error:
            if error.not_found:
                return None
            raise

    def _owns(self, existing: JsonObject, label: str) -> bool:
        return _labels(existing).get(label) == self._identity

    def _check_owner(self, existing: JsonObject, label: str, what: str) -> None:
        if not self._owns(existing, label):
            owner = _labels(existing).get(label)
            whose = f"belongs to operator {owner}" if owner else "was not written by an operator"
            message = f"{what} {whose}: its label {label} is not {self._identity}; remove it or choose another name"
            raise KubeError(message, status=409, reason="ForeignObject")


class ConfigurationGuard:
    """Has a configuration of this operator written again once somebody else changes or removes it.

    Watches only while something is registered. Who may not watch is told so once, and goes on without.

    Args:
        client: the connection.
        kind: what kind of configuration.
        name: the configuration's name.
        identity: which operator this is.
        restore: told what was seen (None for nothing) whenever that changes, also by writes of this operator; answers
            whether somebody else did it, and puts that right. Must not raise.
        forbidden_pause_s: after that time one who may not watch tries it again.
    """

    def __init__(
        self,
        client: KubeClient,
        kind: AdmissionKind,
        *,
        name: str,
        identity: str,
        restore: Callable[[Version | None], Awaitable[bool]],
        forbidden_pause_s: float,
    ) -> None:
        self._client = client
        self._resource = RESOURCES[kind]
        self._name = name
        self._identity = identity
        self._restore = restore
        self._forbidden_pause_s = forbidden_pause_s
        self._wanted, self._unwanted = asyncio.Event(), asyncio.Event()
        self._seen: Version | None = None
        self._stirred = asyncio.Event()

    def want(self, wanted: bool) -> None:
        """Says whether there is something to guard."""
        now, before = (self._wanted, self._unwanted) if wanted else (self._unwanted, self._wanted)
        now.set()
        before.clear()

    async def run(self) -> None:
        """Guards until it is cancelled."""
        while True:
            await self._wanted.wait()
            self._stirred.clear()
            await _until(self._unwanted, self._watch_forever(), self._restore_forever())

    async def _watch_forever(self) -> None:
        told = False
        while True:
            forbidden = asyncio.Event()
            reflector = self._reflector(forbidden)
            self._seen = None
            await _until(forbidden, reflector.run(), self._look(reflector))
            if not told:
                _log.warning(_UNGUARDED, reason=self._resource.plural)
                told = True
            await asyncio.sleep(self._forbidden_pause_s)

    def _reflector(self, forbidden: asyncio.Event) -> Reflector:
        def note(error: KubeError | None) -> None:
            if error is not None and error.status == 403:
                forbidden.set()

        return Reflector(
            self._client,
            self._resource,
            namespace=None,
            label_selector=f"{OPERATOR}={self._identity}",
            metadata_only=True,
            handler=self._changed,
            on_error=note,
        )

    def _changed(self, event: WatchEvent, configuration: JsonObject) -> None:
        if metadata_of(configuration).get("name") == self._name:
            self._seen = None if event == "Deleted" else version_of(configuration)
            self._stirred.set()

    async def _look(self, reflector: Reflector) -> None:
        """What was removed before the first list is in no event."""
        await reflector.synced.wait()
        self._stirred.set()

    async def _restore_forever(self) -> None:
        attempts = 0
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            attempts = attempts + 1 if await self._restore(self._seen) else 0
            if attempts:
                # Two who do not agree about it must not write it without a pause.
                await asyncio.sleep(_RETRY.delay_s(attempts))


async def _until(event: asyncio.Event, *work: Coroutine[object, object, None]) -> None:
    """Works until something happens."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one, name="webhook configurations") for one in work]
        await event.wait()
        for task in tasks:
            task.cancel()


async def _again_on_conflict(write: Callable[[], Awaitable[T]]) -> T:
    conflicts = 0
    while True:
        try:
            return await write()
        except KubeError as error:
            conflicts += 1
            if error.reason not in {"Conflict", "AlreadyExists"} or conflicts == _CONFLICTS:
                raise


def _replacing(conversion: JsonObject) -> JsonObject:
    """Adds nulls, so that a merge patch leaves nothing of another address."""
    webhook = conversion["webhook"]
    assert isinstance(webhook, dict)
    client = webhook["clientConfig"]
    assert isinstance(client, dict)
    absent: JsonObject = {"url": None, "service": None, "caBundle": None}
    return {
        **conversion,
        "webhook": {**webhook, "clientConfig": {**absent, **client}},
    }


def version_of(configuration: JsonObject) -> Version:
    """Answers which state of which configuration this is."""
    metadata = metadata_of(configuration)
    return metadata.get("uid"), metadata.get("generation")


def _what(resource: Resource, name: str) -> str:
    return f"{resource.kind} {name}"


def _strategy(definition: JsonObject) -> JsonValue:
    try:
        return jsondoc.lookup(definition, "/spec/conversion/strategy")
    except KeyError:
        return None


def _labels(document: JsonObject) -> JsonObject:
    found = metadata_of(document).get("labels")
    return found if isinstance(found, dict) else {}


def _object(data: bytes) -> JsonObject:
    value = jsondoc.loads(data)
    return value if isinstance(value, dict) else {}
