"""What a hook could print on `--config`, and what is read from it; for the tests beside."""

from __future__ import annotations

from typing import Any

import pytest

from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import HookConfigError
from addon_operator.hooks.call import HookId, Scope
from addon_operator.hooks.config import parser
from addon_operator.hooks.config.model import (
    HookConfig,
    Kubernetes,
    Schedule,
)

GLOBAL = HookId(None, "hooks/x.sh")


MODULE = HookId("alpha", "hooks/x.sh")


def parse(document: JsonValue, scope: Scope = "module") -> HookConfig:
    return parser.parse_config(document, scope=scope, hook=MODULE if scope == "module" else GLOBAL)


def problems(document: JsonValue, scope: Scope = "module") -> list[str]:
    with pytest.raises(HookConfigError) as caught:
        parse(document, scope)
    head, *lines = str(caught.value).split("\n")
    assert head == f"{MODULE if scope == 'module' else GLOBAL}: bad configuration:"
    return [line.removeprefix("  - ") for line in lines]


def v1(**fields: Any) -> JsonObject:
    return {"configVersion": "v1", **fields}


def kubernetes(**fields: Any) -> Kubernetes:
    return parse(v1(kubernetes=[{"kind": "Pod", **fields}])).kubernetes[0]


def schedule(**fields: Any) -> Schedule:
    return parse(v1(schedule=[{"crontab": "* * * * *", **fields}])).schedules[0]
