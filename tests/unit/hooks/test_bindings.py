"""Every rule of `--config` (contract.md 2.2)."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import HookConfigError
from addon_operator.hooks import bindings
from addon_operator.hooks.bindings import (
    Admission,
    AdmissionRule,
    Conversion,
    HookConfig,
    Kubernetes,
    Lifecycle,
    Schedule,
    Throttle,
)
from addon_operator.hooks.call import HookId, Scope

GLOBAL = HookId(None, "hooks/x.sh")
MODULE = HookId("alpha", "hooks/x.sh")


def _parse(document: JsonValue, scope: Scope = "module") -> HookConfig:
    return bindings.parse_config(document, scope=scope, hook=MODULE if scope == "module" else GLOBAL)


def _problems(document: JsonValue, scope: Scope = "module") -> list[str]:
    with pytest.raises(HookConfigError) as caught:
        _parse(document, scope)
    head, *lines = str(caught.value).split("\n")
    assert head == f"{MODULE if scope == 'module' else GLOBAL}: bad configuration:"
    return [line.removeprefix("  - ") for line in lines]


def _v1(**fields: Any) -> JsonObject:
    return {"configVersion": "v1", **fields}


def _watch(**fields: Any) -> Kubernetes:
    return _parse(_v1(kubernetes=[{"kind": "Pod", **fields}])).kubernetes[0]


def _timed(**fields: Any) -> Schedule:
    return _parse(_v1(schedule=[{"crontab": "* * * * *", **fields}])).schedules[0]


# --- the document ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"configVersion": "v1", "onStartup": 10}', id="json"),
        pytest.param("configVersion: v1\nonStartup: 10\n", id="yaml"),
        pytest.param("# my hook\n---\nconfigVersion: v1\nonStartup: 10.0\n", id="float without fraction"),
    ],
)
def test_text(text: str) -> None:
    assert _parse(text) == HookConfig("v1", (Lifecycle("onStartup", 10),))


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        pytest.param("", "must be a map, not null", id="empty output"),
        pytest.param("just text", "must be a map, not a string", id="text"),
        pytest.param([1], "must be a map, not a list", id="list"),
        pytest.param({}, "no binding: configVersion and at least one binding are needed", id="empty map"),
        pytest.param(_v1(), "no binding: at least one key beside configVersion is needed", id="only the version"),
        pytest.param({"configVersion": None, "onStartup": 1}, "configVersion: missing value", id="null version"),
        pytest.param(
            {"configVersion": 1, "x": 1}, "configVersion: must be a string, not an integer", id="version not text"
        ),
        pytest.param(
            {"configVersion": "v9", "x": 1}, "configVersion: unsupported version 'v9', supported: v1", id="new version"
        ),
        pytest.param(
            {"configVersion": "v0", "x": 1}, "configVersion: unsupported version 'v0', supported: v1", id="v0 in words"
        ),
        pytest.param(
            {"configVersion": "", "x": 1}, "configVersion: unsupported version '', supported: v1", id="empty version"
        ),
        pytest.param(_v1(onStart=1), "onStart: unknown field", id="unknown field"),
    ],
)
def test_the_document_as_a_whole(document: JsonValue, problem: str) -> None:
    assert _problems(document) == [problem]


def test_bad_yaml_names_the_line_and_not_the_content() -> None:
    (problem,) = _problems("configVersion: v1\nsecret: [\n")
    assert problem.startswith("output:3:")
    assert "secret" not in problem


def test_all_problems_are_shown_together() -> None:
    assert _problems(
        _v1(
            onStartup="first",
            beforeAll=1,
            other=True,
            settings={"executionBurst": 0},
            schedule=[{"crontab": "* *"}, {"name": 1, "x": 1}],
            kubernetes=[{"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}, 7],
        )
    ) == [
        "settings.executionMinInterval: is required",
        "settings.executionBurst: must be at least 1",
        "beforeAll: not possible in a module hook, only in a global hook",
        "onStartup: must be an integer, not a string",
        "schedule[0].crontab: must have 5 fields, or 6 with the seconds first",
        "schedule[1].name: must be a string, not an integer",
        "schedule[1].crontab: is required",
        "schedule[1].x: unknown field",
        "kubernetes[0].kind: is required",
        "kubernetes[0].labelSelector.matchExpressions[0].operator: must be one of In, NotIn, Exists, DoesNotExist",
        "kubernetes[1]: must be a map, not an integer",
        "other: unknown field",
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["configVersion", "kind", "name", "matchNames", "labelSelector", "rules", "timeout", "x"]),
        inner, max_size=3
    ),
    max_leaves=8,
)  # fmt: skip


@given(
    st.dictionaries(
        st.sampled_from(["onStartup", "beforeHelm", "settings", "schedule", "kubernetes", "kubernetesValidating",
                         "kubernetesCustomResourceConversion", "onKubernetesEvent"]),
        JSON, max_size=4,
    ),
    st.booleans(),
)  # fmt: skip
def test_any_document_is_taken_or_refused(document: JsonObject, versioned: bool) -> None:
    # Whatever else it raises fails the test.
    with contextlib.suppress(HookConfigError):
        assert _parse({**document, "configVersion": "v1"} if versioned else document).version in {"v0", "v1"}


# --- lifecycle ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [{"configVersion": "v1"}, {}], ids=["v1", "v0"])
@pytest.mark.parametrize(
    ("scope", "kinds"),
    [
        ("global", ("onStartup", "beforeAll", "afterAll")),
        ("module", ("onStartup", "beforeHelm", "afterHelm", "beforeDeleteHelm", "afterDeleteHelm")),
    ],
)
def test_lifecycle(version: JsonObject, scope: Scope, kinds: tuple[bindings.LifecycleKind, ...]) -> None:
    config = _parse({**version, **{kind: number for number, kind in enumerate(kinds)}}, scope)
    assert config.lifecycle == tuple(Lifecycle(kind, number) for number, kind in enumerate(kinds))
    assert [config.order(kind) for kind in kinds] == list(range(len(kinds)))


def test_orders_may_be_negative_and_absent_ones_are_none() -> None:
    config = _parse(_v1(beforeHelm=-5))
    assert config.order("beforeHelm") == -5
    assert config.order("afterHelm") is None


@pytest.mark.parametrize("value", [None, True, "1", 1.5, [1]], ids=str)
def test_an_order_is_an_integer(value: JsonValue) -> None:
    (problem,) = _problems(_v1(onStartup=value))
    assert problem.startswith("onStartup: must be an integer, not ")


@pytest.mark.parametrize(
    ("scope", "kind"),
    [("global", "beforeHelm"), ("global", "afterDeleteHelm"), ("module", "beforeAll"), ("module", "afterAll")],
)
def test_the_wrong_place(scope: Scope, kind: str) -> None:
    other = "module" if scope == "global" else "global"
    assert _problems(_v1(**{kind: 1}), scope) == [f"{kind}: not possible in a {scope} hook, only in a {other} hook"]


# --- settings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "timeout_s", "throttle"),
    [
        pytest.param({"executionMinInterval": "30s", "executionBurst": 2}, None, Throttle(30, 2), id="interval"),
        pytest.param({"executionMinPeriod": "1m30s", "executionBurst": 1}, None, Throttle(90, 1), id="older name"),
        pytest.param({"timeout": "1.5h"}, 5400, None, id="timeout alone"),
        pytest.param(
            {"timeout": "5s", "executionMinInterval": "250ms", "executionBurst": 1}, 5, Throttle(0.25, 1), id="all"
        ),
    ],
)
def test_settings(settings: JsonObject, timeout_s: float | None, throttle: Throttle | None) -> None:
    config = _parse(_v1(onStartup=1, settings=settings))
    assert (config.timeout_s, config.throttle) == (timeout_s, throttle)


@pytest.mark.parametrize(
    ("settings", "problems"),
    [
        pytest.param({}, ["executionMinInterval: is required", "executionBurst: is required"], id="empty"),
        pytest.param({"executionMinInterval": "1s"}, ["executionBurst: is required"], id="no burst"),
        pytest.param({"executionBurst": 1}, ["executionMinInterval: is required"], id="no interval"),
        pytest.param(
            {"executionMinInterval": "", "executionBurst": 1},
            ["executionMinInterval: must not be empty"],
            id="empty interval",
        ),
        *(
            pytest.param({"timeout": text}, ["timeout: must be a positive duration such as 90s or 1h30m"], id=text)
            for text in ("5", "0s", "-1s", "soon", "1d", "1.2.3s")
        ),
        pytest.param({"timeout": 5}, ["timeout: must be a string, not an integer"], id="number"),
    ],
)
def test_bad_settings(settings: JsonObject, problems: list[str]) -> None:
    assert _problems(_v1(onStartup=1, settings=settings)) == [f"settings.{problem}" for problem in problems]


# --- schedule -------------------------------------------------------------------------------------------------------


def test_schedule_defaults() -> None:
    config = _parse(_v1(schedule=[{"crontab": "*/5 * * * *"}]))
    assert config.schedules == (Schedule("schedule", "*/5 * * * *", False, "main", (), ""),)


def test_schedule_in_full() -> None:
    config = _parse(
        _v1(
            schedule=[
                {
                    "name": "every", "crontab": "@every 1h", "allowFailure": True, "queue": "q",
                    "includeSnapshotsFrom": ["pods"], "group": "g",
                }
            ],
            kubernetes=[{"name": "pods", "kind": "pod"}],
        )
    )  # fmt: skip
    assert config.schedules == (Schedule("every", "@every 1h", True, "q", ("pods",), "g"),)


@pytest.mark.parametrize(
    "crontab",
    ["* * * * *", "*/10 * * * * *", "0 2 */3 * * *", "0 0 1 JAN,feb mon-FRI", "0 5 ? * ?", "5/15 * * * *", "@hourly",
     "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually", "@every 1h30m", "@every 500ms",
     "TZ=Europe/Berlin 0 6 * * *", "CRON_TZ=UTC @daily", "59 59 23 31 12 *"],
)  # fmt: skip
def test_good_crontabs(crontab: str) -> None:
    assert _timed(crontab=crontab).crontab == crontab


@pytest.mark.parametrize(
    "crontab",
    ["", "   ", "* * * *", "* * * * * * *", "60 * * * *", "60 * * * * *", "a b c d e", "*/0 * * * *", "@often",
     "@every", "@every 5", "@every soon", "@every 0s", "@reboot", "TZ=Nowhere/At-All * * * * *", "0 0 L * *",
     "0 0 * * 5#2", "R * * * *", "H * * * *", "0 0 0 * 13 *", "5-1-2 * * * *"],
)  # fmt: skip
def test_bad_crontabs(crontab: str) -> None:
    (problem,) = _problems(_v1(schedule=[{"crontab": crontab}]))
    assert problem.startswith("schedule[0].crontab: ")


# --- kubernetes -----------------------------------------------------------------------------------------------------


LABEL_KEY = "the name of a label, such as app or example.com/app"
LABEL_VALUE = "the value of a label: at most 63 letters, digits, '-', '_' and '.', a letter or digit at both ends"


def test_kubernetes_defaults() -> None:
    config = _parse(_v1(kubernetes=[{"kind": "ds"}]))
    assert config.kubernetes == (Kubernetes("kubernetes", "ds"),)


def test_kubernetes_in_full() -> None:
    selector: JsonObject = {
        "matchLabels": {"a": "b"},
        "matchExpressions": [{"key": "tier", "operator": "In", "values": ["x"]}, {"key": "y", "operator": "Exists"}],
    }
    watch = _watch(
        name="n", apiVersion="apps/v1", kind="Deployment", watchEvent=["Added"], executeHookOnSynchronization=False,
        waitForSynchronization=False, keepFullObjectsInMemory=False, resynchronizationPeriod="5m",
        nameSelector={"matchNames": ["p0", "p1"]}, labelSelector=selector,
        fieldSelector={"matchExpressions": [
            {"field": "status.phase", "operator": "Equals", "value": "Pending"},
            {"field": "spec.nodeName", "operator": "!=", "value": ""},
        ]},
        namespace={"nameSelector": {"matchNames": ["ns"]}, "labelSelector": {"matchLabels": {"c": "d"}}},
        jqFilter=".metadata.labels", allowFailure=True, includeSnapshotsFrom=["n"], queue="q", group="",
    )  # fmt: skip
    assert watch == Kubernetes(
        name="n", kind="Deployment", api_version="apps/v1", events=("Added",), run_on_synchronization=False,
        wait_for_synchronization=False, keep_full_objects=False, names=("p0", "p1"),
        label_selector="a=b,tier in (x),y", field_selector="status.phase=Pending,spec.nodeName!=",
        namespaces=("ns",), namespace_labels="c=d", jq_filter=".metadata.labels",
        allow_failure=True, queue="q", include_snapshots_from=("n",), group="",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        pytest.param({"matchLabels": {}}, "", id="all"),
        pytest.param({"matchLabels": {"b": "2", "example.com/a": ""}}, "b=2,example.com/a=", id="labels"),
        pytest.param(
            {
                "matchLabels": {"a": "1"},
                "matchExpressions": [
                    {"key": "b", "operator": "In", "values": ["y", "x"]},
                    {"key": "c", "operator": "NotIn", "values": ["z", ""]},
                    {"key": "d", "operator": "Exists"},
                    {"key": "e", "operator": "DoesNotExist", "values": []},
                ],
            },
            "a=1,b in (x,y),c notin (,z),d,!e",
            id="expressions",
        ),
    ],
)
def test_label_selectors(selector: JsonObject, text: str) -> None:
    watch = _watch(labelSelector=selector, namespace={"labelSelector": selector})
    assert (watch.label_selector, watch.namespace_labels) == (text, text)


def test_values_of_fields_are_escaped() -> None:
    expression: JsonObject = {"field": "metadata.name", "operator": "==", "value": "a,b=c\\d"}
    watch = _watch(fieldSelector={"matchExpressions": [expression]})
    assert watch.field_selector == "metadata.name=a\\,b\\=c\\\\d"


HALTS = "jqFilter: halt and halt_error are not possible here; error(...) makes the filter fail"


@pytest.mark.parametrize(
    "program",
    [
        "halt", "if .a then . else halt_error end", '"bye" | halt_error(1)', "[., halt, 1]", "{a: (1, halt, 2)}",
        "{a: halt}", "{(halt): 1}", '{} | "{", halt',
    ],
    ids=["at once", "sometimes", "with a code", "in a list", "among values", "as a value", "in a key", "after text"],
)  # fmt: skip
def test_a_filter_does_not_end_the_program(program: str) -> None:
    assert _problems(_v1(kubernetes=[{"kind": "Pod", "jqFilter": program}])) == [f"kubernetes[0].{HALTS}"]


@pytest.mark.parametrize(
    "program",
    [
        '.halt, .a.halt_error, {halt: 1}, "halt \\" halt", .asphalt # halt',
        "{halt}",
        ".status | {halt, x}",
        "{(.k): [1, 2], halt, x: {halt_error}}",
        ". as {halt: $halt} | $halt",
        "{ # {[(\nhalt}",
    ],
    ids=["field, key, text", "short key", "first short key", "nested short keys", "pattern", "after a comment"],
)
def test_a_filter_may_speak_of_halting(program: str) -> None:
    assert _watch(jqFilter=program).jq_filter == program


@pytest.mark.parametrize("name", ["a", "a-b.c", "system:node", "Upper_Case", "me@example.com", "0", "..a"])
def test_names_of_objects(name: str) -> None:
    assert _watch(nameSelector={"matchNames": [name]}).names == (name,)


@pytest.mark.parametrize(
    ("fields", "events"),
    [
        pytest.param({}, ("Added", "Modified", "Deleted"), id="all"),
        pytest.param({"watchEvent": []}, (), id="none"),
        pytest.param({"executeHookOnEvent": []}, (), id="none, newer name"),
        pytest.param({"watchEvent": ["Added"], "executeHookOnEvent": ["Deleted"]}, ("Deleted",), id="second wins"),
        pytest.param({"watchEvent": ["Deleted", "Added", "Added"]}, ("Added", "Deleted"), id="repeated"),
    ],
)
def test_events(fields: JsonObject, events: tuple[str, ...]) -> None:
    assert _watch(**fields).events == events


@pytest.mark.parametrize(("queue", "waits"), [("main", True), ("own", False)])
def test_not_waiting_needs_a_queue_of_its_own(queue: str, waits: bool) -> None:
    assert _watch(queue=queue, waitForSynchronization=False).wait_for_synchronization is waits


def test_a_plain_list_of_namespaces() -> None:
    assert _watch(namespace={"nameSelector": ["default"]}).namespaces == ("default",)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        pytest.param({"kind": ""}, "kind: must not be empty", id="no kind"),
        pytest.param({"apiVersion": "a/b/c"}, "apiVersion: must be version or group/version", id="api version"),
        pytest.param({"apiVersion": "/v1"}, "apiVersion: must be version or group/version", id="empty group"),
        pytest.param({"watchEvent": ["Changed"]}, "watchEvent[0]: must be one of Added, Modified, Deleted", id="event"),
        pytest.param({"watchEvent": "Added"}, "watchEvent: must be a list, not a string", id="event not a list"),
        pytest.param(
            {"executeHookOnSynchronization": "no"},
            "executeHookOnSynchronization: must be a boolean, not a string",
            id="flag",
        ),
        pytest.param({"nameSelector": {}}, "nameSelector.matchNames: is required", id="names"),
        pytest.param({"labelSelector": {}}, "labelSelector: needs matchLabels or matchExpressions", id="labels"),
        pytest.param(
            {"labelSelector": {"matchLabels": {"a": 1}}},
            "labelSelector.matchLabels.a: must be a string, not an integer",
            id="label value",
        ),
        pytest.param(
            {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "labelSelector.matchExpressions[0].values: needed by operator In",
            id="no values",
        ),
        pytest.param(
            {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}},
            "labelSelector.matchExpressions[0].values: not possible with operator Exists",
            id="values",
        ),
        pytest.param(
            {"labelSelector": {"matchLabels": {"app": "bad value!"}}},
            f"labelSelector.matchLabels.app: 'bad value!' is not {LABEL_VALUE}",
            id="malformed label value",
        ),
        pytest.param(
            {"labelSelector": {"matchLabels": {"app": "x" * 64}}},
            f"labelSelector.matchLabels.app: '{'x' * 64}' is not {LABEL_VALUE}",
            id="long label value",
        ),
        pytest.param(
            {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["x", "x,y=z"]}]}},
            f"labelSelector.matchExpressions[0].values[1]: 'x,y=z' is not {LABEL_VALUE}",
            id="malformed label value in an expression",
        ),
        *(
            pytest.param(
                {"labelSelector": {"matchExpressions": [{"key": key, "operator": "Exists"}]}},
                f"labelSelector.matchExpressions[0].key: {key!r} is not {LABEL_KEY}",
                id=f"malformed label {key[:8]}",
            )
            for key in ("tier!", "a b", "-a", "a/", "/a", "a/b/c", "Upper.io/a", f"{'d' * 254}/a")
        ),
        pytest.param(
            {"namespace": {"labelSelector": {"matchLabels": {"a b": "x"}}}},
            f"namespace.labelSelector.matchLabels.a b: 'a b' is not {LABEL_KEY}",
            id="malformed label of namespaces",
        ),
        *(
            pytest.param(
                {"nameSelector": {"matchNames": ["a", name]}},
                f"nameSelector.matchNames[1]: {name!r} is not the name of an object",
                id=f"malformed name {name}",
            )
            for name in ("", ".", "..", "Bad_Name!", "a/b", "a b", "a,b", "a%2f", "a=b")
        ),
        *(
            pytest.param(
                {"namespace": {"nameSelector": selector}},
                f"namespace.nameSelector{key}[1]: {name!r} is not the name of a namespace",
                id=f"malformed namespace {name}{key}",
            )
            for name in ("", "Bad NS", "a/../b", "a.b", "a" * 64)
            for key, selector in ((".matchNames", {"matchNames": ["a", name]}), ("", ["a", name]))
        ),
        pytest.param({"fieldSelector": {}}, "fieldSelector.matchExpressions: is required", id="no field expressions"),
        pytest.param(
            {"fieldSelector": {"matchExpressions": [{"field": "a", "operator": ">", "value": "1"}]}},
            "fieldSelector.matchExpressions[0].operator: must be one of =, ==, Equals, !=, NotEquals",
            id="field operator",
        ),
        pytest.param(
            {"fieldSelector": {"matchExpressions": [{"field": "a", "operator": "="}]}},
            "fieldSelector.matchExpressions[0].value: is required",
            id="field value",
        ),
        pytest.param(
            {
                "nameSelector": {"matchNames": ["x"]},
                "fieldSelector": {"matchExpressions": [{"field": "metadata.name", "operator": "=", "value": "x"}]},
            },
            "fieldSelector: metadata.name is not possible together with nameSelector",
            id="two names",
        ),
        pytest.param({"namespace": {}}, "namespace: needs nameSelector or labelSelector", id="namespace"),
        pytest.param({"includeSnapshotsFrom": []}, "includeSnapshotsFrom: must not be empty", id="no includes"),
        pytest.param(
            {"includeSnapshotsFrom": ["x"]}, "includeSnapshotsFrom: 'x' binding name not found", id="unknown include"
        ),
        pytest.param(
            {"includeSnapshotsFrom": [1]}, "includeSnapshotsFrom[0]: must be a string, not an integer", id="include"
        ),
    ],
)
def test_bad_kubernetes(fields: JsonObject, problem: str) -> None:
    assert _problems(_v1(kubernetes=[{"kind": "Pod", **fields}])) == [f"kubernetes[0].{problem}"]


@pytest.mark.parametrize("program", [".a |", "nosuchfunction", 'include "x"; .'])
def test_a_filter_must_compile(program: str) -> None:
    (problem,) = _problems(_v1(kubernetes=[{"kind": "Pod", "jqFilter": program}]))
    assert problem.startswith("kubernetes[0].jqFilter: jq: error: ")
    assert "\n" not in problem


def test_includes_must_be_unambiguous() -> None:
    document = _v1(
        schedule=[{"crontab": "@daily", "includeSnapshotsFrom": ["kubernetes", "b"]}],
        kubernetes=[{"kind": "a"}, {"kind": "b", "name": "b"}, {"kind": "c"}],
    )
    with pytest.raises(HookConfigError, match="includeSnapshotsFrom: there are 2 'kubernetes' binding names"):
        _parse(document)


def test_a_group_shares_its_snapshots() -> None:
    config = _parse(
        _v1(
            kubernetes=[
                {"name": "a", "kind": "x", "group": "g", "includeSnapshotsFrom": ["c", "b"]},
                {"name": "b", "kind": "x", "group": "g"},
                {"name": "c", "kind": "x"},
            ],
            schedule=[{"crontab": "@daily", "group": "g"}, {"crontab": "@daily", "group": "lonely"}],
        )
    )
    assert [watch.include_snapshots_from for watch in config.kubernetes] == [("c", "b", "a"), ("a", "b"), ()]
    assert [timer.include_snapshots_from for timer in config.schedules] == [("a", "b"), ()]


@pytest.mark.parametrize("key", ["schedule", "kubernetes", "kubernetesValidating", "kubernetesMutating"])
def test_lists_are_not_empty(key: str) -> None:
    assert _problems(_v1(**{key: []})) == [f"{key}: must not be empty"]


# --- webhooks -------------------------------------------------------------------------------------------------------

RULE = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}


@pytest.mark.parametrize("kind", ["kubernetesValidating", "kubernetesMutating"])
def test_admission(kind: bindings.AdmissionKind) -> None:
    config = _parse(
        _v1(**{kind: [{
            "name": "a.example.com", "rules": [RULE], "timeoutSeconds": 30, "failurePolicy": "Ignore",
            "matchConditions": [{"name": "n", "expression": "true"}],
            "namespace": {"labelSelector": {"matchLabels": {"a": "b"}}},
        }]})
    )  # fmt: skip
    assert config.admissions == (
        Admission(
            kind, "a.example.com", (AdmissionRule(("",), ("v1",), ("pods",), ("CREATE",), "*"),), "Ignore", "None", 30,
            (("n", "true"),), None, {"matchLabels": {"a": "b"}}, (), "",
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        pytest.param({"name": "example.com"}, "name: must be a domain name of at least three parts", id="name"),
        pytest.param({"timeoutSeconds": 31}, "timeoutSeconds: must be from 1 to 30", id="timeout"),
        pytest.param({"timeoutSeconds": 0}, "timeoutSeconds: must be from 1 to 30", id="no time"),
        pytest.param({"failurePolicy": "Retry"}, "failurePolicy: must be one of Fail, Ignore", id="policy"),
        pytest.param({"sideEffects": "Some"}, "sideEffects: must be one of None, NoneOnDryRun", id="effects"),
        pytest.param({"rules": []}, "rules: must not be empty", id="no rules"),
        pytest.param(
            {"rules": [{**RULE, "operations": ["READ"]}]},
            "rules[0].operations[0]: must be one of CREATE, UPDATE, DELETE, CONNECT, *",
            id="operation",
        ),
        pytest.param(
            {"matchConditions": [{"name": "n"}]}, "matchConditions[0].expression: is required", id="condition"
        ),
    ],
)
def test_bad_admission(fields: JsonObject, problem: str) -> None:
    document = _v1(kubernetesValidating=[{"name": "a.example.com", "rules": [RULE], **fields}])
    assert _problems(document) == [f"kubernetesValidating[0].{problem}"]


def test_conversion() -> None:
    step = {"fromVersion": "v1", "toVersion": "v2"}
    config = _parse(_v1(kubernetesCustomResourceConversion=[{"crdName": "x.example.com", "conversions": [step]}]))
    assert config.conversions == (
        Conversion("kubernetesCustomResourceConversion", "x.example.com", (("v1", "v2"),), (), ""),
    )


def test_all_bindings_are_listed() -> None:
    timer, watch = {"crontab": "@daily"}, {"kind": "pod"}
    config = _parse(_v1(onStartup=1, schedule=[timer, timer], kubernetes=[watch]))
    assert len(config.bindings()) == 4


# --- v0 -------------------------------------------------------------------------------------------------------------


def test_v0() -> None:
    config = _parse(
        {
            "onStartup": 5,
            "schedule": [{"name": "s", "crontab": "0 * * * *", "allowFailure": True}],
            "onKubernetesEvent": [
                {"kind": "pod"},
                {
                    "name": "n", "event": ["add", "delete"], "kind": "pod", "selector": {"matchLabels": {"a": "b"}},
                    "objectName": "o", "namespaceSelector": {"matchNames": ["x"], "any": False}, "jqFilter": ".",
                    "allowFailure": True,
                },
                {"kind": "pod", "namespaceSelector": {"matchNames": ["x"], "any": True}},
            ],
        }
    )  # fmt: skip
    assert config.version == "v0"
    assert config.schedules == (Schedule("s", "0 * * * *", True, "main", (), ""),)
    plain = Kubernetes("onKubernetesEvent", "pod", run_on_synchronization=False)
    full = Kubernetes(
        "n", "pod", events=("Added", "Deleted"), run_on_synchronization=False, names=("o",),
        label_selector="a=b", namespaces=("x",), jq_filter=".", allow_failure=True,
    )  # fmt: skip
    assert config.kubernetes == (plain, full, plain)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        pytest.param({"kubernetes": [{"kind": "x"}]}, "kubernetes: unknown field", id="v1 binding"),
        pytest.param({"onKubernetesEvent": []}, "onKubernetesEvent: must not be empty", id="empty"),
        pytest.param(
            {"onKubernetesEvent": [{"kind": "x", "event": ["Added"]}]},
            "onKubernetesEvent[0].event[0]: must be one of add, update, delete",
            id="v1 event",
        ),
        pytest.param(
            {"schedule": [{"crontab": "@daily", "queue": "q"}]}, "schedule[0].queue: unknown field", id="v1 queue"
        ),
    ],
)
def test_bad_v0(document: JsonObject, problem: str) -> None:
    assert _problems(document) == [problem]


def test_the_same_from_text_and_from_a_document() -> None:
    document = _v1(onStartup=1, kubernetes=[{"kind": "pod"}])
    assert _parse(json.dumps(document)) == _parse(document)
