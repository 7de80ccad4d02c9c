"""A hook as it is known to the operator, and all hooks of one scope by their bindings.

Pure. Made by the catalog.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from addon_operator.hooks.call import HookId
from addon_operator.hooks.config.model import HookConfig, LifecycleKind


@dataclass(frozen=True, slots=True)
class Hook:
    """A hook whose configuration is known."""

    id: HookId
    path: Path
    config: HookConfig


@dataclass(frozen=True, slots=True)
class LoadedHooks:
    """All hooks of one scope.

    Attributes:
        hooks: sorted by path.
        warnings: files that look like hooks but are not, one line each.
        errors: why the other hooks cannot be used, one text for each.
    """

    hooks: tuple[Hook, ...] = ()
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    def bound_to(self, kind: LifecycleKind) -> tuple[Hook, ...]:
        """Returns the hooks with a lifecycle binding, by order, then by path."""
        found = [(order, hook) for hook in self.hooks if (order := hook.config.order(kind)) is not None]
        return tuple(hook for _, hook in sorted(found, key=lambda pair: (pair[0], str(pair[1].path))))

    def find(self, hook: HookId) -> Hook | None:
        """Finds a hook; None if there is none of this name."""
        return next((known for known in self.hooks if known.id == hook), None)
