"""Releases: real helm against a real API server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import random
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Protocol, cast

import pytest

from addon_operator.devcluster import DevCluster
from addon_operator.documents import jsondoc, yamldoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue, lookup
from addon_operator.errors import HelmError, KubeError
from addon_operator.helm.binary import find_helm
from addon_operator.helm.chart import ChartReader
from addon_operator.helm.client import ChartRequest, HelmClient
from addon_operator.helm.cluster import Cluster
from addon_operator.helm.deploy import Deployed, Deployer
from addon_operator.helm.healing import Healing
from addon_operator.helm.release import FINGERPRINT_LABEL, OBJECTS_ANNOTATION, RENDERED_LABEL
from addon_operator.helm.storage import ReleaseStorage
from addon_operator.kube.client import KubeClient
from addon_operator.kube.refs import CONFIG_MAPS, SECRETS, ObjectKey
from addon_operator.process.private_directory import PrivateDirectory
from tests.cluster.test_devcluster import is_gone
from tests.connection import transport

CONFIG_MAP = """
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}
data:
  text: {{ .Values.demo.text | quote }}
"""
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: {{ .Release.Name }}, labels: {a: b}}
spec: {selector: {a: b}, ports: [{port: 80}]}
"""
# A Job that is suspended never ends, so helm waits for it until it is stopped.
WAITING_HOOK = """
{{- if .Values.demo.wait }}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .Release.Name }}-wait
  annotations: {"helm.sh/hook": "%s"}
spec:
  suspend: true
  template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}
{{- end }}
"""


class Operator:
    """Everything that a running operator has for its releases; a new one is an operator that was restarted."""

    def __init__(
        self, kube: KubeClient, cluster: Cluster, client: HelmClient, namespace: str, operations: list[str]
    ) -> None:
        self.kube, self.cluster, self.client, self.namespace = kube, cluster, client, namespace
        self.operations = operations
        self.losses: list[tuple[str, tuple[ObjectKey, ...]]] = []
        self.lost = asyncio.Event()
        self.storage = ReleaseStorage(kube, namespace)
        self.healing = Healing(kube, namespace, cluster=cluster, events=self)
        self.deployer = self.make_deployer()

    def make_deployer(self, *, stop_grace_s: float = 30) -> Deployer:
        return Deployer(
            client=self.client,
            storage=self.storage,
            healing=self.healing,
            cluster=self.cluster,
            charts=ChartReader(),
            stop_grace_s=stop_grace_s,
        )

    async def deploy(self, module: Path, **values: JsonValue) -> Deployed:
        deployed = await self.deployer.deploy(request(module, **values))
        await self.deployer.outcomes.wait_all()
        return deployed

    async def get(self, path: str) -> JsonObject:
        document = jsondoc.loads(await self.kube.api.request("GET", path))
        assert isinstance(document, dict)
        return document

    async def secret(self, revision: int, name: str = "demo") -> JsonObject:
        return await self.get(SECRETS.path(self.namespace, f"sh.helm.release.v1.{name}.v{revision}"))

    async def text(self, name: str = "demo") -> str:
        return str(lookup(await self.get(CONFIG_MAPS.path(self.namespace, name)), "/data/text"))

    async def config_maps(self) -> set[str]:
        found = await self.get(CONFIG_MAPS.path(self.namespace))
        return {str(lookup(item, "/metadata/name")) for item in cast("list[JsonObject]", found["items"])}

    async def add_unreadable_release(self, name: str) -> None:
        """Makes one that carries the operator's mark, deployed as its labels say."""
        labels: JsonObject = {"owner": "helm", "name": name, "status": "deployed", "version": "1"}
        labels[FINGERPRINT_LABEL] = "x"
        body: JsonObject = {
            "metadata": {"name": f"sh.helm.release.v1.{name}.v1", "labels": labels},
            "type": "helm.sh/release.v1",
            "stringData": {"release": "nothing that helm wrote"},
        }
        await self.kube.api.request("POST", SECRETS.path(self.namespace), body=jsondoc.dumps(body))
        await self.eventually(lambda: self.storage.facts(name).exists)

    async def delete(self, name: str = "demo") -> None:
        await self.kube.api.request("DELETE", CONFIG_MAPS.path(self.namespace, name))

    async def eventually(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await asyncio.sleep(0.01)

    async def appears(self, path: str) -> None:
        while True:
            try:
                await self.get(path)
            except KubeError as error:
                if error.status != 404:
                    raise
            else:
                return
            await asyncio.sleep(0.01)

    def objects_absent(self, release: str, objects: tuple[ObjectKey, ...], /) -> None:
        self.losses.append((release, objects))
        self.lost.set()

    def definition_gone(self, name: str, *, unexpected: bool) -> None:
        """Nobody acts on it here."""


class Start(Protocol):
    """Starts an operator; `tmp_dir` and labels can be chosen."""

    def __call__(self) -> contextlib.AbstractAsyncContextManager[Operator]: ...


@pytest.fixture
def namespace(cluster: DevCluster) -> str:
    return cluster.namespace("helm")


@pytest.fixture
def start(cluster: DevCluster, namespace: str, tmp_path: Path) -> Start:
    return lambda: running(cluster.kubeconfig, namespace, tmp_path / "tmp")


@pytest.fixture
async def operator(start: Start) -> AsyncIterator[Operator]:
    async with start() as made:
        yield made


@pytest.fixture
def helm(cluster: DevCluster, namespace: str) -> Callable[..., str]:
    """Somebody else's helm."""

    def run(*words: str) -> str:
        argv = [cluster.environment()["HELM_BIN_PATH"], *words, "--namespace", namespace]
        environment = {**os.environ, **cluster.environment()}
        return subprocess.run(argv, env=environment, check=True, capture_output=True, text=True).stdout

    return run


@pytest.fixture
def interrupted(cluster: DevCluster, namespace: str) -> Callable[..., None]:
    """Somebody else's helm that is killed while it waits for its `WAITING_HOOK`: after it has changed all objects."""

    def run(*words: str) -> None:
        argv = [cluster.environment()["HELM_BIN_PATH"], *words, "--namespace", namespace]
        with subprocess.Popen(argv, env={**os.environ, **cluster.environment()}, stdout=subprocess.DEVNULL) as process:
            while not cluster.kubectl("-n", namespace, "get", "jobs", "-o", "name"):
                assert process.poll() is None
                time.sleep(0.02)
            process.kill()

    return run


@contextlib.asynccontextmanager
async def running(kubeconfig: Path, namespace: str, tmp_dir: Path) -> AsyncIterator[Operator]:
    tmp_dir.mkdir(exist_ok=True)
    operations: list[str] = []
    async with transport(kubeconfig) as api:
        kube = KubeClient(api)
        client = HelmClient(
            kube=api.credentials,
            binary=await find_helm(None, os.environ, cache_dir=tmp_dir),
            namespace=namespace,
            tmp_dir=PrivateDirectory(tmp_dir).below("helm"),
            cache_dir=PrivateDirectory(tmp_dir).below("cache"),
            environment=os.environ,
            timeout_s=60,
            history_max=10,
            extra_labels=[("heritage", "addon-operator")],
            on_operation=lambda _module, operation, _duration_s: operations.append(operation),
        )
        made = Operator(kube, await Cluster.ask(kube), client, namespace, operations)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(made.storage.run()), group.create_task(made.healing.run())]
            await made.storage.wait_synced(30)
            yield made
            await made.deployer.outcomes.wait_all()
            for task in tasks:
                task.cancel()


