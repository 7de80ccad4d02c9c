"""Every row of contract.md 2.3: the document that a hook finds in BINDING_CONTEXT_PATH."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.hooks.config.model import (
    Admission,
    AdmissionKind,
    Conversion,
    HookConfig,
    Kubernetes,
    LifecycleKind,
    Schedule,
    Version,
)
from addon_operator.hooks.context import (
    Context,
    Convert,
    LifecycleContext,
    ObjectEvent,
    Review,
    Synchronization,
    Tick,
    allows_failure,
    binding_name,
    encode,
    group_of,
    split_to_fit,
)
from addon_operator.kube.informers.store import Item
from addon_operator.kube.refs import WatchEvent

EVENTS: Final[tuple[WatchEvent, ...]] = ("Added", "Modified", "Deleted")
PODS: Final = Kubernetes("pods", "Pod")
SEEN: Final = Kubernetes("seen", "Pod", include_snapshots_from=("seen", "nodes"), jq_filter=".metadata.name")
NODES: Final = Kubernetes("nodes", "Node", jq_filter=".a", keep_full_objects=False)
GROUPED: Final = Kubernetes("members", "Pod", group="g", include_snapshots_from=("members", "others"))
OTHERS: Final = Kubernetes("others", "Pod", group="g", include_snapshots_from=("members", "others"))
ALL: Final = (PODS, SEEN, NODES, GROUPED, OTHERS)

POD_A: Final = Item(b'{"metadata":{"name":"a"}}', None)
POD_B: Final = Item(b'{"metadata":{"name":"b"}}', None)
FILTERED: Final = Item(b'{"metadata":{"name":"c"}}', b'"c"')
RESULT: Final = Item(None, b"[1,2]")
ITEMS: Final[Mapping[str, Sequence[Item]]] = {
    "pods": (POD_A, POD_B),
    "seen": (FILTERED,),
    "nodes": (RESULT, Item(None, b"null")),
    "members": (POD_B,),
}
SHOWN: Final[dict[str, JsonValue]] = {
    "pods": [{"object": {"metadata": {"name": "a"}}}, {"object": {"metadata": {"name": "b"}}}],
    "seen": [{"object": {"metadata": {"name": "c"}}, "filterResult": "c"}],
    "nodes": [{"filterResult": [1, 2]}, {"filterResult": None}],
    "members": [{"object": {"metadata": {"name": "b"}}}],
    "others": [],
}
IN_GROUP: Final[JsonObject] = {
    "type": "Group",
    "groupName": "g",
    "snapshots": {"members": SHOWN["members"], "others": []},
}
SEES: Final[JsonObject] = {"snapshots": {"seen": SHOWN["seen"], "nodes": SHOWN["nodes"]}}
REQUEST: Final[JsonObject] = {"uid": "1", "object": {"a": None}}


def tick(name: str = "hourly", *, include: tuple[str, ...] = (), group: str = "", allow_failure: bool = False) -> Tick:
    return Tick(Schedule(name, "0 * * * *", allow_failure, "main", include, group))


def event(
    binding: Kubernetes,
    watch_event: WatchEvent = "Added",
    result: bytes | None = None,
    document: bytes = b'{"kind":"Pod"}',
) -> ObjectEvent:
    return ObjectEvent(binding, watch_event, document, result, kind="Pod", namespace="ns", name="a")


def admission(kind: AdmissionKind, *, include: tuple[str, ...] = (), group: str = "") -> Review:
    binding = Admission(kind, "a.b.example", (), "Fail", "None", 10, (), None, None, include, group)
    return Review(binding, REQUEST)


def conversion(*, include: tuple[str, ...] = ()) -> Convert:
    return Convert(Conversion("convert", "x.example", (("v1", "v2"),), include, ""), "v1", "v2", REQUEST)


def document(
    *contexts: Context,
    kubernetes: tuple[Kubernetes, ...] = ALL,
    items: Mapping[str, Sequence[Item]] = ITEMS,
    version: Version = "v1",
) -> list[JsonObject]:
    config = HookConfig(version, kubernetes=kubernetes)
    text = b"".join(encode(contexts, config, lambda binding: items.get(binding.name, ())))
    read: list[JsonObject] = json.loads(text)
    return read


AROUND: Final[tuple[LifecycleKind, ...]] = (
    "beforeAll", "afterAll", "beforeHelm", "afterHelm", "beforeDeleteHelm", "afterDeleteHelm",
)  # fmt: skip


@pytest.mark.parametrize("kind", AROUND)
def test_lifecycle_contexts_have_all_snapshots_and_no_type(kind: LifecycleKind) -> None:
    assert document(LifecycleContext(kind)) == [{"binding": kind, "snapshots": SHOWN}]
    assert document(LifecycleContext(kind), kubernetes=()) == [{"binding": kind, "snapshots": {}}]


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        pytest.param(LifecycleContext("onStartup"), {"binding": "onStartup"}, id="onStartup"),
        pytest.param(tick(), {"binding": "hourly", "type": "Schedule"}, id="schedule"),
        pytest.param(
            tick(include=("nodes", "pods")),
            {
                "binding": "hourly",
                "type": "Schedule",
                "snapshots": {"nodes": SHOWN["nodes"], "pods": SHOWN["pods"]},
            },
            id="schedule with snapshots",
        ),
        pytest.param(
            Synchronization(PODS),
            {"binding": "pods", "type": "Synchronization", "objects": SHOWN["pods"]},
            id="Synchronization",
        ),
        pytest.param(
            Synchronization(NODES),
            {"binding": "nodes", "type": "Synchronization", "objects": SHOWN["nodes"]},
            id="Synchronization of filter results",
        ),
        pytest.param(
            Synchronization(SEEN),
            {"binding": "seen", "type": "Synchronization", "objects": SHOWN["seen"], **SEES},
            id="Synchronization with snapshots, its own too",
        ),
        pytest.param(
            event(PODS),
            {"binding": "pods", "type": "Event", "watchEvent": "Added", "object": {"kind": "Pod"}},
            id="Event",
        ),
        pytest.param(
            event(SEEN, "Modified", b'{"a":1}'),
            {
                "binding": "seen",
                "type": "Event",
                "watchEvent": "Modified",
                "object": {"kind": "Pod"},
                "filterResult": {"a": 1},
                **SEES,
            },
            id="Event with filter result and snapshots",
        ),
        pytest.param(
            event(NODES, "Deleted", b"null"),
            {
                "binding": "nodes",
                "type": "Event",
                "watchEvent": "Deleted",
                "object": {"kind": "Pod"},
                "filterResult": None,
            },
            id="Event has its object even if it is not kept",
        ),
        pytest.param(Synchronization(GROUPED), {"binding": "members", **IN_GROUP}, id="group, Synchronization"),
        pytest.param(event(OTHERS), {"binding": "others", **IN_GROUP}, id="group, Event"),
        pytest.param(
            tick(include=("members", "others"), group="g"), {"binding": "hourly", **IN_GROUP}, id="group, schedule"
        ),
        pytest.param(
            tick(group="lonely"),
            {"binding": "hourly", "type": "Group", "groupName": "lonely"},
            id="group without objects",
        ),
        pytest.param(
            admission("kubernetesValidating"),
            {"binding": "a.b.example", "type": "Validating", "review": {"request": REQUEST}},
            id="validating",
        ),
        pytest.param(
            admission("kubernetesMutating", include=("members",), group="g"),
            {
                "binding": "a.b.example",
                "type": "Mutating",
                "review": {"request": REQUEST},
                "snapshots": {"members": SHOWN["members"]},
            },
            id="mutating, whose group only gives snapshots",
        ),
        pytest.param(
            conversion(include=("nodes",)),
            {
                "binding": "convert",
                "type": "Conversion",
                "fromVersion": "v1",
                "toVersion": "v2",
                "review": {"request": REQUEST},
                "snapshots": {"nodes": SHOWN["nodes"]},
            },
            id="conversion",
        ),
    ],
)
def test_one_context(context: Context, expected: JsonObject) -> None:
    (shown,) = document(context)
    assert shown == expected
    assert json.dumps(shown.get("snapshots")) == json.dumps(expected.get("snapshots"))  # the order of names, too


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        pytest.param(LifecycleContext("onStartup"), {"binding": "onStartup"}, id="onStartup"),
        pytest.param(LifecycleContext("beforeHelm"), {"binding": "beforeHelm"}, id="beforeHelm"),
        pytest.param(tick("s"), {"binding": "s"}, id="schedule"),
        *(
            pytest.param(
                event(PODS, new),
                {
                    "binding": "pods",
                    "resourceEvent": old,
                    "resourceNamespace": "ns",
                    "resourceKind": "Pod",
                    "resourceName": "a",
                },
                id=old,
            )
            for new, old in zip(EVENTS, ("add", "update", "delete"), strict=True)
        ),
    ],
)
def test_v0(context: Context, expected: JsonObject) -> None:
    assert document(context, version="v0") == [expected]


def test_several_contexts_keep_their_order() -> None:
    shown = document(event(PODS, "Deleted"), tick(), event(PODS, "Added"), event(OTHERS))
    assert [(one["binding"], one.get("watchEvent")) for one in shown] == [
        ("pods", "Deleted"), ("hourly", None), ("pods", "Added"), ("others", None),
    ]  # fmt: skip


def test_no_contexts_are_an_empty_list() -> None:
    assert document() == []


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        pytest.param(POD_A, {"object": {"metadata": {"name": "a"}}}, id="object"),
        pytest.param(RESULT, {"filterResult": [1, 2]}, id="filter result"),
        pytest.param(FILTERED, {"object": {"metadata": {"name": "c"}}, "filterResult": "c"}, id="both"),
        pytest.param(Item(None, b"null"), {"filterResult": None}, id="a filter without output"),
        pytest.param(Item(None, None), {}, id="nothing is kept"),
    ],
)
def test_items(item: Item, expected: JsonObject) -> None:
    (shown,) = document(Synchronization(PODS), items={"pods": (item, item)})
    assert shown["objects"] == [expected, expected]


def test_an_empty_list_is_written() -> None:
    (shown,) = document(Synchronization(SEEN), items={})
    assert (shown["objects"], shown["snapshots"]) == ([], {"seen": [], "nodes": []})


@pytest.mark.parametrize("first", [(), (POD_A,)], ids=["the first is empty", "both have some"])
def test_bindings_of_one_name_share_a_snapshot(first: tuple[Item, ...]) -> None:
    twins = (Kubernetes("same", "Pod"), Kubernetes("same", "Node"), PODS)
    found = {"Pod": first, "Node": (POD_B, POD_B)}
    config = HookConfig("v1", kubernetes=twins)
    text = b"".join(
        encode(
            [LifecycleContext("beforeHelm")],
            config,
            lambda binding: () if binding is PODS else found[binding.kind],
        )
    )
    a, b = ({"object": {"metadata": {"name": name}}} for name in "ab")
    assert json.loads(text)[0]["snapshots"] == {"same": [a, b, b] if first else [b, b], "pods": []}


def test_names_are_written_as_json() -> None:
    odd = 'say "häh"\\\n'
    binding = Kubernetes(odd, "Pod", include_snapshots_from=(odd,))
    (shown,) = document(Synchronization(binding), kubernetes=(binding,))
    assert (shown["binding"], shown["snapshots"]) == (odd, {odd: []})


def test_all_contexts_of_a_run_show_the_same_moment() -> None:
    asked: list[str] = []

    def items(binding: Kubernetes) -> Sequence[Item]:
        asked.append(binding.name)
        return [Item(None, str(len(asked)).encode())]

    contexts: list[Context] = [
        Synchronization(SEEN),
        event(SEEN),
        tick(include=("nodes",)),
        event(SEEN),
        Synchronization(NODES),
    ]
    shown = json.loads(b"".join(encode(contexts, HookConfig("v1", kubernetes=ALL), items)))
    assert sorted(asked) == ["nodes", "seen"]
    assert shown[0]["objects"] == shown[0]["snapshots"]["seen"] == shown[3]["snapshots"]["seen"]
    assert shown[2]["snapshots"]["nodes"] == shown[4]["objects"]


def test_snapshots_that_are_not_shown_are_not_asked_for() -> None:
    def items(binding: Kubernetes) -> Sequence[Item]:
        raise AssertionError(binding.name)

    encode([LifecycleContext("onStartup"), event(PODS), tick()], HookConfig("v1", kubernetes=ALL), items)


def test_objects_are_handed_on_as_they_are_and_not_copied() -> None:
    config = HookConfig("v1", kubernetes=ALL)
    pieces = encode([Synchronization(SEEN), event(PODS, document=b"{  }")], config, lambda binding: (FILTERED,))
    assert sum(piece is FILTERED.object for piece in pieces) == 3  # `objects` and two snapshots
    assert b"{  }" in pieces


def test_a_binding_that_the_hook_does_not_have_any_more_shows_nothing() -> None:
    (shown,) = document(Synchronization(SEEN), kubernetes=(PODS,), items={"pods": (POD_A,)})
    assert shown == {
        "binding": "seen",
        "type": "Synchronization",
        "objects": [],
        "snapshots": {"seen": [], "nodes": []},
    }


def test_what_contexts_say_about_their_binding() -> None:
    lenient = Kubernetes("pods", "Pod", allow_failure=True, group="g")
    contexts: list[Context] = [
        LifecycleContext("beforeHelm"), Synchronization(lenient), event(lenient), tick(allow_failure=True),
        tick(group="t"), admission("kubernetesMutating"), conversion(),
    ]  # fmt: skip
    assert [(binding_name(one), group_of(one), allows_failure(one)) for one in contexts] == [
        ("beforeHelm", "", False), ("pods", "g", True), ("pods", "g", True), ("hourly", "", True),
        ("hourly", "t", False), ("a.b.example", "", False), ("convert", "", False),
    ]  # fmt: skip


def test_objects_and_requests_are_not_in_the_printed_form() -> None:
    shown = [event(PODS, "Added", b"secret", b"secret"), admission("kubernetesMutating"), conversion()]
    assert "secret" not in repr(shown)
    assert "uid" not in repr(shown)


BYTES = st.sampled_from([b"{}", b'{"a":[1,{}]}', b"null", b'"\\u00e4"', b"[]"])
SNAPSHOT = st.lists(st.builds(Item, st.none() | BYTES, st.none() | BYTES), max_size=3)
WATCHED = st.lists(
    st.builds(
        Kubernetes,
        st.text(max_size=3),
        st.just("Pod"),
        group=st.sampled_from(["", "g"]),
        include_snapshots_from=st.lists(st.text(max_size=3), max_size=3, unique=True).map(tuple),
    ),
    min_size=1,
    max_size=3,
).map(tuple)


@st.composite
def mixes(draw: st.DrawFn) -> tuple[HookConfig, list[Context], dict[int, list[Item]]]:
    watched = draw(WATCHED)
    version: Version = draw(st.sampled_from(["v0", "v1"]))
    binding = st.sampled_from(watched)
    kinds: tuple[LifecycleKind, ...] = ("onStartup", *AROUND)
    context: st.SearchStrategy[Context] = st.one_of(
        st.sampled_from(kinds).map(LifecycleContext),
        binding.map(Synchronization),
        st.builds(event, binding, st.sampled_from(EVENTS), st.none() | BYTES, BYTES),
        st.builds(tick, st.text(max_size=3), include=st.lists(st.text(max_size=3), max_size=2).map(tuple)),
        st.sampled_from([admission("kubernetesValidating"), conversion()]),
    )
    snapshots = {id(one): draw(SNAPSHOT) for one in watched}
    return HookConfig(version, kubernetes=watched), draw(st.lists(context, max_size=6)), snapshots


@settings(max_examples=30)
@given(mixes())
def test_any_mix_of_contexts_is_json_with_one_entry_for_each(
    mix: tuple[HookConfig, list[Context], dict[int, list[Item]]],
) -> None:
    config, contexts, snapshots = mix
    shown = json.loads(b"".join(encode(contexts, config, lambda binding: snapshots[id(binding)])))
    assert [one["binding"] for one in shown] == [binding_name(context) for context in contexts]


@pytest.mark.parametrize(
    ("contexts", "size", "expected"),
    [
        pytest.param([tick()], 10**12, 1, id="at least one"),
        pytest.param([tick()] * 3, 10**12, 3, id="snapshots that are not included do not count"),
        pytest.param([tick(include=("pods",))] * 10, 20 * 2**20, 3, id="each context repeats what it includes"),
        pytest.param([tick(include=("pods",))] * 10, 0, 10, id="small"),
        pytest.param([LifecycleContext("beforeHelm")], 10**12, 1, id="lifecycle"),
        pytest.param([tick()] * 5000, 0, 1000, id="many"),
    ],
)
def test_what_fits_into_one_run(contexts: list[Context], size: int, expected: int) -> None:
    config = HookConfig("v1", kubernetes=(Kubernetes("pods", "Pod"),))
    fitting, rest = split_to_fit(contexts, config, lambda _: size)
    assert (len(fitting), [*fitting, *rest]) == (expected, contexts)
