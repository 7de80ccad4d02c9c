"""Version v0 of `--config` (contract.md 2.2)."""

from __future__ import annotations

import pytest

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.hooks.config.model import (
    Kubernetes,
    Schedule,
)
from tests.unit.hooks.config.declared import parse, problems


def test_v0() -> None:
    config = parse(
        {
            "onStartup": 5,
            "schedule": [{"name": "s", "crontab": "0 * * * *", "allowFailure": True}],
            "onKubernetesEvent": [
                {"kind": "pod"},
                {
                    "name": "n", "event": ["add", "delete"], "kind": "pod", "selector": {"matchLabels": {"a": "b"}},
                    "objectName": "o", "namespaceSelector": {"matchNames": ["x"], "any": False}, "jqFilter": ".",
                    "allowFailure": True,
                },
                {"kind": "pod", "namespaceSelector": {"matchNames": ["x"], "any": True}},
            ],
        }
    )  # fmt: skip
    assert config.version == "v0"
    assert config.schedules == (Schedule("s", "0 * * * *", True, "main", (), ""),)
    plain = Kubernetes("onKubernetesEvent", "pod", run_on_synchronization=False)
    full = Kubernetes(
        "n", "pod", events=("Added", "Deleted"), run_on_synchronization=False, names=("o",),
        label_selector="a=b", namespaces=("x",), jq_filter=".", allow_failure=True,
    )  # fmt: skip
    assert config.kubernetes == (plain, full, plain)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        pytest.param({"kubernetes": [{"kind": "x"}]}, "kubernetes: unknown field", id="v1 binding"),
        pytest.param({"onKubernetesEvent": []}, "onKubernetesEvent: must not be empty", id="empty"),
        pytest.param(
            {"onKubernetesEvent": [{"kind": "x", "event": ["Added"]}]},
            "onKubernetesEvent[0].event[0]: must be one of add, update, delete",
            id="v1 event",
        ),
        pytest.param(
            {"schedule": [{"crontab": "@daily", "queue": "q"}]}, "schedule[0].queue: unknown field", id="v1 queue"
        ),
    ],
)
def test_bad_v0(document: JsonObject, problem: str) -> None:
    assert problems(document) == [problem]