def request(module: Path, **values: JsonValue) -> ChartRequest:
    section: JsonObject = {"text": "a", **values}
    return ChartRequest("demo", module, {"global": {"used": "no"}, "demo": section})


@pytest.fixture
def module(tmp_path: Path) -> Path:
    return make_chart(tmp_path / "010-demo", configmap=CONFIG_MAP, service=SERVICE)


def make_chart(directory: Path, **templates: str) -> Path:
    (directory / "templates").mkdir(parents=True)
    (directory / "Chart.yaml").write_text("apiVersion: v2\nname: some-chart\nversion: 0.1.0\n")
    for name, text in templates.items():
        (directory / "templates" / f"{name}.yaml").write_text(text)
    return directory


def label(document: JsonObject, name: str) -> JsonValue:
    labels = lookup(document, "/metadata/labels")
    assert isinstance(labels, dict)
    return labels.get(name)


async def test_installs_once_and_then_leaves_it_alone(operator: Operator, module: Path) -> None:
    first = await operator.deploy(module)
    second = await operator.deploy(module)
    assert (first.action.kind, first.revision) == ("install", 1)
    assert (second.action.kind, second.revision) == ("skip", 1)
    assert operator.operations == ["upgrade"]


async def test_labels_every_object_and_the_release(operator: Operator, module: Path) -> None:
    await operator.deploy(module)
    for kind in ("configmaps", "services"):
        found = await operator.get(f"/api/v1/namespaces/{operator.namespace}/{kind}/demo")
        assert label(found, "heritage") == "addon-operator"
    secret = await operator.secret(1)
    assert label(secret, FINGERPRINT_LABEL) == operator.storage.facts("demo").fingerprint
    assert len(str(label(secret, "moduleChecksum"))) == 32
    note = str(lookup(secret, "/metadata/annotations/addon-operator~1objects"))
    assert jsondoc.loads(note) == {"v1 Service": ["demo"], "v1 ConfigMap": ["demo"]}


async def test_a_restart_starts_no_helm(start: Start, module: Path) -> None:
    async with start() as before:
        await before.deploy(module)
    async with start() as after:
        assert (await after.deploy(module)).action.kind == "skip"
        assert after.operations == []


async def test_files_of_a_run_are_private_and_go_away(operator: Operator, module: Path, tmp_path: Path) -> None:
    await operator.deploy(module)
    runs = tmp_path / "tmp" / "helm"
    assert list(runs.iterdir()) == []
    assert runs.stat().st_mode & 0o077 == 0


async def test_a_changed_value_makes_one_revision_in_one_run(operator: Operator, module: Path) -> None:
    await operator.deploy(module)
    changed = await operator.deploy(module, text="b")
    assert (changed.action.kind, changed.revision) == ("upgrade", 2)
    assert operator.operations == ["upgrade", "upgrade"]
    assert await operator.text() == "b"


async def test_a_value_that_changes_after_a_restart_makes_one_revision(start: Start, module: Path) -> None:
    async with start() as before:
        await before.deploy(module)
    async with start() as after:
        assert (await after.deploy(module, text="b")).revision == 2
        assert await after.text() == "b"


