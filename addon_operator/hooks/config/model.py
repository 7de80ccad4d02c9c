"""What a hook declares, as a HookConfig: its bindings and its settings (contract.md 2.2).

Pure data. `parser.parse_config` makes it of the output of `hook --config`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.kube.refs import WatchEvent

LifecycleKind: TypeAlias = Literal[
    "onStartup", "beforeAll", "afterAll", "beforeHelm", "afterHelm", "beforeDeleteHelm", "afterDeleteHelm"
]
Version: TypeAlias = Literal["v0", "v1"]
AdmissionKind: TypeAlias = Literal["kubernetesValidating", "kubernetesMutating"]
CONVERSION: Final = "kubernetesCustomResourceConversion"
MAIN_QUEUE: Final = "main"
WATCH_EVENTS: Final[tuple[WatchEvent, ...]] = get_args(WatchEvent)


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """A binding to a lifecycle event of the operator or of a module; lower orders run first."""

    kind: LifecycleKind
    order: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """A binding to a schedule.

    Attributes:
        crontab: five fields, six with seconds first, or `@every 1h`, `@hourly` etc.; may start with `TZ=Area/City`.
        include_snapshots_from: names of `kubernetes` bindings, those of the group included.
    """

    name: str
    crontab: str
    allow_failure: bool
    queue: str
    include_snapshots_from: tuple[str, ...]
    group: str


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """A binding to objects of one kind.

    Attributes:
        kind: kind, plural or short name, case-insensitive.
        api_version: None for the preferred one.
        events: which ones run the hook; empty to keep the snapshot only.
        run_on_synchronization: whether the hook runs for the objects that exist already.
        wait_for_synchronization: whether the module run, or the start of the operator, waits for that run.
        keep_full_objects: whether snapshots contain the objects beside the filter results.
        names: only objects of these names; all if empty.
        label_selector: as the API wants it; empty for all.
        field_selector: likewise, in addition to `names`.
        namespaces: only in these; all if empty and there is no `namespace_labels`.
        namespace_labels: a label selector for namespaces; the binding follows which ones match.
        jq_filter: a jq program that compiles; empty for none.
        include_snapshots_from: names of `kubernetes` bindings of this hook, those of the group included.
    """

    name: str
    kind: str
    api_version: str | None = None
    events: tuple[WatchEvent, ...] = WATCH_EVENTS
    run_on_synchronization: bool = True
    wait_for_synchronization: bool = True
    keep_full_objects: bool = True
    names: tuple[str, ...] = ()
    label_selector: str = ""
    field_selector: str = ""
    namespaces: tuple[str, ...] = ()
    namespace_labels: str | None = None
    jq_filter: str = ""
    allow_failure: bool = False
    queue: str = MAIN_QUEUE
    include_snapshots_from: tuple[str, ...] = ()
    group: str = ""


@dataclass(frozen=True, slots=True)
class AdmissionRule:
    """Which requests the API server sends to an admission binding."""

    api_groups: tuple[str, ...]
    api_versions: tuple[str, ...]
    resources: tuple[str, ...]
    operations: tuple[str, ...]
    scope: str


@dataclass(frozen=True, slots=True)
class Admission:
    """A binding to admission reviews, validating or mutating.

    Attributes:
        match_conditions: pairs of name and CEL expression.
    """

    kind: AdmissionKind
    name: str
    rules: tuple[AdmissionRule, ...]
    failure_policy: str
    side_effects: str
    timeout_s: int
    match_conditions: tuple[tuple[str, str], ...]
    label_selector: JsonObject | None
    namespace_labels: JsonObject | None
    include_snapshots_from: tuple[str, ...]
    group: str


@dataclass(frozen=True, slots=True)
class Conversion:
    """A binding to conversion reviews of one custom resource.

    Attributes:
        steps: pairs of the version converted from and the one converted to.
    """

    name: str
    crd_name: str
    steps: tuple[tuple[str, str], ...]
    include_snapshots_from: tuple[str, ...]
    group: str


Binding: TypeAlias = Lifecycle | Schedule | Kubernetes | Admission | Conversion


@dataclass(frozen=True, slots=True)
class Throttle:
    """How often a hook may run: `burst` times at once, then once in each interval."""

    min_interval_s: float
    burst: int


@dataclass(frozen=True, slots=True)
class HookConfig:
    """Everything that a hook declares; bindings of each type in the order of the document.

    Attributes:
        timeout_s: how long one run may take; None for the operator's own limit.
        throttle: None for no limit.
    """

    version: Version
    lifecycle: tuple[Lifecycle, ...] = ()
    schedules: tuple[Schedule, ...] = ()
    kubernetes: tuple[Kubernetes, ...] = ()
    admissions: tuple[Admission, ...] = ()
    conversions: tuple[Conversion, ...] = ()
    timeout_s: float | None = None
    throttle: Throttle | None = None

    def bindings(self) -> tuple[Binding, ...]:
        """Returns all bindings, type by type."""
        return (*self.lifecycle, *self.schedules, *self.kubernetes, *self.admissions, *self.conversions)

    def order(self, kind: LifecycleKind) -> int | None:
        """Returns the order of a lifecycle binding; None if the hook does not have it."""
        return next((binding.order for binding in self.lifecycle if binding.kind == kind), None)
