from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon_operator.documents import jsondoc, yamldoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import ModuleError, ValuesRejected
from addon_operator.values import layers, patches
from addon_operator.values.layers import Origin
from addon_operator.values.patches import Operation
from addon_operator.values.schema import parse_schemas
from addon_operator.values.store import Proposal, SectionSpec, StaleProposal, ValuesStore
from tests.unit.values.strategies import objects

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SECRET = "hunter2"


def spec(
    key: str, *, common: str | None = None, own: str | None = None, config: str | None = None, values: str | None = None
) -> SectionSpec:
    """A section from the texts of modules/values.yaml, the module's values.yaml, and both schemas."""
    name = layers.module_name(key)
    found = [
        layers.parse_values_file(text, file, module).layers[key]
        for text, file, module in ((common, "modules/values.yaml", None), (own, f"modules/{name}/values.yaml", name))
        if text is not None
    ]

    def read(text: str | None) -> JsonValue:
        return None if text is None else yamldoc.load(text, "schema").value

    schemas = parse_schemas(read(config), read(values), config_file="config-values.yaml", values_file="values.yaml")
    return SectionSpec(key, tuple(found), schemas)


def store_of(*specs: SectionSpec) -> ValuesStore:
    by_key = {item.key: item for item in specs}
    store = ValuesStore(by_key.pop("global", spec("global")))
    store.replace_modules(by_key)
    return store


def ops(*items: JsonValue) -> tuple[Operation, ...]:
    return patches.parse(b"".join(map(jsondoc.dumps, items)), "patch")


def add(path: str, value: JsonValue) -> JsonObject:
    return {"op": "add", "path": path, "value": value}


def remove(path: str) -> JsonObject:
    return {"op": "remove", "path": path}


def propose(
    store: ValuesStore,
    key: str,
    *values: JsonValue,
    config: Sequence[JsonValue] = (),
    hook: str = "hooks/a.sh",
    at: datetime = NOW,
) -> Proposal:
    return store.propose_hook(key, values_ops=ops(*values), config_ops=ops(*config), hook=hook, at=at)


def patch(store: ValuesStore, key: str, *values: JsonValue, config: Sequence[JsonValue] = ()) -> Proposal:
    proposal = propose(store, key, *values, config=config)
    store.commit(proposal)
    return proposal


def configure(store: ValuesStore, sections: Mapping[str, JsonValue], check: Sequence[str] = ()) -> Proposal:
    proposal = store.propose_configmap(sections, check)
    store.commit(proposal)
    return proposal


# --- layers

SEED = (
    spec("global", common='global: {param1: 100, param2: "Yes"}'),
    spec("someModule", own="someModule: {param1: String}"),
)


def test_the_example_of_the_documentation() -> None:
    store = store_of(*SEED)
    configure(store, {"global": {"param1": 200}, "someModule": {"param1": "Long string", "param2": "FOO"}})
    assert store.hook_config_values("someModule") == {
        "global": {"param1": 200},
        "someModule": {"param1": "Long string", "param2": "FOO"},
    }
    assert store.hook_values("someModule", ["one", "two"]) == {
        "global": {"param1": 200, "param2": "Yes", "enabledModules": ["one", "two"]},
        "someModule": {"param1": "Long string", "param2": "FOO"},
    }
    proposal = patch(store, "someModule", config=[add("/someModule/param3", "newValue")])
    assert proposal.config_section == {"param1": "Long string", "param2": "FOO", "param3": "newValue"}
    assert store.config("someModule") == proposal.config_section
    assert store.effective("someModule") == proposal.config_section


def test_all_layers_in_order() -> None:
    store = store_of(
        spec(
            "m",
            common="m: {a: common, b: common, c: common, e: common, n: 1}",
            own="m: {b: own, c: own, e: own}",
            config="{properties: {d: {default: config}, c: {default: no}}, additionalProperties: true}",
            values="{properties: {f: {default: values}, e: {default: no}}, additionalProperties: true}",
        )
    )
    configure(store, {"m": {"c": "configmap", "e": "configmap", "n": None}})
    assert store.effective("m") == {
        "a": "common",
        "b": "own",
        "c": "configmap",
        "d": "config",
        "e": "configmap",
        "f": "values",
        "n": None,
    }
    patch(store, "m", add("/m/e", "patch"))
    assert store.effective("m") == {
        "a": "common",
        "b": "own",
        "c": "configmap",
        "d": "config",
        "e": "patch",
        "f": "values",
        "n": None,
    }


