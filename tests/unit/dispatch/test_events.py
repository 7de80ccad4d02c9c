"""From what happens outside to the queue that has to do something about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from addon_operator.dispatch.events import EventSink
from addon_operator.dispatch.progress import Progress
from addon_operator.hooks.call import Changes, HookId
from addon_operator.hooks.config.model import HookConfig, Kubernetes, Schedule
from addon_operator.hooks.context import ObjectEvent, Synchronization
from addon_operator.hooks.hook import Hook
from addon_operator.kube.crds import Source
from addon_operator.kube.refs import ObjectKey
from addon_operator.metrics.operator import Metrics
from addon_operator.modules.loader import ModuleLoader
from addon_operator.modules.plan import Verdict
from addon_operator.modules.registry import ModuleRegistry
from addon_operator.retry import RetryPolicy
from addon_operator.tasks.queue_set import QueueSet
from addon_operator.tasks.task import Reason, RunModules, Task
from addon_operator.values.store import SectionSpec, ValuesStore
from tests.fakes import clock
from tests.unit.modules.test_plan import NO_SCHEMAS
from tests.unit.modules.test_plan import module as a_module

MAIN, SIDE = Kubernetes("here", "Pod"), Kubernetes("there", "Pod", queue="side")
HOURLY = Schedule("hourly", "0 * * * *", allow_failure=False, queue="side", include_snapshots_from=(), group="")
CONFIG = HookConfig("v1", schedules=(HOURLY,), kubernetes=(MAIN, SIDE))
WAITING = Task(RunModules(("on",)), Reason.RELOAD_ALL)


def hook(module: str | None) -> Hook:
    return Hook(HookId(module, "hooks/x"), Path("/hooks/x"), CONFIG)


def event(binding: Kubernetes) -> ObjectEvent:
    return ObjectEvent(binding, "Added", b"{}", None, kind="Pod", namespace="ns", name="a")


def sink(queues: QueueSet, registry: ModuleRegistry, *, converged: bool = True) -> EventSink:
    progress = Progress()
    if converged:
        progress.first_done.set()
    loader = ModuleLoader(modules_dirs=[], global_hooks_dir=Path("/none"), default_order=1, strict_values=False)
    return EventSink(
        queues=queues,
        registry=registry,
        loader=loader,
        store=ValuesStore(SectionSpec("global", (), NO_SCHEMAS)),
        progress=progress,
        warn=lambda *_: None,
        metrics=Metrics().config,
        config_map=ObjectKey("v1", "ConfigMap", "ns", "addon-operator"),
    )


def queued(
    happen: Callable[[EventSink], object], *, converged: bool = True, waiting: tuple[Task, ...] = (WAITING,)
) -> dict[str, list[str]]:
    """Names the queues after something happened, with the texts of their tasks; a module's run waits in `main`."""
    registry = ModuleRegistry()
    registry.replace_verdicts(
        {"on": Verdict((), None, enabled=True), "off": Verdict((), None, enabled=False)}, config_map="u1"
    )

    async def main() -> dict[str, list[str]]:
        queues = QueueSet(retry=RetryPolicy(1, 1))
        queues.main.add_tail(waiting)
        happen(sink(queues, registry, converged=converged))
        return {queue.name: [task.description for task in queue.listing()] for queue in queues.all() if len(queue)}

    return clock.run(main())


RUN = "ModuleRun:main:on:ReloadAllModules"