@pytest.mark.parametrize(
    "name", [pytest.param("other", id="not in a template"), pytest.param("labels", id="a word of a template")]
)
async def test_a_value_that_changes_nothing_moves_the_label(operator: Operator, module: Path, name: str) -> None:
    await operator.deploy(module)
    before = operator.storage.facts("demo").fingerprint
    moved = await operator.deploy(module, **{name: "x"})
    again = await operator.deploy(module, **{name: "x"})
    assert (moved.action.kind, moved.revision, again.action.kind) == ("move-label", 1, "skip")
    assert len(operator.operations) == 2
    assert label(await operator.secret(1), FINGERPRINT_LABEL) == operator.storage.facts("demo").fingerprint != before


async def test_a_change_in_a_hook_only_is_a_change(operator: Operator, module: Path) -> None:
    hook = module / "templates" / "hook.yaml"
    head = "kind: ConfigMap\napiVersion: v1\nmetadata: {name: hook, annotations: {helm.sh/hook: post-upgrade}}\n"
    text = head + "data: {a: %s}\n"
    hook.write_text(text % "one")
    await operator.deploy(module)
    hook.write_text(text % "two")
    assert (await operator.deploy(module)).revision == 2
    found = await operator.get(CONFIG_MAPS.path(operator.namespace, "hook"))
    assert lookup(found, "/data/a") == "two"


async def test_a_chart_that_reads_the_cluster_is_rendered_each_time(operator: Operator, tmp_path: Path) -> None:
    reader = '{{ (lookup "v1" "ConfigMap" .Release.Namespace "source").data | toJson | quote }}'
    module = make_chart(tmp_path / "demo", a=CONFIG_MAP.replace("{{ .Values.demo.text | quote }}", reader))
    path = CONFIG_MAPS.path(operator.namespace)
    body: JsonObject = {"metadata": {"name": "source"}, "data": {"a": "1"}}
    await operator.kube.api.request("POST", path, body=jsondoc.dumps(body))
    await operator.deploy(module)
    assert (await operator.deploy(module)).action.kind == "skip"
    body["data"] = {"a": "2"}
    await operator.kube.api.request("PUT", f"{path}/source", body=jsondoc.dumps(body))
    changed = await operator.deploy(module)
    assert (changed.action.kind, changed.revision) == ("upgrade", 2)
    assert await operator.text() == '{"a":"2"}'


async def test_a_chart_that_draws_is_never_trusted(operator: Operator, tmp_path: Path) -> None:
    draw = "{{ if .Values.demo.draw }}{{ randAlphaNum 9 }}{{ end }}"
    module = make_chart(tmp_path / "demo", a=CONFIG_MAP.replace("{{ .Values.demo.text | quote }}", f'"{draw}"'))
    await operator.deploy(module)
    assert (await operator.deploy(module)).action.kind == "skip"
    await operator.deploy(module, draw=True)
    drawn = await operator.deploy(module, draw=True)
    assert (drawn.action.kind, drawn.revision) == ("upgrade", 3)
    assert "randAlphaNum" in drawn.action.reason


async def test_capabilities_are_those_of_the_cluster(operator: Operator, module: Path) -> None:
    """`batch/v1beta1` is on helm's own list of APIs, the cluster does not serve it."""
    (module / "Chart.yaml").write_text("apiVersion: v2\nname: a\nversion: 0.1.0\nkubeVersion: '>=1.30.0-0'\n")
    question = '{{ .Capabilities.APIVersions.Has "batch/v1beta1" }} {{ .Capabilities.KubeVersion.Version }}'
    (module / "templates" / "configmap.yaml").write_text(
        CONFIG_MAP.replace("{{ .Values.demo.text | quote }}", question)
    )
    (module / "templates" / "hook.yaml").write_text(
        "kind: ConfigMap\napiVersion: v1\nmetadata: {name: hook, annotations: {helm.sh/hook: post-upgrade}}\n"
    )
    await operator.deploy(module)
    assert await operator.text() == f"false {operator.cluster.version}"
    moved = await operator.deploy(module, other="x")
    assert (moved.action.kind, operator.operations) == ("move-label", ["upgrade", "template"])


async def test_templates_without_a_chart(operator: Operator, module: Path) -> None:
    (module / "Chart.yaml").unlink()
    (module / "values.yaml").write_text("demo: {text: from the file}\n")
    (module / "hooks").mkdir()
    (module / "hooks" / "a.sh").write_text("echo")
    await operator.deployer.deploy(ChartRequest("demo", module, {"global": {}, "demo": {}}))
    assert await operator.text() == "from the file"


async def test_a_chart_with_hooks_only(operator: Operator, tmp_path: Path) -> None:
    hook = CONFIG_MAP.replace("  name:", '  annotations: {"helm.sh/hook": pre-install}\n  name:')
    module = make_chart(tmp_path / "demo", hook=hook)
    assert (await operator.deploy(module)).action.kind == "install"
    assert (await operator.deploy(module)).action.kind == "skip"
    assert await operator.text() == "a"


async def test_objects_that_exist_already_are_taken_over(operator: Operator, module: Path) -> None:
    body: JsonObject = {"metadata": {"name": "demo"}, "data": {"text": "mine"}}
    await operator.kube.api.request("POST", CONFIG_MAPS.path(operator.namespace), body=jsondoc.dumps(body))
    await operator.deploy(module)
    assert await operator.text() == "a"


async def test_a_chart_that_does_not_render_is_named_and_changes_nothing(operator: Operator, module: Path) -> None:
    await operator.deploy(module)
    (module / "templates" / "bad.yaml").write_text('{{ fail "no such thing" }}')
    for _ in range(2):
        with pytest.raises(HelmError, match=r"module demo: helm (upgrade|template): .*no such thing"):
            await operator.deploy(module, text="b")
    assert operator.storage.facts("demo").revision == 1
    assert await operator.text() == "a"


