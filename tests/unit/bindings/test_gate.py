"""The gate in front of the events of a binding."""

from __future__ import annotations

import pytest

from addon_operator.bindings.gate import Gate
from addon_operator.hooks.compaction import MOST_CONTEXTS
from addon_operator.hooks.config.model import Kubernetes
from addon_operator.hooks.context import ObjectEvent

PODS = Kubernetes("pods", "Pod")


def event(name: str) -> ObjectEvent:
    return ObjectEvent(PODS, "Modified", b"{}", None, kind="Pod", namespace="ns", name=name)


def test_a_new_gate_is_closed_and_holds_nothing() -> None:
    assert (Gate().state, Gate().open()) == ("closed", ())


def test_what_happens_before_the_synchronization_is_dropped() -> None:
    gate = Gate()
    dropped = [gate.drops]
    for gate.state in ("due", "held", "open"):
        dropped.append(gate.drops)
    assert dropped == [True, True, False, False]


def test_opening_opens() -> None:
    gate = Gate()
    gate.open()
    assert gate.state == "open"


def test_what_was_held_back_comes_out_once_and_in_order() -> None:
    gate = Gate()
    for name in "bab":
        gate.hold(event(name))
    assert gate.open() == (event("b"), event("a"), event("b"))
    assert gate.open() == ()


def test_closing_forgets_what_was_held_back() -> None:
    gate = Gate()
    gate.hold(event("a"))
    gate.close()
    assert (gate.state, gate.open()) == ("closed", ())


@pytest.mark.parametrize("objects", [1, 3])
def test_many_events_are_compacted_object_by_object(objects: int) -> None:
    gate = Gate()
    for number in range(MOST_CONTEXTS + 1):
        gate.hold(event(str(number % objects)))
    assert {held.name for held in gate.open()} == {str(number) for number in range(objects)}
    for number in range(MOST_CONTEXTS):
        gate.hold(event(str(number % objects)))
    assert len(gate.open()) == MOST_CONTEXTS
