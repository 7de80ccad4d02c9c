"""What a hook can be bound to: the arguments of `@hook`, and the configuration they become.

Source: contract.md 2.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal, TypeAlias

from addon_operator.sdk.jsondata import JsonInput, JsonObject, plain

WatchEvent: TypeAlias = Literal["Added", "Modified", "Deleted"]
LabelSelector: TypeAlias = Mapping[str, JsonInput]
"""`{"matchLabels": {...}, "matchExpressions": [...]}`, one of them or both."""


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """A point in the life of the operator or of a module; one of the classes below.

    Attributes:
        order: among the hooks of this point; lower ones run first.
    """

    order: int
    section: ClassVar[str]


class OnStartup(Lifecycle):
    """Global: once when the operator starts. Module: in its first run since it was switched on."""

    __slots__ = ()
    section = "onStartup"


class BeforeAll(Lifecycle):
    """Global: before every converge."""

    __slots__ = ()
    section = "beforeAll"


class AfterAll(Lifecycle):
    """Global: after every converge."""

    __slots__ = ()
    section = "afterAll"


class BeforeHelm(Lifecycle):
    """Module: in every run, before Helm."""

    __slots__ = ()
    section = "beforeHelm"


class AfterHelm(Lifecycle):
    """Module: in every run, after Helm."""

    __slots__ = ()
    section = "afterHelm"


class BeforeDeleteHelm(Lifecycle):
    """Module: it was switched off, its release is still there."""

    __slots__ = ()
    section = "beforeDeleteHelm"


class AfterDeleteHelm(Lifecycle):
    """Module: it was switched off, its release is gone."""

    __slots__ = ()
    section = "afterDeleteHelm"


@dataclass(frozen=True, slots=True)
class Schedule:
    """A binding to the clock.

    Attributes:
        crontab: five fields, six with seconds first, or such as `@every 1h`.
        queue: the main one unless given.
        allow_failure: whether a failed run is left alone instead of repeated.
        include_snapshots_from: names of `Kubernetes` bindings of this hook.
        group: bindings of one group come as one `Group` context.
    """

    name: str
    crontab: str
    _: KW_ONLY
    queue: str = ""
    allow_failure: bool = False
    include_snapshots_from: Sequence[str] = ()
    group: str = ""
    section: ClassVar[str] = "schedule"

    def config(self) -> JsonObject:
        """Returns the binding as the configuration has it."""
        return _filled(
            name=self.name,
            crontab=self.crontab,
            queue=self.queue,
            allowFailure=self.allow_failure,
            includeSnapshotsFrom=self.include_snapshots_from,
            group=self.group,
        )


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """A binding to objects of one kind.

    Attributes:
        kind: kind, plural or short name.
        api_version: the preferred one unless given.
        events: which ones run the hook; `()` keeps the snapshot only, None means all.
        run_on_synchronization: whether the hook runs for the objects that exist already.
        wait_for_synchronization: whether the module or the start waits for that run.
        keep_full_objects: whether snapshots hold the objects beside the filter results.
        names: only objects of these names.
        label_selector: only objects with these labels.
        field_selector: triples such as `("status.phase", "Equals", "Running")`; all must hold.
        namespaces: only in these.
        namespace_selector: only in namespaces with these labels.
        jq_filter: what of an object matters; gives its `filter_result`.
        queue: the main one unless given.
        allow_failure: whether a failed run is left alone instead of repeated.
        include_snapshots_from: names of `Kubernetes` bindings of this hook.
        group: bindings of one group come as one `Group` context.
    """

    name: str
    _: KW_ONLY
    kind: str
    api_version: str = ""
    events: Sequence[WatchEvent] | None = None
    run_on_synchronization: bool = True
    wait_for_synchronization: bool = True
    keep_full_objects: bool = True
    names: Sequence[str] = ()
    label_selector: LabelSelector | None = None
    field_selector: Sequence[tuple[str, str, str]] = ()
    namespaces: Sequence[str] = ()
    namespace_selector: LabelSelector | None = None
    jq_filter: str = ""
    queue: str = ""
    allow_failure: bool = False
    include_snapshots_from: Sequence[str] = ()
    group: str = ""
    section: ClassVar[str] = "kubernetes"

    def config(self) -> JsonObject:
        """Returns the binding as the configuration has it."""
        found = _filled(
            name=self.name,
            apiVersion=self.api_version,
            kind=self.kind,
            nameSelector=_filled(matchNames=self.names),
            labelSelector=self.label_selector,
            fieldSelector=_filled(
                matchExpressions=[
                    {"field": field, "operator": operator, "value": value}
                    for field, operator, value in self.field_selector
                ]
            ),
            namespace=_filled(nameSelector=_filled(matchNames=self.namespaces), labelSelector=self.namespace_selector),
            jqFilter=self.jq_filter,
            queue=self.queue,
            allowFailure=self.allow_failure,
            includeSnapshotsFrom=self.include_snapshots_from,
            group=self.group,
        )
        found |= {} if self.events is None else {"executeHookOnEvent": list(self.events)}
        found |= {} if self.run_on_synchronization else {"executeHookOnSynchronization": False}
        found |= {} if self.wait_for_synchronization else {"waitForSynchronization": False}
        return found | ({} if self.keep_full_objects else {"keepFullObjectsInMemory": False})


@dataclass(frozen=True, slots=True)
class Rule:
    """Which requests to the API server an admission binding is asked about; `"*"` means all.

    Attributes:
        operations: of CREATE, UPDATE, DELETE, CONNECT.
        scope: Cluster or Namespaced.
    """

    _: KW_ONLY
    resources: Sequence[str]
    api_groups: Sequence[str] = ("*",)
    api_versions: Sequence[str] = ("*",)
    operations: Sequence[str] = ("CREATE", "UPDATE")
    scope: str = "*"

    def config(self) -> JsonObject:
        """Returns the rule as the configuration has it."""
        return _filled(
            apiGroups=self.api_groups,
            apiVersions=self.api_versions,
            resources=self.resources,
            operations=self.operations,
            scope=self.scope,
        )


@dataclass(frozen=True, slots=True)
class Admission:
    """A binding to admission reviews; one of the two classes below.

    Attributes:
        name: a domain name of at least three parts.
        failure_policy: `Fail` or `Ignore`, for when the hook cannot answer.
        side_effects: `None` or `NoneOnDryRun`.
        timeout_s: whole seconds, 1 to 30.
        match_conditions: name -> CEL expression.
        label_selector: only objects with these labels.
        namespace_selector: only in namespaces with these labels.
        include_snapshots_from: names of `Kubernetes` bindings of this hook.
        group: whose snapshots come along.
    """

    name: str
    _: KW_ONLY
    rules: Sequence[Rule]
    failure_policy: Literal["Fail", "Ignore"] = "Fail"
    side_effects: Literal["None", "NoneOnDryRun"] = "None"
    timeout_s: int = 10
    match_conditions: Mapping[str, str] | None = None
    label_selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None
    include_snapshots_from: Sequence[str] = ()
    group: str = ""
    section: ClassVar[str]

    def config(self) -> JsonObject:
        """Returns the binding as the configuration has it."""
        conditions = self.match_conditions or {}
        return _filled(
            name=self.name,
            rules=[rule.config() for rule in self.rules],
            failurePolicy=self.failure_policy,
            sideEffects=self.side_effects,
            timeoutSeconds=self.timeout_s,
            matchConditions=[{"name": name, "expression": text} for name, text in conditions.items()],
            labelSelector=self.label_selector,
            namespace=_filled(labelSelector=self.namespace_selector),
            includeSnapshotsFrom=self.include_snapshots_from,
            group=self.group,
        )


class Validating(Admission):
    """Asks the hook whether an object may be as it is."""

    __slots__ = ()
    section = "kubernetesValidating"


class Mutating(Admission):
    """Asks the hook whether an object may be as it is, and for a patch to it."""

    __slots__ = ()
    section = "kubernetesMutating"


@dataclass(frozen=True, slots=True)
class Conversion:
    """A binding to conversions of a custom resource between its versions.

    Attributes:
        crd: the name of its CustomResourceDefinition.
        steps: pairs of the version converted from and the one converted to.
        include_snapshots_from: names of `Kubernetes` bindings of this hook.
        group: whose snapshots come along.
    """

    name: str
    _: KW_ONLY
    crd: str
    steps: Sequence[tuple[str, str]]
    include_snapshots_from: Sequence[str] = ()
    group: str = ""
    section: ClassVar[str] = "kubernetesCustomResourceConversion"

    def config(self) -> JsonObject:
        """Returns the binding as the configuration has it."""
        return _filled(
            name=self.name,
            crdName=self.crd,
            conversions=[{"fromVersion": old, "toVersion": new} for old, new in self.steps],
            includeSnapshotsFrom=self.include_snapshots_from,
            group=self.group,
        )


@dataclass(frozen=True, slots=True)
class Settings:
    """How a hook is run. Durations as the operator reads them: `90s`, `1h30m`.

    Attributes:
        timeout: how long one run may take; the operator's own limit unless given.
        min_interval: after `burst` runs at once, one run in each interval.
        burst: see `min_interval`.
    """

    _: KW_ONLY
    timeout: str = ""
    min_interval: str = ""
    burst: int | None = None

    def config(self) -> JsonObject:
        """Returns the settings as the configuration has them."""
        return _filled(timeout=self.timeout, executionMinInterval=self.min_interval, executionBurst=self.burst)


Binding: TypeAlias = Lifecycle | Schedule | Kubernetes | Admission | Conversion


def configuration(bindings: Sequence[Binding], settings: Settings | None = None) -> JsonObject:
    """Returns what a hook with these bindings prints on `--config`.

    Raises:
        ValueError: there is none, or two of the same point.
    """
    if not bindings:
        raise ValueError("a hook needs a binding")
    found: JsonObject = {"configVersion": "v1", **_filled(settings=settings.config() if settings else None)}
    for binding in bindings:
        if isinstance(binding, Lifecycle):
            if binding.section in found:
                raise ValueError(f"{type(binding).__name__} is given twice")
            found[binding.section] = binding.order
        else:
            section = found.setdefault(binding.section, [])
            assert isinstance(section, list)
            section.append(binding.config())
    return found


def _filled(**fields: JsonInput) -> JsonObject:
    """Leaves out what is empty or false: the operator's defaults are meant."""
    return {name: plain(value) for name, value in fields.items() if value or (value == 0 and value is not False)}
