"""Hooks that the API server asks: admission and conversion, from their declaration to their end.

Source: contract.md 2.2, 2.3, 2.14. Registration and certificates one by one: test_webhooks_registration.py.
"""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

from addon_operator.devcluster import DevCluster
from addon_operator.documents.jsondoc import JsonObject, JsonValue, lookup
from tests.cluster.operator import (
    Operator,
    bindings,
    config_map,
    eventually,
    hold,
    noting_hook,
    operator,
)

GATE = """if [ "$type" = Validating ]; then
  case $(jq -r '.[0].review.request.name' "$BINDING_CONTEXT_PATH") in
    bad) echo '{"allowed": false, "message": "not this one"}';;
    broken) echo "no opinion" >&2; exit 3;;
    *) echo '{"allowed": true, "warnings": ["mind the gap"]}';;
  esac >"$VALIDATING_RESPONSE_PATH"
fi
"""
DRESS = """patch=$(echo '[{"op": "add", "path": "/data/dressed", "value": "yes"}]' | base64 -w 0)
echo "{\\"allowed\\": true, \\"patch\\": \\"$patch\\"}" >"$ADMISSION_RESPONSE_PATH"
"""
TURN = """jq -c '.[0] as $c | {convertedObjects: [$c.review.request.objects[]
  | .apiVersion = $c.review.request.desiredAPIVersion | .way = (.way // []) + [$c.fromVersion + $c.toVersion]]}' \\
  "$BINDING_CONTEXT_PATH" >"$CONVERSION_RESPONSE_PATH"
"""


NOBODY_CONVERTS: JsonObject = {
    "spec": {
        "conversion": {
            "strategy": "Webhook",
            "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/nobody"}},
        }
    }
}


def gadgets(group: str) -> JsonObject:
    schema: JsonObject = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions: list[JsonValue] = [
        {"name": name, "served": True, "storage": name == "v1", "schema": schema} for name in ("v1", "v2", "v3")
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gadgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "gadgets", "kind": "Gadget"},
            "versions": versions,
        },
    }


def asks(made: Operator, kind: str, name: str, **fields: JsonValue) -> str:
    """A binding that concerns ConfigMaps with a label `app` that are created in the operator's namespace."""
    rule: JsonObject = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
    binding: JsonValue = {
        "name": name,
        "rules": [rule],
        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
        "namespace": {"labelSelector": {"matchLabels": {"kubernetes.io/metadata.name": made.namespace}}},
        **fields,
    }
    return f"{kind}: {json.dumps([binding])}"


def creating(made: Operator, name: str, *options: str, app: str = "x") -> subprocess.CompletedProcess[str]:
    """Somebody tries to create a ConfigMap."""
    return subprocess.run(
        ["kubectl", "-n", made.namespace, "create", "-f", "-", *options],
        input=json.dumps(config_map(name, labels={"app": app}, data={"a": "b"})),
        env=made.environment,
        capture_output=True,
        text=True,
        check=False,
    )


def registered(made: Operator) -> set[str]:
    """The kinds of webhook configurations that the operator has in the cluster."""
    kinds = "validatingwebhookconfigurations,mutatingwebhookconfigurations"
    found = json.loads(made.cluster.kubectl("get", kinds, "-o", "json"))["items"]
    return {item["kind"][:10] for item in found if item["metadata"]["name"] == f"{made.namespace}-hooks"}


