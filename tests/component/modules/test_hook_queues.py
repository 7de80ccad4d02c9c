"""Queues of hooks' runs: side by side, in order, joined where they may be, as `queue list` and metrics show them.

In virtual time. Source: contract.md 2.13, 2.15, 2.17.
"""

from __future__ import annotations

import asyncio
import itertools
import re

import pytest
from structlog.testing import LogCapture

from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.server.pages import Query, queue_list
from tests.component.modules.configurations import Play, bindings, watching
from tests.fakes.bench import Bench
from tests.fakes.hook_transport import HookFunction, HookRun

BURST = 240


def hook(name: str, app: str, **fields: JsonValue) -> str:
    return bindings(kubernetes=[watching(name, app, **fields)])


def on_event(react: HookFunction) -> HookFunction:
    """Does nothing for the Synchronization, which is the first run: in a group, its type does not say so."""
    synchronized = False

    async def run_hook(run: HookRun) -> int:
        nonlocal synchronized
        is_event, synchronized = synchronized, True
        return await react(run) if is_event else 0

    return run_hook


def waiting(go: asyncio.Event) -> HookFunction:
    async def wait(_run: HookRun) -> int:
        await go.wait()
        return 0

    return wait


def create(bench: Bench, app: str, *names: str) -> None:
    for name in names:
        bench.kind("ConfigMap").change("Added", name, labels={"app": app})


def shown(bench: Bench, name: str) -> list[str]:
    """What a hook was shown behind its Synchronization, context by context."""
    return [text for hook, what in bench.hooks.runs if hook == f"global/{name}" for text in what.split(", ")][1:]


def sizes(bench: Bench, name: str) -> list[int]:
    """How many contexts each run of a hook had."""
    return [len(contexts) for contexts in bench.hooks.contexts[f"global/{name}"]]


def test_a_queue_that_is_held_up_holds_up_no_other_one(play: Play) -> None:
    go = asyncio.Event()

    async def steps(bench: Bench) -> None:
        bench.hooks.scripts = {f"global/{name}": on_event(waiting(go)) for name in ("block", "group")}
        await bench.rest()
        create(bench, "block", "b1")
        await bench.tick()
        assert [name for name, _ in bench.hooks.runs[-2:]] == ["global/block", "global/group"]
        create(bench, "block", "b2", "b3")
        create(bench, "x", "x1")
        await bench.tick()
        assert shown(bench, "beside") == ["beside: Added x1"]
        task = "GlobalHookRun:{0}:kubernetes:{1}:{1}:Kubernetes"
        assert bench.listed == {
            "main": [task.format("main", "block")] * 3,
            "group": [task.format("group", "group")] * 3,
        }
        assert bench.metric('tasks_queue_length{queue="main"}') == 3
        text = queue_list(bench.operator.inspector, Query()).text
        head = "Queue 'main': length 3, status: 'run first task'\n\n 1. GlobalHookRun:main:kubernetes:block"
        assert text.startswith(head)

        go.set()
        await bench.rest()
        assert shown(bench, "block") == [f"block: Added {name}" for name in ("b1", "b2", "b3")]
        assert sizes(bench, "block") == [1, 1, 2]
        # Synchronization, b1, and one for b2 and b3: the snapshots of a group say it all.
        assert sizes(bench, "group") == [1, 1, 1]

    hooks = {
        "global/beside": hook("beside", "x", queue="side"),
        "global/block": hook("block", "block"),
        "global/group": hook("group", "block", queue="group", group="g"),
    }
    play(hooks, steps)


