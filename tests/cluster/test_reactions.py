"""What follows from the reactions of hooks: values, modules that come and go, files that change, outages.

Source: contract.md 3.1, 3.3, 3.4, 3.5, 3.7, 5.4.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path

from addon_operator.devcluster import DevCluster
from addon_operator.documents.jsondoc import JsonValue, lookup
from tests.cluster.operator import (
    Operator,
    bindings,
    config_map,
    config_map_chart,
    eventually,
    hold,
    noting_hook,
    operator,
)
from tests.cluster.outage import outage

# Asks for the values that the newest object names: {"app.fact": "1"} -> /app/fact.
OBEY = r"""jq -c '[.[-1] | (.object // .objects[-1].object // {}) | .data // {} | to_entries[]
  | {op: "add", path: ("/" + (.key | gsub("\\."; "/"))), value: (.value | fromjson)}]' \
  "$BINDING_CONTEXT_PATH" >"$VALUES_JSON_PATCH_PATH"
"""
NEVER = "0 0 1 1 *"


def done(made: Operator) -> list[str]:
    """The finished tasks in order, as `KIND SCOPE`."""
    found = re.findall(
        r" task done .*task=(\S+) task_id=\d+ event_id=\S+(?: scope=(\"[^\"]*\"|\S+))? reason", made.text()
    )
    return [f"{kind} {scope}".strip() for kind, scope in found]


def count_done(made: Operator, kind: str) -> int:
    return sum(task.split()[0] == kind for task in done(made))


def test_the_golden_order_of_a_start(cluster: DevCluster, tmp_path: Path) -> None:
    """Contract 3.7 in full."""
    with operator(cluster, tmp_path) as made:
        quiet = made.watching("quiet", "x", executeHookOnSynchronization=False)
        schedule: list[JsonValue] = [{"crontab": NEVER}]
        hooks = {
            "hook01": bindings(onStartup=20, beforeAll=2, kubernetes=[made.watching("maps", "x")]),
            "hook02": bindings(onStartup=1, beforeAll=1, schedule=schedule),
            "hook03": bindings(onStartup=10, afterAll=1, schedule=schedule, kubernetes=[quiet]),
        }
        made.files({f"global-hooks/{name}.sh": noting_hook(name, config) for name, config in hooks.items()})
        alpha = bindings(
            onStartup=1, beforeHelm=1, afterHelm=1, schedule=schedule, kubernetes=[made.watching("maps", "x")]
        )
        made.files({"modules/values.yaml": "alphaEnabled: true\n"})
        made.module("alpha", {**config_map_chart("alpha", "a: b"), "hooks/hook01.sh": noting_hook("alpha", alpha)})
        made.start_ready()
        made.wait_idle()
        assert done(made) == [
            *("GlobalHookRun onStartup:hook02.sh", "GlobalHookRun onStartup:hook03.sh"),
            "GlobalHookRun onStartup:hook01.sh",
            *("GlobalHookEnableScheduleBindings hook02.sh", "GlobalHookEnableScheduleBindings hook03.sh"),
            *("GlobalHookEnableKubernetesBindings hook01.sh", "GlobalHookRun kubernetes:hook01.sh:maps"),
            *("GlobalHookEnableKubernetesBindings hook03.sh", "GlobalHookRun kubernetes:hook03.sh:quiet"),
            "GlobalHookWaitKubernetesSynchronization",
            *("GlobalHookRun beforeAll:hook02.sh", "GlobalHookRun beforeAll:hook01.sh"),
            *("ModuleHookRun kubernetes:hooks/hook01.sh:maps", "ModuleRun alpha"),
            *("GlobalHookRun afterAll:hook03.sh", "ConvergeModules WaitAfterAll"),
        ]
        assert made.runs() == [
            *("hook02 onStartup", "hook03 onStartup", "hook01 onStartup", "hook01 maps"),
            *("hook02 beforeAll", "hook01 beforeAll"),
            *("alpha onStartup", "alpha maps", "alpha beforeHelm", "alpha afterHelm", "hook03 afterAll"),
        ]
        # Snapshots of all bindings, in every context of the lifecycle but the first.
        last = made.contexts("hook03")[-1]
        assert last == {"binding": "afterAll", "snapshots": {"quiet": []}}
        assert made.contexts("hook02")[-1] == {"binding": "beforeAll", "snapshots": {}}
        first, *_, before, after = made.contexts("alpha")
        assert first == {"binding": "onStartup"}
        assert (before, after) == tuple(
            {"binding": name, "snapshots": {"maps": []}} for name in ("beforeHelm", "afterHelm")
        )


def test_values_that_reactions_change(cluster: DevCluster, tmp_path: Path) -> None:
    """A run of the module follows, or a converge; not where somebody waits for a Synchronization and goes on anyway."""
    with operator(cluster, tmp_path) as made:

        def obeying(name: str, body: str = "", **fields: JsonValue) -> str:
            return noting_hook(name, bindings(kubernetes=[made.watching(name, name, **fields)]), f"{body}\n{OBEY}")

        made.files({"modules/values.yaml": "appEnabled: true\n", "global-hooks/facts.sh": obeying("facts")})
        keys = {"own": "app.own", "early": "app.early", "late": "app.late", "fact": "global.fact"}
        data = "\n".join(f'{key}: {{{{ .Values.{path} | default "-" | quote }}}}' for key, path in keys.items())
        made.module("app", {
            **config_map_chart("app", data),
            "hooks/own.sh": obeying("own"),
            "hooks/free.sh": obeying("free", hold("free"), queue="free", waitForSynchronization=False),
        })  # fmt: skip
        made.create(
            config_map("facts", labels={"app": "facts"}, data={"global.fact": "1"}),
            config_map("own", labels={"app": "own"}, data={"app.early": "2"}),
            config_map("free", labels={"app": "free"}, data={"app.late": "3"}),
        )
        made.start_ready()
        assert made.deployed("app") == {"own": "-", "early": "2", "late": "-", "fact": "1"}
        eventually(lambda: count_done(made, "ConvergeModules") == 1)  # its line follows when it is ready already
        assert count_done(made, "ModuleRun") == 1
        # Nobody has waited for this one.
        made.touch("go-free")
        eventually(lambda: made.deployed("app") == {"own": "-", "early": "2", "late": "3", "fact": "1"})
        made.create(config_map("own1", labels={"app": "own"}, data={"app.own": "4"}))
        eventually(lambda: made.deployed("app") == {"own": "4", "early": "2", "late": "3", "fact": "1"})
        made.wait_idle()
        assert made.text().count("scope=app reason=Kubernetes-Change-ModuleValues") == 2
        assert (count_done(made, "ModuleRun"), count_done(made, "ConvergeModules")) == (3, 1)
        # The same values again change nothing.
        made.create(config_map("own2", labels={"app": "own"}, data={"app.own": "4"}))
        eventually(lambda: made.told("own")[-1] == "own Added own2")
        made.wait_idle()
        assert count_done(made, "ModuleRun") == 3

        made.create(config_map("facts1", labels={"app": "facts"}, data={"global.fact": "5"}))
        eventually(lambda: made.deployed("app")["fact"] == "5")
        made.wait_idle()
        assert made.in_log("reason=Kubernetes-Change-GlobalValues")
        assert (count_done(made, "ModuleRun"), count_done(made, "ConvergeModules")) == (4, 2)


def test_a_module_that_comes_and_goes(cluster: DevCluster, tmp_path: Path) -> None:
    """Switched by what a global hook sees; its reactions live as long as it does, its snapshots a bit longer."""
    with operator(cluster, tmp_path) as made:
        # One second's ticks are seen by both, so the witness shows when the module's hook would have been told.
        each: list[JsonValue] = [{"name": "tick", "crontab": "* * * * * *", "queue": "ticks"}]
        switch = bindings(kubernetes=[made.watching("switch", "switch")])
        witness = bindings(schedule=each, kubernetes=[made.watching("seen", "x")])
        config = bindings(
            onStartup=1, beforeHelm=1, afterDeleteHelm=1, schedule=each, kubernetes=[made.watching("maps", "x")]
        )
        made.files(
            {
                "global-hooks/switch.sh": noting_hook("switch", switch, OBEY),
                "global-hooks/witness.sh": noting_hook("witness", witness),
            }
        )
        made.module("app", {"hooks/h.sh": noting_hook("app", config), **config_map_chart("app", "a: b")})
        state = config_map("state", labels={"app": "switch"}, data={"appEnabled": "false"})
        made.create(state, config_map("one", labels={"app": "x"}))
        made.start_ready()

        def events() -> list[str]:
            return [told for told in made.told("app") if told != "tick Schedule"]

        def witness_sees(told: str) -> None:
            """It, and a tick behind it."""
            eventually(lambda: told in made.told("witness"))
            ticks = made.told("witness").count("tick Schedule")
            eventually(lambda: made.told("witness").count("tick Schedule") > ticks)

        def has_nothing_to_do() -> bool:
            return not any("app" in task for tasks in made.queues().values() for task in tasks)

        made.replace({**state, "data": {"appEnabled": "true"}})
        life = ["onStartup", "maps Synchronization one", "beforeHelm"]
        eventually(lambda: events() == life)
        eventually(lambda: made.in_log("scope=app reason=ReloadAll-After-GlobalHookDynamicUpdate"))
        made.create(config_map("two", labels={"app": "x"}))
        eventually(lambda: events() == [*life, "maps Added two"])
        eventually(lambda: "tick Schedule" in made.told("app"))

        made.replace({**state, "data": {"appEnabled": "false"}})
        eventually(lambda: made.modules()["app"]["state"] == "disabled" and events()[-1] == "afterDeleteHelm")
        last = made.contexts("app")[-1]
        assert lookup(last, "/snapshots/maps/1/object/metadata/name") == "two"
        told = made.told("app")
        made.create(config_map("three", labels={"app": "x"}))
        witness_sees("seen Added three")
        assert made.told("app") == told

        made.replace({**state, "data": {"appEnabled": "true"}})
        again = ["onStartup", "maps Synchronization one three two", "beforeHelm"]
        eventually(lambda: events()[-3:] == again)
        ticks = made.told("app").count("tick Schedule")
        eventually(lambda: made.told("app").count("tick Schedule") > ticks)

        # Its file asks for something else: from the next converge on that is what it gets.
        other = config.replace('"app": "x"', '"app": "y"').replace("* * * * * *", NEVER)
        made.module("app", {"hooks/h.sh": noting_hook("app", other)})
        made.create(config_map("yes", labels={"app": "y"}))
        made.configure({"global": "a: 1"})
        eventually(lambda: events()[-2:] == ["maps Synchronization yes", "beforeHelm"])
        eventually(has_nothing_to_do)
        told = made.told("app")
        made.create(*(config_map(name, labels={"app": app}) for name, app in {"no": "x", "also": "y"}.items()))
        eventually(lambda: made.told("app")[len(told) :])
        witness_sees("seen Added no")
        assert made.told("app") == [*told, "maps Added also"]


def test_outages(cluster: DevCluster, tmp_path: Path) -> None:
    """Neither the API server's nor the operator's own make hooks see what was not, or miss what was."""
    with operator(cluster, tmp_path) as made:
        made.files({"global-hooks/h.sh": noting_hook("h", bindings(kubernetes=[made.watching("maps", "x")]))})
        made.create(*(config_map(name, labels={"app": "x"}) for name in ("a", "b")))
        made.start_ready()
        with outage(cluster):
            eventually(lambda: made.in_log("the API server does not answer"))
            cluster.start_apiserver()
            made.create(config_map("c", labels={"app": "x"}))
            made.delete("a")
            eventually(lambda: len(made.told("h")) >= 3)
        made.wait_idle()
        assert made.told("h") == ["maps Synchronization a b", "maps Added c", "maps Deleted a"]

        made.stop(signal.SIGKILL)
        made.delete("b")
        made.create(config_map("d", labels={"app": "x"}))
        made.start_ready()
        made.create(config_map("e", labels={"app": "x"}))
        eventually(lambda: made.told("h")[3:] == ["maps Synchronization c d", "maps Added e"])


def test_a_module_shows_its_hook_that_fails_in_a_queue_of_its_own(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as made:
        config = bindings(kubernetes=[made.watching("maps", "x", queue="aside")])
        made.files({"modules/values.yaml": "labEnabled: true\n"})
        made.module("lab", {"hooks/h.sh": noting_hook("lab", config, "[ ! -e $OUT/ill ] || { echo ill >&2; exit 3; }")})
        made.start_ready()
        made.touch("ill")
        made.create(config_map("a", labels={"app": "x"}))
        error = eventually(lambda: made.modules()["lab"]["lastError"])
        assert error == "in queue aside: hook hooks/h.sh of module lab: run ended with exit code 3: ill"
        assert made.modules()["lab"]["state"] == "ready"
        (tmp_path / "ill").unlink()
        eventually(lambda: made.modules()["lab"]["lastError"] is None)


def test_a_reaction_that_is_badly_declared(cluster: DevCluster, tmp_path: Path) -> None:
    """In a module's hook: the module waits until it is mended, its neighbour does not. In a global hook: no start."""
    with operator(cluster, tmp_path) as made:
        maps = made.watching("maps", "x")
        bad = bindings(schedule=[{"crontab": "soon", "includeSnapshotsFrom": ["map"]}], kubernetes=[maps])
        good = bindings(schedule=[{"crontab": NEVER, "includeSnapshotsFrom": ["maps"]}], kubernetes=[maps])
        made.files({"modules/values.yaml": "badEnabled: true\ngoodEnabled: true\n"})
        made.module("010-bad", {"hooks/h.sh": noting_hook("bad", bad)})
        made.module("010-good", {"hooks/h.sh": noting_hook("good", good)})
        made.start()
        error = str(eventually(lambda: made.modules()["bad"]["lastError"]))
        assert error.startswith("hook hooks/h.sh of module bad: bad configuration:\n  - schedule[0].crontab: ")
        assert "\n  - schedule[0].includeSnapshotsFrom: 'map' binding name not found" in error
        eventually(lambda: made.told("good") == ["maps Synchronization"])
        made.module("010-bad", {"hooks/h.sh": noting_hook("bad", good)})
        made.wait_ready()
        assert made.told("bad") == ["maps Synchronization"]
        assert made.stop() == 0

        made.files({"global-hooks/h.sh": noting_hook("global", bad)})
        made.start()
        assert made.process is not None
        assert made.process.wait(timeout=60) == 1
        assert error.replace("hook hooks/h.sh of module bad", "global hook h.sh") in made.text()