async def test_an_object_that_is_refused_fails_and_is_repaired(operator: Operator, module: Path) -> None:
    service = module / "templates" / "service.yaml"
    service.write_text(SERVICE.replace("port: 80", "port: 70000"))
    with pytest.raises(HelmError, match="module demo: helm upgrade: "):
        await operator.deploy(module)
    await operator.eventually(lambda: operator.storage.facts("demo").status == "failed")
    service.write_text(SERVICE)
    repaired = await operator.deploy(module)
    assert (repaired.action.kind, repaired.revision, repaired.action.reason) == ("upgrade", 2, "revision 1 is failed")
    assert (await operator.deploy(module)).action.kind == "skip"


async def test_a_release_that_is_too_large_names_module_and_objects(operator: Operator, module: Path) -> None:
    noise = base64.b64encode(random.Random(1).randbytes(600_000)).decode()
    for name in ("big", "bigger"):
        size = 700_000 if name == "bigger" else 500_000
        text = CONFIG_MAP.replace("{{ .Release.Name }}", name).replace("{{ .Values.demo.text | quote }}", noise[:size])
        (module / "templates" / f"{name}.yaml").write_text(text)
    with pytest.raises(
        HelmError, match=r"module demo: .* too large .*limit is 1048576.*ConfigMap/bigger .*ConfigMap/big "
    ):
        await operator.deploy(module)
    assert not operator.storage.facts("demo").exists


async def test_removes_a_release(operator: Operator, module: Path) -> None:
    await operator.deploy(module)
    removed = await operator.deployer.uninstall("demo", "disabled")
    again = await operator.deployer.uninstall("demo", "disabled")
    assert (removed.action.kind, again.action.kind) == ("uninstall", "skip")
    assert operator.storage.releases() == ()
    found = await operator.get(CONFIG_MAPS.path(operator.namespace))
    assert "demo" not in {lookup(one, "/metadata/name") for one in found["items"]}  # type: ignore[union-attr]
    assert operator.losses == []


async def test_one_of_somebody_else_is_adopted(operator: Operator, module: Path, helm: Callable[..., str]) -> None:
    helm("install", "demo", str(module), "--set", "demo.text=foreign")
    await operator.eventually(lambda: operator.storage.facts("demo").status == "deployed")
    assert not operator.storage.facts("demo").owned
    adopted = await operator.deploy(module)
    assert (adopted.action.kind, adopted.revision) == ("upgrade", 2)
    assert await operator.text() == "a"
    assert operator.storage.facts("demo").owned


@pytest.mark.parametrize(
    "words", [("upgrade", "--set", "demo.text=foreign"), ("rollback",)], ids=["upgrade", "rollback"]
)
async def test_what_somebody_did_to_our_release_is_put_right(
    operator: Operator, module: Path, helm: Callable[..., str], words: tuple[str, ...]
) -> None:
    """Helm carries our labels over to the revision that somebody else makes."""
    await operator.deploy(module, text="old")
    await operator.deploy(module)
    helm(words[0], "demo", *([str(module)] if words[0] == "upgrade" else ["1"]), *words[1:])
    await operator.eventually(lambda: operator.storage.facts("demo").deployed_revision == 3)
    assert await operator.text() != "a"
    assert (await operator.deploy(module)).revision == 4
    assert await operator.text() == "a"


async def test_one_that_was_uninstalled_with_history_is_installed(
    operator: Operator, module: Path, helm: Callable[..., str]
) -> None:
    await operator.deploy(module)
    helm("uninstall", "demo", "--keep-history")
    await operator.eventually(lambda: operator.storage.facts("demo").status == "uninstalled")
    installed = await operator.deploy(module)
    assert (installed.action.kind, installed.revision) == ("install", 2)
    assert await operator.text() == "a"


CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], storageClassName: none, resources: {requests: {storage: 1Mi}}}
"""
LISTED = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: shared}}
{{- if .Values.own }}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: {{ .Release.Name }}-own}}
{{- end }}
"""


@pytest.mark.parametrize(
    ("own", "noted"), [(True, True), (False, False)], ids=["some of it, noted", "all of it, only in the manifest"]
)
async def test_what_another_release_has_taken_over_is_not_deleted(
    operator: Operator, tmp_path: Path, helm: Callable[..., str], *, own: bool, noted: bool
) -> None:
    """A module was renamed, so that its release is a new one over the same objects."""
    module = make_chart(tmp_path / "module", claim=CLAIM, listed=LISTED)
    values: JsonObject = {"own": own}
    await operator.deployer.deploy(ChartRequest("old-name", module, values))
    await operator.deployer.deploy(ChartRequest("new-name", module, values))
    if not noted:
        await operator.deployer.outcomes.wait_all()
        body = jsondoc.dumps({"metadata": {"annotations": {OBJECTS_ANNOTATION: "unlisted"}}})
        path = SECRETS.path(operator.namespace, "sh.helm.release.v1.new-name.v1")
        await operator.kube.api.request("PATCH", path, body=body, content_type="application/merge-patch+json")
    await operator.add_unreadable_release("broken")
    await operator.deployer.uninstall("old-name", "its module is gone")
    assert not operator.storage.facts("old-name").exists
    claim = await operator.get(f"/api/v1/namespaces/{operator.namespace}/persistentvolumeclaims/data")
    assert "deletionTimestamp" not in jsondoc.dumps(claim).decode()
    names = await operator.config_maps()
    assert names & {"shared", "new-name-own", "old-name-own"} == {"shared", *(["new-name-own"] if own else [])}
    assert "new-name" in helm("list", "--short")


