"""Which objects of releases are missing, from what they consist of and what watches show."""

from __future__ import annotations

import pytest

from addon_operator.helm.healing.tracker import ObjectTracker, gvk
from addon_operator.kube.refs import ObjectKey, Resource

VERBS = ("get", "list", "watch")
CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps", True, verbs=VERBS)
SCALERS = Resource("autoscaling", "v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers", True, verbs=VERBS)
THINGS = Resource("example.com", "v1", "Thing", "things", False, verbs=VERBS)
REVIEWS = Resource("authorization.k8s.io", "v1", "SubjectAccessReview", "reviews", False, verbs=("create",))
KEYS = {
    "a": ObjectKey("v1", "ConfigMap", "ns", "a"),
    "b": ObjectKey("v1", "ConfigMap", "other", "b"),
    "scaler": ObjectKey("autoscaling/v1", "HorizontalPodAutoscaler", "ns", "s"),
    "thing": ObjectKey("example.com/v1", "Thing", "", "t"),
    "review": ObjectKey("authorization.k8s.io/v1", "SubjectAccessReview", "", "r"),
    "widget": ObjectKey("widgets.io/v1", "Widget", "", "w"),
}
NAMES = {key: name for name, key in KEYS.items()}
RESOURCES = {gvk(KEYS["a"]): CONFIG_MAPS, gvk(KEYS["scaler"]): SCALERS, gvk(KEYS["review"]): REVIEWS}
RESOURCES |= {gvk(KEYS["thing"]): THINGS}


def find(key: ObjectKey) -> Resource | None:
    return RESOURCES.get(gvk(key))


def follow(tracker: ObjectTracker, release: str, names: str) -> None:
    tracker.follow(release, [KEYS[name] for name in names.split()], find)


def play(*steps: str) -> ObjectTracker:
    """Does these steps.

    They are `follow RELEASE NAMES`, `forget RELEASE`, `add NAME`, `remove NAME`, `confirm RELEASE`, `deny NAME` and
    `undefine DEFINITION`.
    """
    tracker = ObjectTracker("ns")
    for step in steps:
        word, _, about = step.partition(" ")
        match word:
            case "follow":
                release, _, names = about.partition(" ")
                follow(tracker, release, names)
            case "forget":
                tracker.forget(about)
            case "add":
                tracker.add(KEYS[about])
            case "remove":
                tracker.remove(KEYS[about])
            case "confirm":
                tracker.confirm(about)
            case "deny":
                tracker.confirm("one", missing=[KEYS[about]])
            case "undefine":
                tracker.remove_kinds_of(about)
    return tracker


def missing(tracker: ObjectTracker, release: str = "one") -> str:
    return " ".join(NAMES[key] for key in tracker.missing(release, listed=tracker.kinds))


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param([], "", id="not followed"),
        pytest.param(["follow one a b"], "a b", id="nothing shown"),
        pytest.param(["follow one a b", "add b"], "a", id="shown"),
        pytest.param(["follow one a b", "add a", "add b", "remove a"], "a", id="deleted"),
        pytest.param(["follow one a", "add a", "remove a", "add a"], "", id="created again"),
        pytest.param(["follow one a", "confirm one"], "", id="exists without being shown"),
        pytest.param(["follow one a", "confirm one", "deny a"], "a", id="confirmed and denied"),
        pytest.param(["follow one a", "confirm one", "add a", "remove a"], "a", id="confirmed, shown, deleted"),
        pytest.param(["follow one a", "add a", "confirm one", "remove a"], "a", id="shown, confirmed, deleted"),
        pytest.param(["follow one a", "add a", "follow one a b", "add b"], "", id="followed again"),
        pytest.param(["follow one a", "confirm one", "forget one", "follow one a"], "a", id="a confirmation ends"),
        pytest.param(
            ["follow one a", "follow two a", "confirm one", "forget two"],
            "",
            id="a confirmation that others need stays",
        ),
        pytest.param(["follow one a", "add a", "forget one", "follow one a"], "a", id="unwatched in between"),
        pytest.param(["follow one review"], "", id="cannot be watched"),
        pytest.param(["follow one widget"], "", id="not served"),
        pytest.param(["follow one a thing", "add a", "add thing", "undefine things.example.com"], "thing", id="CRD"),
        pytest.param(["follow one thing", "add thing", "undefine others.example.com"], "", id="another CRD"),
    ],
)
def test_missing(steps: list[str], expected: str) -> None:
    assert missing(play(*steps)) == expected


def test_nothing_is_known_of_kinds_that_are_not_listed() -> None:
    tracker = play("follow one a thing")
    assert tracker.missing("one", listed={gvk(KEYS["thing"])}) == (KEYS["thing"],)
    assert tracker.unshown("one") == tuple(sorted([KEYS["a"], KEYS["thing"]]))


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        pytest.param(ObjectKey("v1", "ConfigMap", "", "a"), KEYS["a"], id="namespace of the releases"),
        pytest.param(ObjectKey("v1", "ConfigMap", "other", "b"), KEYS["b"], id="its own namespace"),
        pytest.param(ObjectKey("example.com/v1", "Thing", "ns", "t"), KEYS["thing"], id="no namespace"),
    ],
)
def test_objects_get_their_full_namespace(key: ObjectKey, expected: ObjectKey) -> None:
    tracker = ObjectTracker("ns")
    tracker.follow("one", [key], find)
    assert tracker.objects("one") == {expected}


@pytest.mark.parametrize(
    ("deleted", "expected"),
    [
        pytest.param(KEYS["a"], "a", id="itself"),
        pytest.param(ObjectKey("autoscaling/v2", "HorizontalPodAutoscaler", "ns", "s"), "scaler", id="another version"),
        pytest.param(ObjectKey("apps/v1", "HorizontalPodAutoscaler", "ns", "s"), "", id="another group"),
        pytest.param(ObjectKey("v1", "Secret", "ns", "a"), "", id="another kind"),
        pytest.param(ObjectKey("v1", "ConfigMap", "ns", "b"), "", id="another namespace"),
        pytest.param(ObjectKey("v1", "Namespace", "", "ns"), "a scaler", id="its Namespace"),
        pytest.param(
            ObjectKey("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "things.example.com"),
            "thing",
            id="its CustomResourceDefinition",
        ),
    ],
)
def test_what_a_deletion_takes_along(deleted: ObjectKey, expected: str) -> None:
    tracker = play("follow one a b scaler", "follow two a thing")
    assert " ".join(sorted(NAMES[key] for key in tracker.deleted_with(deleted))) == expected


def test_kinds_are_watched_as_long_as_a_release_has_objects_of_them() -> None:
    tracker = play("follow one a thing", "follow two a", "forget one")
    assert dict(tracker.kinds) == {gvk(KEYS["a"]): CONFIG_MAPS}
    tracker.forget("two")
    assert dict(tracker.kinds) == {}


def test_objects_of_a_kind_that_nobody_serves_are_returned_once() -> None:
    tracker = play("follow one a widget")
    assert tracker.unserved_in("widgets.io") == {"one": (KEYS["widget"],)}
    assert tracker.unserved_in("example.com") == {}
    assert tracker.take_unreported("one") == {KEYS["widget"]}
    follow(tracker, "one", "a widget")
    assert tracker.take_unreported("one") == frozenset()
    follow(tracker, "one", "a")
    follow(tracker, "one", "a widget")
    assert tracker.take_unreported("one") == {KEYS["widget"]}
