"""Values from their sources to hooks, charts and the ConfigMap (contract 2.7 to 2.9, 5.4, 6.3)."""

from __future__ import annotations

import json
from pathlib import Path

from addon_operator.devcluster import DevCluster
from addon_operator.documents.jsondoc import JsonObject, JsonValue, lookup
from tests.cluster.operator import Operator, config_map_chart, eventually, operator

# Shows what it was given, then hands over the patches that the test has laid ready.
HOOK = """#!/bin/bash
if [ "$1" = --config ]; then echo '{"configVersion":"v1","%s":1}'; exit; fi
cp $VALUES_PATH $OUT/%s.values; cp $CONFIG_VALUES_PATH $OUT/%s.config; echo run >>$OUT/%s.runs
cat $OUT/%s.patch >$VALUES_JSON_PATCH_PATH 2>/dev/null
cat $OUT/%s.config-patch >$CONFIG_VALUES_JSON_PATCH_PATH 2>/dev/null
exit 0
"""


def hook(binding: str, name: str) -> str:
    return HOOK % (binding, *[name] * 5)


def shows_values(name: str) -> dict[str, str]:
    """A chart that writes down all values that helm gave it."""
    return config_map_chart(name, "values: {{ .Values | toJson | quote }}")


def given(made: Operator, name: str) -> JsonValue:
    """What a hook found in its files."""
    value: JsonValue = json.loads((made.root / name).read_text())
    return value


def charted(made: Operator, release: str) -> JsonObject:
    """What a chart saw as `.Values`."""
    values: JsonObject = json.loads(made.deployed(release)["values"])
    return values


def section(made: Operator, key: str = "lab") -> JsonValue:
    """The effective values of a module, as the CLI shows them."""
    document = made.debug("module", "values", key, "-o", "json")
    assert isinstance(document, dict)
    return document[key]


def patches(made: Operator, module: str = "lab") -> list[JsonValue]:
    """The operations that are kept, as `op path value`."""
    document = made.debug("module", "patches", module)
    if document == []:
        return []
    operations = lookup(document, "/0/Operations")
    assert isinstance(operations, list)
    return operations


class Lab:
    """A module `lab` whose hook does what the test wants; each change of the ConfigMap makes it run once."""

    def __init__(self, made: Operator) -> None:
        self.made = made
        self.ticks = 0

    def run(self, patch: JsonValue = None, config_patch: JsonValue = None) -> None:
        """Runs the module once with these patches; they are laid aside afterwards."""
        self._lay(patch, config_patch)
        runs = len(self.made.lines("lab.runs"))
        self.tick()
        eventually(lambda: len(self.made.lines("lab.runs")) > runs)
        self.made.wait_idle()
        self._lay(None, None)

    def refused(self, patch: JsonValue = None, config_patch: JsonValue = None) -> str:
        """Runs the module with patches that must fail; answers why, and lets it come right again."""
        self._lay(patch, config_patch)
        self.tick()
        error = eventually(lambda: self.made.modules()["lab"]["lastError"])
        self._lay(None, None)
        self.made.wait_idle()
        assert self.made.modules()["lab"]["lastError"] is None
        return str(error)

    def tick(self) -> None:
        self.ticks += 1
        self.made.configure({"lab": f"tick: {self.ticks}\n"})

    def _lay(self, patch: JsonValue, config_patch: JsonValue) -> None:
        for name, operations in (("lab.patch", patch), ("lab.config-patch", config_patch)):
            text = operations if isinstance(operations, str) else json.dumps(operations) if operations else ""
            ready = self.made.root / f"{name}.new"
            ready.write_text(text)
            ready.rename(self.made.root / name)