SHARED_AND_OWN = """
{{- if ne (toString .Values.shared) "false" }}
{apiVersion: v1, kind: ConfigMap, metadata: {name: shared}}
---
{{- end }}
{apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ .Release.Name }}-own"}, data: {text: "{{ .Values.text }}"}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}-hook", annotations: {"helm.sh/hook": pre-upgrade}}
"""
READS = ("status", "get manifest", "get values", "get notes", "get hooks", "get metadata", "get all", "history")


async def test_helm_works_with_a_release_whose_manifest_has_lost_objects_to_another(
    operator: Operator, tmp_path: Path, helm: Callable[..., str]
) -> None:
    """Decision 13: nothing else is changed of what helm has stored, and every command goes on from there."""

    def read() -> dict[str, str]:
        return {words: helm(*words.split(), "old-name") for words in READS} | {"list": helm("list", "--all")}

    module = make_chart(tmp_path / "module", objects=SHARED_AND_OWN)
    (module / "templates" / "NOTES.txt").write_text("Notes of {{ .Release.Name }}, {{ .Values.text }}\n")
    for name, text in (("old-name", "first"), ("old-name", "second"), ("new-name", "other")):
        await operator.deployer.deploy(ChartRequest(name, module, {"text": text}))
    await operator.deployer.outcomes.wait_all()
    before = read()
    moved = await operator.storage.hand_over("old-name")
    assert [(key.name, owner) for key, owner in moved.items()] == [("shared", "new-name")]

    after = read()
    assert "name: shared" in before["get manifest"]
    assert "name: shared" not in after["get manifest"]
    assert 'name: "old-name-own"' in after["get manifest"]
    assert {words for words in before if before[words] != after[words]} == {"get manifest", "get all"}
    assert after["get all"] == before["get all"].replace(before["get manifest"].strip(), after["get manifest"].strip())
    assert "Notes of old-name, second" in after["status"]
    assert "old-name-hook" in after["get hooks"]

    helm("upgrade", "old-name", str(module), "--set", "text=third,shared=false")
    assert await operator.text("old-name-own") == "third"
    helm("rollback", "old-name", "2")
    assert await operator.text("old-name-own") == "second"
    assert [line.split()[0] for line in helm("history", "old-name").splitlines()[1:]] == ["1", "2", "3", "4"]
    helm("uninstall", "old-name")
    names = await operator.config_maps()
    assert names & {"shared", "old-name-own", "new-name-own"} == {"shared", "new-name-own"}


HOOKS = """
apiVersion: v1
kind: ConfigMap
metadata:
  name: hook-demo
  annotations: {"helm.sh/hook": post-install, "helm.sh/hook-weight": "1", "helm.sh/hook-delete-policy": hook-failed}
data:
  text: {{ .Values.demo.text }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ ternary "last" "Not_A_Name" .Values.demo.good }}
  annotations: {"helm.sh/hook": post-install, "helm.sh/hook-weight": "2"}
"""
AT_FIRST = """
{{- if not .Values.demo.good }}
{apiVersion: v1, kind: ConfigMap, metadata: {name: stale}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: taken-over}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: kept, annotations: {helm.sh/resource-policy: keep}}}
{{- end }}
"""


async def test_hooks_for_the_installation_run_until_one_has_succeeded(
    operator: Operator, tmp_path: Path, cluster: DevCluster
) -> None:
    """The first hook is left by the first attempt, as are objects that the chart does not have later."""
    module = make_chart(tmp_path / "demo", a=CONFIG_MAP, hooks=HOOKS, more=AT_FIRST)
    with pytest.raises(HelmError, match="Not_A_Name"):
        await operator.deploy(module, good=False)
    await operator.eventually(lambda: operator.storage.facts("demo").status == "failed")
    assert await operator.text("hook-demo") == "a"
    place = ["-n", operator.namespace, "annotate", "--overwrite", "configmap", "taken-over"]
    cluster.kubectl(*place, "meta.helm.sh/release-name=other")
    deployed = await operator.deploy(module, good=True, text="b")
    assert (recovered(deployed), deployed.action.kind, deployed.revision) == (["drop-record"], "install", 1)
    assert (await operator.text(), await operator.text("hook-demo")) == ("b", "b")
    names = await operator.config_maps()
    assert names & {"last", "stale", "taken-over", "kept"} == {"last", "taken-over", "kept"}


async def test_a_chart_whose_schema_names_all_keys(operator: Operator, module: Path) -> None:
    (module / "values.schema.json").write_text('{"additionalProperties": false, "properties": {"text": {}}}')
    (module / "values.yaml").write_text("text: own\n")
    (module / "templates" / "configmap.yaml").write_text(CONFIG_MAP.replace(".demo.text", ".text"))
    nothing = ChartRequest("demo", module, {"global": {"a": 1}, "demo": {}})
    await operator.deployer.deploy(nothing)
    await operator.deployer.outcomes.wait_all()
    assert await operator.text() == "own"
    assert (await operator.deployer.deploy(nothing)).action.kind == "skip"
    with pytest.raises(HelmError, match="additional properties 'demo' not allowed"):
        await operator.deploy(module)


