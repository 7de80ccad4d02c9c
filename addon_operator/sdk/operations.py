"""What a hook asks for beside values: metrics, changes to objects, answers to reviews.

Source: contract.md 2.5, 2.6, 2.14.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import TypedDict, Unpack

from addon_operator.sdk.jsondata import JsonInput, JsonObject, plain


class Metrics:
    """Metrics of the hook. The operator adds the labels `hook` and `module`."""

    def __init__(self) -> None:
        self.operations: list[JsonObject] = []

    def add(
        self, name: str, value: float = 1, *, labels: Mapping[str, str] | None = None, group: str | None = None
    ) -> None:
        """Counts up; with a group, series that a run does not give again vanish."""
        self._note(name=name, action="add", value=value, labels=labels, group=group)

    def set(
        self, name: str, value: float, *, labels: Mapping[str, str] | None = None, group: str | None = None
    ) -> None:
        """Sets a gauge; with a group, series that a run does not give again vanish."""
        self._note(name=name, action="set", value=value, labels=labels, group=group)

    def observe(
        self,
        name: str,
        value: float,
        *,
        buckets: Sequence[float],
        labels: Mapping[str, str] | None = None,
        group: str | None = None,
    ) -> None:
        """Adds to a histogram with these upper bounds, which must rise."""
        self._note(name=name, action="observe", value=value, buckets=buckets, labels=labels, group=group)

    def expire(self, group: str) -> None:
        """Drops all series of a group."""
        self._note(action="expire", group=group)

    def _note(self, **fields: JsonInput) -> None:
        self.operations.append({name: plain(value) for name, value in fields.items() if value is not None})


class Where(TypedDict, total=False):
    """Which object is meant, beside its kind and name, and how it is treated.

    Attributes:
        namespace: none for objects of the cluster.
        api_version: the preferred one unless given.
        subresource: such as `status`.
        ignore_missing: whether it is a success that the object does not exist.
        ignore_hook_error: see contract.md 2.4.
    """

    namespace: str
    api_version: str
    subresource: str
    ignore_missing: bool
    ignore_hook_error: bool


class Kube:
    """Changes to objects. The operator makes them, in this order, when the hook has succeeded."""

    def __init__(self) -> None:
        self.operations: list[JsonObject] = []

    def create(self, object_: Mapping[str, JsonInput]) -> None:
        """Creates an object; fails if it exists."""
        self._note(operation="Create", object=object_)

    def create_or_update(self, object_: Mapping[str, JsonInput]) -> None:
        """Creates an object, or puts it in the place of the one that exists."""
        self._note(operation="CreateOrUpdate", object=object_)

    def create_if_not_exists(self, object_: Mapping[str, JsonInput]) -> None:
        """Creates an object; leaves it alone if it exists."""
        self._note(operation="CreateIfNotExists", object=object_)

    def delete(self, kind: str, name: str, **where: Unpack[Where]) -> None:
        """Deletes an object and waits until it is gone; one that does not exist is no error."""
        self._note(operation="Delete", **_target(kind, name, where))

    def delete_in_background(self, kind: str, name: str, **where: Unpack[Where]) -> None:
        """Deletes an object, does not wait."""
        self._note(operation="DeleteInBackground", **_target(kind, name, where))

    def delete_non_cascading(self, kind: str, name: str, **where: Unpack[Where]) -> None:
        """Deletes an object, leaves its dependents alone."""
        self._note(operation="DeleteNonCascading", **_target(kind, name, where))

    def merge_patch(self, kind: str, name: str, patch: Mapping[str, JsonInput], **where: Unpack[Where]) -> None:
        """Applies a JSON merge patch (RFC 7396)."""
        self._note(operation="MergePatch", mergePatch=patch, **_target(kind, name, where))

    def json_patch(
        self, kind: str, name: str, patch: Sequence[Mapping[str, JsonInput]], **where: Unpack[Where]
    ) -> None:
        """Applies a JSON patch (RFC 6902)."""
        self._note(operation="JSONPatch", jsonPatch=patch, **_target(kind, name, where))

    def jq_patch(self, kind: str, name: str, program: str, **where: Unpack[Where]) -> None:
        """Replaces an object by what a jq program makes of it."""
        self._note(operation="JQPatch", jqFilter=program, **_target(kind, name, where))

    def _note(self, **fields: JsonInput) -> None:
        self.operations.append({name: plain(value) for name, value in fields.items()})


class AdmissionAnswer:
    """The answer to a `Review`; the last one given counts."""

    def __init__(self) -> None:
        self.answer: JsonObject | None = None

    def allow(self, *, patch: Sequence[Mapping[str, JsonInput]] = (), warnings: Sequence[str] = ()) -> None:
        """Lets the request through, changed by a JSON patch if the binding is mutating."""
        answer: JsonObject = {"allowed": True}
        if patch:
            answer["patch"] = base64.b64encode(json.dumps(plain(patch)).encode()).decode()
        self.answer = answer | _warnings(warnings)

    def deny(self, message: str, *, warnings: Sequence[str] = ()) -> None:
        """Refuses the request; the user sees the message."""
        self.answer = {"allowed": False, "message": message, **_warnings(warnings)}


class ConversionAnswer:
    """The answer to a `ConversionReview`; the last one given counts."""

    def __init__(self) -> None:
        self.answer: JsonObject | None = None

    def done(self, objects: Sequence[Mapping[str, JsonInput]]) -> None:
        """Answers with the converted objects, as many as were asked for, in their order."""
        self.answer = {"convertedObjects": plain(objects)}

    def fail(self, message: str) -> None:
        """Says why the objects cannot be converted."""
        self.answer = {"failedMessage": message}


def _target(kind: str, name: str, where: Where) -> dict[str, JsonInput]:
    fields: dict[str, JsonInput] = {
        "kind": kind,
        "name": name,
        "namespace": where.get("namespace"),
        "apiVersion": where.get("api_version"),
        "subresource": where.get("subresource"),
        "ignoreMissingObject": where.get("ignore_missing"),
        "ignoreHookError": where.get("ignore_hook_error"),
    }
    return {field: value for field, value in fields.items() if value is not None}


def _warnings(texts: Sequence[str]) -> JsonObject:
    return {"warnings": list(texts)} if texts else {}
