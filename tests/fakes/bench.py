"""An operator in virtual time: everything is real but programs, the API server and helm."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from addon_operator.bindings.hook_bindings import HookBindings
from addon_operator.bindings.kubernetes import BindingMonitors
from addon_operator.bindings.schedule import ScheduleBindings
from addon_operator.bindings.webhooks import WebhookBindings
from addon_operator.configmap.config import OperatorConfig
from addon_operator.configmap.writer import ConfigMapWriter
from addon_operator.dispatch.converge import ConvergeHandler
from addon_operator.dispatch.events import EventSink
from addon_operator.dispatch.global_hooks import GlobalHookHandler
from addon_operator.dispatch.handlers import Handlers
from addon_operator.dispatch.hook_runs import HookRunHandler
from addon_operator.dispatch.module_runs import ModuleRunHandler
from addon_operator.dispatch.progress import Progress
from addon_operator.dispatch.reviews import HookReviewer
from addon_operator.dispatch.routing import startup_tasks
from addon_operator.dispatch.synchronizations import Synchronizations
from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import (
    HookConfigError,
    HookFailed,
    HookUnreachable,
    KubeError,
    ModuleError,
)
from addon_operator.helm.release import ReleaseFacts
from addon_operator.hooks.call import Effects, HookCall, HookId, HookResult, Scope
from addon_operator.hooks.catalog import HookCatalog
from addon_operator.hooks.config.model import Admission, Conversion, HookConfig
from addon_operator.hooks.config.parser import parse_config
from addon_operator.hooks.effects import HookRuns
from addon_operator.hooks.engine import HookEngine
from addon_operator.hooks.hook import Hook
from addon_operator.kube.patcher import ObjectPatcher
from addon_operator.kube.refs import ObjectKey
from addon_operator.metrics.operator import Metrics
from addon_operator.modules.crd_rollout import CrdRollout
from addon_operator.modules.crds import CrdInstaller, Definitions
from addon_operator.modules.deployment import ModuleDeployment
from addon_operator.modules.enablement import EnableFlags, Enablement
from addon_operator.modules.holding import Holding
from addon_operator.modules.loader import ModuleLoader
from addon_operator.modules.module import Module
from addon_operator.modules.registry import ModuleRegistry, ModuleState
from addon_operator.modules.runner import ModuleRunner
from addon_operator.process.child import Exit
from addon_operator.retry import RetryPolicy
from addon_operator.schedule.timer import Cron
from addon_operator.tasks.queue_set import QueueSet
from addon_operator.tasks.task import Converge, Outcome, Reason, Task, describe
from addon_operator.values import patches
from addon_operator.values.store import ValuesStore
from addon_operator.webhooks.host import WebhookHost
from tests.fakes import clock
from tests.fakes.monitors import FakeMonitor, FakeMonitors

_MOST_AT_ONCE = 1000
_BEGINNING_S = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What one run of a hook does; it takes `lasts_s`.

    Attributes:
        values: operations of its values patch.
        config: operations of its config patch.
        lasts_s: how long it takes.
        fails: it ends with an error.
        breaks: the operator itself has a bug.
    """

    values: tuple[JsonObject, ...] = ()
    config: tuple[JsonObject, ...] = ()
    lasts_s: float = 0.0
    fails: bool = False
    breaks: bool = False


class ScriptedEngine(HookEngine):
    """Hooks whose file holds their configuration, and whose runs do what they are told, or nothing.

    Attributes:
        runs: hook and the contexts that it was shown, as `binding`, `binding: type` or `binding: event object`.
        answers: hook -> what its next runs do.
        failing: hooks that fail in each run.
    """

    def __init__(self) -> None:
        self.runs: list[tuple[str, str]] = []
        self.answers: dict[str, list[Answer]] = {}
        self.failing: set[str] = set()

    async def configure(self, path: Path, hook: HookId, scope: Scope) -> HookConfig:
        return parse_config(path.read_text(), scope=scope, hook=hook)

    async def run(self, call: HookCall) -> HookResult:
        name = f"{call.hook.module or 'global'}/{call.hook.name.removeprefix('hooks/')}"
        shown: list[JsonObject] = json.loads(b"".join(call.contexts))
        self.runs.append((name, ", ".join(map(_title, shown))))
        answer = self.answers.get(name, []).pop(0) if self.answers.get(name) else Answer()
        await asyncio.sleep(answer.lasts_s)
        if not call.path.exists():
            raise HookUnreachable(f"{call.hook}: {call.path}: the file does not exist")
        if answer.breaks:
            raise RuntimeError("a bug")
        if answer.fails or name in self.failing:
            raise HookFailed(f"{call.hook}: failed")
        effects = Effects(
            values_patch=patches.parse(json.dumps(answer.values).encode(), "patch"),
            config_patch=patches.parse(json.dumps(answer.config).encode(), "patch"),
            response=b'{"allowed": true}' if call.response else b"",
        )
        return HookResult(effects, Exit(0, False, 0, 0, 0, 0, ""))


