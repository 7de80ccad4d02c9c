"""What a webhook listener does, the fake as well as the real one."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Protocol

import aiohttp
import pytest

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import InvariantBroken
from addon_operator.hooks.call import HookId
from addon_operator.settings import WebhookServer
from addon_operator.webhooks.admission import AdmissionRoute
from addon_operator.webhooks.certificates import Authority
from addon_operator.webhooks.dispatcher import Reply, Route
from addon_operator.webhooks.host import WebhookListener
from addon_operator.webhooks.listener import TlsListener
from addon_operator.webhooks.review import AdmissionAnswer
from tests.fakes.reviewer import ScriptedReviewer, admission
from tests.fakes.webhook_listener import FakeWebhookListener

LARGEST = 10_000
OTHER_AUTHORITY = Authority().issue(["h"], validity_s=60).authority


class Post(Protocol):
    """Sends a review; as `FakeWebhookListener.post`."""

    async def __call__(self, path: str, body: bytes, *, authority: bytes) -> Reply: ...


class Subject:
    """A listener, how it is asked, and routes for it."""

    def __init__(self, listener: WebhookListener, post: Post) -> None:
        self.listener, self._post = listener, post
        self.reviewer = ScriptedReviewer()
        self.routes: dict[str, Route] = {"/a": AdmissionRoute(HookId(None, "one.sh"), admission("a"), self.reviewer)}

    async def start(self) -> None:
        await self.listener.start(self.find_route)

    def find_route(self, path: str) -> Route | None:
        return self.routes.get(path)

    async def post(self, path: str, body: bytes) -> Reply:
        return await self._post(path, body, authority=self.listener.authority)

    async def post_trusting(self, authority: bytes) -> Reply:
        return await self._post("/a", question(), authority=authority)


def question(uid: str = "u") -> bytes:
    request: JsonObject = {"uid": uid, "operation": "CREATE"}
    return jsondoc.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


@contextlib.asynccontextmanager
async def fake(at_once: int) -> AsyncIterator[Subject]:
    listener = FakeWebhookListener(largest=LARGEST, at_once=at_once)
    yield Subject(listener, listener.post)
    await listener.stop()


@contextlib.asynccontextmanager
async def real(at_once: int) -> AsyncIterator[Subject]:
    authority = Authority()
    listener = TlsListener(
        WebhookServer(port=0, address="127.0.0.1", service="svc"),
        names=["127.0.0.1"],
        validity_s=3600,
        authority=lambda: authority,
        largest=LARGEST,
        at_once=at_once,
    )
    async with aiohttp.ClientSession() as session:

        async def post(path: str, body: bytes, *, authority: bytes) -> Reply:
            context = ssl.create_default_context(cadata=authority.decode())
            url = f"https://127.0.0.1:{listener.port}{path}"
            async with session.post(url, data=body, ssl=context) as response:
                return Reply(response.status, await response.read())

        yield Subject(listener, post)
        await listener.stop()


MAKERS = {"fake": fake, "real": real}


@pytest.fixture(params=MAKERS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def subject(kind: str) -> AsyncIterator[Subject]:
    async with MAKERS[kind](at_once=4) as made:
        yield made


async def test_a_review_is_answered(subject: Subject) -> None:
    await subject.start()
    subject.reviewer.answers = {"a": AdmissionAnswer(allowed=False, message="no")}
    reply = await subject.post("/a", question())
    assert reply.status == 200
    assert jsondoc.lookup(jsondoc.loads(reply.body), "/response") == {
        "uid": "u",
        "allowed": False,
        "status": {"code": 403, "message": "no"},
    }


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        pytest.param("/b", question(), 404, b"no hook serves /b\n", id="unknown path"),
        pytest.param("/a", b"{", 400, b"AdmissionReview: not JSON", id="no review"),
        pytest.param("/a", question("u" * LARGEST), 413, b"", id="body too large"),
        pytest.param("/b", question("u" * LARGEST), 404, b"no hook serves /b\n", id="too large for nobody"),
    ],
)
async def test_what_is_not_answered(subject: Subject, path: str, body: bytes, status: int, text: bytes) -> None:
    await subject.start()
    reply = await subject.post(path, body)
    assert reply.status == status
    assert text in reply.body
    assert subject.reviewer.requests == []


async def test_routes_are_looked_up_for_each_review(subject: Subject) -> None:
    await subject.start()
    route = subject.routes.pop("/a")
    assert (await subject.post("/a", question())).status == 404
    subject.routes["/a"] = route
    assert (await subject.post("/a", question())).status == 200


async def test_no_more_reviews_run_than_there_are_places(kind: str) -> None:
    async with MAKERS[kind](at_once=2) as subject:
        await subject.start()
        subject.reviewer.stuck = {"a"}
        reviews = [asyncio.create_task(subject.post("/a", question(str(number)))) for number in range(5)]
        await subject.reviewer.until_asked(2)
        subject.reviewer.let_end.set()
        assert [reply.status for reply in await asyncio.gather(*reviews)] == [200] * 5
        assert subject.reviewer.most_running == 2


async def test_its_authority_is_what_clients_have_to_trust(subject: Subject) -> None:
    await subject.start()
    assert (await subject.post_trusting(subject.listener.authority)).status == 200
    with pytest.raises((ssl.SSLCertVerificationError, aiohttp.ClientSSLError)):
        await subject.post_trusting(OTHER_AUTHORITY)


async def test_its_port_is_known_when_it_listens(subject: Subject) -> None:
    assert subject.listener.port == 0
    await subject.start()
    assert subject.listener.port > 0


async def test_it_has_an_authority_only_while_it_listens(subject: Subject) -> None:
    for _ in range(2):
        with pytest.raises(InvariantBroken):
            _ = subject.listener.authority
        await subject.start()
        assert subject.listener.authority
        await subject.listener.stop()


async def test_starting_again_changes_nothing(subject: Subject) -> None:
    await subject.start()
    port, authority = subject.listener.port, subject.listener.authority
    await subject.start()
    assert (subject.listener.port, subject.listener.authority) == (port, authority)
    assert (await subject.post("/a", question())).status == 200


async def test_nobody_is_answered_after_the_stop(subject: Subject) -> None:
    await subject.start()
    authority = subject.listener.authority
    await subject.listener.stop()
    with pytest.raises(OSError, match=r"refused|nobody listens|Cannot connect"):
        await subject.post_trusting(authority)
    await subject.listener.stop()


async def test_it_can_listen_again_after_the_stop(subject: Subject) -> None:
    await subject.start()
    await subject.listener.stop()
    await subject.start()
    assert (await subject.post("/a", question())).status == 200
