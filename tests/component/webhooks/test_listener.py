"""Certificates: how long they are used, and how others take their place."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509

from addon_operator.errors import SettingsError
from addon_operator.settings import WebhookServer
from addon_operator.webhooks.certificates import Authority, KeyPair
from addon_operator.webhooks.listener import TlsListener

VALIDITY = datetime.timedelta(days=90)
NOW = datetime.datetime.now(datetime.UTC)
PLAIN = WebhookServer(port=0, address="127.0.0.1", service="svc")


@contextlib.asynccontextmanager
async def listening(endpoint: WebhookServer = PLAIN) -> AsyncIterator[TlsListener]:
    authority = Authority()
    listener = TlsListener(
        endpoint,
        names=["127.0.0.1", "svc.ns.svc"],
        validity_s=VALIDITY.total_seconds(),
        authority=lambda: authority,
        largest=1,
        at_once=1,
    )
    await listener.start(lambda _path: None)
    try:
        yield listener
    finally:
        await listener.stop()


async def shown(listener: TlsListener, name: str = "127.0.0.1") -> x509.Certificate:
    """Connects as the API server would, and answers with the certificate."""
    context = ssl.create_default_context(cadata=listener.authority.decode())
    _, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=context, server_hostname=name)
    data = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return x509.load_der_x509_certificate(data)


async def test_the_certificate_is_good_for_every_name() -> None:
    async with listening() as listener:
        first = await shown(listener)
        assert await shown(listener, "svc.ns.svc") == first
        with pytest.raises(ssl.SSLCertVerificationError):
            await shown(listener, "other.ns.svc")


async def test_it_is_renewed_after_two_thirds_of_its_time_and_the_old_authority_is_enough() -> None:
    async with listening() as listener:
        first, authority = await shown(listener), listener.authority
        listener.renew(NOW + VALIDITY * 0.66)
        assert await shown(listener) == first
        listener.renew(NOW + VALIDITY * 0.67)
        assert (await shown(listener)).serial_number != first.serial_number
        assert listener.authority == authority


async def test_connections_that_are_open_stay_when_it_is_renewed() -> None:
    async with listening() as listener:
        context = ssl.create_default_context(cadata=listener.authority.decode())
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=context)
        listener.renew(NOW + VALIDITY)
        writer.write(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 404")
        writer.transport.abort()


async def test_it_is_looked_at_in_time() -> None:
    async with listening() as listener:
        now = datetime.datetime.now(datetime.UTC)
        assert listener.renewal_due_in_s(now) == 3600
        assert 0 < listener.renewal_due_in_s(now + VALIDITY * 2 / 3 - datetime.timedelta(minutes=5)) <= 300
        assert listener.renewal_due_in_s(now + VALIDITY) == 0.1


def given(directory: Path, pair: KeyPair) -> WebhookServer:
    files = {"tls.crt": pair.chain, "tls.key": pair.key, "ca.crt": pair.authority}
    for name, content in files.items():
        (directory / name).write_bytes(content)
    cert, key, ca = (directory / name for name in files)
    return dataclasses.replace(PLAIN, cert=cert, key=key, ca=ca)


async def test_a_given_certificate_is_used_and_followed(tmp_path: Path) -> None:
    pairs = [Authority().issue(["127.0.0.1"], validity_s=60) for _ in range(2)]
    async with listening(given(tmp_path, pairs[0])) as listener:
        first = await shown(listener)
        assert listener.authority == pairs[0].authority
        assert listener.renewal_due_in_s(NOW) == 60
        given(tmp_path, pairs[1])
        listener.renew(NOW)
        assert listener.authority == pairs[1].authority
        assert await shown(listener) != first


@pytest.mark.parametrize("file", ["tls.crt", "tls.key"])
@pytest.mark.parametrize("of_another", [True, False], ids=["of another pair", "cut off"])
async def test_a_given_certificate_that_breaks_changes_nothing(tmp_path: Path, file: str, of_another: bool) -> None:
    pair, other = (Authority().issue(["127.0.0.1"], validity_s=60) for _ in range(2))
    async with listening(given(tmp_path, pair)) as listener:
        first = await shown(listener)
        content = other.chain if file == "tls.crt" else other.key
        (tmp_path / file).write_bytes(content if of_another else content[:100])
        listener.renew(NOW)
        assert await shown(listener) == first


async def test_a_given_certificate_is_checked_before_it_is_needed(tmp_path: Path) -> None:
    endpoint = given(tmp_path, Authority().issue(["127.0.0.1"], validity_s=60))
    (tmp_path / "tls.key").unlink()
    listener = TlsListener(endpoint, names=[], validity_s=1, authority=Authority, largest=1, at_once=1)
    with pytest.raises(SettingsError, match=f"webhooks: {tmp_path}/tls.key: No such file"):
        listener.check()
