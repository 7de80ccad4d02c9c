"""The gate between what a binding watches and what its hook hears; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import LogCapture

from addon_operator.bindings.kubernetes import BindingMonitors
from addon_operator.errors import KubeError
from addon_operator.hooks.call import HookId
from addon_operator.hooks.compaction import MOST_CONTEXTS
from addon_operator.hooks.config.model import Conversion, HookConfig, Kubernetes, Lifecycle, LifecycleKind
from addon_operator.hooks.context import ObjectEvent, Synchronization
from addon_operator.hooks.hook import Hook
from addon_operator.kube.informers.monitor import WatchSpec
from addon_operator.kube.informers.store import Item
from addon_operator.kube.refs import ObjectKey, WatchEvent
from addon_operator.metrics.operator import Metrics
from tests.fakes import clock
from tests.fakes.monitors import FakeMonitor, FakeMonitors

PODS, NODES = Kubernetes("pods", "Pod"), Kubernetes("nodes", "Node", api_version="v1")
CONVERSION = Conversion("conversions", "crontabs.stable.example.com", (("v1", "v2"),), (), "main")
MISSING = "the API server does not serve the kind Node"


def hook(*bindings: Kubernetes, name: str = "hooks/x", module: str | None = "m") -> Hook:
    return Hook(HookId(module, name), Path("/hooks/x"), HookConfig("v1", kubernetes=bindings))


class Bench:
    """Monitors of hooks over fakes, and what they told.

    Attributes:
        takes_late: whether a Synchronization that comes late is run.
    """

    def __init__(self, *, lists_at_once: bool = True) -> None:
        self.takes_late = True
        self.events: list[str] = []
        self.whole: list[ObjectEvent] = []
        self.late: list[str] = []
        self.warned: list[tuple[ObjectKey, str, str]] = []
        self.metrics = Metrics()
        self.fakes = FakeMonitors(lists_at_once=lists_at_once)
        self.monitors = BindingMonitors(self.fakes, self.metrics.bindings, events=self, warn=self._warn)

    def object_changed(self, hook: Hook, event: ObjectEvent) -> None:
        assert event.kind == "Pod"
        assert event.namespace == "ns"
        self.whole.append(event)
        self.events.append(f"{event.binding.name}: {event.watch_event} {event.name}")

    def synchronization_due(self, hook: Hook, context: Synchronization) -> bool:
        self.late.append(context.binding.name)
        return self.takes_late

    def _warn(self, about: ObjectKey, reason: str, message: str) -> None:
        self.warned.append((about, reason, message))

    def __getitem__(self, binding: str) -> FakeMonitor:
        (found,) = (one for title, one in self.fakes.started.items() if f"binding {binding}," in title)
        return found

    async def synchronize(self, *hooks: Hook) -> list[str]:
        return [context.binding.name for _, context in await self.monitors.synchronize(hooks)]

    def outstanding(self, *hooks: Hook) -> list[str]:
        return [context.binding.name for _, context in self.monitors.outstanding(hook.id for hook in hooks)]

    def heard(self) -> list[str]:
        heard, self.events = self.events, []
        return heard

    def samples(self, name: str) -> dict[tuple[str, ...], float]:
        text = self.metrics.render().decode().replace(" counter\n", " untyped\n")
        return {
            tuple(sample.labels.values()): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == f"addon_operator_{name}"
        }


Scenario = Callable[[Bench], Coroutine[object, object, None]]


def play(scenario: Scenario, *, lists_at_once: bool = True) -> Bench:
    async def main() -> Bench:
        bench = Bench(lists_at_once=lists_at_once)
        await scenario(bench)
        return bench

    return clock.run(main())


# --- the gate -------------------------------------------------------------------------------------------------------


def test_events_before_the_synchronization_are_in_the_snapshot_only() -> None:
    async def scenario(bench: Bench) -> None:
        one = hook(PODS)
        bench.monitors.start(one)
        bench["pods"].change("Added", "a")
        await bench.synchronize(one)
        bench.monitors.open(one, [PODS])

    assert play(scenario).events == []


def test_events_wait_in_order_until_the_synchronization_is_over_and_flow_then() -> None:
    async def scenario(bench: Bench) -> None:
        one = hook(PODS)
        await bench.synchronize(one)
        bench["pods"].change("Added", "a")
        bench["pods"].change("Deleted", "b")
        bench["pods"].change("Modified", "a")
        assert bench.heard() == []
        bench.monitors.open(one, [PODS])
        assert bench.heard() == ["pods: Added a", "pods: Deleted b", "pods: Modified a"]
        bench["pods"].change("Deleted", "a")
        assert bench.heard() == ["pods: Deleted a"]

    play(scenario)


def test_each_binding_has_a_gate_of_its_own() -> None:
    async def scenario(bench: Bench) -> None:
        one = hook(PODS, NODES)
        await bench.synchronize(one)
        bench["pods"].change("Added", "a")
        bench["nodes"].change("Added", "n")
        bench.monitors.open(one, [NODES])
        assert bench.heard() == ["nodes: Added n"]
        bench.monitors.open(one, [PODS, NODES])
        assert bench.heard() == ["pods: Added a"]

    play(scenario)


def test_a_synchronization_that_was_not_asked_for_opens_nothing() -> None:
    """Such as one from before the hook's file changed: the new one must not be lost for it."""

    async def scenario(bench: Bench) -> None:
        one = hook(PODS)
        bench.monitors.start(one)
        bench.monitors.open(one, [PODS])
        bench["pods"].change("Added", "a")
        assert await bench.synchronize(one) == ["pods"]

    assert play(scenario).events == []


