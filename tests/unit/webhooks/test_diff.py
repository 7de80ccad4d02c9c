"""What has to be written, from what is desired and what is known to be registered."""

from __future__ import annotations

import pytest

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.kube.refs import ObjectKey
from addon_operator.webhooks.diff import RegistrationState

A, B = (ObjectKey("v1", "Thing", "", name) for name in "ab")
ONE: JsonObject = {"webhooks": [1]}
TWO: JsonObject = {"webhooks": [2]}


def play(*steps: str) -> RegistrationState:
    """Does these steps, which concern A unless they say B: `begin`, `registered`, `awaits`, `removed`, `doubt`."""
    state = RegistrationState()
    for step in steps:
        word, _, name = step.partition(" ")
        target = B if name == "B" else A
        match word:
            case "begin":
                state.begin(target)
            case "registered":
                state.registered(target, ONE)
            case "awaits":
                state.awaits(target)
            case "removed":
                state.removed(target)
            case "doubt":
                state.doubt(target)
    return state


@pytest.mark.parametrize(
    ("steps", "desired", "expected"),
    [
        pytest.param([], {}, [], id="nothing"),
        pytest.param([], {A: ONE, B: TWO}, [(A, ONE), (B, TWO)], id="new"),
        pytest.param(["begin", "registered"], {A: ONE}, [], id="registered"),
        pytest.param(["begin", "registered"], {A: TWO}, [(A, TWO)], id="another document"),
        pytest.param(["begin", "registered"], {}, [(A, None)], id="desired no longer"),
        pytest.param(["begin", "registered"], {B: ONE}, [(B, ONE), (A, None)], id="writes before removals"),
        pytest.param(["begin"], {A: ONE}, [(A, ONE)], id="failed"),
        pytest.param(["begin"], {}, [(A, None)], id="failed, may be registered all the same"),
        pytest.param(["begin", "registered", "begin"], {A: ONE}, [(A, ONE)], id="a later write failed"),
        pytest.param(["begin", "registered", "removed"], {}, [], id="removed"),
        pytest.param(["begin", "awaits"], {A: ONE}, [(A, ONE)], id="does not exist yet"),
        pytest.param(["begin", "registered", "doubt"], {A: ONE}, [(A, ONE)], id="changed by somebody"),
        pytest.param(["begin", "doubt", "registered"], {A: ONE}, [(A, ONE)], id="changed while it was written"),
        pytest.param(["begin", "doubt", "registered", "begin", "registered"], {A: ONE}, [], id="written again"),
        pytest.param(["doubt"], {}, [], id="changed, never written"),
    ],
)
def test_changes(
    steps: list[str], desired: dict[ObjectKey, JsonObject], expected: list[tuple[ObjectKey, JsonObject | None]]
) -> None:
    assert [(change.target, change.document) for change in play(*steps).changes(desired)] == expected


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param(["begin"], True, id="first time"),
        pytest.param(["begin", "awaits", "begin"], False, id="still"),
        pytest.param(["begin", "awaits", "doubt", "begin"], False, id="somebody else's attempt in between"),
        pytest.param(["begin", "awaits", "begin", "registered", "begin"], True, id="it existed in between"),
    ],
)
def test_it_is_news_once_that_an_object_is_awaited(steps: list[str], expected: bool) -> None:
    assert play(*steps).awaits(A) is expected
