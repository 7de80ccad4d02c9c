"""What runs in which order, what is repeated, what leads to one more converge (contract 3.7 to 3.9); in virtual time.

The whole order of a start, the end of a module and purged releases are in `tests/cluster/test_lifecycle.py`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path

from structlog.testing import capture_logs

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonValue, lookup
from addon_operator.server.inspector import ModuleView
from addon_operator.server.status import Startup
from tests.component.modules.lab import charted, release_records
from tests.fakes.bench import Bench, play, write_template
from tests.fakes.helm import ALL_VALUES
from tests.fakes.hook_transport import HookFunction, HookRun

EARLY = "onStartup: 1\nbeforeHelm: 1\n"
AROUND_HELM = f"{EARLY}afterHelm: 1\n"


def binding(run: HookRun) -> str:
    return str(run.contexts()[0]["binding"])


def adding(values: Mapping[str, JsonValue], *, at: str = "") -> HookFunction:
    """A hook that adds values in each run, or in those of one binding: JSON pointer -> value."""

    async def hook(run: HookRun) -> int:
        if at in ("", binding(run)):
            run.write("VALUES_JSON_PATCH_PATH", operations("add", values))
        return 0

    return hook


def operations(op: str, values: Mapping[str, JsonValue]) -> bytes:
    return jsondoc.dumps([{"op": op, "path": path, "value": value} for path, value in values.items()])


def write_enabled_script(bench: Bench, directory: str) -> None:
    """What it does is up to `bench.hooks.scripts`."""
    script = bench.root / "modules" / directory / "enabled"
    script.parent.mkdir(exist_ok=True)
    script.touch(mode=0o755)


def main_queue(bench: Bench) -> str:
    """The task texts of the main queue, one a line, behind its status."""
    (queue,) = [queue for queue in bench.operator.inspector.queues() if queue.name == "main"]
    return "\n".join([queue.shown_status, *(task.description for task in queue.tasks)])


def view(bench: Bench, name: str) -> ModuleView:
    """A module, as it is listed."""
    return next(module for module in bench.operator.inspector.modules() if module.name == name)


def test_values_changed_after_helm_and_after_all_lead_to_one_more_run(tmp_path: Path) -> None:
    def prepare(bench: Bench) -> None:
        (bench.root / "modules/values.yaml").write_text("readerEnabled: true\n")
        write_template(bench.root, "010-reader", values=ALL_VALUES)
        write_enabled_script(bench, "040-follower")
        (bench.root / "modules/040-follower/values.yaml").write_text("followerEnabled: true\n")
        bench.hooks.scripts.update(
            {
                "global/choose": adding({"/chosenEnabled": True}),
                "global/find": adding({"/global/found": "by afterAll", "/lateEnabled": True}),
                "reader/h": adding({"/reader/seen": "by afterHelm"}, at="afterHelm"),
                "follower/enabled": follow,
            }
        )

    async def follow(run: HookRun) -> int:
        enabled = lookup(run.values(), "/global/enabledModules")
        assert isinstance(enabled, list)
        run.write("MODULE_ENABLED_RESULT", b"true" if "late" in enabled else b"false")
        run.write("MODULE_ENABLED_REASON", b"it follows late")
        return 0

    async def steps(bench: Bench) -> None:
        with capture_logs() as lines:
            await bench.rest()
        upgrade = ["reader/h beforeHelm", "reader upgrade", "reader/h afterHelm"]
        assert bench.hooks.history == [
            *("global/choose beforeAll", "reader/h onStartup", *upgrade, *upgrade),
            *("chosen/h onStartup", "chosen/h beforeHelm", "global/find afterAll"),
            *("global/choose beforeAll", *upgrade, "chosen/h beforeHelm"),
            *("late/h onStartup", "late/h beforeHelm", "follower/h onStartup", "global/find afterAll"),
        ]
        shared: JsonValue = {"found": "by afterAll"}
        assert charted(bench, "reader") == {"global": shared, "reader": {"seen": "by afterHelm"}}
        assert bench.metric('convergence_total{activation="OperatorStartup"}') == 1
        assert bench.metric('convergence_total{activation=""}') == 1
        reasons = {str(line.get("reason")) for line in lines}
        assert reasons >= {"AfterHelm-Hooks-Change-Values", "AfterAll-Hooks-Change-GlobalValues"}

    hooks = {
        "global/choose": "beforeAll: 1\n", "global/find": "afterAll: 1\n",
        "010-reader/h": AROUND_HELM, "020-chosen/h": EARLY, "030-late/h": EARLY, "040-follower/h": "onStartup: 1\n",
    }  # fmt: skip
    play(tmp_path, hooks, steps, prepare=prepare)


def test_a_failing_hook_is_repeated_and_the_order_is_kept(tmp_path: Path) -> None:
    """Retry from the hooks before Helm (contract 3.9); what comes after waits; the queue says what is wrong."""
    well = asyncio.Event()

    async def fail(run: HookRun) -> int:
        if binding(run) != "afterHelm" or well.is_set():
            return 0
        run.print("not today\n", "stderr")
        return 3

    def prepare(bench: Bench) -> None:
        write_template(bench.root, "010-first", a="b")
        bench.hooks.scripts["first/h"] = fail

    async def steps(bench: Bench) -> None:
        await asyncio.sleep(60)
        text = main_queue(bench)
        assert re.search(r"ModuleRun:main:first:OperatorStartup:failures ([2-9]|\d\d):", text), text
        assert "hook hooks/h of module first: run ended with exit code 3: not today" in text
        assert text.splitlines()[2] == "ModuleRun:main:second:OperatorStartup"
        status = bench.operator.status()
        assert (status.startup, status.ready) == (Startup.IN_PROGRESS, False)
        assert status.readiness() == "Startup converge in progress"
        assert "not today" in str(view(bench, "first").last_error)
        failures = bench.metric('module_run_errors_total{module="first"}')
        assert failures >= 2
        well.set()
        await bench.rest()
        assert bench.operator.status().ready

        # The release is there after the first attempt, so Helm has nothing to do in the others.
        first = ["first/h onStartup", "first/h beforeHelm", "first upgrade", "first/h afterHelm"]
        again = ["first/h beforeHelm", "first/h afterHelm"]
        assert bench.hooks.history == [*first, *again * int(failures), "second/h onStartup"]
        assert bench.helm.operations == [("upgrade", "first")]
        assert view(bench, "first").last_error is None
        labels = [(lookup(item, "/metadata/labels/version"), lookup(item, "/metadata/labels/status"))
                  for item in release_records(bench)]  # fmt: skip
        assert labels == [("1", "deployed")]

    play(tmp_path, {"010-first/h": AROUND_HELM, "020-second/h": "onStartup: 1\n"}, steps, prepare=prepare)


def test_flags_that_a_hook_stores_in_the_config_map_take_effect(tmp_path: Path) -> None:
    """`fooEnabled` in a config patch is long-term (contract 3.9) and asks for one more converge; so does removal."""
    wishes = [b'[{"op":"add","path":"/keptEnabled","value":true}]']

    async def keep(run: HookRun) -> int:
        if wishes:
            run.write("CONFIG_VALUES_JSON_PATCH_PATH", wishes.pop())
        return 0

    def prepare(bench: Bench) -> None:
        (bench.root / "modules/values.yaml").unlink()
        bench.delete_config_map()
        bench.hooks.scripts["global/keep"] = keep

    async def steps(bench: Bench) -> None:
        await bench.rest()
        assert bench.config_map == {"keptEnabled": "true"}
        started = ["global/keep afterAll", "kept/h onStartup", "global/keep afterAll"]
        assert bench.hooks.history == started
        wishes.append(b'[{"op":"remove","path":"/keptEnabled"}]')
        bench.edit(**{"global": "a: 1"})
        await bench.rest()
        assert bench.config_map == {"global": "a: 1"}
        assert bench.hooks.history[3:] == ["global/keep afterAll", "kept/h afterDeleteHelm", "global/keep afterAll"]

    play(
        tmp_path,
        {"global/keep": "afterAll: 1\n", "kept/h": "onStartup: 1\nafterDeleteHelm: 1\n"},
        steps,
        prepare=prepare,
    )


def test_modules_of_equal_order_run_side_by_side(tmp_path: Path) -> None:
    """Each waits for the other; only the one that fails is repeated; the next order waits for both."""
    at_a, at_b, well = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hook_of_a(run: HookRun) -> int:
        at_a.set()
        await at_b.wait()
        return 0 if binding(run) != "afterHelm" or well.is_set() else 1

    async def hook_of_b(_run: HookRun) -> int:
        at_b.set()
        await at_a.wait()
        return 0

    def prepare(bench: Bench) -> None:
        bench.hooks.scripts.update({"a/h": hook_of_a, "b/h": hook_of_b})
        for directory in ("010-a", "010-b"):
            write_template(bench.root, directory, a="b")

    async def steps(bench: Bench) -> None:
        await asyncio.sleep(60)
        text = main_queue(bench)
        assert re.search(r"^sleep.*\nModuleRun:main:a:OperatorStartup:failures ([2-9]|\d\d):", text), text
        well.set()
        await bench.rest()
        runs = bench.runs()
        attempt = [("a/h", "afterHelm"), ("a/h", "beforeHelm")]
        assert set(runs[:2]) == {("a/h", "beforeHelm"), ("b/h", "beforeHelm")}
        assert runs.count(("b/h", "beforeHelm")) == 1
        assert runs[2:] == [*attempt * (len(runs) // 2 - 2), ("a/h", "afterHelm"), ("c/h", "beforeHelm")]

    hooks = {"010-a/h": "beforeHelm: 1\nafterHelm: 1\n", "010-b/h": "beforeHelm: 1\n", "020-c/h": "beforeHelm: 1\n"}
    play(tmp_path, hooks, steps, prepare=prepare)


def test_a_failing_enabled_script_is_asked_again(tmp_path: Path) -> None:
    answers: list[bytes | None] = [None]  # None: it fails

    async def decide(run: HookRun) -> int:
        if (answer := answers[-1]) is None:
            return 4
        run.write("MODULE_ENABLED_RESULT", answer)
        return 0

    def prepare(bench: Bench) -> None:
        write_enabled_script(bench, "ask")
        bench.hooks.scripts["ask/enabled"] = decide

    async def steps(bench: Bench) -> None:
        following: dict[str, bytes] = {
            "run ended with exit code 4": b"",
            "MODULE_ENABLED_RESULT must be true or false, but is empty": b"maybe\n",
            "MODULE_ENABLED_RESULT must be true or false, but holds": b" true \n",
        }
        for trouble, answer in following.items():
            await asyncio.sleep(60)
            expected = rf"\nConvergeModules:main:WaitBeforeAll:OperatorStartup:failures \d+:.* ask: {trouble}"
            assert re.search(expected, main_queue(bench)), main_queue(bench)
            answers.append(answer)
        await bench.rest()
        assert bench.converged
        assert bench.metric("module_discover_errors_total") >= 3
        assert bench.hooks.history == ["global/around beforeAll", "ask/h onStartup", "global/around afterAll"]

    hooks = {"global/around": "beforeAll: 1\nafterAll: 1\n", "ask/h": "onStartup: 1\n"}
    play(tmp_path, hooks, steps, prepare=prepare)
