"""Writes webhook configurations and conversions into the cluster, and takes them out again.

What is written carries the label of this operator; what another one wrote is not touched. Writing the same again is
harmless: the API server notices that nothing changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from addon_operator import jsondoc
from addon_operator.errors import KubeError
from addon_operator.hooks.bindings import AdmissionKind
from addon_operator.jsondoc import JsonObject, JsonValue
from addon_operator.kube.client import KubeClient
from addon_operator.kube.refs import CUSTOM_RESOURCE_DEFINITIONS, Resource, metadata_of
from addon_operator.logs import get_logger
from addon_operator.webhooks.configurations import CONVERTER, OPERATOR, RESOURCES

_log = get_logger("webhooks")

T = TypeVar("T")

_CONFLICTS: Final = 5
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

    async def configure(self, kind: AdmissionKind, document: JsonObject) -> None:
        """Writes a webhook configuration; one without webhooks is removed.

        Raises:
            KubeError: the API server refused it, or another operator has one of this name.
        """
        await _again_on_conflict(lambda: self._configure(RESOURCES[kind], document))

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
        path, what = resource.path(name=name), f"{resource.kind} {name}"
        existing = await self._get(path)
        if not document["webhooks"]:
            if existing is not None and self._owns(existing, OPERATOR):
                await self._delete(path, existing)
                _log.info("webhooks unregistered", reason=what)
            return
        if existing is None:
            await self._client.request("POST", resource.path(), body=jsondoc.dumps(document))
        else:
            self._check_owner(existing, OPERATOR, what)
            metadata: JsonObject = {**metadata_of(existing), "labels": _labels(existing) | _labels(document)}
            await self._client.request("PUT", path, body=jsondoc.dumps({**document, "metadata": metadata}))
        _log.info("webhooks registered", reason=what)

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
            if error.status == 404:
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
