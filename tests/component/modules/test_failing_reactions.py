"""Reactions that are badly declared, and ones that fail: whom they hold up, and what is shown of them; in virtual time.

Source: contract.md 3.1, 3.4.
"""

from __future__ import annotations

import asyncio

import pytest

from addon_operator.documents.jsondoc import JsonValue
from addon_operator.errors import AddonOperatorError
from addon_operator.server.inspector import ModuleView
from tests.component.modules.configurations import Play, bindings, watching
from tests.fakes.bench import Bench, write_hook
from tests.fakes.hook_transport import HookRun


def declared(crontab: str, binding: str) -> str:
    schedule: list[JsonValue] = [{"crontab": crontab, "includeSnapshotsFrom": [binding]}]
    return bindings(schedule=schedule, kubernetes=[watching("maps", "x")])


GOOD, BAD = declared("0 0 1 1 *", "maps"), declared("soon", "map")
COMPLAINT = """: bad configuration:
  - schedule[0].crontab: must have 5 fields, or 6 with the seconds first
  - schedule[0].includeSnapshotsFrom: 'map' binding name not found"""


def view(bench: Bench, name: str) -> ModuleView:
    """What `module list` shows of a module."""
    (found,) = [module for module in bench.operator.inspector.modules() if module.name == name]
    return found


def test_a_module_with_a_badly_declared_hook_waits_until_it_is_mended_and_its_neighbour_does_not(play: Play) -> None:
    async def steps(bench: Bench) -> None:
        await asyncio.sleep(60)
        assert view(bench, "bad").last_error == f"hook hooks/h of module bad{COMPLAINT}"
        assert bench.runs() == [("good/h", "maps: Synchronization")]
        assert not bench.converged
        write_hook(bench.root, "010-bad/h", GOOD)
        await bench.rest()
        assert bench.converged
        assert bench.runs() == [("bad/h", "maps: Synchronization")]
        assert view(bench, "bad").last_error is None

    play({"010-bad/h": BAD, "010-good/h": GOOD}, steps)


def test_a_badly_declared_global_hook_ends_the_start(play: Play) -> None:
    async def steps(_bench: Bench) -> None:
        raise AssertionError("it has started")

    with pytest.raises(AddonOperatorError) as caught:
        play({"global/h": BAD}, steps)
    assert str(caught.value) == f"global hook h{COMPLAINT}"


def test_a_module_shows_its_hook_that_fails_in_a_queue_of_its_own(play: Play) -> None:
    ill = False

    async def react(run: HookRun) -> int:
        if ill:
            run.print("ill\n", "stderr")
        return 3 if ill else 0

    async def steps(bench: Bench) -> None:
        nonlocal ill
        bench.hooks.scripts["lab/h"] = react
        await bench.rest()
        ill = True
        bench["maps"].change("Added", "a", labels={"app": "x"})
        await bench.tick()
        shown = view(bench, "lab")
        assert shown.last_error == "in queue aside: hook hooks/h of module lab: run ended with exit code 3: ill"
        assert shown.state == "ready"
        ill = False
        await bench.rest()
        assert view(bench, "lab").last_error is None

    play({"lab/h": bindings(kubernetes=[watching("maps", "x", queue="aside")])}, steps)
