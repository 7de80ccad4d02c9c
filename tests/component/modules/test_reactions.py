"""Everything between what happens and the run of a hook, put together; only programs and the API server are fakes.

In virtual time. Modules of these tests have hooks only, nothing for Helm.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import cast

import pytest

from addon_operator.backoff import RetryPolicy
from addon_operator.configmap.config import OperatorConfig
from addon_operator.configmap.document import empty_document
from addon_operator.cron import Cron
from addon_operator.dispatch.converge import ConvergeHandler
from addon_operator.dispatch.handlers import Handlers
from addon_operator.dispatch.intake import Intake
from addon_operator.dispatch.routing import startup_tasks
from addon_operator.errors import HookFailed
from addon_operator.hooks.bindings import HookConfig, parse_config
from addon_operator.hooks.call import Effects, HookCall, HookId, HookResult, Scope
from addon_operator.hooks.catalog import HookCatalog
from addon_operator.hooks.effects import HookRuns
from addon_operator.hooks.engine import HookEngine
from addon_operator.hooks.hook import Hook
from addon_operator.hooks.monitors import HookMonitors
from addon_operator.jsondoc import JsonObject
from addon_operator.kube.patcher import ObjectPatcher
from addon_operator.metrics import Metrics
from addon_operator.modules.crds import CrdInstaller
from addon_operator.modules.deployment import ModuleDeployment
from addon_operator.modules.enablement import Enablement
from addon_operator.modules.loader import ModuleLoader
from addon_operator.modules.registry import ModuleRegistry
from addon_operator.modules.runner import ModuleRunner
from addon_operator.process import Exit
from addon_operator.reactions import Reactions
from addon_operator.tasks.queue import QueueSet
from addon_operator.tasks.task import Outcome, Task, describe
from addon_operator.values import patches
from addon_operator.values.store import ValuesStore
from addon_operator.webhooks.host import WebhookHost
from tests.fakes import clock
from tests.fakes.monitors import FakeMonitor, FakeMonitors


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What one run of a hook does; it takes `lasts_s`."""

    values: tuple[JsonObject, ...] = ()
    lasts_s: float = 0.0
    fails: bool = False


class ScriptedEngine(HookEngine):
    """Hooks whose file holds their configuration, and whose runs do what they are told, or nothing.

    Attributes:
        runs: hook and the contexts that it was shown, as `binding`, `binding: type` or `binding: event object`.
        answers: hook -> what its next runs do.
    """

    def __init__(self) -> None:
        self.runs: list[tuple[str, str]] = []
        self.answers: dict[str, list[Answer]] = {}

    async def configure(self, path: Path, hook: HookId, scope: Scope) -> HookConfig:
        return parse_config(path.read_text(), scope=scope, hook=hook)

    async def run(self, call: HookCall) -> HookResult:
        name = f"{call.hook.module or 'global'}/{call.hook.name.removeprefix('hooks/')}"
        shown: list[JsonObject] = json.loads(b"".join(call.contexts))
        self.runs.append((name, ", ".join(map(_title, shown))))
        answer = self.answers.get(name, []).pop(0) if self.answers.get(name) else Answer()
        await asyncio.sleep(answer.lasts_s)
        if answer.fails:
            raise HookFailed(f"{call.hook}: failed")
        patch = patches.parse(json.dumps(answer.values).encode(), "patch")
        return HookResult(Effects(values_patch=patch), Exit(0, False, 0, 0, 0, 0, ""))


def _title(shown: JsonObject) -> str:
    document, event = shown.get("object"), shown.get("watchEvent")
    name = f" {document['name']}" if isinstance(document, dict) else ""
    return f"{shown['binding']}" + (f": {event}{name}" if event else f": {shown['type']}" if "type" in shown else "")


class NoReleases(ModuleDeployment):
    """What modules without charts need of Helm."""

    def __init__(self) -> None: ...

    def exists(self, name: str) -> bool:
        return False

    def owned(self) -> tuple[str, ...]:
        return ()

    @contextlib.contextmanager
    def quiet(self, name: str) -> Iterator[None]:
        yield

    async def settle(self) -> None: ...


class NoCrds(CrdInstaller):
    def __init__(self) -> None: ...

    def digest(self, module: object) -> None:
        return None


