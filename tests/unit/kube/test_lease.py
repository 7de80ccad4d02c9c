"""When a Lease may be taken, and what its holder writes."""

from __future__ import annotations

import pytest

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.kube.holder import Identity, title
from addon_operator.kube.lease import Record, next_lease


def lease(**spec: str | int | None) -> JsonObject:
    return {"metadata": {"name": "x", "resourceVersion": "7"}, "spec": dict(spec)}


@pytest.mark.parametrize(
    ("document", "seen_for_s", "free"),
    [
        pytest.param(lease(), 0.0, True, id="nobody's"),
        pytest.param(lease(holderIdentity="", leaseDurationSeconds=1), 0.0, True, id="released"),
        pytest.param(lease(holderIdentity=None, leaseDurationSeconds=35), 0.0, True, id="null"),
        pytest.param(lease(holderIdentity="me", leaseDurationSeconds=35), 0.0, True, id="one's own"),
        pytest.param(lease(holderIdentity="b", leaseDurationSeconds=35), 0.0, False, id="somebody's"),
        pytest.param(lease(holderIdentity="b", leaseDurationSeconds=35), 34.9, False, id="not yet run out"),
        pytest.param(lease(holderIdentity="b", leaseDurationSeconds=35), 35.0, True, id="run out"),
        pytest.param(
            lease(holderIdentity="b", leaseDurationSeconds=35, renewTime="1999-01-01T00:00:00.000000Z"),
            0.0,
            False,
            id="the clocks of others do not count",
        ),
        pytest.param({"metadata": {}, "spec": "odd"}, 0.0, True, id="no Lease at all"),
    ],
)
def test_which_lease_may_be_taken(document: JsonObject, seen_for_s: float, *, free: bool) -> None:
    assert Record.of(document).is_free("me", seen_for_s=seen_for_s) == free


def test_what_counts_as_a_sign_of_the_holder() -> None:
    first = Record.of(lease(holderIdentity="b", renewTime="1", leaseTransitions=1))
    labelled = Record.of({**lease(holderIdentity="b", renewTime="1", leaseTransitions=1), "metadata": {"labels": {}}})
    renewed = Record.of(lease(holderIdentity="b", renewTime="2", leaseTransitions=1))
    assert first.same_term(labelled)
    assert not first.same_term(renewed)
    assert not first.same_term(None)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param(
            str(Identity("addon-operator-0", 7, "0123", "ab")), "addon-operator-0 (process 7)", id="one of us"
        ),
        pytest.param(str(Identity("under_score", 7, "", "ab")), "under_score (process 7)", id="any name"),
        pytest.param("pod.10-0-0-1.ns.pod", "pod.10-0-0-1.ns.pod", id="another program"),
        pytest.param("host_0d4c1f52-6c3f-4a8b", "host_0d4c1f52-6c3f-4a8b", id="client-go"),
    ],
)
def test_holders_are_named_for_people(text: str, shown: str) -> None:
    assert title(text) == shown


def test_what_a_holder_writes() -> None:
    def spec(record: Record | None, *, release: bool = False) -> JsonObject:
        written = next_lease(
            record, namespace="ns", me="me", acquired="then", now="now", duration_s=34.5, release=release
        )
        found = written["spec"]
        assert isinstance(found, dict)
        return found

    taken: JsonObject = {
        "holderIdentity": "me", "leaseDurationSeconds": 35, "acquireTime": "then", "renewTime": "now",
        "leaseTransitions": 0,
    }  # fmt: skip
    assert spec(None) == taken
    assert spec(Record.of(lease(holderIdentity="me", leaseTransitions=4))) == {**taken, "leaseTransitions": 4}
    assert spec(Record.of(lease(holderIdentity="b", leaseTransitions=4))) == {**taken, "leaseTransitions": 5}
    released = spec(Record.of(lease(holderIdentity="me", leaseTransitions=4)), release=True)
    assert (released["holderIdentity"], released["leaseDurationSeconds"], released["acquireTime"]) == ("", 1, "now")
    assert next_lease(
        Record.of(lease(holderIdentity="me")), namespace="ns", me="me", acquired="", now="", duration_s=1
    )["metadata"] == {"name": "x", "resourceVersion": "7"}  # fmt: skip
