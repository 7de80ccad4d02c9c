"""What the API server serves: the answer of aggregated discovery, indexed by every name of a kind.

Pure: the client fetches the two documents, this module reads them. Callers keep the result and ask for a new one when
a kind is missing. Source: Kubernetes KEP-3352 (aggregated discovery).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from addon_operator.documents.jsondoc import JsonObject, JsonValue, digest
from addon_operator.errors import KubeError
from addon_operator.kube.refs import Resource, metadata_of

ACCEPT = ",".join(
    f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList" for version in ("v2", "v2beta1")
)


class Discovery:
    """All resource types of a cluster at one moment."""

    def __init__(self, resources: Iterable[Resource], api_versions: Iterable[str]) -> None:
        """Builds the index.

        Args:
            resources: in the server's order of preference; of several that share a name the first one wins.
            api_versions: versions and versions with kinds, in any order.
        """
        self._api_versions = tuple(sorted(set(api_versions)))
        self._by_name: dict[str, list[Resource]] = {}
        found = list(resources)
        for resource in found:
            self._add(resource, (resource.kind, resource.plural, resource.singular))
        for resource in found:
            self._add(resource, resource.short_names)

    def _add(self, resource: Resource, names: Iterable[str]) -> None:
        for name in {name.lower() for name in names if name}:
            known = self._by_name.setdefault(name, [])
            if resource not in known:
                known.append(resource)

    def find(self, name: str, api_version: str | None = None) -> Resource | None:
        """Returns a resource type by kind, plural, singular or short name, case-insensitive; None if it is not served.

        Args:
            name: `Deployment`, `deployments`, `deploy`, ...
            api_version: `apps/v1`; None takes the server's preferred one, the core group first.
        """
        for candidate in self._by_name.get(name.lower(), ()):
            if api_version is None or candidate.api_version == api_version:
                return candidate
        return None

    def resource(self, name: str, api_version: str | None = None) -> Resource:
        """Returns a resource type as `find` does.

        Raises:
            KubeError: 404 `NoSuchKind`, naming both: it is not served. A CRD can bring the kind later.
        """
        if (found := self.find(name, api_version)) is not None:
            return found
        version = f" of {api_version}" if api_version else ""
        raise KubeError(f"the API server does not serve the kind {name}{version}", status=404, reason="NoSuchKind")

    def api_versions(self) -> tuple[str, ...]:
        """Lists what charts see as `.Capabilities.APIVersions`, sorted: `apps/v1`, `apps/v1/Deployment`, ..."""
        return self._api_versions

    @cached_property
    def digest(self) -> str:
        """A digest that is equal for clusters that look the same to charts."""
        return digest(list(self._api_versions))


def parse(core: JsonValue, groups: JsonValue) -> Discovery:
    """Reads the answers of `/api` and `/apis`.

    Raises:
        KubeError: the server does not speak aggregated discovery (Kubernetes before 1.26).
    """
    resources: list[Resource] = []
    api_versions: list[str] = []
    for document in (core, groups):
        if not isinstance(document, dict) or document.get("kind") != "APIGroupDiscoveryList":
            message = "the API server has no aggregated discovery; Kubernetes 1.26 or later is needed"
            raise KubeError(message, status=406, reason="NotAcceptable")
        for group in _objects(document, "items"):
            group_name = str(metadata_of(group).get("name") or "")
            for version in _objects(group, "versions"):
                _read_version(group_name, version, resources, api_versions)
    return Discovery(resources, api_versions)


def _read_version(group: str, document: JsonObject, resources: list[Resource], api_versions: list[str]) -> None:
    version = str(document["version"])
    api_version = f"{group}/{version}" if group else version
    api_versions.append(api_version)
    for item in _objects(document, "resources"):
        # Subresource kinds count as well: helm lists apps/v1/Scale, and charts render with the same list here.
        kinds = [_kind(item), *(_kind(part) for part in _objects(item, "subresources"))]
        api_versions += [f"{api_version}/{kind}" for kind in kinds if kind]
        if kinds[0]:
            resources.append(_resource(group, version, item))


def _resource(group: str, version: str, item: JsonObject) -> Resource:
    return Resource(
        group=group,
        version=version,
        kind=_kind(item),
        plural=str(item["resource"]),
        namespaced=item.get("scope") == "Namespaced",
        short_names=_strings(item.get("shortNames")),
        singular=str(item.get("singularResource") or ""),
        verbs=_strings(item.get("verbs")),
    )


def _kind(item: JsonObject) -> str:
    response = item.get("responseKind")
    return str(response.get("kind") or "") if isinstance(response, dict) else ""


def _objects(document: JsonObject, key: str) -> Iterator[JsonObject]:
    items = document.get(key)
    return (item for item in (items if isinstance(items, list) else []) if isinstance(item, dict))


def _strings(value: JsonValue) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else ()
