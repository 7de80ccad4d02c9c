"""What a hook declares: the output of `hook --config`, versions v0 and v1, as a HookConfig (contract.md 2.2).

Pure. Every rule is checked and all violations are reported together, each with the path of its field.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, TypeVar, get_args

from addon_operator.documents import yamldoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import HookConfigError, InputError
from addon_operator.hooks.call import HookId, Scope
from addon_operator.hooks.fields import Fields, parse_map
from addon_operator.kube import jq
from addon_operator.schedule.crontab import Crontab
from addon_operator.settings import parse_duration

LifecycleKind: TypeAlias = Literal[
    "onStartup", "beforeAll", "afterAll", "beforeHelm", "afterHelm", "beforeDeleteHelm", "afterDeleteHelm"
]
WatchEvent: TypeAlias = Literal["Added", "Modified", "Deleted"]
Version: TypeAlias = Literal["v0", "v1"]
AdmissionKind: TypeAlias = Literal["kubernetesValidating", "kubernetesMutating"]
CONVERSION: Final = "kubernetesCustomResourceConversion"
MAIN_QUEUE: Final = "main"

_LIFECYCLE: Mapping[Scope, tuple[LifecycleKind, ...]] = {
    "global": ("onStartup", "beforeAll", "afterAll"),
    "module": ("onStartup", "beforeHelm", "afterHelm", "beforeDeleteHelm", "afterDeleteHelm"),
}
_EVENTS: tuple[WatchEvent, ...] = get_args(WatchEvent)
_EVENTS_V0: Mapping[str, WatchEvent] = {"add": "Added", "update": "Modified", "delete": "Deleted"}
_EQUAL: Final = ("=", "==", "Equals")
_NOT_EQUAL: Final = ("!=", "NotEquals")
_WORD: Final = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_DOMAIN: Final = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
_LABEL_KEY: Final = re.compile(rf"((?=[^/]{{1,253}}/){_DOMAIN}/)?{_WORD}")
_LABEL_VALUE: Final = re.compile(rf"({_WORD})?")
_NAMESPACE_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_JQ_TOKEN: Final = re.compile(r'"(?:\\.|[^"\\])*"|#[^\n]*|[\w.$@]+|\S', re.DOTALL)
# They would end the program with success and without a result.
_HALT: Final = ("halt", "halt_error")
# Some kinds allow more than domain names, ClusterRoles for instance `system:node`.
_OBJECT_NAME: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._:@$~+-]{1,253}")


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """A binding to a point in the life of the operator or of a module; lower orders run first."""

    kind: LifecycleKind
    order: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """A binding to the clock.

    Attributes:
        crontab: five fields, six with seconds first, or `@every 1h`, `@hourly` and so on; perhaps after `TZ=Area/City`.
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
        kind: kind, plural or short name in any case.
        api_version: None for the preferred one.
        events: which ones run the hook; none of them keeps the snapshot only.
        run_on_synchronization: whether the hook sees the objects that exist already.
        wait_for_synchronization: whether the module or the start waits for that run.
        keep_full_objects: whether snapshots hold the objects beside the filter results.
        names: only objects of these names; all if empty.
        label_selector: as the API wants it; empty for all.
        field_selector: likewise, in addition to `names`.
        namespaces: only in these; all if empty and there is no `namespace_labels`.
        namespace_labels: a label selector for namespaces, which is followed as they come and go.
        jq_filter: a jq program that compiles; empty for none.
        include_snapshots_from: names of `kubernetes` bindings of this hook, those of the group included.
    """

    name: str
    kind: str
    api_version: str | None = None
    events: tuple[WatchEvent, ...] = _EVENTS
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
    """Which requests of the API server concern an admission binding."""

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
    """Everything that one hook declared; bindings of each type in the order of the document.

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
        """Answers all bindings."""
        return (*self.lifecycle, *self.schedules, *self.kubernetes, *self.admissions, *self.conversions)

    def order(self, kind: LifecycleKind) -> int | None:
        """Answers the order of a lifecycle binding; None if the hook does not have it."""
        return next((binding.order for binding in self.lifecycle if binding.kind == kind), None)


