"""Which hooks of a failed installation would make helm fail."""

from __future__ import annotations

from typing import cast

import pytest

from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.helm.orphans import hooks_in_the_way

JOB = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\n"
LEFT: JsonObject = {
    "manifest": JOB,
    "events": ["pre-install", "pre-upgrade"],
    "delete_policies": ["hook-succeeded"],
    "last_run": {"phase": "Failed"},
}


@pytest.mark.parametrize(
    ("change", "names"),
    [
        pytest.param({}, ["x"], id="failed, deleted only if it succeeds"),
        pytest.param({"delete_policies": ["hook-failed"], "last_run": {"phase": "Succeeded"}}, ["x"], id="succeeded"),
        pytest.param({"last_run": {"phase": "Running"}}, ["x"], id="interrupted"),
        pytest.param({"manifest": f"{JOB}---\n{JOB.replace('x', 'y')}"}, ["x", "y"], id="two in one"),
        pytest.param({"delete_policies": ["hook-succeeded", "before-hook-creation"]}, [], id="deleted before"),
        pytest.param({"delete_policies": []}, [], id="no policy"),
        pytest.param({"delete_policies": None}, [], id="no policy at all"),
        pytest.param({"events": ["pre-upgrade"]}, [], id="not for an installation"),
        pytest.param({"last_run": {"phase": ""}}, [], id="not run"),
        pytest.param({"last_run": None}, [], id="not known to have run"),
        pytest.param({"manifest": JOB.replace("Job", "CustomResourceDefinition")}, [], id="a definition"),
    ],
)
def test_finds_hooks_in_the_way(change: JsonObject, names: list[str]) -> None:
    hooks = cast("list[JsonValue]", [{**LEFT, **change}])
    assert [key.name for key in hooks_in_the_way({"hooks": hooks})] == names


@pytest.mark.parametrize("release", [{}, {"hooks": None}, {"hooks": ["x"]}], ids=["none", "null", "not a map"])
def test_there_are_none_without_hooks(release: JsonObject) -> None:
    assert list(hooks_in_the_way(release)) == []
