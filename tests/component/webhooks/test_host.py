"""The host against a scripted API server: what goes wrong there."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import structlog
from structlog.typing import EventDict

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import KubeError, SettingsError
from addon_operator.hooks.call import HookId
from addon_operator.hooks.config.model import AdmissionRule
from addon_operator.kube.client import KubeClient
from addon_operator.settings import WebhookServer
from addon_operator.webhooks import configurations
from addon_operator.webhooks.configurations import OPERATOR
from addon_operator.webhooks.endpoint import Address, WebhookSettings
from addon_operator.webhooks.guard import ConfigurationGuard
from addon_operator.webhooks.host import WebhookHost
from addon_operator.webhooks.listener import tls_listeners
from addon_operator.webhooks.registration import Version
from tests.component.kube.api import Answer, Api, Asked, Handler, gives, refuses, serving, streams
from tests.connection import connected
from tests.fakes import clock
from tests.fakes.api_server import FakeApiServer
from tests.fakes.background import running
from tests.fakes.reviewer import ScriptedReviewer, admission

HOOK = HookId(None, "one.sh")
LOOPBACK = WebhookServer(port=0, address="127.0.0.1", service="svc")
NOTHING: JsonObject = {"items": []}
ADDRESS = Address(namespace="ns", service_name="svc", host=None, port=9680, authority=b"")


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving() as running:
        yield running


@contextlib.asynccontextmanager
async def hosting(
    api: Api, directory: Path, *, admissions: WebhookServer = LOOPBACK, validity_s: float = 60
) -> AsyncIterator[WebhookHost]:
    settings = WebhookSettings(
        namespace="ns",
        config_map="cm",
        validating_name="addon-operator",
        mutating_name="addon-operator",
        host="127.0.0.1",
        admission=admissions,
        conversion=LOOPBACK,
        validity_s=validity_s,
        forbidden_pause_s=0,
    )
    async with connected(api.kubeconfig(directory)) as client:
        listeners = dict(zip(("admission", "conversion"), tls_listeners(settings), strict=True))
        host = WebhookHost(client, **listeners, reviewer=ScriptedReviewer(), settings=settings)
        try:
            yield host
        finally:
            await host.stop()


@pytest.fixture
async def host(api: Api, tmp_path: Path) -> AsyncIterator[WebhookHost]:
    async with hosting(api, tmp_path) as made:
        yield made


async def test_who_may_not_look_has_left_nothing(host: WebhookHost, api: Api) -> None:
    api.steps = [refuses(403, "Forbidden")]
    await host.clear_stale()
    assert len(api.asked) == 1


async def test_only_what_is_ours_is_asked_for(host: WebhookHost, api: Api) -> None:
    api.steps = [gives(NOTHING) for _ in range(3)]
    await host.clear_stale(conversions=True)
    assert {asked.query["labelSelector"] for asked in api.asked} == {
        "addon-operator.io/operator=ns.cm",
        "addon-operator.io/converter=ns.cm",
    }


async def test_what_was_refused_is_tried_again(host: WebhookHost, api: Api) -> None:
    api.steps = [refuses(404, "NotFound"), refuses(403, "Forbidden", message="cannot create resource")]
    with pytest.raises(KubeError, match="cannot create resource"):
        await host.serve(HOOK, [admission("a")], [])
    api.steps = [refuses(404, "NotFound"), gives({})]
    await host.serve(HOOK, [admission("a")], [])
    assert [asked.method for asked in api.asked] == ["GET", "POST", "GET", "POST"]


async def test_a_conflict_is_resolved_by_reading_again(host: WebhookHost, api: Api) -> None:
    ours: JsonObject = {"metadata": {"labels": {"addon-operator.io/operator": "ns.cm"}, "resourceVersion": "7"}}
    api.steps = [refuses(404, "NotFound"), refuses(409, "AlreadyExists"), gives(ours), gives({})]
    await host.serve(HOOK, [admission("a")], [])
    assert [asked.method for asked in api.asked] == ["GET", "POST", "GET", "PUT"]
    assert b'"resourceVersion":"7"' in api.asked[-1].body


async def test_what_others_made_by_hand_is_not_overwritten(host: WebhookHost, api: Api) -> None:
    api.steps = [gives({"metadata": {"name": "addon-operator-hooks"}})]
    message = "ValidatingWebhookConfiguration addon-operator-hooks was not written by an operator"
    with pytest.raises(KubeError, match=message):
        await host.serve(HOOK, [admission("a")], [])
    assert len(api.asked) == 1


async def test_certificates_are_renewed_by_themselves(api: Api, tmp_path: Path) -> None:
    api.steps = [refuses(404, "NotFound"), gives({})]
    async with hosting(api, tmp_path, validity_s=0.5) as host, running(host):
        await host.serve(HOOK, [admission("a")], [])
        url, _ = registered(api)
        first = await shown(url)
        while await shown(url) == first:
            pass


async def shown(url: str) -> bytes:
    """Answers the certificate, which is not verified: the time of these is too short."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host, _, port = url.removeprefix("https://").partition("/")[0].partition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    data: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return data