def _title(shown: JsonObject) -> str:
    document, event = shown.get("object"), shown.get("watchEvent")
    name = f" {document['name']}" if isinstance(document, dict) else ""
    return f"{shown['binding']}" + (f": {event}{name}" if event else f": {shown['type']}" if "type" in shown else "")


class NoCharts(ModuleDeployment):
    """What modules without charts need of Helm; releases that former operators have left are known by name."""

    def __init__(self, releases: dict[str, ReleaseFacts]) -> None:
        self._releases = releases

    def exists(self, name: str) -> bool:
        return False

    def installed(self, name: str) -> bool:
        return False

    def owned(self) -> Mapping[str, ReleaseFacts]:
        return self._releases

    async def hold(self, reasons: Mapping[str, str]) -> None:
        for name in reasons.keys() & self._releases.keys():
            self._releases[name] = dataclasses.replace(self._releases[name], held=reasons[name])

    @contextlib.contextmanager
    def quiet(self, name: str) -> Iterator[None]:
        yield

    async def settle(self) -> None: ...

    async def deploy(self, module: Module, state: ModuleState, *, activation: str) -> None:
        """Reads the chart, and no more."""
        if not module.path.is_dir():
            raise ModuleError(f"{module.path}: the chart cannot be read")


class NoCrds(CrdInstaller):
    """For modules without CRDs."""

    def __init__(self) -> None: ...

    def brought(self, module: object) -> Definitions:
        return {}

    def forget(self, module_dir: Path) -> None: ...


class NoObjects(ObjectPatcher):
    """For hooks that ask for no changes of objects."""

    def __init__(self) -> None: ...

    async def apply(self, operations: Sequence[object]) -> None:
        assert not operations


class Registered(WebhookHost):
    """What is registered in the cluster.

    Attributes:
        served: hook -> names of its webhooks.
        refuses: the API server refuses new ones.
    """

    def __init__(self) -> None:
        self.served: dict[HookId, tuple[str, ...]] = {}
        self.refuses = False

    async def serve(self, hook: HookId, admissions: Sequence[Admission], conversions: Sequence[Conversion]) -> None:
        if self.refuses:
            raise KubeError(f"{hook}: its webhooks cannot be registered", status=422, reason="Invalid")
        names = (*(one.name for one in admissions), *(one.name for one in conversions))
        if any(set(names) & set(others) for other, others in self.served.items() if other != hook):
            raise HookConfigError(f"{hook}: a name is taken")
        self.served[hook] = names
        if not self.served[hook]:
            del self.served[hook]

    async def withdraw(self, hooks: Iterable[HookId]) -> None:
        for hook in hooks:
            self.served.pop(hook, None)


class ConfigMap:
    """The data of the ConfigMap; `exists` is whether there is one, `uid` which one."""

    def __init__(self) -> None:
        self.uid = "u1"
        self.data: dict[str, str] = {}
        self.exists = True

    async def read(self) -> Mapping[str, str] | None:
        return dict(self.data) if self.exists else None

    async def save(self, mutate: Callable[[Mapping[str, str]], Mapping[str, str]]) -> Mapping[str, str]:
        self.data, self.exists = dict(mutate(self.data)), True
        return dict(self.data)