def parse_config(document: JsonValue, *, scope: Scope, hook: HookId) -> HookConfig:
    """Reads what a hook printed.

    Args:
        document: YAML or JSON text, or what was read from it.
        scope: where the hook lives, which decides about its lifecycle bindings.
        hook: for error messages.

    Raises:
        HookConfigError: all violations, one in each line, each starting with the path of its field.

    Source: contract.md 2.2.
    """
    errors: list[str] = []
    value = _read(document, errors) if isinstance(document, str) else document
    config = HookConfig("v1") if errors else parse_map(value, "", errors, lambda root: _config(root, scope))
    if errors:
        raise HookConfigError("\n".join([f"{hook}: bad configuration:", *(f"  - {line}" for line in errors)]))
    return config


def _read(text: str, errors: list[str]) -> JsonValue:
    try:
        return yamldoc.load(text, "output").value
    except InputError as error:
        errors.append(str(error))
        return None


def _config(root: Fields, scope: Scope) -> HookConfig:
    if not root.has("configVersion"):
        return _config_v0(root, scope)
    version = root.map["configVersion"]
    if version is None:
        root.fail("configVersion", "missing value")
    elif root.text("configVersion") != "v1" and isinstance(version, str):
        root.fail("configVersion", f"unsupported version {version!r}, supported: v1")
    if root.errors:
        # Without a known version nothing else in the document has a meaning.
        root.map = {}
        return HookConfig("v1")
    return _config_v1(root, scope)


def _config_v1(root: Fields, scope: Scope) -> HookConfig:
    if len(root.map) == 1:
        root.errors.append("no binding: at least one key beside configVersion is needed")
    timeout_s, throttle = root.one("settings", _settings) or (None, None)
    config = HookConfig(
        version="v1",
        lifecycle=_lifecycle(root, scope),
        schedules=root.each("schedule", _schedule),
        kubernetes=root.each("kubernetes", _kubernetes),
        admissions=(
            *root.each("kubernetesValidating", lambda item: _admission(item, "kubernetesValidating")),
            *root.each("kubernetesMutating", lambda item: _admission(item, "kubernetesMutating")),
        ),
        conversions=root.each(CONVERSION, _conversion),
        timeout_s=timeout_s,
        throttle=throttle,
    )
    _check_includes(root, config)
    return _with_groups(config)


def _config_v0(root: Fields, scope: Scope) -> HookConfig:
    if not root.map:
        root.errors.append("no binding: configVersion and at least one binding are needed")
    return HookConfig(
        version="v0",
        lifecycle=_lifecycle(root, scope),
        schedules=root.each("schedule", _schedule_v0),
        kubernetes=root.each("onKubernetesEvent", _kubernetes_v0),
    )


def _lifecycle(root: Fields, scope: Scope) -> tuple[Lifecycle, ...]:
    other: Scope = "module" if scope == "global" else "global"
    for kind in _LIFECYCLE[other]:
        if kind not in _LIFECYCLE[scope] and root.has(kind):
            root.fail(kind, f"not possible in a {scope} hook, only in a {other} hook")
    return tuple(Lifecycle(kind, root.integer(kind)) for kind in _LIFECYCLE[scope] if root.has(kind))


def _settings(fields: Fields) -> tuple[float | None, Throttle | None]:
    timeout_s = _duration(fields, "timeout") if fields.has("timeout") else None
    # Both spellings are in use: contract.md 3.9.
    alias = fields.has("executionMinPeriod") and not fields.has("executionMinInterval")
    interval = "executionMinPeriod" if alias else "executionMinInterval"
    if fields.has("timeout") and not fields.has(interval) and not fields.has("executionBurst"):
        return timeout_s, None
    min_interval_s = _duration(fields, interval)
    burst = fields.take("executionBurst", int, 1, required=True)
    if burst < 1:
        fields.fail("executionBurst", "must be at least 1")
    return timeout_s, Throttle(min_interval_s or 0.0, burst)


def _duration(fields: Fields, key: str) -> float | None:
    text = fields.text(key, required=True)
    seconds = _seconds(text)
    if text and seconds is None:
        fields.fail(key, "must be a positive duration such as 90s or 1h30m")
    return seconds


def _seconds(text: str) -> float | None:
    """Reads a positive duration with a unit; None when it is something else."""
    try:
        seconds = parse_duration(text)
    except ValueError:
        return None
    return seconds if seconds > 0 and text[-1].isalpha() else None