def recovered(deployed: Deployed) -> list[str]:
    return [step.kind for step in deployed.recovered]


async def test_recovers_from_pending_install(
    operator: Operator, module: Path, interrupted: Callable[..., None]
) -> None:
    (module / "templates" / "wait.yaml").write_text(WAITING_HOOK % "post-install")
    interrupted("install", "demo", str(module), "--set", "demo.wait=true,demo.text=x")
    await operator.eventually(lambda: operator.storage.facts("demo").status == "pending-install")
    deployed = await operator.deploy(module)
    assert (recovered(deployed), deployed.action.kind, deployed.revision) == (["drop-record"], "install", 1)
    assert await operator.text() == "a"


@pytest.mark.parametrize("text", ["a", "new"], ids=["what was deployed before", "something new"])
async def test_recovers_from_pending_upgrade(
    operator: Operator, module: Path, interrupted: Callable[..., None], text: str
) -> None:
    """Even if what is wanted is what was deployed before: the objects are half-way to something else."""
    (module / "templates" / "wait.yaml").write_text(WAITING_HOOK % "post-upgrade")
    await operator.deploy(module)
    interrupted("upgrade", "demo", str(module), "--set", "demo.wait=true,demo.text=half")
    await operator.eventually(lambda: operator.storage.facts("demo").status == "pending-upgrade")
    assert await operator.text() == "half"
    deployed = await operator.deploy(module, text=text)
    assert (recovered(deployed), deployed.action.kind) == (["drop-record"], "upgrade")
    assert await operator.text() == text
    assert (await operator.deploy(module, text=text)).action.kind == "skip"


async def test_recovers_from_pending_rollback(
    operator: Operator, module: Path, interrupted: Callable[..., None]
) -> None:
    (module / "templates" / "wait.yaml").write_text(WAITING_HOOK % "post-rollback")
    await operator.deploy(module, text="old", wait=True)
    await operator.deploy(module)
    interrupted("rollback", "demo", "1")
    await operator.eventually(lambda: operator.storage.facts("demo").status == "pending-rollback")
    deployed = await operator.deploy(module)
    assert (recovered(deployed), deployed.action.kind) == (["drop-record"], "upgrade")
    assert await operator.text() == "a"


async def test_recovers_from_uninstalling(operator: Operator, module: Path, interrupted: Callable[..., None]) -> None:
    hook = module / "templates" / "wait.yaml"
    hook.write_text(WAITING_HOOK % "post-delete")
    await operator.deploy(module, wait=True)
    interrupted("uninstall", "demo")
    await operator.eventually(lambda: operator.storage.facts("demo").status == "uninstalling")
    job = f"/apis/batch/v1/namespaces/{operator.namespace}/jobs/demo-wait"
    release_job = asyncio.create_task(let_jobs_end(operator, job))
    deployed = await operator.deploy(module)
    release_job.cancel()
    assert (recovered(deployed), deployed.action.kind, deployed.revision) == (["finish-uninstall"], "install", 1)
    assert await operator.text() == "a"


async def let_jobs_end(operator: Operator, path: str) -> None:
    """Lets the waiting hook run as soon as it is there."""
    while True:
        with contextlib.suppress(Exception):
            await operator.kube.api.request(
                "PATCH", path, body=b'{"spec":{"suspend":false}}', content_type="application/merge-patch+json"
            )
        await asyncio.sleep(0.05)


SCRIPT = """
    import asyncio, sys
    from pathlib import Path
    from tests.cluster.test_helm import request, running

    async def main():
        async with running(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])) as operator:
            await operator.deployer.deploy(request(Path(sys.argv[4]), text="half", wait=True))

    asyncio.run(main())
"""


@pytest.mark.parametrize("event", ["pre-upgrade", "post-upgrade"])
async def test_an_operator_killed_during_an_upgrade_leaves_nothing_stuck(
    operator: Operator, module: Path, cluster: DevCluster, tmp_path: Path, event: str
) -> None:
    (module / "templates" / "wait.yaml").write_text(WAITING_HOOK % event)
    await operator.deploy(module)
    words = [str(cluster.kubeconfig), operator.namespace, str(tmp_path / "other"), str(module)]
    victim = await asyncio.create_subprocess_exec(sys.executable, "-c", textwrap.dedent(SCRIPT), *words)
    try:
        await operator.eventually(lambda: operator.storage.facts("demo").status == "pending-upgrade")
        helms = list(children(victim.pid))
        assert helms
    finally:
        with contextlib.suppress(ProcessLookupError):
            victim.kill()
        await victim.wait()
    await operator.eventually(lambda: all(is_gone(pid) for pid in helms))
    deployed = await operator.deploy(module)
    assert (recovered(deployed), deployed.action.kind) == (["drop-record"], "upgrade")
    assert await operator.text() == "a"
    assert (await operator.deploy(module)).action.kind == "skip"


def children(pid: int) -> Iterator[int]:
    # What ends while this looks has no children.
    with contextlib.suppress(OSError):
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in path.read_text().split():
                yield int(child)
                yield from children(int(child))


async def test_on_stop_a_helm_in_flight_may_finish(operator: Operator, module: Path) -> None:
    (module / "templates" / "wait.yaml").write_text(WAITING_HOOK % "post-install")
    operator.deployer = operator.make_deployer(stop_grace_s=120)
    task = asyncio.create_task(operator.deploy(module, wait=True))
    job = f"/apis/batch/v1/namespaces/{operator.namespace}/jobs/demo-wait"
    await operator.appears(job)
    task.cancel()
    release_job = asyncio.create_task(let_jobs_end(operator, job))
    with pytest.raises(asyncio.CancelledError):
        await task
    release_job.cancel()
    await operator.deployer.outcomes.wait_all()
    facts = operator.storage.facts("demo")
    assert (facts.status, facts.recorded) == ("deployed", True)
    assert (await operator.deploy(module, wait=True)).action.kind == "skip"