LISTS: list[tuple[JsonValue, JsonValue, JsonValue]] = [
    ([1, 2], None, [1, 2]),
    ([1, 2], {}, [1, 2]),
    ([1, 2], [], []),
    ([1, 2], [3], [3]),
    (None, [3], [3]),
    (None, None, {}),
    ({"a": 1}, {}, {"a": 1}),
]


@pytest.mark.parametrize(("static", "config", "effective"), LISTS, ids=str)
def test_sections_may_be_lists(static: JsonValue, config: JsonValue, effective: JsonValue) -> None:
    store = store_of(spec("m", common=None if static is None else yamldoc.dump({"m": static})))
    configure(store, {} if config is None else {"m": config})
    assert store.effective("m") == effective
    assert store.config("m") == ({} if config is None else config)


def test_a_list_can_be_patched() -> None:
    store = store_of(spec("m", common="m: [1]"))
    patch(store, "m", add("/m/-", 2))
    patch(store, "m", add("/m/-", 3), add("/m/0", 0))
    assert store.effective("m") == [0, 1, 2, 3]
    assert store.patches("m") == ops(add("/m", [0, 1, 2, 3]))


def test_items_from_everywhere_get_their_defaults() -> None:
    schema = "{properties: {l: {items: {properties: {h: {}, port: {default: 80}}}}}}"
    store = store_of(spec("m", config=schema, values=schema))
    configure(store, {"m": {"l": [{"h": "a"}]}})
    assert store.effective("m") == {"l": [{"h": "a", "port": 80}]}
    assert store.config("m") == {"l": [{"h": "a"}]}
    patch(store, "m", add("/m/l/-", {"h": "b"}))
    assert store.effective("m") == {"l": [{"h": "a", "port": 80}, {"h": "b", "port": 80}]}


def test_a_default_of_an_object_stays_under_the_configmap() -> None:
    store = store_of(spec("m", config="{properties: {o: {default: {a: 1, b: 1}, properties: {a: {}, b: {}}}}}"))
    configure(store, {"m": {"o": {"b": 2}}})
    assert store.effective("m") == {"o": {"a": 1, "b": 2}}


def test_hooks_never_see_defaults_or_static_values_as_config_values() -> None:
    store = store_of(spec("global", common="global: {a: 1}"), spec("m", config="{properties: {d: {default: 1}}}"))
    assert store.hook_config_values("m") == {"global": {}, "m": {}}
    assert store.hook_config_values("global") == {"global": {}}


def test_hook_values_of_a_global_hook() -> None:
    store = store_of(spec("global", common="global: {a: 1}"), spec("m", common="m: {b: 1}"))
    assert store.hook_values("global", None) == {"global": {"a": 1}}
    assert store.hook_values("global", ()) == {"global": {"a": 1, "enabledModules": []}}
    assert store.effective("global") == {"a": 1}


def test_an_unknown_section() -> None:
    with pytest.raises(ModuleError, match="'no-such'"):
        store_of().effective("noSuch")


# --- hooks


def test_memory_patches_are_kept_compact() -> None:
    store = store_of(spec("m", common="m: {a: {x: 1, y: 2}}"))
    patch(store, "m", add("/m/a/z", 1), remove("/m/a/x"))
    patch(store, "m", add("/m/b", {}), add("/m/b/c", [1]))
    patch(store, "m", add("/m/a/z", 2))
    assert store.patches("m") == ops(remove("/m/a/x"), add("/m/a/z", 2), add("/m/b", {}), add("/m/b/c", [1]))
    assert store.effective("m") == {"a": {"y": 2, "z": 2}, "b": {"c": [1]}}
    patch(store, "m", add("/m/a", None))
    assert [operation.path for operation in store.patches("m")] == ["/m/a", "/m/b", "/m/b/c"]