class NoWebhooks(WebhookHost):
    def __init__(self) -> None: ...

    async def withdraw(self, hooks: object) -> None: ...


class Bench:
    """An operator: global hooks in `global`, modules in `modules`, both below a directory.

    Attributes:
        tasks: the text of each attempt, in order.
    """

    def __init__(self, root: Path, *, lists_at_once: bool) -> None:
        self.tasks: list[str] = []
        self.engine, self.fakes, self.metrics = ScriptedEngine(), FakeMonitors(lists_at_once=lists_at_once), Metrics()
        self.catalog, self.root = HookCatalog(self.engine), root
        self.loader = ModuleLoader(
            modules_dirs=[root / "modules"], global_hooks_dir=root / "global", default_order=1, strict_values=False
        )
        scan = self.loader.scan()
        self.registry, self.store = ModuleRegistry(), ValuesStore(scan.global_section)
        self.registry.replace_modules(scan.modules)
        self.store.replace_modules(scan.sections)
        self.queues = QueueSet(self._handle, retry=RetryPolicy(5.0, 30.0))
        self.intake = Intake(queues=self.queues, registry=self.registry, ticks_count=self._first_converge_is_done)
        self.monitors = HookMonitors(
            self.fakes, self.metrics, on_event=self.intake.object_changed, on_listed=self.intake.listed_late,
            warn=lambda *_: None,
        )  # fmt: skip

    async def start(self) -> None:
        self.global_hooks = await self.catalog.load(self.root / "global", module=None)
        config = cast("OperatorConfig", None)
        hooks = HookRuns(
            engine=self.engine, store=self.store, config=config, patcher=cast("ObjectPatcher", None),
            metrics=self.metrics, enabled_modules=lambda: self.registry.enabled, items=self.monitors.items,
            timeout_s=60,
        )  # fmt: skip
        enablement = Enablement(
            registry=self.registry, store=self.store, engine=self.engine, config=empty_document, config_name=""
        )
        reactions = Reactions(monitors=self.monitors, cron=Cron(), webhooks=NoWebhooks(), on_tick=self.intake.ticked)
        runner = ModuleRunner(
            registry=self.registry, catalog=self.catalog, hooks=hooks, reactions=reactions,
            drop_tasks=self.intake.drop_module, store=self.store, deployment=NoReleases(), crds=NoCrds(),
            metrics=self.metrics,
        )  # fmt: skip
        self.converge = ConvergeHandler(
            queue=self.queues.main, loader=self.loader, registry=self.registry, store=self.store, enablement=enablement,
            runner=runner, global_hooks=lambda kind: [hook.id for hook in self.global_hooks.bound_to(kind)],
            owned_releases=tuple, ignored_release=None, metrics=self.metrics,
        )  # fmt: skip
        self._handlers = Handlers(
            queues=self.queues, converge=self.converge, registry=self.registry, runner=runner, hooks=hooks,
            reactions=reactions, global_hooks=self.global_hooks, find_hook=self.find_hook, config=config,
            enablement=enablement, workers=4,
        )  # fmt: skip
        self.queues.main.add_tail(startup_tasks(self.global_hooks))

    def _first_converge_is_done(self) -> bool:
        return self.converge.progress.first_done.is_set()

    async def _handle(self, task: Task, queue: str) -> Outcome:
        self.tasks.append(describe(task, queue=queue))
        return await self._handlers(task, queue)

    def find_hook(self, hook: HookId) -> Hook | None:
        return self.global_hooks.find(hook) if hook.module is None else self.registry.find_hook(hook)

    def __getitem__(self, binding: str) -> FakeMonitor:
        (found,) = (one for title, one in self.fakes.started.items() if f"binding {binding}," in title)
        return found

    def since(self) -> list[str]:
        """Names the attempts since the last call."""
        tasks, self.tasks = self.tasks, []
        return tasks

    async def rest(self) -> list[str]:
        """Lets everything happen that is under way; names the attempts since the last call."""
        await asyncio.sleep(600)
        assert [queue.name for queue in self.queues.all() if len(queue)] == []
        return self.since()