def _schedule(fields: Fields) -> Schedule:
    return Schedule(
        name=fields.text("name", "schedule") or "schedule",
        crontab=_crontab(fields),
        allow_failure=fields.flag("allowFailure", default=False),
        queue=fields.text("queue", MAIN_QUEUE) or MAIN_QUEUE,
        include_snapshots_from=fields.texts("includeSnapshotsFrom", minimum=1),
        group=fields.text("group"),
    )


def _schedule_v0(fields: Fields) -> Schedule:
    return Schedule(
        name=fields.text("name", "schedule") or "schedule",
        crontab=_crontab(fields),
        allow_failure=fields.flag("allowFailure", default=False),
        queue=MAIN_QUEUE,
        include_snapshots_from=(),
        group="",
    )


def _crontab(fields: Fields) -> str:
    crontab = fields.text("crontab", required=True)
    if crontab:
        try:
            Crontab.parse(crontab)
        except InputError as error:
            fields.fail("crontab", str(error))
    return crontab


def _kubernetes(fields: Fields) -> Kubernetes:
    queue = fields.text("queue", MAIN_QUEUE) or MAIN_QUEUE
    wait = fields.flag("waitForSynchronization", default=True)
    fields.text("resynchronizationPeriod")  # accepted for the sake of old hooks, without effect
    namespaces, namespace_labels = fields.one("namespace", _namespace) or ((), None)
    return Kubernetes(
        name=fields.text("name", "kubernetes") or "kubernetes",
        kind=fields.text("kind", required=True),
        api_version=_api_version(fields),
        events=_events(fields),
        run_on_synchronization=fields.flag("executeHookOnSynchronization", default=True),
        wait_for_synchronization=wait or queue == MAIN_QUEUE,
        keep_full_objects=fields.flag("keepFullObjectsInMemory", default=True),
        names=fields.one("nameSelector", lambda item: _names(item, "matchNames", _OBJECT_NAME, required=True)) or (),
        label_selector=fields.one("labelSelector", _labels_as_text) or "",
        field_selector=_field_selector(fields),
        namespaces=namespaces,
        namespace_labels=namespace_labels,
        jq_filter=_jq_filter(fields),
        allow_failure=fields.flag("allowFailure", default=False),
        queue=queue,
        include_snapshots_from=fields.texts("includeSnapshotsFrom", minimum=1),
        group=fields.text("group"),
    )


def _kubernetes_v0(fields: Fields) -> Kubernetes:
    chosen = fields.texts("event", allowed=tuple(_EVENTS_V0))
    object_name = fields.text("objectName")
    if object_name:
        _check(fields, "objectName", object_name, _OBJECT_NAME)
    return Kubernetes(
        name=fields.text("name", "onKubernetesEvent") or "onKubernetesEvent",
        kind=fields.text("kind", required=True),
        events=tuple(_EVENTS_V0[name] for name in dict.fromkeys(chosen)) if fields.has("event") else _EVENTS,
        run_on_synchronization=False,
        names=(object_name,) if object_name else (),
        label_selector=fields.one("selector", _labels_as_text) or "",
        namespaces=fields.one("namespaceSelector", _namespaces_v0) or (),
        jq_filter=_jq_filter(fields),
        allow_failure=fields.flag("allowFailure", default=False),
    )


def _namespaces_v0(fields: Fields) -> tuple[str, ...]:
    names = _names(fields, "matchNames", _NAMESPACE_NAME)
    return () if fields.flag("any", default=False) else names


def _api_version(fields: Fields) -> str | None:
    text = fields.text("apiVersion")
    if text and not re.fullmatch(r"([A-Za-z0-9.-]+/)?[A-Za-z0-9]+", text):
        fields.fail("apiVersion", "must be version or group/version")
    return text or None


def _events(fields: Fields) -> tuple[WatchEvent, ...]:
    older = fields.texts("watchEvent", allowed=_EVENTS)
    newer = fields.texts("executeHookOnEvent", allowed=_EVENTS)
    if not fields.has("watchEvent") and not fields.has("executeHookOnEvent"):
        return _EVENTS
    chosen = newer if fields.has("executeHookOnEvent") else older
    return tuple(event for event in _EVENTS if event in chosen)