def test_a_whole_section_can_be_set_and_emptied() -> None:
    store = store_of(spec("m", common="m: {a: 1}"))
    patch(store, "m", add("/m", {"b": 1}), config=[add("/m", {"c": 1})])
    assert (store.effective("m"), store.config("m")) == ({"b": 1}, {"c": 1})
    proposal = patch(store, "m", remove("/m"), config=[remove("/m")])
    assert proposal.config_section == {}
    assert (store.effective("m"), store.config("m")) == ({}, {})


def test_an_empty_patch_changes_nothing() -> None:
    store = store_of(spec("m", values="{required: [a], properties: {a: {}}}"))
    proposal = propose(store, "m")
    assert proposal == Proposal(based_on=proposal.based_on)


def test_a_patch_that_says_the_same_again_changes_nothing() -> None:
    store = store_of(spec("m"))
    patch(store, "m", add("/m/a", 1), config=[add("/m/c", 1)])
    later = propose(store, "m", add("/m/b", 1))
    again = propose(store, "m", add("/m/a", 1), config=[add("/m/c", 1)], at=NOW + timedelta(hours=1))
    assert (again.changed, again.config_section, again.sections) == (frozenset(), None, {})
    store.commit(again)
    assert store.origins("m")["/a"].at == NOW
    store.commit(later)


@pytest.mark.parametrize(("one", "other"), [(1, True), (0, False), ("1", 1)], ids=str)
def test_values_that_python_takes_for_equal_are_a_change(one: JsonValue, other: JsonValue) -> None:
    store = store_of(spec("m"))
    patch(store, "m", add("/m/a", one), config=[add("/m/c", one)])
    proposal = patch(store, "m", add("/m/a", other), config=[add("/m/c", other)])
    assert proposal.changed == {"m"}
    assert jsondoc.dumps(proposal.config_section) == jsondoc.dumps({"c": other})
    assert configure(store, {"m": {"c": one}}).changed == {"m"}


def test_changed_means_the_effective_values() -> None:
    store = store_of(spec("m", common="m: {a: 1}"))
    assert propose(store, "m", add("/m/a", 1)).changed == frozenset()
    assert propose(store, "m", add("/m/a", 2)).changed == {"m"}
    assert propose(store, "m", config=[add("/m/a", 1)]).changed == frozenset()
    assert propose(store, "m", config=[add("/m/a", 2)]).changed == {"m"}


def test_the_values_patch_comes_on_top_of_the_config_patch() -> None:
    store = store_of(spec("m"))
    patch(store, "m", add("/m/a/b", 1), config=[add("/m/a", {})])
    assert store.effective("m") == {"a": {"b": 1}}


def test_a_bad_half_leaves_nothing_behind() -> None:
    store = store_of(spec("m", config="{properties: {a: {type: string}}}"))
    before = store.digest("m")
    with pytest.raises(ValuesRejected):
        propose(store, "m", add("/m/b", 1), config=[add("/m/a", 1)])
    with pytest.raises(ValuesRejected):
        propose(store, "m", remove("/m/nope"), config=[add("/m/a", "x")])
    assert store.digest("m") == before
    assert (store.config("m"), store.patches("m")) == ({}, ())


def test_a_rejected_patch_lists_everything_and_no_value() -> None:
    store = store_of(
        spec(
            "m",
            config="{properties: {a: {type: string}}}",
            values="{required: [r], properties: {a: {type: string}, b: {type: integer}, r: {}}}",
        )
    )
    with pytest.raises(ValuesRejected) as caught:
        propose(store, "m", add("/m/b", SECRET), add("/m/c", SECRET), config=[add("/m/a", {"k": SECRET})])
    assert caught.value.violations == (
        "m.a in body must be of type string (ConfigMap key m)",
        "m.b in body must be of type integer (hook hooks/a.sh)",
        "m.c is a forbidden property (hook hooks/a.sh)",
        "m.r is required",
    )
    assert str(caught.value).startswith("the patched values are not valid:")
    assert SECRET not in str(caught.value)


