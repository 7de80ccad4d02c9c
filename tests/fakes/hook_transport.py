"""Hooks without processes: each run is a call of a function, in virtual time if the event loop's is.

It implements the edge `HookTransport`, so that the engine, its files and all that is built on them run as they are.
`tests/contract/test_hook_transport.py` holds it to what real processes do.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import BadReply, HookUnreachable
from addon_operator.hooks.call import HookId
from addon_operator.process.child import Exit
from addon_operator.process.output import Buffer, Lines, LineSink, Sink, Stream, Tail

_MAX_CONFIG_BYTES: Final = 2**20


class HookRun:
    """One run, as the hook sees it.

    Attributes:
        path: the file of the hook.
        hook: which one.
        environment: all of it.
    """

    def __init__(
        self, path: Path, hook: HookId, environment: Mapping[str, str], *, sinks: Mapping[Stream, Sink]
    ) -> None:
        self.path, self.hook, self.environment = path, hook, environment
        self._sinks = sinks

    def contexts(self) -> list[JsonObject]:
        """Returns the binding contexts."""
        contexts = jsondoc.loads(Path(self.environment["BINDING_CONTEXT_PATH"]).read_bytes())
        assert isinstance(contexts, list)
        return [context for context in contexts if isinstance(context, dict)]

    def values(self) -> JsonObject:
        """Returns all values that it is given."""
        return self._document("VALUES_PATH")

    def config_values(self) -> JsonObject:
        """Returns what of them is from the ConfigMap."""
        return self._document("CONFIG_VALUES_PATH")

    def _document(self, variable: str) -> JsonObject:
        document = jsondoc.loads(Path(self.environment[variable]).read_bytes())
        assert isinstance(document, dict)
        return document

    def write(self, variable: str, data: bytes) -> None:
        """Writes the file whose path is in a variable, such as `VALUES_JSON_PATCH_PATH`."""
        Path(self.environment[variable]).write_bytes(data)

    def print(self, text: str, stream: Stream = "stdout") -> None:
        """Prints; the line end is part of the text."""
        self._sinks[stream].feed(text.encode())


class HookFunction(Protocol):
    """What a hook does."""

    async def __call__(self, run: HookRun, /) -> int:
        """Runs, and returns the exit code; negative is the number of a signal."""


async def print_file(run: HookRun) -> int:
    """Prints the file of the hook: one that holds its configuration answers `--config` so."""
    run.print(run.path.read_text())
    return 0


class FakeHookTransport:
    """The edge `HookTransport`; files must exist, be executable, and have the interpreter that they name, if any."""

    def __init__(self, run: HookFunction, *, configure: HookFunction = print_file) -> None:
        """Takes what hooks do.

        Args:
            run: when they run.
            configure: when they are asked for `--config`.
        """
        self._run, self._configure = run, configure

    async def execute(
        self,
        path: Path,
        *,
        hook: HookId,
        environment: Mapping[str, str],
        timeout_s: float,
        grace_s: float,
        on_line: LineSink,
    ) -> Exit:
        """Runs a hook."""
        _check(path, hook)
        sinks: dict[Stream, Sink] = {"stdout": Lines("stdout", on_line), "stderr": Lines("stderr", on_line)}
        return await _supervise(self._run, path, hook, environment, sinks, timeout_s=timeout_s)

    async def ask_config(
        self, path: Path, *, hook: HookId, environment: Mapping[str, str], timeout_s: float, grace_s: float
    ) -> tuple[Exit, bytes]:
        """Asks a hook for its configuration."""
        _check(path, hook)
        printed = Buffer(_MAX_CONFIG_BYTES)
        sinks: dict[Stream, Sink] = {"stdout": printed, "stderr": Sink()}
        try:
            ended = await _supervise(self._configure, path, hook, environment, sinks, timeout_s=timeout_s)
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise
            raise BadReply(f"{hook}: --config printed {error.strerror}") from error
        return ended, bytes(printed.data)


async def _supervise(
    function: HookFunction,
    path: Path,
    hook: HookId,
    environment: Mapping[str, str],
    sinks: Mapping[Stream, Sink],
    *,
    timeout_s: float,
) -> Exit:
    tail = Tail(sinks["stderr"])
    run = HookRun(path, hook, environment, sinks={**sinks, "stderr": tail})
    clock = asyncio.get_running_loop().time
    began, code = clock(), -signal.SIGTERM
    try:
        async with asyncio.timeout(timeout_s) as deadline:
            code = await function(run)
    except TimeoutError:
        if not deadline.expired():
            raise
    for sink in (sinks["stdout"], tail):
        sink.end()
    return Exit(code, deadline.expired(), clock() - began, 0.0, 0.0, 0, tail.text())


def _check(path: Path, hook: HookId) -> None:
    """Fails as the start of a process would."""
    if not path.exists():
        raise HookUnreachable(f"{hook}: {path}: the file does not exist")
    if not os.access(path, os.X_OK):
        raise HookUnreachable(f"{hook}: {path}: the file is not executable")
    first = path.read_bytes().split(b"\n", 1)[0]
    interpreter = first.removeprefix(b"#!").split()[0].decode() if first.startswith(b"#!") else ""
    if interpreter and not Path(interpreter).exists():
        raise HookUnreachable(f"{hook}: {path}: its interpreter {interpreter} does not exist")