def _namespace(fields: Fields) -> tuple[tuple[str, ...], str | None]:
    if not fields.map:
        fields.errors.append(f"{fields.path}: needs nameSelector or labelSelector")
    # The documents show a plain list here, too: contract.md 2.2.
    if isinstance(fields.map.get("nameSelector"), list):
        names = _names(fields, "nameSelector", _NAMESPACE_NAME)
    else:
        found = fields.one("nameSelector", lambda item: _names(item, "matchNames", _NAMESPACE_NAME, required=True))
        names = found or ()
    return names, fields.one("labelSelector", _labels_as_text)


def _names(fields: Fields, key: str, pattern: re.Pattern[str], *, required: bool = False) -> tuple[str, ...]:
    names = fields.texts(key, required=required)
    for index, name in enumerate(names):
        _check(fields, f"{key}[{index}]", name, pattern)
    return names


def _check(fields: Fields, key: str, text: str, pattern: re.Pattern[str]) -> None:
    """Notes what the API server would refuse, or could never match."""
    if not pattern.fullmatch(text):
        fields.fail(key, f"{text!r} is not {_MEANS[pattern]}")


_MEANS: Final[Mapping[re.Pattern[str], str]] = {
    _LABEL_KEY: "the name of a label, such as app or example.com/app",
    _LABEL_VALUE: "the value of a label: at most 63 letters, digits, '-', '_' and '.', a letter or digit at both ends",
    _NAMESPACE_NAME: "the name of a namespace",
    _OBJECT_NAME: "the name of an object",
}


def _label_selector(fields: Fields) -> JsonObject:
    _labels_as_text(fields)
    return fields.map


def _labels_as_text(fields: Fields) -> str:
    """Checks a LabelSelector, and writes it the way the API's parameter `labelSelector` wants it."""
    if not fields.map:
        fields.errors.append(f"{fields.path}: needs matchLabels or matchExpressions")
    labels = fields.one("matchLabels", _labels) or ()
    return ",".join((*labels, *fields.each("matchExpressions", _label_expression, minimum=0)))


def _labels(fields: Fields) -> tuple[str, ...]:
    labels = {key: fields.text(key) for key in sorted(fields.map)}
    for key, value in labels.items():
        _check(fields, key, key, _LABEL_KEY)
        _check(fields, key, value, _LABEL_VALUE)
    return tuple(f"{key}={value}" for key, value in labels.items())


def _label_expression(fields: Fields) -> str:
    key = fields.text("key", required=True)
    if key:
        _check(fields, "key", key, _LABEL_KEY)
    operator = fields.choice("operator", ("In", "NotIn", "Exists", "DoesNotExist"), required=True)
    values = _names(fields, "values", _LABEL_VALUE)
    if operator in {"In", "NotIn"}:
        if not values:
            fields.fail("values", f"needed by operator {operator}")
        return f"{key} {operator.lower()} ({','.join(sorted(values))})"
    if values:
        fields.fail("values", f"not possible with operator {operator}")
    return key if operator == "Exists" else f"!{key}"


def _field_selector(fields: Fields) -> str:
    found = fields.one("fieldSelector", lambda item: item.each("matchExpressions", _requirement, required=True)) or ()
    if fields.has("nameSelector") and any(field == "metadata.name" for field, _ in found):
        fields.fail("fieldSelector", "metadata.name is not possible together with nameSelector")
    return ",".join(field + condition for field, condition in found)


def _requirement(fields: Fields) -> tuple[str, str]:
    """Answers a field, and what the API wants behind it."""
    operator = fields.choice("operator", (*_EQUAL, *_NOT_EQUAL), required=True)
    field, value = fields.text("field", required=True), fields.take("value", str, "", required=True)
    escaped = "".join(f"\\{letter}" if letter in "\\,=" else letter for letter in value)
    return field, ("=" if operator in _EQUAL else "!=") + escaped


def _jq_filter(fields: Fields) -> str:
    program = fields.text("jqFilter")
    if program:
        try:
            jq.compiled(program)
        except ValueError as error:
            fields.fail("jqFilter", " ".join(str(error).split()))
        if _halts(program):
            fields.fail("jqFilter", "halt and halt_error are not possible here; error(...) makes the filter fail")
    return program


def _halts(program: str) -> bool:
    """Answers whether a jq program calls one of these, and does not only name a field or the key of an object so."""
    opened: list[str] = []
    before = ""
    for token in _JQ_TOKEN.findall(program):
        if token.startswith("#"):
            continue
        is_key = opened[-1:] == ["{"] and before in ("{", ",")
        if token in _HALT and not is_key:
            return True
        if token in ("{", "[", "("):
            opened.append(token)
        elif token in ("}", "]", ")"):
            del opened[-1:]
        before = token
    return False