def registered(api: Api) -> tuple[str, ssl.SSLContext]:
    """Reads the address in what was written last, and what trusts it."""
    *_, written = (asked.body for asked in api.asked if asked.body)
    client = jsondoc.lookup(jsondoc.loads(written), "/webhooks/0/clientConfig")
    assert isinstance(client, dict)
    authority = base64.b64decode(str(client["caBundle"])).decode()
    return str(client["url"]), ssl.create_default_context(cadata=authority)


async def test_who_has_not_heard_that_a_hook_is_gone_is_let_through(host: WebhookHost, api: Api) -> None:
    api.steps = [refuses(404, "NotFound"), gives({})]
    await host.serve(HOOK, [admission("a")], [])
    url, trusting = registered(api)
    api.steps = [refuses(404, "NotFound")]
    await host.withdraw([HOOK])
    review: JsonObject = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u"}}
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=review, ssl=trusting) as response,
    ):
        assert (await response.json())["response"] == {"uid": "u", "allowed": True}


async def test_an_address_that_cannot_be_had_changes_nothing(api: Api, tmp_path: Path) -> None:
    endpoint = WebhookServer(port=0, address="192.0.2.1", service="svc")
    async with hosting(api, tmp_path, admissions=endpoint) as host:
        with pytest.raises(SettingsError, match=r"webhooks: cannot listen on 192\.0\.2\.1:0"):
            await host.serve(HOOK, [admission("a")], [])
        await host.serve(HOOK, [], [])
    assert api.asked == []


# --- what others do to a configuration ---


def configuration(generation: int, *, uid: str = "u1", labels: JsonObject | None = None) -> JsonObject:
    """What is in the cluster, of the operator under test unless there are other labels."""
    return {
        "metadata": {
            "name": "addon-operator-hooks",
            "uid": uid,
            "generation": generation,
            "resourceVersion": str(generation),
            "labels": {OPERATOR: "ns.cm"} if labels is None else labels,
        }
    }


def line(kind: str, item: JsonObject) -> bytes:
    return jsondoc.dumps({"type": kind, "object": item}) + b"\n"


END = line("BOOKMARK", {"metadata": {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}})


def watched(*later: bytes) -> Handler:
    """A watch that shows what was written, then what others do."""
    return streams(line("ADDED", configuration(1)), END, *later, stay=True)


def warned(logs: list[EventDict]) -> list[tuple[str, str]]:
    return [
        (entry["event"], entry.get("object") or entry["resource"])
        for entry in logs
        if entry["log_level"] in {"warning", "error"}
    ]


