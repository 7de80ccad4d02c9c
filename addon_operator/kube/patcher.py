"""Does to objects what a hook asked for, in the hook's order.

All operations are tried; what failed is one error in the end. It decides nothing: `patch_ops` says what an operation
is, the hook engine when it is applied. Source: contract.md 2.6.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeAlias, assert_never

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import KubeError
from addon_operator.kube import jq
from addon_operator.kube.client import KubeClient, PatchType, Propagation
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
from addon_operator.kube.refs import ObjectKey, ObjectRef, metadata_of, permission
from addon_operator.kube.retries import retry_on_conflict
from addon_operator.retry import RetryPolicy

_POLL = RetryPolicy(0.02, 1.0)
_PROPAGATION: dict[DeleteVerb, Propagation] = {
    "Delete": "Foreground",
    "DeleteInBackground": "Background",
    "DeleteNonCascading": "Orphan",
}
_REFUSED_BY_RBAC = re.compile(r' is forbidden: User "[^"]*" cannot ')

_Failure: TypeAlias = tuple[ObjectOperation, KubeError]


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
        """Takes its dependencies; sends nothing yet.

        Args:
            client: the connection.
            discovery: gives what the server serves; asked once for each `apply` and again when a kind is missing, so
                it may keep its answer as long as it notices new CRDs.
            delete_timeout_s: how long `Delete` waits until the object is gone.
            on_delete: called with what is about to be deleted, as the server names it, right before the request.
            on_delete_refused: called when it is not deleted after all.
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
                await self._apply(operation, await kinds.locate_now(operation.common))
            except KubeError as error:
                failures.append((operation, error))
        if failures:
            raise _joined(failures) from failures[0][1]

    async def _apply(self, operation: ObjectOperation, ref: ObjectRef) -> None:
        match operation:
            case Create():
                await self._create(operation, ref)
            case Delete():
                await self._delete(operation.verb, ref)
            case MergePatch() | JsonPatch() | JqPatch():
                try:
                    await self._patch(operation, ref)
                except KubeError as error:
                    if not (error.not_found and operation.common.ignore_missing):
                        raise
            case _:
                assert_never(operation)

    async def _create(self, operation: Create, ref: ObjectRef) -> None:
        if operation.verb == "CreateOrUpdate":
            await retry_on_conflict(lambda: self._create_or_update(operation.object, ref))
            return
        try:
            with _naming_permission("create", ref):
                await self._client.create(ref, operation.object)
        except KubeError as error:
            if operation.verb == "Create":
                raise
            if error.reason != "AlreadyExists" and (ref.subresource or await self._existing(ref, error) is None):
                raise

    async def _create_or_update(self, document: JsonObject, ref: ObjectRef) -> None:
        """Tries once.

        Raises:
            KubeError: refused, or a conflict: somebody else created, changed or deleted the object in between.
        """
        whole = dataclasses.replace(ref, subresource="")
        try:
            with _naming_permission("create", whole):
                live = await self._client.create(whole, document)
        except KubeError as error:
            existing = await self._existing(whole, error)
            if existing is None:
                raise
            await self._update(document, existing, ref)
        else:
            # The server drops the status of a new object: that takes a second request.
            if ref.subresource:
                await self._update(document, live, ref)

    async def _existing(self, ref: ObjectRef, refusal: KubeError) -> JsonObject | None:
        """Returns the metadata of the object that is in the way of a new one; None if there is none.

        Quotas and webhooks for new objects are asked before the server looks whether the object is there, so a 403 may
        hide that it is.
        """
        if refusal.reason != "AlreadyExists" and refusal.status != 403:
            return None
        try:
            with _naming_permission("get", ref):
                return await self._client.get(ref, metadata_only=True)
        except KubeError:
            if refusal.status == 403:
                return None
            raise

    async def _update(self, document: JsonObject, live: JsonObject, ref: ObjectRef) -> None:
        """Replaces the object unless it is another one than `live` by now, which is a conflict."""
        version = metadata_of(live).get("resourceVersion")
        body = {**document, "metadata": {**metadata_of(document), "resourceVersion": version}}
        try:
            with _naming_permission("update", ref):
                await self._client.replace(ref, body)
        except KubeError as error:
            if error.not_found and not ref.subresource:
                raise KubeError(str(error), status=409, reason="Conflict") from error
            raise

    async def _patch(self, operation: MergePatch | JsonPatch | JqPatch, ref: ObjectRef) -> None:
        match operation:
            case MergePatch():
                with _naming_permission("patch", ref):
                    await self._client.patch(ref, operation.patch)
            case JsonPatch():
                with _naming_permission("patch", ref):
                    await self._client.patch(ref, operation.patch, PatchType.JSON)
            case JqPatch():
                await retry_on_conflict(lambda: self._transform(operation.program.source, ref))

    async def _transform(self, program: str, ref: ObjectRef) -> None:
        """Tries once; a conflict if somebody else changed the object in between."""
        with _naming_permission("get", ref):
            live = await self._client.get_existing(ref)
        wanted = self._run(program, live)
        # Python takes 1 for equal to true, and to 1.0.
        if jsondoc.digest(wanted) != jsondoc.digest(live):
            await self._update(wanted, live, ref)

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

    async def _delete(self, verb: DeleteVerb, ref: ObjectRef) -> None:
        if not ref.subresource:
            self._on_delete(ref.key)
        try:
            with _naming_permission("delete", ref):
                answer = await self._client.delete(ref, propagation=_PROPAGATION[verb])
        except KubeError as error:
            # Without an answer nobody knows.
            if error.status and not ref.subresource:
                self._on_delete_refused(ref.key)
            raise
        # A Status means that the object is gone already; else the answer is the object.
        if answer is not None and verb == "Delete" and answer.get("kind") != "Status":
            await self._wait_gone(ref, metadata_of(answer).get("uid"))

    async def _wait_gone(self, ref: ObjectRef, uid: jsondoc.JsonValue) -> None:
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._delete_timeout_s
        for looks in itertools.count(1):
            with _naming_permission("get", ref):
                live = await self._client.get(ref, metadata_only=True)
            if live is None or metadata_of(live).get("uid") != uid:
                return
            if clock() >= deadline:
                raise _still_there(self._delete_timeout_s, metadata_of(live))
            await asyncio.sleep(min(_POLL.delay_s(looks), max(deadline - clock(), 0.0)))


