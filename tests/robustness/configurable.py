"""A workload with much to configure, for random states of the ConfigMap: twelve modules, charts that show all values.

    010-base        nothing but a chart
    020-rich        all that a schema can say
    020-twin        runs beside it
    030-computed    a beforeHelm hook that sets a value, and takes it back
    040-afterwards  an afterHelm hook that changes values, so that the module runs twice
    050-optional    a global hook switches it on and off, as the global values say
    060-scripted    an `enabled` script that looks at the module's values and at `base`
    070-remember    a hook that writes to the ConfigMap what people have not said
    080-counted     an object with a label
    090-counting    a `kubernetes` binding in a queue of its own, which sees that object
    090-hooks-only  no chart
    110-bare        templates without Chart.yaml

Each hook computes what it sets from what it sees, and takes it back when there is nothing to set: the end does not
depend on the way there. (The reference workload of `workload.py` is small, so that each of its writes can be a case.)
"""

from __future__ import annotations

from typing import Final

from tests.cluster.operator import bindings, config_map_chart

SIZE: Final = "type: object\nproperties:\n  size: {type: integer, minimum: 0, maximum: 9, default: 1}\n"
COMPUTED: Final = "type: object\nproperties:\n  size: {type: integer, default: 2}\n  factor: {type: integer}\n"
SCRIPTED: Final = "type: object\nproperties:\n  wanted: {type: boolean}\n  size: {type: integer}\n"
REMEMBERED: Final = "type: object\nproperties:\n  token: {type: string, enum: [given, made]}\n"
RICH: Final = """type: object
properties:
  mode: {type: string, enum: [fast, safe], nullable: true}
  ratio: {type: number, minimum: 0, maximum: 1}
  labels: {type: object, additionalProperties: {type: string}}
  servers:
    type: array
    default: []
    items:
      type: object
      required: [name]
      properties:
        name: {type: string, maxLength: 12}
        port: {type: integer, minimum: 1, maximum: 65535, default: 80}
  deep:
    type: object
    default: {}
    properties:
      level: {type: object, default: {}, properties: {text: {type: string, default: bottom}}}
"""
INTERNAL: Final = """properties:
  internal: {type: object, default: {}, additionalProperties: true}
"""
GLOBAL_CONFIG: Final = """type: object
properties:
  domain: {type: string, maxLength: 20}
  extras: {type: boolean, default: false}
  zones: {type: array, items: {type: string, enum: [a, b, c]}, maxItems: 3}
"""
GLOBAL_VALUES: Final = """x-extend: {schema: config-values.yaml}
type: object
properties:
  zoneCount: {type: integer}
  zonesAndOne: {type: integer}
"""
STATIC: Final = """global: {domain: example.com}
rich: {labels: {from: file}}
baseEnabled: true
richEnabled: true
computedEnabled: true
rememberEnabled: true
"""


def _hook(config: str, body: str) -> str:
    return f"""#!/bin/bash
set -e
if [ "$1" = --config ]; then printf '%s\\n' 'configVersion: v1' '{config}'; exit; fi
{body}
"""


def _shows(module: str, config_schema: str = SIZE, values_schema: str = "") -> dict[str, str]:
    """A module whose chart shows all values that it sees."""
    data = f"values: {{{{ .Values.{module} | toJson | quote }}}}\nglobal: {{{{ .Values.global | toJson | quote }}}}"
    return {
        **config_map_chart(module, data),
        "openapi/config-values.yaml": config_schema,
        "openapi/values.yaml": "x-extend: {schema: config-values.yaml}\ntype: object\n" + values_schema,
    }


