from __future__ import annotations

import copy

import pytest

from addon_operator.documents import yamldoc
from addon_operator.documents.jsondoc import JsonValue
from addon_operator.errors import SchemaError
from addon_operator.values.schema import SectionSchemas, parse_schemas

SECRET = "hunter2"


def schemas(config: str | None = None, values: str | None = None) -> SectionSchemas:
    def read(text: str | None) -> JsonValue:
        return None if text is None else yamldoc.load(text, "schema").value

    return parse_schemas(read(config), read(values), config_file="m/openapi/config-values.yaml", values_file="m/v.yaml")


# --- violations

RULES = [
    ("type: string", 5, "m.a in body must be of type string"),
    ("type: integer", True, "m.a in body must be of type integer"),
    ("type: integer", 1.5, "m.a in body must be of type integer"),
    ("type: integer", 1.0, None),
    ("type: number", 1, None),
    ("type: boolean", 0, "m.a in body must be of type boolean"),
    ("type: object", [], "m.a in body must be of type object"),
    ("type: array", {}, "m.a in body must be of type array"),
    ("type: string", None, "m.a in body must be of type string"),
    ("{type: string, nullable: true}", None, None),
    ("{type: string, nullable: true}", 5, "m.a in body must be of type string"),
    ("{type: string, nullable: true, enum: [x]}", None, None),
    ("{type: string, nullable: false}", None, "m.a in body must be of type string"),
    ("{nullable: true, allOf: [{type: string}]}", None, None),
    ("{nullable: true, allOf: [{type: string}]}", 5, "m.a in body must validate at least one schema (anyOf)"),
    ("{type: string, enum: [x, y]}", SECRET, "m.a in body should be one of x or y"),
    ("{type: string, pattern: '^[a-z]+$'}", SECRET, "m.a in body should match '^[a-z]+$'"),
    ("{type: string, minLength: 9}", SECRET, "m.a in body should be at least 9 chars long"),
    ("{type: string, maxLength: 3}", SECRET, "m.a in body should be at most 3 chars long"),
    ("{type: integer, minimum: 3}", 2, "m.a in body should be greater than or equal to 3"),
    ("{type: integer, minimum: 3, exclusiveMinimum: true}", 3, "m.a in body should be greater than 3"),
    ("{type: integer, minimum: 3, exclusiveMinimum: false}", 3, None),
    ("{type: integer, maximum: 3}", 4, "m.a in body should be less than or equal to 3"),
    ("{type: integer, maximum: 3, exclusiveMaximum: true}", 3, "m.a in body should be less than 3"),
    ("{type: integer, multipleOf: 2}", 3, "m.a in body should be a multiple of 2"),
    ("{type: array, minItems: 1}", [], "m.a in body should have at least 1 items"),
    ("{type: array, maxItems: 1}", [1, 2], "m.a in body should have at most 1 items"),
    ("{type: array, uniqueItems: true}", [1, 1], "m.a in body shouldn't contain duplicates"),
    ("{type: array, items: {type: string}}", ["x", 1], "m.a.1 in body must be of type string"),
    ("{type: object, minProperties: 1}", {}, "m.a in body should have at least 1 properties"),
    ("{type: object, maxProperties: 0}", {"k": 1}, "m.a in body should have at most 0 properties"),
    ("{type: object, required: [k], properties: {k: {}}}", {}, "m.a.k is required"),
    ("{anyOf: [{type: string}, {type: object}]}", 1, "m.a in body must validate at least one schema (anyOf)"),
    ("{oneOf: [{type: integer}, {minimum: 1}]}", 1, "m.a in body must validate one and only one schema (oneOf)"),
    ("{allOf: [{type: string}, {minLength: 9}]}", SECRET, "m.a in body should be at least 9 chars long"),
    ("{not: {type: integer}}", 1, "m.a in body must not validate the schema (not)"),
    ("{type: string, format: date-time}", "2026-01-02T03:04:05Z", None),
    ("{type: string, format: date-time}", "tomorrow", "m.a in body must be of format date-time"),
    ("{type: string, format: date-time}", "2026-01-02T03:04:05", "m.a in body must be of format date-time"),
    ("{type: string, format: ipv4}", "300.1.1.1", "m.a in body must be of format ipv4"),
    ("{type: integer, format: int32}", 2**31, "m.a in body must be of format int32"),
    ("{type: integer, format: int64}", 2**31, None),
    ("{type: string, format: whatever}", "x", None),
    ("{type: object, additionalProperties: {type: string}}", {"k": 1}, "m.a.k in body must be of type string"),
    ("{type: object, patternProperties: {'^x': {type: string}}}", {"x1": 1}, "m.a.x1 in body must be of type string"),
    ("{type: object, patternProperties: {'^x': {}}}", {"y": 1}, "m.a.y is a forbidden property"),
    ("{type: array, items: [{type: string}]}", [1], "m.a.0 in body must be of type string"),
    ("{dependencies: {k: [l]}}", {"k": 1}, "m.a in body breaks the rule dependencies"),
]


