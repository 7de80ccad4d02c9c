"""The server over TLS, with routes of real bindings and hooks that are scripted."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import HookFailed, SettingsError
from addon_operator.hooks.call import HookId
from addon_operator.hooks.config.model import AdmissionKind
from addon_operator.webhooks.admission import AdmissionReview, AdmissionRoute, DepartedRoute
from addon_operator.webhooks.certificates import Authority, KeyPair, make_context
from addon_operator.webhooks.conversion import ConversionRoute
from addon_operator.webhooks.dispatcher import Route
from addon_operator.webhooks.review import AdmissionAnswer, ConversionAnswer
from addon_operator.webhooks.server import ReviewServer, limits
from addon_operator.webhooks.table import steps_of
from tests.fakes.reviewer import ScriptedReviewer, admission, conversion

HOOK, OTHER = HookId(None, "one.sh"), HookId("alpha", "hooks/two.sh")
CRD = "things.x.io"


class Server:
    """One server, and a client that trusts it."""

    def __init__(self, session: aiohttp.ClientSession, authority: Authority) -> None:
        self.session = session
        self.authority = authority
        self.routes: dict[str, Route] = {}
        self.port = 0
        self.tls = trusting(authority)

    def find(self, path: str) -> Route | None:
        return self.routes.get(path)

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        url = f"https://127.0.0.1:{self.port}{path}"
        async with self.session.post(url, data=body, ssl=self.tls) as response:
            return response.status, await response.read()

    async def ask(self, path: str, body: bytes) -> JsonObject:
        status, data = await self.post(path, body)
        assert status == 200, data
        review = jsondoc.loads(data)
        assert isinstance(review, dict)
        response = review["response"]
        assert isinstance(response, dict)
        return response


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.issue([], validity_s=60).authority.decode())


@contextlib.asynccontextmanager
async def serving(*, at_once: int = 4, largest: int = 2**20, client_ca: tuple[Path, ...] = ()) -> AsyncIterator[Server]:
    authority = Authority()
    async with aiohttp.ClientSession() as session:
        made = Server(session, authority)
        server = ReviewServer(made.find, at_once=at_once, limits=limits(largest))
        context = make_context(authority.issue(["127.0.0.1"], validity_s=60), client_ca)
        made.port = await server.start(address="127.0.0.1", port=0, context=context)
        try:
            yield made
        finally:
            await server.stop()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as made:
        yield made


@pytest.fixture
def reviewer() -> ScriptedReviewer:
    return ScriptedReviewer()


def question(uid: str = "u") -> bytes:
    request: JsonObject = {"uid": uid, "operation": "CREATE"}
    return jsondoc.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


def route(reviewer: ScriptedReviewer, *, mutating: bool = False) -> AdmissionRoute:
    kind: AdmissionKind = "kubernetesMutating" if mutating else "kubernetesValidating"
    return AdmissionRoute(HOOK, admission("a", kind=kind), reviewer)


@dataclasses.dataclass(frozen=True)
class Hasty:
    """A route whose API server does not wait for seconds, as a test."""

    route: AdmissionRoute
    timeout_s: float = 0.1

    def read(self, body: bytes) -> AdmissionReview:
        return self.route.read(body)


@pytest.mark.parametrize(("timeout_s", "here_s"), [(1, 0.9), (10, 9.5), (30, 29.5)])
def test_the_deadline_of_a_hook_is_before_that_of_the_api_server(timeout_s: int, here_s: float) -> None:
    assert AdmissionRoute(HOOK, admission("a", timeout_s=timeout_s), ScriptedReviewer()).timeout_s == here_s


# --- admission ---


async def test_the_hook_is_asked_and_its_answer_arrives(server: Server, reviewer: ScriptedReviewer) -> None:
    server.routes = {"/a": route(reviewer)}
    reviewer.answers = {"a": AdmissionAnswer(allowed=False, message="no", warnings=("w",))}
    assert await server.ask("/a", question()) == {
        "uid": "u",
        "allowed": False,
        "status": {"code": 403, "message": "no"},
        "warnings": ["w"],
    }
    assert reviewer.requests == [(HOOK, "a", {"uid": "u", "operation": "CREATE"})]


@pytest.mark.parametrize("mutating", [True, False], ids=["mutating", "validating"])
async def test_a_patch_is_for_mutating_hooks(server: Server, reviewer: ScriptedReviewer, mutating: bool) -> None:
    server.routes = {"/a": route(reviewer, mutating=mutating)}
    reviewer.answers = {"a": AdmissionAnswer(allowed=True, patch=b"[]")}
    answer = await server.ask("/a", question())
    assert answer["allowed"] is mutating
    if mutating:
        assert (answer["patchType"], answer["patch"]) == ("JSONPatch", "W10=")
    else:
        message = "Hook failed: global hook one.sh, binding a: patch: not possible in kubernetesValidating"
        assert answer["status"] == {"code": 403, "message": message}


async def test_a_hook_that_fails_denies(server: Server, reviewer: ScriptedReviewer) -> None:
    server.routes = {"/a": route(reviewer)}
    reviewer.answers = {"a": HookFailed("exit code 3")}
    answer = await server.ask("/a", question())
    assert answer == {
        "uid": "u",
        "allowed": False,
        "status": {"code": 403, "message": "Hook failed: exit code 3"},
    }


async def test_a_hook_that_is_late_denies_and_keeps_its_place_until_it_has_ended(reviewer: ScriptedReviewer) -> None:
    async with serving(at_once=1) as server:
        server.routes = {"/a": Hasty(route(reviewer)), "/b": AdmissionRoute(HOOK, admission("b"), reviewer)}
        reviewer.stuck = {"a"}
        answer = await server.ask("/a", question())
        assert answer["status"] == {"code": 403, "message": "Hook failed: no answer within 9.5 s"}
        waiting = asyncio.create_task(server.ask("/b", question()))
        status, text = await server.post("/a", question())
        assert (status, text) == (503, b"too many reviews at once\n")
        assert (reviewer.running, waiting.done()) == (1, False)
        reviewer.let_end.set()
        assert (await waiting)["allowed"] is True
        assert reviewer.most_running == 1


async def test_reviews_run_side_by_side_but_not_more_than_there_are_places(reviewer: ScriptedReviewer) -> None:
    async with serving(at_once=2) as server:
        server.routes = {"/a": route(reviewer)}
        reviewer.stuck = {"a"}
        asked = [asyncio.create_task(server.ask("/a", question(str(number)))) for number in range(5)]
        await reviewer.until_asked(2)
        reviewer.let_end.set()
        assert sorted(str(answer["uid"]) for answer in await asyncio.gather(*asked)) == list("01234")
        assert reviewer.most_running == 2


async def test_clients_that_send_headers_and_no_body_take_no_place(reviewer: ScriptedReviewer) -> None:
    headers = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n"
    async with serving(at_once=4) as server:
        server.routes = {"/a": Hasty(route(reviewer), timeout_s=60.0)}
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(64):
                _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=server.tls)
                stack.callback(writer.transport.abort)
                stack.callback(writer.close)
                writer.write(headers)
                await writer.drain()
            async with asyncio.timeout(30.0):
                assert (await server.ask("/a", question()))["allowed"] is True


async def test_who_is_gone_blocks_nobody(server: Server) -> None:
    server.routes = {"/a": DepartedRoute()}
    assert await server.ask("/a", question()) == {"uid": "u", "allowed": True}


async def test_a_bug_in_a_review_does_not_take_its_place_for_ever(reviewer: ScriptedReviewer) -> None:
    async with serving(at_once=1) as server:
        server.routes = {"/a": route(reviewer)}
        reviewer.answers = {"a": AdmissionAnswer(allowed=False, message="\ud800")}
        for _ in range(2):
            assert await server.post("/a", question()) == (500, b"the review could not be answered\n")


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        pytest.param("/b", question(), 404, "no hook serves /b", id="unknown path"),
        pytest.param("/a", b"{", 400, "AdmissionReview: not JSON", id="not JSON"),
        pytest.param(
            "/a",
            question().replace(b"/v1", b"/v1beta1"),
            400,
            "AdmissionReview: apiVersion must be admission.k8s.io/v1, no other is supported",
            id="v1beta1",
        ),
        pytest.param("/a", question("u" * 1000), 413, "", id="too large"),
    ],
)
async def test_refused(path: str, body: bytes, status: int, text: str) -> None:
    reviewer = ScriptedReviewer()
    async with serving(largest=1000) as server:
        server.routes = {"/a": route(reviewer)}
        found, data = await server.post(path, body)
    assert found == status
    assert text in data.decode()
    assert reviewer.requests == []


# --- conversion ---


def things(*versions: str, target: str = "v3") -> bytes:
    objects: list[JsonValue] = [
        {"apiVersion": f"x.io/{version}", "kind": "Thing", "metadata": {"name": f"n{at}"}, "spec": {}}
        for at, version in enumerate(versions)
    ]
    request: JsonObject = {"uid": "u", "desiredAPIVersion": f"x.io/{target}", "objects": objects}
    return jsondoc.dumps({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request})


@pytest.fixture
def converting(server: Server, reviewer: ScriptedReviewer) -> Server:
    steps = {
        **steps_of(HOOK, conversion(CRD, ("v1", "v2"))),
        **steps_of(OTHER, conversion(CRD, ("x.io/v2", "x.io/v3"))),
    }
    server.routes = {f"/{CRD}": ConversionRoute(CRD, steps, reviewer)}
    return server


async def test_objects_of_several_versions_meet_on_their_way(converting: Server, reviewer: ScriptedReviewer) -> None:
    answer = await converting.ask(f"/{CRD}", things("v2", "v1", "v3"))
    assert answer["result"] == {"status": "Success"}
    objects = answer["convertedObjects"]
    assert isinstance(objects, list)
    ways = [(jsondoc.lookup(item, "/metadata/name"), jsondoc.lookup(item, "/spec")) for item in objects]
    assert ways == [("n0", {"way": ">v3"}), ("n1", {"way": ">v2>v3"}), ("n2", {})]
    assert [(step.hook, step.from_version, step.to_version, step.desired, step.names) for step in reviewer.steps] == [
        (HOOK, "v1", "v2", "x.io/v2", ("n1",)),
        (OTHER, "x.io/v2", "x.io/v3", "x.io/v3", ("n0", "n1")),
    ]


@pytest.mark.parametrize(
    ("body", "conversion", "message"),
    [
        pytest.param(things("v1", target="v4"), None, f"{CRD}: no hook converts v1 to v4, not even", id="no way"),
        pytest.param(things("v1"), ConversionAnswer("spec is strange"), "spec is strange", id="the hook says no"),
        pytest.param(things("v1"), HookFailed("exit code 3"), "Hook failed: exit code 3", id="the hook fails"),
        pytest.param(
            things("v1"),
            ConversionAnswer(),
            "Hook failed: global hook one.sh, binding convert, v1 to v2: convertedObjects: 0 objects instead of 1",
            id="objects are lost",
        ),
    ],
)
async def test_a_conversion_fails_with_a_reason(
    converting: Server,
    reviewer: ScriptedReviewer,
    body: bytes,
    conversion: ConversionAnswer | HookFailed | None,
    message: str,
) -> None:
    reviewer.conversion = conversion
    answer = await converting.ask(f"/{CRD}", body)
    result = answer["result"]
    assert isinstance(result, dict)
    assert result["status"] == "Failed"
    assert str(result["message"]).startswith(message)
    assert "convertedObjects" not in answer


# --- TLS ---


def client_certificate() -> tuple[bytes, bytes]:
    """A certificate that signs itself, and its key, PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return certificate.public_bytes(pem), key.private_bytes(pem, form, serialization.NoEncryption())


