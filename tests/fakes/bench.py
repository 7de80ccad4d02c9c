"""An operator in virtual time: everything is real but the edges, which `build` is given."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final

from addon_operator.app.assembly import build
from addon_operator.app.edges import Edges, OnHelmOperation
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.helm.release import (
    ENABLED_BY_ANNOTATION,
    FINGERPRINT_LABEL,
    OBJECTS_ANNOTATION,
    ReleaseFacts,
)
from addon_operator.helm.release_record import enabled_by_note, secret_name
from addon_operator.hooks.call import HookId
from addon_operator.hooks.hook import Hook, LoadedHooks
from addon_operator.kube.filters import Filters
from addon_operator.kube.refs import CONFIG_MAPS, SECRETS, Resource, metadata_of
from addon_operator.metrics.operator import Metrics
from addon_operator.modules.module import split_directory_name
from addon_operator.process.private_directory import PrivateDirectory
from addon_operator.settings import Settings
from addon_operator.tasks.queue import Handler
from addon_operator.tasks.task import Converge, Outcome, Reason, Task, describe
from addon_operator.values.layers import EnabledBy
from addon_operator.webhooks.configurations import RESOURCES
from tests.fakes import clock
from tests.fakes.api_objects import BEGINNING
from tests.fakes.api_server import FakeApiServer
from tests.fakes.bound_kind import BoundKind
from tests.fakes.gate import Gate
from tests.fakes.helm import FakeHelm, release_secret
from tests.fakes.hook_transport import FakeHookTransport
from tests.fakes.module_files import hook_file, write_enabled_script, write_hook, write_template
from tests.fakes.scripted_hooks import Answer, ScriptedHooks
from tests.fakes.webhook_caller import WebhookCaller
from tests.fakes.webhook_listener import FakeWebhookListener

__all__ = ["Answer", "Bench", "hook_file", "play", "write_enabled_script", "write_hook", "write_template"]

NAMESPACE: Final = "ns"
_CONFIG_MAP: Final = "cm"
_EVENTS: Final = ("events.k8s.io", "events")
_REFUSED: Final = ("Warning", "ConfigRefused")
_API_SERVICES: Final = Resource("apiregistration.k8s.io", "v1", "APIService", "apiservices", False)
_MOST_AT_ONCE: Final = 1000
# Not a number of minutes, at the end of which schedules tick.
_REST_S: Final = 597.0


class Bench:
    """An operator: global hooks in `global`, modules in `modules`, both below a directory; and all that it touches.

    Attributes:
        api: the API server, as others see it.
        gate: what stands between it and the operator.
        hooks: what hooks do.
        helm: what the operator asks of helm.
        tasks: the text of each attempt, in order.
    """

    def __init__(self, root: Path, *, lists_at_once: bool = True) -> None:
        """Builds what an operator touches; `running` builds and starts the operator.

        Args:
            root: an existing directory.
            lists_at_once: whether the API server answers for the kinds of hooks from the beginning.
        """
        self.root = root
        self.api = FakeApiServer(namespaces=("default", NAMESPACE))
        self.api.register(_API_SERVICES)
        self.gate = Gate(self.api)
        self.gate.withholds = not lists_at_once
        self.hooks, self.metrics = ScriptedHooks(), Metrics()
        self.helm = FakeHelm(self.api, NAMESPACE)
        self.helm.history = self.hooks.history
        self.tasks: list[str] = []
        listeners = (FakeWebhookListener(), FakeWebhookListener())
        self._listeners = listeners
        self._caller = WebhookCaller(self.api, admission=listeners[0], conversion=listeners[1])
        self._attempts = (0.0, 0)
        self.edit()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Builds an operator and runs it while the block lasts."""
        settings = Settings(
            namespace=NAMESPACE, config_map=_CONFIG_MAP, modules_dirs=(self.root / "modules",),
            global_hooks_dir=self.root / "global", module_workers=4, hook_timeout_s=3600,
        )  # fmt: skip
        with contextlib.closing(Filters()) as filters:
            operator = await build(settings, self._edges(filters), self.metrics)
            self.operator = dataclasses.replace(operator, handler=functools.partial(self._attempt, operator.handler))
            self.registry, self.store = operator.registry, operator.store
            self.queues, self.monitors = operator.queues, operator.monitors
            async with self.operator.running():
                yield

    def _edges(self, filters: Filters) -> Edges:
        async def find_helm(on_operation: OnHelmOperation) -> FakeHelm:
            self.helm.on_operation = on_operation
            return self.helm

        clock_s = asyncio.get_running_loop().time
        return Edges(
            api_server=self.gate,
            find_helm=find_helm,
            hook_transport=FakeHookTransport(self.hooks.run, configure=self.hooks.configure),
            webhook_listeners=lambda _settings: self._listeners,
            run_jq=filters.run,
            environment={},
            tmp_dir=PrivateDirectory(self.root / "tmp"),
            now=lambda: BEGINNING + timedelta(seconds=clock_s()),
        )

    async def _attempt(self, handle: Handler, task: Task, queue: str) -> Outcome:
        self.tasks.append(describe(task, queue=queue))
        now = asyncio.get_running_loop().time()
        self._attempts = (now, self._attempts[1] + 1 if self._attempts[0] == now else 0)
        if self._attempts[1] > _MOST_AT_ONCE:
            await asyncio.Event().wait()  # in virtual time it would go on like this for ever
        return await handle(task, queue)

    # --- what there is

    @property
    def converged(self) -> bool:
        """Whether the first converge is over."""
        return self.operator.progress.first_done.is_set()

    @property
    def global_hooks(self) -> LoadedHooks:
        """The global hooks."""
        return self.registry.global_hooks

    @property
    def config_map(self) -> dict[str, str]:
        """The data of the ConfigMap."""
        data = (self.api.find(CONFIG_MAPS, NAMESPACE, _CONFIG_MAP) or {}).get("data")
        return {key: str(text) for key, text in data.items()} if isinstance(data, dict) else {}

    @property
    def config_map_uid(self) -> str:
        """Which ConfigMap it is."""
        found = self.api.find(CONFIG_MAPS, NAMESPACE, _CONFIG_MAP)
        assert found is not None
        return str(metadata_of(found)["uid"])

    @property
    def refused(self) -> list[str]:
        """Why states of the ConfigMap were refused, as Events say it."""
        events = self.api.objects.store.all(_EVENTS)
        return [str(event["note"]) for event in events if (event["type"], event["reason"]) == _REFUSED]

    @property
    def releases(self) -> Mapping[str, ReleaseFacts]:
        """The releases that carry our mark, by name."""
        return self.operator.deployment.owned()

    @property
    def listed(self) -> dict[str, list[str]]:
        """The tasks of all queues that have any, as `queue list` shows them."""
        queues = self.operator.inspector.queues()
        return {queue.name: [task.description for task in queue.tasks] for queue in queues if queue.tasks}

    def deployed(self, name: str) -> dict[str, JsonValue] | None:
        """The data of a ConfigMap that a template of `write_template` made; None if there is none."""
        found = self.api.find(CONFIG_MAPS, NAMESPACE, name)
        data = (found or {}).get("data")
        return data if isinstance(data, dict) else None

    def metric(self, series: str) -> float:
        """The value of a built-in series, as `module_held{module="a"}`; 0 if there is none."""
        lines = self.metrics.render().decode().splitlines()
        found = next((line for line in lines if line.startswith(f"addon_operator_{series} ")), "0")
        return float(found.rpartition(" ")[2])

    def webhooks(self) -> list[str]:
        """Names the webhooks that are registered, and the definitions whose objects are converted."""
        converted = [
            str(metadata_of(crd)["name"])
            for crd in self.api.objects.store.all(("apiextensions.k8s.io", "customresourcedefinitions"))
            if self._caller.conversion(str(metadata_of(crd)["name"])) is not None
        ]
        return [*(name for kind in RESOURCES for name in self._caller.webhooks(kind)), *converted]

    def hook(self, name: str) -> Hook:
        """The hook `global/name` or `module/name`."""
        scope, file = name.split("/")
        found = self.registry.find_hook(HookId(None, file) if scope == "global" else HookId(scope, f"hooks/{file}"))
        assert found is not None
        return found

    def __getitem__(self, binding: str) -> BoundKind:
        """Returns what a `kubernetes` binding is about; KeyError if its hook was not asked for `--config` yet."""
        return self.kind(self.hooks.kinds[binding])

    def kind(self, name: str) -> BoundKind:
        """Returns a kind; one that the API server does not know is one without namespaces that could be defined."""
        known = (found.resource for found in self.api.objects.kinds.values() if found.resource.kind == name)
        resource = next(known, None) or Resource("example.com", "v1", name, f"{name.lower()}s", False)
        return BoundKind(resource, self.api, self.gate)

    # --- what others do

    def edit(self, **data: str | None) -> None:
        """Somebody changes keys of the ConfigMap; None takes one out."""
        merged = {**self.config_map, **data}
        self._put_config_map({key: text for key, text in merged.items() if text is not None})

    def delete_config_map(self) -> None:
        """Somebody deletes the ConfigMap."""
        self.api.remove(CONFIG_MAPS, NAMESPACE, _CONFIG_MAP)

    def replace_config_map(self) -> None:
        """Somebody puts another ConfigMap with the same data in its place."""
        data = self.config_map
        self.delete_config_map()
        self._put_config_map(data)

    def _put_config_map(self, data: Mapping[str, str]) -> None:
        metadata: JsonObject = {"name": _CONFIG_MAP, "namespace": NAMESPACE}
        self.api.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {**data}})

    def install(self, *names: str, enabled_by: EnabledBy | None = None) -> None:
        """A former operator has installed releases without objects."""
        annotations = {OBJECTS_ANNOTATION: "{}"}
        if enabled_by is not None:
            annotations[ENABLED_BY_ANNOTATION] = enabled_by_note(enabled_by)
        for name in names:
            release: JsonObject = {
                "name": name, "namespace": NAMESPACE, "version": 1, "manifest": "", "info": {"status": "deployed"},
            }  # fmt: skip
            self.api.put(release_secret(release, {FINGERPRINT_LABEL: "former"}, annotations))

    def uninstall(self, name: str) -> None:
        """Somebody uninstalls a release of one revision by hand."""
        self.api.remove(SECRETS, NAMESPACE, secret_name(name, 1))

    def converge_again(self) -> None:
        """Asks for a converge."""
        self.queues.main.add_tail([Task(Converge(), Reason.RELOAD_ALL, converge=True)])

    async def ask(self, name: str) -> bool:
        """The API server asks the first validating webhook of a hook; returns whether the request may pass."""
        response = await self._caller.admit(self.hook(name).config.admissions[0].name)
        return response["allowed"] is True

    # --- time

    def since(self) -> list[str]:
        """Names the attempts since the last call."""
        tasks, self.tasks = self.tasks, []
        return tasks

    def runs(self) -> list[tuple[str, str]]:
        """Names the runs of hooks since the last call, and what they were shown."""
        runs, self.hooks.runs = self.hooks.runs, []
        return runs

    async def tick(self) -> None:
        """Lets a second pass."""
        await asyncio.sleep(1)

    async def rest(self) -> list[str]:
        """Lets everything happen that is under way; names the attempts since the last call."""
        await asyncio.sleep(_REST_S)
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
        hooks: `global/name` or `module/name` -> configuration; the modules are enabled. With `010-module/name`, the
            directory has a number, and the module its place in the order.
        steps: what happens then.
        answers: what the first runs of hooks do.
        lists_at_once: whether the API server answers for the kinds of hooks from the beginning.
        prepare: changes what the operator finds at its start.
    """
    (root / "global").mkdir()
    (root / "modules").mkdir()
    modules = sorted({split_directory_name(name.split("/")[0], 0)[1] for name in hooks} - {"global"})
    (root / "modules/values.yaml").write_text("".join(f"{name}Enabled: true\n" for name in modules))
    for name, config in hooks.items():
        write_hook(root, name, config)

    async def main() -> Bench:
        bench = Bench(root, lists_at_once=lists_at_once)
        bench.hooks.answers = {name: list(runs) for name, runs in (answers or {}).items()}
        prepare(bench)
        try:
            async with bench.running():
                await steps(bench)
        except BaseExceptionGroup as group:
            raise first_error(group) from None
        assert bench.operator.config.error is None
        return bench

    return clock.run(main())


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Returns the first error in groups of groups."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