@pytest.mark.parametrize(("rule", "value", "line"), RULES, ids=[f"{rule} {value}" for rule, value, _ in RULES])
def test_rules(rule: str, value: JsonValue, line: str | None) -> None:
    found = schemas(f"type: object\nproperties:\n  a:\n    {rule}\n").check_config("m", {"a": value})
    assert found == (() if line is None else (line,))
    assert SECRET not in str(found)


def test_all_violations_are_listed_with_dotted_paths() -> None:
    text = """
      type: object
      required: [clusterName, project]
      properties:
        project: {type: string}
        clusterName: {type: string}
        param1: {type: string}
        servers:
          type: array
          items:
            type: object
            required: [host]
            properties: {host: {type: string}, port: {type: integer}}
    """
    value: JsonValue = {"foo": 1, "param1": 2, "servers": [{"host": "h"}, {"port": "x", "bar": 1}]}
    assert schemas(text).check_config("global", value) == (
        "global.clusterName is required",
        "global.foo is a forbidden property",
        "global.param1 in body must be of type string",
        "global.project is required",
        "global.servers.1.bar is a forbidden property",
        "global.servers.1.host is required",
        "global.servers.1.port in body must be of type integer",
    )


def test_a_whole_section_of_another_type() -> None:
    assert schemas("type: array").check_config("m", {}) == ("m in body must be of type array",)
    assert schemas("type: array\nitems: {type: string}").check_config("m", ["a"]) == ()


def test_without_schemas_everything_is_valid() -> None:
    none = schemas()
    value: JsonValue = {"a": [None]}
    assert (none.check_config("m", value), none.check_values("m", value), none.check_helm("m", value)) == ((), (), ())
    assert none.with_config_defaults(value) == none.with_values_defaults(value) == value


def test_enabled_modules_are_never_validated() -> None:
    closed = schemas(values="type: object\nrequired: [enabledModules, a]\nproperties: {a: {}}\n")
    assert closed.check_values("global", {"enabledModules": ["x"]}) == ("global.a is required",)
    assert closed.check_values("global", {"a": 1}) == ()
    assert closed.check_values("m", {"a": 1, "enabledModules": []}) == ("m.enabledModules is a forbidden property",)
    typed = schemas(values="type: object\nproperties: {enabledModules: {type: array, items: {type: integer}}}")
    assert typed.check_values("global", {"enabledModules": ["x"]}) == ()


# --- unknown keys

CLOSING = [
    ("{type: object, properties: {a: {}}}", {"b": 1}, False),
    ("{properties: {a: {}}}", {"b": 1}, False),
    ("{type: object}", {"b": 1}, False),
    ("{}", {"b": 1}, True),
    ("{type: object, additionalProperties: true, properties: {a: {}}}", {"b": 1}, True),
    ("{type: object, properties: {a: {type: object, properties: {x: {}}}}}", {"a": {"y": 1}}, False),
    (
        "{type: object, additionalProperties: false, properties: {a: {type: object, properties: {x: {}}}}}",
        {"a": {"y": 1}},
        False,
    ),
    (
        "{type: object, additionalProperties: true, properties: {a: {type: object, properties: {x: {}}}}}",
        {"b": 1, "a": {"y": 1}},
        False,
    ),
    ("{type: object, properties: {discovery: {type: object}}}", {"discovery": {"anything": 1}}, True),
    ("{type: array, items: {type: object, properties: {x: {}}}}", [{"y": 1}], False),
    ("{type: object, additionalProperties: {type: object, properties: {x: {}}}}", {"k": {"y": 1}}, False),
    ("{type: object, properties: {a: {}}, allOf: [{properties: {a: {type: string}}}]}", {"a": "x"}, True),
    ("{type: object, allOf: [{properties: {a: {}}}, {properties: {b: {}}}]}", {"a": 1, "b": 1}, True),
    (
        "{type: object, properties: {a: {$ref: '#/definitions/A'}}, definitions: {A: {properties: {x: {}}}}}",
        {"a": {"y": 1}},
        False,
    ),
]


@pytest.mark.parametrize(("schema", "value", "open_"), CLOSING, ids=[schema for schema, _, _ in CLOSING])
def test_schemas_are_closed_against_unknown_keys(schema: str, value: JsonValue, open_: bool) -> None:
    found = schemas(schema).check_config("m", value)
    assert (found == ()) is open_
    assert all(line.endswith("is a forbidden property") for line in found)