class Bench:
    """An operator: global hooks in `global`, modules in `modules`, both below a directory.

    Attributes:
        tasks: the text of each attempt, in order.
        releases: those that carry our mark, by name.
        refused: why states of the ConfigMap were refused.
    """

    def __init__(self, root: Path, *, lists_at_once: bool = True) -> None:
        self.tasks: list[str] = []
        self.releases: dict[str, ReleaseFacts] = {}
        self.refused: list[str] = []
        self._attempts = (0.0, 0)
        self.engine, self.fakes, self.metrics = ScriptedEngine(), FakeMonitors(lists_at_once=lists_at_once), Metrics()
        self.catalog, self.root = HookCatalog(self.engine), root
        self.loader = ModuleLoader(
            modules_dirs=[root / "modules"], global_hooks_dir=root / "global", default_order=1, strict_values=False
        )
        scan = self.loader.scan()
        self.registry, self.store = ModuleRegistry(), ValuesStore(scan.global_section)
        self.read_modules()
        self.queues, self.progress = QueueSet(retry=RetryPolicy(5.0, 30.0)), Progress()
        self.events = EventSink(
            queues=self.queues, registry=self.registry, loader=self.loader, store=self.store, progress=self.progress,
            warn=lambda _about, _reason, message: self.refused.append(message), metrics=self.metrics.config,
            config_map=ObjectKey("v1", "ConfigMap", "ns", "cm"),
        )  # fmt: skip
        self.monitors = BindingMonitors(
            self.fakes, self.metrics.bindings, on_event=self.events.object_changed, on_listed=self.events.listed_late,
            warn=lambda *_: None,
        )  # fmt: skip
        self.webhooks, self.config_map = Registered(), ConfigMap()
        loop = asyncio.get_running_loop()
        self.cron = Cron(now=lambda: datetime.fromtimestamp(_BEGINNING_S + loop.time(), UTC))

    def read_modules(self) -> None:
        """Reads the module directories, as at the start."""
        scan = self.loader.scan()
        self.registry.replace_modules(scan.modules)
        self.store.replace_modules(scan.sections)

    async def start(self) -> None:
        """Puts the first tasks into the main queue."""
        self.global_hooks = self.registry.global_hooks = await self.catalog.load(self.root / "global", module=None)
        flags = EnableFlags(self.registry, self.store, config_map="")
        self.config = OperatorConfig(
            self.store, where="ConfigMap", module_keys=lambda: {m.key for m in self.registry.modules},
            checked_keys=flags.checked_keys, events=self.events,
        )  # fmt: skip
        hooks = HookRuns(
            engine=self.engine, store=self.store, config_map=ConfigMapWriter(self.config, self.config_map),
            patcher=NoObjects(),
            metrics=self.metrics, enabled_modules=lambda: self.registry.enabled, items=self.monitors.items,
            timeout_s=60,
        )  # fmt: skip
        self.enablement = Enablement(
            registry=self.registry, store=self.store, flags=flags, engine=self.engine, config=self.config,
        )  # fmt: skip
        self.reviewer = HookReviewer(
            hooks=hooks, registry=self.registry, events=self.events, metrics=self.metrics.hook_runs
        )
        bindings = HookBindings(
            monitors=self.monitors, schedules=ScheduleBindings(self.cron, on_tick=self.events.ticked),
            webhooks=WebhookBindings(self.webhooks),
        )  # fmt: skip
        crds = CrdRollout(self.registry, NoCrds())
        runner = ModuleRunner(
            registry=self.registry, catalog=self.catalog, hooks=hooks, bindings=bindings, metrics=self.metrics,
            queues=self.queues, store=self.store,
            deployment=NoCharts(self.releases), crds=crds,
        )  # fmt: skip
        self.holding = Holding(
            registry=self.registry, runner=runner, deployment=NoCharts(self.releases), ignored_release=None, limit=None,
            config=self.config, source=self.config_map,
            metrics=self.metrics.modules, warn=lambda *_: None,
        )  # fmt: skip
        self.converge = ConvergeHandler(
            queue=self.queues.main, loader=self.loader, registry=self.registry, store=self.store,
            enablement=self.enablement, runner=runner, crds=crds, holding=self.holding,
            config=self.config, progress=self.progress, metrics=self.metrics.modules,
        )  # fmt: skip
        synchronizations = Synchronizations(self.queues, self.monitors)
        self._handlers = Handlers(
            queue=self.queues.main, converge=self.converge,
            hook_runs=HookRunHandler(
                queue=self.queues.main, progress=self.converge.progress, registry=self.registry, runner=runner,
                hooks=hooks, monitors=self.monitors,
            ),
            module_runs=ModuleRunHandler(
                queue=self.queues.main, converge=self.converge, registry=self.registry, runner=runner,
                monitors=self.monitors, synchronizations=synchronizations, workers=4,
            ),
            global_hooks=GlobalHookHandler(
                queues=self.queues, bindings=bindings, synchronizations=synchronizations, hooks=self.global_hooks,
            ),
            registry=self.registry, crds=crds, holding=self.holding, config=self.config,
            enablement=self.enablement,
        )  # fmt: skip
        self.config.load(await self.config_map.read())
        self.queues.main.add_tail(startup_tasks(self.global_hooks))

    async def run(self) -> None:
        """Works until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for work, name in (
                (self.queues.run(self._handle), "queues"),
                (self.monitors.run(), "monitors"),
                (self.cron.run(), ""),
            ):
                group.create_task(work, name=name or "cron")

    @property
    def converged(self) -> bool:
        """Whether the first converge is over."""
        return self.progress.first_done.is_set()

    async def _handle(self, task: Task, queue: str) -> Outcome:
        self.tasks.append(describe(task, queue=queue))
        now = asyncio.get_running_loop().time()
        self._attempts = (now, self._attempts[1] + 1 if self._attempts[0] == now else 0)
        if self._attempts[1] > _MOST_AT_ONCE:
            await asyncio.Event().wait()  # in virtual time it would go on like this for ever
        return await self._handlers(task, queue)

    def hook(self, name: str) -> Hook:
        """The hook `global/name` or `module/name`."""
        scope, file = name.split("/")
        found = self.registry.find_hook(HookId(None, file) if scope == "global" else HookId(scope, f"hooks/{file}"))
        assert found is not None
        return found

    def __getitem__(self, binding: str) -> FakeMonitor:
        (found,) = (one for title, one in self.fakes.started.items() if f"binding {binding}," in title)
        return found

    def edit(self, **data: str | None) -> None:
        """Somebody changes keys of the ConfigMap; None takes one out."""
        merged = {**self.config_map.data, **data}
        self.config_map.data = {key: text for key, text in merged.items() if text is not None}
        self.config_map.exists = True
        self.config.receive(self.config_map.data)

    def delete_config_map(self) -> None:
        """Somebody deletes the ConfigMap, for longer than a moment."""
        self.config_map.data, self.config_map.exists = {}, False
        self.config.receive(None)

    def converge_again(self) -> None:
        """Asks for a converge."""
        self.queues.main.add_tail([Task(Converge(), Reason.RELOAD_ALL, converge=True)])

    async def ask(self, name: str) -> bool:
        """The API server asks the first validating webhook of a hook; answers whether the request may pass."""
        hook = self.hook(name)
        return (await self.reviewer.admit(hook.id, hook.config.admissions[0], {"uid": "1"})).allowed

    def since(self) -> list[str]:
        """Names the attempts since the last call."""
        tasks, self.tasks = self.tasks, []
        return tasks

    def runs(self) -> list[tuple[str, str]]:
        """Names the runs of hooks since the last call, and what they were shown."""
        runs, self.engine.runs = self.engine.runs, []
        return runs

    async def tick(self) -> None:
        """Lets a second pass."""
        await asyncio.sleep(1)

    async def rest(self) -> list[str]:
        """Lets everything happen that is under way; names the attempts since the last call."""
        await asyncio.sleep(600)
        left = {queue.name: [task.description for task in queue.listing()] for queue in self.queues.all() if len(queue)}
        assert not left, (left, self.tasks[-10:])
        return self.since()


Steps = Callable[[Bench], Coroutine[object, object, None]]


def play(
    root: Path,
    hooks: Mapping[str, str],
    steps: Steps,
    *,
    answers: Mapping[str, list[Answer]] | None = None,
    lists_at_once: bool = True,
    prepare: Callable[[Bench], None] = lambda _bench: None,
) -> Bench:
    """Starts an operator in an empty directory, and does some steps.

    Args:
        root: the directory.
        hooks: `global/name` or `module/name` -> configuration; the modules are enabled.
        steps: what happens then.
        answers: what the first runs of hooks do.
        lists_at_once: whether what they watch is listed from the beginning.
        prepare: changes what the operator finds at its start.
    """
    (root / "global").mkdir()
    (root / "modules").mkdir()
    modules = sorted({name.split("/")[0] for name in hooks} - {"global"})
    (root / "modules/values.yaml").write_text("".join(f"{name}Enabled: true\n" for name in modules))
    for name, config in hooks.items():
        write_hook(root, name, config)

    async def main() -> Bench:
        bench = Bench(root, lists_at_once=lists_at_once)
        bench.engine.answers = {name: list(runs) for name, runs in (answers or {}).items()}
        prepare(bench)
        await bench.start()
        working = asyncio.create_task(bench.run(), name="operator")
        stepping = asyncio.create_task(steps(bench), name="steps")
        # An operator that breaks ends the test at once, with its error.
        await asyncio.wait([working, stepping], return_when=asyncio.FIRST_COMPLETED)
        for task in (working, stepping):
            if task.done():
                task.result()
            task.cancel()
        await asyncio.gather(working, stepping, return_exceptions=True)
        assert bench.config.error is None
        return bench

    return clock.run(main())


def write_hook(root: Path, name: str, config: str) -> None:
    """Writes a hook's file, with its configuration."""
    path = hook_file(root, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"configVersion: v1\n{config}")
    path.chmod(0o755)


def hook_file(root: Path, name: str) -> Path:
    """Where a hook's file is."""
    scope, file = name.split("/")
    return root / "global" / file if scope == "global" else root / "modules" / f"{scope}/hooks" / file
