from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon_operator.configmap import document
from addon_operator.configmap.document import ConfigChange, ConfigDocument
from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonValue
from addon_operator.errors import ConfigMapError
from tests.unit.values.strategies import objects, values

WHERE = "ConfigMap ns/addon-operator"
KNOWN = ("simpleModule", "node", "nodeMaintenance", "l2LoadBalancer")


def parse(data: dict[str, str]) -> ConfigDocument:
    return document.parse(data, where=WHERE, known=KNOWN)


def problems(data: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigMapError) as caught:
        parse(data)
    return str(caught.value).splitlines()


def test_the_example_of_the_contract() -> None:
    found = parse(
        {
            "global": "param1: 1\n",
            "simpleModule": "p: 1\nnone: {deep: null}\n",
            "simpleModuleEnabled": "false",
            "simpleModuleMaintenance": "NoResourceReconciliation",
        }
    )
    assert found.sections == {"global": {"param1": 1}, "simpleModule": {"p": 1, "none": {"deep": None}}}
    assert found.flags == {"simpleModule": False}
    assert found.maintenance == {"simpleModule": "NoResourceReconciliation"}
    assert found.warnings == ()


SECTIONS: list[tuple[str, JsonValue]] = [
    ("", {}),
    ("# only a comment\n", {}),
    ("{}", {}),
    ("[]", []),
    ("- a\n- b: 1\n", ["a", {"b": 1}]),
    ("null", {}),
]


@pytest.mark.parametrize(("text", "value"), SECTIONS, ids=[repr(text) for text, _ in SECTIONS])
def test_sections(text: str, value: JsonValue) -> None:
    assert parse({"global": text, "simpleModule": text}).sections == {"global": value, "simpleModule": value}


@pytest.mark.parametrize(("text", "flag"), [("true", True), ("false", False), ("false\n", False)], ids=repr)
def test_enable_flags(text: str, flag: bool) -> None:
    assert parse({"simpleModuleEnabled": text}).flags == {"simpleModule": flag}


def test_a_bare_boolean_is_the_old_form_of_a_flag() -> None:
    found = parse({"simpleModule": "false"})
    assert (found.flags, found.sections) == ({"simpleModule": False}, {})
    assert found.warnings == (
        f"{WHERE}, key simpleModule: used as an enable flag; its key should be 'simpleModuleEnabled'",
    )
    assert parse({"simpleModuleEnabled": "true", "simpleModule": "false"}).flags == {"simpleModule": True}
    assert parse({"simpleModule": "false", "simpleModuleEnabled": "true"}).flags == {"simpleModule": True}


def test_an_unknown_module_gets_a_warning_and_is_kept() -> None:
    found = parse({"anotherOne": "a: 1", "thirdEnabled": "true", "fourthMaintenance": "", "globalEnabled": "true"})
    assert found.sections == {"anotherOne": {"a": 1}}
    assert found.flags == {"third": True, "global": True}
    keys = "anotherOne, fourthMaintenance, globalEnabled, thirdEnabled"
    assert found.warnings == (f"{WHERE}: 4 keys of modules that do not exist: {keys}",)


@pytest.mark.parametrize(
    ("key", "text", "module"),
    [
        ("anotherOne", "a: 1", "another-one"),
        ("thirdEnabled", "true", "third"),
        ("fourthMaintenance", "", "fourth"),
        ("globalEnabled", "true", "global"),
    ],
)
def test_one_unknown_module_is_named(key: str, text: str, module: str) -> None:
    assert parse({key: text}).warnings == (f"{WHERE}, key {key}: there is no module {module!r}",)


def test_three_thousand_unknown_keys_are_one_warning() -> None:
    found = parse({f"module{number:04}Enabled": "true" for number in range(3000)})
    first = ", ".join(f"module{number:04}Enabled" for number in range(5))
    assert found.warnings == (f"{WHERE}: 3000 keys of modules that do not exist: {first} and 2995 more",)


def test_three_thousand_bad_keys_are_a_short_message() -> None:
    with pytest.raises(ConfigMapError) as caught:
        parse({f"bad-{number:04}": "a: 1" for number in range(3000)})
    lines = str(caught.value).splitlines()
    assert (len(lines), lines[-1]) == (21, f"{WHERE}: 2980 more problems")


