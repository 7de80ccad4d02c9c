"""Which helm is used; small scripts in its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from addon_operator.errors import SettingsError
from addon_operator.helm.binary import HelmBinary, find_helm, helm_environment


def program(path: Path, version: str, *, code: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho run >>'{path}.log'\necho '{version}'\nexit {code}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("version", ["v3.17.0", "v3.21", "v3.99.1+g1234"])
async def test_takes_a_helm_that_is_recent_enough(tmp_path: Path, version: str) -> None:
    path = program(tmp_path / "helm", version)
    assert await find_helm(path, {}, cache_dir=tmp_path) == HelmBinary(path, version)


@pytest.mark.parametrize(
    ("version", "code"), [("v3.16.4", 0), ("v2.17.0", 0), ("v4.0.1", 0), ("nonsense", 0), ("v3.21.4", 1)]
)
async def test_refuses_other_versions_and_says_what_to_do(tmp_path: Path, version: str, code: int) -> None:
    path = program(tmp_path / "helm", version, code=code)
    with pytest.raises(SettingsError, match=r"helm 3\.17 or later is needed, but not helm 4.*HELM_BIN_PATH"):
        await find_helm(path, {}, cache_dir=tmp_path)


async def test_finds_helm_on_the_path(tmp_path: Path) -> None:
    path = program(tmp_path / "bin" / "helm", "v3.20.1")
    assert await find_helm(None, {"PATH": str(path.parent)}, cache_dir=tmp_path) == HelmBinary(path, "v3.20.1")


async def test_a_known_helm_is_not_started_again(tmp_path: Path) -> None:
    path = program(tmp_path / "helm", "v3.20.1")
    for _ in range(2):
        await find_helm(path, {}, cache_dir=tmp_path)
    assert Path(f"{path}.log").read_text() == "run\n"
    program(path, "v3.21.0000")
    assert (await find_helm(path, {}, cache_dir=tmp_path)).version == "v3.21.0000"


async def test_a_missing_helm_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"HELM_BIN_PATH: .*nothing is not a file"):
        await find_helm(tmp_path / "nothing", {}, cache_dir=tmp_path)


async def test_a_helm_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    path = tmp_path / "helm"
    path.write_text("text")
    with pytest.raises(SettingsError, match="is not executable"):
        await find_helm(path, {}, cache_dir=tmp_path)
    path.chmod(0o755)
    with pytest.raises(SettingsError, match="cannot be started"):
        await find_helm(path, {}, cache_dir=tmp_path)


@pytest.mark.parametrize(("driver", "fine"), [("", True), ("secret", True), ("secrets", True), ("configmap", False)])
async def test_storage_other_than_secrets_is_refused(tmp_path: Path, driver: str, *, fine: bool) -> None:
    path = program(tmp_path / "helm", "v3.21.4")
    if fine:
        await find_helm(path, {"HELM_DRIVER": driver}, cache_dir=tmp_path)
        return
    with pytest.raises(SettingsError, match="HELM_DRIVER"):
        await find_helm(path, {"HELM_DRIVER": driver}, cache_dir=tmp_path)


def test_environment_leads_to_the_operators_cluster_only(tmp_path: Path) -> None:
    base = {
        "PATH": "/bin",
        "HELM_NAMESPACE": "other",
        "HELM_KUBECONTEXT": "other",
        "HELM_QPS": "5",
        "KUBECONFIG": "old",
    }
    made = helm_environment(base, {"KUBECONFIG": "new"}, tmp_path)
    assert {name for name in made if name.startswith("HELM_")} == {
        "HELM_QPS", "HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"
    }  # fmt: skip
    assert (made["PATH"], made["KUBECONFIG"]) == ("/bin", "new")
    assert {made[name] for name in ("HELM_CACHE_HOME", "KUBECACHEDIR")} == {
        str(tmp_path / "cache"),
        str(tmp_path / "kube"),
    }


def test_environment_keeps_a_chosen_garbage_collector(tmp_path: Path) -> None:
    assert helm_environment({"GOGC": "50"}, {}, tmp_path)["GOGC"] == "50"
