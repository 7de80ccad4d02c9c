"""Taking rendered manifests apart."""

from __future__ import annotations

import pytest

from addon_operator.helm import manifest
from addon_operator.kube.refs import ObjectKey

TWO = """---
# Source: demo/templates/a.yaml
apiVersion: v1
kind: ConfigMap
metadata:
  name: one
---
# Source: demo/templates/b.yaml
apiVersion: apps/v1
kind: Deployment
metadata: {name: two, namespace: other}
"""
HOOK = "apiVersion: v1\nkind: Pod\nmetadata: {name: hook}"


def keys(text: str) -> list[ObjectKey]:
    return [one.key for one in manifest.objects(manifest.documents(text))]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("kind: A\n", id="no separator"),
        pytest.param("# comment\n---\nkind: A\n", id="text in front"),
        pytest.param(TWO, id="two"),
        pytest.param("---\n---\n\n---\na: |\n  x\n  ---\n  y\n", id="empty ones and a separator in a text"),
        pytest.param("--- # note\nkind: A\r\n---\r\nkind: B\r\n", id="carriage returns"),
    ],
)
def test_documents_joined_are_the_manifest(text: str) -> None:
    assert "".join(part.text for part in manifest.documents(text)) == text


def test_lists_objects_in_order() -> None:
    assert keys(TWO) == [ObjectKey("v1", "ConfigMap", "", "one"), ObjectKey("apps/v1", "Deployment", "other", "two")]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param("kind: List\nitems:\n- kind: A\n  metadata: {name: x}\n", ["x"], id="list"),
        pytest.param(
            "kind: List\nitems:\n- kind: PodList\n  items:\n  - kind: Pod\n    metadata: {name: y}\n",
            ["y"],
            id="nested",
        ),
        pytest.param("# only a comment\n", [], id="comment"),
        pytest.param("kind: A\nmetadata: {}\n", [], id="no name"),
        pytest.param("metadata: {name: x}\n", [], id="no kind"),
        pytest.param("kind: [\n", [], id="not YAML"),
        pytest.param("just text\n", [], id="a scalar"),
    ],
)
def test_finds_objects(text: str, names: list[str]) -> None:
    assert [key.name for key in keys(text)] == names


ITEMS = "kind: List\nitems:\n- &a\n  kind: A\n  metadata: {name: x}\n- kind: A\n  metadata: {name: y}\n- *a\n"
NESTED = (
    "kind: List\nitems:\n- kind: AList\n  items: [{kind: A, metadata: {name: x}}, {kind: A, metadata: {name: y}}]\n"
)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        pytest.param("kind: A\nmetadata: {name: y}\n---\nkind: A\nmetadata: {name: x}\n", ["y"], id="one of two"),
        pytest.param("kind: A\nmetadata: {name: x}\n", [], id="all"),
        pytest.param(ITEMS, ["y"], id="in a list"),
        pytest.param(NESTED, ["y"], id="in a list in a list"),
        pytest.param("kind: List\nitems: [{kind: A, metadata: {name: x}}]\n", [], id="a whole list"),
    ],
)
def test_takes_objects_out(text: str, left: list[str]) -> None:
    parts = manifest.documents(text)
    assert [key.name for key in keys(manifest.without(parts, lambda key: key.name == "x"))] == left
    assert manifest.without(parts, lambda _key: False) == text


def test_leaves_a_list_out_that_cannot_be_taken_apart() -> None:
    items = "- {kind: A, metadata: {name: x}}\n- {kind: A, metadata: {name: y}, b: !!binary aGk=}\n"
    text = f"---\n# Source: t.yaml\nkind: List\nitems:\n{items}"
    parts = manifest.documents(TWO + text)
    told: list[manifest.Document] = []
    assert manifest.without(parts, lambda key: key.name == "x", on_refused=told.append) == TWO
    assert [part.source for part in told] == ["t.yaml"]
    assert manifest.without(parts, lambda key: key.name == "one").endswith(text)


@pytest.mark.parametrize(
    ("text", "lasting"),
    [
        pytest.param(
            "kind: Job\nmetadata: {name: x}\nspec: {ttlSecondsAfterFinished: 5}\n", False, id="job with a limit"
        ),
        pytest.param("kind: Job\nmetadata: {name: x}\nspec: {}\n", True, id="job"),
        pytest.param("kind: A\nmetadata: {name: x}\nspec: {ttlSecondsAfterFinished: 5}\n", True, id="not a job"),
    ],
)
def test_knows_what_removes_itself(text: str, *, lasting: bool) -> None:
    assert [one.lasting for one in manifest.objects(manifest.documents(text))] == [lasting]


def digest(text: str, hooks: tuple[tuple[str, str], ...] = ()) -> str:
    return manifest.rendered_digest(manifest.documents(text), hooks)


def test_digest_is_the_same_for_template_and_upgrade() -> None:
    printed = f"{TWO}---\n# Source: demo/templates/h.yaml\n{HOOK}\n"
    assert digest(printed) == digest(TWO, (("demo/templates/h.yaml", HOOK),))


def test_digest_ignores_the_order() -> None:
    first, second = manifest.documents(TWO)
    assert digest(second.text + first.text) == digest(TWO)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(TWO.replace("one", "uno"), id="name"),
        pytest.param(TWO.replace("b.yaml", "c.yaml"), id="source"),
        pytest.param(TWO + "---\n# Source: x\nkind: A\n", id="one more"),
        pytest.param(TWO + TWO, id="twice"),
    ],
)
def test_digest_tells_renderings_apart(other: str) -> None:
    assert digest(other) != digest(TWO)


def test_digest_sees_a_change_of_a_hook() -> None:
    changed = HOOK.replace("Pod", "Job")
    assert digest(TWO, (("h", HOOK),)) != digest(TWO, (("h", changed),)) != digest(TWO)


def test_digest_fits_into_a_label() -> None:
    assert len(digest(TWO)) == manifest.DIGEST_CHARS < 64


def test_packs_and_unpacks_keys() -> None:
    found = (
        ObjectKey("v1", "ConfigMap", "", "a"),
        ObjectKey("v1", "ConfigMap", "ns", "b"),
        ObjectKey("apps/v1", "Deployment", "", "c"),
    )
    text = manifest.pack(found)
    assert text == '{"v1 ConfigMap":["a","ns/b"],"apps/v1 Deployment":["c"]}'
    assert manifest.unpack(text) == found


@pytest.mark.parametrize("text", ["", "[]", '{"v1 A": "x"}', '{"A": ["x"]}', "{"])
def test_refuses_what_it_did_not_pack(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 -- the message is the JSON library's in part
        manifest.unpack(text)
