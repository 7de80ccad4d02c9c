"""The host between an API server in memory and listeners without sockets, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import HookConfigError, KubeError
from addon_operator.hooks.call import HookId
from addon_operator.kube.client import KubeClient
from addon_operator.kube.refs import CUSTOM_RESOURCE_DEFINITIONS
from addon_operator.settings import WebhookServer
from addon_operator.webhooks.configurations import OPERATOR, RESOURCES
from addon_operator.webhooks.endpoint import WebhookSettings
from addon_operator.webhooks.host import WebhookHost
from addon_operator.webhooks.review import AdmissionAnswer
from tests.fakes import clock
from tests.fakes.api_server import FakeApiServer
from tests.fakes.background import running
from tests.fakes.reviewer import ScriptedReviewer, admission, conversion
from tests.fakes.webhook_caller import WebhookCaller
from tests.fakes.webhook_listener import FakeWebhookListener

T = TypeVar("T")
ONE, TWO = HookId(None, "one.sh"), HookId("alpha", "hooks/two.sh")
SERVER = WebhookServer(port=9680, address="0.0.0.0", service="addon-operator")
SETTINGS = WebhookSettings(
    namespace="default",
    config_map="cm",
    validating_name="addon-operator",
    mutating_name="addon-operator",
    admission=SERVER,
    conversion=SERVER,
)
VALIDATING = RESOURCES["kubernetesValidating"]
NAME = "addon-operator-hooks"
CRD = "things.x.io"
THINGS = conversion(CRD, ("v1", "v2"))


class Site:
    """One operator's webhooks, the cluster and the hooks."""

    def __init__(self, api: FakeApiServer | None = None) -> None:
        self.api = api or FakeApiServer()
        self.reviewer = ScriptedReviewer()
        self.admission, self.conversion = FakeWebhookListener(), FakeWebhookListener()
        self.cluster = WebhookCaller(self.api, admission=self.admission, conversion=self.conversion)
        self.host = WebhookHost(
            KubeClient(self.api),
            admission=self.admission,
            conversion=self.conversion,
            reviewer=self.reviewer,
            settings=SETTINGS,
        )

    def refuse(self, method: str, part: str) -> None:
        """Refuses requests whose path contains this, until `permit`."""

        def fault(asked: str, path: str) -> KubeError | None:
            return KubeError("no", status=403, reason="Forbidden") if asked == method and part in path else None

        self.api.fault = fault

    def permit(self) -> None:
        self.api.fault = lambda _method, _path: None

    def names(self) -> list[str]:
        return list(self.cluster.webhooks())

    def define(self) -> None:
        version: JsonObject = {"served": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        names: JsonObject = {"plural": "things", "kind": "Thing"}
        versions: list[JsonObject] = [
            {**version, "name": "v1", "storage": True},
            {**version, "name": "v2", "storage": False},
        ]
        self.api.put(
            {
                "apiVersion": CUSTOM_RESOURCE_DEFINITIONS.api_version,
                "kind": "CustomResourceDefinition",
                "metadata": {"name": CRD},
                "spec": {"group": "x.io", "scope": "Cluster", "names": names, "versions": [*versions]},
            }
        )


def play(steps: Callable[[Site], Awaitable[T]], api: FakeApiServer | None = None) -> T:
    async def main() -> T:
        site = Site(api)
        async with running(site.host):
            return await steps(site)

    return clock.run(main())


@pytest.mark.parametrize("allowed", [True, False])
def test_a_hook_is_asked_where_it_is_registered(allowed: bool) -> None:
    async def steps(site: Site) -> JsonObject:
        site.reviewer.answers = {"a": AdmissionAnswer(allowed=allowed)}
        await site.host.serve(ONE, [admission("a")], [])
        return await site.cluster.admit("a")

    assert play(steps)["allowed"] is allowed


def test_what_is_served_no_longer_is_unregistered() -> None:
    async def steps(site: Site) -> list[list[str]]:
        await site.host.serve(ONE, [admission("a"), admission("b")], [])
        await site.host.serve(TWO, [admission("c")], [])
        seen = [site.names()]
        await site.host.serve(ONE, [admission("b")], [])
        seen.append(site.names())
        await site.host.withdraw([ONE])
        seen.append(site.names())
        await site.host.withdraw([TWO, ONE])
        return [*seen, site.names()]

    assert play(steps) == [["a", "b", "c"], ["b", "c"], ["c"], []]


def test_a_name_that_is_taken_changes_nothing() -> None:
    async def steps(site: Site) -> list[str]:
        await site.host.serve(ONE, [admission("a")], [])
        with pytest.raises(HookConfigError, match=r"the name a is taken by global hook one\.sh"):
            await site.host.serve(TWO, [admission("b"), admission("a")], [])
        return site.names()

    assert play(steps) == ["a"]


def test_what_the_api_server_refuses_leaves_a_hook_what_it_had() -> None:
    async def steps(site: Site) -> list[str]:
        await site.host.serve(ONE, [admission("a")], [])
        site.refuse("PUT", VALIDATING.plural)
        with pytest.raises(KubeError, match=f"{TWO}: its webhooks cannot be registered"):
            await site.host.serve(TWO, [admission("b")], [])
        site.permit()
        await asyncio.sleep(60)
        assert (await site.cluster.admit("a"))["allowed"] is True
        return site.names()

    assert play(steps) == ["a"]


def test_what_cannot_be_removed_is_removed_later() -> None:
    async def steps(site: Site) -> list[str]:
        await site.host.serve(ONE, [admission("a")], [])
        site.refuse("DELETE", VALIDATING.plural)
        with pytest.raises(KubeError):
            await site.host.withdraw([ONE])
        site.permit()
        await asyncio.sleep(60)
        return site.names()

    assert play(steps) == []


def test_what_somebody_else_changes_is_written_again() -> None:
    async def steps(site: Site) -> list[list[str]]:
        await site.host.serve(ONE, [admission("a")], [])
        await asyncio.sleep(1)
        configuration = site.api.find(VALIDATING, "", NAME)
        assert configuration is not None
        site.api.put({**configuration, "webhooks": []})
        await asyncio.sleep(1)
        seen = [site.names()]
        site.api.remove(VALIDATING, "", NAME)
        await asyncio.sleep(3)
        return [*seen, site.names()]

    assert play(steps) == [["a"], ["a"]]


def test_a_definition_gets_its_conversion_when_it_appears_and_again_when_it_is_lost() -> None:
    things: list[JsonObject] = [{"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {}}]

    async def steps(site: Site) -> list[object]:
        await site.host.serve(ONE, [], [THINGS])
        await asyncio.sleep(60)
        site.define()
        await asyncio.sleep(60)
        seen: list[object] = [await site.cluster.convert(CRD, things, api_version="x.io/v2")]
        site.define()
        seen.append(site.cluster.conversion(CRD))
        await asyncio.sleep(60)
        seen.append(site.cluster.conversion(CRD) is not None)
        await site.host.withdraw([ONE])
        return [*seen, site.cluster.conversion(CRD)]

    converted = {"apiVersion": "x.io/v2", "kind": "Thing", "metadata": {"name": "t"}, "spec": {"way": ">v2"}}
    assert play(steps) == [[converted], None, True, None]


def test_another_authority_is_registered() -> None:
    async def steps(site: Site) -> bool:
        await site.host.serve(ONE, [admission("a")], [])
        site.admission.next_authority = b"authority 2"
        await asyncio.sleep(120)
        assert site.admission.authority == b"authority 2"
        return bool((await site.cluster.admit("a"))["allowed"])

    assert play(steps) is True


def test_what_a_former_process_left_is_taken_over_or_cleared() -> None:
    api = FakeApiServer()

    async def before(site: Site) -> None:
        site.define()
        await site.host.serve(ONE, [admission("a"), admission("m", kind="kubernetesMutating")], [THINGS])
        await site.host.stop()

    async def after(site: Site) -> list[object]:
        seen: list[object] = [site.names()]
        await site.host.clear_stale()
        seen += [site.names(), site.cluster.conversion(CRD) is not None]
        await site.host.serve(ONE, [admission("a")], [])
        await site.host.clear_stale(conversions=True)
        return [*seen, site.names(), site.cluster.conversion(CRD)]

    play(before, api)
    assert play(after, api) == [["a"], [], True, ["a"], None]


def test_what_another_operator_registered_stays() -> None:
    api = FakeApiServer()
    labels: JsonObject = {OPERATOR: "other.cm"}
    metadata: JsonObject = {"name": NAME, "labels": labels}
    api.put({"apiVersion": VALIDATING.api_version, "kind": VALIDATING.kind, "metadata": metadata, "webhooks": []})

    async def steps(site: Site) -> None:
        await site.host.clear_stale(conversions=True)
        with pytest.raises(KubeError, match=f"{VALIDATING.kind} {NAME} belongs to operator other.cm"):
            await site.host.serve(ONE, [admission("a")], [])

    play(steps, api)
    assert api.find(VALIDATING, "", NAME) is not None


def test_nothing_is_written_after_the_stop() -> None:
    async def steps(site: Site) -> int:
        await site.host.serve(ONE, [admission("a")], [])
        await site.host.stop()
        written = len(site.api.asked)
        site.api.remove(VALIDATING, "", NAME)
        await asyncio.sleep(300)
        return len([method for method, _ in site.api.asked[written:] if method not in {"GET", "WATCH"}])

    assert play(steps) == 0
