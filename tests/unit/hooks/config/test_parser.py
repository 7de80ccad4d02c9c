"""The document of `--config` as a whole (contract.md 2.2)."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import HookConfigError
from addon_operator.hooks.config.model import (
    HookConfig,
    Lifecycle,
)
from tests.unit.hooks.config.declared import parse, problems, v1


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"configVersion": "v1", "onStartup": 10}', id="json"),
        pytest.param("configVersion: v1\nonStartup: 10\n", id="yaml"),
        pytest.param("# my hook\n---\nconfigVersion: v1\nonStartup: 10.0\n", id="float without fraction"),
    ],
)
def test_text(text: str) -> None:
    assert parse(text) == HookConfig("v1", (Lifecycle("onStartup", 10),))


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        pytest.param("", "must be a map, not null", id="empty output"),
        pytest.param("just text", "must be a map, not a string", id="text"),
        pytest.param([1], "must be a map, not a list", id="list"),
        pytest.param({}, "no binding: configVersion and at least one binding are needed", id="empty map"),
        pytest.param(v1(), "no binding: at least one key beside configVersion is needed", id="only the version"),
        pytest.param({"configVersion": None, "onStartup": 1}, "configVersion: missing value", id="null version"),
        pytest.param(
            {"configVersion": 1, "x": 1}, "configVersion: must be a string, not an integer", id="version not text"
        ),
        pytest.param(
            {"configVersion": "v9", "x": 1}, "configVersion: unsupported version 'v9', supported: v1", id="new version"
        ),
        pytest.param(
            {"configVersion": "v0", "x": 1}, "configVersion: unsupported version 'v0', supported: v1", id="v0 in words"
        ),
        pytest.param(
            {"configVersion": "", "x": 1}, "configVersion: unsupported version '', supported: v1", id="empty version"
        ),
        pytest.param(v1(onStart=1), "onStart: unknown field", id="unknown field"),
    ],
)
def test_the_document_as_a_whole(document: JsonValue, problem: str) -> None:
    assert problems(document) == [problem]


def test_bad_yaml_names_the_line_and_not_the_content() -> None:
    (problem,) = problems("configVersion: v1\nsecret: [\n")
    assert problem.startswith("output:3:")
    assert "secret" not in problem


def test_all_problems_are_shown_together() -> None:
    assert problems(
        v1(
            onStartup="first",
            beforeAll=1,
            other=True,
            settings={"executionBurst": 0},
            schedule=[{"crontab": "* *"}, {"name": 1, "x": 1}],
            kubernetes=[{"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}, 7],
        )
    ) == [
        "settings.executionMinInterval: is required",
        "settings.executionBurst: must be at least 1",
        "beforeAll: not possible in a module hook, only in a global hook",
        "onStartup: must be an integer, not a string",
        "schedule[0].crontab: must have 5 fields, or 6 with the seconds first",
        "schedule[1].name: must be a string, not an integer",
        "schedule[1].crontab: is required",
        "schedule[1].x: unknown field",
        "kubernetes[0].kind: is required",
        "kubernetes[0].labelSelector.matchExpressions[0].operator: must be one of In, NotIn, Exists, DoesNotExist",
        "kubernetes[1]: must be a map, not an integer",
        "other: unknown field",
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["configVersion", "kind", "name", "matchNames", "labelSelector", "rules", "timeout", "x"]),
        inner, max_size=3
    ),
    max_leaves=8,
)  # fmt: skip


@given(
    st.dictionaries(
        st.sampled_from(["onStartup", "beforeHelm", "settings", "schedule", "kubernetes", "kubernetesValidating",
                         "kubernetesCustomResourceConversion", "onKubernetesEvent"]),
        JSON, max_size=4,
    ),
    st.booleans(),
)  # fmt: skip
def test_any_document_is_taken_or_refused(document: JsonObject, versioned: bool) -> None:
    # Whatever else it raises fails the test.
    with contextlib.suppress(HookConfigError):
        assert parse({**document, "configVersion": "v1"} if versioned else document).version in {"v0", "v1"}


def test_all_bindings_are_listed() -> None:
    timer, watch = {"crontab": "@daily"}, {"kind": "pod"}
    config = parse(v1(onStartup=1, schedule=[timer, timer], kubernetes=[watch]))
    assert len(config.bindings()) == 4


def test_the_same_from_text_and_from_a_document() -> None:
    document = v1(onStartup=1, kubernetes=[{"kind": "pod"}])
    assert parse(json.dumps(document)) == parse(document)
