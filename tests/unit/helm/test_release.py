"""The release decision."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon_operator.documents.jsondoc import JsonValue
from addon_operator.helm.release import (
    CHECKSUM_LABEL,
    FINGERPRINT_LABEL,
    PENDING,
    ReleaseFacts,
    decide,
    decide_removal,
    fingerprint,
    owned,
)
from addon_operator.helm.traits import ChartTraits
from addon_operator.kube.refs import ObjectKey

FINE = ReleaseFacts(
    "demo", 3, "deployed", deployed_revision=3, fingerprint="same", rendered="r1", recorded=True, owned=True, objects=()
)
PLAIN, RANDOM, READER = ChartTraits(), ChartTraits(draws=("templates/a.yaml: genCA",)), ChartTraits(reads_cluster=True)
HOOKED = ChartTraits(has_hooks=True, has_install_hooks=True)
LOST = (ObjectKey("v1", "ConfigMap", "ns", "a"),)


@pytest.mark.parametrize(
    ("facts", "traits", "rendered", "action", "reason"),
    [
        pytest.param(ReleaseFacts("demo"), PLAIN, None, "install", "no release yet", id="no release"),
        pytest.param({}, PLAIN, None, "skip", "nothing changed", id="nothing changed"),
        pytest.param({"fingerprint": "old"}, PLAIN, None, "render", "changed", id="input changed"),
        pytest.param(
            {"fingerprint": "old"}, PLAIN, "r1", "move-label", "did not change", id="input changed, manifest not"
        ),
        pytest.param({"fingerprint": "old"}, PLAIN, "r2", "upgrade", "manifest changed", id="manifest changed"),
        pytest.param({}, RANDOM, None, "render", "templates/a.yaml: genCA", id="random"),
        pytest.param({}, RANDOM, "r2", "upgrade", "templates/a.yaml: genCA", id="random, changed"),
        pytest.param({}, READER, None, "render", "reads the cluster", id="lookup"),
        pytest.param({}, READER, "r1", "skip", "did not change", id="lookup, unchanged"),
        pytest.param({"fingerprint": "old"}, READER, "r1", "move-label", "did not change", id="lookup, input changed"),
        pytest.param({"absent": LOST}, PLAIN, None, "upgrade", "ns/ConfigMap/a", id="absent object"),
        pytest.param({"recorded": False}, PLAIN, None, "upgrade", "somebody else", id="carried label only"),
        pytest.param(
            {"recorded": False, "finished": True}, PLAIN, None, "note", "interrupted", id="finished, not noted"
        ),
        pytest.param(
            {"recorded": False, "fingerprint": "", "owned": False},
            PLAIN,
            None,
            "upgrade",
            "somebody else",
            id="foreign",
        ),
        pytest.param({"status": "failed"}, PLAIN, None, "upgrade", "failed", id="failed"),
        pytest.param(
            {"status": "failed", "deployed_revision": None}, PLAIN, None, "upgrade", "failed", id="failed install"
        ),
        pytest.param(
            {"status": "failed", "deployed_revision": None},
            HOOKED,
            None,
            "drop-record",
            "hooks",
            id="failed install, hooks",
        ),
        pytest.param(
            {"status": "failed", "deployed_revision": None, "ever_deployed": True},
            HOOKED,
            None,
            "upgrade",
            "failed",
            id="failed upgrade, hooks",
        ),
        pytest.param(
            {"status": "superseded", "deployed_revision": None}, PLAIN, None, "upgrade", "superseded", id="superseded"
        ),
        pytest.param({"status": "uninstalled"}, PLAIN, None, "install", "history", id="uninstalled"),
        pytest.param({"status": "unknown"}, PLAIN, None, "upgrade", "unknown", id="unknown, one deployed"),
        pytest.param(
            {"status": "weird", "deployed_revision": None},
            PLAIN,
            None,
            "drop-record",
            "weird",
            id="unknown, none deployed",
        ),
        pytest.param({"status": "uninstalling"}, PLAIN, None, "finish-uninstall", "uninstalling", id="uninstalling"),
        *(pytest.param({"status": one}, PLAIN, None, "drop-record", one, id=one) for one in sorted(PENDING)),
    ],
)
def test_decides(
    facts: ReleaseFacts | dict[str, object], traits: ChartTraits, rendered: str | None, action: str, reason: str
) -> None:
    known = facts if isinstance(facts, ReleaseFacts) else dataclasses.replace(FINE, **facts)  # type: ignore[arg-type]
    decided = decide(known, "same", traits, rendered)
    assert decided.kind == action
    assert reason in decided.reason


@pytest.mark.parametrize(
    ("status", "kind"),
    [*((one, "drop-record") for one in sorted(PENDING)), ("uninstalling", "finish-uninstall"), ("", "drop-record")],
)
def test_recovers(status: str, kind: str) -> None:
    decided = decide(dataclasses.replace(FINE, status=status, deployed_revision=None), "same", PLAIN, None)
    assert decided.kind == kind


def test_names_three_absent_objects_at_most() -> None:
    lost = tuple(ObjectKey("v1", "ConfigMap", "ns", name) for name in "abcde")
    assert decide(dataclasses.replace(FINE, absent=lost), "same", PLAIN, None).reason == (
        "absent in the cluster: ns/ConfigMap/a, ns/ConfigMap/b, ns/ConfigMap/c and 2 more"
    )


_statuses = st.sampled_from(
    ["", "deployed", "failed", "superseded", "uninstalled", "uninstalling", "unknown", *PENDING]
)


@given(
    status=_statuses,
    deployed=st.sampled_from([None, 1, 2]),
    recorded=st.booleans(),
    mark=st.sampled_from(["", "same", "old"]),
    absent=st.sampled_from([(), LOST]),
    traits=st.sampled_from([PLAIN, RANDOM, READER]),
    rendered=st.sampled_from([None, "r1", "r2"]),
)
def test_only_a_release_known_to_be_right_is_left_alone(
    *,
    status: str,
    deployed: int | None,
    recorded: bool,
    mark: str,
    absent: tuple[ObjectKey, ...],
    traits: ChartTraits,
    rendered: str | None,
) -> None:
    facts = ReleaseFacts(
        "demo", 2, status, deployed, fingerprint=mark, rendered="r1", recorded=recorded, owned=True, absent=absent
    )
    decided = decide(facts, "same", traits, rendered)
    assert decided.reason
    assert decided.kind != "uninstall"
    if decided.kind in {"skip", "move-label"}:
        assert (status, recorded, absent) == ("deployed", True, ())
        assert (mark == "same" and not traits.varies) or rendered == "r1"
    if decided.kind == "render":
        assert rendered is None
    if decided.kind in {"drop-record", "finish-uninstall"}:
        assert status not in {"deployed", "failed", "superseded", "uninstalled"}


def test_removes_what_exists() -> None:
    assert decide_removal(FINE, "disabled").kind == "uninstall"
    assert decide_removal(dataclasses.replace(FINE, status="pending-install"), "disabled").kind == "uninstall"
    assert decide_removal(ReleaseFacts("demo"), "disabled").kind == "skip"


BASE: dict[str, JsonValue] = {"global": {}, "demo": {"a": 1}}


def mark(
    *,
    chart: str = "c",
    values: JsonValue = None,
    helm: str = "v3.21.4",
    kube: str = "v1.36.3",
    apis: str = "",
    labels: tuple[tuple[str, str], ...] = (("heritage", "x"),),
) -> str:
    return fingerprint(
        chart_digest=chart,
        values=BASE if values is None else values,
        helm_version=helm,
        kube_version=kube,
        apis=apis,
        extra_labels=labels,
    )


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(mark(chart="d"), id="chart"),
        pytest.param(mark(values={"global": {}, "demo": {"a": 2}}), id="values"),
        pytest.param(mark(values={"global": {}, "demo": {"a": "1"}}), id="type of a value"),
        pytest.param(mark(helm="v3.22.0"), id="helm"),
        pytest.param(mark(kube="v1.37.0"), id="Kubernetes"),
        pytest.param(mark(apis="a=True"), id="APIs"),
        pytest.param(mark(labels=()), id="labels"),
    ],
)
def test_fingerprint_depends_on_each_input(other: str) -> None:
    assert other != mark()
    assert len(other) < 64


def test_fingerprint_does_not_depend_on_order() -> None:
    assert mark(values={"demo": {"a": 1}, "global": {}}) == mark()
    assert mark(labels=(("b", "1"), ("a", "2"))) == mark(labels=(("a", "2"), ("b", "1")))


@pytest.mark.parametrize(
    ("labels", "ours"),
    [
        pytest.param({FINGERPRINT_LABEL: "x"}, True, id="our mark"),
        pytest.param({CHECKSUM_LABEL: "x"}, True, id="the peer's"),
        pytest.param({"name": "demo", "owner": "helm"}, False, id="none"),
    ],
)
def test_knows_what_may_be_purged(labels: dict[str, str], *, ours: bool) -> None:
    assert owned(labels) is ours
