"""Admission and conversion bindings (contract.md 2.2, 2.14)."""

from __future__ import annotations

import pytest

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.hooks.config import model
from addon_operator.hooks.config.model import (
    Admission,
    AdmissionRule,
    Conversion,
)
from tests.unit.hooks.config.declared import parse, problems, v1

RULE = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}


@pytest.mark.parametrize("kind", ["kubernetesValidating", "kubernetesMutating"])
def test_admission(kind: model.AdmissionKind) -> None:
    config = parse(
        v1(**{kind: [{
            "name": "a.example.com", "rules": [RULE], "timeoutSeconds": 30, "failurePolicy": "Ignore",
            "matchConditions": [{"name": "n", "expression": "true"}],
            "namespace": {"labelSelector": {"matchLabels": {"a": "b"}}},
        }]})
    )  # fmt: skip
    assert config.admissions == (
        Admission(
            kind, "a.example.com", (AdmissionRule(("",), ("v1",), ("pods",), ("CREATE",), "*"),), "Ignore", "None", 30,
            (("n", "true"),), None, {"matchLabels": {"a": "b"}}, (), "",
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        pytest.param({"name": "example.com"}, "name: must be a domain name of at least three parts", id="name"),
        pytest.param({"timeoutSeconds": 31}, "timeoutSeconds: must be from 1 to 30", id="timeout"),
        pytest.param({"timeoutSeconds": 0}, "timeoutSeconds: must be from 1 to 30", id="no time"),
        pytest.param({"failurePolicy": "Retry"}, "failurePolicy: must be one of Fail, Ignore", id="policy"),
        pytest.param({"sideEffects": "Some"}, "sideEffects: must be one of None, NoneOnDryRun", id="effects"),
        pytest.param({"rules": []}, "rules: must not be empty", id="no rules"),
        pytest.param(
            {"rules": [{**RULE, "operations": ["READ"]}]},
            "rules[0].operations[0]: must be one of CREATE, UPDATE, DELETE, CONNECT, *",
            id="operation",
        ),
        pytest.param(
            {"matchConditions": [{"name": "n"}]}, "matchConditions[0].expression: is required", id="condition"
        ),
    ],
)
def test_bad_admission(fields: JsonObject, problem: str) -> None:
    document = v1(kubernetesValidating=[{"name": "a.example.com", "rules": [RULE], **fields}])
    assert problems(document) == [f"kubernetesValidating[0].{problem}"]


def test_conversion() -> None:
    step = {"fromVersion": "v1", "toVersion": "v2"}
    config = parse(v1(kubernetesCustomResourceConversion=[{"crdName": "x.example.com", "conversions": [step]}]))
    assert config.conversions == (
        Conversion("kubernetesCustomResourceConversion", "x.example.com", (("v1", "v2"),), (), ""),
    )