def _admission(fields: Fields, kind: AdmissionKind) -> Admission:
    name = fields.text("name", required=True)
    if name and not re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?){2,}", name):
        fields.fail("name", "must be a domain name of at least three parts")
    timeout_s = fields.integer("timeoutSeconds", 10)
    if not 1 <= timeout_s <= 30:
        fields.fail("timeoutSeconds", "must be from 1 to 30")
    return Admission(
        kind=kind,
        name=name,
        rules=fields.each("rules", _admission_rule, required=True),
        failure_policy=fields.choice("failurePolicy", ("Fail", "Ignore"), "Fail"),
        side_effects=fields.choice("sideEffects", ("None", "NoneOnDryRun"), "None"),
        timeout_s=timeout_s,
        match_conditions=fields.each("matchConditions", _match_condition, minimum=0),
        label_selector=fields.one("labelSelector", _label_selector),
        namespace_labels=fields.one("namespace", lambda item: item.one("labelSelector", _label_selector)),
        include_snapshots_from=fields.texts("includeSnapshotsFrom", minimum=1),
        group=fields.text("group"),
    )


def _admission_rule(fields: Fields) -> AdmissionRule:
    return AdmissionRule(
        api_groups=fields.texts("apiGroups", minimum=1, required=True),
        api_versions=fields.texts("apiVersions", minimum=1, required=True),
        resources=fields.texts("resources", minimum=1, required=True),
        operations=fields.texts(
            "operations", allowed=("CREATE", "UPDATE", "DELETE", "CONNECT", "*"), minimum=1, required=True
        ),
        scope=fields.choice("scope", ("Cluster", "Namespaced", "*"), "*"),
    )


def _match_condition(fields: Fields) -> tuple[str, str]:
    return fields.text("name", required=True), fields.text("expression", required=True)


def _conversion(fields: Fields) -> Conversion:
    return Conversion(
        name=fields.text("name", CONVERSION) or CONVERSION,
        crd_name=fields.text("crdName", required=True),
        steps=fields.each(
            "conversions",
            lambda item: (item.text("fromVersion", required=True), item.text("toVersion", required=True)),
            required=True,
        ),
        include_snapshots_from=fields.texts("includeSnapshotsFrom", minimum=1),
        group=fields.text("group"),
    )


def _check_includes(root: Fields, config: HookConfig) -> None:
    """Notes each name in an includeSnapshotsFrom that does not mean exactly one `kubernetes` binding."""
    known = Counter(binding.name for binding in config.kubernetes)
    for key in ("schedule", "kubernetes", "kubernetesValidating", "kubernetesMutating", CONVERSION):
        for index, item in enumerate(_maps(root.map.get(key))):
            names = item.get("includeSnapshotsFrom")
            for name in names if isinstance(names, list) else []:
                if isinstance(name, str) and known[name] != 1:
                    problem = f"there are {known[name]} {name!r} binding names" if known[name] else ""
                    root.fail(f"{key}[{index}].includeSnapshotsFrom", problem or f"{name!r} binding name not found")


def _maps(value: JsonValue) -> list[JsonObject]:
    return [item if isinstance(item, dict) else {} for item in value] if isinstance(value, list) else []


Grouped = TypeVar("Grouped", Schedule, Kubernetes, Admission, Conversion)


def _with_groups(config: HookConfig) -> HookConfig:
    """Gives every member of a group the snapshots of all `kubernetes` bindings of the group."""

    def widen(bindings: tuple[Grouped, ...]) -> tuple[Grouped, ...]:
        return tuple(
            replace(binding, include_snapshots_from=tuple(dict.fromkeys(binding.include_snapshots_from + shared)))
            if (shared := members.get(binding.group, ()))
            else binding
            for binding in bindings
        )

    groups = {binding.group for binding in config.kubernetes if binding.group}
    members = {name: tuple(item.name for item in config.kubernetes if item.group == name) for name in groups}
    return replace(
        config,
        schedules=widen(config.schedules),
        kubernetes=widen(config.kubernetes),
        admissions=widen(config.admissions),
        conversions=widen(config.conversions),
    )
