"""Binding contexts: the JSON objects that tell a hook why it runs (contract.md 2.3).

Pure. Built when the hook starts, not when the event arrives, so that snapshots are those of the moment.
"""

from __future__ import annotations

from collections.abc import Mapping

from addon_operator.hooks.bindings import HookConfig, LifecycleKind
from addon_operator.jsondoc import JsonObject, JsonValue


def lifecycle(config: HookConfig, kind: LifecycleKind, snapshots: Mapping[str, JsonValue] | None = None) -> JsonObject:
    """Builds the context of a lifecycle binding.

    Args:
        config: the hook's; version v0 knows no snapshots.
        kind: the binding.
        snapshots: name of each `kubernetes` binding of the hook -> its items; none unless told.

    Source: contract.md 2.3, 6.2.
    """
    if kind == "onStartup" or config.version == "v0":
        return {"binding": kind}
    return {"binding": kind, "snapshots": dict(snapshots or {})}
