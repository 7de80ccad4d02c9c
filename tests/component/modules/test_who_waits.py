"""Who waits for a Synchronization, and what hooks are shown of what happens meanwhile; in virtual time.

The start and a module wait for the Synchronizations of their hooks, unless a binding says otherwise.
Source: contract.md 3.1, 3.3.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import TypeAlias

from addon_operator.documents.jsondoc import JsonObject, JsonValue, lookup
from tests.component.modules.configurations import Play, bindings, watching
from tests.fakes.bench import Bench
from tests.fakes.hook_transport import HookRun

Go: TypeAlias = defaultdict[str, asyncio.Event]
Story: TypeAlias = Callable[[Bench, Go], Coroutine[object, object, None]]

LABELS = {"app": "x"}
LIVES = ["Added x", "Added y", "Modified x", "Deleted y"]


def hook(name: str, *, wait: bool = True, synchronize: bool = True, **fields: JsonValue) -> str:
    flags: JsonObject = {"waitForSynchronization": wait, "executeHookOnSynchronization": synchronize}
    return bindings(kubernetes=[watching(name, "x", **flags, **fields)])


SLOW = {
    "global/free": hook("free", wait=False, queue="free"),
    "global/waits": hook("waits", queue="waits"),
    "010-app/free": hook("app-free", wait=False, queue="app-free"),
    "010-app/waits": hook("app-waits", queue="app-waits"),
    "020-last/free": hook("last", wait=False, queue="last"),
}
HOOKS = {
    **SLOW,
    "global/around": "beforeAll: 1\n",
    "global/some": hook("some", executeHookOnEvent=["Modified", "Deleted"], synchronize=False),
    # Asked for, but it does not count in the main queue.
    "global/witness": hook("witness", wait=False),
    "010-app/life": "onStartup: 1\nbeforeHelm: 1\n",
    "010-app/none": hook("app-none", executeHookOnEvent=[]),
    "010-app/silent": hook("app-silent", synchronize=False),
}


def begin(play: Play, story: Story) -> None:
    """Starts an operator; each Synchronization of a slow hook lasts until it may go on, by the name of its binding."""
    go: Go = defaultdict(asyncio.Event)

    async def synchronize(run: HookRun) -> int:
        context = run.contexts()[0]
        if context["type"] == "Synchronization":
            await go[str(context["binding"])].wait()
        return 0

    def prepare(bench: Bench) -> None:
        bench.hooks.scripts = {name.removeprefix("010-").removeprefix("020-"): synchronize for name in SLOW}

    async def steps(bench: Bench) -> None:
        await asyncio.sleep(30)
        await story(bench, go)

    play(HOOKS, steps, prepare=prepare)


async def proceed(go: Go, *names: str) -> None:
    for name in names:
        go[name].set()
    await asyncio.sleep(30)


async def live(bench: Bench) -> None:
    """Objects come and go."""
    for life in LIVES:
        event, name = life.split()
        bench["waits"].change(event, name, labels=LABELS)
    await asyncio.sleep(30)


def main_queue(bench: Bench) -> list[str]:
    """Its status, and its tasks."""
    (main,) = [queue for queue in bench.operator.inspector.queues() if queue.name == "main"]
    return [main.shown_status, *(task.description for task in main.tasks)]


def names(items: JsonValue) -> list[str]:
    assert isinstance(items, list)
    return [str(lookup(item, "/object/metadata/name")) for item in items]


def shown(bench: Bench, hook: str) -> list[str]:
    """What a hook was shown, context by context: `Synchronization NAME...` or `EVENT NAME`."""
    contexts = [context for run in bench.hooks.contexts[hook] for context in run]
    return [
        " ".join([str(context.get("watchEvent") or context["type"]), *names(context.get("objects", [context]))])
        for context in contexts
    ]


def test_the_start_waits_for_the_synchronization_of_a_global_hook(play: Play) -> None:
    async def story(bench: Bench, _go: Go) -> None:
        of_waits = ["GlobalHookRun:waits:kubernetes:waits:waits:OperatorStartup"]
        waiting = ["waiting for condition", "GlobalHookWaitKubernetesSynchronization:main:OperatorStartup"]
        assert main_queue(bench)[:2] == waiting
        assert ("global/waits", "waits: Synchronization") in bench.hooks.runs
        assert ("global/witness", "witness: Synchronization") in bench.hooks.runs
        assert bench.listed["waits"] == of_waits
        await live(bench)
        # Runs for the events of hooks in the main queue wait behind the first converge.
        assert "\n".join(main_queue(bench)).count(":witness:witness:Kubernetes") == len(LIVES)
        assert main_queue(bench)[:2] == waiting
        assert bench.listed["waits"] == of_waits
        assert ("global/around", "beforeAll") not in bench.hooks.runs

    begin(play, story)


def test_a_module_waits_for_its_own_synchronization_and_for_no_others(play: Play) -> None:
    async def story(bench: Bench, go: Go) -> None:
        await live(bench)
        await proceed(go, "waits")
        assert ("global/around", "beforeAll") in bench.hooks.runs
        assert ("app/waits", "app-waits: Synchronization") in bench.hooks.runs
        assert main_queue(bench)[:2] == ["waiting for condition", "ModuleRun:main:app:OperatorStartup"]
        assert shown(bench, "global/waits") == ["Synchronization", *LIVES]
        assert ("app/life", "onStartup") in bench.hooks.runs
        assert ("app/life", "beforeHelm") not in bench.hooks.runs
        assert not bench.operator.status().ready

        await proceed(go, "app-waits")
        assert bench.operator.status().ready
        assert ("app/life", "beforeHelm") in bench.hooks.runs

    begin(play, story)


def test_what_happens_during_a_synchronization_is_shown_afterwards_and_in_order(play: Play) -> None:
    async def story(bench: Bench, go: Go) -> None:
        await live(bench)
        await proceed(go, "waits")
        await proceed(go, "app-waits")
        bench["waits"].change("Added", "z", labels=LABELS)
        await asyncio.sleep(30)
        assert shown(bench, "global/witness")[-1] == "Added z"
        assert shown(bench, "global/free") == ["Synchronization"]
        assert shown(bench, "app/free") == shown(bench, "last/free") == ["Synchronization x"]
        await proceed(go, "free", "app-free", "last")
        await bench.rest()
        assert shown(bench, "global/free")[1:] == [*LIVES, "Added z"]
        assert shown(bench, "app/free")[1:] == ["Added z"]
        assert shown(bench, "app/waits") == ["Synchronization x", "Added z"]

    begin(play, story)


def test_hooks_are_shown_what_they_ask_for_and_have_all_of_it_in_their_snapshots(play: Play) -> None:
    async def story(bench: Bench, go: Go) -> None:
        await live(bench)
        await proceed(go, "waits")
        await proceed(go, "app-waits", "free", "app-free", "last")
        bench["waits"].change("Added", "z", labels=LABELS)
        await bench.rest()
        assert shown(bench, "global/some") == ["Modified x", "Deleted y"]
        assert shown(bench, "app/silent") == ["Added z"]
        assert shown(bench, "app/none") == ["Synchronization x"]
        snapshots = bench.operator.inspector.module_snapshots("app")
        assert names(lookup(snapshots, "/hooks~1none/app-none")) == ["x", "z"]

    begin(play, story)
