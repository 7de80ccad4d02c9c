"""`includeSnapshotsFrom` and groups."""

from __future__ import annotations

import pytest

from addon_operator.errors import HookConfigError
from tests.unit.hooks.config.declared import parse, v1


def test_includes_must_be_unambiguous() -> None:
    document = v1(
        schedule=[{"crontab": "@daily", "includeSnapshotsFrom": ["kubernetes", "b"]}],
        kubernetes=[{"kind": "a"}, {"kind": "b", "name": "b"}, {"kind": "c"}],
    )
    with pytest.raises(HookConfigError, match="includeSnapshotsFrom: there are 2 'kubernetes' binding names"):
        parse(document)


def test_a_group_shares_its_snapshots() -> None:
    config = parse(
        v1(
            kubernetes=[
                {"name": "a", "kind": "x", "group": "g", "includeSnapshotsFrom": ["c", "b"]},
                {"name": "b", "kind": "x", "group": "g"},
                {"name": "c", "kind": "x"},
            ],
            schedule=[{"crontab": "@daily", "group": "g"}, {"crontab": "@daily", "group": "lonely"}],
        )
    )
    assert [watch.include_snapshots_from for watch in config.kubernetes] == [("c", "b", "a"), ("a", "b"), ()]
    assert [timer.include_snapshots_from for timer in config.schedules] == [("a", "b"), ()]
