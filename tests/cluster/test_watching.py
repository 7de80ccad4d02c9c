"""What hooks with `kubernetes` bindings are told, and when, seen from outside.

Source: contract.md 2.2, 2.3, 3.1, 3.3, 5.4. Rules of selectors, one by one: test_monitor.py.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import yaml

from addon_operator.devcluster import DevCluster
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from tests.cluster.operator import (
    Operator,
    bindings,
    config_map,
    eventually,
    hold,
    noting_hook,
    object_name,
    operator,
)

GO_HOOK = """package main

import "os"

const config = `{"configVersion": "v1", "kubernetes": [@BINDING@]}`

func main() {
	if len(os.Args) > 1 && os.Args[1] == "--config" {
		os.Stdout.WriteString(config)
		return
	}
	context, err := os.ReadFile(os.Getenv("BINDING_CONTEXT_PATH"))
	if err != nil {
		panic(err)
	}
	seen, err := os.OpenFile(os.Getenv("OUT")+"/compiled", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	seen.Write(append(context, '\\n'))
}
"""
C_HOOK = """#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "--config") == 0) {
    puts("{\\"configVersion\\": \\"v1\\", \\"kubernetes\\": [@BINDING@]}");
    return 0;
  }
  char path[4096];
  snprintf(path, sizeof path, "%s/compiled", getenv("OUT"));
  FILE *context = fopen(getenv("BINDING_CONTEXT_PATH"), "r"), *seen = fopen(path, "a");
  if (!context || !seen) return 1;
  for (int letter; (letter = fgetc(context)) != EOF;) fputc(letter, seen);
  fputc('\\n', seen);
  return fclose(seen) != 0;
}
"""


def compiled_hook(directory: Path, binding: JsonObject) -> None:
    """Builds a hook that is a program; it appends its contexts to `$OUT/compiled`."""
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(binding)
    # Go takes seconds for it, but is there wherever the control plane was built.
    if compiler := shutil.which("cc"):
        source, command = directory / "lib/main.c", [compiler, "-o"]
        program = C_HOOK.replace("@BINDING@", text.replace('"', '\\"'))
    else:
        source, command = directory / "lib/main.go", ["go", "build", "-o"]
        program = GO_HOOK.replace("@BINDING@", text)
    source.parent.mkdir()
    source.write_text(program)
    subprocess.run([*command, directory / "compiled", source], check=True, cwd=source.parent)


def names(items: JsonValue) -> list[str]:
    """The names of the objects in a list of items; their filter results where there are no objects."""
    assert isinstance(items, list)
    return [object_name(item) for item in items]


def snapshot(context: JsonObject, binding: str) -> JsonValue:
    snapshots = context["snapshots"]
    assert isinstance(snapshots, dict)
    return snapshots[binding]


def data_of(context: JsonObject) -> JsonValue:
    document = context["object"]
    assert isinstance(document, dict)
    return document["data"]


def current(made: Operator, name: str) -> JsonObject:
    document = made.objects.get("configmap", name)
    assert document is not None
    return document


def test_what_hooks_are_told(cluster: DevCluster, tmp_path: Path) -> None:
    """Each row of 2.3 that begins with an object, in one life of two, then three ConfigMaps."""
    with operator(cluster, tmp_path) as made:
        watching = made.watching
        data = watching("data", "x", jqFilter=".data", includeSnapshotsFrom=["data", "slim"])
        slim: JsonObject = {"keepFullObjectsInMemory": False, "jqFilter": ".metadata.name, .data.a"}
        group = [watching("one", "x", group="g", jqFilter="empty"), watching("two", "none", group="g")]
        yearly: JsonObject = {"crontab": "0 0 1 1 *", "group": "g"}
        selector: JsonObject = {"matchLabels": {"app": "x"}}
        old: JsonObject = {
            "kind": "configmap", "selector": selector, "namespaceSelector": {"matchNames": [made.namespace]},
            "event": ["add", "update", "delete"],
        }  # fmt: skip
        late = watching("late", "x", queue="late", includeSnapshotsFrom=["late"])
        hang = f'if [ "$type" = Event ]; then {hold("late")}; fi'
        hooks = {
            "plain": noting_hook("plain", bindings(kubernetes=[watching("plain", "x"), watching("empty", "none")])),
            "full": noting_hook("full", bindings(
                beforeAll=1, kubernetes=[data, watching("slim", "x", executeHookOnEvent=[], **slim)]
            )),
            "slim": noting_hook("slim", bindings(
                kubernetes=[watching("slim", "x", executeHookOnEvent=["Added"], **slim)]
            )),
            "group": noting_hook("group", bindings(kubernetes=[*group], schedule=[yearly])),
            "old": noting_hook("old", bindings(onKubernetesEvent=[old]), version=""),
            "late": noting_hook("late", bindings(kubernetes=[late]), hang),
        }  # fmt: skip
        made.files({f"global-hooks/{name}": text for name, text in hooks.items()})
        compiled_hook(tmp_path / "global-hooks/built", watching("compiled", "x"))
        made.create(
            config_map("b", labels={"app": "x"}, data={"a": "1"}), config_map("a", labels={"app": "x"}, data={"a": "1"})
        )
        a, b = current(made, "a"), current(made, "b")
        made.start_ready()

        def told_at_the_start() -> None:
            item_a, item_b = ({"object": one, "filterResult": {"a": "1"}} for one in (a, b))
            slim_items = [{"filterResult": ["a", "1"]}, {"filterResult": ["b", "1"]}]
            snapshots = {"data": [item_a, item_b], "slim": slim_items}
            assert made.contexts("plain") == [
                {"binding": "plain", "type": "Synchronization", "objects": [{"object": a}, {"object": b}]},
                {"binding": "empty", "type": "Synchronization", "objects": []},
            ]
            assert made.contexts("full") == [
                {"binding": "data", "type": "Synchronization", "objects": [item_a, item_b], "snapshots": snapshots},
                {"binding": "slim", "type": "Synchronization", "objects": slim_items},
                {"binding": "beforeAll", "snapshots": snapshots},
            ]
            in_group = {"one": [{"object": a, "filterResult": None}, {"object": b, "filterResult": None}], "two": []}
            # Both bindings of the group have their Synchronization in one run, which is told once.
            (once,) = made.contexts("group")
            assert once == {"binding": once["binding"], "type": "Group", "groupName": "g", "snapshots": in_group}
            assert made.told("old") == []

        told_at_the_start()
        begun = len(made.contexts("full"))
        labels = {"app": "x"}
        made.create(config_map("c", labels=labels, data={"a": "1"}))
        eventually((made.root / "at-late").exists)
        made.replace(
            config_map("c", labels=labels, data={"a": "2"}),
            config_map("b", labels={**labels, "note": "new"}, data={"a": "1"}),  # `.data` stays the same
            config_map("a", data={"a": "left"}),
            config_map("a", labels=labels, data={"a": "back"}),
        )
        made.delete("c")
        lives = ["Added c", "Modified c", "Modified b", "Deleted a", "Added a", "Deleted c"]
        eventually(lambda: len(made.told("plain")) == 2 + len(lives), what="plain")
        made.touch("go-late")
        made.wait_idle()

        assert made.told("plain")[2:] == [f"plain {event}" for event in lives]
        without_note = [event for event in lives if event != "Modified b"]
        events = made.contexts("full")[begun:]
        assert made.told("full")[begun:] == [f"data {event}" for event in without_note]
        assert [data_of(event) for event in events] == [event["filterResult"] for event in events]
        # What has left was last seen before it left; what was deleted, as it was at its end.
        assert [event["filterResult"] for event in events] == [{"a": value} for value in ["1", "2", "1", "back", "2"]]
        assert {tuple(event) for event in events} == {
            ("binding", "type", "watchEvent", "object", "filterResult", "snapshots")
        }
        assert {str(event["type"]) for event in events} == {"Event"}

        # Nothing told the hook of the note, but it is there.
        final = snapshot(events[-1], "data")
        assert final == [
            {"object": one, "filterResult": one["data"]} for one in (current(made, "a"), current(made, "b"))
        ]
        assert snapshot(events[-1], "slim") == [{"filterResult": ["a", "back"]}, {"filterResult": ["b", "1"]}]

        # An Event has its object also where snapshots have none.
        added = made.contexts("slim")[1:]
        assert made.told("slim")[1:] == ["slim Added c", "slim Added a"]
        assert [event["filterResult"] for event in added] == [["c", "1"], ["a", "back"]]

        # The hook ran late: the objects of its events are old, its snapshots new, and the same for all of a run.
        _, first, second = made.runs_of("late")
        assert made.told("late")[1:] == [f"late {event}" for event in lives]
        assert names(snapshot(first[0], "late")) == ["a", "b", "c"]
        assert [names(snapshot(context, "late")) for context in second] == [["a", "b"]] * (len(lives) - 1)
        assert [data_of(context) for context in second] == [{"a": value} for value in ["2", "1", "1", "back", "2"]]

        in_group = made.contexts("group")
        assert {str(context["type"]) for context in in_group} == {"Group"}
        assert names(snapshot(in_group[-1], "one")) == ["a", "b"]

        place = {"resourceNamespace": made.namespace, "resourceKind": "ConfigMap"}
        words = {"Added": "add", "Modified": "update", "Deleted": "delete"}
        assert made.runs_of("old") == [
            [{"binding": "onKubernetesEvent", "resourceEvent": words[event], "resourceName": name, **place}]
            for event, name in (event.split() for event in lives)
        ]

        compiled = [context for line in made.lines("compiled") for context in json.loads(line)]
        assert [context.get("watchEvent", "") for context in compiled] == ["", *(event.split()[0] for event in lives)]


def restricted_user(made: Operator) -> None:
    """Makes the operator somebody who may do all in its namespace, but only read this and that elsewhere."""
    readable = ["configmaps", "namespaces", "customresourcedefinitions", "apiservices", "widgets"]
    role: JsonObject = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": made.namespace},
        "rules": [{"apiGroups": ["*"], "resources": [*readable], "verbs": ["get", "list", "watch"]}],
    }
    account = f"--serviceaccount={made.namespace}:default"
    made.create(role)
    made.kubectl("create", "clusterrolebinding", made.namespace, f"--clusterrole={made.namespace}", account)
    made.kubectl("create", "rolebinding", "own", "--clusterrole=cluster-admin", account)
    config = yaml.safe_load(made.cluster.kubeconfig.read_text())
    token = made.kubectl("create", "token", "default").strip()
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    made.files({"kubeconfig": yaml.safe_dump(config)})
    made.environment |= {"KUBE_CONFIG": str(made.root / "kubeconfig"), "KUBECONFIG": str(made.root / "kubeconfig")}


def widgets(group: str) -> JsonObject:
    schema: JsonObject = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def test_a_binding_that_cannot_watch_holds_nobody_up(cluster: DevCluster, tmp_path: Path) -> None:
    """A kind that is not there, a missing permission, a filter that fails: told, waited for, and caught up on."""
    with operator(cluster, tmp_path) as made:
        restricted_user(made)
        group = f"{made.namespace}.example.com"
        widget: JsonObject = {"kind": "widget", "apiVersion": f"{group}/v1"}
        secret: JsonObject = {
            "name": "keys",
            "kind": "secret",
            "namespace": {"nameSelector": {"matchNames": ["default"]}},
        }

        def hook(name: str, binding: JsonObject) -> str:
            return noting_hook(name, bindings(kubernetes=[binding]))

        number = ".data.a | tonumber"
        made.files(
            {
                "modules/values.yaml": "appEnabled: true\n",
                "global-hooks/widgets.sh": hook("widgets", {"name": "widgets", **widget}),
                "global-hooks/keys.sh": hook("keys", secret),
                "global-hooks/picky.sh": hook("picky", made.watching("picky", "later", jqFilter=number)),
                "global-hooks/strict.sh": hook("strict", made.watching("strict", "bad", jqFilter=number)),
                "global-hooks/well.sh": hook("well", made.watching("well", "bad")),
            }
        )
        made.module("app", {
            "hooks/life.sh": noting_hook("app", "beforeHelm: 1"),
            "hooks/widgets.sh": hook("app-widgets", {"name": "widgets", **widget}),
        })  # fmt: skip
        bad = config_map("bad", labels={"app": "bad"}, data={"a": "sw0rdfish"})
        made.create(bad)
        made.start_ready()
        assert sorted(made.runs()) == ["app beforeHelm", "picky picky", "well well"]
        shown = made.cli("queue", "list").stdout
        unserved = f"the API server does not serve the kind widget of {group}/v1; waiting for it"
        forbidden = 'missing permission: verb watch on resource secrets of API group "" in namespace default'
        troubles = [
            ("global hook widgets.sh, binding widgets, kubernetes[0]", unserved),
            ("hook hooks/widgets.sh of module app, binding widgets, kubernetes[0]", unserved),
            ("global hook keys.sh, binding keys, kubernetes[0]", forbidden),
            ("global hook strict.sh, binding strict, kubernetes[0]", f"jqFilter fails on {made.namespace}/bad: "),
        ]
        for where, reason in troubles:
            assert f"{where}: {reason}" in shown
        assert made.metric('binding_monitor_missing_total{binding="widgets"}') == 2

        # The longer it is refused, the more rarely it asks.
        role = made.namespace
        rules: JsonValue = [{"op": "add", "path": "/rules/0/resources/-", "value": "secrets"}]
        made.objects.patch("clusterrole", role, rules)
        made.create(widgets(group))
        eventually(lambda: made.told("widgets") + made.told("app-widgets") == ["widgets Synchronization"] * 2)
        one: JsonObject = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "one"}}
        path = f"/apis/{group}/v1/namespaces/{made.namespace}/widgets"
        eventually(lambda: cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(one)))
        whole = ["widgets Synchronization", "widgets Added one"]
        eventually(lambda: made.told("widgets") == made.told("app-widgets") == whole)

        made.replace({**bad, "data": {"a": "7"}})
        eventually(lambda: made.told("strict") == ["strict Synchronization bad"])
        made.create(config_map("worse", labels={"app": "later"}, data={"a": "sw0rdfish"}))
        made.delete("worse")
        eventually(lambda: made.told("picky")[1:] == ["picky Added worse", "picky Deleted worse"])
        assert [context["filterResult"] for context in made.contexts("picky")[1:]] == [None, None]
        assert made.metric('kube_jq_filter_errors_total{binding="picky",hook="picky.sh",module=""}') == 1
        (line,) = [line for line in made.text().splitlines() if "jqFilter failed" in line and "picky" in line]
        assert "hook=picky.sh binding=picky field=kubernetes[0]" in line
        told = eventually(lambda: made.kubectl("get", "events", "--field-selector=reason=JqFilterFailed"))
        assert "global hook picky.sh, binding picky, kubernetes[0].jqFilter: " in told
        assert "sw0rdfish" not in made.text() + told

        eventually(lambda: made.told("keys"))
        assert made.told("keys")[0].startswith("keys Synchronization")
        eventually(lambda: made.cli("queue", "list").stdout.startswith("Summary"))
        made.kubectl("delete", "crd", "--wait=false", f"widgets.{group}")
        made.kubectl("delete", "clusterrole,clusterrolebinding", role)
