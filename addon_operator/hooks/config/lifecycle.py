"""Lifecycle bindings: which ones a hook may have, and their orders. Pure; the same in all versions of the format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from addon_operator.documents.fields import Fields
from addon_operator.hooks.call import Scope
from addon_operator.hooks.config.model import Lifecycle, LifecycleKind

_KINDS: Final[Mapping[Scope, tuple[LifecycleKind, ...]]] = {
    "global": ("onStartup", "beforeAll", "afterAll"),
    "module": ("onStartup", "beforeHelm", "afterHelm", "beforeDeleteHelm", "afterDeleteHelm"),
}


def lifecycle(root: Fields, scope: Scope) -> tuple[Lifecycle, ...]:
    """Takes the lifecycle bindings of a document; those of the other scope are errors."""
    other: Scope = "module" if scope == "global" else "global"
    for kind in _KINDS[other]:
        if kind not in _KINDS[scope] and root.has(kind):
            root.fail(kind, f"not possible in a {scope} hook, only in a {other} hook")
    return tuple(Lifecycle(kind, root.integer(kind)) for kind in _KINDS[scope] if root.has(kind))