@pytest.mark.parametrize(
    "wanted", [(), ("Added",), ("Modified", "Deleted")], ids=["none", "Added", "Modified and Deleted"]
)
def test_only_chosen_events_are_heard(wanted: tuple[WatchEvent, ...]) -> None:
    binding = Kubernetes("pods", "Pod", events=wanted)
    kinds: tuple[WatchEvent, ...] = ("Added", "Modified", "Deleted")

    async def scenario(bench: Bench) -> None:
        await bench.synchronize(hook(binding))
        for kind in kinds:
            bench["pods"].change(kind, "held")
        bench.monitors.open(hook(binding), [binding])
        for kind in kinds:
            bench["pods"].change(kind, "open")

    assert play(scenario).events == [f"pods: {kind} {gate}" for gate in ("held", "open") for kind in wanted]


def test_an_event_carries_what_the_monitor_saw() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.synchronize(hook(PODS))
        bench.monitors.open(hook(PODS), [PODS])
        bench["pods"].change("Modified", "a", b'"r"')

    assert play(scenario).whole == [
        ObjectEvent(PODS, "Modified", b'{"name":"a"}', b'"r"', kind="Pod", namespace="ns", name="a"),
    ]


def test_a_flood_of_held_events_is_compacted_object_by_object() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.synchronize(hook(PODS))
        for number in range(MOST_CONTEXTS + 1):
            bench["pods"].change("Modified", "ab"[number % 2])
        bench["pods"].change("Deleted", "b")
        bench.monitors.open(hook(PODS), [PODS])

    assert play(scenario).events == ["pods: Modified b", "pods: Modified a", "pods: Deleted b"]


# --- the Synchronization --------------------------------------------------------------------------------------------


def test_synchronizations_come_hook_by_hook_in_the_order_of_bindings_until_they_are_over() -> None:
    first, second = hook(PODS, NODES), hook(Kubernetes("more", "Pod"), name="hooks/y")

    async def scenario(bench: Bench) -> None:
        assert await bench.synchronize(first, hook(name="hooks/none"), second) == ["pods", "nodes", "more"]
        bench.monitors.open(first, [PODS])
        assert await bench.synchronize(first, second) == bench.outstanding(first, second) == ["nodes", "more"]
        assert bench.outstanding(second) == ["more"]
        bench.monitors.open(second, second.config.kubernetes)
        bench.monitors.open(first, [NODES])
        assert await bench.synchronize(first, second) == bench.outstanding(first, second) == []

    assert len(play(scenario).fakes.started) == 3


def test_it_waits_until_everything_is_listed() -> None:
    async def scenario(bench: Bench) -> None:
        asked = asyncio.create_task(bench.synchronize(hook(PODS, NODES)), name="synchronize")
        await asyncio.sleep(1)
        bench["pods"].list()
        await asyncio.sleep(1)
        assert not asked.done()
        bench["nodes"].list()
        assert await asked == ["pods", "nodes"]

    play(scenario, lists_at_once=False)