async def test_on_stop_a_helm_that_does_not_finish_is_ended(operator: Operator, module: Path) -> None:
    (module / "templates" / "wait.yaml").write_text(WAITING_HOOK % "post-install")
    deployer = operator.make_deployer(stop_grace_s=0.2)
    task = asyncio.create_task(deployer.deploy(request(module, wait=True)))
    await operator.eventually(lambda: operator.storage.facts("demo").exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    deployed = await operator.deploy(module)
    assert deployed.action.kind in {"install", "upgrade"}
    assert await operator.text() == "a"


async def test_an_object_that_goes_away_is_told_and_comes_back(operator: Operator, module: Path) -> None:
    await operator.deploy(module)
    await operator.deploy(module)
    await operator.delete()
    await operator.lost.wait()
    lost = ObjectKey("v1", "ConfigMap", operator.namespace, "demo")
    assert operator.losses == [("demo", (lost,))]
    healed = await operator.deploy(module)
    assert (healed.action.kind, healed.revision) == ("upgrade", 2)
    assert str(lost) in healed.action.reason
    assert (await operator.deploy(module)).action.kind == "skip"


async def test_an_object_that_went_away_while_the_operator_was_down_comes_back(start: Start, module: Path) -> None:
    async with start() as before:
        await before.deploy(module)
        await before.delete()
    async with start() as after:
        assert (await after.deploy(module)).action.kind == "upgrade"
        assert await after.text() == "a"


async def test_a_paused_release_is_told_when_it_goes_on(operator: Operator, module: Path) -> None:
    await operator.deploy(module)
    await operator.deploy(module)
    operator.healing.pause("demo")
    await operator.delete()
    await operator.eventually(lambda: bool(operator.healing.missing("demo")))
    assert operator.losses == []
    operator.healing.resume("demo")
    assert len(operator.losses) == 1


async def test_an_object_without_helms_label_is_not_absent(operator: Operator, module: Path) -> None:
    await operator.deploy(module)
    await operator.deploy(module)
    body = b'{"metadata":{"labels":{"app.kubernetes.io/managed-by":null}}}'
    path = CONFIG_MAPS.path(operator.namespace, "demo")
    await operator.kube.api.request("PATCH", path, body=body, content_type="application/merge-patch+json")
    await operator.lost.wait()
    for _ in range(2):
        operator.healing.pause("demo")
        assert (await operator.deploy(module)).action.kind == "skip"
        operator.healing.resume("demo")
    assert len(operator.losses) == 1


async def test_somebody_who_keeps_deleting_is_answered_more_slowly(operator: Operator, module: Path) -> None:
    await operator.deploy(module)
    await operator.deploy(module)
    for count in range(1, 5):
        await operator.delete()
        await operator.eventually(lambda: bool(operator.healing.missing("demo")))
        assert len(operator.losses) == min(count, 3)
        await operator.deploy(module)
        await operator.eventually(lambda: not operator.healing.missing("demo"))


@pytest.mark.parametrize("just_deployed", [True, False])
async def test_what_helm_has_just_deployed_is_not_missed_before_the_watch_shows_it(
    operator: Operator, module: Path, *, just_deployed: bool
) -> None:
    """The API server is believed in the end: it does not exist."""
    await operator.deploy(module)
    await operator.deploy(module)
    made = ObjectKey("v1", "ConfigMap", operator.namespace, "made")
    await operator.healing.follow("other", [ObjectKey("v1", "ConfigMap", "", "made")], just_deployed=just_deployed)
    assert operator.healing.missing("other") == (() if just_deployed else (made,))
    assert await operator.healing.confirm_missing("other") == (made,)


async def test_what_removes_itself_is_not_absent(operator: Operator, module: Path) -> None:
    job = (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: once}\nspec:\n  ttlSecondsAfterFinished: 3600\n"
        "  template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}\n"
    )
    (module / "templates" / "job.yaml").write_text(job)
    await operator.deploy(module)
    path = f"/apis/batch/v1/namespaces/{operator.namespace}/jobs/once?propagationPolicy=Background"
    await operator.kube.api.request("DELETE", path.partition("?")[0], query={"propagationPolicy": "Background"})
    assert (await operator.deploy(module)).action.kind == "skip"
    assert operator.losses == []


CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.%(group)s}
spec:
  group: %(group)s
  scope: Namespaced
  names: {plural: things, singular: thing, kind: Thing}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