@pytest.mark.parametrize(
    ("event", "found", "happened"),
    [
        pytest.param("DELETED", None, "removed", id="removed"),
        pytest.param("MODIFIED", configuration(2), "changed", id="changed"),
        pytest.param("DELETED", configuration(1, labels={}), "changed", id="our label removed"),
    ],
)
async def test_what_others_change_is_written_again_once(
    host: WebhookHost, api: Api, event: str, found: JsonObject | None, happened: str
) -> None:
    there, write = (refuses(404, "NotFound"), "POST") if found is None else (gives(found), "PUT")
    api.steps = [refuses(404, "NotFound"), gives(configuration(1)), watched(line(event, configuration(2)))]
    api.steps += [there, gives(configuration(3))]
    with structlog.testing.capture_logs() as logs:
        async with running(host):
            await host.serve(HOOK, [admission("a")], [])
            await api.until_asked(5)
            await host.serve(HOOK, [admission("a")], [])
    # Neither what was written nor that it was seen is a reason to ask.
    assert [asked.method for asked in api.asked] == ["GET", "POST", "GET", "GET", write]
    watch = api.asked[2]
    assert watch.path.endswith("/validatingwebhookconfigurations")
    assert watch.query["labelSelector"] == "addon-operator.io/operator=ns.cm"
    assert "PartialObjectMetadata" in watch.headers["Accept"]
    first, again = (jsondoc.loads(api.asked[number].body) for number in (1, 4))
    assert jsondoc.lookup(first, "/webhooks") == jsondoc.lookup(again, "/webhooks")
    assert jsondoc.lookup(again, "/metadata/labels/addon-operator.io~1operator") == "ns.cm"
    what = "ValidatingWebhookConfiguration addon-operator-hooks"
    assert warned(logs) == [(f"webhooks were {happened} by somebody else, and are registered again", what)]


async def test_what_is_removed_before_the_first_look_is_noticed(host: WebhookHost, api: Api) -> None:
    api.steps = [refuses(404, "NotFound"), gives(configuration(1)), streams(END, stay=True)]
    api.steps += [refuses(404, "NotFound"), gives(configuration(1, uid="u2"))]
    async with running(host):
        await host.serve(HOOK, [admission("a")], [])
        await api.until_asked(5)
    assert [asked.method for asked in api.asked] == ["GET", "POST", "GET", "GET", "POST"]


async def test_what_another_operator_has_taken_is_left_to_it(host: WebhookHost, api: Api) -> None:
    theirs = configuration(1, uid="u2", labels={OPERATOR: "other.cm"})
    api.steps = [refuses(404, "NotFound"), gives(configuration(1)), watched(line("DELETED", configuration(1)))]
    api.steps += [gives(theirs), gives(theirs)]
    with structlog.testing.capture_logs() as logs:
        async with running(host):
            await host.serve(HOOK, [admission("a")], [])
            await api.until_asked(5)
    assert [asked.method for asked in api.asked] == ["GET", "POST", "GET", "GET", "GET"]
    assert "belongs to operator other.cm" in str(logs[-1]["error"])


async def test_what_cannot_be_written_again_is_tried_again(host: WebhookHost, api: Api) -> None:
    api.steps = [refuses(404, "NotFound"), gives(configuration(1)), watched(line("DELETED", configuration(1)))]
    api.steps += [refuses(404, "NotFound"), refuses(403, "Forbidden")]
    api.steps += [refuses(404, "NotFound"), gives(configuration(1, uid="u2"))]
    async with running(host):
        await host.serve(HOOK, [admission("a")], [])
        await api.until_asked(7)
    assert [asked.method for asked in api.asked][3:] == ["GET", "POST"] * 2


@pytest.mark.parametrize("takes_s", [0, 0.1], ids=["at once", "with events on their way"])
async def test_only_what_is_registered_is_watched(host: WebhookHost, api: Api, takes_s: float) -> None:
    async def goes(asked: Asked) -> Answer:
        await asyncio.sleep(takes_s)
        return await refuses(404, "NotFound")(asked)

    made = [refuses(404, "NotFound"), gives(configuration(1)), watched()]
    async with running(host):
        for times in (1, 2):
            api.steps = [*made]
            await host.serve(HOOK, [admission("a")], [])
            await api.until_asked(4 * times - 1)
            api.steps = [goes]
            await host.withdraw([HOOK])
    assert [asked.method for asked in api.asked] == ["GET", "POST", "GET", "GET"] * 2
    assert [number for number, asked in enumerate(api.asked) if "watch" in asked.query] == [2, 6]


