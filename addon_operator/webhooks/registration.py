"""Writes webhook configurations and conversions into the cluster, and takes them out again.

What is written carries the label of this operator; what another one wrote is not touched. Writing the same again is
harmless: the API server notices that nothing changed.

Configurations are replaced and conversions merged rather than applied server-side, since what others have added to them
must not stay: one more webhook in the list, or a `url` beside our `service`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import KubeError
from addon_operator.hooks.config.model import AdmissionKind
from addon_operator.kube.client import KubeClient
from addon_operator.kube.refs import CUSTOM_RESOURCE_DEFINITIONS, ObjectRef, metadata_of
from addon_operator.kube.retries import retry_on_conflict
from addon_operator.logs import get_logger
from addon_operator.webhooks.configurations import CONVERTER, OPERATOR, RESOURCES

_log = get_logger("webhooks")

Version: TypeAlias = tuple[JsonValue, JsonValue]
"""uid and generation of a configuration: they change with everything in it but its metadata."""

_REMOVED: Final = "webhooks were removed by somebody else, and are registered again"
_CHANGED: Final = "webhooks were changed by somebody else, and are registered again"


class Registration(Protocol):
    """How documents of one sort are registered. All methods raise KubeError if the API server refuses."""

    async def write(self, name: str, document: JsonObject) -> bool:
        """Registers a document; returns whether the object exists that it has to be written to.

        Raises:
            KubeError: also if the object belongs to another operator.
        """

    async def remove(self, name: str) -> None:
        """Removes what is registered, if it is this operator's."""

    async def owned(self) -> tuple[str, ...]:
        """Returns the names of the objects with the label of this operator, sorted, whoever wrote them."""


@dataclass(frozen=True, slots=True)
class _OwnerLabel:
    """The label that says which operator an object belongs to.

    Attributes:
        name: of the label.
        identity: its value on objects of this operator.
    """

    name: str
    identity: str

    @property
    def selector(self) -> str:
        """Selects the objects of this operator."""
        return f"{self.name}={self.identity}"

    def is_on(self, existing: JsonObject) -> bool:
        """Returns whether an object is this operator's."""
        return _labels(existing).get(self.name) == self.identity

    def check(self, existing: JsonObject, what: str) -> None:
        """Makes sure that an object is this operator's.

        Raises:
            KubeError: 409 `ForeignObject`, it is not.
        """
        if not self.is_on(existing):
            owner = _labels(existing).get(self.name)
            whose = f"belongs to operator {owner}" if owner else "was not written by an operator"
            message = f"{what} {whose}: its label {self.name} is not {self.identity}; remove it or choose another name"
            raise KubeError(message, status=409, reason="ForeignObject")


class ConfigurationRegistration:
    """Writes the webhook configurations of one kind.

    Args:
        client: the connection.
        kind: of the bindings in them.
        identity: which operator this is; the value of its labels.
    """

    def __init__(self, client: KubeClient, kind: AdmissionKind, *, identity: str) -> None:
        self._client = client
        self._resource = RESOURCES[kind]
        self._label = _OwnerLabel(OPERATOR, identity)
        # By name, what the API server made of the last write.
        self._written: dict[str, Version] = {}

    async def write(self, name: str, document: JsonObject) -> bool:
        """Registers a whole configuration; there is always an object to write to."""

        async def attempt() -> None:
            await self._write(name, await self._client.get(self._ref(name)), document)

        await retry_on_conflict(attempt)
        _log.info("webhooks registered", object=self._what(name))
        return True

    async def remove(self, name: str) -> None:
        """Deletes a configuration, if it is this operator's."""

        async def attempt() -> bool:
            existing = await self._client.get(self._ref(name))
            if existing is None or not self._label.is_on(existing):
                return False
            metadata = metadata_of(existing)
            uid, version = str(metadata["uid"]), str(metadata["resourceVersion"])
            await self._client.delete(self._ref(name), uid=uid, resource_version=version)
            return True

        self._written.pop(name, None)
        if await retry_on_conflict(attempt):
            _log.info("webhooks unregistered", object=self._what(name))

    async def owned(self) -> tuple[str, ...]:
        """Returns the names of this operator's configurations, sorted."""
        return _names(await self._client.list(self._resource, label_selector=self._label.selector, metadata_only=True))

    def is_as_written(self, name: str, seen: Version | None) -> bool:
        """Returns whether a configuration that was seen (None for none) is the one that was written last."""
        return self._written.get(name) == seen

    async def restore(self, name: str, document: JsonObject) -> bool:
        """Writes a configuration again if somebody else changed or removed it; returns whether that was so.

        Raises:
            KubeError: as `write`.
        """

        async def attempt() -> bool:
            existing = await self._client.get(self._ref(name))
            is_ours = existing is not None and self._label.is_on(existing)
            if existing is not None and is_ours and self.is_as_written(name, version_of(existing)):
                return False
            await self._write(name, existing, document)
            _log.warning(_REMOVED if existing is None else _CHANGED, object=self._what(name))
            return True

        return await retry_on_conflict(attempt)

    async def _write(self, name: str, existing: JsonObject | None, document: JsonObject) -> None:
        if existing is None:
            written = await self._client.create(self._ref(name), document)
        else:
            if not self._lost_label(existing, name):
                self._label.check(existing, self._what(name))
            metadata: JsonObject = {**metadata_of(existing), "labels": _labels(existing) | _labels(document)}
            written = await self._client.replace(self._ref(name), {**document, "metadata": metadata})
        self._written[name] = version_of(written)

    def _lost_label(self, existing: JsonObject, name: str) -> bool:
        """Returns whether it is the very object that was written here, and nobody else claims it."""
        uid, _ = self._written.get(name, (None, None))
        return OPERATOR not in _labels(existing) and uid is not None and uid == version_of(existing)[0]

    def _ref(self, name: str) -> ObjectRef:
        return ObjectRef(self._resource, "", name)

    def _what(self, name: str) -> str:
        return f"{self._resource.kind} {name}"


