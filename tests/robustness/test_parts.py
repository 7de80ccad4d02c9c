"""The pure parts of the harness: plans, and what is compared."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json

import pytest

from addon_operator.documents.jsondoc import JsonObject
from tests.robustness.endstate import EndState, differences, from_objects, normalised, recreated
from tests.robustness.faults import Fault, Faults
from tests.robustness.interruption import Case, allowed_revisions
from tests.robustness.plan import Failure, Plan, report, shuffled, stream
from tests.robustness.requests import Call, Numbers, Point, Target, counts, target


def secret(name: str, revision: int, status: str, manifest: str = "a: b") -> JsonObject:
    document = {"config": {"global": {"in": "ns-1"}}, "manifest": manifest}
    packed = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(document).encode()))).decode()
    labels: JsonObject = {"name": name, "version": str(revision), "status": status}
    return {
        "kind": "Secret",
        "type": "helm.sh/release.v1",
        "metadata": {"name": f"sh.helm.release.v1.{name}.v{revision}", "labels": labels, "uid": f"{revision}"},
        "data": {"release": packed},
    }


def config_map(name: str, text: str = "a", uid: str = "1", **annotations: str) -> JsonObject:
    metadata: JsonObject = {"name": name, "uid": uid, "resourceVersion": uid, "annotations": dict(annotations)}
    return {"kind": "ConfigMap", "metadata": metadata, "data": {"text": text}}


def state(*items: JsonObject) -> EndState:
    return from_objects(items, namespace="ns-1")


def test_a_stream_depends_on_seed_and_name_only() -> None:
    assert stream(1, "a").random() == stream(1, "a").random()
    assert stream(1, "a").random() != stream(1, "b").random()
    assert stream(1, "a").random() != stream(2, "a").random()
    assert sorted(shuffled(range(20), 3, "x")) == list(range(20))
    assert shuffled(range(20), 3, "x") == shuffled(range(20), 3, "x") != shuffled(range(20), 4, "x")


def test_a_failure_says_seed_plan_and_command() -> None:
    plan = Plan("tests/robustness/test_x.py::test_y[kill]", 7, ("kill at x", "start again"), ("--case=x y",))
    text = report([Failure(plan, ("release a: is missing",))], done=3, known=10, what="kills")
    assert "kills: 3 of 10 covered, 1 failed" in text
    assert "- release a: is missing\nseed: 7\nplan:\n  1. kill at x\n  2. start again\n" in text
    assert (
        "repeat: .venv/bin/pytest 'tests/robustness/test_x.py::test_y[kill]' --robustness --seed=7 '--case=x y'" in text
    )


def test_what_differs_between_undisturbed_runs_is_left_out() -> None:
    document: JsonObject = {
        "metadata": {"name": "ns-1-hooks", "uid": "1", "labels": {"ns-1.example.com/a": "b"}},
        "webhooks": [{"clientConfig": {"caBundle": "x", "url": "https://127.0.0.1:123/hooks/a.ns-1"}}],
        "status": {},
    }
    assert normalised(document, namespace="ns-1") == {
        "metadata": {"name": "NAMESPACE-hooks", "labels": {"NAMESPACE.example.com/a": "b"}},
        "webhooks": [{"clientConfig": {"url": "https://127.0.0.1:PORT/hooks/a.NAMESPACE"}}],
    }


@pytest.mark.parametrize(
    ("actual", "said"),
    [
        ([secret("a", 2, "deployed"), config_map("c")], []),
        # Changes that come together need one upgrade.
        ([secret("a", 1, "deployed"), config_map("c")], []),
        ([secret("a", 3, "deployed"), config_map("c")], ["release a: revision 3, at most 2 are needed"]),
        ([config_map("c")], ["release a: is missing"]),
        ([secret("a", 2, "failed"), config_map("c")], ["release a: revision 2 is failed, not deployed"]),
        (
            [secret("a", 2, "deployed"), secret("a", 1, "pending-upgrade"), config_map("c")],
            ["release a: revision 1 is pending-upgrade"],
        ),
        ([secret("a", 2, "deployed", "c: d"), config_map("c")], ["release a: its manifest is another one"]),
        ([secret("a", 2, "deployed")], ["object ConfigMap/c: is missing"]),
        ([secret("a", 2, "deployed"), config_map("c"), config_map("d")], ["object ConfigMap/d: should not be there"]),
        ([secret("a", 2, "deployed"), config_map("c", "b")], ['object ConfigMap/c: /data/text is "b" and not "a"']),
    ],
)
def test_differences(actual: list[JsonObject], said: list[str]) -> None:
    expected = state(secret("a", 2, "deployed"), secret("a", 1, "superseded"), config_map("c", uid="7"))
    assert differences(expected, state(*actual), extra_revisions={}) == said


def test_revisions_count_as_far_as_they_were_not_needed() -> None:
    expected, actual = state(secret("a", 2, "deployed")), state(secret("a", 4, "deployed"))
    assert differences(expected, actual, extra_revisions={"a": 1}) == ["release a: revision 4, at most 3 are needed"]
    assert differences(expected, actual, extra_revisions={"a": 2}) == []
    assert differences(expected, actual) == []


def test_the_config_map_of_the_operator_is_compared_by_key() -> None:
    expected = state(config_map("addon-operator"))
    assert expected.config == {"text": "a"}
    assert differences(dataclasses.replace(expected, config={"more": "b"}), expected) == [
        "key of the ConfigMap more: is missing",
        "key of the ConfigMap text: should not be there",
    ]


def test_an_object_that_was_made_again_has_lost_what_it_held() -> None:
    before = state(config_map("a", uid="1"), config_map("b", uid="2"), config_map("gone"))
    after = state(config_map("a", uid="1"), config_map("b", uid="3"), config_map("new"))
    assert recreated(before, after) == ["object ConfigMap/b: was deleted and made again"]
    # Helm makes its hooks again each time.
    hook = {"helm.sh/hook": "pre-upgrade"}
    assert recreated(state(config_map("h", uid="1", **hook)), state(config_map("h", uid="2", **hook))) == []


@pytest.mark.parametrize(
    ("path", "collection", "resource", "name", "subresource"),
    [
        ("/version", "", "", "", ""),
        ("/api/v1", "", "", "", ""),
        ("/apis/apps/v1", "", "", "", ""),
        ("/api/v1/configmaps", "/api/v1/configmaps", "configmaps", "", ""),
        ("/api/v1/namespaces", "/api/v1/namespaces", "namespaces", "", ""),
        ("/api/v1/namespaces/a", "/api/v1/namespaces", "namespaces", "a", ""),
        ("/api/v1/namespaces/a/status", "/api/v1/namespaces", "namespaces", "a", "status"),
        ("/api/v1/namespaces/a/configmaps", "/api/v1/namespaces/a/configmaps", "configmaps", "", ""),
        ("/api/v1/namespaces/a/configmaps/b", "/api/v1/namespaces/a/configmaps", "configmaps", "b", ""),
        ("/apis/x.io/v1/namespaces/a/things/b/status", "/apis/x.io/v1/namespaces/a/things", "things", "b", "status"),
        ("/apis/x.io/v1/wides/b", "/apis/x.io/v1/wides", "wides", "b", ""),
    ],
)
def test_what_a_path_names(path: str, collection: str, resource: str, name: str, subresource: str) -> None:
    assert target(path) == Target(collection, resource, name, subresource)


@pytest.mark.parametrize(
    ("call", "what", "writes"),
    [
        (Call("GET", "/api/v1/namespaces/ns-1/configmaps/a", {}), "GET configmaps/a", False),
        (Call("GET", "/api/v1/configmaps", {"watch": "1"}), "WATCH configmaps", False),
        (Call("POST", "/api/v1/namespaces/n/configmaps", {}, b'{"metadata":{"name":"a"}}'), "POST configmaps/a", True),
        (
            Call("POST", "/api/v1/namespaces/ns-1/secrets", {}, b"k8s\0\x12sh.helm.release.v1.my-app.v12\x1a"),
            "POST secrets/sh.helm.release.v1.my-app.v12",
            True,
        ),
        (Call("PATCH", "/apis/x.ns-1.io/v1/things/ns-1-a/status", {}), "PATCH things/NAMESPACE-a/status", True),
        (Call("POST", "/api/v1/namespaces/ns-1/configmaps", {"dryRun": "All"}, b"{}"), "POST configmaps", False),
        # What is said about the work, and the clock, are no part of it.
        (Call("POST", "/api/v1/namespaces/ns-1/events", {}, b"{}"), "POST events", False),
        (Call("PUT", "/apis/coordination.k8s.io/v1/namespaces/ns-1/leases/l", {}), "PUT leases/l", False),
        (Call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {}, b""), None, False),
    ],
)  # fmt: skip
def test_what_a_request_is(call: Call, what: str | None, writes: bool) -> None:
    assert call.writes == writes
    if what is not None:
        assert call.what("ns-1") == what


def test_points_are_numbered_and_written_down() -> None:
    numbers = Numbers()
    points = [numbers.next(what) for what in ("PUT a/b", "PUT a/c", "PUT a/b")]
    assert [str(point) for point in points] == ["PUT a/b", "PUT a/c", "PUT a/b #2"]
    assert [Point.parse(str(point)) for point in points] == points
    assert counts("start helm upgrade x")
    assert not counts("start hook scripted/tick --config")


@pytest.mark.parametrize("text", ["kill:start helm upgrade a #2", "stale:PUT secrets/a.v1:3", "withhold:POST things/b"])
def test_a_case_is_written_down(text: str) -> None:
    assert str(Case.parse(text)) == text
    assert Case.parse(text).steps()[-1] == "compare"


@pytest.mark.parametrize(
    ("text", "hidden", "config_hidden", "extra"),
    [
        ("kill:PUT x/y", [], False, {"pending": 1, "watch": 1}),
        ("withhold:PUT x/y", [], False, {"pending": 1, "watch": 1}),
        ("stale:PUT x/y:2", ["a", "pending"], False, {"a": 2, "pending": 3, "watch": 1}),
        ("stale:PUT x/y:2", [], True, {"a": 2, "pending": 3, "watch": 3}),
    ],
)
def test_which_revisions_a_case_may_need(
    text: str, hidden: list[str], config_hidden: bool, extra: dict[str, int]
) -> None:
    expected = state(secret("a", 1, "deployed"), secret("pending", 1, "deployed"), secret("watch", 1, "deployed"))
    at_fault = state(secret("a", 1, "deployed"), secret("pending", 1, "pending-upgrade"))
    allowed = allowed_revisions(
        Case.parse(text),
        expected=expected,
        at_fault=at_fault,
        hidden=frozenset(hidden),
        config_hidden=config_hidden,
    )
    assert allowed == extra


def test_faults_are_those_of_the_seed() -> None:
    write = Call("PUT", "/api/v1/namespaces/a/configmaps/b", {})
    watch = Call("GET", "/api/v1/configmaps", {"watch": "1"})

    def met(seed: int, call: Call, **rates: float) -> list[Fault | None]:
        return [Faults(seed, **rates).meet(call, "it", number) for number in range(200)]

    assert met(1, write) == met(1, write) != met(2, write)
    assert set(met(1, write, rate=0.0)) == {None}
    kinds = {fault.kind for fault in met(1, write, rate=1.0) if fault}
    assert kinds == {"conflict", "throttled", "error", "cut before", "cut after", "stall"}
    silent = [fault for fault in met(1, watch, watch_rate=1.0) if fault and fault.kind == "silent"]
    assert silent
    assert all(fault.after_s > 0 for fault in silent)
    assert "conflict" not in {fault.kind for fault in met(1, watch, watch_rate=1.0) if fault}