def test_a_failing_run_takes_up_what_is_directly_behind_it_and_nothing_beyond_another_hook(play: Play) -> None:
    well = False

    async def react(run: HookRun) -> int:
        if well:
            return 0
        run.print("not yet\n", "stderr")
        return 3

    async def steps(bench: Bench) -> None:
        nonlocal well
        bench.hooks.scripts["global/retry"] = on_event(react)
        await bench.rest()
        head = r"GlobalHookRun:retry:kubernetes:retry:retry{}:Kubernetes:failures \d+:global hook retry: "
        head += "run ended with exit code 3: not yet"
        create(bench, "x", "x1")
        await bench.tick()
        assert re.fullmatch(head.format(""), bench.listed["retry"][0])
        create(bench, "x", "x2", "x3")
        await asyncio.sleep(60)
        assert re.fullmatch(head.format(" in 3 contexts"), bench.listed["retry"][0])
        create(bench, "y", "y1")
        await bench.tick()
        create(bench, "x", "x4")
        await asyncio.sleep(60)
        last = [f"GlobalHookRun:retry:kubernetes:{name}:{name}:Kubernetes" for name in ("other", "retry")]
        assert bench.listed["retry"][1:] == last
        assert bench.metric('tasks_queue_length{queue="retry"}') == 3

        well = True
        await bench.rest()
        assert bench.metric('tasks_queue_length{queue="retry"}') == 0
        coalesced = ", ".join(f"retry: Added {name}" for name in ("x1", "x2", "x3"))
        assert bench.hooks.runs[-3:] == [
            ("global/retry", coalesced), ("global/other", "other: Added y1"), ("global/retry", "retry: Added x4"),
        ]  # fmt: skip

    play({"global/other": hook("other", "y", queue="retry"), "global/retry": hook("retry", "x", queue="retry")}, steps)


def test_a_failure_that_is_allowed_is_counted_and_that_is_all(play: Play, log: LogCapture) -> None:
    async def fail(_run: HookRun) -> int:
        return 4

    async def steps(bench: Bench) -> None:
        bench.hooks.scripts["global/allowed"] = on_event(fail)
        await bench.rest()
        for names in (("x1",), ("x2", "x3"), ("x4",)):
            create(bench, "x", *names)
            await bench.rest()
        assert shown(bench, "allowed") == [f"allowed: Added {name}" for name in ("x1", "x2", "x3", "x4")]
        runs = len(sizes(bench, "allowed")) - 1
        labels = '{activation="",binding="allowed",hook="allowed",queue="allowed"}'
        assert bench.metric(f"global_hook_run_allowed_errors_total{labels}") == runs
        events = [line["event"] for line in log.entries]
        assert events.count("hook failed, which its binding allows") == runs
        assert "task failed" not in events

    play({"global/allowed": hook("allowed", "x", queue="allowed", allowFailure=True)}, steps)


def waiting_contexts(bench: Bench, name: str) -> int:
    """How many contexts of a hook the tasks of the queue `both` carry."""
    found = [re.search(rf":{name}:{name}(?: in (\d+) contexts)?:", text) for text in bench.listed.get("both", [])]
    return sum(int(match[1] or 1) for match in found if match)


def test_two_hooks_of_one_queue_are_each_shown_a_burst_in_order_and_in_few_runs(play: Play) -> None:
    go = asyncio.Event()

    async def steps(bench: Bench) -> None:
        bench.hooks.scripts = {f"global/{name}": on_event(waiting(go)) for name in ("a", "b")}
        await bench.rest()
        for number in range(BURST):
            create(bench, "ab"[number % 2], f"o{number:03}")
            await asyncio.sleep(0.05)  # their events come by turns
        await bench.tick()
        assert waiting_contexts(bench, "a") + waiting_contexts(bench, "b") == BURST
        go.set()
        await bench.rest()
        for name, first in (("a", 0), ("b", 1)):
            assert shown(bench, name) == [f"{name}: Added o{number:03}" for number in range(first, BURST, 2)]
            assert len(sizes(bench, name)) < BURST / 4

    play({f"global/{name}": hook(name, name, queue="both") for name in ("a", "b")}, steps)


def test_a_hook_that_may_run_once_a_second_is_shown_all_of_a_burst_and_runs_no_more_often(play: Play) -> None:
    times: list[float] = []

    async def note(_run: HookRun) -> int:
        times.append(asyncio.get_running_loop().time())
        return 0

    async def steps(bench: Bench) -> None:
        bench.hooks.scripts["global/calm"] = on_event(note)
        await bench.rest()
        for number in range(BURST):
            create(bench, "ab"[number % 2], f"o{number:03}")
            await asyncio.sleep(0.05)
        await bench.rest()
        assert shown(bench, "calm") == [f"calm: Added o{number:03}" for number in range(BURST)]
        # One at once, then one each second.
        gaps = [second - first for first, second in itertools.pairwise(times)]
        assert gaps == pytest.approx([1.0] * 12)

    labels: JsonObject = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    binding = {**watching("calm", ""), "labelSelector": labels, "queue": "calm"}
    settings: JsonObject = {"executionMinInterval": "1s", "executionBurst": 1}
    play({"global/calm": bindings(kubernetes=[binding], settings=settings)}, steps)
