"""The vocabulary of the Kubernetes API: kinds, object keys and paths.

Pure. It is not a client: nothing here knows how requests are made. Everything that talks about objects uses it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal, Self, TypeAlias
from urllib.parse import quote

from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import InvariantBroken

WatchEvent: TypeAlias = Literal["Added", "Modified", "Deleted"]
"""What happened to an object; one that starts or ceases to match selectors is added or deleted."""


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class ObjectKey:
    """Which object: the four names that identify it in one cluster.

    Attributes:
        api_version: `v1`, `apps/v1`.
        kind: `ConfigMap`.
        namespace: empty for objects without one.
        name: the object's name.
    """

    api_version: str
    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, document: Mapping[str, JsonValue]) -> Self:
        """Reads the key of an object; names that are absent are empty."""
        metadata = document.get("metadata")
        names = metadata if isinstance(metadata, dict) else {}
        return cls(
            api_version=str(document.get("apiVersion") or ""),
            kind=str(document.get("kind") or ""),
            namespace=str(names.get("namespace") or ""),
            name=str(names.get("name") or ""),
        )

    def __str__(self) -> str:
        """Returns `ns/Kind/name`, or `Kind/name` for objects without a namespace."""
        return "/".join(part for part in (self.namespace, self.kind, self.name) if part)


@dataclasses.dataclass(frozen=True, slots=True)
class Resource:
    """One resource type in one version, as the API server serves it.

    Attributes:
        group: empty for the core group.
        version: `v1`.
        kind: `Deployment`.
        plural: `deployments`; the word in the path.
        namespaced: whether its objects live in namespaces.
        short_names: `deploy`.
        singular: `deployment`; may be empty.
        verbs: what the server allows, `get`, `list`, `watch`, ...
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    singular: str = ""
    verbs: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """Returns what objects carry as `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Builds the path of a collection, an object or a subresource.

        Args:
            namespace: None or empty for all namespaces; ignored for resources that have none.
            name: None for the collection.
            subresource: such as `status`; needs a name.

        Raises:
            InvariantBroken: a name of a namespaced object without its namespace, or a subresource of a collection.
        """
        if (name and self.namespaced and not namespace) or (subresource and not name):
            raise InvariantBroken(f"the path of one {self.kind} needs its namespace and its name")
        prefix = ["apis", self.group] if self.group else ["api"]
        place = ["namespaces", quote(namespace, safe="")] if self.namespaced and namespace else []
        last = [quote(part, safe="") for part in (name, subresource) if part]
        return "/" + "/".join([*prefix, self.version, *place, self.plural, *last])


@dataclasses.dataclass(frozen=True, slots=True)
class ObjectRef:
    """Where the API server serves one object, or a subresource of it.

    Attributes:
        resource: its kind.
        namespace: empty for kinds without one.
        name: empty for an object that the server is to name.
        subresource: such as `status`; empty for the object itself.
    """

    resource: Resource
    namespace: str
    name: str
    subresource: str = ""

    @property
    def path(self) -> str:
        """The path from the server's root."""
        return self.resource.path(self.namespace, self.name, self.subresource)

    @property
    def key(self) -> ObjectKey:
        """Which object it is, in the words of the server."""
        namespace = self.namespace if self.resource.namespaced else ""
        return ObjectKey(self.resource.api_version, self.resource.kind, namespace, self.name)


CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps", True)
SECRETS = Resource("", "v1", "Secret", "secrets", True)
EVENTS = Resource("events.k8s.io", "v1", "Event", "events", True)
LEASES = Resource("coordination.k8s.io", "v1", "Lease", "leases", True)
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False
)


def path_template(path: str) -> str:
    """Replaces the names in a path by placeholders, so that it can be a metric label.

    `/api/v1/namespaces/prod/pods/web-0/log` becomes `/api/v1/namespaces/{namespace}/pods/{name}/log`.
    """
    parts = path.strip("/").split("/")
    start = {"api": 2, "apis": 3}.get(parts[0], len(parts))
    rest = parts[start:]
    names = [1] if len(rest) >= 2 else []
    if len(rest) >= 3 and rest[0] == "namespaces" and rest[2] not in {"status", "finalize"}:
        names = [1, 3]
    for place in names:
        if place < len(rest):
            rest[place] = "{namespace}" if place == 1 and len(names) == 2 else "{name}"
    return "/" + "/".join(parts[:start] + rest)


def permission(verb: str, resource: Resource, *, namespace: str | None = None, subresource: str | None = None) -> str:
    """Says what RBAC must allow, for messages about what it does not.

    Args:
        verb: of RBAC: `list`, `create`, ...
        resource: on what.
        namespace: None or empty for all namespaces; ignored for resources that have none.
        subresource: such as `status`.
    """
    words = f"{resource.plural}/{subresource}" if subresource else resource.plural
    scope = f"in namespace {namespace}" if resource.namespaced and namespace else "in the whole cluster"
    return f'verb {verb} on resource {words} of API group "{resource.group}" {scope}'


def metadata_of(document: Mapping[str, JsonValue]) -> JsonObject:
    """Returns the metadata of an object as it is, not a copy; empty if there is none."""
    metadata = document.get("metadata")
    return metadata if isinstance(metadata, dict) else {}