async def test_with_a_client_authority_only_its_certificates_get_an_answer(tmp_path: Path) -> None:
    known, other = tmp_path / "known", tmp_path / "other"
    for directory in (known, other):
        directory.mkdir()
        for name, content in zip(("tls.crt", "tls.key"), client_certificate(), strict=True):
            (directory / name).write_bytes(content)
    async with serving(client_ca=(known / "tls.crt",)) as server:
        server.routes = {"/a": DepartedRoute()}
        with pytest.raises(aiohttp.ClientError):
            await server.post("/a", question())
        server.tls = trusting(server.authority)
        server.tls.load_cert_chain(other / "tls.crt", other / "tls.key")
        with pytest.raises(aiohttp.ClientError):
            await server.post("/a", question())
        server.tls = trusting(server.authority)
        server.tls.load_cert_chain(known / "tls.crt", known / "tls.key")
        assert (await server.ask("/a", question()))["allowed"] is True


@pytest.mark.parametrize("broken", ["cert", "key", "both of other pairs"])
def test_a_certificate_that_cannot_be_used_is_an_error(broken: str) -> None:
    authority = Authority()
    pair, other = (authority.issue(["h"], validity_s=60) for _ in range(2))
    chain = {"cert": b"x"}.get(broken, pair.chain)
    key = {"cert": pair.key, "key": b"x"}.get(broken, other.key)
    with pytest.raises(SettingsError, match="the server certificate and its key cannot be used together"):
        make_context(KeyPair(chain, key, b"", None), ())


async def test_a_port_that_is_taken_is_an_error(server: Server) -> None:
    second = ReviewServer(lambda _: None, at_once=1, limits=limits(1))
    context = make_context(server.authority.issue(["127.0.0.1"], validity_s=60), ())
    with pytest.raises(SettingsError, match=f"webhooks: cannot listen on 127.0.0.1:{server.port}"):
        await second.start(address="127.0.0.1", port=server.port, context=context)