async def test_who_may_not_watch_is_told_once_and_goes_on(host: WebhookHost, api: Api) -> None:
    forbidden = [refuses(403, "Forbidden") for _ in range(4)]
    api.steps = [refuses(404, "NotFound"), gives(configuration(1)), *forbidden]
    with structlog.testing.capture_logs() as logs:
        async with running(host):
            await host.serve(HOOK, [admission("a")], [])
            await api.until_asked(7)
            api.steps = [gives(configuration(1)), gives(configuration(2))]
            await host.serve(HOOK, [admission("a"), admission("b")], [])
    assert [asked.method for asked in api.asked][-2:] == ["GET", "PUT"]
    message = "no right to list and watch webhook configurations: what others do to them is not noticed"
    assert warned(logs) == [(message, "validatingwebhookconfigurations")]


class Contrary:
    """Whenever something is written, somebody writes something else at once."""

    def __init__(self) -> None:
        self.writes: list[float] = []
        self.api = FakeApiServer()

    async def write(self, _seen: Version | None) -> bool:
        self.writes.append(asyncio.get_running_loop().time())
        self.api.put(
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": "addon-operator-hooks", "labels": {OPERATOR: "ns.cm"}},
                "webhooks": [{"name": f"{len(self.writes)}.example.com"}],
            }
        )
        return True


def test_two_who_do_not_agree_write_less_and_less() -> None:
    async def fight() -> list[float]:
        contrary = Contrary()
        guard = ConfigurationGuard(
            KubeClient(contrary.api),
            "kubernetesValidating",
            name="addon-operator-hooks",
            identity="ns.cm",
            restore=contrary.write,
            forbidden_pause_s=60,
        )
        guard.enable(True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(100):
                await guard.run()
        return contrary.writes

    assert clock.run(fight()) == [0, 1, 3, 7, 15, 31, 61, 91]


# --- what the operator needs itself ---


@pytest.mark.parametrize(
    ("groups", "resources", "spared"),
    [
        pytest.param(("",), ("configmaps",), True, id="ConfigMaps"),
        pytest.param(("apps", ""), ("deployments", "secrets"), True, id="Secrets, among others"),
        pytest.param(("*",), ("*",), True, id="everything"),
        pytest.param(("*",), ("*/*",), True, id="everything and its subresources"),
        pytest.param(("",), ("pods",), False, id="Pods"),
        pytest.param(("example.com",), ("secrets",), False, id="others of that name"),
    ],
)
def test_what_the_operator_needs_is_not_for_hooks(
    groups: tuple[str, ...], resources: tuple[str, ...], *, spared: bool
) -> None:
    rule = AdmissionRule(groups, ("*",), resources, ("*",), "*")
    binding = dataclasses.replace(admission("a"), rules=(rule,), match_conditions=(("mine", "true"),))
    own = configurations.not_own("ns", "cm")
    mine: JsonObject = {"name": "mine", "expression": "true"}
    entry = configurations.webhook(binding, ADDRESS, not_own=own)
    assert entry["matchConditions"] == ([mine, own] if spared else [mine])


def test_as_many_conditions_as_there_may_be_are_left_as_they_are() -> None:
    binding = dataclasses.replace(
        admission("a"), match_conditions=tuple((f"c{number}", "true") for number in range(64))
    )
    entry = configurations.webhook(binding, ADDRESS, not_own=configurations.not_own("ns", "cm"))
    conditions = entry["matchConditions"]
    assert isinstance(conditions, list)
    assert len(conditions) == 64


async def test_the_conditions_name_the_operators_own(host: WebhookHost, api: Api) -> None:
    api.steps = [refuses(404, "NotFound"), gives(configuration(1))]
    await host.serve(HOOK, [admission("a")], [])
    written = jsondoc.lookup(jsondoc.loads(api.asked[-1].body), "/webhooks/0/matchConditions")
    assert written == [configurations.not_own("ns", "cm")]
