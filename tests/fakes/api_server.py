"""An API server in memory: no sockets, no threads, in virtual time if the event loop is.

It implements the edge `ApiServer`, so that the verbs of the client, informers and all that is built on them run as they
are. `tests/contract/test_api_server.py` holds it to what a real one does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Final
from urllib.parse import unquote

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import KubeError
from addon_operator.kube.reachability import Reachability
from addon_operator.kube.refs import CUSTOM_RESOURCE_DEFINITIONS, Resource, metadata_of
from tests.fakes.api_objects import ApiObjects, Kind, Refused, Target, served
from tests.fakes.api_watch import events
from tests.fakes.selectors import selector

NAMESPACES: Final = Resource("", "v1", "Namespace", "namespaces", False, ("ns",), "namespace")
_REGISTERED: Final = (
    NAMESPACES,
    Resource("", "v1", "ConfigMap", "configmaps", True, ("cm",), "configmap"),
    Resource("", "v1", "Secret", "secrets", True, (), "secret"),
    Resource("", "v1", "Service", "services", True, ("svc",), "service"),
    Resource("", "v1", "ServiceAccount", "serviceaccounts", True, ("sa",), "serviceaccount"),
    Resource("", "v1", "Pod", "pods", True, ("po",), "pod"),
    Resource("", "v1", "Node", "nodes", False, ("no",), "node"),
    Resource("", "v1", "Event", "events", True, ("ev",), "event"),
    Resource("events.k8s.io", "v1", "Event", "events", True, ("ev",), "event"),
    Resource("apps", "v1", "Deployment", "deployments", True, ("deploy",), "deployment"),
    Resource("batch", "v1", "Job", "jobs", True, (), "job"),
    Resource("coordination.k8s.io", "v1", "Lease", "leases", True, (), "lease"),
    Resource("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", False, (), "clusterrole"),
    Resource(
        "admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", False
    ),
    Resource(
        "admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", False
    ),
    CUSTOM_RESOURCE_DEFINITIONS,
)
_WITH_STATUS: Final = frozenset(
    {"Namespace", "Service", "Pod", "Node", "Deployment", "Job", "CustomResourceDefinition"}
)
_ENDLESS_S: Final = 3600.0


class FakeApiServer:
    """The edge `ApiServer`, kept in memory; deterministic.

    Attributes:
        reachability: as the transport has it.
        objects: what it serves; the state is changed by `put` and `remove`, or through a client.
        asked: method and path of each request, in order; `WATCH` for streams.
        latency_s: how long each request takes.
        watch_delay_s: how much later a watch shows each event.
        fault: asked before each request (method and path); an error that it returns is raised.
    """

    def __init__(self, *, namespaces: Iterable[str] = ("default",), latency_s: float = 0.0) -> None:
        """Serves the kinds that operators use; `register` adds others."""
        self.reachability = Reachability()
        self.objects = ApiObjects()
        self.asked: list[tuple[str, str]] = []
        self.latency_s = latency_s
        self.watch_delay_s = 0.0
        self.fault: Callable[[str, str], KubeError | None] = lambda _method, _path: None
        self._is_away, self._outages = False, 0
        self._pages: dict[str, list[JsonObject]] = {}
        for resource in _REGISTERED:
            self.register(resource, has_status=resource.kind in _WITH_STATUS)
        for name in namespaces:
            self.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    # --- what others do, without a request

    def register(self, resource: Resource, *, has_status: bool = False) -> None:
        """Serves a kind from now on; definitions do that as well."""
        self.objects.register(resource, has_status=has_status)

    def put(self, document: JsonObject) -> JsonObject:
        """Creates an object, or replaces it whatever its version is; returns it."""
        target = self._target_of(document)
        fresh = {name: value for name, value in metadata_of(document).items() if name != "resourceVersion"}
        existing = self.objects.store.find(target.kind.stored, target.key)
        if existing is None:
            return self.objects.create(target, {**document, "metadata": fresh})
        metadata: JsonObject = {**fresh, "resourceVersion": metadata_of(existing)["resourceVersion"]}
        return self.objects.replace(target, {**document, "metadata": metadata})

    def find(self, resource: Resource, namespace: str, name: str) -> JsonObject | None:
        """Returns an object as it is stored; None if there is none. It must not be changed."""
        return self.objects.store.find((resource.group, resource.plural), (namespace, name))

    def remove(self, resource: Resource, namespace: str, name: str) -> None:
        """Deletes an object."""
        self.objects.delete(Target(self._kind(resource), namespace, name), {})

    def compact(self) -> None:
        """Forgets what has happened so far: watches from before it, and pages of lists, have to begin anew."""
        self.objects.store.compact()
        self._pages.clear()

    def go_away(self) -> None:
        """Breaks all watches, and answers nothing until `come_back`."""
        self._is_away = True
        self._outages += 1
        self.objects.store.wake()

    def come_back(self) -> None:
        """Answers again."""
        self._is_away = False

    # --- the edge

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout_s: float = 30.0,
    ) -> bytes:
        """Answers one request."""
        await self._arrive(method, path, timeout_s)
        document = jsondoc.loads(body) if body is not None else {}
        try:
            answer = self._answer(method, path, query or {}, document, content_type)
        except Refused as refused:
            raise refused.error(f"{method} {path}") from None
        finally:
            self.reachability.answered()
        return jsondoc.dumps(_shortened(answer) if "as=PartialObjectMetadata" in accept else answer)

    async def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str],
        accept: str = "application/json",
        idle_timeout_s: float,
        answer_within_s: float = 30.0,
    ) -> AsyncGenerator[bytes, None]:
        """Answers a watch."""
        await self._arrive("WATCH", path, answer_within_s)
        try:
            target = self._target(path)
            streams_list = query.get("sendInitialEvents") == "true"
            if streams_list and query.get("resourceVersionMatch") != "NotOlderThan":
                raise Refused(422, "Invalid", "resourceVersionMatch: Forbidden: sendInitialEvents requires it")
        except Refused as refused:
            raise refused.error(f"GET {path}") from None
        finally:
            self.reachability.answered()
        outages = self._outages
        found = events(
            self.objects,
            target,
            query,
            idle_timeout_s=idle_timeout_s,
            is_connected=lambda: self._outages == outages,
        )
        short = "as=PartialObjectMetadata" in accept
        try:
            async with contextlib.aclosing(found):
                async for kind, item in found:
                    if self.watch_delay_s:
                        await asyncio.sleep(self.watch_delay_s)
                    yield jsondoc.dumps({"type": kind, "object": _shortened(item) if short else item})
        except TimeoutError:
            raise self._unanswered("GET", path, "Timeout") from None
        except ConnectionError:
            raise self._unanswered("GET", path, "ConnectionLost") from None

    # --- requests

    async def _arrive(self, method: str, path: str, timeout_s: float) -> None:
        self.asked.append((method, path))
        if self.latency_s > timeout_s:
            await asyncio.sleep(timeout_s)
            raise self._unanswered(method, path, "Timeout")
        await asyncio.sleep(self.latency_s)
        if self._is_away:
            raise self._unanswered(method, path, "Unreachable")
        if (error := self.fault(method, path)) is not None:
            raise error

    def _unanswered(self, method: str, path: str, reason: str) -> KubeError:
        self.reachability.failed(reason)
        return KubeError(f"{method} {path}: no answer from the API server", status=0, reason=reason)

    def _answer(
        self, method: str, path: str, query: Mapping[str, str], document: JsonValue, content_type: str
    ) -> JsonObject:
        match path:
            case "/version":
                return {"major": "1", "minor": "36", "gitVersion": "v1.36.3"}
            case "/api":
                return self._discovery([kind for kind in self.objects.kinds.values() if not kind.resource.group])
            case "/apis":
                return self._discovery([kind for kind in self.objects.kinds.values() if kind.resource.group])
        target = self._target(path)
        if method == "GET" and not target.name:
            return self._list(target, query)
        if method == "GET":
            return served(target.kind, self.objects.existing(target))
        if method == "PATCH":
            return served(target.kind, self.objects.patch(target, document, content_type, query))
        assert isinstance(document, dict)
        match method, bool(target.name):
            case "POST", False:
                return served(target.kind, self.objects.create(target, document))
            case "PUT", True:
                return served(target.kind, self.objects.replace(target, document))
            case "DELETE", True:
                answer = self.objects.delete(target, document)
                return answer if answer["kind"] == "Status" else served(target.kind, answer)
        raise Refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    def _target(self, path: str) -> Target:
        parts = [unquote(part) for part in path.strip("/").split("/")]
        group, rest = ("", parts[1:]) if parts[0] == "api" else (parts[1] if len(parts) > 1 else "", parts[2:])
        version, *rest = rest or [""]
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces" and (group, version, rest[2]) in self.objects.kinds:
            namespace, rest = rest[1], rest[2:]
        plural, name, subresource = [*rest, "", "", ""][:3]
        kind = self.objects.kinds.get((group, version, plural))
        if kind is None or parts[0] not in {"api", "apis"}:
            # Without a Status, as a real one: it says nothing about an object.
            raise Refused(404, "Not Found")
        return Target(kind, namespace, name, subresource)

    def _target_of(self, document: JsonObject) -> Target:
        group, _, version = str(document["apiVersion"]).rpartition("/")
        metadata = metadata_of(document)
        for kind in self.objects.kinds.values():
            resource = kind.resource
            if (resource.group, resource.version, resource.kind) == (group, version, document["kind"]):
                return Target(kind, str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))
        raise AssertionError(f"{document['kind']} is not registered")

    def _kind(self, resource: Resource) -> Kind:
        return self.objects.kinds[resource.group, resource.version, resource.plural]

    def _list(self, target: Target, query: Mapping[str, str]) -> JsonObject:
        store, matches = self.objects.store, selector(query)
        if token := query.get("continue"):
            if token not in self._pages:
                raise Refused(410, "Expired", "The provided continue parameter is too old")
            items, version = self._pages.pop(token), token.partition("/")[0]
        else:
            items = [item for item in store.all(target.kind.stored, target.namespace) if matches(item)]
            version = str(store.version)
        limit = int(query.get("limit") or 0) or len(items)
        metadata: JsonObject = {"resourceVersion": version}
        if rest := items[limit:]:
            metadata["continue"] = more = f"{version}/{len(self._pages)}/{len(rest)}"
            self._pages[more] = rest
        resource = target.kind.resource
        page: list[JsonValue] = [served(target.kind, item) for item in items[:limit]]
        return {
            "apiVersion": resource.api_version, "kind": f"{resource.kind}List", "metadata": metadata, "items": page
        }  # fmt: skip

    @staticmethod
    def _discovery(kinds: Iterable[Kind]) -> JsonObject:
        groups: dict[str, dict[str, list[JsonValue]]] = {}
        for kind in kinds:
            resource = kind.resource
            status: JsonObject = {"subresource": "status", "responseKind": {"kind": resource.kind}}
            entry: JsonObject = {
                "resource": resource.plural, "singularResource": resource.singular,
                "scope": "Namespaced" if resource.namespaced else "Cluster",
                "shortNames": list(resource.short_names), "responseKind": {"kind": resource.kind},
                "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
                "subresources": [status] if kind.has_status else [],
            }  # fmt: skip
            groups.setdefault(resource.group, {}).setdefault(resource.version, []).append(entry)
        items: list[JsonValue] = [
            {
                "metadata": {"name": group} if group else {},
                "versions": [{"version": version, "resources": found} for version, found in versions.items()],
            }
            for group, versions in groups.items()
        ]
        return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items}


def _shortened(answer: JsonObject) -> JsonObject:
    items = answer.get("items")
    if isinstance(items, list):
        short: list[JsonValue] = [_shortened(item) for item in items if isinstance(item, dict)]
        return {**_meta("PartialObjectMetadataList"), "metadata": answer["metadata"], "items": short}
    if answer.get("kind") == "Status":
        return answer
    return {**_meta("PartialObjectMetadata"), "metadata": metadata_of(answer)}


def _meta(kind: str) -> JsonObject:
    return {"apiVersion": "meta.k8s.io/v1", "kind": kind}