class ConversionRegistration:
    """Writes the `conversion` of CustomResourceDefinitions.

    Args:
        client: the connection.
        identity: which operator this is; the value of its labels.
    """

    def __init__(self, client: KubeClient, *, identity: str) -> None:
        self._client = client
        self._label = _OwnerLabel(CONVERTER, identity)

    async def write(self, name: str, document: JsonObject) -> bool:
        """Registers the conversion of a definition; returns whether there is such a definition."""

        async def attempt() -> bool:
            existing = await self._client.get(_definition(name))
            if existing is None:
                return False
            if CONVERTER in _labels(existing):
                self._label.check(existing, f"the conversion of {name}")
            elif _strategy(existing) == "Webhook":
                _log.warning("the conversion by another webhook is taken over", crd=name)
            if await self._patch(name, existing, label=self._label.identity, conversion=_replacing(document)):
                _log.info("conversion registered", crd=name)
            return True

        return await retry_on_conflict(attempt)

    async def remove(self, name: str) -> None:
        """Ends the conversion of a definition, if it is this operator's."""

        async def attempt() -> None:
            existing = await self._client.get(_definition(name))
            if existing is not None and self._label.is_on(existing):
                none: JsonObject = {"strategy": "None", "webhook": None}
                await self._patch(name, existing, label=None, conversion=none)
                _log.info("conversion unregistered", crd=name)

        await retry_on_conflict(attempt)

    async def owned(self) -> tuple[str, ...]:
        """Returns the names of the definitions whose objects this operator converts, or did once, sorted."""
        selector = self._label.selector
        found = await self._client.list(CUSTOM_RESOURCE_DEFINITIONS, label_selector=selector, metadata_only=True)
        return _names(found)

    async def _patch(self, name: str, existing: JsonObject, *, label: str | None, conversion: JsonObject) -> bool:
        """Patches a definition unless it was changed meanwhile; returns whether that changed anything."""
        version = metadata_of(existing)["resourceVersion"]
        metadata: JsonObject = {"resourceVersion": version, "labels": {CONVERTER: label}}
        patch: JsonObject = {"metadata": metadata, "spec": {"conversion": conversion}}
        patched = await self._client.patch(_definition(name), patch)
        return metadata_of(patched).get("resourceVersion") != version


def version_of(configuration: JsonObject) -> Version:
    """Returns which state of which configuration this is."""
    metadata = metadata_of(configuration)
    return metadata.get("uid"), metadata.get("generation")


def _definition(name: str) -> ObjectRef:
    return ObjectRef(CUSTOM_RESOURCE_DEFINITIONS, "", name)


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


def _strategy(definition: JsonObject) -> JsonValue:
    try:
        return jsondoc.lookup(definition, "/spec/conversion/strategy")
    except KeyError:
        return None


def _labels(document: JsonObject) -> JsonObject:
    found = metadata_of(document).get("labels")
    return found if isinstance(found, dict) else {}


def _names(found: tuple[JsonObject, ...]) -> tuple[str, ...]:
    return tuple(sorted(str(metadata_of(item).get("name")) for item in found))