def test_a_server_that_does_not_answer_is_named_with_the_binding_and_nothing_is_lost() -> None:
    async def scenario(bench: Bench) -> None:
        loop = asyncio.get_running_loop()
        starting = asyncio.create_task(bench.synchronize(hook(PODS, NODES, module=None)), name="start")
        await asyncio.sleep(1)
        bench["nodes"].last_error = KubeError("GET /nodes: 500", status=500, reason="InternalError")
        with pytest.raises(KubeError) as caught:
            await starting
        assert str(caught.value).splitlines() == [
            "global hook hooks/x, binding pods, kubernetes[0]: not listed within 60 s",
            "global hook hooks/x, binding nodes, kubernetes[1]: not listed within 60 s: GET /nodes: 500",
        ]
        assert loop.time() == 60
        for binding in ("pods", "nodes"):
            bench[binding].list()
        assert await bench.synchronize(hook(PODS, NODES, module=None)) == ["pods", "nodes"]

    assert len(play(scenario, lists_at_once=False).fakes.started) == 2


@pytest.mark.parametrize(
    ("waits", "answers"), [(True, [False, False, True]), (False, [True, True, True])], ids=["waited for", "not"]
)
def test_whether_the_synchronization_is_over(waits: bool, answers: list[bool]) -> None:
    one = hook(binding := Kubernetes("pods", "Pod", wait_for_synchronization=waits))
    found: list[bool] = []

    async def scenario(bench: Bench) -> None:
        bench.monitors.start(one)
        found.append(bench.monitors.synchronized([one.id]))
        await bench.synchronize(one)
        found.append(bench.monitors.synchronized([one.id]))
        bench.monitors.open(one, [binding])
        found.append(bench.monitors.synchronized([one.id]))

    play(scenario)
    assert found == answers


def test_hooks_that_watch_nothing_are_synchronized() -> None:
    async def scenario(bench: Bench) -> None:
        assert await bench.synchronize(hook()) == []
        assert bench.monitors.synchronized([hook().id, HookId("m", "hooks/unknown")])

    play(scenario)


def test_the_synchronization_of_another_file_of_that_name_opens_nothing() -> None:
    former, one = hook(PODS), Hook(hook().id, Path("/hooks/x"), HookConfig("v1", (), (), (PODS,), timeout_s=7))

    async def scenario(bench: Bench) -> None:
        await bench.synchronize(one)
        bench.monitors.open(former, [PODS])
        assert bench.outstanding(one) == ["pods"]
        bench.monitors.open(one, [PODS])
        assert bench.outstanding(one) == []

    play(scenario)


def test_what_is_closed_forgets_what_it_held_and_begins_anew_with_the_same_snapshot() -> None:
    async def scenario(bench: Bench) -> None:
        one = hook(PODS, NODES)
        await bench.synchronize(one)
        bench.monitors.open(one, [NODES])
        monitors = bench["pods"], bench["nodes"]
        monitors[0].snapshot = [Item(b"{}", None)]
        monitors[0].change("Added", "held")
        bench.monitors.close([one.id, HookId("m", "hooks/unknown")])
        for monitor in monitors:
            monitor.change("Added", "closed")
        assert bench.outstanding(one) == []
        assert not bench.monitors.synchronized([one.id])
        assert bench.monitors.items(one.id, PODS) == [Item(b"{}", None)]

        bench.monitors.open(one, [PODS])  # the run of before is over only now
        assert await bench.synchronize(one) == ["pods", "nodes"]
        bench.monitors.open(one, [PODS, NODES])
        monitors[0].change("Added", "after")
        assert monitors == (bench["pods"], bench["nodes"])

    assert play(scenario).events == ["pods: Added after"]


@pytest.mark.parametrize("converts", [False, True], ids=["nothing to convert", "conversions"])
def test_lists_that_may_need_a_conversion_of_our_own_are_not_begun_before_it_is_served(converts: bool) -> None:
    async def scenario(bench: Bench) -> None:
        conversions = (CONVERSION,) if converts else ()
        other = Hook(HookId(None, "other"), Path("/other"), HookConfig("v1", conversions=conversions))
        one = hook(PODS, module=None)
        bench.monitors.start_early([one, other])
        assert len(bench.fakes.started) == (0 if converts else 1)
        assert await bench.synchronize(one) == ["pods"]

    play(scenario)