# --- references


def test_references_are_resolved_also_to_themselves() -> None:
    text = """
      type: object
      properties:
        root: {$ref: '#/definitions/node'}
      definitions:
        node:
          type: object
          properties:
            name: {type: string}
            children: {type: array, items: {$ref: '#/definitions/node'}}
    """
    tree: JsonValue = {"root": {"name": "a", "children": [{"name": "b", "children": [{"name": 5}]}]}}
    assert schemas(text).check_config("m", tree) == (
        "m.root.children.0.children.0.name in body must be of type string",
    )


@pytest.mark.parametrize(
    "reference",
    [
        "#/definitions/nope",
        "other.yaml#/definitions/a",
        "https://example.com/x",
        "#definitions",
        "#/type",
        "#/properties/a",
    ],
)
def test_references_that_lead_nowhere(reference: str) -> None:
    with pytest.raises(SchemaError, match=r"^m/openapi/config-values\.yaml: \$ref"):
        schemas(f"type: object\nproperties:\n  a: {{$ref: '{reference}'}}\n")


# --- files that are no schemas

BAD = [
    ("5", "/: a schema must be a map"),
    ("[]", "/: a schema must be a map"),
    ("type: strnig", "/type: has none of the forms"),
    ("properties: [a]", "/properties: must be object"),
    ("properties: {a: {type: object, required: x}}", "/properties/a/required: must be array"),
    ("properties: {a: {pattern: '['}}", "/properties/a/pattern: not a regular expression"),
    ("patternProperties: {'(': {}}", "/patternProperties/(: not a regular expression"),
    ("items: {x-required-for-helm: {a: 1}}", "/items/x-required-for-helm: must be a string or a list"),
    ("x-required-for-helm: [a, 1]", "/x-required-for-helm: must be a string or a list"),
    ("{minimum: x}", "/minimum: must be number"),
    ("{exclusiveMinimum: 5, minimum: 1}", "/exclusiveMinimum: must be boolean"),
]