Play = Callable[..., Bench]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Starts an operator with these hooks (`global/name` or `module/name` -> configuration), and does some steps."""

    def run(
        hooks: Mapping[str, str],
        steps: Callable[[Bench], Coroutine[object, object, None]],
        *,
        answers: Mapping[str, list[Answer]] | None = None,
        lists_at_once: bool = True,
    ) -> Bench:
        (tmp_path / "global").mkdir()
        (tmp_path / "modules").mkdir()
        modules = sorted({name.split("/")[0] for name in hooks} - {"global"})
        (tmp_path / "modules/values.yaml").write_text("".join(f"{name}Enabled: true\n" for name in modules))
        for name, config in hooks.items():
            write_hook(tmp_path, name, config)

        async def main() -> Bench:
            bench = Bench(tmp_path, lists_at_once=lists_at_once)
            bench.engine.answers = dict(answers or {})
            await bench.start()
            workers = asyncio.create_task(bench.queues.run(), name="queues")
            watches = asyncio.create_task(bench.monitors.run(), name="monitors")
            try:
                await steps(bench)
            finally:
                for task in (workers, watches):
                    task.cancel()
                await asyncio.gather(workers, watches, return_exceptions=True)
            return bench

        return clock.run(main())

    return run


def write_hook(root: Path, name: str, config: str) -> None:
    scope, file = name.split("/")
    path = root / "global" / file if scope == "global" else root / "modules" / f"{scope}/hooks" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"configVersion: v1\n{config}")
    path.chmod(0o755)


SEE_PODS = "kubernetes: [{name: pods, kind: Pod}]"


def test_the_order_of_a_start(play: Play) -> None:
    """Contract.md 3.7, from the first task to the last."""

    async def steps(bench: Bench) -> None:
        assert [line.replace(":OperatorStartup", "") for line in await bench.rest()] == [
            "GlobalHookRun:main:onStartup:hook02",
            "GlobalHookRun:main:onStartup:hook03",
            "GlobalHookRun:main:onStartup:hook01",
            "GlobalHookEnableScheduleBindings:main:hook02",
            "GlobalHookEnableScheduleBindings:main:hook03",
            "GlobalHookEnableKubernetesBindings:main:hook01",
            "GlobalHookRun:main:kubernetes:hook01:pods",
            "GlobalHookEnableKubernetesBindings:main:hook03",
            "GlobalHookRun:main:kubernetes:hook03:nodes",
            "GlobalHookWaitKubernetesSynchronization:main",
            "ConvergeModules:main:StandBy",
            "GlobalHookRun:main:beforeAll:hook02",
            "GlobalHookRun:main:beforeAll:hook01",
            "ConvergeModules:main:WaitBeforeAll",
            "ModuleRun:main:alpha",
            "ModuleHookRun:main:kubernetes:hooks/hook01:services",
            "ModuleRun:main:alpha",
            "ConvergeModules:main:WaitDeleteAndRunModules",
            "GlobalHookRun:main:afterAll:hook03",
            "ConvergeModules:main:WaitAfterAll",
        ]

    bench = play(
        {
            "global/hook01": f"onStartup: 20\nbeforeAll: 10\n{SEE_PODS}\n",
            "global/hook02": "onStartup: 1\nbeforeAll: 1\nschedule: [{crontab: '0 * * * *'}]\n",
            "global/hook03": (
                "onStartup: 10\nafterAll: 1\nschedule: [{crontab: '0 * * * *'}]\n"
                "kubernetes: [{name: nodes, kind: Node, executeHookOnSynchronization: false}]\n"
            ),
            "alpha/hook01": (
                "onStartup: 1\nbeforeHelm: 1\nafterHelm: 1\nkubernetes: [{name: services, kind: Service}]\n"
            ),
        },
        steps,
    )
    assert bench.engine.runs == [
        ("global/hook02", "onStartup"),
        ("global/hook03", "onStartup"),
        ("global/hook01", "onStartup"),
        ("global/hook01", "pods: Synchronization"),
        ("global/hook02", "beforeAll"),
        ("global/hook01", "beforeAll"),
        ("alpha/hook01", "onStartup"),
        ("alpha/hook01", "services: Synchronization"),
        ("alpha/hook01", "beforeHelm"),
        ("alpha/hook01", "afterHelm"),
        ("global/hook03", "afterAll"),
    ]


QUEUES = """
kubernetes:
- {name: here, kind: Pod}
- {name: silent, kind: Pod, queue: silent, executeHookOnSynchronization: false}
- {name: aside, kind: Pod, queue: aside}
- {name: parallel, kind: Pod, queue: parallel, waitForSynchronization: false}
"""


@pytest.mark.parametrize(
    ("scope", "binding"), [("global", "beforeAll"), ("alpha", "beforeHelm")], ids=["global", "module"]
)
def test_the_rest_waits_for_the_synchronizations_that_are_waited_for(play: Play, scope: str, binding: str) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()

    # The runs take their time in the order: here (main), then aside and parallel side by side.
    answers = {f"{scope}/x": [Answer(lasts_s=1), Answer(lasts_s=5), Answer(lasts_s=50)]}
    bench = play({f"{scope}/x": f"{binding}: 1\n{QUEUES}"}, steps, answers=answers)
    shown = [what for _, what in bench.engine.runs]
    assert sorted(shown[:3]) == [f"{name}: Synchronization" for name in ("aside", "here", "parallel")]
    assert shown[3:] == [binding]


def test_what_a_synchronization_is_not_shown_follows_as_events(play: Play) -> None:
    async def steps(bench: Bench) -> None:
        await asyncio.sleep(1)
        assert bench.engine.runs == [("alpha/x", "pods: Synchronization")]
        bench["pods"].change("Added", "a")
        bench["pods"].change("Deleted", "b")
        await bench.rest()

    bench = play({"alpha/x": SEE_PODS}, steps, answers={"alpha/x": [Answer(lasts_s=5)]})
    assert bench.engine.runs[1:] == [("alpha/x", "pods: Added a, pods: Deleted b")]


def test_a_failing_synchronization_is_tried_again_and_holds_its_events(play: Play) -> None:
    async def steps(bench: Bench) -> None:
        await asyncio.sleep(1)
        bench["pods"].change("Added", "a")
        await bench.rest()

    bench = play({"alpha/x": SEE_PODS}, steps, answers={"alpha/x": [Answer(fails=True)]})
    assert bench.engine.runs == [
        ("alpha/x", "pods: Synchronization"), ("alpha/x", "pods: Synchronization"), ("alpha/x", "pods: Added a"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("hook", "path", "expected"),
    [
        pytest.param("alpha/x", "/alpha/seen", "ModuleRun:main:alpha:Kubernetes-Change-ModuleValues", id="module"),
        pytest.param(
            "global/x", "/global/seen", "ConvergeModules:main:StandBy:Kubernetes-Change-GlobalValues", id="global"
        ),
        pytest.param(
            "global/x",
            "/alphaEnabled",
            "ConvergeModules:main:StandBy:ReloadAll-After-GlobalHookDynamicUpdate",
            id="global, enable flag",
        ),
    ],
)
def test_values_that_a_reaction_changes_are_brought_to_the_cluster(
    play: Play, hook: str, path: str, expected: str
) -> None:
    change: JsonObject = {"op": "add", "path": path, "value": False}

    async def steps(bench: Bench) -> None:
        await bench.rest()
        for name in ("a", "b"):  # the second run changes nothing
            bench["pods"].change("Added", name)
            await asyncio.sleep(30)
        assert [line for line in await bench.rest() if "Change" in line or "Dynamic" in line][:1] == [expected]

    answers = {hook: [Answer(), Answer((change,)), Answer((change,))]}
    bench = play({hook: SEE_PODS, "alpha/other": "beforeHelm: 1"}, steps, answers=answers)
    assert len([run for run in bench.engine.runs if run[0] == hook]) == 3
    runs_of_the_module = [run for run in bench.engine.runs if run == ("alpha/other", "beforeHelm")]
    assert len(runs_of_the_module) == (1 if path == "/alphaEnabled" else 2)


def test_values_that_a_synchronization_changes_lead_to_nothing(play: Play) -> None:
    change: JsonObject = {"op": "add", "path": "/alpha/seen", "value": 1}

    async def steps(bench: Bench) -> None:
        assert not [line for line in await bench.rest() if "Change" in line]

    bench = play({"alpha/x": f"{SEE_PODS}\nbeforeHelm: 1"}, steps, answers={"alpha/x": [Answer((change,))]})
    assert bench.store.effective("alpha") == {"seen": 1}


def test_a_late_synchronization_does_not_wait_behind_the_run_that_waits_for_it(play: Play) -> None:
    async def steps(bench: Bench) -> None:
        await asyncio.sleep(1)
        bench["pods"].list()
        bench["widgets"].block("the kind does not exist")
        assert [line for line in await bench.rest() if "Converge" in line][-1].startswith("ConvergeModules:main:WaitAf")
        bench.queues.main.add_tail(startup_tasks(bench.global_hooks))
        bench["widgets"].list()
        await bench.rest()
        bench["widgets"].change("Added", "w")
        await bench.rest()

    hooks = {"alpha/x": f"{SEE_PODS}\nbeforeHelm: 1", "alpha/y": "kubernetes: [{name: widgets, kind: Widget}]"}
    bench = play(hooks, steps, lists_at_once=False)
    assert bench.engine.runs == [
        ("alpha/x", "pods: Synchronization"),
        ("alpha/x", "beforeHelm"),
        ("alpha/y", "widgets: Synchronization"),
        ("alpha/x", "beforeHelm"),
        ("alpha/y", "widgets: Added w"),
    ]


def test_ticks_before_the_end_of_the_first_converge_do_not_count(play: Play) -> None:
    async def steps(bench: Bench) -> None:
        await asyncio.sleep(1)
        (hook,) = bench.global_hooks.hooks
        bench.intake.ticked(hook, hook.config.schedules[0])
        await bench.rest()
        bench.intake.ticked(hook, hook.config.schedules[0])
        await bench.rest()

    hooks = {"global/x": "beforeAll: 1\nschedule: [{crontab: '0 * * * *'}]"}
    bench = play(hooks, steps, answers={"global/x": [Answer(lasts_s=10)]})
    assert bench.engine.runs == [("global/x", "beforeAll"), ("global/x", "schedule: Schedule")]


def test_a_hook_that_must_not_run_often_gets_what_has_gathered(play: Play) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        for name in ("a", "b", "c"):
            bench["pods"].change("Added", name)
            await asyncio.sleep(1)
        await bench.rest()

    throttled = f"settings: {{executionMinInterval: 30s, executionBurst: 1}}\n{SEE_PODS}"
    bench = play({"alpha/x": throttled}, steps)
    assert bench.engine.runs[1:] == [("alpha/x", "pods: Added a"), ("alpha/x", "pods: Added b, pods: Added c")]


def test_a_disabled_module_ends_what_its_hooks_react_to(play: Play) -> None:
    off: JsonObject = {"op": "add", "path": "/alphaEnabled", "value": False}

    async def steps(bench: Bench) -> None:
        await bench.rest()
        bench["pods"].change("Added", "a")
        assert "ModuleDelete:main:alpha:ReloadAll-After-GlobalHookDynamicUpdate" in await bench.rest()
        assert bench["services"].stopped
        bench["services"].change("Added", "s")
        await bench.rest()

    hooks = {"global/x": SEE_PODS, "alpha/y": "kubernetes: [{name: services, kind: Service}]\nafterDeleteHelm: 1"}
    bench = play(hooks, steps, answers={"global/x": [Answer(), Answer((off,))]})
    assert bench.engine.runs[2:] == [("global/x", "pods: Added a"), ("alpha/y", "afterDeleteHelm")]


def test_a_hook_whose_file_changes_begins_anew(play: Play) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        former = bench["pods"]
        write_hook(bench.root, "alpha/x", "kubernetes: [{name: nodes, kind: Node}]\nbeforeHelm: 1")
        bench.queues.main.add_tail(startup_tasks(bench.global_hooks))
        await bench.rest()
        assert former.stopped
        bench["nodes"].change("Added", "n")
        await bench.rest()

    bench = play({"alpha/x": SEE_PODS}, steps)
    assert bench.engine.runs == [
        ("alpha/x", "pods: Synchronization"),
        ("alpha/x", "nodes: Synchronization"),
        ("alpha/x", "beforeHelm"),
        ("alpha/x", "nodes: Added n"),
    ]
