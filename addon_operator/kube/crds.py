"""Installs CustomResourceDefinitions before the first chart or hook needs them.

Called with the documents of `crds/` directories; which files count is the caller's business. An existing definition is
written only if its file changed, which an annotation with the digest of the content tells.

Source: contract.md 1.4, 3.9.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Literal

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import InputError, KubeError
from addon_operator.kube.client import KubeClient
from addon_operator.kube.refs import CUSTOM_RESOURCE_DEFINITIONS, ObjectRef, metadata_of
from addon_operator.kube.retries import retry_on_conflict

DIGEST_ANNOTATION = "addon-operator.io/content-digest"

_AT_ONCE = 8
_API_VERSION, _KIND = CUSTOM_RESOURCE_DEFINITIONS.api_version, CUSTOM_RESOURCE_DEFINITIONS.kind

_Change = Literal["created", "updated", "unchanged"]


@dataclasses.dataclass(frozen=True, slots=True)
class CrdReport:
    """What was done; names of definitions, sorted.

    Attributes:
        kinds: what these definitions have served, as `example.com/v1/Thing`, sorted. The API server lists a new one a
            moment after it serves it.
    """

    created: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """Where a definition comes from: the file, and a digest that is equal for equal definitions."""

    file: str
    digest: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Definition:
    """One document, with the labels and annotations that the operator wants on it."""

    file: str
    name: str
    document: JsonObject
    labels: JsonObject
    annotations: JsonObject

    @property
    def digest(self) -> str:
        """Of what the file says and the labels."""
        return str(self.annotations[DIGEST_ANNOTATION])

    @property
    def ref(self) -> ObjectRef:
        return ObjectRef(CUSTOM_RESOURCE_DEFINITIONS, "", self.name)

    def __str__(self) -> str:
        return f"{self.file}: CustomResourceDefinition {self.name}"


def contents(documents: Iterable[tuple[str, JsonObject]]) -> dict[str, Source]:
    """Returns which definitions documents hold, by name.

    Args:
        documents: (file, document); empty documents are skipped.

    Raises:
        InputError: as `install`.
    """
    return {definition.name: Source(definition.file, definition.digest) for definition in _read(documents, {})}


async def install(
    client: KubeClient,
    documents: Iterable[tuple[str, JsonObject]],
    *,
    labels: Mapping[str, str],
    timeout_s: float = 60.0,
) -> CrdReport:
    """Creates or updates definitions and waits until the API server serves them.

    Labels and annotations that others put on them stay, and so do the status and a conversion that the file does not
    mention. Documents are installed side by side; all are tried before an error is raised.

    Args:
        client: the connection.
        documents: (file, document); empty documents are skipped, and so are equal ones.
        labels: put on each definition.
        timeout_s: for each definition.

    Raises:
        InputError: a document is not a CustomResourceDefinition, or two of the same name differ; nothing was written.
        KubeError: one line for each definition that could not be installed, with its file.
    """
    definitions = _read(documents, labels)
    places = asyncio.Semaphore(_AT_ONCE)
    async with asyncio.TaskGroup() as group:
        running = [
            group.create_task(_guarded(client, definition, places, timeout_s), name=f"crd {definition.name}")
            for definition in definitions
        ]
    outcomes = [task.result() for task in running]
    failed = [outcome for outcome in outcomes if isinstance(outcome, KubeError)]
    if failed:
        raise failed[0].with_message("\n".join(str(error) for error in failed)) from failed[0]
    done = list(zip(definitions, outcomes, strict=True))
    return CrdReport(
        created=tuple(sorted(definition.name for definition, change in done if change == "created")),
        updated=tuple(sorted(definition.name for definition, change in done if change == "updated")),
        kinds=tuple(
            sorted(kind for definition, change in done if change != "unchanged" for kind in _kinds(definition.document))
        ),
    )


def _read(documents: Iterable[tuple[str, JsonObject]], labels: Mapping[str, str]) -> list[_Definition]:
    found: dict[str, _Definition] = {}
    for file, document in documents:
        if not document:
            continue
        definition = _definition(file, document, labels)
        other = found.setdefault(definition.name, definition)
        if other.digest != definition.digest:
            raise InputError(f"{definition}: another one is in {other.file}")
    return list(found.values())


def _definition(file: str, document: JsonObject, labels: Mapping[str, str]) -> _Definition:
    kind, api_version = document.get("kind"), document.get("apiVersion")
    if (kind, api_version) != (_KIND, _API_VERSION):
        raise InputError(f"{file}: {kind} of {api_version} is not a {_KIND} of {_API_VERSION}")
    metadata = metadata_of(document)
    name = metadata.get("name")
    if not isinstance(name, str) or not name or not isinstance(document.get("spec"), dict):
        raise InputError(f"{file}: a {_KIND} without metadata.name or spec")
    all_labels = {**_map(metadata.get("labels")), **labels}
    annotations = _map(metadata.get("annotations"))
    digest = jsondoc.digest({"labels": all_labels, "annotations": annotations, "spec": document["spec"]})
    return _Definition(file, name, document, all_labels, {**annotations, DIGEST_ANNOTATION: digest})


async def _guarded(
    client: KubeClient, definition: _Definition, places: asyncio.Semaphore, timeout_s: float
) -> _Change | KubeError:
    try:
        async with places, asyncio.timeout(timeout_s):
            change, written = await retry_on_conflict(lambda: _apply(client, definition))
            await _established(client, definition, written, timeout_s)
            return change
    except TimeoutError:
        return KubeError(f"{definition}: not established within {timeout_s:g} s", status=0, reason="Timeout")
    except KubeError as error:
        return error.with_message(f"{definition}: {error}")


async def _apply(client: KubeClient, definition: _Definition) -> tuple[_Change, JsonObject]:
    """Brings the definition up to date; returns what was needed and the object as it is now."""
    existing = await client.get(definition.ref)
    if existing is None:
        return "created", await client.create(definition.ref, _desired(definition))
    if "deletionTimestamp" in metadata_of(existing):
        raise KubeError("it is being deleted", status=409, reason="Terminating")
    if _digest_of(existing) == definition.digest:
        return "unchanged", existing
    return "updated", await client.replace(definition.ref, _merged(existing, definition))


def _desired(definition: _Definition) -> JsonObject:
    metadata: JsonObject = {
        "name": definition.name,
        "labels": definition.labels,
        "annotations": definition.annotations,
    }
    return {"apiVersion": _API_VERSION, "kind": _KIND, "metadata": metadata, "spec": definition.document["spec"]}


def _merged(existing: JsonObject, definition: _Definition) -> JsonObject:
    metadata = dict(metadata_of(existing))
    metadata["labels"] = {**_map(metadata.get("labels")), **definition.labels}
    metadata["annotations"] = {**_map(metadata.get("annotations")), **definition.annotations}
    spec = _map(definition.document["spec"])
    # A conversion webhook is registered by whoever serves it, after the file was written.
    conversion = _map(existing.get("spec")).get("conversion")
    if "conversion" not in spec and conversion is not None:
        spec["conversion"] = conversion
    return {**existing, "metadata": metadata, "spec": spec}


async def _established(client: KubeClient, definition: _Definition, written: JsonObject, timeout_s: float) -> None:
    if _is_established(written):
        return
    version = str(metadata_of(written).get("resourceVersion") or "")
    events = client.watch(definition.ref, resource_version=version, timeout_s=timeout_s)
    async with contextlib.aclosing(events):
        async for event in events:
            if event.get("type") in {"DELETED", "ERROR"}:
                break
            if _is_established(_map(event.get("object"))):
                return
    raise KubeError("gone or out of sight before it was established", status=409, reason="Conflict")


def _is_established(crd: JsonObject) -> bool:
    conditions = _map(crd.get("status")).get("conditions")
    states = {str(item.get("type")): item for item in _objects(conditions)}
    names = states.get("NamesAccepted", {})
    if names.get("status") == "False":
        message = f"its names are taken: {names.get('message')}"
        raise KubeError(message, status=409, reason=str(names.get("reason") or "NamesNotAccepted"))
    return states.get("Established", {}).get("status") == "True"


def _digest_of(crd: JsonObject) -> JsonValue:
    return _map(metadata_of(crd).get("annotations")).get(DIGEST_ANNOTATION)


def _objects(value: JsonValue) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _kinds(crd: JsonObject) -> list[str]:
    spec = _map(crd["spec"])
    served = [version.get("name") for version in _objects(spec.get("versions")) if version.get("served")]
    return [f"{spec.get('group')}/{version}/{_map(spec.get('names')).get('kind')}" for version in served]


def _map(value: JsonValue) -> JsonObject:
    return dict(value) if isinstance(value, dict) else {}
