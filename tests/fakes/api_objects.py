"""What the verbs of Kubernetes do to objects, without HTTP: versions, conflicts, finalizers, owners, definitions."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import KubeError
from addon_operator.kube.client import PatchType
from addon_operator.kube.refs import CUSTOM_RESOURCE_DEFINITIONS, Resource, metadata_of
from addon_operator.redaction.messages import redact_status
from tests.fakes.api_patches import decoded_secret, json_patched, merged
from tests.fakes.object_store import Key, ObjectStore

BEGINNING: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""The wall clock when the clock of the event loop shows 0."""

# Kinds of these groups have no metadata.generation, and of the first one no update needs a resourceVersion.
_PLAIN_GROUPS: Final = frozenset({"", "events.k8s.io", "coordination.k8s.io"})
_UNCONDITIONAL: Final = frozenset({"", "apps", "batch", "events.k8s.io"})
_KEPT: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


class Refused(Exception):
    """What an API server answers with a `Status`."""

    def __init__(self, code: int, reason: str, message: str = "") -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message

    @property
    def status(self) -> JsonObject:
        """The `Status`."""
        return {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        }  # fmt: skip

    def error(self, request: str) -> KubeError:
        """Returns what the transport raises then."""
        message = redact_status(self.status, is_secret="/secrets" in request)
        text = f"{request}: {self.code} {self.reason}" + (f": {message}" if message else "")
        return KubeError(text, status=self.code, reason=self.reason)


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """A kind in one version, and whether its status is a subresource."""

    resource: Resource
    has_status: bool = False

    @property
    def stored(self) -> tuple[str, str]:
        """Under what its objects are stored, in whatever version."""
        return (self.resource.group, self.resource.plural)


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """What a request is about; an empty name means the collection."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> Key:
        return (self.namespace if self.kind.resource.namespaced else "", self.name)

    @property
    def title(self) -> str:
        """As the messages of the API server name it."""
        resource = self.kind.resource
        return f'{resource.plural}{"." if resource.group else ""}{resource.group} "{self.name}"'


class ApiObjects:
    """Creates, replaces, patches and deletes objects of registered kinds."""

    def __init__(self) -> None:
        self.store = ObjectStore()
        self.kinds: dict[tuple[str, str, str], Kind] = {}
        self._made = 0

    def register(self, resource: Resource, *, has_status: bool = False) -> None:
        """Serves a kind from now on."""
        self.kinds[resource.group, resource.version, resource.plural] = Kind(resource, has_status)

    # --- verbs

    def create(self, target: Target, document: JsonObject) -> JsonObject:
        """Creates an object and returns it."""
        metadata = dict(metadata_of(document))
        if "generateName" in metadata and not metadata.get("name"):
            metadata["name"] = f"{metadata['generateName']}{self._made + 1:05d}"
        target = dataclasses.replace(target, name=str(metadata.get("name") or ""))
        self._check(target, document, metadata)
        if target.kind.resource.namespaced and not self.store.find(("", "namespaces"), ("", target.namespace)):
            raise Refused(404, "NotFound", f'namespaces "{target.namespace}" not found')
        if self.store.find(target.kind.stored, target.key) is not None:
            raise Refused(409, "AlreadyExists", f"{target.title} already exists")
        if metadata.pop("resourceVersion", ""):
            raise Refused(400, "BadRequest", "resourceVersion should not be set on objects to be created")
        self._made += 1
        metadata |= {"uid": f"{self._made:08d}-0000-4000-8000-000000000000", "creationTimestamp": _now()}
        if target.kind.resource.namespaced:
            metadata["namespace"] = target.namespace
        if target.kind.resource.group not in _PLAIN_GROUPS:
            metadata["generation"] = 1
        new: JsonObject = {**_named(target.kind.resource), **decoded_secret(document), "metadata": metadata}
        if target.kind.has_status:
            new.pop("status", None)
        return self._put(target, {}, new)

    def replace(self, target: Target, document: JsonObject) -> JsonObject:
        """Replaces an object, or its status, and returns it."""
        before = self.existing(target)
        metadata = metadata_of(document)
        self._check(target, document, metadata)
        if not metadata.get("resourceVersion") and target.kind.resource.group not in _UNCONDITIONAL:
            raise Refused(
                422, "Invalid", f"{target.title} is invalid: metadata.resourceVersion: Invalid value: 0: must be "
                "specified for an update",
            )  # fmt: skip
        return self._update(target, before, decoded_secret(document))

    def patch(self, target: Target, patch: JsonValue, type_: str, query: Mapping[str, str]) -> JsonObject:
        """Changes an object, or its status, and returns it; server-side apply creates it if there is none."""
        if type_ == PatchType.APPLY:
            assert isinstance(patch, dict)
            return self._apply(target, patch, query)
        before = self.existing(target)
        if type_ == PatchType.JSON:
            try:
                return self._update(target, before, json_patched(before, patch))
            except ValueError as error:
                raise Refused(422, "Invalid", "the server rejected our request due to an error in it") from error
        wanted = merged(before, patch)
        assert isinstance(wanted, dict)
        return self._update(target, before, decoded_secret(wanted))

    def delete(self, target: Target, options: JsonObject) -> JsonObject:
        """Deletes an object, or marks it as to be deleted, and returns the object or a `Status`."""
        before = self.existing(target)
        wanted = options.get("preconditions")
        for name, value in (wanted if isinstance(wanted, dict) else {}).items():
            if metadata_of(before).get(name) != value:
                raise _conflict(target, f"Precondition failed: {name}")
        if options.get("propagationPolicy") == "Orphan":
            self._orphan(before)
        marked = self._marked(before)
        if metadata_of(before).get("finalizers"):
            return self.store.put(target.kind.stored, target.key, marked)
        if options.get("propagationPolicy") == "Foreground":
            # The garbage collector takes no time here.
            shown = self.store.put(target.kind.stored, target.key, marked)
            self._remove(target.kind.stored, target.key)
            return shown
        self._remove(target.kind.stored, target.key)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

    def existing(self, target: Target) -> JsonObject:
        """Returns an object; 404 if there is none."""
        found = self.store.find(target.kind.stored, target.key)
        if found is None:
            raise Refused(404, "NotFound", f"{target.title} not found")
        if target.subresource and not (target.subresource == "status" and target.kind.has_status):
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        return found

    # --- what they consist of

    def _check(self, target: Target, document: JsonObject, metadata: JsonObject) -> None:
        resource = target.kind.resource
        for field, value in _named(resource).items():
            if document.get(field, value) != value:
                raise Refused(400, "BadRequest", f"the {field} in the data does not match the expected one")
        if not target.name:
            raise Refused(422, "Invalid", f"{resource.kind} is invalid: metadata.name: Required value")
        if metadata.get("name", target.name) != target.name:
            raise Refused(400, "BadRequest", "the name of the object does not match the name on the URL")
        if resource.namespaced and metadata.get("namespace", target.namespace) != target.namespace:
            raise Refused(400, "BadRequest", "the namespace of the provided object does not match the namespace sent")

    def _update(
        self, target: Target, before: JsonObject, wanted: JsonObject, *, manager: str | None = None
    ) -> JsonObject:
        old, new = metadata_of(before), dict(metadata_of(wanted))
        if new.get("resourceVersion", old["resourceVersion"]) != old["resourceVersion"]:
            raise _conflict(target, "the object has been modified; please apply your changes to the latest version")
        if new.get("uid", old["uid"]) != old["uid"]:
            raise _conflict(target, "Precondition failed: UID in precondition")
        for name in ("name", "namespace", *_KEPT):
            new.pop(name, None)
            if name in old:
                new[name] = old[name]
        after: JsonObject = {**wanted, **_named(target.kind.resource), "metadata": new}
        if target.subresource:
            after = {**before, "status": wanted.get("status")}
        elif target.kind.has_status:
            after = {**{name: value for name, value in after.items() if name != "status"}, **_status_of(before)}
        if "generation" in new and _wishes(after) != _wishes(before):
            generation = new["generation"]
            assert isinstance(generation, int)
            metadata_of(after)["generation"] = generation + 1
        if "deletionTimestamp" in new and not new.get("finalizers"):
            self._remove(target.kind.stored, target.key)
            return after
        return self._put(target, before, after, manager=manager)

    def _put(self, target: Target, before: JsonObject, after: JsonObject, *, manager: str | None = None) -> JsonObject:
        if manager is None:
            self.store.owners(target.kind.stored, target.key).wrote(before, after)
        stored = self.store.put(target.kind.stored, target.key, after)
        if target.kind.resource == CUSTOM_RESOURCE_DEFINITIONS:
            self._serve(stored)
        return stored

    def _apply(self, target: Target, wanted: JsonObject, query: Mapping[str, str]) -> JsonObject:
        manager = query.get("fieldManager", "")
        if not manager:
            raise Refused(422, "Invalid", "PatchOptions is invalid: fieldManager: Required value")
        if self.store.find(target.kind.stored, target.key) is None:
            self.create(target, {**wanted, "metadata": {**metadata_of(wanted), "name": target.name}})
            owners = self.store.owners(target.kind.stored, target.key)
            owners.wrote(wanted, {})
            owners.applied({}, wanted, manager)
            return self.existing(target)
        before = self.existing(target)
        owners = self.store.owners(target.kind.stored, target.key)
        conflicts = owners.conflicts(before, wanted, manager)
        if conflicts and query.get("force") != "true":
            raise Refused(409, "Conflict", f"Apply failed with {len(conflicts)} conflict: {', '.join(conflicts)}")
        return self._update(target, before, owners.applied(before, wanted, manager), manager=manager)

    def _marked(self, item: JsonObject) -> JsonObject:
        metadata = metadata_of(item)
        if "deletionTimestamp" in metadata:
            return item
        marks: JsonObject = {"deletionTimestamp": _now(), "deletionGracePeriodSeconds": 0}
        return {**item, "metadata": {**metadata, **marks}}

    def _remove(self, stored: tuple[str, str], key: Key) -> None:
        item = self.store.find(stored, key)
        if item is None:
            return
        resource = CUSTOM_RESOURCE_DEFINITIONS
        if stored == (resource.group, resource.plural):
            self._withdraw(item)
        self.store.remove(stored, key)
        for kind, place, other in self.store.everything():
            if (stored == ("", "namespaces") and place[0] == key[1]) or _is_owned_by(other, item):
                self._remove(kind, place)

    def _orphan(self, owner: JsonObject) -> None:
        for kind, key, item in self.store.everything():
            if _is_owned_by(item, owner):
                metadata = {name: value for name, value in metadata_of(item).items() if name != "ownerReferences"}
                self.store.put(kind, key, {**item, "metadata": metadata})

    def _serve(self, crd: JsonObject) -> None:
        """Does what the controllers of definitions do, at once: the write itself returns what was before that."""
        resources = served_by(crd)
        for resource, has_status in resources:
            self.register(resource, has_status=has_status)
        conditions: JsonValue = [{"type": name, "status": "True"} for name in ("NamesAccepted", "Established")]
        if crd.get("status") is None:
            kind = self.kinds["apiextensions.k8s.io", "v1", "customresourcedefinitions"]
            key = ("", str(metadata_of(crd)["name"]))
            self.store.put(kind.stored, key, {**crd, "status": {"conditions": conditions}})

    def _withdraw(self, crd: JsonObject) -> None:
        for resource, _ in served_by(crd):
            for key in [key for kind, key, _ in self.store.everything() if kind == (resource.group, resource.plural)]:
                self.store.remove((resource.group, resource.plural), key)
            self.kinds.pop((resource.group, resource.version, resource.plural), None)


def served(kind: Kind, item: JsonObject) -> JsonObject:
    """Returns an object in the version in which it is asked for."""
    return {**item, "apiVersion": kind.resource.api_version, "kind": kind.resource.kind}


def served_by(crd: JsonObject) -> list[tuple[Resource, bool]]:
    """Returns the resources of a definition, and whether each has a subresource for its status."""
    spec, found = crd["spec"], []
    assert isinstance(spec, dict)
    names, versions = spec["names"], spec["versions"]
    assert isinstance(names, dict)
    assert isinstance(versions, list)
    short_names = names.get("shortNames")
    for version in versions:
        assert isinstance(version, dict)
        if not version.get("served"):
            continue
        resource = Resource(
            str(spec["group"]),
            str(version["name"]),
            str(names["kind"]),
            str(names["plural"]),
            spec.get("scope") == "Namespaced",
            short_names=tuple(map(str, short_names)) if isinstance(short_names, list) else (),
            singular=str(names.get("singular") or str(names["kind"]).lower()),
        )
        subresources = version.get("subresources")
        found.append((resource, isinstance(subresources, dict) and "status" in subresources))
    return found


def _now() -> str:
    try:
        passed_s = asyncio.get_running_loop().time()
    except RuntimeError:
        passed_s = 0.0
    return (BEGINNING + timedelta(seconds=passed_s)).isoformat(timespec="seconds").replace("+00:00", "Z")


def _named(resource: Resource) -> JsonObject:
    return {"apiVersion": resource.api_version, "kind": resource.kind}


def _status_of(item: JsonObject) -> JsonObject:
    return {"status": item["status"]} if "status" in item else {}


def _wishes(item: JsonObject) -> JsonObject:
    return {name: value for name, value in item.items() if name not in {"metadata", "status", "apiVersion", "kind"}}


def _conflict(target: Target, why: str) -> Refused:
    return Refused(409, "Conflict", f"Operation cannot be fulfilled on {target.title}: {why}")


def _is_owned_by(item: JsonObject, owner: JsonObject) -> bool:
    references = metadata_of(item).get("ownerReferences")
    uids = [one.get("uid") for one in references if isinstance(one, dict)] if isinstance(references, list) else []
    return uids == [metadata_of(owner)["uid"]]