@pytest.mark.parametrize(("text", "message"), BAD, ids=[text for text, _ in BAD])
def test_files_that_are_no_schemas(text: str, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        schemas(text)
    assert str(caught.value).startswith(f"m/openapi/config-values.yaml: {message}")
    with pytest.raises(SchemaError, match=r"^m/v\.yaml: "):
        schemas(values=text)


def test_all_problems_of_a_file_are_named() -> None:
    with pytest.raises(SchemaError) as caught:
        schemas("{minimum: x, properties: {a: {type: nope}}}")
    assert len(str(caught.value).splitlines()) == 2


def test_keywords_without_a_value_are_absent() -> None:
    lenient = schemas("type: object\ntitle:\nrequired: []\nproperties: {a: {description: , default: null}}\n")
    assert lenient.with_config_defaults({}) == {"a": None}


# --- x-extend

CONFIG = """
type: object
title: Config
x-doc: one
required: [project, clusterName]
definitions: {N: {type: string}}
properties:
  project: {type: string}
  clusterName: {$ref: '#/definitions/N'}
  both: {type: string}
patternProperties: {'^q': {type: integer}}
"""


def test_x_extend() -> None:
    extended = schemas(
        CONFIG,
        "x-extend: {schema: config-values.yaml}\ntype: object\nrequired: [discovery]\n"
        "properties: {discovery: {type: object}, both: {type: integer}, again: {$ref: '#/definitions/N'}}\n",
    )
    good: JsonValue = {"project": "p", "clusterName": "c", "discovery": {}, "both": 1, "again": "a", "q1": 1}
    assert extended.check_values("m", good) == ()
    assert extended.check_values("m", {"both": "text", "q1": "x", "other": 1}) == (
        "m.both in body must be of type integer",
        "m.clusterName is required",
        "m.discovery is required",
        "m.other is a forbidden property",
        "m.project is required",
        "m.q1 in body must be of type integer",
    )
    assert extended.check_config("m", {"project": "p", "clusterName": "c", "discovery": {}}) == (
        "m.discovery is a forbidden property",
    )


def test_what_a_user_may_set_stays_allowed_in_an_extending_schema() -> None:
    extend = "x-extend: {schema: config-values.yaml}\ntype: object\n"
    open_config = "type: object\nadditionalProperties: true\nproperties: {a: {}}\n"
    assert schemas(open_config, extend).check_values("m", {"list": 1}) == ()
    closed_again = schemas(open_config, extend + "additionalProperties: false\n")
    assert closed_again.check_values("m", {"list": 1}) == ("m.list is a forbidden property",)


@pytest.mark.parametrize(
    ("config", "values"),
    [
        (None, "x-extend: {schema: config-values.yaml}"),
        (CONFIG, "x-extend: {schema: other.yaml}"),
        (CONFIG, "x-extend: config-values.yaml"),
        (CONFIG, "x-extend: {}"),
    ],
    ids=["absent", "other", "text", "empty"],
)
def test_extensions_that_lead_nowhere(config: str | None, values: str) -> None:
    with pytest.raises(SchemaError, match=r"^m/v\.yaml: /x-extend"):
        schemas(config, values)


def test_a_config_schema_cannot_extend() -> None:
    with pytest.raises(SchemaError, match=r"^m/openapi/config-values\.yaml: /x-extend"):
        schemas("x-extend: {schema: config-values.yaml}")


# --- before helm


def test_x_required_for_helm_at_any_depth() -> None:
    text = """
      type: object
      required: [base]
      x-required-for-helm: [param1]
      properties:
        base: {type: string}
        param1: {type: string}
        inner:
          type: object
          x-required-for-helm: deep
          properties: {deep: {type: string}}
        list:
          type: array
          items: {type: object, x-required-for-helm: [k], properties: {k: {}}}
    """
    found = schemas(values=text)
    value: JsonValue = {"base": "x", "inner": {}, "list": [{}]}
    assert found.check_values("m", value) == ()
    assert found.check_helm("m", value) == (
        "m.inner.deep is required",
        "m.list.0.k is required",
        "m.param1 is required",
    )
    assert found.check_helm("m", {}) == ("m.base is required", "m.param1 is required")


def test_x_required_for_helm_is_extended() -> None:
    found = schemas(
        "type: object\nx-required-for-helm: [a]\nproperties: {a: {}}\n",
        "x-extend: {schema: config-values.yaml}\ntype: object\n",
    )
    assert found.check_values("m", {}) == found.check_config("m", {}) == ()
    assert found.check_helm("m", {}) == ("m.a is required",)


def test_what_hooks_may_still_add_can_be_left_out() -> None:
    found = schemas(values="type: object\nrequired: [a]\nminProperties: 2\nproperties: {a: {type: string}}\n")
    assert found.check_values("m", {"b": 1}, complete=False) == ("m.b is a forbidden property",)
    assert len(found.check_values("m", {"b": 1})) == 3


# --- defaults

DEFAULTS = [
    ("{properties: {a: {default: 1}}}", {}, {"a": 1}),
    ("{properties: {a: {default: 1}}}", {"a": 2}, {"a": 2}),
    ("{properties: {a: {default: 1}}}", {"a": None}, {"a": None}),
    ("{properties: {a: {properties: {b: {default: 1}}}}}", {}, {}),
    ("{properties: {a: {default: {}, properties: {b: {default: 1}}}}}", {}, {"a": {"b": 1}}),
    ("{properties: {a: {properties: {b: {default: 1}}}}}", {"a": {}}, {"a": {"b": 1}}),
    ("{properties: {a: {items: {properties: {b: {default: 1}}}}}}", {"a": [{}, {"b": 2}]}, {"a": [{"b": 1}, {"b": 2}]}),
    ("{properties: {a: {default: [{}], items: {properties: {b: {default: 1}}}}}}", {}, {"a": [{"b": 1}]}),
    ("{properties: {a: {allOf: [{default: 1}]}}, allOf: [{properties: {b: {default: 1}}}]}", {}, {}),
    ("{items: {properties: {b: {default: 1}}}}", [{}], [{"b": 1}]),
    ("{properties: {a: {$ref: '#/definitions/A'}}, definitions: {A: {default: 1}}}", {}, {"a": 1}),
    ("{properties: {a: {nullable: true, default: 1, allOf: [{}]}}}", {}, {"a": 1}),
]


@pytest.mark.parametrize(
    ("schema", "value", "filled"), DEFAULTS, ids=[f"{schema} {value}" for schema, value, _ in DEFAULTS]
)
def test_defaults(schema: str, value: JsonValue, filled: JsonValue) -> None:
    before = copy.deepcopy(value)
    both = schemas(schema, schema)
    assert both.with_config_defaults(value) == filled
    assert both.with_values_defaults(value) == filled
    assert both.with_values_defaults(filled) == filled
    assert value == before


def test_removed_keys_get_no_default() -> None:
    found = schemas(values="{properties: {a: {default: 1}, b: {properties: {'c/d': {default: 1}, e: {default: 2}}}}}")
    assert found.with_values_defaults({"b": {}}, absent=frozenset({"/a", "/b/c~1d"})) == {"b": {"e": 2}}
