from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from addon_operator.errors import SettingsError
from addon_operator.server.debug import DebugServer
from addon_operator.server.pages import ROUTES
from tests.fakes.inspector import StillInspector


@pytest.fixture
def inspector() -> StillInspector:
    return StillInspector()


@pytest.fixture
async def client(inspector: StillInspector, socket_path: Path) -> AsyncIterator[aiohttp.ClientSession]:
    server = DebugServer(socket_path, inspector)
    await server.start()
    async with aiohttp.ClientSession("http://localhost", connector=aiohttp.UnixConnector(str(socket_path))) as session:
        yield session
    await server.stop()


def _leave_stale_socket(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX) as crashed:
        crashed.bind(str(path))
        crashed.listen()


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


async def test_only_the_owner_can_open_the_socket(inspector: StillInspector, socket_path: Path) -> None:
    old = os.umask(0)
    try:
        server = DebugServer(socket_path, inspector)
        await server.start()
        assert (_mode(socket_path), _mode(socket_path.parent)) == (0o600, 0o700)
        await server.stop()
    finally:
        os.umask(old)
    assert not socket_path.exists()


async def test_an_operator_that_is_not_complete_says_so(inspector: StillInspector, socket_path: Path) -> None:
    server = DebugServer(socket_path)
    await server.start()
    connector = aiohttp.UnixConnector(str(socket_path))
    async with aiohttp.ClientSession("http://localhost", connector=connector) as session:
        for answer in (
            await session.get("/module/list.json"),
            await session.get("/module/alpha/values.json"),
            await session.post("/config/set", data={"name": "log.level", "value": "debug"}),
        ):
            assert (answer.status, await answer.text()) == (
                503,
                "the operator is starting: its log says what it waits for\n",
            )
        server.inspector = inspector
        assert (await session.get("/module/list.json")).status == 200
    await server.stop()


async def test_a_socket_left_by_a_crash_is_replaced(inspector: StillInspector, socket_path: Path) -> None:
    _leave_stale_socket(socket_path)
    server = DebugServer(socket_path, inspector)
    await server.start()
    connector = aiohttp.UnixConnector(str(socket_path))
    async with aiohttp.ClientSession("http://localhost", connector=connector) as session:
        assert (await session.get("/discovery")).status == 200
    await server.stop()


async def test_a_live_socket_is_left_alone(inspector: StillInspector, socket_path: Path) -> None:
    first, second = DebugServer(socket_path, inspector), DebugServer(socket_path, inspector)
    await first.start()
    inode = socket_path.stat().st_ino
    with pytest.raises(SettingsError, match=f"another operator listens on {socket_path}"):
        await second.start()
    await second.stop()
    assert socket_path.stat().st_ino == inode
    await first.stop()


async def test_a_file_that_is_no_socket_is_left_alone(inspector: StillInspector, socket_path: Path) -> None:
    socket_path.parent.mkdir()
    socket_path.write_text("precious")
    with pytest.raises(SettingsError, match=f"{socket_path} exists and is not a socket"):
        await DebugServer(socket_path, inspector).start()
    assert socket_path.read_text() == "precious"


@pytest.mark.parametrize(
    "name", [pytest.param("x" * 120, id="too-long"), pytest.param("file/below", id="no-directory")]
)
async def test_a_path_that_cannot_be_is_named(inspector: StillInspector, socket_path: Path, name: str) -> None:
    socket_path.parent.mkdir()
    (socket_path.parent / "file").touch()
    path = socket_path.parent / name
    with pytest.raises(SettingsError, match=f"{path}.*DEBUG_UNIX_SOCKET"):
        await DebugServer(path, inspector).start()


async def test_stop_leaves_a_successors_socket(inspector: StillInspector, socket_path: Path) -> None:
    server = DebugServer(socket_path, inspector)
    await server.start()
    # Made beside it and moved over it, so that the two sockets cannot share an inode number.
    successor = socket_path.with_name("next")
    _leave_stale_socket(successor)
    successor.rename(socket_path)
    await server.stop()
    assert socket_path.exists()