class _Kinds:
    """Where the objects of one `apply` are: what the server serves is asked again for a kind that it lacks."""

    def __init__(self, known: Discovery, ask: Callable[[], Awaitable[Discovery]]) -> None:
        self._known = known
        self._ask = ask

    def locate(self, common: Common) -> ObjectRef:
        """Returns which object the hook means.

        Raises:
            KubeError: the server did not serve its kind when it was asked last, or the namespace is missing.
        """
        target = common.target
        resource = self._known.resource(target.kind, target.api_version)
        if resource.namespaced and not target.namespace:
            raise KubeError(f"namespace: is required, {resource.kind} is namespaced", status=0, reason="NoNamespace")
        return ObjectRef(resource, target.namespace or "", target.name, common.subresource or "")

    async def locate_now(self, common: Common) -> ObjectRef:
        """Returns as `locate`, but an operation before this one may have brought the kind.

        Raises:
            KubeError: as `locate`, or the server could not be asked.
        """
        try:
            return self.locate(common)
        except KubeError as error:
            if error.reason != "NoSuchKind":
                raise
        self._known = await self._ask()
        return self.locate(common)


def _misplaced(operations: Sequence[ObjectOperation], kinds: _Kinds) -> list[_Failure]:
    """Lists the operations whose objects cannot be anywhere."""
    failures: list[_Failure] = []
    kinds_may_come = False
    for operation in operations:
        try:
            resource = kinds.locate(operation.common).resource
        except KubeError as error:
            if not (kinds_may_come and error.reason == "NoSuchKind"):
                failures.append((operation, error))
        else:
            # A CustomResourceDefinition, an APIService, or what a controller makes one of: none of them is namespaced.
            is_source = bool(resource.group) and not resource.namespaced
            kinds_may_come |= is_source and not isinstance(operation, Delete)
    return failures


@contextlib.contextmanager
def _naming_permission(verb: str, ref: ObjectRef) -> Iterator[None]:
    """Adds to a refusal by RBAC which permission is missing."""
    try:
        yield
    except KubeError as error:
        if not _is_refused_by_rbac(error):
            raise
        needed = permission(verb, ref.resource, namespace=ref.namespace, subresource=ref.subresource)
        raise error.with_message(f"{error} (missing permission: {needed})") from error


def _still_there(waited_s: float, metadata: JsonObject) -> KubeError:
    finalizers = metadata.get("finalizers")
    names = ", ".join(map(str, finalizers)) if isinstance(finalizers, list) else ""
    held = f", held by finalizers: {names}" if names else ""
    return KubeError(f"deleted, but still there after {waited_s:g} s{held}", status=0, reason="Timeout")


def _is_refused_by_rbac(error: KubeError) -> bool:
    # Quotas and admission plug-ins answer 403 as well, with other texts.
    return error.status == 403 and _REFUSED_BY_RBAC.search(str(error)) is not None


def _joined(failures: Sequence[_Failure]) -> KubeError:
    lines = [
        f"operation {operation.common.index}: {operation.verb} {operation.common.target}: {error}"
        for operation, error in failures
    ]
    return failures[0][1].with_message("\n".join(lines))
