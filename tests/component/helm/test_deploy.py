"""Removing a release while the outcome of another one cannot be noted: no helm, no cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import cast

from addon_operator.errors import KubeError
from addon_operator.helm.chart import ChartReader
from addon_operator.helm.client import ChartRequest, HelmClient, UpgradeResult
from addon_operator.helm.cluster import Cluster
from addon_operator.helm.deploy import Deployer
from addon_operator.helm.healing import Healing
from addon_operator.helm.release import ReleaseFacts
from addon_operator.helm.storage import ReleaseStorage
from addon_operator.kube.client import KubeClient
from addon_operator.kube.discovery import Discovery
from addon_operator.kube.refs import ObjectKey
from tests.fakes.api_server import FakeApiServer


class Helm:
    """Makes and removes releases in memory; what it did cannot be noted on them."""

    version = "v3.21.4"
    extra_labels = ()
    namespace = "ns"

    def __init__(self) -> None:
        self.names: set[str] = {"one"}

    async def upgrade(self, request: ChartRequest, _fingerprint: str, **_options: object) -> UpgradeResult:
        self.names.add(request.name)
        return UpgradeResult(1, "", "", ())

    async def uninstall(self, name: str, *, keep_record: bool = False) -> None:
        self.names.remove(name)

    def facts(self, name: str) -> ReleaseFacts:
        return ReleaseFacts(name, *((1, "deployed") if name in self.names else ()))

    async def record(self, _name: str, _revision: int, **_note: object) -> None:
        raise KubeError("no", status=403, reason="Forbidden")

    async def hand_over(self, _name: str) -> dict[ObjectKey, str]:
        return {}

    async def wait_gone(self, name: str) -> None:
        assert name not in self.names

    async def follow(self, _name: str, _objects: Iterable[ObjectKey], **_options: object) -> None:
        """Nobody looks."""

    def forget(self, _name: str) -> None:
        """Nobody looks."""

    def anywhere(self, key: ObjectKey) -> ObjectKey:
        return key


async def test_a_release_is_removed_although_another_ones_outcome_cannot_be_noted(tmp_path: Path) -> None:
    helm = Helm()
    deployer = Deployer(
        client=cast("HelmClient", helm),
        storage=cast("ReleaseStorage", helm),
        healing=cast("Healing", helm),
        cluster=Cluster(KubeClient(FakeApiServer()), "v1.36.0", Discovery([], [])),
        charts=ChartReader(),
    )
    await deployer.deploy(ChartRequest("two", tmp_path, {}))
    while not deployer.outcomes.is_pending("two"):
        await asyncio.sleep(0)
    await deployer.uninstall("one", "its module is gone")
    assert helm.names == {"two"}
    assert deployer.outcomes.is_pending("two")
