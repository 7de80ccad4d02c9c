"""What helm does to releases and their objects: the fake in memory, and the real one with a real API server."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

import pytest

from addon_operator.documents.jsondoc import JsonObject, lookup
from addon_operator.errors import HelmError
from addon_operator.helm.binary import find_helm
from addon_operator.helm.client import ChartRequest, HelmClient, UpgradeResult
from addon_operator.helm.deploy import Helm
from addon_operator.helm.release import FINGERPRINT_LABEL, REVISION_LABEL
from addon_operator.helm.release_record import decode_release, encode_release, secret_name
from addon_operator.kube.refs import CONFIG_MAPS, SECRETS, ObjectKey, ObjectRef, metadata_of
from addon_operator.kube.transport import HttpTransport
from addon_operator.process.private_directory import PrivateDirectory
from tests.contract.conftest import Site
from tests.fakes.helm import ALL_VALUES, FakeHelm

LABELS: Final = (("heritage", "addon-operator"),)


class Subject:
    """helm, and a module whose chart has one ConfigMap in each template."""

    def __init__(self, helm: Helm, site: Site, module: Path) -> None:
        self.helm, self.site, self.module = helm, site, module
        self.values: JsonObject = {"global": {}, "demo": {}}
        (module / "templates").mkdir(parents=True)
        (module / "Chart.yaml").write_text("{apiVersion: v2, name: demo, version: 0.1.0}")

    def write(self, name: str, text: str = "a", *, namespace: str = "", kind: str = "ConfigMap") -> None:
        place = f", namespace: {namespace}" if namespace else ""
        document = f"apiVersion: v1\nkind: {kind}\nmetadata: {{name: {name}{place}}}\ndata: {{text: {text}}}\n"
        (self.module / f"templates/{name}.yaml").write_text(document)

    def remove(self, name: str) -> None:
        (self.module / f"templates/{name}.yaml").unlink()

    @property
    def request(self) -> ChartRequest:
        return ChartRequest("demo", self.module, self.values)

    async def upgrade(self, *, revision: int = 1, fingerprint: str = "f1") -> UpgradeResult:
        result = await self.helm.upgrade(self.request, fingerprint, revision=revision)
        assert result is not None
        return result

    async def template(self) -> str:
        apis, version = await self.site.client.discover(), await self.site.client.server_version()
        return await self.helm.template(self.request, kube_version=version, apis=apis, exact=False)

    async def records(self) -> dict[int, str]:
        """Returns the status of each revision."""
        found = await self.site.client.list(SECRETS, self.site.namespace, label_selector="owner=helm,name=demo")
        return {int(str(lookup(item, "/metadata/labels/version"))): _label(item, "status") for item in found}

    async def record(self, revision: int) -> JsonObject:
        found = await self.site.client.get(ObjectRef(SECRETS, self.site.namespace, secret_name("demo", revision)))
        assert found is not None
        return found

    async def find(self, name: str) -> JsonObject | None:
        return await self.site.client.get(ObjectRef(CONFIG_MAPS, self.site.namespace, name))

    async def text(self, name: str) -> str:
        found = await self.find(name)
        return str(lookup(found, "/data/text")) if found is not None else ""


def _label(item: JsonObject, name: str) -> str:
    labels = metadata_of(item)["labels"]
    assert isinstance(labels, dict)
    return str(labels.get(name, ""))


@pytest.fixture
async def subject(site: Site, tmp_path: Path) -> Subject:
    helm: Helm = FakeHelm(site.api, site.namespace, extra_labels=LABELS)
    if isinstance(site.api, HttpTransport):
        helm = HelmClient(
            kube=site.api.credentials,
            binary=await find_helm(None, os.environ, cache_dir=tmp_path),
            namespace=site.namespace,
            tmp_dir=PrivateDirectory(tmp_path / "runs"),
            cache_dir=PrivateDirectory(tmp_path / "cache"),
            environment=os.environ,
            timeout_s=60,
            history_max=10,
            extra_labels=LABELS,
        )
    return Subject(helm, site, tmp_path / "demo")


async def test_install(subject: Subject) -> None:
    subject.write("one")
    subject.write("two")
    result = await subject.upgrade()
    assert result.revision == 1
    assert set(result.objects) == {ObjectKey("v1", "ConfigMap", "", name) for name in ("one", "two")}
    assert len(result.checksum) == 32
    one, record = await subject.find("one"), await subject.record(1)
    assert one is not None
    assert (_label(one, "heritage"), _label(one, "app.kubernetes.io/managed-by")) == ("addon-operator", "Helm")
    assert await subject.records() == {1: "deployed"}
    assert (_label(record, FINGERPRINT_LABEL), _label(record, REVISION_LABEL)) == ("f1", "1")
    assert record["type"] == "helm.sh/release.v1"


async def test_chart_sees_its_values(subject: Subject) -> None:
    subject.values = {"global": {"domain": "it's {{ here }}"}, "demo": {"list": [1, {"a": None}], "empty": {}}}
    subject.write("one", ALL_VALUES)
    await subject.upgrade()
    assert json.loads(await subject.text("one")) == subject.values


async def test_stored_release_can_be_read(subject: Subject) -> None:
    subject.write("one")
    await subject.upgrade()
    release = decode_release(await subject.record(1))
    assert (release["name"], release["namespace"], release["version"]) == ("demo", subject.site.namespace, 1)
    assert "name: one" in str(release["manifest"])
    assert "heritage" in str(release["manifest"])
    assert lookup(release, "/info/status") == "deployed"


async def test_upgrade_that_would_change_nothing_is_stopped(subject: Subject) -> None:
    subject.write("one")
    rendered = (await subject.upgrade()).rendered
    assert await subject.template() == rendered
    assert await subject.helm.upgrade(subject.request, "f2", revision=2, unless=rendered) is None
    assert await subject.records() == {1: "deployed"}
    subject.write("one", "b")
    result = await subject.helm.upgrade(subject.request, "f2", revision=2, unless=rendered)
    assert result is not None
    assert (result.revision, await subject.text("one")) == (2, "b")


async def test_upgrade(subject: Subject) -> None:
    subject.write("one")
    subject.write("two")
    before = await subject.upgrade()
    subject.write("one", "b")
    subject.remove("two")
    subject.write("three")
    after = await subject.upgrade(revision=2, fingerprint="f2")
    assert (after.revision, after.rendered != before.rendered) == (2, True)
    assert [await subject.text(name) for name in ("one", "two", "three")] == ["b", "", "a"]
    assert await subject.records() == {1: "superseded", 2: "deployed"}
    record = await subject.record(2)
    assert (_label(record, FINGERPRINT_LABEL), _label(record, REVISION_LABEL)) == ("f2", "2")


async def test_object_that_exists_already_is_taken_over(subject: Subject) -> None:
    body: JsonObject = {"metadata": {"name": "one"}, "data": {"text": "theirs", "more": "theirs"}}
    await subject.site.client.create(ObjectRef(CONFIG_MAPS, subject.site.namespace, "one"), body)
    subject.write("one", "ours")
    await subject.upgrade()
    assert await subject.text("one") == "ours"


async def test_object_that_was_deleted_is_back_after_an_upgrade(subject: Subject) -> None:
    subject.write("one")
    await subject.upgrade()
    await subject.site.client.delete(ObjectRef(CONFIG_MAPS, subject.site.namespace, "one"))
    await subject.upgrade(revision=2)
    assert await subject.text("one") == "a"


async def test_uninstall(subject: Subject) -> None:
    subject.write("one")
    await subject.upgrade()
    await subject.upgrade(revision=2)
    await subject.helm.uninstall("demo")
    assert (await subject.records(), await subject.find("one")) == ({}, None)
    await subject.helm.uninstall("demo")


async def test_uninstall_that_keeps_the_record(subject: Subject) -> None:
    subject.write("one")
    await subject.upgrade()
    await subject.upgrade(revision=2)
    await subject.helm.uninstall("demo", keep_record=True)
    assert (await subject.records())[2] == "uninstalled"
    assert await subject.find("one") is None
    await subject.helm.uninstall("demo")
    assert await subject.records() == {}


async def test_install_after_an_uninstall_that_kept_the_record(subject: Subject) -> None:
    subject.write("one")
    await subject.upgrade()
    await subject.helm.uninstall("demo", keep_record=True)
    assert (await subject.upgrade(revision=2)).revision == 2
    assert (await subject.records())[2] == "deployed"
    assert await subject.text("one") == "a"


async def test_chart_whose_objects_are_refused_leaves_a_failed_release(subject: Subject) -> None:
    subject.write("one", namespace="absent")
    with pytest.raises(HelmError, match=r"(?s)^module demo: helm upgrade: .*not found"):
        await subject.upgrade()
    assert await subject.records() == {1: "failed"}
    subject.write("one")
    assert (await subject.upgrade(revision=2)).revision == 2
    assert (await subject.records())[2] == "deployed"


async def test_upgrade_that_is_refused_leaves_what_was_deployed(subject: Subject) -> None:
    subject.write("one")
    await subject.upgrade()
    subject.write("two", namespace="absent")
    with pytest.raises(HelmError):
        await subject.upgrade(revision=2)
    assert await subject.records() == {1: "deployed", 2: "failed"}
    subject.remove("two")
    await subject.upgrade(revision=3)
    assert await subject.records() == {1: "superseded", 2: "failed", 3: "deployed"}


async def test_chart_with_a_kind_that_does_not_exist_changes_nothing(subject: Subject) -> None:
    subject.write("one")
    subject.write("two", kind="Nothing")
    with pytest.raises(HelmError, match=r"^module demo: helm upgrade: .*Nothing"):
        await subject.upgrade()
    assert (await subject.records(), await subject.find("one")) == ({}, None)


async def test_release_that_somebody_is_at_work_on(subject: Subject) -> None:
    subject.write("one")
    await subject.upgrade()
    record = ObjectRef(SECRETS, subject.site.namespace, secret_name("demo", 1))
    release = decode_release(await subject.record(1))
    info = release["info"]
    assert isinstance(info, dict)
    info["status"] = "pending-upgrade"
    patch: JsonObject = {"metadata": {"labels": {"status": "pending-upgrade"}}, "data": encode_release(release)}
    await subject.site.client.patch(record, patch)
    with pytest.raises(HelmError, match="another operation"):
        await subject.upgrade(revision=2)
    assert await subject.records() == {1: "pending-upgrade"}
