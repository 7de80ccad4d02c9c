"""The hooks of the samples, each run by itself."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import jq
import jsonpatch
import pytest

from addon_operator.documents.jsondoc import JsonObject, JsonValue, loads
from addon_operator.hooks.call import HookId
from addon_operator.hooks.config.model import Admission, Conversion, HookConfig, Kubernetes, Lifecycle, Schedule
from addon_operator.hooks.config.parser import parse_config
from addon_operator.kube.patch_ops import Create
from addon_operator.metrics.operations import Record
from tests.component.samples.conftest import GLOBAL_HOOKS, MODULES, NAMESPACE, RESULTS, ROOT, HookBench

HOOKS = sorted([*GLOBAL_HOOKS.glob("hooks/*.*"), *MODULES.glob("*/hooks/*.*")])
CATALOG = MODULES / "020-service-catalog" / "hooks"
GIVE_LIMITS = MODULES / "010-team-spaces" / "hooks" / "give-limits.sh"
SCRIPTS = [*HOOKS, MODULES / "040-dashboard" / "enabled"]
MAKE_CA = MODULES / "020-internal-ca" / "hooks" / "make-ca.sh"
DEFAULT: JsonObject = {"storageclass.kubernetes.io/is-default-class": "true"}
OURS: JsonObject = {**DEFAULT, "meta.helm.sh/release-name": "local-storage"}
CA_VALUES: JsonObject = {"global": {}, "internalCa": {"commonName": "our ca", "days": 90}}


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SCRIPTS, ids=_name)
def test_is_executable_and_finds_its_interpreter_on_the_path(path: Path) -> None:
    assert os.access(path, os.X_OK)
    assert path.read_text().startswith("#!/usr/bin/env ")


def configuration(bench: HookBench, path: Path) -> HookConfig:
    scope: Literal["global", "module"] = "global" if path.is_relative_to(GLOBAL_HOOKS) else "module"
    module = None if scope == "global" else path.parents[1].name
    done = bench.run(path, arguments=["--config"])
    assert (done.code, done.stderr) == (0, "")
    assert set(done.files.values()) == {""}
    return parse_config(done.stdout, scope=scope, hook=HookId(module, f"hooks/{path.name}"))


@pytest.mark.parametrize("path", HOOKS, ids=_name)
def test_configuration_is_valid(path: Path, bench: HookBench) -> None:
    assert configuration(bench, path).bindings()


def test_every_kind_of_binding_is_shown(bench: HookBench) -> None:
    configs = [configuration(bench, path) for path in HOOKS]
    bindings = [binding for config in configs for binding in config.bindings()]
    points = {binding.kind for binding in bindings if isinstance(binding, Lifecycle)}
    assert points == {"onStartup", "beforeAll", "afterAll", "beforeHelm", "afterHelm", "afterDeleteHelm"}
    assert {type(binding) for binding in bindings} == {Lifecycle, Kubernetes, Schedule, Admission, Conversion}
    admissions = [binding for binding in bindings if isinstance(binding, Admission)]
    assert {binding.kind for binding in admissions} == {"kubernetesValidating", "kubernetesMutating"}
    assert any(isinstance(binding, Kubernetes) and binding.group for binding in bindings)
    assert any(config.throttle for config in configs)


def test_no_webhook_can_block_the_cluster(bench: HookBench) -> None:
    for binding in (binding for path in HOOKS for binding in configuration(bench, path).admissions):
        assert binding.failure_policy == "Ignore"
        assert {group for rule in binding.rules for group in rule.api_groups} == {"catalog.platform.example"}


class TestCheckTools:
    path = GLOBAL_HOOKS / "hooks" / "010-check-tools.sh"

    def test_all_there(self, bench: HookBench) -> None:
        assert bench.run(self.path).code == 0

    def test_names_what_is_missing(self, bench: HookBench) -> None:
        done = bench.run(self.path, environment={"KUBECTL": "no-such-kubectl"})
        assert done.code == 1
        assert "no-such-kubectl" in done.stderr
        assert "jq" not in done.stderr


def results(**snapshots: list[JsonValue]) -> JsonObject:
    """The snapshots of bindings that keep filter results only."""
    return {name: [{"filterResult": one} for one in found] for name, found in snapshots.items()}


BEFORE_ALL: JsonObject = {"binding": "beforeAll"}
EVENT: JsonObject = {"type": "Event", "watchEvent": "Added"}


def filtered(program: str, document: JsonObject) -> JsonValue:
    found: JsonValue = jq.compile(program).input_value(document).first()
    return found


class TestDiscoverCluster:
    path = GLOBAL_HOOKS / "hooks" / "020-discover-cluster.sh"

    @pytest.mark.parametrize(
        ("addresses", "config", "domain"),
        [
            pytest.param(["10.0.0.7", "10.0.0.8"], {}, "10-0-0-7.sslip.io", id="first node"),
            pytest.param([None, "10.0.0.8"], {}, "10-0-0-8.sslip.io", id="a node that has no address yet"),
            pytest.param(["fd00::1"], {}, "fd00--1.sslip.io", id="IPv6"),
            pytest.param([], {}, "127-0-0-1.sslip.io", id="no nodes"),
            pytest.param(["10.0.0.7"], {"domain": "example.com"}, "example.com", id="people said"),
        ],
    )
    @pytest.mark.parametrize("context", [BEFORE_ALL, EVENT | {"binding": "nodes"}], ids=["beforeAll", "event"])
    def test_discovers(
        self, bench: HookBench, addresses: list[JsonValue], config: JsonObject, domain: str, context: JsonObject
    ) -> None:
        bench.serve({"/version": {"gitVersion": "v1.36.3"}})
        contexts = [context | {"snapshots": results(nodes=addresses)}]
        done = bench.run(self.path, values={"global": config}, contexts=contexts)
        assert done.code == 0, done.stderr
        found = {"kubernetesVersion": "v1.36.3", "nodeCount": len(addresses), "defaultDomain": domain}
        assert done.operations("VALUES_JSON_PATCH_PATH") == [{"op": "add", "path": "/global/discovery", "value": found}]

    def test_fails_without_an_answer(self, bench: HookBench) -> None:
        assert bench.run(self.path, contexts=[BEFORE_ALL | {"snapshots": results(nodes=[])}]).code != 0

    def test_only_the_address_of_a_node_counts(self, bench: HookBench) -> None:
        (binding,) = configuration(bench, self.path).kubernetes
        addresses: list[JsonValue] = [
            {"type": "Hostname", "address": "n"},
            {"type": "InternalIP", "address": "10.0.0.7"},
            {"type": "InternalIP", "address": "fd00::7"},
        ]
        assert filtered(binding.jq_filter, {"status": {"addresses": addresses}}) == "10.0.0.7"
        assert filtered(binding.jq_filter, {}) is None


class TestChooseStorage:
    path = GLOBAL_HOOKS / "hooks" / "030-choose-storage.sh"

    @pytest.mark.parametrize(
        ("annotations", "enabled"),
        [
            pytest.param([], True, id="none"),
            pytest.param([None], True, id="not the default"),
            pytest.param([DEFAULT], False, id="has a default"),
            pytest.param([OURS], True, id="only ours"),
            pytest.param([OURS, DEFAULT], False, id="ours and another"),
        ],
    )
    def test_chooses(self, bench: HookBench, annotations: list[JsonObject | None], enabled: bool) -> None:
        (binding,) = configuration(bench, self.path).kubernetes
        metadata: list[JsonObject] = [{"name": "x"} | ({"annotations": one} if one else {}) for one in annotations]
        classes = [filtered(binding.jq_filter, {"metadata": one}) for one in metadata]
        done = bench.run(self.path, contexts=[BEFORE_ALL | {"snapshots": results(classes=classes)}])
        assert done.code == 0, done.stderr
        assert done.operations("VALUES_JSON_PATCH_PATH") == [
            {"op": "add", "path": "/localStorageEnabled", "value": enabled}
        ]


class TestGiveLimits:
    @pytest.mark.parametrize(
        ("document", "name"),
        [
            pytest.param({"status": {"phase": "Active"}}, ["team-a"], id="active"),
            pytest.param({"status": {"phase": "Terminating"}}, [], id="about to go"),
        ],
    )
    def test_which_spaces_count(self, bench: HookBench, document: JsonObject, name: list[str]) -> None:
        (binding,) = configuration(bench, GIVE_LIMITS).kubernetes
        found = jq.compile(binding.jq_filter).input_value({"metadata": {"name": "team-a"}, **document}).all()
        assert found == name

    @pytest.mark.parametrize(
        "context", [EVENT, {"type": "Synchronization", "objects": []}], ids=["event", "Synchronization"]
    )
    def test_gives_to_all_that_there_are(self, bench: HookBench, context: JsonObject) -> None:
        snapshots = results(spaces=["team-a", None, "team-b"])
        done = bench.run(GIVE_LIMITS, contexts=[context | {"binding": "spaces", "snapshots": snapshots}])
        assert done.code == 0, done.stderr
        targets = [(one.verb, str(one.common.target)) for one in done.objects()]
        assert targets == [
            ("CreateIfNotExists", "team-a/LimitRange/default-limits"),
            ("CreateIfNotExists", "team-b/LimitRange/default-limits"),
        ]

    def test_takes_them_back(self, bench: HookBench) -> None:
        snapshots = results(spaces=["team-a"])
        done = bench.run(GIVE_LIMITS, contexts=[{"binding": "afterDeleteHelm", "snapshots": snapshots}])
        assert [(one.verb, str(one.common.target)) for one in done.objects()] == [
            ("DeleteInBackground", "team-a/LimitRange/default-limits")
        ]


class TestCatalog:
    @pytest.mark.parametrize(
        ("owner", "allowed"),
        [
            pytest.param("platform", True, id="the platform"),
            pytest.param("shop", True, id="a team"),
            pytest.param("sho", False, id="nobody"),
        ],
    )
    def test_owners(self, bench: HookBench, owner: str, allowed: bool) -> None:
        context = review("owners.catalog.platform.example", "Validating", {"spec": {"owner": owner}})
        teams = results(teams=["search", "shop"])
        done = bench.run(CATALOG / "check-owners.sh", contexts=[context | {"snapshots": teams}])
        assert done.code == 0, done.stderr
        answer = done.admission()
        assert (answer.allowed, "team-sho" in answer.message) == (allowed, not allowed)

    def test_a_team_is_called_like_its_namespace(self, bench: HookBench) -> None:
        (binding,) = configuration(bench, CATALOG / "check-owners.sh").kubernetes
        assert filtered(binding.jq_filter, {"metadata": {"name": "team-shop"}}) == "shop"

    @pytest.mark.parametrize("labels", [None, {"a": "b"}], ids=["no labels", "other labels"])
    def test_labels(self, bench: HookBench, labels: JsonObject | None) -> None:
        metadata: JsonObject = {} if labels is None else {"labels": labels}
        entry: JsonObject = {"metadata": metadata, "spec": {"owner": "shop"}}
        context = review("labels.catalog.platform.example", "Mutating", entry)
        done = bench.run(CATALOG / "label-entries.sh", contexts=[context])
        answer = done.admission()
        assert answer.allowed
        assert answer.patch is not None
        patched = jsonpatch.apply_patch(entry, answer.patch)
        assert patched["metadata"]["labels"] == {**(labels or {}), "catalog.platform.example/owner": "shop"}

    @pytest.mark.parametrize(
        ("source", "target", "spec", "expected"),
        [
            pytest.param("v1alpha1", "v1", {"displayName": "T", "owner": "o"}, {"title": "T", "owner": "o"}, id="up"),
            pytest.param("v1", "v1alpha1", {"title": "T", "owner": "o"}, {"displayName": "T", "owner": "o"}, id="down"),
        ],
    )
    def test_versions(self, bench: HookBench, source: str, target: str, spec: JsonObject, expected: JsonObject) -> None:
        group: str = "catalog.platform.example"
        metadata: JsonObject = {"name": "n", "uid": "u"}
        objects: list[JsonValue] = [{"apiVersion": f"{group}/{source}", "metadata": metadata, "spec": spec}]
        request: JsonObject = {"uid": "1", "desiredAPIVersion": f"{group}/{target}", "objects": objects}
        versions: JsonObject = {"fromVersion": source, "toVersion": target}
        context: JsonObject = {"binding": "entries", "type": "Conversion", **versions, "review": {"request": request}}
        done = bench.run(CATALOG / "convert-entries.sh", contexts=[context])
        assert done.code == 0, done.stderr
        (converted,) = done.conversion().objects
        assert converted == {"apiVersion": f"{group}/{target}", "metadata": metadata, "spec": expected}


def review(binding: str, kind: str, document: JsonObject) -> JsonObject:
    """A binding context with an admission review."""
    return {"binding": binding, "type": kind, "review": {"request": {"uid": "1", "object": document}}}


@pytest.mark.parametrize(
    "context",
    [{"binding": "afterHelm", "snapshots": {}}, {"binding": "every minute", "type": "Schedule"}],
    ids=["afterHelm", "schedule"],
)
def test_expiry_of_the_authority(bench: HookBench, context: JsonObject) -> None:
    until = (datetime.now(UTC) + timedelta(days=10)).date().isoformat()
    values: JsonObject = {"global": {}, "internalCa": {"ca": {"until": until}}}
    done = bench.run(MODULES / "020-internal-ca" / "hooks" / "report-expiry.sh", values=values, contexts=[context])
    assert done.code == 0, done.stderr
    (metric,) = done.metrics()
    assert isinstance(metric, Record)
    assert (metric.name, metric.kind) == ("internal_ca_valid_seconds", "gauge")
    assert 9 * 86400 - 60 <= metric.value <= 10 * 86400  # a minute for the run, should it be midnight


def test_report_leaves_a_metric_and_a_log_line(bench: HookBench) -> None:
    done = bench.run(GLOBAL_HOOKS / "hooks" / "900-report.sh", values={"global": {"discovery": {"nodeCount": 3}}})
    assert loads(done.files["METRICS_PATH"]) == {"name": "platform_nodes", "set": 3}
    assert loads(done.stdout) == {"level": "info", "msg": "the platform is up", "nodes": 3}


class TestMakeCa:
    def test_makes_an_authority_that_is_kept(self, bench: HookBench) -> None:
        (operation,) = bench.run(MAKE_CA, values=CA_VALUES).operations("CONFIG_VALUES_JSON_PATCH_PATH")
        assert isinstance(operation, dict)
        made = operation["value"]
        assert isinstance(made, dict)
        assert (operation["op"], operation["path"]) == ("add", "/internalCa/ca")
        (authority,) = ssl.create_default_context(cadata=str(made["cert"])).get_ca_certs()
        assert authority["subject"] == ((("commonName", "our ca"),),)
        assert "PRIVATE KEY" in str(made["key"])
        again = bench.run(MAKE_CA, values=_with_ca(CA_VALUES, made))
        assert (again.code, set(again.files.values())) == (0, {""})

    def test_replaces_one_that_is_soon_over(self, bench: HookBench) -> None:
        section: JsonObject = {"commonName": "our ca", "days": 20}
        (operation,) = bench.run(MAKE_CA, values={"global": {}, "internalCa": section}).operations(
            "CONFIG_VALUES_JSON_PATCH_PATH"
        )
        assert isinstance(operation, dict)
        made = operation["value"]
        assert isinstance(made, dict)
        again = bench.run(MAKE_CA, values=_with_ca(CA_VALUES, made))
        assert len(again.operations("CONFIG_VALUES_JSON_PATCH_PATH")) == 1

    def test_leaves_one_alone_that_was_brought_along(self, bench: HookBench) -> None:
        values = _with_ca(CA_VALUES, {"cert": "theirs", "key": "theirs"})
        for hook in (MAKE_CA, MAKE_CA.with_name("report-expiry.sh")):
            done = bench.run(hook, values=values, contexts=[{"binding": "afterHelm"}])
            assert (done.code, set(done.files.values())) == (0, {""}), done.stderr

    def test_leaves_no_files(self, bench: HookBench, tmp_path: Path) -> None:
        own = tmp_path / "tmp"
        own.mkdir()
        assert bench.run(MAKE_CA, values=CA_VALUES, environment={"TMPDIR": str(own)}).code == 0
        assert list(own.iterdir()) == []


def _with_ca(values: JsonObject, made: JsonObject) -> JsonObject:
    section = values["internalCa"]
    assert isinstance(section, dict)
    return {**values, "internalCa": {**section, "ca": made}}


@pytest.mark.parametrize(
    ("nodes", "available", "most", "expected"),
    [
        pytest.param(3, False, 5, 3, id="one a node"),
        pytest.param(9, False, 5, 5, id="at most"),
        pytest.param(0, False, 5, 1, id="at least one"),
        pytest.param(1, True, 5, 2, id="highly available"),
    ],
)
def test_replicas_follow_nodes(bench: HookBench, nodes: int, available: bool, most: int, expected: int) -> None:
    values: JsonObject = {
        "global": {"highAvailability": available, "discovery": {"nodeCount": nodes}},
        "ingressGateway": {"maxReplicas": most, "internal": {}},
    }
    done = bench.run(MODULES / "030-ingress-gateway" / "hooks" / "choose-replicas.sh", values=values)
    assert done.operations("VALUES_JSON_PATCH_PATH") == [
        {"op": "add", "path": "/ingressGateway/internal/replicas", "value": expected}
    ]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        pytest.param([], [], id="no Service yet"),
        pytest.param(
            [{"spec": {"clusterIP": "10.96.0.9"}}],
            [{"op": "add", "path": "/ingressGateway/internal/address", "value": "10.96.0.9"}],
            id="Service",
        ),
    ],
)
def test_address_of_the_gateway(bench: HookBench, items: list[JsonValue], expected: list[JsonValue]) -> None:
    path = f"/api/v1/namespaces/{NAMESPACE}/services?fieldSelector=metadata.name=ingress-gateway"
    bench.serve({path: {"items": items}})
    done = bench.run(MODULES / "030-ingress-gateway" / "hooks" / "publish-address.sh")
    assert done.code == 0, done.stderr
    assert done.operations("VALUES_JSON_PATCH_PATH") == expected


@pytest.mark.parametrize(
    ("enabled", "result", "reason"),
    [
        pytest.param(["internal-ca", "ingress-gateway"], "true", "the module ingress-gateway is on", id="gateway on"),
        pytest.param(["internal-ca"], "false", "the module ingress-gateway is off", id="gateway off"),
    ],
)
def test_dashboard_depends_on_the_gateway(bench: HookBench, enabled: list[JsonValue], result: str, reason: str) -> None:
    done = bench.run(MODULES / "040-dashboard" / "enabled", values={"global": {"enabledModules": enabled}})
    assert done.code == 0, done.stderr
    assert (done.files["MODULE_ENABLED_RESULT"].strip(), done.files["MODULE_ENABLED_REASON"].strip()) == (
        result,
        reason,
    )


class TestInventory:
    path = MODULES / "900-inventory" / "hooks" / "inventory.py"

    @pytest.mark.parametrize(
        "context",
        [{"binding": "beforeHelm"}, {"binding": "deployments", "type": "Group", "groupName": "workloads"}],
        ids=["beforeHelm", "group"],
    )
    def test_writes(self, bench: HookBench, context: JsonObject) -> None:
        found: JsonObject = {"enabledModules": ["a", "b"], "discovery": {"kubernetesVersion": "v1.36.3"}}
        values: JsonObject = {"global": found, "inventory": {}}
        snapshots = results(deployments=["Deployment d: 1 of 2 ready"]) | {"stateful sets": []}
        done = bench.run(self.path, values=values, contexts=[context | {"snapshots": snapshots}])
        assert done.code == 0, done.stderr
        (operation,) = done.objects()
        assert isinstance(operation, Create)
        assert operation.verb == "CreateOrUpdate"
        assert operation.object == {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "platform-inventory", "namespace": NAMESPACE},
            "data": {"kubernetesVersion": "v1.36.3", "modules": "a\nb", "workloads": "Deployment d: 1 of 2 ready"},
        }

    def test_removes(self, bench: HookBench) -> None:
        done = bench.run(self.path, contexts=[{"binding": "afterDeleteHelm", "snapshots": {}}])
        (operation,) = done.objects()
        assert (operation.verb, str(operation.common.target)) == (
            "Delete",
            f"{NAMESPACE}/ConfigMap/platform-inventory",
        )

    def test_what_is_said_of_a_workload(self, bench: HookBench) -> None:
        bindings = configuration(bench, self.path).kubernetes
        document: JsonObject = {"kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": 2}, "status": {}}
        assert filtered(bindings[0].jq_filter, document) == "Deployment d: 0 of 2 ready"
        assert {binding.group for binding in bindings} == {"workloads"}
        assert {binding.namespaces for binding in bindings} == {(NAMESPACE,)}


@pytest.mark.parametrize("path", SCRIPTS, ids=_name)
def test_uses_only_files_that_the_operator_gives(path: Path) -> None:
    known = {*RESULTS, "VALUES_PATH", "CONFIG_VALUES_PATH", "BINDING_CONTEXT_PATH", "HELM_BIN_PATH"}
    assert set(re.findall(r"\b[A-Z_]+_PATH\b", path.read_text())) <= known


def test_shellcheck() -> None:
    shellcheck = Path(sys.executable).parent / "shellcheck"
    scripts = [path for path in SCRIPTS if path.suffix != ".py"]
    done = subprocess.run([shellcheck, *scripts], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
