"""What the operator asks of the API server, in the verbs of Kubernetes: objects in, objects out.

The edge to the API server is `ApiServer`: bytes, since list and watch of thousands of objects are read where they are
kept, and since a fake that speaks bytes and paths exercises these verbs, the informers and everything above them. What
a verb means is written once, here: which path, which content type, that a 404 of the object is None, what a conflict
is. The real one is `transport.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import AsyncGenerator, Mapping
from typing import Final, Literal, Protocol

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import KubeError
from addon_operator.kube import discovery
from addon_operator.kube.history import History
from addon_operator.kube.reachability import Reachability
from addon_operator.kube.refs import ObjectRef, Resource
from addon_operator.kube.retries import retry_until_answered

_JSON: Final = "application/json"
# As client-go's metadata client: servers that do not know the short form may send whole objects.
METADATA_ONLY: Final = f"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{_JSON}"
METADATA_ONLY_LIST: Final = f"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{_JSON}"
TIMEOUT_S: Final = 30.0

Propagation = Literal["Foreground", "Background", "Orphan"]


class PatchType(enum.StrEnum):
    """What a patch looks like; the values are content types."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class ApiServer(Protocol):
    """One API server, as far as it can be asked: requests in bytes, with retries, limits and deadlines in them."""

    @property
    def reachability(self) -> Reachability:
        """Whether it answers, as the requests show that are made anyway."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout_s: float = TIMEOUT_S,
    ) -> bytes:
        """Sends one request and returns the body of the answer.

        Args:
            method: `GET`, `POST`, `PUT`, `PATCH`, `DELETE`.
            path: from the server's root, as `Resource.path` builds it.
            query: parameters, not yet escaped.
            body: sent as it is.
            content_type: of the body; tells the kinds of patches apart.
            accept: of the answer.
            timeout_s: for everything, waiting and retries included.

        Raises:
            KubeError: the server refused (its status and reason), or there was no usable answer (status 0).
        """

    def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str],
        accept: str = "application/json",
        idle_timeout_s: float,
        answer_within_s: float = 30.0,
    ) -> AsyncGenerator[bytes, None]:
        """Sends a GET whose answer has no end, such as a watch, and yields it line by line.

        Lines are of any length, without their line break; empty ones are left out. It ends when the server ends it.
        Wrap it in `contextlib.aclosing` when leaving early.

        Args:
            path: from the server's root.
            query: parameters, not yet escaped.
            accept: of the answer.
            idle_timeout_s: the longest silence.
            answer_within_s: how long the beginning of the answer may take, once the request is sent.

        Raises:
            KubeError: the server refused, went silent (status 0, `Timeout`) or the connection broke (status 0).
        """


class KubeClient:
    """The verbs of Kubernetes on one API server; each is one request.

    Every method raises KubeError: the API server refused (its status and reason), or there was no usable answer
    (status 0). Objects are returned as the server has them after the request.

    Attributes:
        api: the server; for list and watch in bytes.
        history: whether the server has gone back to an older state.
    """

    def __init__(self, api: ApiServer) -> None:
        """Takes its dependencies; sends nothing yet."""
        self.api = api
        self.history = History()

    @property
    def reachability(self) -> Reachability:
        """Whether the server answers."""
        return self.api.reachability

    # --- objects

    async def get(
        self, ref: ObjectRef, *, metadata_only: bool = False, timeout_s: float = TIMEOUT_S
    ) -> JsonObject | None:
        """Returns an object; None if the API server says that it does not exist, or does not serve its kind.

        A 404 of something else, such as a proxy, is an error: 502 `BadGateway`.
        """
        try:
            return await self.get_existing(ref, metadata_only=metadata_only, timeout_s=timeout_s)
        except KubeError as error:
            await self.confirm_absent(error, ref.resource)
            return None

    async def get_existing(
        self, ref: ObjectRef, *, metadata_only: bool = False, timeout_s: float = TIMEOUT_S
    ) -> JsonObject:
        """Returns an object; that it does not exist is an error, too (`KubeError.not_found`)."""
        accept = METADATA_ONLY if metadata_only else _JSON
        return await self._send("GET", ref.path, accept=accept, timeout_s=timeout_s)

    async def create(self, ref: ObjectRef, document: JsonObject, *, timeout_s: float = TIMEOUT_S) -> JsonObject:
        """Creates an object, or a subresource such as `eviction`; the name of a new object is that of the document."""
        path = ref.path if ref.subresource else ref.resource.path(ref.namespace)
        return await self._send("POST", path, document, timeout_s=timeout_s)

    async def replace(self, ref: ObjectRef, document: JsonObject, *, timeout_s: float = TIMEOUT_S) -> JsonObject:
        """Replaces an object that exists; a conflict if the document's resourceVersion is not the present one."""
        return await self._send("PUT", ref.path, document, timeout_s=timeout_s)

    async def patch(
        self, ref: ObjectRef, patch: JsonValue, type_: PatchType = PatchType.MERGE, *, metadata_only: bool = False
    ) -> JsonObject:
        """Changes an object that exists.

        Args:
            ref: which one.
            patch: a mapping for a merge patch (RFC 7386), a list of operations for a JSON patch (RFC 6902).
            type_: which of them it is.
            metadata_only: no more is returned.
        """
        accept = METADATA_ONLY if metadata_only else _JSON
        return await self._send("PATCH", ref.path, patch, content_type=type_, accept=accept)

    async def apply(
        self, ref: ObjectRef, document: JsonObject, *, field_manager: str, force: bool = False
    ) -> JsonObject:
        """Creates an object or changes it, so that it has these fields: server-side apply.

        Args:
            ref: which one.
            document: the fields that the field manager wants, with apiVersion and kind.
            field_manager: whose fields they are; those that it wanted before and leaves out go away.
            force: takes fields over from other field managers, which are a conflict otherwise.
        """
        query = {"fieldManager": field_manager, "force": "true" if force else "false"}
        return await self._send("PATCH", ref.path, document, query=query, content_type=PatchType.APPLY)

    async def delete(
        self, ref: ObjectRef, *, propagation: Propagation | None = None, uid: str = "", resource_version: str = ""
    ) -> JsonObject | None:
        """Deletes an object.

        Args:
            ref: which one.
            propagation: what becomes of its dependents; None leaves that to the kind.
            uid: a conflict if the object is another one; empty for any.
            resource_version: a conflict if the object was changed; empty for any.

        Returns:
            None if there was none, as `get`; the object if it goes on to exist until its finalizers are done; else a
            `Status`.
        """
        wanted = {"uid": uid, "resourceVersion": resource_version}
        preconditions: JsonObject = {name: text for name, text in wanted.items() if text}
        options: JsonObject = {
            **({"propagationPolicy": propagation} if propagation else {}),
            **({"preconditions": preconditions} if preconditions else {}),
        }
        body: JsonObject = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
        try:
            return await self._send("DELETE", ref.path, body if options else None)
        except KubeError as error:
            await self.confirm_absent(error, ref.resource)
            return None

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
    ) -> tuple[JsonObject, ...]:
        """Returns objects of a kind, all at once: for a few; informers read many.

        Args:
            resource: their kind.
            namespace: empty for all.
            label_selector: as in the API; empty for all.
            field_selector: as in the API; empty for all.
            metadata_only: no more is returned.
        """
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        query = {name: text for name, text in selectors.items() if text}
        accept = METADATA_ONLY_LIST if metadata_only else _JSON
        items = (await self._send("GET", resource.path(namespace), query=query, accept=accept)).get("items")
        return tuple(item for item in items if isinstance(item, dict)) if isinstance(items, list) else ()

    async def watch(
        self, ref: ObjectRef, *, resource_version: str, timeout_s: float
    ) -> AsyncGenerator[JsonObject, None]:
        """Yields the changes of one object as events of a watch (`type`, `object`): for a moment; informers go on.

        Wrap it in `contextlib.aclosing` when leaving early.

        Args:
            ref: which one.
            resource_version: the state after which changes count.
            timeout_s: when it ends.
        """
        query = {
            "watch": "1",
            "fieldSelector": f"metadata.name={ref.name}",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(int(timeout_s) + 1),
        }
        lines = self.api.stream(ref.resource.path(ref.namespace), query=query, idle_timeout_s=timeout_s)
        async with contextlib.aclosing(lines):
            async for line in lines:
                yield _decoded(line, f"watch of {ref.path}")

    # --- the server

    async def is_served(self, resource: Resource) -> bool:
        """Returns whether the API server serves a kind in this version, in two requests."""
        return (await self.discover()).find(resource.plural, resource.api_version) is not None

    async def confirm_absent(self, error: KubeError, resource: Resource) -> None:
        """Returns if a refusal means that an object, its namespace or its kind does not exist.

        A 404 without the `Status` of the API server may come from a proxy in front of it: then the server is asked
        whether it serves the kind.

        Args:
            error: what a request for the object has raised.
            resource: the kind of the object.

        Raises:
            KubeError: `error` itself if it is no 404; 502 `BadGateway` if the kind is served.
        """
        if error.not_found:
            return
        if error.status != 404:
            raise error
        if await self.is_served(resource):
            message = f"{error}, though the API server serves the kind: a proxy in front of it may have said so"
            raise KubeError(message, status=502, reason="BadGateway") from error

    async def discover(self) -> discovery.Discovery:
        """Asks what the server serves, in two requests; an error as well if it is too old to say that in two."""
        core, groups = await asyncio.gather(
            self._send("GET", "/api", accept=discovery.ACCEPT), self._send("GET", "/apis", accept=discovery.ACCEPT)
        )
        return discovery.parse(core, groups)

    async def server_version(self, *, timeout_s: float = TIMEOUT_S) -> str:
        """Asks for the server's version, such as `v1.36.3`; empty if it does not say."""
        return str((await self._send("GET", "/version", timeout_s=timeout_s)).get("gitVersion") or "")

    async def wait_reachable(self) -> str:
        """Waits until the API server answers; returns its version.

        Raises:
            KubeError: as `retry_until_answered`.
        """
        return await retry_until_answered(lambda: self.server_version(timeout_s=10))

    async def _send(
        self,
        method: str,
        path: str,
        body: JsonValue = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = _JSON,
        accept: str = _JSON,
        timeout_s: float = TIMEOUT_S,
    ) -> JsonObject:
        data = None if body is None else jsondoc.dumps(body)
        answer = await self.api.request(
            method, path, query=query, body=data, content_type=content_type, accept=accept, timeout_s=timeout_s
        )
        return _decoded(answer, f"{method} {path}")


def _decoded(data: bytes, request: str) -> JsonObject:
    try:
        document = jsondoc.loads(data)
    except ValueError as error:
        message = f"{request}: the API server sent something that is not JSON"
        raise KubeError(message, status=0, reason="BadAnswer") from error
    return document if isinstance(document, dict) else {}
