"""One run of a hook: its input, and its result.

Pure. Made by the dispatcher, carried out by the engine; transports and codecs see nothing else of the operator.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from addon_operator.documents.jsondoc import JsonValue
from addon_operator.values.patches import Operation

if TYPE_CHECKING:  # the shape of an Exit is needed here, not the machinery beside it
    from addon_operator.process.child import Exit

Scope: TypeAlias = Literal["global", "module"]
Response: TypeAlias = Literal["admission", "conversion"]


ENABLED_SCRIPT: Final = "enabled"
"""The executable that decides whether a module is enabled; it runs as a hook of this name."""


@functools.total_ordering
@dataclass(frozen=True, slots=True)
class HookId:
    """Which hook; global ones come first in order, then module by module.

    Attributes:
        module: the module's name (kebab case); None for a global hook.
        name: such as `hooks/sub/x.sh` (contract.md 2.1); unique only together with the module.
    """

    module: str | None
    name: str

    def __str__(self) -> str:
        if self.module is None:
            return f"global hook {self.name}"
        # Hooks of modules are below `hooks/`, so this name is only the script's.
        return f"{'enabled script' if self.name == ENABLED_SCRIPT else f'hook {self.name}'} of module {self.module}"

    def __lt__(self, other: HookId) -> bool:
        return (self.module or "", self.name) < (other.module or "", other.name)


@dataclass(frozen=True, slots=True)
class HookCall:
    """One run of a hook.

    Attributes:
        hook: which one.
        path: its executable file.
        contexts: the content of `BINDING_CONTEXT_PATH`, in pieces (`context.encode`).
        values: the document of `VALUES_PATH`, complete.
        config_values: the document of `CONFIG_VALUES_PATH`, complete.
        timeout_s: how long it may run.
        binding: the binding's name, for the log.
        queue: the task queue it runs in, for the log.
        response: the answer that the API server waits for, if it does.
    """

    hook: HookId
    path: Path
    contexts: Sequence[bytes] = field(repr=False)
    values: JsonValue = field(repr=False)
    config_values: JsonValue = field(repr=False)
    timeout_s: float
    binding: str = ""
    queue: str = ""
    response: Response | None = None


@dataclass(frozen=True, slots=True)
class Effects:
    """What a hook asks for, decoded as far as this layer understands it.

    Attributes:
        values_patch: operations on the values in memory, as written by the hook: owners are not checked here.
        config_patch: operations on the ConfigMap's section.
        metrics: content of `METRICS_PATH` (contract.md 2.5).
        object_patch: content of `KUBERNETES_PATCH_PATH` (contract.md 2.6).
        response: content of the response file, if there was one to write (contract.md 2.14).
    """

    values_patch: tuple[Operation, ...] = ()
    config_patch: tuple[Operation, ...] = ()
    metrics: bytes = field(default=b"", repr=False)
    object_patch: bytes = field(default=b"", repr=False)
    response: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class HookResult:
    """A run that succeeded."""

    effects: Effects
    exit: Exit


@dataclass(frozen=True, slots=True)
class Changes:
    """What a run has changed; both false for most.

    Attributes:
        values: effective values of the hook's own section.
        enablement: an enable flag, in memory or in the ConfigMap.
    """

    values: bool = False
    enablement: bool = False

    def __bool__(self) -> bool:
        return self.values or self.enablement


@dataclass(frozen=True, slots=True)
class EnabledAnswer:
    """The result of an `enabled` script, with its reason (may be empty)."""

    enabled: bool
    reason: str
