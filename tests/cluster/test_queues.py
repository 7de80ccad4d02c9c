"""Queues of hooks' runs: side by side, in order, joined where they may be, seen by `queue list` and the metrics.

Source: contract.md 2.13, 2.15, 2.17.
"""

from __future__ import annotations

import re
from pathlib import Path

from addon_operator.devcluster import DevCluster
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from tests.cluster.operator import Operator, bindings, config_map, eventually, hold, noting_hook, operator

BURST = 240


def labelled(app: str, *names: str) -> list[JsonObject]:
    return [config_map(name, labels={"app": app}) for name in names]


def waiting_contexts(made: Operator, queue: str, hook: str) -> int:
    """How many contexts of a hook the tasks of a queue carry."""
    found = [re.search(rf":{hook}\.sh:{hook}(?: in (\d+) contexts)?:", text) for text in made.queues().get(queue, [])]
    return sum(int(match[1] or 1) for match in found if match)


def test_order_retries_and_what_is_joined(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as made:

        def hook(name: str, app: str, body: str, **fields: JsonValue) -> str:
            on_event = f'if [ -e "$OUT/armed" ]; then {body}; fi'
            return noting_hook(name, bindings(kubernetes=[made.watching(name, app, **fields)]), on_event)

        fails = '[ -e "$OUT/well" ] || { echo "not yet" >&2; exit 3; }'
        made.files(
            {
                "global-hooks/allowed.sh": hook("allowed", "x", "exit 4", queue="allowed", allowFailure=True),
                "global-hooks/beside.sh": hook("beside", "x", ":", queue="side"),
                "global-hooks/block.sh": hook("block", "block", hold("block")),
                "global-hooks/group.sh": hook("group", "block", hold("group"), queue="group", group="g"),
                "global-hooks/other.sh": hook("other", "y", ":", queue="retry"),
                "global-hooks/retry.sh": hook("retry", "x", fails, queue="retry"),
            }
        )
        made.start_ready()
        made.wait_idle()
        made.touch("armed")

        # The main queue is held up, others go on.
        made.create(*labelled("block", "b1"))
        eventually(lambda: (tmp_path / "at-block").exists() and (tmp_path / "at-group").exists())
        made.create(*labelled("block", "b2", "b3"), *labelled("x", "x1"))
        eventually(lambda: "beside Added x1" in made.told("beside"))
        eventually(lambda: made.queues()["main"] == ["GlobalHookRun:main:kubernetes:block.sh:block:Kubernetes"] * 3)
        eventually(lambda: len(made.queues()["group"]) == 3)
        assert made.metric('tasks_queue_length{queue="main"}') == 3
        listed = made.cli("queue", "list").stdout
        assert listed.startswith(
            "Queue 'main': length 3, status: 'run first task'\n\n 1. GlobalHookRun:main:kubernetes:block"
        )
        made.touch("go-block", "go-group")

        # A failing head is coalesced with what is directly behind it, and with nothing beyond a run of another hook.
        head = r"GlobalHookRun:retry:kubernetes:retry.sh:retry{}:Kubernetes:failures \d+:global hook retry.sh: "
        head += "run ended with exit code 3: not yet"
        eventually(lambda: re.fullmatch(head.format(""), made.queues()["retry"][0]))
        made.create(*labelled("x", "x2", "x3"))
        eventually(lambda: re.fullmatch(head.format(" in 3 contexts"), made.queues()["retry"][0]))
        made.create(*labelled("y", "y1"))
        eventually(lambda: len(made.queues()["retry"]) == 2)
        made.create(*labelled("x", "x4"))
        last = "GlobalHookRun:retry:kubernetes:{0}.sh:{0}:Kubernetes"
        eventually(lambda: made.queues()["retry"][1:] == [last.format("other"), last.format("retry")])
        made.touch("well")
        eventually(lambda: "x4" in made.told("retry")[-1])
        made.wait_idle()
        assert made.metric('tasks_queue_length{queue="retry"}') == 0

        in_queue = [run["hook"] for run in made.seen() if run["hook"] in {"retry", "other"}]
        assert in_queue[-3:] == ["retry", "other", "retry"]
        assert made.told("retry")[-4:] == [f"retry Added {name}" for name in ("x1", "x2", "x3", "x4")]
        assert [len(run) for run in made.runs_of("retry")[-2:]] == [3, 1]
        assert made.told("block")[1:] == [f"block Added {name}" for name in ("b1", "b2", "b3")]
        assert [len(run) for run in made.runs_of("block")] == [1, 1, 2]
        # Synchronization, b1, and one for b2 and b3: the snapshots of a group say it all.
        assert [len(run) for run in made.runs_of("group")] == [1, 1, 1]

        # A failure that is allowed is counted, and that is all.
        assert made.told("allowed")[1:] == [f"allowed Added {name}" for name in ("x1", "x2", "x3", "x4")]
        runs = len(made.runs_of("allowed")) - 1
        labels = '{activation="",binding="allowed",hook="allowed.sh",queue="allowed"}'
        assert made.metric(f"global_hook_run_allowed_errors_total{labels}") == runs
        assert made.text().count("hook failed, which its binding allows") == runs


def test_bursts(cluster: DevCluster, tmp_path: Path) -> None:
    """Two hooks share a queue and are told by turns; a third one may run rarely only."""
    with operator(cluster, tmp_path) as made:
        for name in ("a", "b"):
            config = bindings(kubernetes=[made.watching(name, name, queue="both")])
            body = f'if [ "$type" = Event ]; then {hold(name)}; fi'
            made.files({f"global-hooks/{name}.sh": noting_hook(name, config, body)})
        expressions: JsonObject = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
        every = {**made.watching("calm", ""), "labelSelector": expressions, "queue": "calm"}
        settings: JsonObject = {"executionMinInterval": "1s", "executionBurst": 1}
        note = 'if [ "$type" = Event ]; then date +%s.%N >>"$OUT/times"; fi'
        made.files({"global-hooks/calm.sh": noting_hook("calm", bindings(kubernetes=[every], settings=settings), note)})
        made.start_ready()
        made.wait_idle()
        made.create(*(config_map(f"o{number:03}", labels={"app": "ab"[number % 2]}) for number in range(BURST)))
        eventually(lambda: waiting_contexts(made, "both", "a") + waiting_contexts(made, "both", "b") == BURST)
        made.touch("go-a", "go-b")
        eventually(lambda: len(made.told("calm")) == BURST + 1)
        made.wait_idle()

        for name, first in (("a", 0), ("b", 1)):
            assert made.told(name)[1:] == [f"{name} Added o{number:03}" for number in range(first, BURST, 2)]
            assert len(made.runs_of(name)) < BURST / 4
        assert made.told("calm")[1:] == [f"calm Added o{number:03}" for number in range(BURST)]
        times = [float(line) for line in made.lines("times")]
        # One at once, then one each second; the clock of a run begins up to 3 s after its permission.
        assert len(times) <= 1 + (times[-1] - times[0]) + 3


def test_a_module_that_is_switched_off_takes_its_running_hooks_with_it(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as made:
        hangs = '[ "$type" != Event ] || { echo "$$" >"$OUT/pid"; exec sleep 1000; }'
        made.files({"modules/values.yaml": "labEnabled: true\n"})
        binding = made.watching("maps", "x", queue="slow")
        made.module("lab", {"hooks/slow.sh": noting_hook("slow", bindings(kubernetes=[binding]), hangs)})
        made.start_ready()
        made.create(*labelled("x", "a"))
        (pid,) = eventually(lambda: made.lines("pid"))
        made.configure({"labEnabled": "false"})
        eventually(lambda: not Path(f"/proc/{pid}").exists())
        eventually(lambda: made.modules()["lab"]["state"] == "disabled")
        assert made.queues().get("slow", []) == []
        made.configure({"labEnabled": "true"})
        eventually(lambda: made.told("slow").count("maps Synchronization a") == 1)
        eventually(lambda: made.modules()["lab"]["state"] == "ready")
