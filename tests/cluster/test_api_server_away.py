"""What users and their monitoring see while the API server is away and nobody does anything."""

from __future__ import annotations

from pathlib import Path

from addon_operator.devcluster import DevCluster
from tests.cluster.operator import Operator, config_map_chart, eventually, operator
from tests.cluster.outage import outage

AWAY, BACK = "the API server does not answer", "the API server answers again"
SERIES = "kubernetes_api_unreachable_seconds"


def away(made: Operator) -> bool:
    """Whether both lists say that the API server is away, as text and as JSON."""
    notes = [made.cli(*command, "-o", "text").stdout for command in (("module", "list"), ("queue", "list"))]
    said = [note.startswith("NOTE: the API server has not answered since 20") for note in notes]
    documents = [made.ask(path) for path in ("/module/list.json", "/queue/list.json")]
    since = [isinstance(one, dict) and one["apiServerAwaySince"] is not None for one in documents]
    assert len({*said, *since}) == 1, (notes, since)
    return said[0]


def test_api_server_that_is_away_while_idle_is_said_until_it_is_back(cluster: DevCluster, tmp_path: Path) -> None:
    for name in ("usual", "strict"):
        (tmp_path / name).mkdir()
    strictly = {"READYZ_REQUIRES_API_SERVER": "true"}
    with operator(cluster, tmp_path / "usual") as usual, operator(cluster, tmp_path / "strict", strictly) as strict:
        for made in (usual, strict):
            made.module("010-one", {**config_map_chart("one", "a: b"), "values.yaml": "oneEnabled: true\n"})
            made.start()
        for made in (usual, strict):
            made.wait_ready()
            made.wait_idle()
            assert not away(made)
            assert made.metric(SERIES) == 0
        with outage(cluster):
            for made, ready in ((usual, 200), (strict, 500)):
                eventually(lambda made=made: made.metric(SERIES) > 0)  # type: ignore[misc]
                assert away(made)
                assert made.in_log(AWAY)
                assert made.http("/readyz")[0] == ready
                assert made.http("/healthz")[0] == 200
        for made in (usual, strict):
            eventually(lambda made=made: made.metric(SERIES) == 0)  # type: ignore[misc]
            assert not away(made)
            assert made.http("/readyz")[0] == 200
            eventually(lambda made=made: made.in_log(BACK))  # type: ignore[misc]
