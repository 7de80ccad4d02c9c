"""The charts of the samples and of generated modules, rendered by the real helm."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from addon_operator.documents import yamldoc
from addon_operator.documents.jsondoc import JsonObject, lookup
from tests.component.samples.conftest import MODULES
from tests.fakes.modules import helm_starts, write_counting_helm, write_modules

CHARTS = sorted(path.parent for path in MODULES.glob("*/Chart.yaml"))
VALUES: JsonObject = {
    "global": {
        "highAvailability": True,
        "discovery": {"kubernetesVersion": "v1.36.3", "nodeCount": 2, "defaultDomain": "example.com"},
        "shared": "first",
    },
    "internalCa": {"ca": {"cert": "line 1\nline 2\n", "key": "k"}},
    "ingressGateway": {"internal": {"replicas": 2, "address": "10.96.0.9"}},
}
SERVED = {
    "v1",
    "apps/v1",
    "batch/v1",
    "catalog.platform.example/v1",
    "networking.k8s.io/v1",
    "policy/v1",
    "rbac.authorization.k8s.io/v1",
    "storage.k8s.io/v1",
}


def render(helm: Path, chart: Path, directory: Path, values: JsonObject = VALUES) -> list[JsonObject]:
    file = directory / "values.json"
    file.write_text(json.dumps(values))
    command = [str(helm), "template", "r", str(chart), "--namespace", "ns", "--values", str(file)]
    environment = {"PATH": os.environ["PATH"], "HOME": str(directory)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    documents = yamldoc.load_all(done.stdout, str(chart))
    return [document for document in documents if isinstance(document, dict)]


def as_chart(module: Path, directory: Path) -> Path:
    """Makes a chart of a module that has only templates, as the operator does."""
    if (module / "Chart.yaml").exists():
        return module
    made = shutil.copytree(module, directory / "chart")
    (made / "Chart.yaml").write_text("apiVersion: v2\nname: made\nversion: 0.2.0\n")
    return made


@pytest.mark.parametrize("module", [*CHARTS, MODULES / "010-team-spaces"], ids=lambda path: path.name)
def test_renders_in_the_api_of_today(helm: Path, module: Path, tmp_path: Path) -> None:
    objects = render(helm, as_chart(module, tmp_path), tmp_path)
    assert objects
    assert {str(item["apiVersion"]) for item in objects} <= SERVED
    names = Counter((item["kind"], *_name(item)) for item in objects)
    assert set(names.values()) == {1}
    for item in objects:
        for container in _containers(item):
            _check_container(container)


def _name(item: JsonObject) -> tuple[str, str]:
    metadata = item["metadata"]
    assert isinstance(metadata, dict)
    return str(metadata.get("namespace", "")), str(metadata["name"])


def _containers(item: JsonObject) -> list[JsonObject]:
    if item["kind"] not in {"Deployment", "Job"}:
        return []
    pod = lookup(item, "/spec/template/spec")
    assert isinstance(pod, dict)
    assert lookup(pod, "/securityContext/runAsNonRoot") is True
    containers = pod["containers"]
    assert isinstance(containers, list)
    return [container for container in containers if isinstance(container, dict)]


def _check_container(container: JsonObject) -> None:
    image = str(container["image"])
    assert "/" not in image
    assert ":" in image
    assert not image.endswith(":latest")
    assert lookup(container, "/securityContext/allowPrivilegeEscalation") is False
    assert lookup(container, "/resources/requests/memory")
    assert lookup(container, "/resources/limits/memory")


def test_gateway_follows_its_values(helm: Path, tmp_path: Path) -> None:
    objects = render(helm, MODULES / "030-ingress-gateway", tmp_path)
    by_kind = {str(item["kind"]): item for item in objects}
    assert lookup(by_kind["Deployment"], "/spec/replicas") == 2
    assert lookup(by_kind["ConfigMap"], "/data/address") == "10.96.0.9"
    unknown: JsonObject = {**VALUES, "ingressGateway": {"internal": {"replicas": 1}}}
    before = render(helm, MODULES / "030-ingress-gateway", tmp_path, unknown)
    assert "ConfigMap" not in {item["kind"] for item in before}


def test_certificates_keep_their_lines(helm: Path, tmp_path: Path) -> None:
    objects = render(helm, MODULES / "020-internal-ca", tmp_path)
    (bundle,) = [item for item in objects if item["kind"] == "ConfigMap"]
    assert str(lookup(bundle, "/data/ca.crt")).strip() == "line 1\nline 2"


def test_a_title_cannot_break_the_page(helm: Path, tmp_path: Path) -> None:
    values: JsonObject = {**VALUES, "dashboard": {"title": "<b>&"}}
    objects = render(helm, MODULES / "040-dashboard", tmp_path, values)
    page = next(lookup(item, "/data/index.html") for item in objects if item["kind"] == "ConfigMap")
    assert "<h1>&lt;b&gt;&amp;</h1>" in str(page)


def test_catalog_entries_fit_their_crd(helm: Path, tmp_path: Path) -> None:
    module = MODULES / "020-service-catalog"
    crd = yamldoc.load((module / "crds" / "catalog-entry.yaml").read_text(), "crd").value
    schema = lookup(crd, "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties")
    assert isinstance(schema, dict)
    for item in render(helm, module, tmp_path):
        spec = item["spec"]
        assert isinstance(spec, dict)
        assert (item["kind"], set(spec)) == (lookup(crd, "/spec/names/kind"), set(schema))


def test_generated_modules_render_and_are_counted(helm: Path, tmp_path: Path) -> None:
    generated = write_modules(tmp_path / "set", count=2)
    log = tmp_path / "starts"
    counting = write_counting_helm(tmp_path / "helm", helm=helm, log=log)
    for path in sorted(path for path in generated.directory.iterdir() if path.is_dir()):
        objects = render(counting, path, tmp_path)
        kinds = sorted(str(item["kind"]) for item in objects)
        assert kinds == ["ConfigMap", "Deployment", "Service", "ServiceAccount"]
    assert helm_starts(log) == ("template", "template")
