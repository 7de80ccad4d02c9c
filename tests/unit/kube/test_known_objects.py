"""What a handler receives of objects that are listed and watched again and again."""

from __future__ import annotations

import pytest

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.kube.informers.known_objects import KnownObjects
from addon_operator.kube.refs import CONFIG_MAPS, WatchEvent, metadata_of


def item(name: str, version: int, *, uid: str = "u", namespace: str = "n") -> JsonObject:
    place: JsonObject = {"namespace": namespace} if namespace else {}
    return {"metadata": {**place, "name": name, "uid": uid, "resourceVersion": str(version), "managedFields": []}}


class Received:
    """A handler; fails as often as it is told to."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []
        self.items: list[JsonObject] = []
        self.fails = 0
        self.undelivered = 0
        self.known = KnownObjects(CONFIG_MAPS, self._receive, self._count)

    def _receive(self, event: WatchEvent, document: JsonObject) -> None:
        metadata = metadata_of(document)
        self.events.append((event, str(metadata["uid"]), str(metadata["resourceVersion"])))
        self.items.append(document)
        if self.fails:
            self.fails -= 1
            raise RuntimeError("a bug in a handler")

    def _count(self) -> None:
        self.undelivered += 1


@pytest.mark.parametrize(
    ("states", "events"),
    [
        pytest.param([("u", 1)], [("Added", "u", "1")], id="new"),
        pytest.param([("u", 1), ("u", 1)], [("Added", "u", "1")], id="the same again"),
        pytest.param([("u", 1), ("u", 2)], [("Added", "u", "1"), ("Modified", "u", "2")], id="changed"),
        pytest.param([("u", 2), ("u", 1)], [("Added", "u", "2"), ("Modified", "u", "1")], id="an older state"),
        pytest.param(
            [("u", 1), ("v", 2)], [("Added", "u", "1"), ("Deleted", "u", "9"), ("Added", "v", "2")], id="made again"
        ),
        pytest.param([None], [], id="never seen"),
        pytest.param([("u", 1), None, None], [("Added", "u", "1"), ("Deleted", "u", "9")], id="gone"),
    ],
)
def test_only_differences_are_delivered(
    states: list[tuple[str, int] | None], events: list[tuple[str, str, str]]
) -> None:
    received = Received()
    for state in states:
        if state is None:
            received.known.remove_unseen("n/a", "9")
        else:
            assert received.known.put(item("a", state[1], uid=state[0]), "9") == "n/a"
    assert received.events == events


def test_objects_are_whole_and_lean() -> None:
    received = Received()
    received.known.put(item("a", 1), "")
    received.known.remove_unseen("n/a", "9")
    metadata: JsonObject = {"namespace": "n", "name": "a", "uid": "u", "resourceVersion": "1"}
    kind: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap"}
    assert received.items == [
        {**kind, "metadata": metadata},
        {**kind, "metadata": {**metadata, "resourceVersion": "9"}},
    ]


def test_objects_without_a_namespace() -> None:
    received = Received()
    assert received.known.put(item("a", 1, namespace=""), "") == "/a"
    received.known.remove_unseen("/a", "9")
    assert "namespace" not in metadata_of(received.items[-1])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(None, [("Added", "u", "2")], id="new"),
        pytest.param(("u", 1), [("Modified", "u", "2")], id="changed"),
        pytest.param(("t", 1), [("Deleted", "t", "9"), ("Added", "u", "2")], id="made again"),
    ],
)
def test_what_a_handler_fails_on_is_delivered_again(
    before: tuple[str, int] | None, after: list[tuple[str, str, str]]
) -> None:
    received = Received()
    if before is not None:
        received.known.put(item("a", before[1], uid=before[0]), "")
    received.events.clear()
    received.fails = 1
    received.known.put(item("a", 2), "9")
    assert (received.undelivered, received.events) == (1, after[:1])
    assert received.known.undelivered == {"n/a"}
    received.events.clear()
    received.known.put(item("a", 2), "9")
    received.known.put(item("a", 2), "9")
    assert (received.undelivered, received.events) == (1, after)
    assert not received.known.undelivered


def test_deletion_that_a_handler_fails_on_is_delivered_again() -> None:
    received = Received()
    received.known.put(item("a", 1), "")
    received.fails = 1
    received.known.remove("n/a", item("a", 2))
    assert list(received.known) == ["n/a"]
    received.known.remove_unseen("n/a", "9")
    assert received.events[1:] == [("Deleted", "u", "2"), ("Deleted", "u", "9")]
    assert list(received.known) == []
