"""Random values within OpenAPI schemas, and random ways to write the same value as YAML. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from typing import Final

import yaml

from addon_operator.documents.jsondoc import JsonObject, JsonValue

MOST_INTEGER: Final = 2**31 - 1
_WORDS: Final = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta")
# Texts that YAML, JSON, templates and shells like to take for something else.
_TRAPS: Final = (
    "", "true", "null", "~", "0123", "1e3", "a: b", "# no comment", "'single'", '"double"', "{{ .Values }}", "$HOME",
    "ünïcödé", "two\nlines\n", " space ", "- item", "!tag", "&anchor", "*alias", "%", "2026-01-01", "=", "<<",
)  # fmt: skip
_HANDLED: Final = frozenset({
    "type", "enum", "properties", "required", "items", "additionalProperties", "minimum", "maximum", "minLength",
    "maxLength", "minItems", "maxItems", "uniqueItems", "pattern", "nullable", "default", "description", "title",
    "example",
})  # fmt: skip


class UnsupportedSchemaError(ValueError):
    """The schema has a keyword for which no values are made up."""


def random_value(schema: JsonObject, random: Random) -> JsonValue:
    """Makes up a value that the schema allows; names that it does not list do not occur in it.

    Args:
        schema: as in `openapi/config-values.yaml`. A `pattern` needs an `example`, which is the value.
        random: decides.

    Raises:
        UnsupportedSchemaError: the schema has a keyword that this function does not know.
    """
    unknown = {key for key in schema if key not in _HANDLED and not key.startswith("x-")}
    if unknown:
        raise UnsupportedSchemaError(f"no values are made up for {', '.join(sorted(unknown))}")
    if schema.get("nullable") and random.random() < 0.2:
        return None
    if isinstance(choices := schema.get("enum"), list):
        return random.choice(choices)
    match schema.get("type"):
        case "object":
            return _object(schema, random)
        case "array":
            return _array(schema, random)
        case "string":
            return _string(schema, random)
        case "integer":
            return random.randint(_bound(schema, "minimum", -1000), _bound(schema, "maximum", 1000))
        case "number":
            return random.randint(4 * _bound(schema, "minimum", -250), 4 * _bound(schema, "maximum", 250)) / 4
        case "boolean":
            return random.random() < 0.5
        case other:
            raise UnsupportedSchemaError(f"no values are made up for the type {other}")


def _object(schema: JsonObject, random: Random) -> JsonObject:
    properties, required = schema.get("properties") or {}, schema.get("required") or []
    assert isinstance(properties, dict)
    assert isinstance(required, list)
    made: JsonObject = {}
    for name, child in properties.items():
        assert isinstance(child, dict)
        if name in required or random.random() < 0.6:
            made[name] = random_value(child, random)
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        free = [word for word in _WORDS if word not in properties]
        for name in random.sample(free, random.randint(0, 3)):
            made[name] = random_value(extra, random)
    names = list(made)
    random.shuffle(names)
    return {name: made[name] for name in names}


def _array(schema: JsonObject, random: Random) -> list[JsonValue]:
    items = schema.get("items")
    if not isinstance(items, dict):
        raise UnsupportedSchemaError("no values are made up for an array without items")
    least = _bound(schema, "minItems", 0)
    count = random.randint(least, max(least, min(_bound(schema, "maxItems", 4), least + 4)))
    made = [random_value(items, random) for _ in range(count)]
    if not schema.get("uniqueItems"):
        return made
    kept = list({json.dumps(item, sort_keys=True): item for item in made}.values())
    return kept if len(kept) >= least else _array(schema, random)


def _string(schema: JsonObject, random: Random) -> JsonValue:
    if "pattern" in schema:
        if "example" not in schema:
            raise UnsupportedSchemaError("no values are made up for a pattern without an example")
        return schema["example"]
    least, most = _bound(schema, "minLength", 0), _bound(schema, "maxLength", 60)
    text = random.choice(_TRAPS) if random.random() < 0.3 else " ".join(random.choices(_WORDS, k=random.randint(1, 3)))
    return (text + "x" * (least - len(text)))[:most]


def _bound(schema: JsonObject, keyword: str, default: int) -> int:
    value = schema.get(keyword, default)
    assert isinstance(value, int)
    return value


def random_yaml(value: JsonValue, random: Random) -> str:
    """Writes a section in one of the ways in which people and programs write it; reads back as the same value."""
    if value in ({}, None) and random.random() < 0.7:
        return random.choice(("", "{}", "null\n", "# nothing yet\n", "---\n", "\n\n"))
    match random.randrange(6):
        case 0:
            text = json.dumps(value)
        case 1:
            text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
        case 2:
            text = yaml.safe_dump(value, default_flow_style=True, width=40)
        case 3:
            text = yaml.safe_dump(value, indent=4, allow_unicode=True, sort_keys=False)
        case _:
            text = yaml.safe_dump(value, sort_keys=random.random() < 0.5)
    if random.random() < 0.25:
        text = f"# {random.choice(_WORDS)} {random.randrange(1000)}\n{text}"
    if random.random() < 0.15:
        text = f"---\n{text}"
    if random.random() < 0.15 and text.endswith("\n"):
        text = f"{text}# {random.choice(_WORDS)}\n"
    return text.replace("\n", "\r\n") if random.random() < 0.05 and "\\" not in text else text


def changed_value(schema: JsonObject, value: Mapping[str, JsonValue], random: Random) -> JsonObject:
    """Answers a section of which one property is another one (or comes, or goes, where the schema lets it)."""
    properties = schema.get("properties")
    assert isinstance(properties, dict)
    name = random.choice(sorted(properties))
    child, required = properties[name], schema.get("required") or []
    assert isinstance(child, dict)
    assert isinstance(required, list)
    if name in value and name not in required and random.random() < 0.3:
        return {key: item for key, item in value.items() if key != name}
    return {**value, name: random_value(child, random)}