def test_layers(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as made:
        made.files(
            {
                "modules/values.yaml": (
                    "global: {from: file, over: file, nothing: null}\nlabEnabled: true\notherEnabled: true\n"
                    "lab: {common: 1, module: 1, configMap: 1, patch: 1, map: {a: 1, b: 1}, list: [1, 2]}\n"
                ),
                "global-hooks/seen.sh": hook("beforeAll", "seen"),
                "global-hooks/openapi/values.yaml": (
                    "type: object\nadditionalProperties: true\nproperties: {hooked: {type: string, default: nobody}}\n"
                ),
            }
        )
        made.module(
            "010-lab",
            {
                **shows_values("lab"),
                "values.yaml": (
                    "lab: {module: 2, configMap: 2, patch: 2, map: {b: 2, c: 2}, list: [3], gone: 2}\n"
                    "replicas: 4\nother: {secret: no}\n"
                ),
                "openapi/config-values.yaml": (
                    "type: object\nadditionalProperties: true\nproperties:\n"
                    "  defaulted: {type: string, default: config}\n  items: {type: array, items: {type: object, "
                    "additionalProperties: true, properties: {size: {type: integer, default: 5}}}}\n"
                ),
                "openapi/values.yaml": (
                    "x-extend: {schema: config-values.yaml}\ntype: object\nadditionalProperties: true\n"
                    "properties: {inner: {default: {}, properties: {deep: {type: integer, default: 9}}}}\n"
                ),
                "hooks/lab.sh": hook("beforeHelm", "lab"),
            },
        )
        script = "#!/bin/bash\ncp $VALUES_PATH $OUT/enabled.values; cp $CONFIG_VALUES_PATH $OUT/enabled.config\n"
        made.module("020-other", {**shows_values("other"), "enabled": f"{script}echo true >$MODULE_ENABLED_RESULT\n"})
        (tmp_path / "lab.patch").write_text(
            '[{"op":"add","path":"/lab/patch","value":5},{"op":"remove","path":"/lab/gone"}]'
        )
        (tmp_path / "lab.config-patch").write_text('{"op":"add","path":"/lab/saved","value":"by hook"}')
        made.configure(
            {
                "lab": "configMap: 3\npatch: 3\nempty: null\nmap: {c: 3, d: {e: null}}\nitems: [{name: x}]\n",
                "global": "over: configmap\n",
            }
        )
        made.start_ready()

        own: JsonObject = {"configMap": 3, "patch": 3, "empty": None, "map": {"c": 3, "d": {"e": None}}}
        own["items"] = [{"name": "x"}]
        shared: JsonObject = {"from": "file", "over": "configmap", "nothing": None, "hooked": "nobody"}
        before: JsonObject = {
            **own,
            "common": 1,
            "module": 2,
            "map": {"a": 1, "b": 2, "c": 3, "d": {"e": None}},
            "list": [3],
            "gone": 2,
            "items": [{"name": "x", "size": 5}],
            "defaulted": "config",
            "inner": {"deep": 9},
        }
        enabled: JsonObject = {"enabledModules": ["lab", "other"]}
        assert given(made, "lab.values") == {"global": shared | enabled, "lab": before}
        # Neither files nor defaults, only the ConfigMap; the operator writes what the hook saved afterwards.
        assert given(made, "lab.config") == {"global": {"over": "configmap"}, "lab": own}
        after = {key: value for key, value in before.items() if key != "gone"} | {"patch": 5, "saved": "by hook"}
        assert section(made) == after

        assert given(made, "enabled.values") == {"global": shared | {"enabledModules": ["lab"]}, "other": {}}
        assert given(made, "enabled.config") == {"global": {"over": "configmap"}, "other": {}}
        assert given(made, "seen.config") == {"global": {"over": "configmap"}}
        assert given(made, "seen.values") == {"global": shared}

        # The module's file is the chart's, too: other keys are visible, and what a patch removed stays away.
        assert charted(made, "lab") == {"global": shared, "lab": after, "replicas": 4, "other": {"secret": False}}
        assert charted(made, "other")["other"] == {}
        assert "saved: by hook" in made.config_data()["lab"]


def test_patches_of_a_module(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as made:
        start = "labEnabled: true\nlab: {keep: 1, list: [1, 2], deep: {a: {b: 1}}, from: {x: 7}}\n"
        made.files({"modules/values.yaml": start})
        hooks = {"hooks/lab.sh": hook("beforeHelm", "lab"), "hooks/birth.sh": hook("onStartup", "birth")}
        made.module("lab", {**shows_values("lab"), **hooks})
        made.start_ready()
        lab = Lab(made)
        base: JsonObject = {"keep": 1, "list": [1, 2], "deep": {"a": {"b": 1}}, "from": {"x": 7}}

        # Several documents in one file, arrays and single operations.
        lab.run(
            '[{"op":"add","path":"/lab/deep/a/c","value":2},{"op":"add","path":"/lab/list/-","value":3}]\n'
            '{"op":"add","path":"/lab/list/0","value":0}\n'
            '[{"op":"replace","path":"/lab/keep","value":null},{"op":"test","path":"/lab/from/x","value":7}]'
        )
        expected = base | {"keep": None, "list": [0, 1, 2, 3], "deep": {"a": {"b": 1, "c": 2}}, "tick": 1}
        assert section(made) == expected == charted(made, "lab")["lab"]
        assert patches(made) == [
            {"op": "add", "path": "/lab/deep/a/c", "value": 2},
            {"op": "add", "path": "/lab/keep", "value": None},
            {"op": "add", "path": "/lab/list", "value": [0, 1, 2, 3]},
        ]

        # A later operation on a parent drops what was below it; move and copy are resolved.
        lab.run(
            [
                {"op": "remove", "path": "/lab/deep/a"},
                {"op": "move", "from": "/lab/from/x", "path": "/lab/moved"},
                {"op": "copy", "from": "/lab/list/3", "path": "/lab/copied"},
            ]
        )
        assert section(made) == {
            "keep": None, "list": [0, 1, 2, 3], "deep": {}, "from": {}, "moved": 7, "copied": 3, "tick": 2,
        }  # fmt: skip
        assert patches(made) == [
            {"op": "add", "path": "/lab/copied", "value": 3},
            {"op": "remove", "path": "/lab/deep/a"},
            {"op": "remove", "path": "/lab/from/x"},
            {"op": "add", "path": "/lab/keep", "value": None},
            {"op": "add", "path": "/lab/list", "value": [0, 1, 2, 3]},
            {"op": "add", "path": "/lab/moved", "value": 7},
        ]

        before, kept = section(made), patches(made)
        assert isinstance(before, dict)
        first: JsonObject = {"op": "add", "path": "/lab/first", "value": "s3cret"}
        foreign = ("/other/a", "/global/a", "/labEnabled")
        outside: list[JsonValue] = [{"op": "add", "path": path, "value": "s3cret"} for path in foreign]
        wrong: list[tuple[list[JsonValue], list[str]]] = [
            (outside, [f"values patch: unacceptable patch operation for path '{path}'" for path in foreign]),
            ([{"op": "remove", "path": "/lab/no"}], ["values patch: remove /lab/no: /lab/no does not exist"]),
            (
                [{"op": "test", "path": "/lab/moved", "value": "s3cret"}],
                ["values patch: test /lab/moved: the value differs"],
            ),
        ]
        for operations, words in wrong:
            error = lab.refused([first, *operations])
            assert error.startswith("hook hooks/lab.sh of module lab: ")
            assert [word for word in words if word not in error] == []
            assert "s3cret" not in error
            assert patches(made) == kept
            assert section(made) == before | {"tick": lab.ticks}

        # The whole section, there and back (contract 5.4 no. 4).
        lab.run([{"op": "remove", "path": "/lab"}])
        assert section(made) == {}
        assert patches(made) == [{"op": "remove", "path": "/lab"}]
        lab.run('{"op":"add","path":"/lab","value":{"new":true}}')
        assert section(made) == {"new": True}
        assert charted(made, "lab")["lab"] == {"new": True}

        # The next life begins without patches, with onStartup.
        lab.tick()
        made.configure({"labEnabled": "false"})
        eventually(lambda: made.revisions("lab") == {})
        made.wait_idle()
        assert patches(made) == []
        made.configure({"labEnabled": "true"})
        eventually(lambda: len(made.lines("birth.runs")) == 2)
        made.wait_idle()
        assert section(made) == base | {"tick": lab.ticks}


def test_schemas_of_a_module(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as made:
        made.files(
            {
                "modules/values.yaml": "labEnabled: true\nglobal: {}\n",
                "global-hooks/openapi/values.yaml": (
                    "type: object\nx-required-for-helm: [domain]\nproperties: {domain: {type: string}}\n"
                ),
            }
        )
        made.module(
            "lab",
            {
                **shows_values("lab"),
                "openapi/config-values.yaml": (
                    "type: object\nproperties:\n  tick: {type: integer}\n  text: {type: string, nullable: true}\n"
                    "  zone: {type: string, enum: [a, b]}\n"
                ),
                "openapi/values.yaml": (
                    "x-extend: {schema: config-values.yaml}\ntype: object\nx-required-for-helm: [password]\n"
                    "properties:\n  password: {type: string}\n"
                    "  tls:\n    type: object\n    default: {}\n    x-required-for-helm: key\n"
                    "    properties: {key: {type: string}}\n"
                ),
                "hooks/lab.sh": hook("beforeHelm", "lab"),
            },
        )
        made.start()
        error = str(eventually(lambda: made.modules()["lab"]["lastError"]))
        assert error.splitlines() == [
            "check helm values of module 'lab':",
            "  - global.domain is required",
            "  - lab.password is required",
            "  - lab.tls.key is required",
        ]
        assert made.revisions("lab") == {}
        (tmp_path / "lab.patch").write_text(
            '[{"op":"add","path":"/lab/password","value":"s3cret"},{"op":"add","path":"/lab/tls","value":{"key":"k"}}]'
        )
        made.configure({"global": "domain: example.com\n", "lab": "text: null\n"})
        made.wait_ready()
        (tmp_path / "lab.patch").write_text("")
        assert charted(made, "lab")["lab"] == {"text": None, "password": "s3cret", "tls": {"key": "k"}}

        lab = Lab(made)
        error = lab.refused(
            [
                {"op": "add", "path": "/lab/password", "value": 5},
                {"op": "add", "path": "/lab/extra", "value": "s3cret"},
            ],
            [{"op": "add", "path": "/lab/zone", "value": "s3cret"}],
        )
        assert error.splitlines() == [
            "hook hooks/lab.sh of module lab: the patched values are not valid:",
            "  - lab.extra is a forbidden property (hook hooks/lab.sh)",
            "  - lab.password in body must be of type string (hook hooks/lab.sh)",
            "  - lab.zone in body should be one of a or b (ConfigMap key lab)",
        ]
        assert made.config_data()["lab"] == f"tick: {lab.ticks}\n"
        assert section(made) == {"tick": lab.ticks, "password": "s3cret", "tls": {"key": "k"}}
        assert made.debug("module", "config", "lab", "-o", "json") == {"lab": {"tick": lab.ticks}}
        # A null for a key that is not nullable, in the ConfigMap.
        made.configure({"lab": "zone: null\ntick: 1.5\n"})
        eventually(lambda: made.in_log("lab.zone in body"))
        eventually(lambda: made.in_log("lab.tick in body must be of type integer (ConfigMap key lab)"))
        assert section(made) == {"tick": lab.ticks, "password": "s3cret", "tls": {"key": "k"}}


def test_sections_that_are_lists(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as made:
        made.files({"modules/values.yaml": "labEnabled: true\nlab: [{name: file}]\n"})
        made.module("lab", {**shows_values("lab"), "hooks/lab.sh": hook("beforeHelm", "lab")})
        (tmp_path / "lab.patch").write_text('[{"op":"add","path":"/lab/-","value":{"name":"hook"}}]')
        (tmp_path / "lab.config-patch").write_text('[{"op":"add","path":"/lab","value":[{"name":"saved"}]}]')
        made.start_ready()
        assert section(made) == [{"name": "saved"}, {"name": "hook"}] == charted(made, "lab")["lab"]
        assert given(made, "lab.config") == {"global": {}, "lab": {}}
        assert made.config_data()["lab"] == "- name: saved\n"

        (tmp_path / "lab.patch").write_text('[{"op":"remove","path":"/lab"}]')
        (tmp_path / "lab.config-patch").write_text("")
        made.configure({"lab": "[1, 2]\n"})
        eventually(lambda: section(made) == {})
        made.wait_idle()
        (tmp_path / "lab.patch").write_text('[{"op":"add","path":"/lab","value":[]}]')
        made.configure({"lab": "[1, 2, 3]\n"})
        eventually(lambda: section(made) == [])
        made.wait_idle()
        assert given(made, "lab.config") == {"global": {}, "lab": [1, 2, 3]}
        assert charted(made, "lab")["lab"] == []


def test_patches_of_a_global_hook(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as made:
        made.files({"modules/values.yaml": "global: {a: 1}\n", "global-hooks/lab.sh": hook("beforeAll", "lab")})
        for name in ("one", "two"):
            made.module(name, shows_values(name))
        # One patch for values and flags (contract 5.4 no. 3); the ConfigMap does not exist yet.
        (tmp_path / "lab.patch").write_text(
            '[{"op":"add","path":"/global/b","value":2},{"op":"add","path":"/oneEnabled","value":"true"}]'
        )
        (tmp_path / "lab.config-patch").write_text(
            '[{"op":"add","path":"/global/saved","value":{"x":[null]}},{"op":"add","path":"/twoEnabled","value":true}]'
        )
        made.start_ready()
        made.wait_idle()
        assert made.config_data() == {"global": "saved:\n  x:\n  - null\n", "twoEnabled": "true"}
        shared: JsonObject = {"a": 1, "b": 2, "saved": {"x": [None]}}
        assert charted(made, "one") == {"global": shared, "one": {}}
        assert charted(made, "two") == {"global": shared, "two": {}}
        assert len(made.lines("lab.runs")) == 1

        (tmp_path / "lab.patch").write_text('[{"op":"remove","path":"/oneEnabled"},{"op":"remove","path":"/global/b"}]')
        (tmp_path / "lab.config-patch").write_text('[{"op":"remove","path":"/twoEnabled"}]')
        made.configure({"global": "saved: again\n"})
        eventually(lambda: made.revisions("one") == made.revisions("two") == {})
        made.wait_idle()
        assert made.config_data() == {"global": "saved: again\n"}
        assert made.debug("global", "values", "-o", "json") == {"a": 1, "saved": "again"}
        assert [module["enabled"] for module in made.modules().values()] == [False, False]
