"""Values from their sources to hooks, charts and the ConfigMap (contract 2.7 to 2.9), with real hooks and charts.

Patches and schemas are in `tests/component/modules`: `test_values_patches.py`, `test_values_schemas.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

from addon_operator.devcluster import DevCluster
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from tests.cluster.operator import Operator, config_map_chart, operator

# Shows what it was given, then hands over the patches that the test has laid ready.
HOOK = """#!/bin/bash
if [ "$1" = --config ]; then echo '{"configVersion":"v1","%s":1}'; exit; fi
cp $VALUES_PATH $OUT/%s.values; cp $CONFIG_VALUES_PATH $OUT/%s.config
cat $OUT/%s.patch >$VALUES_JSON_PATCH_PATH 2>/dev/null
cat $OUT/%s.config-patch >$CONFIG_VALUES_JSON_PATCH_PATH 2>/dev/null
exit 0
"""


def hook(binding: str, name: str) -> str:
    return HOOK % (binding, *[name] * 4)


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
