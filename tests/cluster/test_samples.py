"""The hooks of the samples that react: each does in a real cluster what its first lines say."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from addon_operator.devcluster import DevCluster
from addon_operator.devcluster.errors import DevClusterError
from tests.cluster.operator import Operator, eventually, operator

PROJECT = Path(__file__).parents[2]
CRD = "catalogentries.catalog.platform.example"


@pytest.fixture(scope="module")
def platform(cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """An operator over the samples, at rest; what belongs to the whole cluster and to one operator goes away."""
    # Another operator of these tests may have left its mark on it.
    cluster.kubectl("delete", "crd", CRD, "--ignore-not-found")
    root = tmp_path_factory.mktemp("samples")
    with operator(cluster, root) as made:
        made.environment |= {
            "MODULES_DIR": str(PROJECT / "modules"),
            "GLOBAL_HOOKS_DIR": str(PROJECT / "global-hooks"),
            "PATH": f"{Path(cluster.environment()['HELM_BIN_PATH']).parent}:{made.environment['PATH']}",
        }
        made.start_ready()
        made.wait_idle()
        yield made
    cluster.kubectl("delete", "crd", CRD, "--ignore-not-found")


def apply(platform: Operator, document: object) -> None:
    """Sends an object to the API server."""
    path = platform.root / "object.json"
    path.write_text(json.dumps(document))
    platform.kubectl("apply", "-f", str(path))


def entry(platform: Operator, name: str, owner: str, *, version: str = "v1") -> None:
    """Makes a catalog entry."""
    title = {"v1": "title", "v1alpha1": "displayName"}[version]
    metadata = {"name": name, "namespace": platform.namespace}
    group, spec = "catalog.platform.example", {title: "T", "owner": owner}
    apply(platform, {"apiVersion": f"{group}/{version}", "kind": "CatalogEntry", "metadata": metadata, "spec": spec})


def read(platform: Operator, *what: str) -> dict[str, dict[str, object]]:
    """Reads one object."""
    document: dict[str, dict[str, object]] = json.loads(platform.kubectl("get", *what, "-o", "json"))
    return document


def test_replicas_and_inventory_follow_the_nodes(platform: Operator) -> None:
    def replicas() -> object:
        return read(platform, "deployment", "ingress-gateway")["spec"]["replicas"]

    before = replicas()
    assert isinstance(before, int)
    apply(platform, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "sample-node"}})
    try:
        eventually(lambda: replicas() == before + 1, what="a replica for the new node")
        line = f"Deployment ingress-gateway: {before + 1} of {before + 1} ready"
        eventually(lambda: line in platform.deployed("platform-inventory")["workloads"], what=line)
    finally:
        platform.kubectl("delete", "node", "sample-node")
    eventually(lambda: replicas() == before, what="no replica for the node that is gone")


def test_local_storage_gives_way_to_another_default(platform: Operator) -> None:
    def state() -> object:
        return platform.modules()["local-storage"]["state"]

    assert state() == "ready"
    metadata = {"name": "sample", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    apply(
        platform, {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "p", "metadata": metadata}
    )
    try:
        eventually(lambda: state() == "disabled", what="local-storage off")
    finally:
        platform.kubectl("delete", "storageclass", "sample")
    eventually(lambda: state() == "ready", what="local-storage on again")


def test_everybodys_spaces_get_limits(platform: Operator) -> None:
    space = platform.cluster.namespace("space")
    platform.kubectl("label", "namespace", space, "platform.example/space=team")
    eventually(lambda: platform.cluster.kubectl("-n", space, "get", "limitrange", "default-limits"))


def test_the_authority_has_a_metric(platform: Operator) -> None:
    assert (
        'internal_ca_valid_seconds{hook="hooks/report-expiry.sh",module="internal-ca"}'
        in platform.http("/metrics/hooks")[1]
    )
    assert 'binding="every minute" crontab="@every 1m"' in platform.text()


def test_catalog_entries_are_checked_labelled_and_converted(platform: Operator) -> None:
    numbers = itertools.count()

    def refused() -> bool:
        try:
            entry(platform, f"bad-{next(numbers)}", "nobody")
        except DevClusterError as error:
            return "there is no team nobody" in str(error)
        return False

    def labelled() -> str:
        name = f"old-{next(numbers)}"
        entry(platform, name, "search", version="v1alpha1")
        labels = read(platform, "catalogentry", name)["metadata"].get("labels")
        return name if labels == {"catalog.platform.example/owner": "search"} else ""

    # The API server takes a moment to ask.
    eventually(refused)
    old = eventually(labelled)
    assert read(platform, "catalogentry", old)["spec"] == {"title": "T", "owner": "search"}
