"""The reference workload: twelve small modules that use all that an operator does, and the edit in its middle.

    010-kinds      brings a CustomResourceDefinition; an afterHelm hook that writes an object
    020-things     a custom resource, and RBAC objects
    030-discover   onStartup and beforeHelm hooks that compute values; only the ConfigMap enables it
    030-keeper     runs beside it; a hook that writes the ConfigMap
    040-watch      a `kubernetes` binding whose snapshot goes into the values: upgraded when `checked` comes
    050-helmhooks  Helm hooks: post-install, pre-upgrade and post-upgrade
    060-policy     no chart; an admission webhook for what is labelled `checked`
    070-checked    an object that the webhook is asked about, and that `watch` sees
    080-scripted   an `enabled` script, a schedule
    090-dynamic    enabled by a global hook
    100-later      disabled; the edit enables it
    110-leaving    the edit disables it; hooks with kubectl for its start and its end

What is cluster-wide has the namespace in its name, so that many may live beside each other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from addon_operator.documents.jsondoc import JsonObject
from tests.cluster.operator import config_map_chart

MODULES: Final = (
    "kinds", "things", "discover", "keeper", "watch", "helmhooks", "policy", "checked", "scripted", "dynamic", "later",
    "leaving",
)  # fmt: skip
# Those that a chart makes a release of.
RELEASES: Final = tuple(name for name in MODULES if name != "policy")
# Releases whose values depend on objects that other modules bring: when these are seen is not the operator's choice.
DEPENDENT: Final = frozenset({"watch"})
# What says something of its own accord; its requests and processes are no points of the converge.
CLOCKWORK: Final = "tick"

# The ConfigMap that people have written before the first start, and what they change when that has settled.
START: Final[Mapping[str, str]] = {"global": "text: first\n", "discoverEnabled": "true", "kinds": "text: first\n"}
EDIT: Final[Mapping[str, str | None]] = {
    "keeper": "text: second\nstored: kept\n",
    "helmhooks": "text: second\n",
    "laterEnabled": "true",
    "leavingEnabled": "false",
}

_ENABLED: Final = ("kinds", "things", "keeper", "watch", "helmhooks", "policy", "checked", "scripted", "leaving")
_DIRECTORIES: Final = {
    "kinds": "010-kinds", "things": "020-things", "discover": "030-discover", "keeper": "030-keeper",
    "watch": "040-watch", "helmhooks": "050-helmhooks", "policy": "060-policy", "checked": "070-checked",
    "scripted": "080-scripted", "dynamic": "090-dynamic", "later": "100-later", "leaving": "110-leaving",
}  # fmt: skip

# Sourced by each process with a text that says what it is: tells the harness, and goes on when that lets it.
# Without GATE_PORT there is nobody to tell.
_GATE: Final = """if [ -n "$GATE_PORT" ]; then
  exec 9<>"/dev/tcp/127.0.0.1/$GATE_PORT"
  printf '%s\\n' "$1" >&9
  read -r _ <&9
  exec 9>&-
fi
"""
_HELM: Final = """#!/bin/bash
echo "$@" >>"$OUT/helm-calls"
. "$OUT/gate.sh" "helm $1 $2"
exec {helm} "$@"
"""

# A section has the same schema everywhere: what people may set, and what hooks add.
_CONFIG_SCHEMA: Final = """type: object
properties:
  text: {type: string, default: "-"}
  size: {type: integer, minimum: 1, maximum: 9, default: 1}
  stored: {type: string}
"""
_VALUES_SCHEMA: Final = """x-extend: {schema: config-values.yaml}
type: object
properties:
  internal: {type: object, default: {}, additionalProperties: true}
"""
_GLOBAL_SCHEMA: Final = """type: object
properties:
  text: {type: string, default: "-"}
  script: {type: string, enum: ["yes", "no"], default: "yes"}
  started: {type: boolean}
"""


def group(namespace: str) -> str:
    """The API group of the workload's custom resources."""
    return f"{namespace}.example.com"


