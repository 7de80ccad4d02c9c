from __future__ import annotations

import pytest

from addon_operator.hooks import context
from addon_operator.hooks.bindings import HookConfig, LifecycleKind, Version
from addon_operator.jsondoc import JsonObject


@pytest.mark.parametrize(
    ("version", "kind", "expected"),
    [
        ("v1", "onStartup", {"binding": "onStartup"}),
        ("v1", "beforeAll", {"binding": "beforeAll", "snapshots": {}}),
        ("v1", "afterDeleteHelm", {"binding": "afterDeleteHelm", "snapshots": {}}),
        ("v0", "beforeHelm", {"binding": "beforeHelm"}),
    ],
)
def test_lifecycle(version: Version, kind: LifecycleKind, expected: JsonObject) -> None:
    assert context.lifecycle(HookConfig(version), kind) == expected


def test_snapshots_are_handed_on() -> None:
    built = context.lifecycle(HookConfig("v1"), "beforeHelm", {"pods": []})
    assert built == {"binding": "beforeHelm", "snapshots": {"pods": []}}
