"""Charts as they are published, and as small as they come, as modules of an operator (contract 2.11, 2.12, 3.8)."""

from __future__ import annotations

import io
import json
import random
import tarfile
from pathlib import Path
from typing import Any

from addon_operator.devcluster import DevCluster
from addon_operator.documents.jsondoc import JsonObject
from tests.cluster.operator import Operator, config_map, config_map_chart, eventually, operator

CHART = """apiVersion: v2
name: published
version: 4.5.6
appVersion: "2.0"
kubeVersion: ">=1.30.0-0 <1.99.0-0"
dependencies:
- {name: alpha, version: 1.0.0, repository: "https://charts.example.com"}
- {name: beta, version: 1.0.0, repository: "https://charts.example.com", condition: beta.enabled}
"""

SUBCHART = "apiVersion: v2\nname: %s\nversion: 1.0.0\n"

FACTS = """apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "published.name" . }}
data:
  chart: {{ .Chart.Name }}-{{ .Chart.Version }}
  module: {{ .Values.published.size | quote }}
  own: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
  kubernetes: {{ .Capabilities.KubeVersion.Version }}
  known: {{ .Capabilities.APIVersions.Has "apps/v1/Deployment" | quote }}
  custom: {{ .Capabilities.APIVersions.Has "GROUP/v1/Widget" | quote }}
  unknown: {{ .Capabilities.APIVersions.Has "extensions/v1beta1" | quote }}
"""

JOB = """apiVersion: batch/v1
kind: Job
metadata:
  name: migrate
  annotations:
    helm.sh/hook: pre-install,post-upgrade
    helm.sh/hook-delete-policy: before-hook-creation
    step: STEP
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: migrate, image: "migrate:1"}]
"""

HELM_TEST = """apiVersion: v1
kind: Pod
metadata: {name: connects, annotations: {helm.sh/hook: test}}
spec: {restartPolicy: Never, containers: [{name: test, image: "test:1"}]}
"""


def crd(group: str, kind: str) -> str:
    names = {"kind": kind, "plural": f"{kind.lower()}s", "singular": kind.lower()}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return json.dumps(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{kind.lower()}s.{group}"},
            "spec": {
                "group": group,
                "names": names,
                "scope": "Namespaced",
                "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
            },
        }
    )


def template(name: str, text: str) -> str:
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{text: {text}}}\n"


def write_archive(path: Path, files: dict[str, str]) -> None:
    """Writes a packaged chart."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))


def published(made: Operator, group: str) -> None:
    """A module with everything that published charts bring along."""
    made.files({"modules/values.yaml": "publishedEnabled: true\npublished: {size: 3}\n"})
    made.module(
        "published",
        {
            "Chart.yaml": CHART,
            "values.yaml": 'image: {tag: ""}\nalpha: {text: from-parent}\nbeta: {enabled: true}\n',
            "README.md": "# published\n",
            ".helmignore": "*.bak\n",
            "templates/_helpers.tpl": '{{- define "published.name" -}}{{ .Release.Name }}-facts{{- end -}}\n',
            "templates/NOTES.txt": "Installed {{ .Release.Name }}.\n",
            "templates/facts.yaml": FACTS.replace("GROUP", group),
            "templates/facts.yaml.bak": "{{ fail }}\n",
            "templates/job.yaml": JOB.replace("STEP", "first"),
            "templates/widget.yaml": f"apiVersion: {group}/v1\nkind: Widget\nmetadata: {{name: one}}\n",
            "templates/tests/connects.yaml": HELM_TEST,
            "crds/widget.yaml": crd(group, "Widget"),
            "crds/doc-widget.yaml": crd(group, "Described"),
            "crds/_draft.yaml": crd(group, "Draft"),
            "charts/alpha/Chart.yaml": SUBCHART % "alpha",
            "charts/alpha/values.yaml": "text: from-alpha\n",
            "charts/alpha/templates/alpha.yaml": template("alpha", "{{ .Values.text }}"),
            "charts/alpha/crds/gadget.yaml": crd(group, "Gadget"),
        },
    )
    write_archive(
        made.root / "modules/published/charts/beta-1.0.0.tgz",
        {
            "beta/Chart.yaml": SUBCHART % "beta",
            "beta/values.yaml": "text: from-beta\n",
            "beta/templates/beta.yaml": template("beta", "{{ .Values.text }}"),
            "beta/crds/gizmo.yaml": crd(group, "Gizmo"),
        },
    )


def labels(made: Operator, kind: str, name: str) -> JsonObject:
    """The labels of an object."""
    document = json.loads(made.kubectl("get", kind, name, "-o", "json"))
    return dict(document["metadata"].get("labels") or {})


def job(made: Operator) -> tuple[str, int]:
    """Which step the chart's Job made last, and whether it has succeeded."""
    document: Any = made.objects.get("job", "migrate")
    return document["metadata"]["annotations"]["step"], document.get("status", {}).get("succeeded", 0)


