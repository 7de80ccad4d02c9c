"""What follows from the reactions of hooks: modules that come and go, files that change, outages; the order of a start.

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
