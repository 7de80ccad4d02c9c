"""What follows from values that reactions change: another run of the module, a converge, or nothing; in virtual time.

Source: contract.md 3.1, 3.5.
"""

from __future__ import annotations

import asyncio

from structlog.testing import LogCapture

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue, lookup
from tests.component.modules.configurations import Play, bindings, watching
from tests.fakes.bench import Bench, write_template
from tests.fakes.helm import ALL_VALUES
from tests.fakes.hook_transport import HookRun


def obeying(name: str, **fields: JsonValue) -> str:
    return bindings(kubernetes=[watching(name, name, **fields)])


HOOKS = {"global/facts": obeying("facts"), "app/own": obeying("own")}


async def obey(run: HookRun) -> int:
    """Asks for the values that the newest object names: {"app.fact": "1"} -> /app/fact."""
    context = run.contexts()[-1]
    objects = context.get("objects", [context])
    assert isinstance(objects, list)
    data = lookup(objects[-1], "/object/data") if objects else {}
    assert isinstance(data, dict)
    operations: list[JsonValue] = [
        {"op": "add", "path": f"/{key.replace('.', '/')}", "value": jsondoc.loads(str(text))}
        for key, text in data.items()
    ]
    run.write("VALUES_JSON_PATCH_PATH", jsondoc.dumps(operations))
    return 0


def create(bench: Bench, app: str, name: str, **data: JsonValue) -> None:
    bench.kind("ConfigMap").change("Added", name, labels={"app": app}, data={**data})


def prepare(bench: Bench) -> None:
    write_template(bench.root, "app", values=ALL_VALUES)
    bench.hooks.scripts = dict.fromkeys(("global/facts", "app/own", "app/free"), obey)
    create(bench, "facts", "facts", **{"global.fact": "1"})
    create(bench, "own", "own", **{"app.early": "2"})


def deployed(bench: Bench) -> JsonObject:
    """What the chart was rendered with, of the module and of what hooks add to `global`."""
    values = jsondoc.loads(str((bench.deployed("app") or {})["values"]))
    section, fact = lookup(values, "/app"), lookup(values, "/global/fact")
    assert isinstance(section, dict)
    return {**section, "fact": fact}


def done(log: LogCapture, kind: str) -> list[str]:
    """Why the finished tasks of a kind were to be done."""
    return [line["reason"] for line in log.entries if line["event"] == "task done" and line["task"] == kind]


def test_values_of_a_synchronization_that_is_waited_for_are_part_of_the_first_run(play: Play, log: LogCapture) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        assert deployed(bench) == {"early": 2, "fact": 1}
        assert bench.releases["app"].revision == 1
        assert done(log, "ModuleRun") == done(log, "ConvergeModules") == ["OperatorStartup"]

    play(HOOKS, steps, prepare=prepare)


def test_values_of_a_synchronization_that_nobody_waits_for_lead_to_another_run(play: Play, log: LogCapture) -> None:
    go = asyncio.Event()

    async def obey_late(run: HookRun) -> int:
        await go.wait()
        return await obey(run)

    async def steps(bench: Bench) -> None:
        bench.hooks.scripts["app/free"] = obey_late
        await asyncio.sleep(60)
        assert bench.converged
        assert ("app/free", "free: Synchronization") in bench.hooks.runs
        assert deployed(bench) == {"early": 2, "fact": 1}
        assert done(log, "ModuleRun") == done(log, "ConvergeModules") == ["OperatorStartup"]
        go.set()
        await bench.rest()
        assert deployed(bench) == {"early": 2, "late": 3, "fact": 1}
        assert done(log, "ModuleRun")[1:] == ["Kubernetes-Change-ModuleValues"]
        assert len(done(log, "ConvergeModules")) == 1

    def prepare_free(bench: Bench) -> None:
        prepare(bench)
        create(bench, "free", "free", **{"app.late": "3"})

    free = obeying("free", queue="free", waitForSynchronization=False)
    play({**HOOKS, "app/free": free}, steps, prepare=prepare_free)


def test_values_that_an_event_changes_lead_to_one_run_of_the_module(play: Play, log: LogCapture) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        create(bench, "own", "own1", **{"app.own": "4"})
        await bench.rest()
        assert deployed(bench) == {"own": 4, "early": 2, "fact": 1}
        assert done(log, "ModuleRun")[1:] == ["Kubernetes-Change-ModuleValues"]
        assert len(done(log, "ConvergeModules")) == 1
        # The same values again change nothing.
        create(bench, "own", "own2", **{"app.own": "4"})
        await bench.rest()
        assert bench.hooks.runs[-1] == ("app/own", "own: Added own2")
        assert (len(done(log, "ModuleRun")), len(done(log, "ConvergeModules"))) == (2, 1)

    play(HOOKS, steps, prepare=prepare)


def test_a_global_value_that_an_event_changes_leads_to_one_converge(play: Play, log: LogCapture) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        create(bench, "facts", "facts1", **{"global.fact": "5"})
        await bench.rest()
        assert deployed(bench) == {"early": 2, "fact": 5}
        assert done(log, "ConvergeModules")[1:] == ["Kubernetes-Change-GlobalValues"]
        assert len(done(log, "ModuleRun")) == 2

    play(HOOKS, steps, prepare=prepare)