@pytest.mark.parametrize(
    ("form", "content_type"),
    [("json", "application/json"), ("yaml", "application/yaml"), ("text", "text/plain")],
)
async def test_every_route_answers_in_its_formats(
    client: aiohttp.ClientSession, inspector: StillInspector, form: str, content_type: str
) -> None:
    for route in ROUTES:
        async with client.get(route.path.format(module="alpha") + f".{form}") as response:
            served = form in route.formats
            assert response.status == (200 if served else 404), route.path
            assert response.content_type == (content_type if served else "text/plain")


async def test_a_format_that_is_not_served_names_those_that_are(client: aiohttp.ClientSession) -> None:
    response = await client.get("/global/values.text")
    assert (response.status, await response.text()) == (404, "/global/values.text: the formats served are yaml, json\n")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param("", [], id="unsaid"),
        pytest.param("?showEmpty=false", [], id="no"),
        pytest.param("?showEmpty=", [], id="empty"),
        pytest.param("?showEmpty=true", ["aside"], id="yes"),
        pytest.param("?showEmpty=True", ["aside"], id="capital"),
    ],
)
async def test_show_empty(client: aiohttp.ClientSession, query: str, expected: list[str]) -> None:
    document = await (await client.get(f"/queue/list.json{query}")).json()
    assert [queue["name"] for queue in document["empty"]] == expected


async def test_global_and_origin_reach_the_page(client: aiohttp.ClientSession) -> None:
    text = await (await client.get("/module/alpha/values.yaml?global=true&origin=true")).text()
    assert text.startswith("global:\n  clusterName: main  # ConfigMap, key global\n")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        pytest.param("beta", ": did you mean beta-two?", id="similar"),
        pytest.param("zzz", ": `module list` shows all", id="unlike-any"),
        pytest.param("a%2Fb", ": `module list` shows all", id="with-slash"),
    ],
)
@pytest.mark.parametrize("page", ["values", "config", "patches", "snapshots", "explain"])
async def test_an_unknown_module_is_an_error(client: aiohttp.ClientSession, page: str, name: str, hint: str) -> None:
    response = await client.get(f"/module/{name}/{page}.json")
    shown = name.replace("%2F", "/")
    assert (response.status, await response.text()) == (404, f"module not found: {shown}{hint}\n")


@pytest.mark.parametrize(("method", "path"), [("GET", "/nothing"), ("GET", "/"), ("POST", "/queue/list.json")])
async def test_an_unknown_page_points_to_the_list(client: aiohttp.ClientSession, method: str, path: str) -> None:
    response = await client.request(method, path)
    assert (response.status, await response.text()) == (
        404,
        f"no such page: {method} {path}; GET /discovery lists all\n",
    )


async def test_discovery_lists_what_is_served(client: aiohttp.ClientSession) -> None:
    lines = (await (await client.get("/discovery")).text()).splitlines()
    assert "POST /config/set" in lines
    for line in lines:
        method, path = line.split(" ")
        if method == "GET":
            assert (await client.get(path.format(module="alpha"))).status == 200, line


@pytest.mark.parametrize(
    ("duration", "seconds", "answer"),
    [
        pytest.param("", None, "log.level = debug\n", id="for-ever"),
        pytest.param("1m30s", 90.0, "log.level = debug for 1m30s\n", id="for-a-while"),
    ],
)
async def test_set_parameter(
    client: aiohttp.ClientSession, inspector: StillInspector, duration: str, seconds: float | None, answer: str
) -> None:
    form = {"name": "log.level", "value": "debug", "duration": duration}
    response = await client.post("/config/set", data=form)
    assert (response.status, await response.text()) == (200, answer)
    assert inspector.changes == [("log.level", "debug", seconds)]


@pytest.mark.parametrize(
    ("form", "message"),
    [
        pytest.param({"name": "log.colour", "value": "x"}, "no such setting: log.colour", id="unknown-name"),
        pytest.param({"name": "log.level", "value": "debug", "duration": "soon"}, "'soon'", id="bad-duration"),
        pytest.param({}, "no such setting", id="nothing-given"),
    ],
)
async def test_a_bad_change_is_refused(
    client: aiohttp.ClientSession, inspector: StillInspector, form: dict[str, str], message: str
) -> None:
    response = await client.post("/config/set", data=form)
    assert response.status == 400
    assert message in await response.text()
    assert inspector.changes == []