def test_a_duplicate_key_in_a_section_gets_a_warning_and_the_last_one_wins() -> None:
    found = parse({"simpleModule": "a:\n  b: 1\n  c: 2\n  b: hunter2\n"})
    assert found.sections == {"simpleModule": {"a": {"b": "hunter2", "c": 2}}}
    assert found.warnings == (f"{WHERE}, key simpleModule:4: /a/b: duplicate key, the last one wins",)


def test_a_module_whose_name_ends_like_a_flag() -> None:
    found = parse({"nodeMaintenance": "window: night\n", "nodeMaintenanceMaintenance": "NoResourceReconciliation"})
    assert found.sections == {"nodeMaintenance": {"window": "night"}}
    assert found.maintenance == {"nodeMaintenance": "NoResourceReconciliation"}
    assert parse({"laterMaintenance": "window: night\n"}).sections == {"laterMaintenance": {"window": "night"}}


def test_what_helm_reads_otherwise_gets_a_warning() -> None:
    (warning,) = parse({"global": "a: 1\nb: y\n"}).warnings
    assert warning.startswith(f"{WHERE}, key global:2: a bare y")


HINT = "it should be camelCased, such as"
BAD = [
    ("simple-module", "a: 1", f"key simple-module: bad module name, {HINT} 'simpleModule'"),
    ("simple-moduleEnabled", "true", f"key simple-moduleEnabled: bad module name, {HINT} 'simpleModuleEnabled'"),
    ("Module", "", f"key Module: bad module name, {HINT} 'module'"),
    ("simple_Module", "", f"key simple_Module: bad module name, {HINT} 'simpleModule'"),
    ("a.yaml", "", "key a.yaml: bad module name"),
    ("global", "a: [\n", "key global:2:"),
    ("simpleModule", "ok: 1\n bad: 2\n", "key simpleModule:2:"),
    ("simpleModule", "some text", "key simpleModule:1: must be a map or a list"),
    ("simpleModule", "5", "key simpleModule:1: must be a map or a list"),
    ("global", "false", "key global:1: must be a map or a list"),
    ("AaEnabled", "true", f"key AaEnabled: bad module name, {HINT} 'aaEnabled'"),
    ("simpleModule", "a: 99999999999999999999", "key simpleModule:1: /a: JSON cannot hold an integer"),
    ("simpleModuleEnabled", "yes", 'key simpleModuleEnabled: must be "true" or "false"'),
    ("simpleModuleEnabled", "", 'key simpleModuleEnabled: must be "true" or "false"'),
    ("nodeMaintenanceMaintenance", "Other", "key nodeMaintenanceMaintenance: must be empty or"),
]


@pytest.mark.parametrize(("key", "text", "problem"), BAD, ids=[f"{key}: {text!r}" for key, text, _ in BAD])
def test_problems_name_the_key(key: str, text: str, problem: str) -> None:
    (line,) = problems({"global": "", key: text})
    assert line.startswith(f"{WHERE}, {problem}")


def test_all_problems_are_listed_without_values() -> None:
    lines = problems({"a-b": "hunter2", "global": "hunter2", "simpleModuleEnabled": "hunter2"})
    assert len(lines) == 3
    assert "hunter2" not in "".join(lines)


# --- differences


def doc(
    sections: dict[str, JsonValue] | None = None,
    flags: dict[str, bool] | None = None,
    maintenance: dict[str, str] | None = None,
) -> ConfigDocument:
    return ConfigDocument(sections or {}, flags or {}, maintenance or {})


NOTHING = ConfigChange(global_changed=False, sections=frozenset(), flags=frozenset(), maintenance=frozenset())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (doc(), document.empty_document()),
        (doc({"global": {}}), doc()),
        (doc(), doc({"m": {}})),
        (doc({"m": {"a": 1, "b": 2}}), doc({"m": {"b": 2, "a": 1}})),
    ],
)
def test_no_difference(old: ConfigDocument, new: ConfigDocument) -> None:
    assert document.diff(old, new) == NOTHING
    assert document.diff(old, new).empty