def test_unacceptable_paths_of_both_patches_are_named() -> None:
    with pytest.raises(ValuesRejected) as caught:
        propose(store_of(spec("m")), "m", add("/global/a", 1), add("/m/a", 1), config=[add("/n", 1)])
    assert [line.split(":")[0] for line in caught.value.violations] == ["config patch", "values patch"]
    assert str(caught.value).count("unacceptable patch operation for path") == 2


@pytest.mark.parametrize("value", [5, None, "text", True], ids=str)
def test_a_section_must_stay_a_map_or_a_list(value: JsonValue) -> None:
    store = store_of(spec("m"))
    for values, config in (([add("/m", value)], []), ([], [add("/m", value)])):
        with pytest.raises(ValuesRejected, match=r"m in body must be of type object or array"):
            propose(store, "m", *values, config=config)


def test_values_that_cannot_be_written_as_json_are_refused() -> None:
    store = store_of(spec("m"))
    deep: JsonValue = {}
    for _ in range(200):
        deep = {"k": deep}
    patch(store, "m", add("/m/a", deep))
    with pytest.raises(ValuesRejected, match="nested too deeply"):
        propose(store, "m", add("/m/a" + "/k" * 200, deep))


def test_enabled_modules_collide_with_no_schema() -> None:
    closed = "{type: object, properties: {a: {}}}"
    store = store_of(spec("global", config=closed, values=closed), spec("m"))
    patch(store, "global", add("/global/a", 1))
    assert store.hook_values("m", ["m"])["global"] == {"a": 1, "enabledModules": ["m"]}
    store.check_helm("m")


# --- enable flags


def test_flags_and_values_in_one_patch() -> None:
    store = store_of(spec("global"))
    proposal = patch(
        store,
        "global",
        add("/global/a", 1),
        add("/oneEnabled", True),
        add("/twoEnabled", "false"),
        config=[add("/threeEnabled", True), remove("/fourEnabled"), add("/global/c", 1)],
    )
    assert proposal.enabled_changed == {"one", "two"}
    assert proposal.config_flags == {"three": True, "four": None}
    assert proposal.config_section == {"c": 1}
    assert store.enabled_patches == {"one": True, "two": False}
    assert store.enabled_origin("one") == Origin("hook", "hooks/a.sh", at=NOW)
    assert store.enabled_origin("three") is None
    assert store.effective("global") == {"a": 1, "c": 1}


def test_a_flag_is_unset_by_remove() -> None:
    store = store_of()
    patch(store, "global", add("/oneEnabled", True))
    assert propose(store, "global", add("/oneEnabled", True)).enabled_changed == frozenset()
    assert patch(store, "global", remove("/oneEnabled"), remove("/neverEnabled")).enabled_changed == {"one"}
    assert store.enabled_patches == {}


def test_a_flag_alone_changes_no_section() -> None:
    store = store_of(spec("global", values="{required: [a], properties: {a: {}}}"))
    proposal = patch(store, "global", add("/oneEnabled", False))
    assert proposal.changed == frozenset()
    assert proposal.enabled_changed == {"one"}


# --- ConfigMap


def test_a_new_configmap_replaces_all_sections() -> None:
    store = store_of(spec("m"), spec("n"))
    configure(store, {"m": {"a": 1}, "unknown": {"x": 1}})
    proposal = configure(store, {"n": {"b": 1}})
    assert proposal.changed == {"m", "n"}
    assert proposal.config_section is None
    assert (store.config("m"), store.config("n")) == ({}, {"b": 1})


def test_patches_survive_a_changed_base() -> None:
    store = store_of(spec("m"))
    configure(store, {"m": {"a": {"x": 1}, "b": 1}})
    patch(store, "m", add("/m/a/y", 1), remove("/m/b"), add("/m/c", 1))
    configure(store, {})
    assert store.effective("m") == {"c": 1}
    configure(store, {"m": {"a": {"x": 2}, "b": 2}})
    assert store.effective("m") == {"a": {"x": 2, "y": 1}, "c": 1}


