"""Which state of the ConfigMap is in force, with a ConfigMap in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import pytest
import structlog

from addon_operator.configmap.config import OperatorConfig
from addon_operator.configmap.writer import ConfigMapWriter
from addon_operator.documents import jsondoc, yamldoc
from addon_operator.documents.jsondoc import JsonValue
from addon_operator.errors import AddonOperatorError, ConfigMapError
from addon_operator.values.patches import Operation, parse
from addon_operator.values.schema import parse_schemas
from addon_operator.values.store import Proposal, SectionSpec, ValuesStore

SCHEMA: JsonValue = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}


def section(key: str, schema: JsonValue = SCHEMA) -> SectionSpec:
    """A section whose config values have a schema."""
    return SectionSpec(
        key, (), parse_schemas(schema, None, config_file="config-values.yaml", values_file="values.yaml")
    )


class MemorySource:
    """A ConfigMap; `rival` is what somebody else writes between our reading and writing."""

    def __init__(self, data: Mapping[str, str] | None) -> None:
        self.data = dict(data) if data is not None else None
        self.rival: Mapping[str, str] = {}

    async def save(self, mutate: Callable[[Mapping[str, str]], Mapping[str, str]]) -> Mapping[str, str]:
        mutate(self.data or {})
        self.data = dict(mutate({**(self.data or {}), **self.rival}))
        return self.data


class Bench:
    def __init__(self, data: Mapping[str, str] | None) -> None:
        self.source = MemorySource(data)
        self.store = ValuesStore(section("global"))
        self.store.replace_modules({"web": section("web")})
        self.accepted = 0
        self.rejected: list[str] = []
        self.checked = {"global", "web"}
        self.config = OperatorConfig(
            self.store,
            where="ConfigMap ns/addon-operator",
            module_keys=lambda: {"web"},
            checked_keys=lambda _document: self.checked,
            events=self,
        )
        self.writer = ConfigMapWriter(self.config, self.source)

    def config_accepted(self) -> None:
        self.accepted += 1

    def config_refused(self, error: AddonOperatorError) -> None:
        self.rejected.append(str(error))

    async def save(
        self, key: str, section: JsonValue | None, change: tuple[Operation, ...], flags: dict[str, bool | None]
    ) -> bool:
        proposal = Proposal(config_section=section, config_operations=change, config_flags=flags)
        return await self.writer.save(key, proposal)


def operations(*items: JsonValue) -> tuple[Operation, ...]:
    return parse(jsondoc.dumps(list(items)), "patch")


async def loaded(data: Mapping[str, str] | None) -> Bench:
    bench = Bench(data)
    bench.config.load(data)
    return bench


async def test_a_missing_configmap_is_an_empty_one() -> None:
    bench = await loaded(None)
    assert bench.store.config("global") == {}


@pytest.mark.parametrize(
    "data",
    [
        pytest.param({"global": "a: [1,"}, id="not YAML"),
        pytest.param({"global": "a: text"}, id="breaks the schema"),
        pytest.param({"simple-module": ""}, id="key that is not camelCase"),
    ],
)
async def test_a_bad_state_ends_the_start_and_later_changes_nothing(data: dict[str, str]) -> None:
    with pytest.raises(AddonOperatorError):
        await loaded(data)
    bench = await loaded({"global": "a: 1"})
    bench.config.receive(data)
    assert (bench.store.config("global"), bench.accepted, len(bench.rejected)) == ({"a": 1}, 0, 1)
    assert isinstance(bench.config.error, ConfigMapError)
    assert bench.config.apply().empty


async def test_a_good_state_after_a_bad_one_is_accepted() -> None:
    bench = await loaded({"global": "a: 1"})
    bench.config.receive({"global": "a: text"})
    bench.config.receive({"global": "a: 2"})
    assert bench.accepted == 1
    assert bench.config.error is None


async def test_a_refused_state_is_accepted_when_its_schema_allows_it() -> None:
    bench = await loaded({"global": "a: 1"})
    bench.config.receive({"global": "{a: 1, c: 2}"})
    bench.config.recheck()
    assert (bench.accepted, bench.rejected) == (0, [bench.rejected[0]])
    schema: JsonValue = {"type": "object", "properties": {"a": {}, "c": {"type": "string"}}}
    bench.store.replace_modules({"global": section("global", schema), "web": section("web")})
    bench.config.recheck()
    assert [message.rpartition("global.c ")[2] for message in bench.rejected] == [
        "is a forbidden property (ConfigMap key global)",
        "in body must be of type string (ConfigMap key global)",
    ]
    schema = {"type": "object", "additionalProperties": True}
    bench.store.replace_modules({"global": section("global", schema), "web": section("web")})
    bench.config.recheck()
    assert (bench.config.error, bench.accepted, len(bench.rejected)) == (None, 1, 2)
    assert bench.config.apply().global_changed
    assert bench.store.config("global") == {"a": 1, "c": 2}
    bench.config.recheck()
    assert bench.accepted == 1


async def test_a_new_state_waits_until_it_is_applied() -> None:
    bench = await loaded({"global": "a: 1"})
    bench.config.receive({"global": "a: 2", "webEnabled": "true"})
    assert (bench.store.config("global"), bench.accepted) == ({"a": 1}, 1)
    change = bench.config.apply()
    assert (change.global_changed, change.flags) == (True, frozenset({"web"}))
    assert bench.store.config("global") == {"a": 2}
    assert bench.config.apply().empty


async def test_values_that_changed_while_a_state_waited_are_looked_at_again() -> None:
    bench = await loaded({"global": "a: 1"})
    bench.config.receive({"global": "a: 2", "late": "a: 3"})
    proposal = bench.store.propose_hook(
        "global", values_ops=operations({"op": "add", "path": "/global/b", "value": 4}), config_ops=(), hook="h",
        at=datetime.now(UTC),
    )  # fmt: skip
    bench.store.commit(proposal)
    bench.store.replace_modules({"web": section("web"), "late": section("late")})
    assert bench.config.apply().global_changed
    assert bench.store.effective("global") == {"a": 2, "b": 4}
    assert bench.store.config("late") == {"a": 3}


async def test_a_section_that_is_enabled_while_a_state_waits_is_checked_before_it_counts() -> None:
    bench = await loaded({"global": "a: 1"})
    bench.checked = {"global"}
    bench.config.receive({"global": "a: 2", "web": "a: text"})
    assert (bench.accepted, bench.rejected) == (1, [])
    bench.checked = {"global", "web"}
    with pytest.raises(AddonOperatorError, match="web"):
        bench.config.apply()
    assert (bench.store.config("global"), len(bench.rejected)) == ({"a": 1}, 1)


async def test_a_state_that_is_taken_back_before_it_is_applied_changes_nothing() -> None:
    bench = await loaded({"global": "a: 1"})
    bench.config.receive({"global": "a: 2"})
    bench.config.receive({"global": "a: 1"})
    assert bench.config.apply().empty


async def test_an_own_write_does_not_come_back_as_a_change() -> None:
    bench = await loaded({"global": "a: 1"})
    await bench.save("web", {"b": 1}, operations({"op": "add", "path": "/web/b", "value": 1}), {"web": True})
    assert bench.source.data == {"global": "a: 1", "web": yamldoc.dump({"b": 1}), "webEnabled": "true"}
    bench.config.receive(bench.source.data)
    assert bench.accepted == 0


async def test_what_others_wrote_meanwhile_stays_and_comes_into_force() -> None:
    bench = await loaded({"web": "a: 1"})
    bench.source.rival = {"web": "a: 5", "global": "b: 7"}
    await bench.save("web", {"a": 1, "b": 2}, operations({"op": "add", "path": "/web/b", "value": 2}), {})
    assert bench.source.data is not None
    assert yamldoc.load(bench.source.data["web"], "web").value == {"a": 5, "b": 2}
    assert bench.accepted == 1
    change = bench.config.apply()
    assert (change.global_changed, change.sections) == (True, frozenset({"web"}))
    assert (bench.store.config("web"), bench.store.config("global")) == ({"a": 5, "b": 2}, {"b": 7})


async def test_a_patch_that_no_longer_fits_writes_nothing() -> None:
    bench = await loaded({"web": "a: 1"})
    bench.source.rival = {"web": ""}
    with pytest.raises(AddonOperatorError, match="/web/a"):
        await bench.save("web", {}, operations({"op": "remove", "path": "/web/a"}), {})
    assert bench.source.data == {"web": "a: 1"}


async def test_a_patch_that_changes_only_a_flag_leaves_the_section_alone() -> None:
    bench = await loaded({"global": "a: 1"})
    await bench.save("global", None, operations({"op": "add", "path": "/global/a", "value": 1}), {"web": True})
    assert bench.source.data == {"global": "a: 1", "webEnabled": "true"}
    assert bench.accepted == 0
    assert bench.config.in_force.sections == {"global": {"a": 1}}


async def test_three_thousand_unknown_keys_are_one_line_and_not_again_at_each_edit() -> None:
    unknown = {f"module{number:04}Enabled": "true" for number in range(3000)}
    with structlog.testing.capture_logs() as logs:
        bench = await loaded(unknown)
        assert len(logs) == 1
        for number in range(3):
            bench.config.receive({**unknown, "web": f"a: {number}\na: 7\n"})
        assert [line["reason"].partition(", key ")[2] for line in logs[1:]] == [
            "web:2: /a: duplicate key, the last one wins"
        ]
        bench.config.receive({**unknown, "oneMoreEnabled": "true"})
    assert [line["reason"].partition(" keys ")[0] for line in logs[2:]] == ["ConfigMap ns/addon-operator: 3001"]


@pytest.mark.parametrize("text", ["a: !!bool hunter2", "!!int ''", "a: !!timestamp hunter2", "a: !hunter2"])
async def test_a_tag_that_does_not_fit_is_refused_at_the_start_and_by_the_watch(text: str) -> None:
    bench = await loaded({"web": "a: 1"})
    bench.config.receive({"web": text})
    assert bench.rejected == [str(bench.config.error)]
    assert bench.rejected[0].startswith("ConfigMap ns/addon-operator, key web:1: ")
    assert "hunter2" not in bench.rejected[0]
    assert bench.store.config("web") == {"a": 1}
    with pytest.raises(ConfigMapError, match=r"^ConfigMap ns/addon-operator, key web:1: "):
        await loaded({"web": text})
