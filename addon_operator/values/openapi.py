"""From the OpenAPI schema files of a section to plain JSON schemas of draft 4, which OpenAPI 3.0 is closest to.

Pure. A file is checked (is it a schema at all?), extended by `x-extend`, its references are put in place, it is closed
against unknown keys, and `nullable` is spelled out. Validating values is the part of `schema`.

Source: contract.md 2.9, 5.2 no. 17.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import jsonschema

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import SchemaError

EXTENDABLE = "config-values.yaml"
"""The only schema that `x-extend` may name."""

_MAPS = frozenset({"properties", "patternProperties", "definitions"})
_LISTS = frozenset({"allOf", "anyOf", "oneOf"})
_SINGLE = frozenset({"items", "additionalProperties", "not"})
_CONSTRAINTS = _LISTS | {"not"}

_EXTENDED_MAPS = ("definitions", "properties", "patternProperties")
_EXTENDED_PLAIN = ("title", "description", "additionalProperties")

_META = jsonschema.Draft4Validator(jsonschema.Draft4Validator.META_SCHEMA)

_Change: TypeAlias = Callable[[JsonObject, str], JsonObject]


def check_file(document: JsonValue, file: str) -> JsonObject:
    """Returns the schema of a parsed file, without empty keywords.

    Raises:
        SchemaError: it is not a schema; all problems, each with the file and a JSON pointer.
    """
    if not isinstance(document, dict):
        raise SchemaError(f"{file}: /: a schema must be a map")
    schema = _without_blanks(document, "")
    errors = _META.iter_errors(schema)
    problems = [f"{jsondoc.join(*map(str, error.absolute_path)) or '/'}: {_meta_text(error)}" for error in errors]
    problems = problems or list(_own_problems(schema, ""))
    if problems:
        raise SchemaError("\n".join(f"{file}: {problem}" for problem in sorted(problems)))
    return schema


def extend(schema: JsonObject, parent: JsonObject | None, file: str) -> JsonObject:
    """Returns the schema of values with what its `x-extend` takes from the schema of config values.

    `additionalProperties` is inherited, too: what a user may set must not be forbidden one step later.

    Raises:
        SchemaError: the extension leads nowhere.

    Source: contract.md 2.9, 6.1.
    """
    if "x-extend" not in schema:
        return schema
    extension = schema["x-extend"]
    if not isinstance(extension, dict) or extension.get("schema") != EXTENDABLE:
        raise SchemaError(f"{file}: /x-extend: must name the schema {EXTENDABLE}")
    if parent is None:
        raise SchemaError(f"{file}: /x-extend/schema: there is no {EXTENDABLE} beside it, or it is empty")
    inherited: JsonObject = {
        name: value for name, value in parent.items() if name in _EXTENDED_PLAIN or name.startswith("x-")
    }
    merged = inherited | {name: value for name, value in schema.items() if name != "x-extend"}
    for name in _EXTENDED_MAPS:
        if name in parent:
            merged[name] = as_map(parent[name]) | as_map(schema.get(name))
    return _with_required(merged, [*_texts(parent.get("required")), *_texts(schema.get("required"))])


def require_for_helm(schema: JsonObject) -> JsonObject:
    """Returns the schema with `x-required-for-helm` merged into `required`, at any depth."""
    return _required_for_helm(schema, "")


def close(schema: JsonObject, file: str) -> JsonObject:
    """Returns the schema with its references put in place and closed against keys that it does not name.

    A schema that contains itself keeps the inner reference.

    Raises:
        SchemaError: a reference that leads nowhere.
    """
    return _closed(_placed(schema, schema, (), file), "")


def spell_nullable(schema: JsonObject) -> JsonObject:
    """Returns the schema with `nullable: true` as a type of its own."""
    return _spelled_nullable(schema, "")


def children(schema: JsonObject) -> Iterator[tuple[tuple[str, ...], JsonObject]]:
    """Lists the schemas right below a schema, each with the keys that lead to it."""
    for name, value in schema.items():
        if name in _MAPS and isinstance(value, dict):
            yield from (((name, key), child) for key, child in value.items() if isinstance(child, dict))
        elif (name in _LISTS or name == "items") and isinstance(value, list):
            yield from (((name, str(at)), child) for at, child in enumerate(value) if isinstance(child, dict))
        elif name in _SINGLE and isinstance(value, dict):
            yield (name,), value


def as_map(value: JsonValue) -> JsonObject:
    """Returns a keyword that is a map if it is present."""
    return value if isinstance(value, dict) else {}


def listed(rule: object) -> str:
    """Returns the choices of a rule (`type`, `enum`) as text, without null, which `nullable` is about."""
    choices = rule if isinstance(rule, list) else [rule]
    return " or ".join(str(choice) for choice in choices if choice not in ("null", None))


def _without_blanks(schema: JsonObject, _keyword: str) -> JsonObject:
    """Drops what other readers take for absent: keywords without a value, and an empty list of required keys."""
    kept = {
        name: value
        for name, value in schema.items()
        if name == "default" or not (value is None or (name == "required" and value == []))
    }
    return _rebuilt(kept, _without_blanks)


def _meta_text(error: jsonschema.ValidationError) -> str:
    keyword = str(error.validator)
    if keyword in {"type", "enum"}:
        return f"must be {listed(error.validator_value)}"
    if keyword == "anyOf":
        return "has none of the forms that are allowed here"
    return f"breaks the rule {keyword} of JSON schemas"


def _own_problems(schema: JsonObject, pointer: str) -> Iterator[str]:
    required = schema.get("x-required-for-helm", [])
    names: JsonValue = [required] if isinstance(required, str) else required
    if not isinstance(names, list) or len(names) != len(_texts(names)):
        yield f"{pointer}/x-required-for-helm: must be a string or a list of strings"
    pattern = schema.get("pattern")
    if isinstance(pattern, str):
        yield from _pattern_problem(pattern, f"{pointer}/pattern")
    for name in as_map(schema.get("patternProperties")):
        yield from _pattern_problem(name, pointer + jsondoc.join("patternProperties", name))
    for keys, child in children(schema):
        yield from _own_problems(child, pointer + jsondoc.join(*keys))


def _pattern_problem(pattern: str, pointer: str) -> Iterator[str]:
    try:
        re.compile(pattern)
    except re.error as error:
        yield f"{pointer}: not a regular expression: {error.msg}"


def _required_for_helm(schema: JsonObject, _keyword: str) -> JsonObject:
    rebuilt = _rebuilt(schema, _required_for_helm)
    extra = rebuilt.get("x-required-for-helm")
    return _with_required(
        rebuilt, [*_texts(rebuilt.get("required")), *([extra] if isinstance(extra, str) else _texts(extra))]
    )


def _with_required(schema: JsonObject, names: Sequence[str]) -> JsonObject:
    return schema | {"required": list(dict.fromkeys(names))} if names else schema


def _placed(schema: JsonObject, root: JsonObject, above: tuple[str, ...], file: str) -> JsonObject:
    reference = schema.get("$ref")
    if reference is None:
        return _rebuilt(schema, lambda child, _: _placed(child, root, above, file))
    if reference in above:
        return {"$ref": reference}
    if not isinstance(reference, str) or not reference.startswith("#"):
        raise SchemaError(f"{file}: $ref {reference!r}: only references inside the file are possible")
    return _placed(_target(reference, root, file), root, (*above, reference), file)


def _target(reference: str, root: JsonObject, file: str) -> JsonObject:
    try:
        target = jsondoc.lookup(root, reference.removeprefix("#"))
    except (KeyError, ValueError) as error:
        raise SchemaError(f"{file}: $ref {reference!r}: there is nothing at this place") from error
    if not isinstance(target, dict) or target.get("$ref") == reference:
        raise SchemaError(f"{file}: $ref {reference!r}: there is no schema at this place")
    return target


def _closed(schema: JsonObject, keyword: str) -> JsonObject:
    """Forbids keys that an object schema does not name, unless that is overridden.

    Branches of allOf, anyOf, oneOf and not stay as they are: each adds to a schema and names only some of its keys.
    An object below the section that names no key at all has no restriction on them.
    """
    rebuilt = _rebuilt(schema, lambda child, name: child if name in _CONSTRAINTS else _closed(child, name))
    names_keys = "properties" in schema or "patternProperties" in schema
    whole_section = not keyword and schema.get("type") == "object" and not _CONSTRAINTS & schema.keys()
    if (names_keys or whole_section) and "additionalProperties" not in schema:
        return rebuilt | {"additionalProperties": False}
    return rebuilt


def _spelled_nullable(schema: JsonObject, _keyword: str) -> JsonObject:
    rebuilt = _rebuilt(schema, _spelled_nullable)
    if rebuilt.get("nullable") is not True:
        return rebuilt
    kind, choices = rebuilt.get("type"), rebuilt.get("enum")
    if isinstance(kind, str):
        rebuilt["type"] = [kind, "null"]
    if isinstance(choices, list) and None not in choices:
        rebuilt["enum"] = [*choices, None]
    return {"anyOf": [{"type": "null"}, rebuilt]} if _CONSTRAINTS & rebuilt.keys() else rebuilt


def _rebuilt(schema: JsonObject, change: _Change) -> JsonObject:
    """Copies a schema with each schema right below it changed; `change` gets the keyword that holds it, too."""
    return {name: _rebuilt_keyword(name, value, change) for name, value in schema.items()}


def _rebuilt_keyword(name: str, value: JsonValue, change: _Change) -> JsonValue:
    if name in _MAPS and isinstance(value, dict):
        return {key: change(child, name) if isinstance(child, dict) else child for key, child in value.items()}
    if (name in _LISTS or name == "items") and isinstance(value, list):
        return [change(child, name) if isinstance(child, dict) else child for child in value]
    return change(value, name) if name in _SINGLE and isinstance(value, dict) else value


def _texts(value: JsonValue) -> Sequence[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