def test_a_patch_below_a_default_of_a_patched_object() -> None:
    schema = "{properties: {o: {properties: {d: {default: {}, properties: {e: {}, f: {default: 1}}}}}}}"
    store = store_of(spec("m", values=schema))
    patch(store, "m", add("/m/o", {}))
    patch(store, "m", add("/m/o/d/e", 1), remove("/m/o/d/f"))
    assert store.effective("m") == {"o": {"d": {"e": 1}}}


def test_only_named_sections_are_checked() -> None:
    typed = "{properties: {a: {type: string}}}"
    store = store_of(spec("global", config=typed), spec("m", config=typed), spec("n", config=typed))
    sections: Mapping[str, JsonValue] = {key: {"a": 1, "b": 1} for key in ("global", "m", "n")}
    with pytest.raises(ValuesRejected) as caught:
        store.propose_configmap(sections, ["global", "m"])
    assert caught.value.violations == (
        "global.a in body must be of type string (ConfigMap key global)",
        "global.b is a forbidden property (ConfigMap key global)",
        "m.a in body must be of type string (ConfigMap key m)",
        "m.b is a forbidden property (ConfigMap key m)",
    )
    store.propose_configmap(sections, [])


def test_static_values_satisfy_the_schema_of_config_values() -> None:
    store = store_of(spec("m", common="m: {a: 1}", config="{required: [a, b], properties: {a: {}, b: {}}}"))
    configure(store, {"m": {"b": 1}}, ["m"])
    with pytest.raises(ValuesRejected, match=r"m\.b is required"):
        configure(store, {}, ["m"])


def test_a_configmap_meets_the_schema_of_values_except_for_what_hooks_add() -> None:
    store = store_of(spec("m", values="{required: [fromHook], properties: {a: {type: string}, fromHook: {}}}"))
    configure(store, {"m": {"a": "x"}}, ["m"])
    with pytest.raises(ValuesRejected) as caught:
        configure(store, {"m": {"a": 1}}, ["m"])
    assert caught.value.violations == ("m.a in body must be of type string (ConfigMap key m)",)


def test_static_violations_of_all_sections() -> None:
    typed = "{required: [r], properties: {a: {type: string}, r: {}}}"
    store = store_of(spec("global", common="global: {a: 1}", values=typed), spec("m", common="m: {b: 1}", config=typed))
    assert store.check_static(["global", "m"]) == (
        "global.a in body must be of type string (modules/values.yaml:1)",
        "m.b is a forbidden property (modules/values.yaml:1)",
        "m.r is required",
    )
    assert store.check_static(["global"]) == ("global.a in body must be of type string (modules/values.yaml:1)",)


# --- stale proposals


def test_a_stale_proposal_is_refused_and_changes_nothing() -> None:
    store = store_of(spec("m"), spec("n"))
    first, second = propose(store, "m", add("/m/a", 1)), propose(store, "m", add("/m/b", 1))
    other = propose(store, "n", add("/n/a", 1))
    store.commit(first)
    with pytest.raises(StaleProposal):
        store.commit(second)
    assert store.effective("m") == {"a": 1}
    store.commit(other)
    assert store.effective("n") == {"a": 1}


def test_a_configmap_proposal_is_stale_after_a_patch() -> None:
    store = store_of(spec("m"))
    proposal = store.propose_configmap({"m": {"a": 1}}, ["m"])
    patch(store, "m", add("/m/b", 1))
    with pytest.raises(StaleProposal):
        store.commit(proposal)
    configure(store, {"m": {"a": 1}}, ["m"])
    assert store.effective("m") == {"a": 1, "b": 1}


def test_a_proposal_for_a_module_that_went_away_is_stale() -> None:
    store = store_of(spec("m"))
    proposal = propose(store, "m", add("/m/b", 1))
    store.replace_modules({})
    with pytest.raises(StaleProposal):
        store.commit(proposal)


# --- modules come and go


