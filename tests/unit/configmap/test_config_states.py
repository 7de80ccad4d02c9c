"""The states that the robustness tests make up: valid, repeatable, and of many kinds."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from addon_operator.configmap.document import diff, empty_document, parse
from addon_operator.documents import yamldoc
from addon_operator.documents.jsondoc import JsonObject
from addon_operator.values.layers import GLOBAL
from addon_operator.values.schema import SectionSchemas, parse_schemas
from tests.robustness.random_values import UnsupportedSchemaError, random_value, random_yaml
from tests.robustness.states import State, random_states, read_schemas, shorter_sequences

SERVER = """
type: object
required: [port]
properties:
  port: {type: integer, minimum: 1, maximum: 65535}
  name: {type: string, minLength: 2, maxLength: 12}
  zone: {type: string, pattern: '^[a-z]+-[0-9]$', example: west-1}
"""
SCHEMAS: Mapping[str, JsonObject] = yaml.safe_load(f"""
global:
  type: object
  properties:
    domain: {{type: string}}
    ha: {{type: boolean, default: false}}
webServer:
  type: object
  properties:
    replicas: {{type: integer, minimum: 0, maximum: 3}}
    weight: {{type: number, minimum: 0}}
    mode: {{type: string, enum: [fast, safe], nullable: true}}
    labels: {{type: object, additionalProperties: {{type: string}}}}
    servers: {{type: array, minItems: 1, maxItems: 3, uniqueItems: true, items: {{type: integer}}}}
    main: {{type: object, required: [port], properties: {{port: {{type: integer, minimum: 1}}}}}}
plain:
  type: object
strict: {yaml.safe_load(SERVER)}
""")
COMPILED = {
    key: parse_schemas(schema, None, config_file=f"{key}.yaml", values_file="") for key, schema in SCHEMAS.items()
}


def violations(state: State, compiled: Mapping[str, SectionSchemas]) -> list[str]:
    """What the operator would say about a state."""
    document = parse(state.data, where="ConfigMap", known=compiled.keys())
    return [
        line
        for key, schemas in compiled.items()
        for line in schemas.check_config(key, schemas.with_config_defaults(document.sections.get(key, {})))
    ]


@given(st.integers(0, 2**32), st.integers(1, 30))
def test_each_state_is_valid(seed: int, count: int) -> None:
    for state in itertools.islice(random_states(SCHEMAS, seed), count):
        assert violations(state, COMPILED) == [], state


def test_the_same_seed_gives_the_same_states_and_another_one_others() -> None:
    def first(seed: int, count: int) -> list[State]:
        return list(itertools.islice(random_states(SCHEMAS, seed), count))

    assert first(7, 80) == first(7, 200)[:80]
    assert first(7, 80) != first(8, 80)


def test_all_kinds_of_edits_occur_in_500_states() -> None:
    states = list(itertools.islice(random_states(SCHEMAS, 1), 500))
    documents = [parse(state.data, where="ConfigMap", known=SCHEMAS.keys()) for state in states]
    changes = [diff(old, new) for old, new in itertools.pairwise([empty_document(), *documents])]
    assert sum(change.global_changed for change in changes) > 20
    assert sum(bool(change.sections) for change in changes) > 100
    assert sum(bool(change.flags) for change in changes) > 80
    assert sum(bool(change.maintenance) for change in changes) > 20
    pairs = list(itertools.pairwise(states))
    # The format only: another text with the same meaning.
    same = [change.empty and old.data != new.data for change, (old, new) in zip(changes[1:], pairs, strict=True)]
    assert sum(same) > 20
    for start in ("everything", "back to", "nothing at all", "all off", "the unknown module", "only the format"):
        assert any(start in state.edit for state in states), start
    assert any(document.warnings for document in documents)
    assert {state.progress for state in states} >= {0, 5, 11}
    assert 5 < sum(state.anew for state in states) < 50


def test_a_checkpoint_has_no_module_in_maintenance() -> None:
    for seed in range(20):
        states = list(itertools.islice(random_states(SCHEMAS, seed, checkpoint=10), 100))
        for state in states[9::10]:
            assert not parse(state.data, where="", known=SCHEMAS.keys()).maintenance


def test_a_module_that_others_need_is_never_switched_off() -> None:
    for state in itertools.islice(random_states(SCHEMAS, 1, needed=["plain"]), 500):
        assert "plain" not in parse(state.data, where="", known=SCHEMAS.keys()).flags


@given(st.integers(0, 2**32))
def test_a_text_says_what_the_value_is(seed: int) -> None:
    random = Random(seed)
    value = random_value(SCHEMAS["webServer"], random)
    read = yamldoc.load(random_yaml(value, random), "").value
    assert ({} if read is None else read) == value


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"oneOf": [{"type": "string"}]}, "oneOf"),
        ({"type": "string", "pattern": "x"}, "pattern"),
        ({"type": "null"}, "type null"),
        ({"type": "array"}, "without items"),
    ],
)
def test_a_schema_that_cannot_be_served_is_refused(schema: JsonObject, says: str) -> None:
    with pytest.raises(UnsupportedSchemaError, match=says):
        random_value(schema, Random(1))


def test_what_can_be_configured_is_read_from_the_schemas_on_disk(tmp_path: Path) -> None:
    for directory in ("modules/010-web-server/openapi", "modules/plain", "global-hooks/openapi"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "modules/values.yaml").write_text("plainEnabled: true\n")
    (tmp_path / "modules/010-web-server/openapi/config-values.yaml").write_text(SERVER)
    (tmp_path / "global-hooks/openapi/config-values.yaml").write_text("type: object\nproperties: {}\n")
    found = read_schemas(tmp_path)
    assert found["webServer"] == yaml.safe_load(SERVER)
    assert found["plain"] == {"type": "object"}
    assert found.keys() == {GLOBAL, "webServer", "plain"}


def test_a_failing_sequence_is_narrowed_down_from_its_end() -> None:
    states = list(itertools.islice(random_states(SCHEMAS, 1), 10))
    assert [[state.number for state in some] for some in shorter_sequences(states)] == [
        [9],
        [8, 9],
        [6, 7, 8, 9],
        [2, 3, 4, 5, 6, 7, 8, 9],
    ]