def test_every_kind_of_difference() -> None:
    old = doc({"global": {"a": 1}, "m": {"a": 1}, "n": [1], "same": {}}, {"m": True, "n": True}, {"m": "x"})
    new = doc({"global": {"a": True}, "m": {"a": 2}, "o": {"a": 1}}, {"m": False, "n": True, "o": False}, {"n": "x"})
    change = document.diff(old, new)
    assert change.global_changed
    assert change.sections == {"m", "n", "o"}
    assert change.flags == {"m", "o"}
    assert change.maintenance == {"m", "n"}
    assert not change.empty


keys = st.sampled_from(["global", "m", "n", "o"])
documents = st.builds(
    ConfigDocument,
    st.dictionaries(keys, objects | st.lists(values, max_size=2)),
    st.dictionaries(keys, st.booleans()),
    st.dictionaries(keys, st.just("NoResourceReconciliation")),
)


@given(documents, documents)
def test_differences_are_symmetric_and_exact(old: ConfigDocument, new: ConfigDocument) -> None:
    assert document.diff(old, old) == NOTHING
    change = document.diff(old, new)
    assert change == document.diff(new, old)
    patched = dict(old.sections)
    for key in change.sections | ({"global"} if change.global_changed else set()):
        patched[key] = new.sections.get(key, {})
    flags: dict[str, bool] = {key: new.flags[key] for key in change.flags if key in new.flags}
    kept = {key: flag for key, flag in old.flags.items() if key not in change.flags}
    maintenance = {key: new.maintenance.get(key, old.maintenance.get(key, "")) for key in new.maintenance}
    assert document.diff(ConfigDocument(patched, kept | flags, maintenance), new).empty


# --- writing

DATA = {
    "global": "# why\na:   1\n",
    "simpleModule": "p: [1,\n 2]\n",
    "simpleModuleEnabled": "true",
    "of-somebody-else": "\tuntouched: [",
}


def test_only_what_changes_is_written() -> None:
    written = document.to_data(DATA, {"simpleModule": {"p": [1, 3]}}, {"node": False})
    assert written == DATA | {"simpleModule": "p:\n- 1\n- 3\n", "nodeEnabled": "false"}
    assert DATA["simpleModule"] == "p: [1,\n 2]\n"


def test_a_text_that_says_the_same_stays() -> None:
    assert document.to_data(DATA, {"global": {"a": 1}, "simpleModule": {"p": [1, 2]}, "new": {}}, {}) == DATA
    assert document.to_data(DATA, {"global": {"a": True}}, {})["global"] == "a: true\n"


def test_an_emptied_section_and_a_flag_that_is_taken_out() -> None:
    written = document.to_data(DATA, {"simpleModule": {}}, {"simpleModule": None, "never": None})
    assert written == {key: DATA[key] for key in ("global", "of-somebody-else")} | {"simpleModule": "{}\n"}


def test_the_old_form_of_a_flag_is_not_lost() -> None:
    assert document.to_data({"m": "false"}, {"m": {"a": 1}}, {}) == {"m": "a: 1\n", "mEnabled": "false"}
    assert document.to_data({"m": "false"}, {"m": {"a": 1}}, {"m": True}) == {"m": "a: 1\n", "mEnabled": "true"}
    assert document.to_data({"m": "false"}, {}, {"m": None}) == {}


@given(
    st.dictionaries(st.sampled_from(["global", "simpleModule", "node"]), objects),
    st.dictionaries(st.sampled_from(["global", "simpleModule", "node"]), objects | st.lists(values, max_size=2)),
    st.dictionaries(st.sampled_from(["simpleModule", "node"]), st.booleans() | st.none()),
)
def test_what_was_written_is_what_is_read(
    before: dict[str, JsonValue], sections: dict[str, JsonValue], flags: dict[str, bool | None]
) -> None:
    data = document.to_data({}, before, {"simpleModule": True})
    written = document.to_data(data, sections, flags)
    found = parse(written)
    assert document.diff(found, parse(data).with_changes(sections, flags)).empty
    for key, value in sections.items():
        assert jsondoc.digest(found.sections.get(key, {})) == jsondoc.digest(value)
    assert document.to_data(written, sections, flags) == written
