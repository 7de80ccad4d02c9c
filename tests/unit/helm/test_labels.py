"""Labels put into manifests as text."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon_operator.documents import yamldoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.helm.labels import add_labels
from addon_operator.helm.manifest import documents

LABELS = {"heritage": "addon-operator", "example.com/on": "true"}


def labelled(text: str, labels: dict[str, str] | None = None) -> str:
    return add_labels(documents(text), LABELS if labels is None else labels)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            '---\n# Source: a\nkind: A\nmetadata:\n  name: x   # why\ndata: {a: "1e3", b: 0o7}\n',
            '---\n# Source: a\nkind: A\nmetadata:\n  labels:\n    "heritage": "addon-operator"\n'
            '    "example.com/on": "true"\n  name: x   # why\ndata: {a: "1e3", b: 0o7}\n',
            id="no labels",
        ),
        pytest.param(
            "kind: A\nmetadata:\n  name: x\n  labels:\n    a: b\n",
            'kind: A\nmetadata:\n  name: x\n  labels:\n    "heritage": "addon-operator"\n    "example.com/on": "true"\n'
            "    a: b\n",
            id="other labels",
        ),
        pytest.param(
            "kind: A\nmetadata:\n  labels:\n    heritage: Helm # who\n    example.com/on: yes\n  name: x\n",
            'kind: A\nmetadata:\n  labels:\n    heritage: "addon-operator" # who\n    example.com/on: "true"\n'
            "  name: x\n",
            id="same labels with other values",
        ),
        pytest.param(
            "kind: A\nmetadata: {name: x}\n",
            'kind: A\nmetadata: {"labels": {"heritage": "addon-operator", "example.com/on": "true"}, name: x}\n',
            id="flow",
        ),
        pytest.param(
            '{"kind": "A", "metadata": {"name": "x", "labels": {"a": "b"}}}\n',
            '{"kind": "A", "metadata": {"name": "x", "labels": '
            '{"heritage": "addon-operator", "example.com/on": "true", "a": "b"}}}\n',
            id="JSON",
        ),
        pytest.param(
            "kind: A\nmetadata:\n  labels: # none yet\n  name: x\n",
            'kind: A\nmetadata:\n  labels: {"heritage": "addon-operator", "example.com/on": "true"} # none yet\n'
            "  name: x\n",
            id="labels without value",
        ),
        pytest.param(
            "kind: A\nmetadata:\n  name: x\n  labels: {}",
            'kind: A\nmetadata:\n  name: x\n  labels: {"heritage": "addon-operator", "example.com/on": "true"}',
            id="empty labels at the end",
        ),
        pytest.param("# nothing\n", "# nothing\n", id="no document"),
        pytest.param("kind: [\n---\nkind: A\n", "kind: [\n---\nkind: A\n", id="not YAML, no metadata"),
        pytest.param(
            "kind: A\nmetadata:\n  name: x\n  labels: 5\n", "kind: A\nmetadata:\n  name: x\n  labels: 5\n", id="no map"
        ),
    ],
)
def test_changes_only_the_labels(before: str, after: str) -> None:
    assert labelled(before) == after


def test_labels_the_items_of_a_list() -> None:
    text = "kind: List\nitems:\n- kind: A\n  metadata:\n    name: ü😀\n- metadata: {name: b}\n  kind: B\n"
    value = yamldoc.load(labelled(text), "list").value
    assert isinstance(value, dict)
    assert isinstance(items := value["items"], list)
    assert [_labels(item) for item in items] == [LABELS, LABELS]
    assert "metadata" not in value


def test_labels_every_document() -> None:
    text = "kind: A\nmetadata:\n  name: a\n---\n\n---\nkind: B\nmetadata:\n  name: b\n"
    assert [_labels(value) for value in yamldoc.load_all(labelled(text), "x")] == [LABELS, LABELS]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "kind: A\nmetadata:\n  labels: &l\n    a: b\nspec: {selector: {matchLabels: *l}}\n", id="labels anchored"
        ),
        pytest.param(
            "kind: A\nspec: {selector: {matchLabels: &l {a: b}}}\nmetadata:\n  labels: *l\n", id="labels an alias"
        ),
        pytest.param(
            "kind: A\nspec: {selector: {matchLabels: &l {a: b}}}\nmetadata:\n  labels: {<<: *l}\n", id="labels merged"
        ),
    ],
)
def test_an_alias_elsewhere_does_not_get_the_labels(text: str) -> None:
    value = yamldoc.load(labelled(text), "x").value
    assert isinstance(value, dict)
    assert _labels(value) == {"a": "b", **LABELS}
    assert value["spec"] == {"selector": {"matchLabels": {"a": "b"}}}


def test_a_document_that_is_written_anew_keeps_its_source() -> None:
    before = "---\n# Source: demo/x.yaml\nkind: A\nmetadata:\n  ? name\n  : x\n"
    assert documents(labelled(before))[0].source == "demo/x.yaml"
    assert _labels(yamldoc.load(labelled(before), "x").value) == LABELS


def test_without_labels_nothing_changes() -> None:
    text = "kind: A\nmetadata:\n  ? name\n  : x\n"
    assert labelled(text, {}) == text


def test_labelled_twice_is_labelled_once() -> None:
    text = "kind: A\nmetadata:\n  name: x\n"
    assert labelled(labelled(text)) == labelled(text)


_texts = st.text(alphabet=string.ascii_letters + string.digits + " :#'\"{}[],&*!|>%@`üé\U0001f600-", max_size=12)
_scalars = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), _texts)
_values = st.recursive(
    _scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_texts, inner, max_size=3)),
    max_leaves=8,
)
_present = st.one_of(
    st.none(), st.dictionaries(st.sampled_from(["a", "heritage", "example.com/on", "ü"]), _texts, max_size=4)
)


@given(
    rest=st.dictionaries(
        _texts.filter(lambda key: key not in {"metadata", "items", "kind", "<<"}), _values, max_size=3
    ),
    name=_texts,
    present=_present,
    has_labels=st.booleans(),
    flow=st.sampled_from([True, False, None]),
)
def test_says_the_same_plus_the_labels(
    *, rest: JsonObject, name: str, present: dict[str, str] | None, has_labels: bool, flow: bool | None
) -> None:
    metadata: JsonObject = {
        "name": name,
        **({"labels": {**present} if present is not None else None} if has_labels else {}),
    }
    value: JsonObject = {"kind": "A", "metadata": metadata, **rest}
    text = _dump(value, flow)
    expected = {**value, "metadata": {**metadata, "labels": {**((present or {}) if has_labels else {}), **LABELS}}}
    assert yamldoc.load(labelled(text), "x").value == expected


def _dump(value: JsonObject, flow: bool | None) -> str:
    if flow is False:
        return yamldoc.dump(value)
    import yaml  # noqa: PLC0415 -- only for styles that the project itself does not write

    return yaml.safe_dump(value, default_flow_style=flow, allow_unicode=True)


def _labels(value: JsonValue) -> JsonValue:
    assert isinstance(value, dict)
    metadata = value["metadata"]
    assert isinstance(metadata, dict)
    return metadata["labels"]
