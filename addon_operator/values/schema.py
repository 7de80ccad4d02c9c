"""The schemas of one section at work: validation before and after hooks, the rule for helm, defaults.

Pure. `openapi/config-values.yaml` describes what a user may set, `openapi/values.yaml` what a module works with. Both
are compiled once. Reading and parsing the files is the caller's part. Violations name dotted paths and rules, never
values.

Source: contract.md 2.9.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, TypeAlias

import jsonschema
from jsonschema.protocols import Validator

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import SchemaError
from addon_operator.values import openapi
from addon_operator.values.layers import GLOBAL

OriginOf: TypeAlias = Callable[[str], str]

_ENABLED_MODULES = f"{GLOBAL}.enabledModules"

_COMPLETABLE = frozenset({"required", "minProperties", "minItems", "anyOf", "oneOf", "not"})
"""Rules that the patch of a hook can still fulfil by adding something."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Schema:
    document: JsonObject
    validator: Validator
    has_defaults: bool


@dataclasses.dataclass(frozen=True, slots=True)
class SectionSchemas:
    """The compiled schemas of one section; whatever has no schema accepts everything.

    Attributes:
        config_file: how messages name the schema of config values.
        values_file: how messages name the schema of values.
        config: the schema of config values.
        values: the schema of values.
        helm: the schema of values with `x-required-for-helm`.
    """

    config_file: str
    values_file: str
    config: _Schema | None = dataclasses.field(default=None, repr=False)
    values: _Schema | None = dataclasses.field(default=None, repr=False)
    helm: _Schema | None = dataclasses.field(default=None, repr=False)

    def check_config(self, key: str, value: JsonValue, *, origin: OriginOf = lambda _: "") -> tuple[str, ...]:
        """Returns all violations of the schema of config values, sorted.

        Args:
            key: the section key, with which each violation starts.
            value: the effective config values of the section.
            origin: JSON pointer inside the section -> where the value came from; empty to say nothing about it.
        """
        return _violations(self.config, key, value, origin=origin)

    def check_values(
        self, key: str, value: JsonValue, *, complete: bool = True, origin: OriginOf = lambda _: ""
    ) -> tuple[str, ...]:
        """Returns all violations of the schema of values, sorted.

        Args:
            key: the section key, with which each violation starts.
            value: the effective values of the section.
            complete: false leaves out what hooks that did not run yet may still add, such as required keys.
            origin: as for `check_config`.
        """
        without = frozenset[str]() if complete else _COMPLETABLE
        return _violations(self.values, key, value, without=without, origin=origin)

    def check_helm(self, key: str, value: JsonValue, *, origin: OriginOf = lambda _: "") -> tuple[str, ...]:
        """Returns as `check_values`, with `x-required-for-helm` required too."""
        return _violations(self.helm, key, value, origin=origin)

    def with_config_defaults(self, value: JsonValue) -> JsonValue:
        """Returns the value with the defaults of the schema of config values where keys are absent."""
        return _filled(self.config, value, frozenset())

    def with_values_defaults(self, value: JsonValue, *, absent: frozenset[str] = frozenset()) -> JsonValue:
        """Returns the value with the defaults of the schema of values where keys are absent.

        Args:
            value: the values of the section.
            absent: JSON pointers inside the section that stay absent, because a hook removed them.
        """
        return _filled(self.values, value, absent)


def parse_schemas(
    config: JsonValue | None, values: JsonValue | None, *, config_file: str, values_file: str
) -> SectionSchemas:
    """Compiles the schemas of one section.

    Args:
        config: the parsed config-values.yaml; None if it is absent or empty.
        values: the parsed values.yaml beside it; None if it is absent or empty.
        config_file: how messages name the first.
        values_file: how messages name the second.

    Raises:
        SchemaError: not a schema, an `x-extend` or a `$ref` that leads nowhere; with the file and the place in it.
    """
    own = None if config is None else openapi.check_file(config, config_file)
    if own is not None and "x-extend" in own:
        raise SchemaError(f"{config_file}: /x-extend: only values.yaml can extend another schema")
    effective = None if values is None else openapi.extend(openapi.check_file(values, values_file), own, values_file)
    return SectionSchemas(
        config_file,
        values_file,
        config=None if own is None else _compile(own, config_file),
        values=None if effective is None else _compile(effective, values_file),
        helm=None if effective is None else _compile(openapi.require_for_helm(effective), values_file),
    )


def _compile(schema: JsonObject, file: str) -> _Schema:
    closed = openapi.close(schema, file)
    return _Schema(closed, _Draft(openapi.spell_nullable(closed), format_checker=_FORMATS), _has_defaults(closed))


def _has_defaults(schema: JsonObject) -> bool:
    return "default" in schema or any(_has_defaults(child) for _, child in openapi.children(schema))


def _filled(schema: _Schema | None, value: JsonValue, absent: frozenset[str]) -> JsonValue:
    if schema is None or not schema.has_defaults:
        return value
    return _fill(schema.document, value, "", absent)