# Counts the zones; switches the module `optional` on while extras are wanted.
DISCOVER: Final = _hook(
    "beforeAll: 1",
    """
    jq '[{op: "add", path: "/global/zoneCount", value: (.global.zones // [] | length)},
         {op: "add", path: "/optionalEnabled", value: .global.extras}]' "$VALUES_PATH" >"$VALUES_JSON_PATCH_PATH"
    """,
)
# Sets a value after everything, which leads to a second converge.
SUM_UP: Final = _hook(
    "afterAll: 1",
    """
    jq '[{op: "add", path: "/global/zonesAndOne", value: (.global.zoneCount + 1)}]' \
      "$VALUES_PATH" >"$VALUES_JSON_PATCH_PATH"
    """,
)
COMPUTE: Final = _hook(
    "beforeHelm: 1",
    """
    jq '.computed as $c | if $c.factor then
          [{op: "add", path: "/computed/internal/product", value: ($c.factor * $c.size)}]
        elif $c.internal.product then [{op: "remove", path: "/computed/internal/product"}] else [] end' \
      "$VALUES_PATH" >"$VALUES_JSON_PATCH_PATH"
    """,
)
# What Helm has done leads to another value, and so to a second run.
AFTERWARDS: Final = _hook(
    "afterHelm: 1",
    """
    jq '[{op: "add", path: "/afterwards/internal/seen", value: .afterwards.size}]' \
      "$VALUES_PATH" >"$VALUES_JSON_PATCH_PATH"
    """,
)
# Writes to the ConfigMap what people have not said.
REMEMBER: Final = _hook(
    "beforeHelm: 1",
    """
    jq 'if .remember.token then [] else [{op: "add", path: "/remember/token", value: "made"}] end' \
      "$VALUES_PATH" >"$CONFIG_VALUES_JSON_PATCH_PATH"
    """,
)
# Needs what another module has made.
COUNT: Final = _hook(
    bindings(
        beforeHelm=1,
        kubernetes=[
            {
                "name": "shown",
                "kind": "ConfigMap",
                "queue": "counting",
                "labelSelector": {"matchLabels": {"counted": "yes"}},
                "namespace": {"nameSelector": {"matchNames": ["NAMESPACE"]}},
                "jqFilter": ".metadata.name",
                "includeSnapshotsFrom": ["shown"],
            }
        ],
    ),
    """
    jq '[{op: "add", path: "/counting/internal/names",
        value: ([.[] | .snapshots.shown[]? .filterResult] | sort | unique)}]' \
      "$BINDING_CONTEXT_PATH" >"$VALUES_JSON_PATCH_PATH"
    """,
)
SCRIPT: Final = """#!/bin/bash
set -e
jq '.scripted.wanted != false and (.global.enabledModules | index("base") != null)' "$VALUES_PATH" \
  >"$MODULE_ENABLED_RESULT"
"""


def files(namespace: str) -> dict[str, str]:
    """All files of the workload, by their path below the operator's root; `namespace` is the operator's."""
    counted = config_map_chart("counted", "size: {{ .Values.counted.size | quote }}")
    labelled = counted["templates/config.yaml"].replace("counted\ndata", "counted\n  labels: {counted: 'yes'}\ndata")
    bare = _shows("bare")
    del bare["Chart.yaml"]
    modules = {
        "010-base": _shows("base"),
        "020-rich": {**_shows("rich", RICH), "values.yaml": "rich: {ratio: 0.5}\n"},
        "020-twin": _shows("twin"),
        "030-computed": {**_shows("computed", COMPUTED, INTERNAL), "hooks/compute.sh": COMPUTE},
        "040-afterwards": {**_shows("afterwards", SIZE, INTERNAL), "hooks/after.sh": AFTERWARDS},
        "050-optional": _shows("optional"),
        "060-scripted": {**_shows("scripted", SCRIPTED), "enabled": SCRIPT},
        "070-remember": {**_shows("remember", REMEMBERED), "hooks/remember.sh": REMEMBER},
        "080-counted": {**counted, "templates/config.yaml": labelled, "openapi/config-values.yaml": SIZE},
        "090-counting": {
            **_shows("counting", SIZE, INTERNAL),
            "hooks/count.sh": COUNT.replace("NAMESPACE", namespace),
        },
        "090-hooks-only": {"openapi/config-values.yaml": SIZE, "hooks/h.sh": _hook("beforeHelm: 1", "")},
        "110-bare": bare,
    }
    found = {f"modules/{name}/{path}": text for name, module in modules.items() for path, text in module.items()}
    return found | {
        "global-hooks/openapi/config-values.yaml": GLOBAL_CONFIG,
        "global-hooks/openapi/values.yaml": GLOBAL_VALUES,
        "global-hooks/010-discover.sh": DISCOVER,
        "global-hooks/020-sum-up.sh": SUM_UP,
        "modules/values.yaml": STATIC,
    }