def test_a_rescan_keeps_config_and_patches_and_takes_new_files() -> None:
    store = store_of(spec("m", common="m: {a: 1}"))
    configure(store, {"m": {"c": 1}, "later": {"x": 1}})
    patch(store, "m", add("/m/p", 1))
    store.replace_modules({"m": spec("m", common="m: {a: 2}"), "later": spec("later"), "global": spec("global")})
    assert store.effective("m") == {"a": 2, "c": 1, "p": 1}
    assert store.effective("later") == {"x": 1}


def test_a_rescan_makes_proposals_stale_only_where_it_found_something_else() -> None:
    m = spec("m")
    store = store_of(m, spec("n"))
    kept, stale = propose(store, "m", add("/m/a", 1)), propose(store, "n", add("/n/a", 1))
    store.replace_modules({"m": m, "n": spec("n")})
    store.commit(kept)
    with pytest.raises(StaleProposal, match="values of n "):
        store.commit(stale)


def test_a_module_that_went_away_comes_back_without_patches_but_with_its_config() -> None:
    m = spec("m")
    store = store_of(m)
    patch(store, "m", add("/m/p", 1), config=[add("/m/c", 1)])
    store.replace_modules({})
    store.replace_modules({"m": m})
    assert store.effective("m") == {"c": 1}


def test_forgotten_patches() -> None:
    store = store_of(spec("m"))
    patch(store, "m", add("/m/p", 1), config=[add("/m/c", 1)])
    patch(store, "global", add("/mEnabled", True))
    store.forget_patches("m")
    assert (store.effective("m"), store.patches("m")) == ({"c": 1}, ())
    assert store.enabled_patches == {"m": True}
    proposal = propose(store, "m", add("/m/p", 2))
    store.forget_patches("m")
    store.commit(proposal)
    assert store.effective("m") == {"c": 1, "p": 2}


# --- helm


def test_helm_values_have_no_enabled_modules_and_no_other_modules() -> None:
    store = store_of(spec("global", common="global: {a: 1}"), spec("m", common="m: {b: 1}"), spec("n", common="n: {}"))
    assert store.helm_values("m") == {"global": {"a": 1}, "m": {"b": 1}}


def test_what_hooks_took_away_from_the_charts_values_is_null() -> None:
    store = store_of(spec("m", common="m: {common: 1}", own="m: {a: 1, b: {x: 1, y: 1}, c: {z: 1}, l: {k: 1}}"))
    patch(store, "m", remove("/m/a"), remove("/m/common"), remove("/m/b/x"), add("/m/c", {}), add("/m/l", [1]))
    assert store.effective("m") == {"b": {"y": 1}, "c": {}, "l": [1]}
    assert store.helm_values("m")["m"] == {"a": None, "b": {"x": None, "y": 1}, "c": {"z": None}, "l": [1]}


def test_check_helm() -> None:
    rule = "{x-required-for-helm: [a], properties: {a: {}}}"
    store = store_of(spec("global", values=rule), spec("someModule", values=rule), spec("other", values=rule))
    with pytest.raises(ValuesRejected) as caught:
        store.check_helm("someModule")
    assert str(caught.value).startswith("check helm values of module 'some-module':")
    assert caught.value.violations == ("global.a is required", "someModule.a is required")
    patch(store, "global", add("/global/a", 1))
    patch(store, "someModule", add("/someModule/a", 1))
    store.check_helm("someModule")


def test_check_helm_looks_at_the_config_too() -> None:
    typed = "{properties: {a: {type: integer}}}"
    store = store_of(spec("global", config=typed), spec("someModule", config=typed))
    configure(store, {"someModule": {"a": "x"}, "global": {"a": 1}}, ["global"])
    with pytest.raises(ValuesRejected) as caught:
        store.check_helm("someModule")
    assert caught.value.violations == ("someModule.a in body must be of type integer (ConfigMap key someModule)",)


# --- where values come from


