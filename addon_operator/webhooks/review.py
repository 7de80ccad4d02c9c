"""Reviews: what the API server asks, what hooks answer, and the form of both.

Pure. `AdmissionReview` and `ConversionReview` are understood in version v1; the response files of hooks are those of
contract.md 2.4 and 2.14. Messages name fields, never what they contain.

Source: contract.md 2.14; Kubernetes: dynamic admission control, versions of CustomResourceDefinitions; RFC 6902.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from addon_operator.documents import json_patch, jsondoc
from addon_operator.documents.fields import Fields, parse_map
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import InputError
from addon_operator.hooks.call import HookId
from addon_operator.hooks.config.model import Admission, Conversion
from addon_operator.kube.refs import metadata_of

T = TypeVar("T")

# The API server cuts what is longer, and drops what has control characters.
_LONGEST_WARNING: Final = 256
_MOST_WARNINGS: Final = 16


@dataclass(frozen=True, slots=True)
class AdmissionAnswer:
    """What a hook says to a request.

    Attributes:
        message: why not; shown to whoever made the request.
        warnings: shown as well, also when it is allowed.
        patch: a JSON patch as a document; only of mutating bindings.
    """

    allowed: bool
    message: str = ""
    warnings: tuple[str, ...] = ()
    patch: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ConversionAnswer:
    """What a hook makes of objects.

    Attributes:
        failed_message: why it could not convert them; empty if it could.
        objects: as many as it was given, in their order.
    """

    failed_message: str = ""
    objects: tuple[JsonObject, ...] = field(default=(), repr=False)


class Reviewer(Protocol):
    """Runs hooks and reads their answers, outside the queues.

    A call whose deadline has passed is cancelled; its end, the death of the hook's process included, is not waited for
    by the API server.
    """

    async def admit(self, hook: HookId, binding: Admission, request: JsonObject) -> AdmissionAnswer:
        """Asks a hook about a request.

        Raises:
            AddonOperatorError: there is no answer; the request is denied.
        """

    async def convert(
        self, hook: HookId, binding: Conversion, *, from_version: str, to_version: str, request: JsonObject
    ) -> ConversionAnswer:
        """Has a hook convert objects by one step, named as the binding names it.

        Args:
            hook: which one.
            binding: which of its bindings.
            from_version: of all the objects.
            to_version: wanted.
            request: `uid`, `desiredAPIVersion` of this step, `objects`.

        Raises:
            AddonOperatorError: there is no answer; the conversion fails.
        """


@dataclass(frozen=True, slots=True)
class ConversionRequest:
    """What the API server wants converted.

    Attributes:
        target: an apiVersion, with its group.
    """

    uid: str
    target: str
    objects: tuple[JsonObject, ...] = field(repr=False)


def parse_admission_response(data: bytes) -> AdmissionAnswer:
    """Reads the response file of an admission hook: the first JSON value of it counts.

    Fields that nobody knows are passed over, null is like absent, and what does not say `allowed` denies, as with the
    peer.

    Raises:
        InputError: empty, not JSON, or a field at fault; all of them.
    """
    return _parse_response(data, _admission_answer)


def parse_conversion_response(data: bytes) -> ConversionAnswer:
    """Reads the response file of a conversion hook, as `parse_admission_response`; no objects are as good as none.

    Raises:
        InputError: empty, not JSON, or a field at fault; all of them.
    """
    return _parse_response(data, _conversion_answer)


def parse_admission(body: bytes) -> JsonObject:
    """Returns the `request` of an AdmissionReview.

    Raises:
        InputError: it is none of version v1, or has no uid.
    """
    return _request(body, "AdmissionReview", "admission.k8s.io/v1")


def parse_conversion(body: bytes) -> ConversionRequest:
    """Reads a ConversionReview.

    Raises:
        InputError: it is none of version v1, or lacks what a conversion needs.
    """
    request = _request(body, "ConversionReview", "apiextensions.k8s.io/v1")
    target, objects = request.get("desiredAPIVersion"), request.get("objects")
    if not isinstance(target, str) or not target:
        raise InputError("ConversionReview: request.desiredAPIVersion is missing")
    found = [item for item in objects if isinstance(item, dict)] if isinstance(objects, list) else []
    if not isinstance(objects, list) or len(found) != len(objects):
        raise InputError("ConversionReview: request.objects must be a list of objects")
    return ConversionRequest(str(request["uid"]), target, tuple(found))


def encode_admission(uid: str, answer: AdmissionAnswer) -> bytes:
    """Writes the AdmissionReview that answers the request with this uid."""
    response: JsonObject = {"uid": uid, "allowed": answer.allowed}
    if not answer.allowed:
        response["status"] = {"code": 403, "message": answer.message}
    elif answer.patch is not None:
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(answer.patch).decode()}
    if answer.warnings:
        response["warnings"] = [_warning(text) for text in answer.warnings[:_MOST_WARNINGS]]
    return jsondoc.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})


def encode_conversion(uid: str, answer: ConversionAnswer) -> bytes:
    """Writes the ConversionReview that answers the request with this uid."""
    response: JsonObject = {"uid": uid}
    if answer.failed_message:
        response["result"] = {"status": "Failed", "message": answer.failed_message}
    else:
        response |= {"result": {"status": "Success"}, "convertedObjects": list(answer.objects)}
    return jsondoc.dumps({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response})


def bare(version: str) -> str:
    """Returns a version without its group."""
    return version.rpartition("/")[2]


def version_of(item: JsonObject) -> str:
    """Returns the version of an object, without the group."""
    return bare(str(item.get("apiVersion") or ""))


def plan_conversion(
    steps: Iterable[tuple[str, str]], *, sources: Iterable[str], target: str
) -> tuple[tuple[str, str], ...]:
    """Finds the steps that bring objects of several versions to one, by the shortest ways.

    Ways meet: each step appears once, after all those that lead to its beginning.

    Args:
        steps: pairs of versions that hooks convert, without groups; of several ways of one length those named first
            win.
        sources: the versions of the objects, without groups; the target may be among them.
        target: the version wanted, without group.

    Raises:
        InputError: no way leads from one of the sources to the target.
    """
    known = tuple(steps)
    onward: dict[str, tuple[str, str]] = {}
    distance = {target: 0}
    waiting = deque([target])
    while waiting:
        here = waiting.popleft()
        for step in known:
            if step[1] == here and step[0] not in distance:
                distance[step[0]], onward[step[0]] = distance[here] + 1, step
                waiting.append(step[0])
    needed: set[tuple[str, str]] = set()
    for source in sources:
        if source not in distance:
            raise InputError(f"no hook converts {source} to {target}, not even in several steps")
        while source != target:
            needed.add(onward[source])
            source = onward[source][1]  # noqa: PLW2901 -- walks to the target
    return tuple(sorted(needed, key=lambda step: (-distance[step[0]], step)))


def settle_converted(
    before: Sequence[JsonObject], after: Sequence[JsonObject], *, api_version: str
) -> tuple[JsonObject, ...]:
    """Checks what a hook made of objects, and restores metadata that is not the hook's to change.

    Only labels and annotations may change; like the API server, the rest is put back, except for what says that the
    objects are others.

    Raises:
        InputError: another number of objects, another version or kind, or other objects; names the first one.
    """
    if len(before) != len(after):
        raise InputError(f"convertedObjects: {len(after)} objects instead of {len(before)}")
    return tuple(
        _settled(old, new, at=at, api_version=api_version)
        for at, (old, new) in enumerate(zip(before, after, strict=True))
    )


def _settled(old: JsonObject, new: JsonObject, *, at: int, api_version: str) -> JsonObject:
    where = f"convertedObjects[{at}]"
    if new.get("apiVersion") != api_version:
        raise InputError(f"{where}.apiVersion must be {api_version}")
    if new.get("kind") != old.get("kind"):
        raise InputError(f"{where}.kind must not change")
    kept, made = metadata_of(old), metadata_of(new)
    for name in ("name", "namespace", "uid"):
        if (made.get(name) or "") != (kept.get(name) or ""):
            raise InputError(f"{where}.metadata.{name} must not change")
    metadata = {key: value for key, value in kept.items() if key not in {"labels", "annotations"}}
    metadata |= {key: made[key] for key in ("labels", "annotations") if key in made}
    return {**new, "metadata": metadata}


def _request(body: bytes, kind: str, api_version: str) -> JsonObject:
    try:
        review = jsondoc.loads(body)
    except ValueError as error:
        raise InputError(f"{kind}: not JSON") from error
    if not isinstance(review, dict) or review.get("kind") != kind:
        raise InputError(f"the request is not an {kind}" if kind[0] == "A" else f"the request is not a {kind}")
    if review.get("apiVersion") != api_version:
        raise InputError(f"{kind}: apiVersion must be {api_version}, no other is supported")
    request = review.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str) or not request["uid"]:
        raise InputError(f"{kind}: request.uid is missing")
    return request


def _parse_response(data: bytes, parse: Callable[[Fields], T]) -> T:
    errors: list[str] = []
    answer = parse_map(_first_value(data), "", errors, parse, lenient=True)
    if errors:
        raise InputError("\n".join(f"response file: {line}" for line in errors))
    return answer


def _first_value(data: bytes) -> JsonValue:
    if not data.strip():
        raise InputError("the response file is empty")
    try:
        return jsondoc.loads(data)
    except ValueError:
        pass
    # What follows the first value may be anything, also no text: it must not be read.
    text = data.decode("utf-8-sig", "surrogateescape").lstrip()
    try:
        return jsondoc.loads(text[: json.JSONDecoder().raw_decode(text)[1]])
    except (ValueError, RecursionError) as error:
        raise InputError("the response file does not begin with a JSON document") from error


def _admission_answer(fields: Fields) -> AdmissionAnswer:
    return AdmissionAnswer(
        allowed=fields.flag("allowed", default=False),
        message=fields.text("message"),
        warnings=fields.texts("warnings"),
        patch=_patch(fields),
    )


def _patch(fields: Fields) -> bytes | None:
    text = fields.text("patch")
    if not text:
        return None
    try:
        patch = base64.b64decode("".join(text.split()), validate=True)
        document = jsondoc.loads(patch)
    except (binascii.Error, ValueError):
        fields.fail("patch", "must be a JSON patch in base64")
        return None
    if not isinstance(document, list):
        fields.fail("patch", "must be a list of operations")
        return None
    for place, operation in enumerate(document):
        parse_map(operation, f"patch[{place}]", fields.errors, json_patch.check_operation, lenient=True)
    return patch


def _conversion_answer(fields: Fields) -> ConversionAnswer:
    message = fields.text("failedMessage")
    items = fields.take("convertedObjects", list, [])
    objects = [item for item in items if isinstance(item, dict)]
    if len(objects) != len(items):
        fields.fail("convertedObjects", "must be a list of objects")
    return ConversionAnswer(message, tuple(objects))


def _warning(text: str) -> str:
    visible = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return visible if len(visible) <= _LONGEST_WARNING else visible[: _LONGEST_WARNING - 3] + "..."
