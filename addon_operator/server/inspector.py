"""The facts behind the debug socket: one Protocol and the views that it returns.

Nothing else uses it. `app` implements it, `server.debug` calls it on the event loop, so every method returns at once
from memory. Documents are shared JSON; callers do not change them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol

from addon_operator.documents.jsondoc import JsonObject, JsonValue

MAIN_QUEUE: Final = "main"


@dataclasses.dataclass(frozen=True, slots=True)
class TaskView:
    """One task that waits in a queue or runs at its head.

    Attributes:
        description: the task text of contract.md 2.13, `Type:queue:meta[:failures N[:message]]`; lines may be several.
        failures: failed attempts in a row.
        age_s: seconds since it was put into the queue.
    """

    description: str
    failures: int = 0
    age_s: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class QueueView:
    """One queue as it stands.

    Attributes:
        name: `main`, or the name that a binding gave it.
        status: such as `run first task` or `sleep after fail for 5s`; ignored without tasks.
        tasks: the head first.
    """

    name: str
    status: str
    tasks: tuple[TaskView, ...] = ()

    @property
    def shown_status(self) -> str:
        """The status, or `empty`."""
        return self.status if self.tasks else "empty"


@dataclasses.dataclass(frozen=True, slots=True)
class ModuleView:
    """One module of the modules directories, enabled or not.

    Attributes:
        state: one word for people, such as `ready`, `running`, `waiting`, `failed`, `held`, `disabled`.
        reason: why it is in that state, in a sentence; never empty for a disabled module.
        release: name of its Helm release; None if there is none.
        revision: revision of that release.
        duration_s: how long its last finished run took; None before the first.
        last_error: message of the last attempt if that failed, or of a hook of it that a queue tries again.
    """

    name: str
    order: int
    enabled: bool
    state: str
    reason: str
    release: str | None = None
    revision: int | None = None
    duration_s: float | None = None
    last_error: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class FlagView:
    """A module's enable flag in one source.

    Attributes:
        source: its name, such as `modules/values.yaml` or `global hooks`.
        value: None if it is not set there.
        place: where exactly it is set (file and line, ConfigMap key, hook and time).
    """

    source: str
    value: bool | None
    place: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ScriptView:
    """The last run of a module's `enabled` script.

    Attributes:
        path: the file.
        result: what it decided; None if it has not run, because the flags say no already, or if it failed.
        reason: its MODULE_ENABLED_REASON, if it gave one.
        error: why it failed, if it did.
    """

    path: str
    result: bool | None
    reason: str | None = None
    error: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ReleaseView:
    """A module's Helm release, and what was decided about it last.

    Attributes:
        status: as Helm stores it; None if there is no release.
        revision: newest revision; None if there is no release.
        absent: objects of the manifest that are missing in the cluster, as `namespace/Kind/name`.
        decision: the last Helm action, such as `skip` or `upgrade`; None before the first.
        decision_reason: why.
        decided_at: when (aware).
    """

    name: str
    namespace: str
    status: str | None = None
    revision: int | None = None
    absent: tuple[str, ...] = ()
    decision: str | None = None
    decision_reason: str | None = None
    decided_at: datetime | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ExplainView:
    """Why one module is in the state it is in.

    Attributes:
        module: its row of the module list.
        path: its directory.
        flags: all sources of the enable flag, weakest first; the last one that sets it decides.
        script: None if the module has no `enabled` script.
        release: None if the module has nothing for Helm.

    Source: contract.md 2.10.
    """

    module: ModuleView
    path: str
    flags: tuple[FlagView, ...]
    script: ScriptView | None = None
    release: ReleaseView | None = None

    @property
    def decisive_flag(self) -> FlagView | None:
        """The source that decides; None if none sets the flag, which means disabled."""
        return next((flag for flag in reversed(self.flags) if flag.value is not None), None)


@dataclasses.dataclass(frozen=True, slots=True)
class ParameterView:
    """A setting that can be changed while the operator runs, such as `log.level`.

    Attributes:
        expires_in_s: seconds until it falls back to what it was before; None if it stays.
    """

    name: str
    value: str
    description: str
    expires_in_s: float | None = None


class Inspector(Protocol):
    """Facts about a running operator.

    The `name` of a `module_*` method is always one that `modules()` lists.
    """

    def notices(self) -> tuple[str, ...]:
        """Lists what a person should know first, such as a ConfigMap that was refused; one text each."""
        ...

    def api_server_away_since(self) -> datetime | None:
        """Returns since when the API server does not answer (aware); None while it does."""
        ...

    def held(self) -> Mapping[str, str]:
        """Returns name -> reason, of the modules and releases that are neither upgraded nor removed; sorted by name."""
        ...

    def confirm_removals(self, names: Sequence[str]) -> None:
        """Lets held modules be removed: a person has confirmed it.

        Raises:
            InputError: one of them is not held.
        """
        ...

    def queues(self) -> tuple[QueueView, ...]:
        """Lists all queues, empty ones too; `main` is always among them."""
        ...

    def global_hooks(self) -> tuple[str, ...]:
        """Lists the names of the global hooks, sorted."""
        ...

    def global_values(self) -> JsonValue:
        """Returns the effective global values, without the key `global` around them."""
        ...

    def global_config(self) -> JsonValue:
        """Returns the global section of the ConfigMap, without the key `global` around it."""
        ...

    def global_patches(self) -> tuple[JsonObject, ...]:
        """Lists the stored operations on global values as `{"op", "path", "value"}`, in the order of application."""
        ...

    def global_snapshots(self) -> JsonObject:
        """Returns hook -> binding -> items for the global hooks."""
        ...

    def modules(self) -> tuple[ModuleView, ...]:
        """Lists all known modules, disabled ones too, in run order."""
        ...

    def module_values(self, name: str, *, with_global: bool) -> JsonObject:
        """Returns `{"<camelCase>": ...}`, the effective values, with `global` beside it if asked for."""
        ...

    def module_config(self, name: str, *, with_global: bool) -> JsonObject:
        """Returns `{"<camelCase>": ...}`, the ConfigMap's section, with `global` beside it if asked for."""
        ...

    def module_origins(self, name: str, *, with_global: bool) -> Mapping[str, str]:
        """Returns where each leaf came from.

        Returns:
            JSON pointer into the document of `module_values` -> one line, such as `modules/010-a/values.yaml:3`.
        """
        ...

    def module_patches(self, name: str) -> tuple[JsonObject, ...]:
        """Lists the stored operations on a module's values, as `global_patches` does."""
        ...

    def module_snapshots(self, name: str) -> JsonObject:
        """Returns hook -> binding -> items for the hooks of a module."""
        ...

    def module_explain(self, name: str) -> ExplainView:
        """Explains one module."""
        ...

    def resource_monitor(self) -> Mapping[str, tuple[str, ...] | None]:
        """Returns enabled module -> watched objects as `namespace/kind/name`, sorted; None where nothing is watched."""
        ...

    def parameters(self) -> tuple[ParameterView, ...]:
        """Lists what can be changed at run time, sorted by name."""
        ...

    def set_parameter(self, name: str, value: str, *, duration_s: float | None) -> None:
        """Changes one of them, for ever or for some seconds (then the value before the first such change returns).

        Raises:
            InputError: no such name, or not a value it can take; the message says what it can.
        """
        ...