def test_snapshots_can_be_had_without_any_synchronization() -> None:
    async def scenario(bench: Bench) -> None:
        one, other = hook(PODS), hook(NODES, name="hooks/y")
        asked = asyncio.create_task(bench.monitors.listed([one, other]), name="listed")
        await asyncio.sleep(1)
        bench["pods"].list()
        await asyncio.sleep(1)
        assert not asked.done()
        bench["nodes"].block(MISSING)
        await asked
        bench["pods"].change("Added", "a")
        assert bench.outstanding(one, other) == []
        bench["nodes"].list()
        await asyncio.sleep(1)

    bench = play(scenario, lists_at_once=False)
    assert (bench.events, bench.late) == ([], [])


def test_progress_is_told_when_something_is_asked_for_that_nobody_waits_for() -> None:
    async def scenario(bench: Bench) -> None:
        progress = bench.monitors.next_progress()
        await bench.synchronize(hook(Kubernetes("pods", "Pod", wait_for_synchronization=False)))
        assert progress.is_set()

    play(scenario)


def test_progress_is_told_when_a_gate_opens_a_binding_is_blocked_or_hooks_end() -> None:
    async def scenario(bench: Bench) -> None:
        one = hook(PODS)
        await bench.synchronize(one)
        steps: list[Callable[[], object]] = [
            lambda: bench["pods"].block(MISSING),
            lambda: bench["pods"].block(None),
            lambda: bench.monitors.open(one, [PODS]),
            lambda: bench.monitors.stop([one.id]),
        ]
        for step in steps:
            progress = bench.monitors.next_progress()
            assert not progress.is_set()
            step()
            assert progress.is_set()

    play(scenario)


# --- bindings that cannot watch -------------------------------------------------------------------------------------


def test_a_blocked_binding_is_not_waited_for_and_synchronizes_later_exactly_once() -> None:
    async def scenario(bench: Bench) -> None:
        one = hook(PODS, NODES)
        bench.monitors.start(one)
        bench["pods"].list()
        bench["nodes"].block(MISSING)
        assert await bench.synchronize(one) == ["pods"]
        assert bench.outstanding(one) == ["pods"]
        bench.monitors.open(one, [PODS])
        assert bench.monitors.synchronized([one.id])
        assert bench.monitors.problems() == (f"hook hooks/x of module m, binding nodes, kubernetes[1]: {MISSING}",)

        bench["nodes"].list()
        bench["nodes"].change("Added", "early")  # the snapshot has it
        await asyncio.sleep(1)
        assert bench.late == ["nodes"]
        assert not bench.monitors.synchronized([one.id])  # a run that begins now waits
        assert bench.monitors.problems() == ()

        bench["nodes"].change("Added", "n")
        assert bench.heard() == []
        for reason in ("missing permission", None):
            bench["nodes"].block(reason)
            await asyncio.sleep(1)
        assert await bench.synchronize(one) == ["nodes"]
        bench.monitors.open(one, [NODES])
        assert bench.monitors.synchronized([one.id])
        assert bench.heard() == ["nodes: Added n"]

    assert play(scenario, lists_at_once=False).late == ["nodes"]


def test_a_late_synchronization_that_nobody_takes_is_asked_for_anew() -> None:
    async def scenario(bench: Bench) -> None:
        one = hook(NODES)
        bench.monitors.start(one)
        bench["nodes"].block(MISSING)
        await bench.synchronize(one)
        bench.takes_late = False
        bench["nodes"].list()
        await asyncio.sleep(1)
        bench["nodes"].change("Added", "in the snapshot")
        assert bench.outstanding(one) == []
        assert await bench.synchronize(one) == ["nodes"]
        bench.monitors.open(one, [NODES])

    bench = play(scenario, lists_at_once=False)
    assert (bench.events, bench.late) == ([], ["nodes"])


@pytest.mark.parametrize(
    ("kinds", "kind_missing", "misleads"),
    [
        (("onStartup", "beforeHelm"), False, True),
        (("afterDeleteHelm",), False, True),
        (("onStartup", "beforeHelm"), True, False),
        (("onStartup",), False, False),
        ((), False, False),
    ],
    ids=["works with snapshots", "at the end", "the kind is missing", "only reacts after its start", "only reacts"],
)
def test_an_empty_snapshot_is_not_taken_for_the_truth(
    kinds: tuple[LifecycleKind, ...], kind_missing: bool, misleads: bool
) -> None:
    one = Hook(
        hook().id, Path("/hooks/x"), HookConfig("v1", tuple(Lifecycle(kind, 1) for kind in kinds), (), (PODS, NODES))
    )

    async def scenario(bench: Bench) -> None:
        bench.monitors.start(one)
        bench["pods"].list()
        bench["nodes"].block("nodes is forbidden", kind_missing=kind_missing)
        if not misleads:
            assert await bench.synchronize(one) == ["pods"]
            return
        with pytest.raises(KubeError) as caught:
            await bench.synchronize(one)
        assert str(caught.value) == "hook hooks/x of module m, binding nodes, kubernetes[1]: nodes is forbidden"
        assert bench.outstanding(one) == []
        bench["nodes"].list()
        assert await bench.synchronize(one) == ["pods", "nodes"]

    play(scenario, lists_at_once=False)


