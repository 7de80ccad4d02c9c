"""The hooks of the samples, each run by itself."""

from __future__ import annotations

import os
import re
import ssl
from pathlib import Path
from typing import Literal

import pytest

from addon_operator.hooks.bindings import parse_config
from addon_operator.hooks.call import HookId
from addon_operator.jsondoc import JsonObject, JsonValue, loads
from tests.component.samples.conftest import GLOBAL_HOOKS, MODULES, NAMESPACE, RESULTS, ROOT, HookBench

HOOKS = sorted([*GLOBAL_HOOKS.glob("hooks/*.*"), *MODULES.glob("*/hooks/*.*")])
SCRIPTS = [*HOOKS, MODULES / "040-dashboard" / "enabled"]
MAKE_CA = MODULES / "020-internal-ca" / "hooks" / "make-ca.sh"
NODES = "/api/v1/nodes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
DEFAULT: JsonObject = {"storageclass.kubernetes.io/is-default-class": "true"}
OURS: JsonObject = {**DEFAULT, "meta.helm.sh/release-name": "local-storage"}
CA_VALUES: JsonObject = {"global": {}, "internalCa": {"commonName": "our ca", "days": 90}}


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SCRIPTS, ids=_name)
def test_is_executable_and_finds_its_interpreter_on_the_path(path: Path) -> None:
    assert os.access(path, os.X_OK)
    assert path.read_text().startswith("#!/usr/bin/env ")


@pytest.mark.parametrize("path", HOOKS, ids=_name)
def test_configuration_is_valid_and_served(path: Path, bench: HookBench) -> None:
    scope: Literal["global", "module"] = "global" if path.is_relative_to(GLOBAL_HOOKS) else "module"
    module = None if scope == "global" else path.parents[1].name
    done = bench.run(path, arguments=["--config"])
    assert (done.code, done.stderr) == (0, "")
    assert set(done.files.values()) == {""}
    config = parse_config(done.stdout, scope=scope, hook=HookId(module, f"hooks/{path.name}"))
    assert config.unserved() == ()


def test_every_lifecycle_binding_is_shown(bench: HookBench) -> None:
    shown = "".join(bench.run(path, arguments=["--config"]).stdout for path in HOOKS)
    for binding in ("onStartup", "beforeAll", "afterAll", "beforeHelm", "afterHelm", "afterDeleteHelm"):
        assert binding in shown


class TestCheckTools:
    path = GLOBAL_HOOKS / "hooks" / "010-check-tools.sh"

    def test_all_there(self, bench: HookBench) -> None:
        assert bench.run(self.path).code == 0

    def test_names_what_is_missing(self, bench: HookBench) -> None:
        done = bench.run(self.path, environment={"KUBECTL": "no-such-kubectl"})
        assert done.code == 1
        assert "no-such-kubectl" in done.stderr
        assert "jq" not in done.stderr


class TestDiscoverCluster:
    path = GLOBAL_HOOKS / "hooks" / "020-discover-cluster.sh"

    @pytest.mark.parametrize(
        ("addresses", "config", "domain"),
        [
            pytest.param(["10.0.0.7", "10.0.0.8"], {}, "10-0-0-7.sslip.io", id="first node"),
            pytest.param(["fd00::1"], {}, "fd00--1.sslip.io", id="IPv6"),
            pytest.param([], {}, "127-0-0-1.sslip.io", id="no nodes"),
            pytest.param(["10.0.0.7"], {"domain": "example.com"}, "example.com", id="people said"),
        ],
    )
    def test_discovers(self, bench: HookBench, addresses: list[str], config: JsonObject, domain: str) -> None:
        nodes: list[JsonValue] = [
            {"status": {"addresses": [_address("Hostname", "n"), _address("InternalIP", a)]}} for a in addresses
        ]
        bench.serve({"/version": {"gitVersion": "v1.36.3"}, NODES: {"items": nodes}})
        done = bench.run(self.path, values={"global": config})
        assert done.code == 0, done.stderr
        found = {"kubernetesVersion": "v1.36.3", "nodeCount": len(addresses), "defaultDomain": domain}
        assert done.operations("VALUES_JSON_PATCH_PATH") == [{"op": "add", "path": "/global/discovery", "value": found}]

    def test_fails_without_an_answer(self, bench: HookBench) -> None:
        assert bench.run(self.path).code != 0


def _address(kind: str, address: str) -> JsonObject:
    return {"type": kind, "address": address}


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
        items: list[JsonValue] = [
            {"metadata": {"name": "x"} if one is None else {"name": "x", "annotations": one}} for one in annotations
        ]
        bench.serve({CLASSES: {"items": items}})
        done = bench.run(self.path)
        assert done.code == 0, done.stderr
        assert done.operations("VALUES_JSON_PATCH_PATH") == [
            {"op": "add", "path": "/localStorageEnabled", "value": enabled}
        ]


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

    def test_writes(self, bench: HookBench) -> None:
        enabled: list[JsonValue] = ["a", "b"]
        values: JsonObject = {"global": {"enabledModules": enabled, "discovery": {"kubernetesVersion": "v1.36.3"}}}
        done = bench.run(self.path, values=values, contexts=[{"binding": "beforeHelm", "snapshots": {}}])
        operation = loads(done.files["KUBERNETES_PATCH_PATH"])
        assert isinstance(operation, dict)
        assert operation["operation"] == "CreateOrUpdate"
        assert operation["object"] == {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "platform-inventory", "namespace": NAMESPACE},
            "data": {"kubernetesVersion": "v1.36.3", "modules": "a\nb"},
        }

    def test_removes(self, bench: HookBench) -> None:
        done = bench.run(self.path, contexts=[{"binding": "afterDeleteHelm", "snapshots": {}}])
        operation = loads(done.files["KUBERNETES_PATCH_PATH"])
        assert isinstance(operation, dict)
        assert (operation["operation"], operation["name"], operation["namespace"]) == (
            "Delete",
            "platform-inventory",
            NAMESPACE,
        )


@pytest.mark.parametrize("path", SCRIPTS, ids=_name)
def test_uses_only_files_that_the_operator_gives(path: Path) -> None:
    known = {*RESULTS, "VALUES_PATH", "CONFIG_VALUES_PATH", "BINDING_CONTEXT_PATH", "HELM_BIN_PATH"}
    assert set(re.findall(r"\b[A-Z_]+_PATH\b", path.read_text())) <= known
