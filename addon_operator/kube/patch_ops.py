"""What a hook says in the file named by KUBERNETES_PATCH_PATH, as typed operations.

Pure: text in, operations or a list of problems out, jq programs compiled. It asks no API server, so kinds are still
the words of the hook. `patcher.ObjectPatcher` applies the operations. Source: contract.md 2.6.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal, TypeAlias

from addon_operator.documents import jsondoc, yamldoc
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
        kind: kind, plural, singular or short name, in any case of letters.
        namespace: None if the hook gave none.
        name: empty only for a `Create` whose name the server makes.
    """

    api_version: str | None
    kind: str
    namespace: str | None
    name: str

    def __str__(self) -> str:
        """Gives `ns/Kind/name`, without what is not known."""
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
        fields = _Fields(document, index)
        operation = fields.operation()
        problems += [f"operation {index}{fields.title}: {problem}" for problem in fields.problems]
        operations += [operation] if operation else []
    if problems:
        raise ObjectPatchError(where, tuple(problems))
    return tuple(operations)


def despite_hook_error(operations: Iterable[ObjectOperation]) -> tuple[ObjectOperation, ...]:
    """Picks what is to be applied although the hook failed: `ignoreHookError` on the status.

    Source: contract.md 2.4.
    """
    return tuple(one for one in operations if one.common.ignore_hook_error and one.common.subresource == "status")


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


class _Fields:
    """The fields of one operation and what is wrong with them."""

    def __init__(self, document: JsonValue, index: int) -> None:
        self.problems: list[str] = []
        self.title = ""
        self._index = index
        self._fields: JsonObject = document if isinstance(document, dict) else {}
        if not isinstance(document, dict):
            self.problems.append("must be an object")

    def operation(self) -> ObjectOperation | None:
        """Answers the operation; None if there are problems. Sets `title` to what it is and is about."""
        if self.problems:
            return None
        verb = self._fields.get("operation")
        if not isinstance(verb, str) or verb not in _VERBS:
            state = "is unknown" if verb else "is required"
            self.problems.append(f"operation: {state}: one of " + ", ".join(_VERBS))
            return None
        self.title = f" ({verb})"
        unknown = sorted(self._fields.keys() - _FIELDS)
        self.problems += [f"{name}: is not a field of operations" for name in unknown]
        operation = self._create(_CREATES[verb]) if verb in _CREATES else self._of_existing(verb)
        return None if self.problems else operation

    def _create(self, verb: CreateVerb) -> Create | None:
        document = self._map("object")
        metadata = (document or {}).get("metadata") or {}
        if document is None or not isinstance(metadata, dict):
            self.problems += ["object.metadata: must be a map"] if document else []
            return None
        made_by_server = verb == "Create" and bool(metadata.get("generateName"))
        target = Target(
            api_version=self._string(document, "apiVersion", "object."),
            kind=self._string(document, "kind", "object.") or "",
            namespace=self._string(metadata, "namespace", "object.metadata.", required=False),
            name=self._string(metadata, "name", "object.metadata.", required=not made_by_server) or "",
        )
        return Create(self._common(verb, target), verb, document)

    def _of_existing(self, verb: str) -> ObjectOperation:
        target = Target(
            api_version=self._string(self._fields, "apiVersion", required=False),
            kind=self._string(self._fields, "kind") or "",
            namespace=self._string(self._fields, "namespace", required=False),
            name=self._string(self._fields, "name") or "",
        )
        common = self._common(verb, target)
        match verb:
            case "MergePatch":
                return MergePatch(common, self._map("mergePatch") or {})
            case "JSONPatch":
                return JsonPatch(common, self._json_patch())
            case "JQPatch":
                return JqPatch(common, self._program())
            case _:
                return Delete(common, _DELETES[verb])

    def _common(self, verb: str, target: Target) -> Common:
        if str(target):
            self.title = f" ({verb} {target})"
        return Common(
            index=self._index,
            target=target,
            subresource=(self._string(self._fields, "subresource", required=False) or "").strip("/") or None,
            ignore_missing=self._flag("ignoreMissingObject"),
            ignore_hook_error=self._flag("ignoreHookError"),
        )

    def _string(self, holder: JsonObject, field: str, prefix: str = "", *, required: bool = True) -> str | None:
        value = holder.get(field)
        if isinstance(value, str) and value:
            return value
        if value not in (None, ""):
            self.problems.append(f"{prefix}{field}: must be a string")
        elif required:
            self.problems.append(f"{prefix}{field}: is required")
        return None

    def _flag(self, field: str) -> bool:
        value = self._fields.get(field)
        if value is not None and not isinstance(value, bool):
            self.problems.append(f"{field}: must be true or false")
        return value is True

    def _embedded(self, field: str) -> JsonValue:
        """Reads a field that may also be given as text with JSON or YAML in it; None, and a problem, if it is empty."""
        value = self._fields.get(field)
        if isinstance(value, str):
            try:
                value = _read_text(value, field)
            except yamldoc.YamlError as error:
                self.problems.append(str(error))
                return None
        if value is None:
            self.problems.append(f"{field}: is required")
        return value

    def _map(self, field: str) -> JsonObject | None:
        value = self._embedded(field)
        if isinstance(value, dict):
            return value
        if value is not None:
            self.problems.append(f"{field}: must be a map, or a text with one")
        return None

    def _json_patch(self) -> list[JsonValue]:
        value = self._embedded("jsonPatch")
        if isinstance(value, list):
            for place, step in enumerate(value):
                self.problems += [f"jsonPatch[{place}]: {problem}" for problem in jsondoc.patch_problems(step)]
            return value
        if value is not None:
            self.problems.append("jsonPatch: must be a list, or a text with one")
        return []

    def _program(self) -> Program:
        source = self._string(self._fields, "jqFilter") or "."
        try:
            return compiled(source)
        except ValueError as error:
            # The further lines of jq's message quote the program.
            reason = (str(error).splitlines() or ["does not compile"])[0]
            self.problems.append(f"jqFilter: {reason.removeprefix('jq: error: ')}")
            return compiled(".")


def _read_text(text: str, field: str) -> JsonValue:
    try:
        value = jsondoc.loads(text)
        jsondoc.dumps(value)
    except ValueError:
        # That reader also says what is wrong with JSON that cannot be held.
        return yamldoc.load(text, field).value
    return value