def files(namespace: str, *, helm: str) -> dict[str, str]:
    """All files of the workload, by their path below the operator's root.

    Args:
        namespace: the operator's.
        helm: path of the real helm; the file `helm` calls it.
    """
    found = {
        "gate.sh": _GATE,
        "helm": _HELM.format(helm=helm),
        "modules/values.yaml": "".join(f"{name}Enabled: true\n" for name in _ENABLED),
        "global-hooks/openapi/config-values.yaml": _GLOBAL_SCHEMA,
        "global-hooks/hooks/start.sh": _hook(
            "global/start", {"onStartup": 1}, _patch("VALUES", "/global/started", "true")
        ),
        "global-hooks/hooks/enable.sh": _hook(
            "global/enable", {"beforeAll": 1, "afterAll": 1},
            f'if [ "$binding" = beforeAll ]; then {_patch("VALUES", "/dynamicEnabled", "true")}; fi',
        ),
    }  # fmt: skip
    for name, directory in _DIRECTORIES.items():
        module = {**_chart(name, _MORE.get(name, "")), **_schemas(), **_extra(name, namespace)}
        if name not in RELEASES:
            module = {**_schemas(), **_extra(name, namespace)}
        found |= {f"modules/{directory}/{path}": text for path, text in module.items()}
    return {path: text.replace("NAMESPACE", namespace) for path, text in found.items()}


def _chart(name: str, more: str) -> dict[str, str]:
    data = (
        f'text: "{{{{ .Values.{name}.text }}}} {{{{ .Values.{name}.size }}}} {{{{ .Values.global.text }}}}"\n'
        f"internal: {{{{ .Values.{name}.internal | toJson | quote }}}}"
    )
    return config_map_chart(name, data, more=more)


def _schemas() -> dict[str, str]:
    return {"openapi/config-values.yaml": _CONFIG_SCHEMA, "openapi/values.yaml": _VALUES_SCHEMA}


def _hook(name: str, config: Mapping[str, object], body: str) -> str:
    """A hook in bash; `$binding` says why it runs."""
    return f"""#!/bin/bash
set -e
if [ "$1" = --config ]; then
  . "$OUT/gate.sh" "hook {name} --config"
  echo '{json.dumps({"configVersion": "v1", **config})}'
  exit
fi
context=$(<"$BINDING_CONTEXT_PATH")
[[ $context =~ \\"binding\\":\\ ?\\"([^\\"]*)\\" ]]
binding=${{BASH_REMATCH[1]}}
. "$OUT/gate.sh" "hook {name} $binding"
{body}
"""


def _patch(to: str, path: str, value: str) -> str:
    """Bash that asks for one value to be added; `value` is JSON in which bash expands variables."""
    text = f'[{{"op": "add", "path": "{path}", "value": {value}}}]'.replace('"', '\\"')
    return f'echo "{text}" >"${to}_JSON_PATCH_PATH"'


def _write(name: str, *, operation: str = "CreateOrUpdate") -> str:
    """Bash that asks for a ConfigMap to be written."""
    document = {
        "operation": operation,
        "object": {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "NAMESPACE"},
            "data": {"by": "hook"},
        },
    }
    return f"echo '{json.dumps(document)}' >\"$KUBERNETES_PATCH_PATH\""


