"""The operator as a child process, seen through what it shows to everybody: HTTP, /proc, exit code."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import re
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TypeVar

import aiohttp

_Condition = Callable[[], Awaitable[bool]]
_Found = TypeVar("_Found")

_POLL_S = 0.02
_DEADLINE_S = 600.0
_OUTCOME_S = 120.0
_STOP_S = 60.0
_CONVERGES = re.compile(r"^\w*convergence_total(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE)


class OperatorFailed(Exception):
    """The operator ended or did not get there; the message has the end of its log."""


@dataclasses.dataclass(frozen=True, slots=True)
class OperatorFiles:
    """Where one operator finds its input and leaves its traces."""

    kubeconfig: Path
    namespace: str
    modules: Path
    global_hooks: Path
    helm: Path
    directory: Path

    def environment(self, port: int) -> dict[str, str]:
        """Gives the environment of `addon-operator start`."""
        return {
            **os.environ,
            "KUBE_CONFIG": str(self.kubeconfig),
            "ADDON_OPERATOR_NAMESPACE": self.namespace,
            "MODULES_DIR": str(self.modules),
            "GLOBAL_HOOKS_DIR": str(self.global_hooks),
            "HELM_BIN_PATH": str(self.helm),
            "ADDON_OPERATOR_TMP_DIR": str(self.directory / "tmp"),
            "ADDON_OPERATOR_LISTEN_ADDRESS": "127.0.0.1",
            "ADDON_OPERATOR_LISTEN_PORT": str(port),
            "DEBUG_UNIX_SOCKET": str(self.directory / "debug.socket"),
            "LOG_TYPE": "json",
        }


class OperatorProcess:
    """One run of the operator."""

    def __init__(
        self, process: asyncio.subprocess.Process, session: aiohttp.ClientSession, url: str, log: Path
    ) -> None:
        self._process = process
        self._session = session
        self._url = url
        self._log = log

    @classmethod
    @contextlib.asynccontextmanager
    async def start(cls, files: OperatorFiles) -> AsyncIterator[OperatorProcess]:
        """Starts the operator; stops it with SIGTERM at the end, and with SIGKILL if that is not enough."""
        port = _free_port()
        files.directory.mkdir(parents=True, exist_ok=True)
        log = files.directory / "operator.log"
        async with aiohttp.ClientSession() as session:
            with log.open("ab") as output:
                process = await asyncio.create_subprocess_exec(
                    str(Path(sys.executable).parent / "addon-operator"),
                    "start",
                    env=files.environment(port),
                    stdout=output,
                    stderr=output,
                )
            try:
                yield cls(process, session, f"http://127.0.0.1:{port}", log)
            finally:
                await _stop(process)

    async def ready(self) -> None:
        """Waits until /readyz says 200."""
        await self._until(self._is_ready)

    async def converges(self) -> float:
        """Answers how many converges are over."""
        text = await self._get("/metrics")
        return sum(float(count) for count in _CONVERGES.findall(text))

    async def converged_after(self, converges: float) -> None:
        """Waits until more converges are over than `converges`, and none is running."""

        async def done() -> bool:
            status = await self._get("/status/converge?output=json")
            return '"CONVERGE_WAIT_TASK":true' in status.replace(" ", "") and await self.converges() > converges

        await self._until(done)

    async def outcome(self, waiting: Coroutine[None, None, _Found]) -> _Found:
        """Waits for something that the operator is to bring about, but not longer than the operator lives."""
        found, ended = asyncio.create_task(waiting), asyncio.create_task(self._process.wait())
        try:
            await asyncio.wait((found, ended), timeout=_OUTCOME_S, return_when=asyncio.FIRST_COMPLETED)
            if found.done():
                return found.result()
            raise self._failed(f"ended with {ended.result()}" if ended.done() else f"nothing after {_OUTCOME_S:.0f} s")
        finally:
            found.cancel()
            ended.cancel()
            await asyncio.gather(found, ended, return_exceptions=True)

    def resident_mib(self) -> tuple[float, float]:
        """Answers resident memory of the operator itself in MiB: now, and at most so far."""
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="utf-8")
        now, most = (re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE) for name in ("VmRSS", "VmHWM"))
        assert now is not None
        assert most is not None
        return int(now[1]) / 1024, int(most[1]) / 1024

    def cpu_s(self) -> float:
        """Answers the CPU time of the operator and of the children it has waited for, in seconds."""
        text = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="utf-8")
        ticks = text.rpartition(")")[2].split()[11:15]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

    async def _is_ready(self) -> bool:
        async with self._session.get(f"{self._url}/readyz") as response:
            return response.status == 200

    async def _get(self, path: str) -> str:
        async with self._session.get(f"{self._url}{path}") as response:
            return await response.text()

    async def _until(self, condition: _Condition) -> None:
        try:
            async with asyncio.timeout(_DEADLINE_S):
                while not await self._holds(condition):  # noqa: ASYNC110 -- the other process offers no event
                    await asyncio.sleep(_POLL_S)
        except TimeoutError as error:
            raise self._failed(f"nothing after {_DEADLINE_S:.0f} s") from error

    async def _holds(self, condition: _Condition) -> bool:
        if self._process.returncode is not None:
            raise self._failed(f"ended with {self._process.returncode}")
        try:
            return await condition()
        except aiohttp.ClientConnectionError:
            return False

    def _failed(self, what: str) -> OperatorFailed:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:]
        return OperatorFailed("\n".join([f"{what}; end of {self._log}:", *lines]))


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_STOP_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
