"""What a hook says in the file named by KUBERNETES_PATCH_PATH, as typed operations.

Pure: text in, operations or a list of problems out, jq programs compiled. It asks no API server, so kinds are still
the words of the hook. `patcher.ObjectPatcher` applies the operations. Source: contract.md 2.6.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import Literal, TypeAlias

from addon_operator.documents import json_patch, jsondoc, yamldoc
from addon_operator.documents.fields import Fields, parse_map
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import InputError
from addon_operator.kube.jq import Program, compiled

CreateVerb = Literal["Create", "CreateOrUpdate", "CreateIfNotExists"]
DeleteVerb = Literal["Delete", "DeleteInBackground", "DeleteNonCascading"]
PatchVerb = Literal["MergePatch", "JSONPatch", "JQPatch"]


class ObjectPatchError(InputError):
    """What a hook wrote about objects cannot be used.

    Attributes:
        problems: one line for each, each naming the operation and the field.
    """

    def __init__(self, where: str, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(f"{where}: {problem}" for problem in problems))
        self.problems = problems


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """The object that an operation is about, in the hook's own words.

    Attributes:
        api_version: None for the server's preferred one.
        kind: kind, plural, singular or short name, case-insensitive.
        namespace: None if the hook gave none.
        name: empty only for a `Create` whose name the server makes.
    """

    api_version: str | None
    kind: str
    namespace: str | None
    name: str

    def __str__(self) -> str:
        """Returns `ns/Kind/name`, without what is not known."""
        return "/".join(part for part in (self.namespace, self.kind, self.name) if part)


@dataclasses.dataclass(frozen=True, slots=True)
class Common:
    """What every operation has.

    Attributes:
        index: which operation of the file it was, from 1; for messages.
        target: its object.
        subresource: such as `status`, without a slash; None for the object itself.
        ignore_missing: whether it is a success that the object does not exist.
        ignore_hook_error: whether it is applied even if the hook fails; see `despite_hook_error`.
    """

    index: int
    target: Target
    subresource: str | None = None
    ignore_missing: bool = False
    ignore_hook_error: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Create:
    """Creates an object; the verb says what follows if it exists: an error, a full update, nothing."""

    common: Common
    verb: CreateVerb
    object: JsonObject


@dataclasses.dataclass(frozen=True, slots=True)
class Delete:
    """Deletes an object: `Delete` waits until it is gone, the others neither wait nor, the last, touch dependents."""

    common: Common
    verb: DeleteVerb


@dataclasses.dataclass(frozen=True, slots=True)
class MergePatch:
    """Applies a JSON merge patch (RFC 7396)."""

    common: Common
    patch: JsonObject
    verb: Literal["MergePatch"] = "MergePatch"


@dataclasses.dataclass(frozen=True, slots=True)
class JsonPatch:
    """Applies a JSON patch (RFC 6902)."""

    common: Common
    patch: list[JsonValue]
    verb: Literal["JSONPatch"] = "JSONPatch"


@dataclasses.dataclass(frozen=True, slots=True)
class JqPatch:
    """Replaces an object by what a jq program makes of it."""

    common: Common
    program: Program
    verb: Literal["JQPatch"] = "JQPatch"


ObjectOperation: TypeAlias = Create | Delete | MergePatch | JsonPatch | JqPatch


def parse(data: bytes, where: str) -> tuple[ObjectOperation, ...]:
    """Reads all operations, in the order of the file; an empty file is none.

    Args:
        data: JSON objects one after another, or YAML documents.
        where: what to call the file in errors: the hook and the file.

    Raises:
        ObjectPatchError: every problem of every operation.

    Source: contract.md 2.6.
    """
    operations: list[ObjectOperation] = []
    problems: list[str] = []
    for index, document in enumerate(_documents(data, where), start=1):
        errors: list[str] = []
        operation = parse_map(document, "", errors, functools.partial(_operation, index=index), lenient=True)
        problems += [f"operation {index}{_title(document, operation)}: {error}" for error in errors]
        operations += [operation] if operation else []
    if problems:
        raise ObjectPatchError(where, tuple(problems))
    return tuple(operations)


def despite_hook_error(operations: Iterable[ObjectOperation]) -> tuple[ObjectOperation, ...]:
    """Picks what is to be applied although the hook failed: `ignoreHookError` on the status.

    Source: contract.md 2.4.
    """
    return tuple(item for item in operations if item.common.ignore_hook_error and item.common.subresource == "status")


def _documents(data: bytes, where: str) -> list[JsonValue]:
    try:
        return list(jsondoc.stream(data))
    except jsondoc.UnfitError as error:
        raise ObjectPatchError(where, (str(error),)) from None
    except ValueError as error:
        not_json = str(error)
    text = data.decode("utf-8-sig", "replace")
    try:
        return yamldoc.load_all(text, "YAML")
    except yamldoc.YamlError as error:
        # What starts like a JSON stream was meant as one: the YAML reader's complaint would mislead.
        meant_as_json = text.lstrip().startswith("{") and "\n---" not in text
        raise ObjectPatchError(where, (not_json if meant_as_json else str(error),)) from None


_CREATES: dict[str, CreateVerb] = {verb: verb for verb in ("Create", "CreateOrUpdate", "CreateIfNotExists")}
_DELETES: dict[str, DeleteVerb] = {verb: verb for verb in ("Delete", "DeleteInBackground", "DeleteNonCascading")}
_PATCH_FIELDS: dict[PatchVerb, str] = {"MergePatch": "mergePatch", "JSONPatch": "jsonPatch", "JQPatch": "jqFilter"}
_VERBS = (*_CREATES, *_DELETES, *_PATCH_FIELDS)
_OPTIONS = {"operation", "subresource", "ignoreMissingObject", "ignoreHookError"}
_TARGET = {"apiVersion", "kind", "namespace", "name"}
# An operation may have those of others, too, without effect: hooks say `namespace` beside an `object`, for instance.
_FIELDS = _OPTIONS | _TARGET | {"object", *_PATCH_FIELDS.values()}


def _operation(fields: Fields, index: int) -> ObjectOperation | None:
    verb = fields.choice("operation", _VERBS, required=True)
    if not verb:
        return None
    for name in sorted(fields.map.keys() - _FIELDS):
        fields.fail(name, "unknown field")
    if verb in _CREATES:
        return _create(fields, index, _CREATES[verb])
    target = Target(
        api_version=fields.text("apiVersion") or None,
        kind=fields.text("kind", required=True),
        namespace=fields.text("namespace") or None,
        name=fields.text("name", required=True),
    )
    common = _common(fields, index, target)
    match verb:
        case "MergePatch":
            return MergePatch(common, _map(fields, "mergePatch") or {})
        case "JSONPatch":
            return JsonPatch(common, _json_patch(fields))
        case "JQPatch":
            return JqPatch(common, _program(fields))
        case _:
            return Delete(common, _DELETES[verb])


def _create(fields: Fields, index: int, verb: CreateVerb) -> Create | None:
    document = _map(fields, "object")
    if document is None:
        return None

    def target(of: Fields) -> Target:
        api_version, kind = of.text("apiVersion", required=True), of.text("kind", required=True)
        metadata = {} if of.map.get("metadata") is None else of.map["metadata"]
        namespace, name = parse_map(metadata, of.at("metadata"), of.errors, names, lenient=True)
        return Target(api_version, kind, namespace, name)

    def names(metadata: Fields) -> tuple[str | None, str]:
        made_by_server = verb == "Create" and bool(metadata.map.get("generateName"))
        return metadata.text("namespace") or None, metadata.text("name", required=not made_by_server)

    found = parse_map(document, "object", fields.errors, target, lenient=True)
    return Create(_common(fields, index, found), verb, document)


def _common(fields: Fields, index: int, target: Target) -> Common:
    return Common(
        index=index,
        target=target,
        subresource=fields.text("subresource").strip("/") or None,
        ignore_missing=fields.flag("ignoreMissingObject", default=False),
        ignore_hook_error=fields.flag("ignoreHookError", default=False),
    )


def _title(document: JsonValue, operation: ObjectOperation | None) -> str:
    """Says in brackets what an operation does to which object, as far as that can be said."""
    verb = document.get("operation") if isinstance(document, dict) else None
    if verb not in _VERBS:
        return ""
    target = str(operation.common.target) if operation else ""
    return f" ({verb} {target})" if target else f" ({verb})"


def _embedded(fields: Fields, key: str) -> JsonValue:
    """Takes a field that may also be a string with JSON or YAML in it; None, and a problem, if it is empty."""
    value = fields.map[key] if fields.has(key) else None
    if isinstance(value, str):
        try:
            value = _read_text(value, key)
        except yamldoc.YamlError as error:
            fields.errors.append(str(error))
            return None
    if value is None:
        fields.fail(key, "is required")
    return value


def _map(fields: Fields, key: str) -> JsonObject | None:
    value = _embedded(fields, key)
    if isinstance(value, dict):
        return value
    if value is not None:
        fields.fail(key, "must be a map, or a string with one")
    return None


def _json_patch(fields: Fields) -> list[JsonValue]:
    value = _embedded(fields, "jsonPatch")
    if isinstance(value, list):
        for place, step in enumerate(value):
            parse_map(step, f"jsonPatch[{place}]", fields.errors, json_patch.check_operation, lenient=True)
        return value
    if value is not None:
        fields.fail("jsonPatch", "must be a list, or a string with one")
    return []


def _program(fields: Fields) -> Program:
    source = fields.text("jqFilter", required=True) or "."
    try:
        return compiled(source)
    except ValueError as error:
        # The further lines of jq's message quote the program.
        reason = (str(error).splitlines() or ["does not compile"])[0]
        fields.fail("jqFilter", reason.removeprefix("jq: error: "))
        return compiled(".")


def _read_text(text: str, field: str) -> JsonValue:
    try:
        value = jsondoc.loads(text)
        jsondoc.dumps(value)
    except ValueError:
        # That reader also says what is wrong with JSON that cannot be held.
        return yamldoc.load(text, field).value
    return value