@pytest.mark.parametrize(
    ("happen", "expected"),
    [
        pytest.param(
            lambda events: events.object_changed(hook(None), event(MAIN)),
            {"main": [RUN, "GlobalHookRun:main:kubernetes:hooks/x:here:Kubernetes"]},
            id="event, main",
        ),
        pytest.param(
            lambda events: events.object_changed(hook("on"), event(SIDE)),
            {"main": [RUN], "side": ["ModuleHookRun:side:kubernetes:hooks/x:there:Kubernetes"]},
            id="event, its own queue",
        ),
        pytest.param(
            lambda events: events.ticked(hook("on"), HOURLY),
            {"main": [RUN], "side": ["ModuleHookRun:side:schedule:hooks/x:hourly:Schedule"]},
            id="tick",
        ),
        pytest.param(
            lambda events: [events.ticked(hook("on"), HOURLY) for _ in range(3)],
            {"main": [RUN], "side": ["ModuleHookRun:side:schedule:hooks/x:hourly:Schedule"]},
            id="ticks that nobody had time for",
        ),
        pytest.param(
            lambda events: events.synchronization_due(hook("on"), Synchronization(SIDE)),
            {"main": [RUN], "side": ["ModuleHookRun:side:kubernetes:hooks/x:there:Kubernetes"]},
            id="late Synchronization, its own queue",
        ),
        pytest.param(
            # A run that waits for it must not be before it in the same queue.
            lambda events: events.synchronization_due(hook("on"), Synchronization(MAIN)),
            {"main": ["ModuleHookRun:main:kubernetes:hooks/x:here:Kubernetes", RUN]},
            id="late Synchronization, main",
        ),
    ],
)
def test_where_tasks_go(happen: Callable[[EventSink], object], expected: dict[str, list[str]]) -> None:
    assert queued(happen) == expected


@pytest.mark.parametrize(
    "happen",
    [
        pytest.param(lambda events: events.object_changed(hook("off"), event(MAIN)), id="event"),
        pytest.param(lambda events: events.ticked(hook("off"), HOURLY), id="tick"),
        pytest.param(
            lambda events: events.synchronization_due(hook("off"), Synchronization(MAIN)), id="late Synchronization"
        ),
    ],
)
def test_hooks_of_disabled_modules_are_not_run(happen: Callable[[EventSink], object]) -> None:
    assert queued(happen) == {"main": [RUN]}


def test_ticks_begin_to_count_with_the_end_of_the_first_converge() -> None:
    assert queued(lambda events: events.ticked(hook(None), HOURLY), converged=False) == {"main": [RUN]}


@pytest.mark.parametrize(
    ("name", "missed", "expected"),
    [
        pytest.param("things", True, ["ModuleEnsureCRDs:main:on:AbsentHelmResourcesDetected", RUN], id="by others"),
        pytest.param("things", False, [RUN], id="by a hook"),
        pytest.param("others", True, [RUN], id="nobody brings it"),
    ],
)
def test_a_crd_that_is_gone_is_brought_again(name: str, *, missed: bool, expected: list[str]) -> None:
    registry = ModuleRegistry()
    registry.replace_modules([a_module("on", crds=True)])
    registry.replace_verdicts({"on": Verdict((), None, enabled=True)}, config_map="u1")
    registry.state("on").crds = {"things": Source("on/crds/things.yaml", "digest")}

    async def main() -> list[str]:
        queues = QueueSet(retry=RetryPolicy(1, 1))
        queues.main.add_tail((WAITING,))
        sink(queues, registry).definition_gone(name, unexpected=missed)
        return [task.description for task in queues.main.listing()]

    assert clock.run(main()) == expected
    assert bool(registry.state("on").crds) is (name != "things")


@pytest.mark.parametrize(("module", "taken"), [("on", True), ("off", False)])
def test_who_takes_a_late_synchronization(module: str, taken: bool) -> None:
    answers: list[bool] = []
    queued(lambda events: answers.append(events.synchronization_due(hook(module), Synchronization(MAIN))))
    assert answers == [taken]


@pytest.mark.parametrize(
    ("module", "expected"),
    [(None, "ConvergeModules:main:StandBy:Kubernetes-Change-GlobalValues"),
     ("other", "ModuleRun:main:other:Kubernetes-Change-ModuleValues")],
    ids=["global", "module"],
)  # fmt: skip
def test_values_that_a_review_changed_lead_to_a_run_once(module: str | None, expected: str) -> None:
    def happen(events: EventSink) -> None:
        for _ in range(2):
            events.values_changed(hook(module).id, Changes(values=True))

    assert queued(happen) == {"main": [RUN, expected]}
