"""Each binding context of contract.md 2.3 as an object."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from addon_operator import sdk
from addon_operator.sdk import contexts

POD: sdk.JsonObject = {"metadata": {"name": "a"}}
REVIEW: sdk.JsonObject = {"request": {"uid": "1", "objects": [POD]}}

CONTEXTS: Mapping[str, tuple[sdk.JsonObject, sdk.BindingContext]] = {
    "onStartup": ({"binding": "onStartup"}, sdk.AtPoint("onStartup")),
    "beforeHelm": ({"binding": "beforeHelm", "snapshots": {}}, sdk.AtPoint("beforeHelm")),
    "schedule": ({"binding": "hourly", "type": "Schedule"}, sdk.AtTime("hourly")),
    "schedule without type": ({"binding": "hourly"}, sdk.AtTime("hourly")),
    "schedule named like a point": ({"binding": "beforeHelm", "type": "Schedule"}, sdk.AtTime("beforeHelm")),
    "synchronization": (
        {"binding": "pods", "type": "Synchronization", "objects": [{"object": POD, "filterResult": 1}]},
        sdk.Synchronization("pods", (sdk.Item(POD, 1),)),
    ),
    "empty synchronization": (
        {"binding": "pods", "type": "Synchronization", "objects": []},
        sdk.Synchronization("pods", ()),
    ),
    "event": (
        {"binding": "pods", "type": "Event", "watchEvent": "Deleted", "object": POD, "filterResult": [1]},
        sdk.Event("pods", "Deleted", sdk.Item(POD, [1])),
    ),
    "v0 event": (
        {"binding": "pods", "resourceEvent": "update", "resourceName": "a"},
        sdk.Event("pods", "Modified", sdk.Item({})),
    ),
    "group": (
        {"binding": "pods", "type": "Group", "groupName": "g", "snapshots": {}},
        sdk.Group("pods", "g"),
    ),
    "group without name": ({"binding": "g", "type": "Group", "snapshots": {}}, sdk.Group("g", "g")),
    "validating": (
        {"binding": "a.b.c", "type": "Validating", "review": REVIEW},
        sdk.Review("a.b.c", mutating=False, request={"uid": "1", "objects": [POD]}),
    ),
    "mutating": (
        {"binding": "a.b.c", "type": "Mutating", "review": REVIEW},
        sdk.Review("a.b.c", mutating=True, request={"uid": "1", "objects": [POD]}),
    ),
    "conversion": (
        {"binding": "tabs", "type": "Conversion", "fromVersion": "x/v1", "toVersion": "x/v2", "review": REVIEW},
        sdk.ConversionReview("tabs", "x/v1", "x/v2", (POD,)),
    ),
}


@pytest.mark.parametrize(("document", "expected"), CONTEXTS.values(), ids=CONTEXTS)
def test_contexts(document: sdk.JsonObject, expected: sdk.BindingContext) -> None:
    assert contexts.read_context(document) == expected


@pytest.mark.parametrize(
    "document",
    [{"binding": "x", "type": "Surprise"}, {"binding": "x", "type": "Event", "watchEvent": "Bookmark"}],
    ids=["type", "event"],
)
def test_unknown(document: sdk.JsonObject) -> None:
    with pytest.raises(ValueError, match=r"unknown|no event"):
        contexts.read_context(document)


def _context(*documents: sdk.JsonObject, watched: tuple[str, ...] = ()) -> sdk.Context:
    files: sdk.JsonObject = {"BINDING_CONTEXT_PATH": list(documents)}
    return sdk.Context(files.__getitem__, watched=watched)


def test_several_contexts_in_order() -> None:
    context = _context({"binding": "onStartup"}, {"binding": "hourly"})
    assert context.bindings == (sdk.AtPoint("onStartup"), sdk.AtTime("hourly"))


def test_snapshots_of_all_contexts() -> None:
    context = _context(
        {"binding": "x", "snapshots": {"pods": [{"filterResult": 1}]}},
        {"binding": "y", "snapshots": {"pods": [{"filterResult": 1}], "nodes": [{"object": POD}]}},
        watched=("pods", "nodes", "secrets"),
    )
    assert context.snapshots == {"pods": (sdk.Item({}, 1),), "nodes": (sdk.Item(POD),)}
    assert "secrets" not in context.snapshots
    words = r"^this run, for x, y, was not given the snapshot 'secrets': .* include_snapshots_from=\['secrets'\]$"
    with pytest.raises(LookupError, match=words):
        context.snapshots["secrets"]


def test_snapshot_of_a_binding_that_is_not_there() -> None:
    with pytest.raises(KeyError):
        _context({"binding": "onStartup"}, watched=("pods",)).snapshots["pod"]


def test_contexts_that_are_none() -> None:
    with pytest.raises(TypeError, match="BINDING_CONTEXT_PATH holds no list"):
        _ = sdk.Context(lambda variable: {"not": "a list"}).bindings


@pytest.mark.parametrize(
    ("values", "name"),
    [({"global": {}, "l2LoadBalancer": {}}, "l2-load-balancer"), ({"global": {}}, None)],
    ids=["module", "global"],
)
def test_module(values: sdk.JsonObject, name: str | None) -> None:
    context = sdk.Context(lambda variable: values)
    context.values["otherEnabled"] = True
    assert context.module == name


def test_objects_are_not_shown_in_messages() -> None:
    item = sdk.Item({"data": {"password": "hunter2"}}, "hunter2")
    assert "hunter2" not in repr(sdk.Event("x", "Added", item))


def test_what_an_item_says_of_its_object() -> None:
    item = sdk.Item({"metadata": {"name": "p", "namespace": "n"}, "spec": {"replicas": 3}})
    assert (item.name, item.namespace, item.expect("spec.replicas", int)) == ("p", "n", 3)
    assert sdk.Item(POD).namespace is None
    with pytest.raises(TypeError, match="/spec/replicas is int, not str"):
        item.expect("spec.replicas", str)
    with pytest.raises(KeyError, match="/metadata/name"):
        _ = sdk.Item({}, "kept").name
