"""The debug commands against a real socket: each in a process of its own, as people run them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
from pathlib import Path

import pytest

from tests.fakes.inspector import StillInspector

MAIN = "from addon_operator.cli import main; main()"
HEAVY = {
    "aiohttp",
    "asyncio",
    "kubernetes",
    "yaml",
    "orjson",
    "structlog",
    "addon_operator.server",
    "addon_operator.settings",
}


async def _start(code: str, *arguments: str, socket_path: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        code,
        *arguments,
        env={**os.environ, "DEBUG_UNIX_SOCKET": str(socket_path)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def _run(*arguments: str, socket_path: Path, code: str = MAIN) -> tuple[int | None, str, str]:
    process = await _start(code, *arguments, socket_path=socket_path)
    stdout, stderr = await process.communicate()
    return process.returncode, stdout.decode(), stderr.decode()


@pytest.mark.parametrize(
    ("command", "beginning"),
    [
        ("queue list", "Queue 'main': length 2, status: 'sleep after fail for 5s'\n\n 1. ModuleRun:main"),
        ("queue list -o json", '{"active":[{"name":"main","tasksCount":2,'),
        ("queue list -o yaml", "active:\n- name: main\n"),
        ("queue main", "Queue 'main': length 2"),
        ("global list", "globalHooks:\n- hooks/discovery.sh\n"),
        ("global values -o json", '{"clusterName":"main","enabledModules":["alpha","beta-two"]}\n'),
        ("global config", "clusterName: main\n"),
        ("global patches -o json", '[{"Operations":[{"op":"add","path":"/global/discovered"'),
        ("global snapshots", "hooks/discovery.sh:\n"),
        ("module list", "enabledModules:\n- alpha\n- beta-two\nmodules:\n"),
        ("module list -o text", "NOTE: queue main is held up: ModuleRun:main:beta-two:"),
        ("module list -o json", '{"enabledModules":["alpha","beta-two"],"modules":['),
        ("module values alpha", "alpha:\n  replicas: 2\n"),
        ("module values -g alpha", "global:\n  clusterName: main\nalpha:\n"),
        ("module values alpha --origin", "alpha:\n  replicas: 2  # ConfigMap, key alpha\n"),
        ("module config alpha -g -o json", '{"global":{"clusterName":"main"},"alpha":{"replicas":2}}\n'),
        ("module patches alpha", '[{"Operations":[{"op":"remove","path":"/alpha/replicas"}]}]\n'),
        ("module snapshots alpha", "hooks/tick.sh:\n"),
        ("module resource-monitor -o text", "alpha:\n  addons/ConfigMap/alpha\n"),
        ("module explain gamma", "NOTE: queue main is held up: ModuleRun:main:beta-two:"),
        ("config list", "NAME       VALUE"),
        ("raw /global/list.json", '{"globalHooks":'),
        ("raw queue/list.json?showEmpty=true", '{"active":'),
    ],
)
async def test_commands_print_the_page(
    operator: StillInspector, socket_path: Path, command: str, beginning: str
) -> None:
    code, stdout, stderr = await _run(*command.split(), socket_path=socket_path)
    assert (code, stderr) == (0, "")
    assert stdout.startswith(beginning)
    assert stdout.endswith("\n")
    assert not stdout.endswith("\n\n")


async def test_show_empty(operator: StillInspector, socket_path: Path) -> None:
    for arguments, expected in (("queue list -o json", 0), ("queue list -e -o json", 1)):
        _, stdout, _ = await _run(*arguments.split(), socket_path=socket_path)
        assert len(json.loads(stdout)["empty"]) == expected


async def test_the_flag_wins_over_the_environment(operator: StillInspector, socket_path: Path) -> None:
    elsewhere = socket_path.with_name("elsewhere")
    code, stdout, _ = await _run("global", "list", "--debug-unix-socket", str(socket_path), socket_path=elsewhere)
    assert (code, stdout.splitlines()[0]) == (0, "globalHooks:")


@pytest.mark.parametrize(
    ("arguments", "change", "answer"),
    [
        (["log.level", "debug"], ("log.level", "debug", None), "log.level = debug\n"),
        (["log.level", "debug", "10m"], ("log.level", "debug", 600.0), "log.level = debug for 10m\n"),
    ],
    ids=["for-ever", "for-a-while"],
)
async def test_config_set(
    operator: StillInspector,
    socket_path: Path,
    arguments: list[str],
    change: tuple[str, str, float | None],
    answer: str,
) -> None:
    code, stdout, _ = await _run("config", "set", *arguments, socket_path=socket_path)
    assert (code, stdout) == (0, answer)
    assert operator.changes == [change]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("module values beta", "module not found: beta: did you mean beta-two?"),
        ("module explain ../x", "module not found: ../x"),
        ("config set log.colour red", "no such setting: log.colour"),
        ("raw /nothing", "no such page: GET /nothing; GET /discovery lists all"),
    ],
)
async def test_an_error_of_the_operator_goes_to_stderr_with_exit_code_1(
    operator: StillInspector, socket_path: Path, command: str, message: str
) -> None:
    code, stdout, stderr = await _run(*command.split(), socket_path=socket_path)
    assert (code, stdout) == (1, "")
    assert stderr.startswith(f"Error: {message}")


@pytest.mark.parametrize("stale", [False, True], ids=["no-socket", "left-by-a-crash"])
async def test_nobody_listens(socket_path: Path, stale: bool) -> None:
    if stale:
        with socket.socket(socket.AF_UNIX) as crashed:
            crashed.bind(str(socket_path))
    code, stdout, stderr = await _run("module", "list", socket_path=socket_path)
    assert (code, stdout) == (1, "")
    assert f"no operator listens on {socket_path}: is it running?" in stderr
    assert "DEBUG_UNIX_SOCKET" in stderr


@pytest.mark.parametrize("reply", [b"", b"SSH-2.0-other\r\n"], ids=["closes", "speaks-something-else"])
async def test_a_stranger_on_the_socket(socket_path: Path, reply: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(socket_path))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(reply)

        stranger = threading.Thread(target=answer)
        stranger.start()
        code, stdout, stderr = await _run("module", "list", socket_path=socket_path)
        stranger.join()
    assert (code, stdout) == (1, "")
    assert stderr.startswith(f"Error: {socket_path}: no response from an operator")


@pytest.mark.parametrize(
    "command",
    ["queue list -o table", "global values -o text", "module values", "queue list -w -t soon", "queue list -w -t 0"],
)
async def test_wrong_usage_is_exit_code_2(operator: StillInspector, socket_path: Path, command: str) -> None:
    code, stdout, stderr = await _run(*command.split(), socket_path=socket_path)
    assert (code, stdout) == (2, "")
    assert "Error: " in stderr


async def test_watch_shows_changes_until_interrupted(operator: StillInspector, socket_path: Path) -> None:
    process = await _start(MAIN, *["queue", "list", "-w", "-t", "10ms", "-o", "json"], socket_path=socket_path)
    assert process.stdout
    assert json.loads(await process.stdout.readline())["summary"]["totalTasks"] == 3
    operator.all_queues = operator.all_queues[:1]
    while json.loads(await process.stdout.readline())["summary"]["totalTasks"] != 1:
        pass
    process.send_signal(signal.SIGINT)
    _, stderr = await process.communicate()
    assert (process.returncode, stderr) == (0, b"")


async def test_watch_ends_with_the_operator(operator: StillInspector, socket_path: Path) -> None:
    process = await _start(MAIN, *["queue", "list", "-w", "-t", "10ms", "-o", "json"], socket_path=socket_path)
    assert process.stdout
    await process.stdout.readline()
    socket_path.unlink()
    _, stderr = await process.communicate()
    assert process.returncode == 1
    assert b"no operator listens on" in stderr


async def test_a_debug_command_loads_nothing_heavy(operator: StillInspector, socket_path: Path) -> None:
    show = (
        f"import atexit, sys; atexit.register(lambda: print(*sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr)); "
    )
    code, _, stderr = await _run("module", "list", socket_path=socket_path, code=show + MAIN)
    assert (code, stderr) == (0, "\n")
