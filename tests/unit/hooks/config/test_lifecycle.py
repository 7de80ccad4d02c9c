"""Lifecycle bindings."""

from __future__ import annotations

import pytest

from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.hooks.call import Scope
from addon_operator.hooks.config import model
from addon_operator.hooks.config.model import (
    Lifecycle,
)
from tests.unit.hooks.config.declared import parse, problems, v1


@pytest.mark.parametrize("version", [{"configVersion": "v1"}, {}], ids=["v1", "v0"])
@pytest.mark.parametrize(
    ("scope", "kinds"),
    [
        ("global", ("onStartup", "beforeAll", "afterAll")),
        ("module", ("onStartup", "beforeHelm", "afterHelm", "beforeDeleteHelm", "afterDeleteHelm")),
    ],
)
def test_lifecycle(version: JsonObject, scope: Scope, kinds: tuple[model.LifecycleKind, ...]) -> None:
    config = parse({**version, **{kind: number for number, kind in enumerate(kinds)}}, scope)
    assert config.lifecycle == tuple(Lifecycle(kind, number) for number, kind in enumerate(kinds))
    assert [config.order(kind) for kind in kinds] == list(range(len(kinds)))


def test_orders_may_be_negative_and_absent_ones_are_none() -> None:
    config = parse(v1(beforeHelm=-5))
    assert config.order("beforeHelm") == -5
    assert config.order("afterHelm") is None


@pytest.mark.parametrize("value", [None, True, "1", 1.5, [1]], ids=str)
def test_an_order_is_an_integer(value: JsonValue) -> None:
    (problem,) = problems(v1(onStartup=value))
    assert problem.startswith("onStartup: must be an integer, not ")


@pytest.mark.parametrize(
    ("scope", "kind"),
    [("global", "beforeHelm"), ("global", "afterDeleteHelm"), ("module", "beforeAll"), ("module", "afterAll")],
)
def test_the_wrong_place(scope: Scope, kind: str) -> None:
    other = "module" if scope == "global" else "global"
    assert problems(v1(**{kind: 1}), scope) == [f"{kind}: not possible in a {scope} hook, only in a {other} hook"]
