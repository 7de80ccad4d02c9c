"""The host against a scripted API server: what goes wrong there."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from addon_operator import jsondoc
from addon_operator.errors import KubeError, SettingsError
from addon_operator.hooks.call import HookId
from addon_operator.jsondoc import JsonObject
from addon_operator.kube.client import KubeClient
from addon_operator.webhooks.endpoint import EndpointSettings, WebhookSettings
from addon_operator.webhooks.host import WebhookHost
from tests.component.kube.api import Api, gives, refuses, serving
from tests.fakes.reviewer import ScriptedReviewer, admission

HOOK = HookId(None, "one.sh")
LOOPBACK = EndpointSettings(listen_port=0, listen_address="127.0.0.1")
NOTHING: JsonObject = {"items": []}


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving() as running:
        yield running


@contextlib.asynccontextmanager
async def hosting(
    api: Api, directory: Path, *, admissions: EndpointSettings = LOOPBACK, validity_s: float = 60
) -> AsyncIterator[WebhookHost]:
    client = await KubeClient.connect(
        config_file=api.kubeconfig(directory), context=None, server=None, qps=0, burst=1, on_request=None
    )
    settings = WebhookSettings(
        namespace="ns",
        config_map="cm",
        host="127.0.0.1",
        admission=admissions,
        conversion=LOOPBACK,
        validity_s=validity_s,
    )
    host = WebhookHost(client, reviewer=ScriptedReviewer(), settings=settings)
    try:
        yield host
    finally:
        await host.stop()
        await client.close()


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
    api.steps = [refuses(404, "NotFound"), refuses(403, "Forbidden", message="no create on webhooks")]
    with pytest.raises(KubeError, match="no create on webhooks"):
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
    async with hosting(api, tmp_path, validity_s=0.5) as host:
        task = asyncio.create_task(host.run(), name="host under test")
        await host.serve(HOOK, [admission("a")], [])
        url, _ = registered(api)
        first = await shown(url)
        while await shown(url) == first:
            pass
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


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
    """Reads the address in the last request, and what trusts it."""
    client = jsondoc.lookup(jsondoc.loads(api.asked[-1].body), "/webhooks/0/clientConfig")
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


async def test_a_key_without_certificate_is_told_at_the_start(api: Api, tmp_path: Path) -> None:
    endpoint = EndpointSettings(listen_port=0, server_key=tmp_path / "key")
    async with hosting(api, tmp_path, admissions=endpoint) as host:
        with pytest.raises(SettingsError, match="VALIDATING_WEBHOOK_SERVER_CERT"):
            await host.start()


async def test_an_address_that_cannot_be_had_changes_nothing(api: Api, tmp_path: Path) -> None:
    endpoint = EndpointSettings(listen_port=0, listen_address="192.0.2.1")
    async with hosting(api, tmp_path, admissions=endpoint) as host:
        with pytest.raises(SettingsError, match=r"webhooks: cannot listen on 192\.0\.2\.1:0"):
            await host.serve(HOOK, [admission("a")], [])
        await host.serve(HOOK, [], [])
    assert api.asked == []
