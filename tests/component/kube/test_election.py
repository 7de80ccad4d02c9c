"""The election against a scripted API server: what goes wrong there."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Iterator

import pytest

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import LeaseLost
from addon_operator.kube.client import KubeClient
from addon_operator.kube.election import Election, Timing
from addon_operator.kube.holder import Holder
from tests.component.kube.api import Answer, Asked, Handler, Script, breaks, gives, refuses

pytestmark = pytest.mark.asyncio(loop_factories=["virtual"])

SHORT = Timing(duration_s=30.0, renew_deadline_s=0.0, retry_s=0.05, failed_retry_s=0.01, reminder_s=60.0)


class Leases:
    """One Lease, as an API server keeps it."""

    def __init__(self) -> None:
        self.lease: JsonObject | None = None
        self.version = 0
        self.written = asyncio.Event()

    def put(self, holder: str, *, duration_s: int = 30) -> None:
        self.version += 1
        spec: JsonObject = {"holderIdentity": holder, "leaseDurationSeconds": duration_s}
        self.lease = {"metadata": {"resourceVersion": str(self.version)}, "spec": spec}

    @property
    def holder(self) -> str:
        assert self.lease is not None
        spec = self.lease["spec"]
        assert isinstance(spec, dict)
        return str(spec["holderIdentity"])

    async def until_written(self, *, times: int = 1) -> None:
        for _ in range(times):
            self.written.clear()
            await self.written.wait()

    async def __call__(self, asked: Asked) -> Answer:
        if asked.method == "GET":
            if "watch" in asked.query:
                return await refuses(403, "Forbidden")(asked)
            return await (gives(self.lease) if self.lease else refuses(404, "NotFound"))(asked)
        body = json.loads(asked.body)
        if (asked.method == "POST") != (self.lease is None):
            return await refuses(409, "AlreadyExists")(asked)
        if self.lease is not None and body["metadata"] != self.lease["metadata"]:
            return await refuses(409, "Conflict")(asked)
        self.version += 1
        self.lease = {**body, "metadata": {"resourceVersion": str(self.version)}}
        self.written.set()
        return await gives(self.lease)(asked)


@pytest.fixture
def me() -> Iterator[Holder]:
    with contextlib.closing(Holder("me")) as holder:
        yield holder


@pytest.fixture
def leases(api: Script) -> Leases:
    made = Leases()
    api.steps = [made] * 10_000
    return made


def election(client: KubeClient, me: Holder, waits: list[str] | None = None, timing: Timing = SHORT) -> Election:
    return Election(
        client, namespace="ns", holder=me, on_wait=(waits if waits is not None else []).append, timing=timing
    )


async def test_a_lease_is_taken_held_and_released(client: KubeClient, me: Holder, leases: Leases) -> None:
    one = election(client, me)
    async with one.holding():
        assert (one.held, leases.holder) == (True, str(me.identity))
        await leases.until_written(times=3)
    assert (one.held, leases.holder) == (False, "")


async def test_who_comes_second_says_who_holds_the_lease_and_waits(
    client: KubeClient, me: Holder, leases: Leases, capsys: pytest.CaptureFixture[str]
) -> None:
    leases.put("other-0_7_0123456789ab_cd")
    waits: list[str] = []
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5), election(client, me, waits).holding():
            raise AssertionError
    assert set(waits) == {
        "another operator works in namespace ns: other-0 (process 7) holds the Lease addon-operator-leader-election "
        "since "
    }
    assert len(waits) > 1
    assert capsys.readouterr().out.count("this operator does nothing until") == 1
    assert leases.holder == "other-0_7_0123456789ab_cd"


async def test_a_lease_that_is_released_is_taken(client: KubeClient, me: Holder, leases: Leases) -> None:
    leases.put("other")
    waiting = asyncio.Event()
    one = Election(client, namespace="ns", holder=me, on_wait=lambda _: waiting.set(), timing=SHORT)

    async def release() -> None:
        await waiting.wait()
        leases.put("", duration_s=1)

    async with asyncio.TaskGroup() as group:
        group.create_task(release())
        async with one.holding():
            assert leases.holder == str(me.identity)


async def test_a_lease_that_is_not_renewed_runs_out(client: KubeClient, me: Holder, leases: Leases) -> None:
    leases.put("other", duration_s=1)
    waits: list[str] = []
    async with election(client, me, waits).holding():
        assert leases.holder == str(me.identity)
    assert waits


async def test_of_two_that_take_it_at_once_one_gets_it(client: KubeClient, leases: Leases) -> None:
    inside = 0

    async def candidate() -> None:
        nonlocal inside
        with contextlib.closing(Holder("one of many")) as holder:
            async with election(client, holder).holding():
                inside += 1
                assert inside == 1
                await asyncio.sleep(0.01)
                inside -= 1

    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(candidate())
    assert leases.holder == ""


async def test_a_lease_that_another_operator_holds_ends_this_one(
    client: KubeClient, me: Holder, leases: Leases
) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(LeaseLost, match=r"other-0 \(process 7\) holds the Lease ns/addon-")):
        async with election(client, me).holding():
            leases.put("other-0_7_0123456789ab_cd")
            await asyncio.Event().wait()
    assert leases.holder == "other-0_7_0123456789ab_cd"


async def test_a_lease_that_was_deleted_or_emptied_is_taken_again(
    client: KubeClient, me: Holder, leases: Leases
) -> None:
    async with election(client, me).holding():
        leases.lease = None
        await leases.until_written()
        assert leases.holder == str(me.identity)
        leases.put("")
        await leases.until_written()
        assert leases.holder == str(me.identity)


async def test_an_api_server_that_was_away_costs_nothing_while_the_lease_is_still_ours(
    client: KubeClient, me: Holder, api: Script, leases: Leases, capsys: pytest.CaptureFixture[str]
) -> None:
    async with election(client, me).holding():
        api.steps = [breaks(), refuses(500, "InternalError"), breaks(), *[leases] * 1000]
        await api.until_asked(len(api.asked) + 3)
        await leases.until_written(times=2)
    said = capsys.readouterr().out
    assert said.count("the Lease cannot be renewed") == 1
    assert said.count("the Lease is renewed again") == 1


FORBIDDEN = refuses(403, "Forbidden", message="leases is forbidden")
DISCOVERY = [gives({"kind": "APIGroupDiscoveryList", "items": []})] * 2


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            (
                [FORBIDDEN],
                'the Role needs verb get, create, update on resource leases of API group "coordination.k8s.io" in '
                "namespace ns",
            ),
            id="no permission",
        ),
        pytest.param(([refuses(404, "NotFound"), FORBIDDEN], "the Role needs"), id="no permission to create"),
        pytest.param(
            ([gives({}, status=404), *DISCOVERY, gives({}, status=404), *DISCOVERY], "404 Not Found"), id="not served"
        ),
        pytest.param(([refuses(404, "NotFound")] * 2, "404 NotFound"), id="no namespace"),
    ],
)
async def test_without_leases_the_operator_warns_and_goes_on(
    client: KubeClient, me: Holder, api: Script, capsys: pytest.CaptureFixture[str], case: tuple[list[Handler], str]
) -> None:
    steps, reason = case
    api.steps = list(steps)
    one = election(client, me, timing=dataclasses.replace(SHORT, retry_s=5.0))
    async with one.holding():
        assert not one.held
        # What it gives back at the end.
        api.steps = [FORBIDDEN]
    said = capsys.readouterr().out
    assert "no Lease: nothing keeps a second operator from working in this namespace at the same time" in said
    assert reason in said


async def test_a_page_of_a_proxy_is_no_reason_to_go_on_without_a_lease(
    client: KubeClient, me: Holder, api: Script, leases: Leases
) -> None:
    kind: JsonObject = {"resource": "leases", "responseKind": {"kind": "Lease"}, "scope": "Namespaced"}
    version: JsonObject = {"version": "v1", "resources": [kind]}
    group: JsonObject = {"metadata": {"name": "coordination.k8s.io"}, "versions": [version]}
    served = gives({"kind": "APIGroupDiscoveryList", "items": [group]})
    page = gives({}, status=404)
    api.steps = [page, page, served, served, *[leases] * 100]
    one = election(client, me)
    async with one.holding():
        assert one.held
