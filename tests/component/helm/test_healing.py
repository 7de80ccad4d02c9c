"""Which losses healing reports when hooks delete on purpose: an API server in memory, virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import KubeError
from addon_operator.helm.cluster import Cluster
from addon_operator.helm.healing import Healing
from addon_operator.kube.client import KubeClient
from addon_operator.kube.discovery import Discovery
from addon_operator.kube.refs import CUSTOM_RESOURCE_DEFINITIONS, ObjectKey, Resource, metadata_of
from tests.fakes import clock
from tests.fakes.api_objects import BEGINNING
from tests.fakes.api_server import FakeApiServer

T = TypeVar("T")
VERBS = ("get", "list", "watch")
CONFIG_MAP = Resource("", "v1", "ConfigMap", "configmaps", True, verbs=VERBS)
SCALER = Resource("autoscaling", "v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers", True, verbs=VERBS)
THING = Resource("example.com", "v1", "Thing", "things", False, verbs=VERBS)
DEFINITION = "things.example.com"
RESOURCES = {
    "a": CONFIG_MAP,
    "b": CONFIG_MAP,
    "scaler": SCALER,
    "thing": THING,
    DEFINITION: CUSTOM_RESOURCE_DEFINITIONS,
}
KEYS = {
    name: ObjectKey(resource.api_version, resource.kind, "ns" if resource.namespaced else "", name)
    for name, resource in RESOURCES.items()
}
MANAGED: JsonObject = {"app.kubernetes.io/managed-by": "Helm"}
SPEC: JsonObject = {
    "group": "example.com",
    "scope": "Cluster",
    "names": {"plural": "things", "kind": "Thing"},
    "versions": [{"name": "v1", "served": True, "storage": True}],
}
HELD = [key for name, key in KEYS.items() if name != DEFINITION]
MEANT = {
    **KEYS,
    "newer-scaler": ObjectKey("autoscaling/v2", "HorizontalPodAutoscaler", "ns", "scaler"),
    "secret-a": ObjectKey("v1", "Secret", "ns", "a"),
    "a-elsewhere": ObjectKey("v1", "ConfigMap", "other", "a"),
    "ns": ObjectKey("v1", "Namespace", "", "ns"),
    "crd": ObjectKey("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "things.example.com"),
}


class Api(FakeApiServer):
    """An API server of the objects above, by their short names."""

    def __init__(self) -> None:
        super().__init__(namespaces=("ns",))
        self.register(SCALER)
        self._touches = itertools.count()

    @property
    def discoveries(self) -> int:
        return self.asked.count(("GET", "/apis"))

    def make(self, name: str) -> None:
        resource, key = RESOURCES[name], KEYS[name]
        if self.find(resource, key.namespace, name) is not None:
            self._put(name, finalizers=None)  # it was held, and goes
        content: JsonObject = {"spec": SPEC} if name == DEFINITION else {}
        metadata: JsonObject = {"name": name, "namespace": key.namespace, "labels": MANAGED}
        self.put({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **content})

    def touch(self, name: str) -> None:
        self._put(name, annotations={"touched": str(next(self._touches))})

    def terminate(self, name: str) -> None:
        self._put(name, finalizers=["example.com/hold"])
        self.remove(RESOURCES[name], KEYS[name].namespace, name)

    def delete(self, name: str) -> None:
        if metadata_of(self._existing(name)).get("finalizers"):
            self._put(name, finalizers=None)
        else:
            self.remove(RESOURCES[name], KEYS[name].namespace, name)

    def refuse(self, *paths: str, status: int, reason: str) -> None:
        """Refuses requests to these paths, until it is called again."""

        def fault(_method: str, path: str) -> KubeError | None:
            return KubeError("refused", status=status, reason=reason) if path in paths else None

        self.fault = fault

    def _existing(self, name: str) -> JsonObject:
        existing = self.find(RESOURCES[name], KEYS[name].namespace, name)
        assert existing is not None
        return existing

    def _put(self, name: str, **metadata: JsonValue) -> None:
        existing = self._existing(name)
        wanted = {**metadata_of(existing), **metadata}
        changed: JsonObject = {field: value for field, value in wanted.items() if value is not None}
        self.put({**existing, "metadata": changed})


class Ignored:
    def objects_absent(self, release: str, objects: tuple[ObjectKey, ...], /) -> None: ...

    def definition_gone(self, name: str, *, unexpected: bool) -> None: ...


class Site:
    """Release `one` holds everything, `two` holds `a` as well.

    Attributes:
        told: what healing reported, `release: names`.
    """

    def __init__(self) -> None:
        self.api = Api()
        self.told: list[str] = []
        client = KubeClient(self.api)
        cluster = Cluster(client, "", Discovery(RESOURCES.values(), []))
        self.healing = Healing(client, "ns", cluster=cluster, events=self)

    def objects_absent(self, release: str, objects: tuple[ObjectKey, ...], /) -> None:
        self.told.append(f"{release}: {' '.join(key.name for key in objects)}")

    def definition_gone(self, name: str, *, unexpected: bool) -> None:
        self.told.append(f"undefined: {name}{', missed' if unexpected else ''}")

    async def do(self, step: str) -> None:
        """Does one step and lets everything that follows from it happen."""
        word, _, about = step.partition(" ")
        match word:
            case "expect":
                self.healing.expect_deletion([MEANT[about]])
                return
            case "unexpect":
                self.healing.deletion_refused([MEANT[about]])
                return
            case "wait":
                await asyncio.sleep(float(about))
                return
            case "permit":
                self.api.refuse(status=0, reason="")
            case "misroute":
                objects = [resource.path("ns", name) for name, resource in RESOURCES.items()]
                self.api.refuse(*objects, status=404, reason="Not Found")
            case "make" | "touch" | "terminate" | "delete":
                getattr(self.api, word)(about)
            case "pause" | "resume" | "forget":
                getattr(self.healing, word)("one")
            case "follow" | "upgrade":
                await self.healing.follow("one", HELD, just_deployed=word == "upgrade")
            case "follow-too":
                await self.healing.follow("two", [KEYS["a"]])
        await asyncio.sleep(1)


async def play(*steps: str, look: Callable[[Site], Awaitable[T]], forbidden: str = "") -> T:
    """Returns what `look` sees after these steps."""
    site = Site()
    for name in (DEFINITION, *(name for name in KEYS if name != DEFINITION)):
        site.api.make(name)
    if forbidden:
        site.api.refuse(forbidden, status=403, reason="Forbidden")
    running = asyncio.create_task(site.healing.run(), name="healing")
    for step in ("follow", "follow-too", *steps):
        await site.do(step)
    seen = await look(site)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return seen


def told(*steps: str) -> list[str]:
    async def look(site: Site) -> list[str]:
        return site.told

    return clock.run(play(*steps, look=look))


A_LOST = ["one: a", "two: a"]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param("delete a", A_LOST, id="by-others"),
        pytest.param("expect a, delete a", [], id="on-purpose"),
        pytest.param("expect a, delete a, delete b", ["one: b"], id="another-one-by-others"),
        pytest.param("delete b, expect a, delete a", ["one: b"], id="another-one-before"),
        pytest.param("expect secret-a, delete a", A_LOST, id="another-kind-of-that-name"),
        pytest.param("expect a-elsewhere, delete a", A_LOST, id="another-namespace"),
        pytest.param("expect newer-scaler, delete scaler", [], id="another-version-of-the-api"),
        pytest.param("expect ns, delete a, delete scaler, delete thing", ["one: thing"], id="with-its-namespace"),
        pytest.param("expect crd, delete thing, delete b", ["one: b"], id="with-its-definition"),
        pytest.param("pause, expect a, delete a, delete b, resume", ["one: b"], id="during-a-module-run"),
        pytest.param("pause, expect b, delete b, resume", [], id="during-a-module-run-nothing-else"),
        pytest.param("expect a, delete a, expect a, wait 100, delete b", ["one: b"], id="announced-again-when-gone"),
    ],
)
def test_what_is_deleted_on_purpose_is_not_told(steps: str, expected: list[str]) -> None:
    assert told(*steps.split(", ")) == expected


GONE = f"undefined: {DEFINITION}"


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param(f"delete {DEFINITION}", ["one: thing", f"{GONE}, missed"], id="by-others"),
        pytest.param(f"expect crd, delete {DEFINITION}", [GONE], id="on-purpose"),
        pytest.param(f"expect crd, wait 61, delete {DEFINITION}", ["one: thing", f"{GONE}, missed"], id="failed"),
        pytest.param(f"expect crd, unexpect crd, delete {DEFINITION}", ["one: thing", f"{GONE}, missed"], id="refused"),
    ],
)
def test_a_definition_that_goes_is_told(steps: str, expected: list[str]) -> None:
    assert told(*steps.split(", ")) == expected


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param("expect a, delete a, make a, delete a", A_LOST, id="it-was-there-again"),
        pytest.param("expect a, terminate a, make a, delete a", A_LOST, id="another-of-that-name"),
        pytest.param("expect b, delete b, upgrade, make b, delete b", ["one: b"], id="helm-made-it-again"),
        pytest.param("expect b, upgrade, delete b", ["one: b"], id="helm-made-it-before-it-went"),
        pytest.param("expect b, forget, follow, delete b", ["one: b"], id="nobody-followed-it"),
        pytest.param("expect a, touch a, delete a", [], id="a-change-is-no-return"),
        pytest.param("expect a, wait 59, delete a", [], id="it-took-a-while"),
        pytest.param("expect a, wait 61, delete a", A_LOST, id="the-deletion-had-failed"),
        pytest.param("expect a, terminate a, touch a, wait 900, delete a", [], id="a-finalizer-held-it"),
        pytest.param("expect a, wait 61, terminate a, delete a", A_LOST, id="failed-then-others-with-finalizer"),
        pytest.param("expect a, unexpect a, delete a", A_LOST, id="the-deletion-was-refused"),
        pytest.param("expect ns, unexpect ns, delete b", ["one: b"], id="that-of-its-namespace-was-refused"),
        pytest.param("expect a, terminate a, expect a, unexpect a, delete a", [], id="another-one-while-it-goes"),
        pytest.param("expect a, delete a, expect ns, unexpect ns, delete b", ["one: b"], id="another-one-when-gone"),
    ],
)
def test_an_announcement_ends(steps: str, expected: list[str]) -> None:
    assert told(*steps.split(", ")) == expected


def test_a_loss_that_waits_to_be_told_again_is_told_without_what_went_on_purpose() -> None:
    often = ["delete b", "make b"] * 3
    assert told(*often, "delete b", "expect a", "delete a", "wait 10") == ["one: b"] * 4


def test_the_next_module_run_misses_it_all_the_same() -> None:
    """A hook before Helm may delete what cannot be changed, so that Helm makes it anew."""

    async def look(site: Site) -> tuple[object, ...]:
        return site.healing.missing("one"), await site.healing.confirm_missing("one"), site.told

    gone = (KEYS["a"],)
    assert clock.run(play("expect a", "delete a", look=look)) == (gone, gone, [])


@pytest.mark.parametrize(("asked_after_s", "discoveries"), [(60, 0), (-5, 1)], ids=["before", "after"])
def test_a_definition_in_the_first_list_that_came_after_the_first_answer_is_asked_for(
    asked_after_s: float, discoveries: int
) -> None:
    """The list of what is served that is known from the start was asked for before, or after, it was made."""

    async def run() -> int:
        api = Api()
        api.make(DEFINITION)
        client = KubeClient(api)
        asked_at = BEGINNING.timestamp() + asked_after_s
        cluster = Cluster(client, "", Discovery(RESOURCES.values(), []), asked_at=asked_at)
        healing = Healing(client, "ns", cluster=cluster, events=Ignored())
        running = asyncio.create_task(healing.run(), name="healing")
        await asyncio.sleep(1)
        await cluster.refresh_if_stale()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return api.discoveries

    assert clock.run(run()) == discoveries


@pytest.mark.parametrize("permitted", [False, True])
def test_kinds_that_may_not_be_watched_are_left_out_until_they_may(*, permitted: bool) -> None:
    async def look(site: Site) -> tuple[set[ObjectKey], tuple[str, ...] | None]:
        return set(await site.healing.confirm_missing("one")), site.healing.watched("one")

    steps = ["delete thing", "delete a", *(["permit", "wait 60"] if permitted else [])]
    absent, watched = clock.run(play(*steps, look=look, forbidden=THING.path()))
    assert absent == {KEYS["a"], *([KEYS["thing"]] if permitted else [])}
    assert watched is not None
    assert ("Thing/thing" in watched) is permitted


def test_not_found_by_a_proxy_says_nothing_about_the_object() -> None:
    async def look(site: Site) -> tuple[ObjectKey, ...]:
        with pytest.raises(KubeError, match="though the API server serves the kind") as caught:
            await site.healing.confirm_missing("one")
        assert caught.value.status == 502
        site.api.refuse(status=0, reason="")
        return await site.healing.confirm_missing("one")

    assert clock.run(play("delete a", "misroute", look=look)) == (KEYS["a"],)


def test_objects_of_a_kind_that_is_not_served_any_more_are_missing() -> None:
    """The API server itself answers requests for such a kind like a proxy, without a Status."""

    async def look(site: Site) -> tuple[ObjectKey, ...]:
        return await site.healing.confirm_missing("one")

    assert clock.run(play(f"delete {DEFINITION}", look=look)) == (KEYS["thing"],)
