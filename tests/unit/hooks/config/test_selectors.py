"""Names, namespaces, labels and fields (contract.md 2.2)."""

from __future__ import annotations

import pytest

from addon_operator.documents.jsondoc import JsonObject
from tests.unit.hooks.config.declared import kubernetes, problems, v1

LABEL_KEY = "a label key such as app or example.com/app"


LABEL_VALUE = "a label value: at most 63 letters, digits, '-', '_' and '.', a letter or digit at both ends"


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        pytest.param({"matchLabels": {}}, "", id="all"),
        pytest.param({"matchLabels": {"b": "2", "example.com/a": ""}}, "b=2,example.com/a=", id="labels"),
        pytest.param(
            {
                "matchLabels": {"a": "1"},
                "matchExpressions": [
                    {"key": "b", "operator": "In", "values": ["y", "x"]},
                    {"key": "c", "operator": "NotIn", "values": ["z", ""]},
                    {"key": "d", "operator": "Exists"},
                    {"key": "e", "operator": "DoesNotExist", "values": []},
                ],
            },
            "a=1,b in (x,y),c notin (,z),d,!e",
            id="expressions",
        ),
    ],
)
def test_label_selectors(selector: JsonObject, text: str) -> None:
    watch = kubernetes(labelSelector=selector, namespace={"labelSelector": selector})
    assert (watch.label_selector, watch.namespace_labels) == (text, text)


def test_values_of_fields_are_escaped() -> None:
    expression: JsonObject = {"field": "metadata.name", "operator": "==", "value": "a,b=c\\d"}
    watch = kubernetes(fieldSelector={"matchExpressions": [expression]})
    assert watch.field_selector == "metadata.name=a\\,b\\=c\\\\d"


@pytest.mark.parametrize("name", ["a", "a-b.c", "system:node", "Upper_Case", "me@example.com", "0", "..a"])
def test_names_of_objects(name: str) -> None:
    assert kubernetes(nameSelector={"matchNames": [name]}).names == (name,)


def test_a_plain_list_of_namespaces() -> None:
    assert kubernetes(namespace={"nameSelector": ["default"]}).namespaces == ("default",)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        pytest.param({"nameSelector": {}}, "nameSelector.matchNames: is required", id="names"),
        pytest.param({"labelSelector": {}}, "labelSelector: needs matchLabels or matchExpressions", id="labels"),
        pytest.param(
            {"labelSelector": {"matchLabels": {"a": 1}}},
            "labelSelector.matchLabels.a: must be a string, not an integer",
            id="label value",
        ),
        pytest.param(
            {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "labelSelector.matchExpressions[0].values: is required with operator In",
            id="no values",
        ),
        pytest.param(
            {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}},
            "labelSelector.matchExpressions[0].values: is not possible with operator Exists",
            id="values",
        ),
        pytest.param(
            {"labelSelector": {"matchLabels": {"app": "bad value!"}}},
            f"labelSelector.matchLabels.app: 'bad value!' is not {LABEL_VALUE}",
            id="malformed label value",
        ),
        pytest.param(
            {"labelSelector": {"matchLabels": {"app": "x" * 64}}},
            f"labelSelector.matchLabels.app: '{'x' * 64}' is not {LABEL_VALUE}",
            id="long label value",
        ),
        pytest.param(
            {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["x", "x,y=z"]}]}},
            f"labelSelector.matchExpressions[0].values[1]: 'x,y=z' is not {LABEL_VALUE}",
            id="malformed label value in an expression",
        ),
        *(
            pytest.param(
                {"labelSelector": {"matchExpressions": [{"key": key, "operator": "Exists"}]}},
                f"labelSelector.matchExpressions[0].key: {key!r} is not {LABEL_KEY}",
                id=f"malformed label {key[:8]}",
            )
            for key in ("tier!", "a b", "-a", "a/", "/a", "a/b/c", "Upper.io/a", f"{'d' * 254}/a")
        ),
        pytest.param(
            {"namespace": {"labelSelector": {"matchLabels": {"a b": "x"}}}},
            f"namespace.labelSelector.matchLabels.a b: 'a b' is not {LABEL_KEY}",
            id="malformed label of namespaces",
        ),
        *(
            pytest.param(
                {"nameSelector": {"matchNames": ["a", name]}},
                f"nameSelector.matchNames[1]: {name!r} is not an object name",
                id=f"malformed name {name}",
            )
            for name in ("", ".", "..", "Bad_Name!", "a/b", "a b", "a,b", "a%2f", "a=b")
        ),
        *(
            pytest.param(
                {"namespace": {"nameSelector": selector}},
                f"namespace.nameSelector{key}[1]: {name!r} is not a namespace name",
                id=f"malformed namespace {name}{key}",
            )
            for name in ("", "Bad NS", "a/../b", "a.b", "a" * 64)
            for key, selector in ((".matchNames", {"matchNames": ["a", name]}), ("", ["a", name]))
        ),
        pytest.param({"fieldSelector": {}}, "fieldSelector.matchExpressions: is required", id="no field expressions"),
        pytest.param(
            {"fieldSelector": {"matchExpressions": [{"field": "a", "operator": ">", "value": "1"}]}},
            "fieldSelector.matchExpressions[0].operator: must be one of =, ==, Equals, !=, NotEquals",
            id="field operator",
        ),
        pytest.param(
            {"fieldSelector": {"matchExpressions": [{"field": "a", "operator": "="}]}},
            "fieldSelector.matchExpressions[0].value: is required",
            id="field value",
        ),
        pytest.param(
            {
                "nameSelector": {"matchNames": ["x"]},
                "fieldSelector": {"matchExpressions": [{"field": "metadata.name", "operator": "=", "value": "x"}]},
            },
            "fieldSelector: metadata.name is not possible together with nameSelector",
            id="two names",
        ),
        pytest.param({"namespace": {}}, "namespace: needs nameSelector or labelSelector", id="namespace"),
    ],
)
def test_bad_selectors(fields: JsonObject, problem: str) -> None:
    assert problems(v1(kubernetes=[{"kind": "Pod", **fields}])) == [f"kubernetes[0].{problem}"]
