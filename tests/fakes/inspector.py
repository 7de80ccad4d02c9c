"""An operator that stands still: three modules in three states, three queues, nothing that moves."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import InputError
from addon_operator.server.inspector import (
    ExplainView,
    FlagView,
    ModuleView,
    ParameterView,
    QueueView,
    ReleaseView,
    ScriptView,
    TaskView,
)

ALPHA = ModuleView(
    name="alpha",
    order=10,
    enabled=True,
    state="ready",
    reason="enabled by the ConfigMap",
    release="alpha",
    revision=3,
    duration_s=0.1234567,
)
BETA = ModuleView(
    name="beta-two",
    order=20,
    enabled=True,
    state="failed",
    reason="a hook failed",
    duration_s=245.0,
    last_error="hooks/before.sh: exit code 1\n  cannot reach \x1b[31mthe cluster",
)
GAMMA = ModuleView(name="gamma", order=20, enabled=False, state="disabled", reason="enabled script: no ingress class")

QUEUES = (
    QueueView("crontab", "run first task", (TaskView("ModuleHookRun:crontab:schedule:alpha/hooks/tick.sh:Schedule"),)),
    QueueView(
        "main",
        "sleep after fail for 5s",
        (
            TaskView("ModuleRun:main:beta-two:OperatorStartup:failures 2:exit code 1\nno such host", 2, 7.25),
            TaskView("ConvergeModules:main:OperatorStartup", 0, 7.5),
        ),
    ),
    QueueView("aside", "run first task"),
)


@dataclasses.dataclass
class StillInspector:
    """Answers from its fields; `changes` records what was set."""

    all_queues: tuple[QueueView, ...] = QUEUES
    all_notices: tuple[str, ...] = ()
    away_since: datetime | None = None
    all_modules: tuple[ModuleView, ...] = (ALPHA, BETA, GAMMA)
    all_held: Mapping[str, str] = dataclasses.field(default_factory=dict)
    confirmed: list[str] = dataclasses.field(default_factory=list)
    changes: list[tuple[str, str, float | None]] = dataclasses.field(default_factory=list)

    def notices(self) -> tuple[str, ...]:
        return self.all_notices

    def api_server_away_since(self) -> datetime | None:
        return self.away_since

    def held(self) -> Mapping[str, str]:
        return self.all_held

    def confirm_removals(self, names: Sequence[str]) -> None:
        if unknown := set(names) - self.all_held.keys():
            raise InputError(f"not held: {', '.join(sorted(unknown))}")
        self.confirmed.extend(names)

    def queues(self) -> tuple[QueueView, ...]:
        return self.all_queues

    def global_hooks(self) -> tuple[str, ...]:
        return ("hooks/discovery.sh", "hooks/version.py")

    def global_values(self) -> JsonValue:
        return {"clusterName": "main", "enabledModules": ["alpha", "beta-two"]}

    def global_config(self) -> JsonValue:
        return {"clusterName": "main"}

    def global_patches(self) -> tuple[JsonObject, ...]:
        return ({"op": "add", "path": "/global/discovered", "value": {"nodes": 3}},)

    def global_snapshots(self) -> JsonObject:
        return {"hooks/discovery.sh": {"nodes": []}}

    def modules(self) -> tuple[ModuleView, ...]:
        return self.all_modules

    def module_values(self, name: str, *, with_global: bool) -> JsonObject:
        key = {"alpha": "alpha", "beta-two": "betaTwo"}.get(name, name)
        shared: JsonObject = {"global": {"clusterName": "main"}} if with_global else {}
        return {**shared, key: {"replicas": 2, "hosts": ["a.example", "b.example"], "motd": "one\ntwo\n"}}

    def module_config(self, name: str, *, with_global: bool) -> JsonObject:
        shared: JsonObject = {"global": {"clusterName": "main"}} if with_global else {}
        return {**shared, name: {"replicas": 2}}

    def module_origins(self, name: str, *, with_global: bool) -> Mapping[str, str]:
        shared = {"/global/clusterName": "ConfigMap, key global"} if with_global else {}
        return {
            **shared,
            "/alpha/replicas": "ConfigMap, key alpha",
            "/alpha/hosts": "hook hooks/hosts.sh at 2026-11-20T10:00:00Z",
            "/alpha/motd": "modules/010-alpha/values.yaml:4",
        }

    def module_patches(self, name: str) -> tuple[JsonObject, ...]:
        return ({"op": "remove", "path": f"/{name}/replicas"},) if name == "alpha" else ()

    def module_snapshots(self, name: str) -> JsonObject:
        return {"hooks/tick.sh": {"pods": [{"filterResult": 1}]}}

    def module_explain(self, name: str) -> ExplainView:
        return {"alpha": EXPLAIN_ALPHA, "gamma": EXPLAIN_GAMMA}.get(name, EXPLAIN_BETA)

    def resource_monitor(self) -> Mapping[str, tuple[str, ...] | None]:
        return {"beta-two": None, "alpha": ("addons/ConfigMap/alpha", "addons/Deployment/alpha")}

    def parameters(self) -> tuple[ParameterView, ...]:
        return (ParameterView("log.level", "debug", "lowest level shown", expires_in_s=90.0),)

    def set_parameter(self, name: str, value: str, *, duration_s: float | None) -> None:
        if name != "log.level":
            raise InputError(f"no such setting: {name}; there is log.level")
        self.changes.append((name, value, duration_s))


EXPLAIN_ALPHA = ExplainView(
    module=ALPHA,
    path="modules/010-alpha",
    flags=(
        FlagView("modules/values.yaml", value=False, place="modules/values.yaml:2"),
        FlagView("modules/010-alpha/values.yaml", value=None),
        FlagView("global hooks", value=None),
        FlagView("ConfigMap", value=True, place="addons/addon-operator, key alphaEnabled"),
    ),
    release=ReleaseView(
        name="alpha",
        namespace="addons",
        status="deployed",
        revision=3,
        absent=("addons/Deployment/alpha",),
        decision="upgrade",
        decision_reason="1 object is absent",
        decided_at=datetime(2026, 11, 20, 10, 0, 0, 123, tzinfo=UTC),
    ),
)
EXPLAIN_BETA = ExplainView(
    module=BETA,
    path="modules/020-beta-two",
    flags=(FlagView("global hooks", value=True, place="hooks/on.sh"), FlagView("ConfigMap", value=None)),
    script=ScriptView("modules/020-beta-two/enabled", None, error="exit code 3\nno reason written"),
    release=ReleaseView(name="beta-two", namespace="addons"),
)
EXPLAIN_GAMMA = ExplainView(
    module=GAMMA,
    path="modules/020-gamma",
    flags=(FlagView("modules/020-gamma/values.yaml", value=True, place="modules/020-gamma/values.yaml:1"),),
    script=ScriptView("modules/020-gamma/enabled", result=False, reason="no ingress class"),
)