def test_origins_of_every_layer() -> None:
    config = """
      additionalProperties: true
      properties:
        dc: {default: {x: 1}}
        items: {items: {properties: {q: {}, p: {default: 1}}}}
    """
    values = """
      additionalProperties: true
      properties: {items: {items: {additionalProperties: true}}, dv: {default: 1}}
    """
    common = "other: {}\nm:\n  common: 1\n  list: [1, 2]\n  both: 1\n"
    store = store_of(spec("m", common=common, own="m:\n  own:\n    deep: 1\n  both: 2\n", config=config, values=values))
    configure(store, {"m": {"cm": {"a/b": 1, "none": None, "empty": {}}, "items": [{}, {"q": 1}]}})
    patch(store, "m", add("/m/hook", {"x": [1], "y": {}}), add("/m/own/patched", 1))
    by_text = {pointer: str(origin) for pointer, origin in store.origins("m").items()}
    hook = "hook hooks/a.sh at 2026-01-02T03:04:05+00:00"
    assert by_text == {
        "/common": "modules/values.yaml:3",
        "/list/0": "modules/values.yaml:4",
        "/list/1": "modules/values.yaml:4",
        "/both": "modules/m/values.yaml:4",
        "/own/deep": "modules/m/values.yaml:3",
        "/own/patched": hook,
        "/dc/x": "default in config-values.yaml",
        "/cm/a~1b": "ConfigMap key m",
        "/cm/none": "ConfigMap key m",
        "/cm/empty": "ConfigMap key m",
        "/items/0/p": "default in config-values.yaml",
        "/items/1/q": "ConfigMap key m",
        "/items/1/p": "default in config-values.yaml",
        "/dv": "default in values.yaml",
        "/hook/x/0": hook,
        "/hook/y": hook,
    }


def test_the_origin_is_the_layer_that_wins() -> None:
    store = store_of(spec("m", common="m: {a: 1, l: [1, 2, 3], o: {x: 1}}"))
    configure(store, {"m": {"a": 2, "l": [9], "o": {"x": 2, "y": 1}}})
    store.commit(propose(store, "m", add("/m/a", 3), hook="one", at=NOW))
    store.commit(propose(store, "m", add("/m/a", 4), hook="two", at=NOW + timedelta(minutes=1)))
    assert store.origins("m") == {
        "/a": Origin("hook", "two", at=NOW + timedelta(minutes=1)),
        "/l/0": Origin("configmap", "m"),
        "/o/x": Origin("configmap", "m"),
        "/o/y": Origin("configmap", "m"),
    }


def test_origins_of_empty_sections_and_lists() -> None:
    store = store_of(spec("m"), spec("l", common="l: [1, 2]"), spec("e", common="e: [1]"))
    configure(store, {"e": []})
    assert store.origins("m") == {}
    assert list(store.origins("l")) == ["/0", "/1"]
    assert store.origins("e") == {"": Origin("configmap", "e")}


@given(objects, objects, st.lists(st.tuples(st.sampled_from(["a", "b", "a/a", "b/c"]), objects), max_size=4))
def test_every_leaf_has_an_origin(
    static: JsonObject, config: JsonObject, written: list[tuple[str, JsonObject]]
) -> None:
    store = store_of(spec("m", common=yamldoc.dump({"m": static})))
    configure(store, {"m": config})
    for path, value in written:
        with contextlib.suppress(ValuesRejected):  # a parent that is missing or no map
            patch(store, "m", add(f"/m/{path}", value))
    for pointer, origin in store.origins("m").items():
        leaf = jsondoc.lookup(store.effective("m"), pointer)
        assert not isinstance(leaf, dict | list) or not leaf
        assert origin.source != "default"


@given(objects, objects, st.data())
def test_what_a_hook_saw_and_patched_is_what_it_gets(
    static: JsonObject, config: JsonObject, data: st.DataObject
) -> None:
    store = store_of(spec("m", common=yamldoc.dump({"m": static})))
    configure(store, {"m": config})
    target = data.draw(objects)
    current = store.effective("m")
    assert isinstance(current, dict)
    operations: list[JsonValue] = [remove(jsondoc.join("m", key)) for key in current if key not in target]
    operations += [add(jsondoc.join("m", key), value) for key, value in target.items()]
    patch(store, "m", *operations)
    assert jsondoc.digest(store.effective("m")) == jsondoc.digest(target)
    assert store.digest("m") == jsondoc.digest(target)