def test_a_binding_that_can_watch_again_is_waited_for_until_it_is_listed() -> None:
    async def scenario(bench: Bench) -> None:
        one = hook(NODES)
        bench.monitors.start(one)
        bench["nodes"].block("missing permission")
        assert await bench.synchronize(one) == []
        bench["nodes"].block(None)
        await asyncio.sleep(1)
        assert bench.late == []
        assert not bench.monitors.synchronized([one.id])
        bench["nodes"].block(MISSING)
        assert bench.monitors.synchronized([one.id])
        bench["nodes"].list()
        await asyncio.sleep(1)

    assert play(scenario, lists_at_once=False).late == ["nodes"]


def test_a_binding_that_is_free_before_anybody_asks_synchronizes_in_the_usual_way() -> None:
    async def scenario(bench: Bench) -> None:
        one = hook(NODES)
        bench.monitors.start(one)
        bench["nodes"].block(MISSING)
        bench["nodes"].list()
        await asyncio.sleep(1)
        assert await bench.synchronize(one) == ["nodes"]
        await asyncio.sleep(1)

    assert play(scenario, lists_at_once=False).late == []


@pytest.mark.parametrize(
    ("listed", "event"),
    [
        pytest.param(False, "binding cannot watch, its Synchronization waits", id="from the start"),
        pytest.param(
            True, "binding cannot watch any more, its snapshot is no longer kept up to date", id="after a while"
        ),
    ],
)
def test_a_blocked_binding_is_visible(log: LogCapture, listed: bool, event: str) -> None:
    async def scenario(bench: Bench) -> None:
        bench.monitors.start(hook(PODS, NODES))
        if listed:
            bench["nodes"].list()
        bench["nodes"].block(MISSING)

    assert play(scenario, lists_at_once=False).samples("binding_monitor_missing_total") == {("nodes",): 1}
    (entry,) = [entry for entry in log.entries if entry["log_level"] == "warning"]
    expected = {"hook": "hooks/x", "module": "m", "binding": "nodes", "field": "kubernetes[1]", "error": MISSING}
    assert {"event": event, **expected}.items() <= entry.items()


# --- the end --------------------------------------------------------------------------------------------------------


def test_stopped_hooks_hear_nothing_and_may_begin_anew() -> None:
    async def scenario(bench: Bench) -> None:
        one = hook(PODS)
        await bench.synchronize(one)
        former = bench["pods"]
        former.change("Added", "held")
        bench.monitors.stop([one.id, HookId("m", "hooks/unknown")])
        assert former.stopped
        former.change("Added", "late")
        bench.monitors.open(one, [PODS])
        assert bench.monitors.items(one.id, PODS) == ()
        assert list(bench.monitors.sizes()) == []
        assert bench.monitors.synchronized([one.id])

        assert await bench.synchronize(one) == ["pods"]
        assert bench["pods"] is not former
        bench.monitors.open(one, [PODS])

    assert play(scenario).events == []


def test_a_blocked_binding_that_was_stopped_never_synchronizes() -> None:
    async def scenario(bench: Bench) -> None:
        one = hook(NODES)
        bench.monitors.start(one)
        bench["nodes"].block(MISSING)
        assert await bench.synchronize(one) == []
        former = bench["nodes"]
        bench.monitors.stop([one.id])
        former.list()
        await asyncio.sleep(1)

    assert play(scenario, lists_at_once=False).late == []


def test_the_end_leaves_no_tasks_behind() -> None:
    async def scenario(bench: Bench) -> None:
        running = asyncio.create_task(bench.monitors.run(), name="monitors")
        bench.monitors.start(hook(NODES))
        bench["nodes"].block(MISSING)
        await bench.synchronize(hook(NODES))
        assert len(asyncio.all_tasks()) > 2
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    play(scenario, lists_at_once=False)


# --- snapshots, filters, what is watched ----------------------------------------------------------------------------


