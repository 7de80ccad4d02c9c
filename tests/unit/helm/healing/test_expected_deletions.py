"""How long an announced deletion is believed."""

from __future__ import annotations

import pytest

from addon_operator.helm.healing.expected_deletions import ExpectedDeletions
from addon_operator.kube.refs import ObjectKey

KEY, OTHER = (ObjectKey("v1", "ConfigMap", "ns", name) for name in ("a", "b"))


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param("", False, id="never announced"),
        pytest.param("expect", True, id="announced"),
        pytest.param("expect, wait 60", True, id="begins in time"),
        pytest.param("expect, wait 61", False, id="has failed"),
        pytest.param("expect, wait 50, expect, wait 50", True, id="announced again"),
        pytest.param("expect, cancel", False, id="refused"),
        pytest.param("expect, confirm, wait 900", True, id="held by a finalizer"),
        pytest.param("expect, confirm, expect, cancel", True, id="another one refused while it goes"),
        pytest.param("expect, confirm, exists", False, id="exists again"),
        pytest.param("expect, exists", True, id="a change before it goes"),
        pytest.param("expect, confirm, forget", False, id="created again by helm"),
        pytest.param("expect, expect-other, cancel-other", True, id="another object"),
        pytest.param("expect, retain", True, id="followed"),
        pytest.param("expect, retain-other", False, id="followed no longer"),
    ],
)
def test_deletions(steps: str, expected: bool) -> None:
    deletions, now = ExpectedDeletions(), 1000.0
    for step in filter(None, steps.split(", ")):
        word, _, seconds = step.partition(" ")
        name, _, of_another = word.partition("-")
        key = OTHER if of_another else KEY
        match name:
            case "expect":
                deletions.expect(key, now)
            case "cancel":
                deletions.cancel(key)
            case "confirm":
                assert deletions.confirm(key, now)
            case "exists":
                deletions.exists(key)
            case "forget":
                deletions.forget([key])
            case "retain":
                deletions.retain(key.__eq__)
            case "wait":
                now += float(seconds)
    assert deletions.confirm(KEY, now) is expected