def test_the_api_server_asks_hooks(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as made:
        group = f"{made.namespace}.example.com"
        for purpose in ("VALIDATING", "CONVERSION"):
            made.environment[f"{purpose}_WEBHOOK_LISTEN_ADDRESS"] = "127.0.0.1"
        maps = bindings(kubernetes=[made.watching("maps", "x")])
        gate = asks(made, "kubernetesValidating", "gate.example.com", includeSnapshotsFrom=["maps"])
        steps: list[JsonValue] = [{"fromVersion": f"v{n}", "toVersion": f"v{n + 1}"} for n in (1, 2)]
        turn = bindings(kubernetesCustomResourceConversion=[{"crdName": f"gadgets.{group}", "conversions": steps}])
        look = bindings(kubernetes=[{"name": "gadgets", "kind": "Gadget", "apiVersion": f"{group}/v3"}])
        block = 'if [ "$type" = Event ]; then ' + hold("block") + "; fi"
        made.files(
            {
                "modules/values.yaml": "appEnabled: true\n",
                "global-hooks/block.sh": noting_hook("block", bindings(kubernetes=[made.watching("b", "b")]), block),
                "global-hooks/gate.sh": noting_hook("gate", f"{maps}\n{gate}", GATE),
                "global-hooks/look.sh": noting_hook("look", look),
                "global-hooks/turn.sh": noting_hook("turn", turn, TURN),
            }
        )
        dress = asks(made, "kubernetesMutating", "dress.example.com")
        made.module("app", {"hooks/dress.sh": noting_hook("dress", dress, DRESS)})
        made.create(gadgets(group))
        path = f"/apis/{group}/{{}}/namespaces/{made.namespace}/gadgets"
        one = json.dumps({"apiVersion": f"{group}/v1", "kind": "Gadget", "metadata": {"name": "one"}})
        eventually(lambda: cluster.kubectl("create", "--raw", path.format("v1"), "-f", "-", stdin=one))
        # A process that was killed has left its conversion behind: nobody can list the objects in another version.
        made.kubectl("patch", "crd", f"gadgets.{group}", "--type=merge", "-p", json.dumps(NOBODY_CONVERTS))
        made.start_ready()
        assert made.told("look") == ["gadgets Synchronization one"]
        eventually(lambda: registered(made) == {"Validating", "MutatingWe"})

        # The API server takes a moment to hear of both.
        def heard_of() -> bool:
            tried = creating(made, "tried", "--dry-run=server", "-o", "json")
            return "mind the gap" in tried.stderr and "dressed" in tried.stdout

        eventually(heard_of)
        # The main queue has no part in it.
        creating(made, "block", app="b")
        eventually((tmp_path / "at-block").exists)
        allowed = creating(made, "good")
        assert (allowed.returncode, "Warning: mind the gap" in allowed.stderr) == (0, True), allowed.stderr
        assert made.deployed("good") == {"a": "b", "dressed": "yes"}
        denied = creating(made, "bad")
        assert 'admission webhook "gate.example.com" denied the request: not this one' in denied.stderr
        failed = creating(made, "broken")
        assert "denied the request: Hook failed: global hook gate.sh: run ended with exit code 3 (see" in failed.stderr
        assert "no opinion" not in failed.stderr
        assert made.in_log("no opinion")
        assert made.queues()["main"][0] == "GlobalHookRun:main:kubernetes:block.sh:b:Kubernetes"
        made.touch("go-block")
        eventually(lambda: "maps Added good" in made.told("gate"))

        creating(made, "last")
        *_, last = (context for context in made.contexts("gate") if context["type"] == "Validating")
        assert {*last} == {"binding", "type", "review", "snapshots"}
        assert (last["binding"], lookup(last, "/review/request/operation")) == ("gate.example.com", "CREATE")
        assert lookup(last, "/review/request/object/data") == {"a": "b", "dressed": "yes"}
        assert lookup(last, "/snapshots/maps/0/object/metadata/name") == "good"
        (dressed, *_) = made.contexts("dress")
        assert (dressed["binding"], dressed["type"]) == ("dress.example.com", "Mutating")

        turned = json.loads(cluster.kubectl("get", "--raw", path.format("v3") + "/one"))
        assert (turned["apiVersion"], turned["way"]) == (f"{group}/v3", ["v1v2", "v2v3"])
        # Whoever else watches the objects has them converted, too.
        assert {
            (
                context["type"],
                context["fromVersion"],
                context["toVersion"],
                lookup(context, "/review/request/desiredAPIVersion"),
            )
            for context in made.contexts("turn")
        } >= {("Conversion", "v1", "v2", f"{group}/v2"), ("Conversion", "v2", "v3", f"{group}/v3")}

        # A module that is switched off leaves nothing behind that could be in somebody's way.
        made.configure({"appEnabled": "false"})
        eventually(lambda: registered(made) == {"Validating"})
        assert creating(made, "plain").returncode == 0
        assert made.deployed("plain") == {"a": "b"}

        # An operator that was killed is missed, and the next one clears away what nobody serves.
        made.stop(signal.SIGKILL)
        assert 'failed calling webhook "gate.example.com"' in creating(made, "lost").stderr
        for hook in ("gate", "look", "turn"):
            (tmp_path / f"global-hooks/{hook}.sh").unlink()
        made.start_ready()
        assert registered(made) == set()
        eventually(lambda: creating(made, "found").returncode == 0)

        def converted() -> str:
            return cluster.kubectl("get", "crd", f"gadgets.{group}", "-o", "jsonpath={.spec.conversion.strategy}")

        eventually(lambda: converted() == "None")
        made.kubectl("delete", "crd", "--wait=false", f"gadgets.{group}")