def test_snapshots_and_their_sizes() -> None:
    async def scenario(bench: Bench) -> None:
        one = hook(PODS, NODES)
        bench.monitors.start(one)
        bench["pods"].snapshot = [Item(b"{}", None), Item(b"[1]", None)]
        assert bench.monitors.items(one.id, PODS) == [Item(b"{}", None), Item(b"[1]", None)]
        assert bench.monitors.items(one.id, NODES) == []
        assert bench.monitors.items(one.id, Kubernetes("other", "Pod")) == ()
        assert bench.monitors.items(HookId(None, "hooks/x"), PODS) == ()
        sizes = [(size.labels.binding, size.labels.queue, size.objects, size.bytes) for size in bench.monitors.sizes()]
        assert sizes == [("pods", "main", 2, 5), ("nodes", "main", 0, 0)]

    play(scenario)


def test_a_failing_filter_is_visible_but_people_are_told_once_a_minute(log: LogCapture) -> None:
    async def scenario(bench: Bench) -> None:
        bench.monitors.start(hook(PODS, NODES))
        for _ in range(4):
            bench["pods"].handler.on_filter_failed(ObjectKey("v1", "Pod", "ns", "a"), "cannot index number")
            await asyncio.sleep(29)
        bench["nodes"].handler.on_filter_failed(ObjectKey("v1", "Node", "", "n"), "cannot index number")

    bench = play(scenario)
    assert bench.samples("kube_jq_filter_errors_total") == {("pods", "hooks/x", "m"): 4, ("nodes", "hooks/x", "m"): 1}
    assert [(str(about), reason) for about, reason, _ in bench.warned] == [
        (str(ObjectKey("v1", "Pod", "ns", "a")), "JqFilterFailed"),
        (str(ObjectKey("v1", "Pod", "ns", "a")), "JqFilterFailed"),
        (str(ObjectKey("v1", "Node", "", "n")), "JqFilterFailed"),
    ]
    assert bench.warned[0][2] == "hook hooks/x of module m, binding pods, kubernetes[0].jqFilter: cannot index number"
    assert len(log.entries) == 5
    expected = {"hook": "hooks/x", "module": "m", "binding": "pods", "field": "kubernetes[0]", "log_level": "error"}
    assert expected.items() <= log.entries[0].items()


def test_runs_of_filters_and_events_are_timed() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.synchronize(hook(PODS))
        bench["pods"].handler.on_filtered(0.5)
        bench["pods"].change("Added", "a")
        assert bench.samples("kube_event_duration_seconds_count") == {}
        bench.monitors.open(hook(PODS), [PODS])

    bench = play(scenario)
    assert list(bench.samples("kube_jq_filter_duration_seconds_sum").values()) == [0.5]
    assert list(bench.samples("kube_event_duration_seconds_count").values()) == [1]


@pytest.mark.parametrize(
    ("binding", "spec"),
    [
        pytest.param(PODS, WatchSpec("Pod"), id="only a kind"),
        pytest.param(
            Kubernetes(
                "all", "deploy", api_version="apps/v1", names=("a", "b"),
                label_selector="a=b,tier in (x,y)", field_selector="status.phase=Running,spec.nodeName!=",
                namespaces=("n1", "n2"), namespace_labels="env=prod", jq_filter=".spec",
                keep_full_objects=False,
            ),
            WatchSpec(
                "deploy", "apps/v1", ("a", "b"), "a=b,tier in (x,y)", "status.phase=Running,spec.nodeName!=",
                ("n1", "n2"), "env=prod", ".spec", keep_objects=False,
            ),
            id="everything",
        ),
    ],
)  # fmt: skip
def test_what_a_binding_watches(binding: Kubernetes, spec: WatchSpec) -> None:
    async def scenario(bench: Bench) -> None:
        bench.monitors.start(hook(binding))
        assert bench[binding.name].spec == spec

    play(scenario)


def test_titles_of_v0_hooks_name_the_field_that_their_author_wrote() -> None:
    async def scenario(bench: Bench) -> None:
        config = HookConfig("v0", kubernetes=(Kubernetes("onKubernetesEvent", "pod"),))
        bench.monitors.start(Hook(HookId(None, "hooks/x"), Path("/hooks/x"), config))

    assert list(play(scenario).fakes.started) == [
        "global hook hooks/x, binding onKubernetesEvent, onKubernetesEvent[0]",
    ]  # fmt: skip