def _extra(name: str, namespace: str) -> dict[str, str]:
    """What a module has besides its chart and its schemas."""
    match name:
        case "kinds":
            return {
                "crds/things.yaml": json.dumps(_definition(namespace)),
                "hooks/note.sh": _hook("kinds/note", {"afterHelm": 1}, _write("kinds-noted")),
            }
        case "discover":
            double = 'size=$(jq .discover.size "$VALUES_PATH")\n' + _patch(
                "VALUES", "/discover/internal/double", "$((2 * size))"
            )
            return {
                "hooks/start.sh": _hook(
                    "discover/start", {"onStartup": 1}, _patch("VALUES", "/discover/internal/started", "true")
                ),
                "hooks/size.sh": _hook("discover/size", {"beforeHelm": 1}, double),
            }
        case "keeper":
            store = _patch("CONFIG_VALUES", "/keeper/stored", '"kept"')
            keep = f'jq -e .keeper.stored "$CONFIG_VALUES_PATH" >/dev/null || {store}'
            return {"hooks/keep.sh": _hook("keeper/keep", {"beforeHelm": 1}, keep)}
        case "watch":
            count = 'count=$(jq ".[0].snapshots.seen | length" "$BINDING_CONTEXT_PATH")\n'
            binding = {
                "name": "seen",
                "kind": "ConfigMap",
                "namespace": {"nameSelector": {"matchNames": [namespace]}},
                "labelSelector": {"matchLabels": {"watched": "yes"}},
                "group": "all",
            }
            body = count + _patch("VALUES", "/watch/internal/count", "$count")
            return {"hooks/count.sh": _hook("watch/count", {"kubernetes": [binding]}, body)}
        case "policy":
            return {"hooks/review.sh": _hook("policy/review", _admission(namespace), _REVIEW)}
        case "scripted":
            every = {"schedule": [{"name": "tick", "crontab": "@every 3s", "queue": "ticks"}]}
            return {
                "enabled": _ENABLED_SCRIPT,
                "hooks/tick.sh": _hook("scripted/tick", every, _write("ticked", operation="CreateIfNotExists")),
            }
        case "leaving":
            return {
                "hooks/come.sh": _hook("leaving/come", {"onStartup": 1}, _KUBECTL_APPLY),
                "hooks/go.sh": _hook("leaving/go", {"beforeDeleteHelm": 1, "afterDeleteHelm": 1}, _KUBECTL_DELETE),
            }
        case _:
            return {}


_REVIEW: Final = 'echo \'{"allowed": true}\' >"$ADMISSION_RESPONSE_PATH"'
_ENABLED_SCRIPT: Final = """#!/bin/bash
. "$OUT/gate.sh" "enabled scripted"
if jq -e '.global.script == "no"' "$VALUES_PATH" >/dev/null; then
  echo false >"$MODULE_ENABLED_RESULT"
else
  echo true >"$MODULE_ENABLED_RESULT"
fi
"""
_KUBECTL_APPLY: Final = """kubectl -n NAMESPACE create configmap leaving-left --dry-run=client -o json |
  kubectl -n NAMESPACE apply -f - >/dev/null"""
_KUBECTL_DELETE: Final = """[ "$binding" = beforeDeleteHelm ] ||
  kubectl -n NAMESPACE delete configmap leaving-left --ignore-not-found >/dev/null"""
_LABELS: Final = "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  labels: {labels}\n"
_HELM_HOOK: Final = """---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {name}
  annotations: {{"helm.sh/hook": "{event}", "helm.sh/hook-delete-policy": "{policy}"}}
data: {{text: "{{{{ .Values.helmhooks.text }}}}"}}
"""
# Behind the ConfigMap that each chart has.
_MORE: Final = {
    "things": """---
apiVersion: NAMESPACE.example.com/v1
kind: Thing
metadata: {name: thing}
spec: {text: "{{ .Values.things.text }}"}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: things}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: things}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: things}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: things}
subjects: [{kind: ServiceAccount, name: things, namespace: NAMESPACE}]
""",
    "keeper": """---
apiVersion: v1
kind: Secret
metadata: {name: keeper}
stringData: {stored: "{{ .Values.keeper.stored }}"}
""",
    "helmhooks": "".join([
        _HELM_HOOK.format(name="installed", event="post-install", policy="before-hook-creation"),
        _HELM_HOOK.format(name="before", event="pre-upgrade", policy="hook-succeeded"),
        _HELM_HOOK.format(name="upgraded", event="post-upgrade", policy="before-hook-creation"),
    ]),
    "discover": _LABELS.format(name="discover-seen", labels='{watched: "yes"}'),
    "checked": _LABELS.format(name="checked-seen", labels='{watched: "yes", checked: "yes"}'),
}  # fmt: skip


def _admission(namespace: str) -> dict[str, object]:
    rule = {
        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE", "UPDATE"],
        "scope": "Namespaced",
    }  # fmt: skip
    binding = {
        "name": f"checked.{group(namespace)}",
        "rules": [rule],
        "labelSelector": {"matchLabels": {"checked": "yes"}},
        "namespace": {"labelSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}},
    }
    return {"kubernetesValidating": [binding]}


def _definition(namespace: str) -> JsonObject:
    schema: JsonObject = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version: JsonObject = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"things.{group(namespace)}"},
        "spec": {
            "group": group(namespace),
            "names": {"kind": "Thing", "plural": "things", "singular": "thing"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }
