from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import aiohttp
import pytest

from addon_operator.errors import SettingsError
from addon_operator.metrics.operations import Record
from addon_operator.metrics.operator import Metrics
from addon_operator.server.public import PublicServer
from addon_operator.server.status import OperatorStatus, Startup


@dataclasses.dataclass
class Operator:
    status: OperatorStatus
    port: int = 0

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"


@pytest.fixture
async def operator() -> AsyncIterator[Operator]:
    operator = Operator(OperatorStatus(Startup.NOT_STARTED))
    server = PublicServer(
        status=lambda: operator.status,
        metrics=lambda: iter([b"addon_operator_", b"live_ticks 3\n"]),
        hook_metrics=lambda: iter([b"hook_made 1\n"]),
    )
    operator.port = await server.start(address="127.0.0.1", port=0)
    yield operator
    await server.stop()


async def _get(session: aiohttp.ClientSession, url: str) -> tuple[int, str, str]:
    async with session.get(url) as response:
        return response.status, response.headers["Content-Type"], await response.text()


TEXT = "text/plain; charset=utf-8"
METRICS = "text/plain; version=0.0.4; charset=utf-8"


async def test_readyz_follows_the_first_converge(operator: Operator, session: aiohttp.ClientSession) -> None:
    assert await _get(session, operator.url("/readyz")) == (500, TEXT, "Startup converge in progress")
    operator.status = OperatorStatus(Startup.DONE)
    assert await _get(session, operator.url("/readyz")) == (200, TEXT, "Startup converge done.")
    operator.status = OperatorStatus(Startup.DONE, api_server_away_since=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    away = "The API server has not answered since 2026-01-02T03:04:05+00:00\n"
    assert await _get(session, operator.url("/readyz")) == (500, TEXT, away)
    operator.status = OperatorStatus(Startup.DONE, stopping=True)
    assert await _get(session, operator.url("/readyz")) == (500, TEXT, "Stopping")


async def test_healthz_answers_as_long_as_the_process_works(operator: Operator, session: aiohttp.ClientSession) -> None:
    assert await _get(session, operator.url("/healthz")) == (200, TEXT, "ok\n")
    operator.status = dataclasses.replace(operator.status, stopping=True)
    assert await _get(session, operator.url("/healthz")) == (200, TEXT, "ok\n")


async def test_status_converge(operator: Operator, session: aiohttp.ClientSession) -> None:
    operator.status = OperatorStatus(Startup.IN_PROGRESS, tasks=4)
    assert await _get(session, operator.url("/status/converge")) == (200, TEXT, operator.status.text())
    async with session.get(operator.url("/status/converge?output=json")) as response:
        assert await response.json() == operator.status.document()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param("/metrics", "addon_operator_live_ticks 3\n", id="operator"),
        pytest.param("/metrics/hooks", "hook_made 1\n", id="hooks"),
    ],
)
async def test_metrics(operator: Operator, session: aiohttp.ClientSession, path: str, body: str) -> None:
    assert await _get(session, operator.url(path)) == (200, METRICS, body)


async def test_discovery_and_index_name_every_page(operator: Operator, session: aiohttp.ClientSession) -> None:
    _, _, listed = await _get(session, operator.url("/discovery"))
    _, kind, index = await _get(session, operator.url("/"))
    paths = [line.removeprefix("GET ") for line in listed.splitlines()]
    assert set(paths) == {"/", "/healthz", "/readyz", "/status/converge", "/metrics", "/metrics/hooks", "/discovery"}
    assert kind == "text/html; charset=utf-8"
    assert [path for path in paths[1:] if f'href="{path}"' not in index] == []
    for path in paths:
        assert (await _get(session, operator.url(path)))[0] != 404, path


async def test_a_port_that_is_taken_is_named(operator: Operator) -> None:
    second = PublicServer(status=lambda: operator.status, metrics=lambda: iter(()), hook_metrics=lambda: iter(()))
    with pytest.raises(SettingsError, match=f"127.0.0.1:{operator.port}.*--prometheus-listen-port"):
        await second.start(address="127.0.0.1", port=operator.port)
    await second.stop()


async def test_after_stop_nobody_listens_and_the_port_is_free(session: aiohttp.ClientSession) -> None:
    status = OperatorStatus(Startup.DONE)
    server = PublicServer(status=lambda: status, metrics=lambda: iter(()), hook_metrics=lambda: iter(()))
    address = "127.61.7.3"  # where no client of anybody else is given the port meanwhile
    port = await server.start(address=address, port=0)
    assert (await _get(session, f"http://{address}:{port}/readyz"))[0] == 200
    await server.stop()
    with pytest.raises(aiohttp.ClientConnectorError):
        await _get(session, f"http://{address}:{port}/readyz")
    assert await server.start(address=address, port=port) == port
    await server.stop()


@pytest.mark.parametrize("path", ["/metrics", "/metrics/hooks"])
async def test_probes_are_answered_while_hundreds_of_thousands_of_series_are_written(
    session: aiohttp.ClientSession, path: str
) -> None:
    metrics, status = Metrics(), OperatorStatus(Startup.DONE)
    for at in range(10):
        written = tuple(Record(n, f"made_{at}", "gauge", n, (("n", str(n)),)) for n in range(10_000))
        metrics.hooks.commit(metrics.hooks.propose(written, module=None, hook=f"hook-{at}"))
    server = PublicServer(status=lambda: status, metrics=metrics.blocks, hook_metrics=metrics.hooks.blocks)
    port = await server.start(address="127.0.0.1", port=0)
    try:
        scrape = asyncio.create_task(_get(session, f"http://127.0.0.1:{port}{path}"))
        probes = 0
        while not scrape.done():
            assert (await _get(session, f"http://127.0.0.1:{port}/healthz"))[0] == 200
            probes += 1
        assert (await scrape)[2].count("\nmade_") == 100_000
        # Two of them can be before and behind it.
        assert probes > 5
    finally:
        await server.stop()
