"""Configurations of hooks, and what becomes of modules, that several tests of this room share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from addon_operator.documents.jsondoc import JsonObject, JsonValue
from tests.fakes.bench import Bench

Play = Callable[..., Bench]

SEE_PODS = "kubernetes: [{name: pods, kind: Pod}]"
# A kind that no definition brings before a test says so.
SEE_WIDGETS = "kubernetes: [{name: widgets, kind: Widget}]"

STAGES = "onStartup: 1\nbeforeHelm: 1\nafterDeleteHelm: 1\n"
IN_MAIN, ASIDE = f"{STAGES}{SEE_PODS}", f"{STAGES}kubernetes: [{{name: pods, kind: Pod, queue: aside}}]"
EVERY_5_MINUTES = "schedule: [{name: often, crontab: '*/5 * * * *'}]\n"
STARTUP, SYNCHRONIZATION, BEFORE_HELM, AFTER_DELETE = (
    ("alpha/x", what) for what in ("onStartup", "pods: Synchronization", "beforeHelm", "afterDeleteHelm")
)


def bindings(**keys: JsonValue) -> str:
    """A configuration with these keys, as `play` wants it."""
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items())


def watching(name: str, app: str, **fields: JsonValue) -> JsonObject:
    """A `kubernetes` binding to ConfigMaps that have the label `app`."""
    return {"name": name, "kind": "ConfigMap", "labelSelector": {"matchLabels": {"app": app}}, **fields}


def validating(*names: str) -> str:
    rule = "rules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]"
    return "kubernetesValidating:\n" + "".join(f"- {{name: {name}.example.com, {rule}}}\n" for name in names)


class Window:
    """Two modules are disabled; the delete of `beta` fails, so that of `alpha` does not begin before it is back."""

    HOOKS = {"beta/x": "afterDeleteHelm: 1"}  # noqa: RUF012 -- never changed

    @staticmethod
    async def opens(bench: Bench) -> None:
        bench.hooks.failing.add("beta/x")
        bench.edit(alphaEnabled="false", betaEnabled="false")
        await asyncio.sleep(60)
        assert not bench.registry.is_enabled("alpha")

    @staticmethod
    async def closes(bench: Bench) -> None:
        bench.edit(alphaEnabled=None)
        await asyncio.sleep(60)
        bench.hooks.failing.clear()
        assert not [line for line in await bench.rest() if line.startswith("ModuleDelete:main:alpha")]
