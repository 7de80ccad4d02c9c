"""Does to objects what a hook asked for, in the hook's order.

All operations are tried; what failed is one error in the end. It decides nothing: `patch_ops` says what an operation
is, the hook engine when it is applied. Source: contract.md 2.6.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import random
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, assert_never

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import KubeError
from addon_operator.kube import jq
from addon_operator.kube.client import KubeClient
from addon_operator.kube.discovery import Discovery
from addon_operator.kube.patch_ops import (
    Common,
    Create,
    Delete,
    DeleteVerb,
    JqPatch,
    JsonPatch,
    MergePatch,
    ObjectOperation,
)
from addon_operator.kube.refs import ObjectKey, Resource, metadata_of, permission
from addon_operator.retry import RetryPolicy

_CONTENTION = RetryPolicy(0.02, 1.0)
_MOST_ATTEMPTS = 10
_POLL = RetryPolicy(0.02, 1.0)
_RBAC_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_PROPAGATION: dict[DeleteVerb, str] = {
    "Delete": "Foreground",
    "DeleteInBackground": "Background",
    "DeleteNonCascading": "Orphan",
}
_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_MERGE_PATCH = "application/merge-patch+json"
_JSON_PATCH = "application/json-patch+json"
_REFUSED_BY_RBAC = re.compile(r' is forbidden: User "[^"]*" cannot ')

_Failure: TypeAlias = tuple[ObjectOperation, KubeError]


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """Where an object is on the server; an empty name means the collection."""

    resource: Resource
    namespace: str
    name: str
    subresource: str | None = None

    @property
    def path(self) -> str:
        return self.resource.path(self.namespace, self.name, self.subresource)

    @property
    def key(self) -> ObjectKey:
        namespace = self.namespace if self.resource.namespaced else ""
        return ObjectKey(self.resource.api_version, self.resource.kind, namespace, self.name)

    def permission(self, method: str) -> str:
        """Says what RBAC must allow for a request here."""
        verb = _RBAC_VERBS[method]
        return permission(verb, self.resource, namespace=self.namespace, subresource=self.subresource)


class ObjectPatcher:
    """Applies the object operations of hooks."""

    def __init__(
        self,
        client: KubeClient,
        discovery: Callable[[], Awaitable[Discovery]],
        *,
        delete_timeout_s: float = 20.0,
        on_delete: Callable[[ObjectKey], None] = lambda _key: None,
        on_delete_refused: Callable[[ObjectKey], None] = lambda _key: None,
        run_jq: jq.Run = jq.run,
    ) -> None:
        """Takes what it uses; sends nothing yet.

        Args:
            client: the connection.
            discovery: gives what the server serves; asked once for each `apply` and again when a kind is missing, so
                it may keep its answer as long as it notices new CRDs.
            delete_timeout_s: how long `Delete` waits until the object is gone.
            on_delete: told what is about to be deleted, as the server calls it, right before the request.
            on_delete_refused: told that it is not deleted after all.
            run_jq: runs the programs of JQPatch.
        """
        self._client = client
        self._discovery = discovery
        self._delete_timeout_s = delete_timeout_s
        self._on_delete = on_delete
        self._on_delete_refused = on_delete_refused
        self._run_jq = run_jq

    async def apply(self, operations: Sequence[ObjectOperation]) -> None:
        """Applies all operations one after another, those behind a failed one as well.

        None is applied if one names a kind that is not served, or leaves out its namespace. A kind that may come with
        an operation before it is looked for when it is its turn.

        Raises:
            KubeError: what failed, one line for each operation; status and reason are those of the first. Or the
                server could not be asked what it serves.
        """
        kinds = _Kinds(await self._discovery(), self._discovery)
        failures = _misplaced(operations, kinds)
        for operation in () if failures else operations:
            try:
                await self._apply(operation, await kinds.place_now(operation.common))
            except KubeError as error:
                failures.append((operation, error))
        if failures:
            raise _joined(failures) from failures[0][1]

    async def _apply(self, operation: ObjectOperation, place: _Place) -> None:
        match operation:
            case Create():
                await self._create(operation, place)
            case Delete():
                await self._delete(operation.verb, place)
            case MergePatch() | JsonPatch() | JqPatch():
                try:
                    await self._patch(operation, place)
                except KubeError as error:
                    if not (error.not_found and operation.common.ignore_missing):
                        raise
            case _:
                assert_never(operation)

    async def _create(self, operation: Create, place: _Place) -> None:
        if operation.verb == "CreateOrUpdate":
            await _contend(lambda: self._create_or_update(operation.object, place))
            return
        new = place if place.subresource else dataclasses.replace(place, name="")
        try:
            await self._send("POST", new, operation.object)
        except KubeError as error:
            if operation.verb == "Create":
                raise
            if error.reason != "AlreadyExists" and (place.subresource or await self._existing(place, error) is None):
                raise

    async def _create_or_update(self, document: JsonObject, place: _Place) -> bool:
        """Tries once; answers False if somebody else changed the object in between."""
        whole = dataclasses.replace(place, subresource=None)
        try:
            live = await self._send("POST", dataclasses.replace(whole, name=""), document)
        except KubeError as error:
            existing = await self._existing(whole, error)
            if existing is None:
                if error.reason == "AlreadyExists":
                    return False
                raise
            return await self._update(document, existing, place)
        # The server drops the status of a new object: that takes a second request.
        return not place.subresource or await self._update(document, live, place)

    async def _existing(self, place: _Place, refusal: KubeError) -> JsonObject | None:
        """Answers the metadata of the object that is in the way of a new one; None if there is none.

        Quotas and webhooks for new objects are asked before the server looks whether the object is there, so a 403 may
        hide that it is.
        """
        if refusal.reason != "AlreadyExists" and refusal.status != 403:
            return None
        try:
            return await self._send("GET", dataclasses.replace(place, subresource=None), accept=_METADATA_ONLY)
        except KubeError as error:
            if error.status == 404 or refusal.status == 403:
                return None
            raise

    async def _update(self, document: JsonObject, live: JsonObject, place: _Place) -> bool:
        """Replaces the object unless it is another one than `live` by now; answers whether it did."""
        version = metadata_of(live).get("resourceVersion")
        body = {**document, "metadata": {**metadata_of(document), "resourceVersion": version}}
        try:
            await self._send("PUT", place, body)
        except KubeError as error:
            if error.status != 409 and not (error.status == 404 and not place.subresource):
                raise
            return False
        return True

    async def _patch(self, operation: MergePatch | JsonPatch | JqPatch, place: _Place) -> None:
        match operation:
            case MergePatch():
                await self._send("PATCH", place, operation.patch, content_type=_MERGE_PATCH)
            case JsonPatch():
                await self._send("PATCH", place, operation.patch, content_type=_JSON_PATCH)
            case JqPatch():
                await _contend(lambda: self._transform(operation.program.source, place))

    async def _transform(self, program: str, place: _Place) -> bool:
        """Tries once; answers False if somebody else changed the object in between."""
        live = await self._send("GET", place)
        wanted = self._run(program, live)
        # Python takes 1 for equal to true, and to 1.0.
        return jsondoc.digest(wanted) == jsondoc.digest(live) or await self._update(wanted, live, place)

    def _run(self, program: str, live: JsonObject) -> JsonObject:
        try:
            results = [jsondoc.loads(text) for text in self._run_jq(program, jsondoc.dumps(live))]
            jsondoc.dumps(results)
        except jq.Stopped as error:
            raise KubeError(f"jqFilter: {error}", status=0, reason="JqFailed") from None
        except ValueError:
            # jq's message quotes the object.
            raise KubeError("jqFilter: fails on the live object", status=0, reason="JqFailed") from None
        if len(results) != 1 or not isinstance(results[0], dict):
            raise KubeError("jqFilter: must make exactly one object of the live one", status=0, reason="JqFailed")
        return results[0]

    async def _delete(self, verb: DeleteVerb, place: _Place) -> None:
        if not place.subresource:
            self._on_delete(place.key)
        options: JsonObject = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": _PROPAGATION[verb]}
        try:
            answer = await self._send("DELETE", place, options)
        except KubeError as error:
            if error.not_found:
                return
            # Without an answer nobody knows.
            if error.status and not place.subresource:
                self._on_delete_refused(place.key)
            raise
        # A Status means that the object is gone already; else the answer is the object.
        if verb == "Delete" and answer.get("kind") != "Status":
            await self._wait_gone(place, metadata_of(answer).get("uid"))

    async def _wait_gone(self, place: _Place, uid: jsondoc.JsonValue) -> None:
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._delete_timeout_s
        for looks in itertools.count(1):
            try:
                live = metadata_of(await self._send("GET", place, accept=_METADATA_ONLY))
            except KubeError as error:
                if error.not_found:
                    return
                raise
            if live.get("uid") != uid:
                return
            if clock() >= deadline:
                raise _still_there(self._delete_timeout_s, live)
            await asyncio.sleep(min(_POLL.delay_s(looks), max(deadline - clock(), 0.0)))

    async def _send(
        self,
        method: str,
        place: _Place,
        body: jsondoc.JsonValue = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> JsonObject:
        data = None if body is None else jsondoc.dumps(body)
        try:
            answer = await self._client.request(method, place.path, body=data, content_type=content_type, accept=accept)
        except KubeError as error:
            if _is_refused_by_rbac(error):
                message = f"{error} (missing permission: {place.permission(method)})"
                raise KubeError(message, status=403, reason=error.reason) from error
            raise
        document = jsondoc.loads(answer)
        assert isinstance(document, dict)
        return document


class _Kinds:
    """Where the objects of one `apply` are: what the server serves is asked again for a kind that it lacks."""

    def __init__(self, known: Discovery, ask: Callable[[], Awaitable[Discovery]]) -> None:
        self._known = known
        self._ask = ask

    def place(self, common: Common) -> _Place:
        """Answers which object the hook means.

        Raises:
            KubeError: the server did not serve its kind when it was asked last, or the namespace is missing.
        """
        target = common.target
        resource = self._known.resource(target.kind, target.api_version)
        if resource.namespaced and not target.namespace:
            raise KubeError(f"namespace: is required, {resource.kind} is namespaced", status=0, reason="NoNamespace")
        return _Place(resource, target.namespace or "", target.name, common.subresource)

    async def place_now(self, common: Common) -> _Place:
        """Answers as `place`, but an operation before this one may have brought the kind.

        Raises:
            KubeError: as `place`, or the server could not be asked.
        """
        try:
            return self.place(common)
        except KubeError as error:
            if error.reason != "NoSuchKind":
                raise
        self._known = await self._ask()
        return self.place(common)


def _misplaced(operations: Sequence[ObjectOperation], kinds: _Kinds) -> list[_Failure]:
    """Lists the operations whose objects cannot be anywhere."""
    failures: list[_Failure] = []
    kinds_may_come = False
    for operation in operations:
        try:
            resource = kinds.place(operation.common).resource
        except KubeError as error:
            if not (kinds_may_come and error.reason == "NoSuchKind"):
                failures.append((operation, error))
        else:
            # A CustomResourceDefinition, an APIService, or what a controller makes one of: none of them is namespaced.
            is_source = bool(resource.group) and not resource.namespaced
            kinds_may_come |= is_source and not isinstance(operation, Delete)
    return failures


async def _contend(attempt: Callable[[], Awaitable[bool]]) -> None:
    """Repeats an attempt that answers False when somebody else was faster."""
    for failures in range(1, _MOST_ATTEMPTS):
        if await attempt():
            return
        await asyncio.sleep(_CONTENTION.delay_s(failures) * random.uniform(0.5, 1.5))  # noqa: S311 -- jitter
    if not await attempt():
        message = f"somebody else changed the object {_MOST_ATTEMPTS} times in between"
        raise KubeError(message, status=409, reason="Conflict")


def _still_there(waited_s: float, metadata: JsonObject) -> KubeError:
    finalizers = metadata.get("finalizers")
    names = ", ".join(map(str, finalizers)) if isinstance(finalizers, list) else ""
    held = f", held by finalizers: {names}" if names else ""
    return KubeError(f"deleted, but still there after {waited_s:g} s{held}", status=0, reason="Timeout")


def _is_refused_by_rbac(error: KubeError) -> bool:
    # Quotas and admission plug-ins answer 403 as well, with other texts.
    return error.status == 403 and _REFUSED_BY_RBAC.search(str(error)) is not None


def _joined(failures: Sequence[_Failure]) -> KubeError:
    lines = [f"operation {one.common.index}: {one.verb} {one.common.target}: {error}" for one, error in failures]
    first = failures[0][1]
    return KubeError("\n".join(lines), status=first.status, reason=first.reason, retry_after_s=first.retry_after_s)