def _fill(schema: JsonObject, value: JsonValue, pointer: str, absent: frozenset[str]) -> JsonValue:
    """Source: contract.md 2.9 "default": through properties and items, not through allOf and the like."""
    if isinstance(value, dict):
        filled = dict(value)
        for name, child in openapi.as_map(schema.get("properties")).items():
            place = f"{pointer}/{jsondoc.escape(name)}"
            if isinstance(child, dict) and (name in value or ("default" in child and place not in absent)):
                filled[name] = _fill(child, value[name] if name in value else child["default"], place, absent)
        return filled
    items = schema.get("items")
    if isinstance(value, list) and isinstance(items, dict):
        return [_fill(items, item, f"{pointer}/{index}", absent) for index, item in enumerate(value)]
    return value


def _violations(
    schema: _Schema | None, key: str, value: JsonValue, *, origin: OriginOf, without: frozenset[str] = frozenset()
) -> tuple[str, ...]:
    if schema is None:
        return ()
    lines = set()
    for error in schema.validator.iter_errors(value):
        place = ".".join([key, *map(str, error.absolute_path)])
        # The operator itself adds this key for hooks, so a user's schema has no say in it (contract.md 3.9).
        if error.validator not in without and not f"{place}.".startswith(f"{_ENABLED_MODULES}."):
            source = origin(jsondoc.join(*map(str, error.absolute_path)))
            lines.add(f"{place} {_text(error)}" + (f" ({source})" if source else ""))
    return tuple(sorted(lines))


_TEXTS = {
    "required": "is required",
    "additionalProperties": "is a forbidden property",
    "pattern": "in body should match '{rule}'",
    "format": "in body must be of format {rule}",
    "multipleOf": "in body should be a multiple of {rule}",
    "minLength": "in body should be at least {rule} chars long",
    "maxLength": "in body should be at most {rule} chars long",
    "minItems": "in body should have at least {rule} items",
    "maxItems": "in body should have at most {rule} items",
    "minProperties": "in body should have at least {rule} properties",
    "maxProperties": "in body should have at most {rule} properties",
    "uniqueItems": "in body shouldn't contain duplicates",
    "anyOf": "in body must validate at least one schema (anyOf)",
    "oneOf": "in body must validate one and only one schema (oneOf)",
    "not": "in body must not validate the schema (not)",
}


def _text(error: jsonschema.ValidationError) -> str:
    keyword, rule = str(error.validator), error.validator_value
    if keyword == "type":
        return f"in body must be of type {openapi.listed(rule)}"
    if keyword == "enum":
        return f"in body should be one of {openapi.listed(rule)}"
    if keyword in {"minimum", "maximum"}:
        exclusive = isinstance(error.schema, dict) and error.schema.get(f"exclusive{keyword.capitalize()}")
        relation = "greater than" if keyword == "minimum" else "less than"
        return f"in body should be {relation} {'' if exclusive else 'or equal to '}{rule}"
    return _TEXTS.get(keyword, f"in body breaks the rule {keyword}").format(rule=rule)


def _required(_validator: object, names: Iterable[str], instance: object, _schema: object) -> Iterator[object]:
    if isinstance(instance, dict):
        for name in names:
            if name not in instance:
                yield jsonschema.ValidationError("is required", path=(name,))


def _additional_properties(validator: Any, rule: object, instance: object, schema: JsonObject) -> Iterator[object]:
    if not isinstance(instance, dict):
        return
    named = openapi.as_map(schema.get("properties"))
    patterns = list(openapi.as_map(schema.get("patternProperties")))
    for name in instance:
        if name in named or any(re.search(pattern, name) for pattern in patterns):
            continue
        if rule is False:
            yield jsonschema.ValidationError("is a forbidden property", path=(name,))
        elif isinstance(rule, dict):
            yield from validator.descend(instance[name], rule, path=name)


def _is_integer(_checker: object, instance: object) -> bool:
    """JSON has one kind of number: 1.0 is an integer, as everywhere else around Kubernetes."""
    if isinstance(instance, bool):
        return False
    return isinstance(instance, int) or (isinstance(instance, float) and instance.is_integer())


def _within(bits: int) -> Callable[[object], bool]:
    limit = 2 ** (bits - 1)
    return lambda value: not isinstance(value, int) or isinstance(value, bool) or -limit <= value < limit


def _is_instant(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


def _formats() -> jsonschema.FormatChecker:
    """The formats that are checked; others are taken as remarks, as JSON schema has it."""
    checker = jsonschema.FormatChecker(formats=("date", "email", "ipv4", "ipv6", "regex", "uuid"))
    checker.checks("date-time", raises=ValueError)(_is_instant)
    checker.checks("int32")(_within(32))
    checker.checks("int64")(_within(64))
    return checker


_FORMATS = _formats()

_Draft = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft4Validator,
    {"required": _required, "additionalProperties": _additional_properties},
    type_checker=jsonschema.Draft4Validator.TYPE_CHECKER.redefine("integer", _is_integer),
)