def test_a_published_chart_is_a_module_unchanged(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as made:
        group = f"{made.namespace}.example.com"
        published(made, group)
        made.start_ready()
        assert made.deployed("published-facts") == {
            "chart": "published-4.5.6",
            "module": "3",
            "own": "2.0",
            "kubernetes": cluster.version,
            "known": "true",
            "custom": "true",
            "unknown": "false",
        }
        assert made.deployed("alpha") == {"text": "from-parent"}
        assert made.deployed("beta") == {"text": "from-beta"}
        assert job(made) == ("first", 1)
        assert made.kubectl("get", f"widgets.{group}", "-o", "name").split() == [f"widget.{group}/one"]
        assert made.kubectl("get", "pods", "-o", "name", "--field-selector", "metadata.name=connects") == ""
        served = made.kubectl("get", "crds", "-o", "name").split()
        assert {name.partition("/")[2] for name in served if name.endswith(group)} == {
            f"widgets.{group}", f"gadgets.{group}", f"gizmos.{group}",
        }  # fmt: skip
        for kind, name in (("configmap", "published-facts"), ("configmap", "beta"), (f"widgets.{group}", "one")):
            assert labels(made, kind, name)["heritage"] == "addon-operator", name
        assert labels(made, "crd", f"gizmos.{group}")["heritage"] == "addon-operator"
        assert made.modules()["published"]["revision"] == 1

        assert made.stop() == 0
        before = made.helm_processes()
        made.start_ready()
        assert made.helm_processes() == before
        assert made.revisions("published") == {1: "deployed"}

        # Only a Helm hook changes, which is no part of the manifest.
        made.module("published", {"templates/job.yaml": JOB.replace("STEP", "second")})
        made.configure({"global": "tick: 1\n"})
        eventually(lambda: made.revisions("published") == {1: "superseded", 2: "deployed"})
        made.wait_idle()
        assert job(made) == ("second", 1)

        # A CRD that changes is applied by the next converge; a chart that goes away takes its objects along.
        made.module(
            "published", {"crds/widget.yaml": crd(group, "Widget").replace('"served"', '"deprecated":true,"served"')}
        )
        made.configure({"global": "tick: 2\n"})
        eventually(
            lambda: '"deprecated":true' in made.kubectl("get", "crd", f"widgets.{group}", "-o", "json").replace(" ", "")
        )

        # One that somebody deletes comes back, and with it the objects of its kind.
        made.wait_idle()
        uid = made.kubectl("get", f"widgets.{group}", "one", "-o", "jsonpath={.metadata.uid}")
        made.kubectl("delete", "crd", f"widgets.{group}", f"gizmos.{group}", "--wait=false")
        eventually(lambda: made.kubectl("get", f"widgets.{group}", "one", "-o", "jsonpath={.metadata.uid}") != uid)
        eventually(lambda: made.kubectl("get", "crd", f"gizmos.{group}", "-o", "name"))
        made.wait_idle()
        assert made.modules()["published"]["state"] == "ready"
        made.configure({"publishedEnabled": "false"})
        eventually(lambda: made.revisions("published") == {})
        assert made.kubectl("get", "configmaps", "-l", "heritage=addon-operator", "-o", "name") == ""
        assert made.kubectl("get", "crd", f"widgets.{group}", "-o", "name") != ""


def test_modules_without_a_chart(cluster: DevCluster, tmp_path: Path) -> None:
    hook = '#!/bin/bash\n[ "$1" = --config ] && echo \'{"configVersion":"v1","%s":1}\' || echo %s >>$OUT/runs\n'
    with operator(cluster, tmp_path, {"ADDON_OPERATOR_CRD_EXTRA_LABELS": "team=a"}) as made:
        made.files(
            {"modules/values.yaml": "plainEnabled: true\nplain: {a: b}\nhooksOnlyEnabled: true\nemptyEnabled: true\n"}
        )
        made.module(
            "010-plain",
            {
                "templates/config.yaml": template("plain", "{{ .Values.plain.a }}"),
                "docs/manual.yaml": "{{ not a template",
                "hooks/after.sh": hook % ("afterHelm", "after"),
                "crds/thing.yaml": crd(f"{made.namespace}.example.com", "Thing"),
            },
        )
        made.module(
            "020-hooks-only", {"hooks/a.sh": hook % ("beforeHelm", "a"), "hooks/b.sh": hook % ("afterHelm", "b")}
        )
        made.module("030-empty", {"README.md": "nothing\n"})
        made.start_ready()
        assert made.deployed("plain") == {"text": "b"}
        assert labels(made, "configmap", "plain") == {"app.kubernetes.io/managed-by": "Helm", "team": "a"}
        assert labels(made, "crd", f"things.{made.namespace}.example.com")["team"] == "a"
        assert "heritage" not in labels(made, "crd", f"things.{made.namespace}.example.com")
        assert made.lines("runs") == ["after", "a", "b"]
        modules = made.modules()
        assert [module["state"] for module in modules.values()] == ["ready", "ready", "ready"]
        assert [module["release"] for module in modules.values()] == ["plain", None, None]
        assert made.helm_processes() == 2
        made.configure({"hooksOnlyEnabled": "false", "emptyEnabled": "false"})
        eventually(lambda: [module["state"] for module in made.modules().values()] == ["ready", "disabled", "disabled"])
        assert made.helm_processes() == 2


def test_a_chart_that_looks_things_up(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as made:
        made.files({"modules/values.yaml": "seekerEnabled: true\nseeker: {}\n"})
        look = '{{ (lookup "v1" "ConfigMap" .Release.Namespace "sought").data | toJson | quote }}'
        made.module("seeker", config_map_chart("seeker", f"found: {look}"))
        made.create(config_map("sought", data={"a": "1"}))
        made.start_ready()
        assert made.deployed("seeker") == {"found": '{"a":"1"}'}

        made.configure({"seeker": "tick: 1\n"})
        eventually(lambda: '"tick":1' in str(made.cli("module", "values", "seeker", "-o", "json").stdout))
        made.wait_idle()
        assert made.revisions("seeker") == {1: "deployed"}
        made.objects.patch("configmap", "sought", {"data": {"a": "2"}})
        made.configure({"seeker": "tick: 2\n"})
        eventually(lambda: made.deployed("seeker") == {"found": '{"a":"2"}'})
        made.wait_idle()
        assert made.revisions("seeker") == {1: "superseded", 2: "deployed"}


def test_charts_that_cannot_be_deployed(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as made:
        names = ("newer", "large", "one", "same", "other", "stray", "torn")
        flags = "".join(f"{name}Enabled: true\n" for name in names)
        made.files({"modules/values.yaml": f"{flags}large: {{size: small}}\n"})
        group = f"{made.namespace}.example.com"
        thing = crd(group, "Thing")
        made.module("one", {"crds/thing.yaml": thing})
        made.module("same", {"crds/equal.yaml": f"---\n{thing}\n"})
        made.module("other", {"crds/thing.yaml": thing.replace('"served"', '"deprecated":true,"served"')})
        made.module("stray", {"crds/map.yaml": template("stray", "a")})
        made.module("torn", {"crds/torn.yaml": "kind: [\n"})
        chart = config_map_chart("newer", "a: b")
        made.module("newer", {**chart, "Chart.yaml": f'{chart["Chart.yaml"]}kubeVersion: ">=1.99.0-0"\n'})
        noise = random.Random(1).randbytes(900_000).hex()
        large = config_map_chart("small", "a: b", more='---\n{{ .Files.Get "files/data.yaml" }}')
        parts = [template(f"noise-{part}", noise[part * 300_000 :][: 300_000 + part]) for part in range(5)]
        made.module("large", {**large, "files/data.yaml": "---\n".join(parts)})
        made.start()

        def errors() -> dict[str, str]:
            modules = made.modules()
            assert all(modules[name]["state"] == "ready" for name in ("one", "same"))
            found = {name: str(module["lastError"] or "") for name, module in modules.items()}
            return found if all(found[name] for name in ("newer", "large", "other", "stray", "torn")) else {}

        told = eventually(errors)
        assert "module newer" in told["newer"]
        assert ">=1.99.0-0" in told["newer"]
        assert cluster.version in told["newer"]
        assert "module large" in told["large"]
        assert "1 MiB" in told["large"] or "1048576" in told["large"]
        assert "ConfigMap/noise-4" in told["large"]

        assert "stray/crds/map.yaml: ConfigMap of v1 is not a CustomResourceDefinition" in told["stray"]
        assert "torn/crds/torn.yaml" in told["torn"]
        assert f"other/crds/thing.yaml: CustomResourceDefinition things.{group}: one/crds/thing.yaml" in told["other"]

        for path in ("stray/crds/map.yaml", "torn/crds/torn.yaml", "other/crds/thing.yaml"):
            (tmp_path / "modules" / path).write_text("")
        made.module("newer", chart)
        made.module("large", {"files/data.yaml": parts[0]})
        made.wait_ready()
        assert made.revisions("newer") == {1: "deployed"}
        assert list(made.revisions("large").values()) == ["deployed"]