"""


async def test_a_chart_that_asks_for_a_kind_hears_of_it_when_it_is_there(
    operator: Operator, module: Path, cluster: DevCluster
) -> None:
    group = f"{operator.namespace}.example.com"
    question = f'{{{{ .Capabilities.APIVersions.Has "{group}/v1/Thing" | quote }}}}'
    (module / "templates" / "configmap.yaml").write_text(
        CONFIG_MAP.replace("{{ .Values.demo.text | quote }}", question)
    )
    await operator.deploy(module)
    await operator.deploy(module)
    for verb, answer in (("apply", "true"), ("delete", "false")):
        await asyncio.to_thread(cluster.kubectl, verb, "-f", "-", stdin=CRD % {"group": group})
        while await operator.text() != answer:
            await operator.deploy(module)


async def test_without_the_permission_to_watch_everywhere_it_goes_on(
    cluster: DevCluster, namespace: str, module: Path, tmp_path: Path
) -> None:
    """It may do everything, but in its own namespace only."""
    in_namespace = ("-n", namespace)
    cluster.kubectl(*in_namespace, "create", "role", "all", "--verb=*", "--resource=*", "--resource=*.*")
    cluster.kubectl(
        *in_namespace, "create", "rolebinding", "all", "--role=all", f"--serviceaccount={namespace}:default"
    )
    token = cluster.kubectl(*in_namespace, "create", "token", "default").strip()
    config = yamldoc.load(cluster.kubeconfig.read_text(), "kubeconfig").value
    assert isinstance(config, dict)
    config["users"] = [{"name": user, "user": {"token": token}} for user in names_of(config["users"])]
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yamldoc.dump(config))
    async with running(kubeconfig, namespace, tmp_path / "tmp") as restricted:
        await restricted.deploy(module)
        assert (await restricted.deploy(module)).action.kind == "skip"
        assert (await restricted.deploy(module, text="b")).revision == 2
        assert restricted.healing.watched("demo") == ()


def names_of(users: JsonValue) -> list[JsonValue]:
    assert isinstance(users, list)
    return [user["name"] for user in users if isinstance(user, dict)]


@pytest.mark.parametrize("interrupted", [False, True], ids=["seen by its watch", "between list and watch"])
async def test_a_kind_that_is_gone_is_told_once(
    operator: Operator, module: Path, cluster: DevCluster, *, interrupted: bool
) -> None:
    group = f"{operator.namespace}.example.com"
    cluster.kubectl("apply", "-f", "-", stdin=CRD % {"group": group})
    cluster.kubectl("wait", "--for=condition=Established", f"crd/things.{group}")
    (module / "templates" / "thing.yaml").write_text(f"apiVersion: {group}/v1\nkind: Thing\nmetadata: {{name: x}}\n")
    await operator.deploy(module)
    assert (await operator.deploy(module)).action.kind == "skip"
    delete = ("delete", "crd", f"things.{group}")
    if interrupted:
        # The loop stands still after the list, so the watch is opened when the kind is gone already.
        cluster.kubectl(*delete)
    else:
        await asyncio.to_thread(cluster.kubectl, *delete)
    await operator.lost.wait()
    thing = ObjectKey(f"{group}/v1", "Thing", operator.namespace, "x")
    assert operator.losses == [("demo", (thing,))]
    with pytest.raises(HelmError, match="Thing"):
        await operator.deploy(module)
    assert (await operator.deploy(module)).action.kind == "skip"
    assert operator.healing.missing("demo") == (thing,)
    # When it is served again, its objects come back.
    await asyncio.to_thread(cluster.kubectl, "apply", "-f", "-", stdin=CRD % {"group": group})
    await operator.eventually(lambda: len(operator.losses) > 1)
    while (await operator.deploy(module)).action.kind != "upgrade":
        await asyncio.sleep(0.01)
    assert await operator.get(f"/apis/{group}/v1/namespaces/{operator.namespace}/things/x")


async def test_a_record_without_a_note_is_read_from_its_payload(operator: Operator, module: Path) -> None:
    await operator.deploy(module)
    annotations: JsonObject = {OBJECTS_ANNOTATION: "unlisted"}
    path = SECRETS.path(operator.namespace, "sh.helm.release.v1.demo.v1")
    body = jsondoc.dumps({"metadata": {"annotations": annotations}})
    await operator.kube.api.request("PATCH", path, body=body, content_type="application/merge-patch+json")
    await operator.eventually(lambda: operator.storage.facts("demo").objects is None)
    assert {key.kind for key in await operator.storage.objects("demo")} == {"ConfigMap", "Service"}
    assert operator.storage.facts("demo").recorded


async def test_what_a_killed_operator_has_not_noted_is_noted_without_another_revision(
    operator: Operator, module: Path
) -> None:
    await operator.deploy(module)
    await operator.deployer.outcomes.wait_all()
    path = SECRETS.path(operator.namespace, "sh.helm.release.v1.demo.v1")
    lost: JsonObject = {"annotations": {OBJECTS_ANNOTATION: None}, "labels": {RENDERED_LABEL: None}}
    body = jsondoc.dumps({"metadata": lost})
    await operator.kube.api.request("PATCH", path, body=body, content_type="application/merge-patch+json")
    await operator.eventually(lambda: not operator.storage.facts("demo").recorded)
    deployed = await operator.deploy(module)
    assert (deployed.action.kind, deployed.revision) == ("skip", 1)
    assert operator.storage.facts("demo").recorded
    assert {key.kind for key in await operator.storage.objects("demo")} == {"ConfigMap", "Service"}


async def test_several_releases_side_by_side(operator: Operator, module: Path) -> None:
    values: JsonObject = {"global": {}, "demo": {"text": "a"}}
    names = [f"demo-{number}" for number in range(4)]
    await asyncio.gather(*(operator.deployer.deploy(ChartRequest(name, module, values)) for name in names))
    await operator.deployer.outcomes.wait_all()
    assert [facts.name for facts in operator.storage.releases()] == names
    assert all(facts.recorded for facts in operator.storage.releases())
    assert [await operator.text(name) for name in names] == ["a"] * 4
