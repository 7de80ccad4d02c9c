"""Runs one attempt of a hook: files, process, deadline, log, result. `effects` carries out what the hook asks for.

Called with one HookCall for each task, by the loader of hooks (`configure`) and by the module plan (`enabled`).
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final, Protocol

from addon_operator.documents.jsondoc import JsonValue
from addon_operator.errors import BadReply, HookConfigError, HookError, HookFailed, HookTimedOut, HookUnreachable
from addon_operator.hooks import files
from addon_operator.hooks.call import ENABLED_SCRIPT, EnabledAnswer, HookCall, HookId, HookResult, Scope
from addon_operator.hooks.config import parser
from addon_operator.hooks.config.model import HookConfig
from addon_operator.hooks.files import Content, Workspace
from addon_operator.hooks.output import HookOutput
from addon_operator.logs import get_logger
from addon_operator.process.child import Exit
from addon_operator.process.output import LineSink
from addon_operator.process.private_directory import PrivateDirectory

_STDERR_CHARS: Final = 2000
# Below this, handing the files to a thread costs more than writing them.
_LARGE_BYTES: Final = 2**20

_log = get_logger("hook")


class HookTransport(Protocol):
    """Where hooks run; the operator's own processes are `transport_local.LocalTransport`."""

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
        """Runs a hook without arguments and returns how it ended.

        Raises:
            HookUnreachable: it cannot be started; the message says why.
        """

    async def ask_config(
        self, path: Path, *, hook: HookId, environment: Mapping[str, str], timeout_s: float, grace_s: float
    ) -> tuple[Exit, bytes]:
        """Runs a hook with `--config` and returns how it ended and what it printed.

        Raises:
            HookUnreachable: it cannot be started; the message says why.
            BadReply: it printed more than 1 MiB.
        """


class HookEngine:
    """The one way to run hooks."""

    def __init__(
        self,
        *,
        transport: HookTransport,
        tmp_dir: PrivateDirectory,
        environment: Mapping[str, str],
        keep_files: bool,
        kill_grace_s: float,
        config_timeout_s: float,
        enabled_timeout_s: float,
        proxy_json: bool,
    ) -> None:
        """Prepares; starts nothing.

        Args:
            transport: where hooks run.
            tmp_dir: where the files of a run go.
            environment: of the operator; each hook gets all of it.
            keep_files: whether the files stay after a run, for debugging.
            kill_grace_s: from SIGTERM to SIGKILL.
            config_timeout_s: how long `--config` may take.
            enabled_timeout_s: how long an `enabled` script may take.
            proxy_json: whether JSON lines of hooks are passed on as they are.
        """
        self._transport = transport
        self._tmp_dir = tmp_dir
        self._environment = dict(environment)
        self._keep_files = keep_files
        self._grace_s = kill_grace_s
        self._config_timeout_s = config_timeout_s
        self._enabled_timeout_s = enabled_timeout_s
        self._proxy_json = proxy_json

    async def run(self, call: HookCall) -> HookResult:
        """Runs a hook to its end.

        Raises:
            HookFailed: exit code not 0; the message holds the end of its stderr.
            HookTimedOut: it was ended after `call.timeout_s`.
            BadReply: a result file cannot be used.
            HookUnreachable: it could not be started.
        """
        fields = {"binding": call.binding, "queue": call.queue}
        size = sum(map(len, call.contexts))
        async with self._workspace(call.hook, files.hook_input(call), size=size) as workspace:
            try:
                ended = await self._execute(call.path, call.hook, workspace, timeout_s=call.timeout_s, fields=fields)
            except HookFailed as error:
                with contextlib.suppress(BadReply):
                    error.object_patch = workspace.object_patch()
                raise
            return HookResult(workspace.effects(call.response), ended)

    async def enabled(self, script: Path, *, module: str, values: JsonValue, config_values: JsonValue) -> EnabledAnswer:
        """Asks a module's `enabled` script.

        Raises:
            HookError: as `run`; also when the answer is neither `true` nor `false`.

        Source: contract.md 2.4, 2.10.
        """
        hook = HookId(module, ENABLED_SCRIPT)
        variables = files.enabled_input(values=values, config_values=config_values)
        async with self._workspace(hook, variables) as workspace:
            fields = {"binding": "enabled"}
            await self._execute(script, hook, workspace, timeout_s=self._enabled_timeout_s, fields=fields)
            return workspace.answer()

    async def configure(self, path: Path, hook: HookId, scope: Scope) -> HookConfig:
        """Asks a hook for its configuration.

        Raises:
            HookConfigError: it cannot be started, fails, takes too long, or prints something wrong.

        Source: contract.md 2.1, 2.2.
        """
        timeout_s = self._config_timeout_s
        try:
            ended, printed = await self._transport.ask_config(
                path, hook=hook, environment=self._environment, timeout_s=timeout_s, grace_s=self._grace_s
            )
            _check_exit(ended, hook, what="--config", timeout_s=timeout_s)
        except HookError as error:
            raise HookConfigError(str(error)) from error
        try:
            text = printed.decode()
        except UnicodeDecodeError as error:
            raise HookConfigError(f"{hook}: --config printed something that is not UTF-8 text") from error
        return parser.parse_config(text, scope=scope, hook=hook)

    async def _execute(
        self, path: Path, hook: HookId, workspace: Workspace, *, timeout_s: float, fields: Mapping[str, str]
    ) -> Exit:
        log = _log.bind(hook=hook.name, module=hook.module, **fields)
        ended = await self._transport.execute(
            path,
            hook=hook,
            environment={**self._environment, **workspace.environment()},
            timeout_s=timeout_s,
            grace_s=self._grace_s,
            on_line=HookOutput(log, proxy_json=self._proxy_json),
        )
        _check_exit(ended, hook, what="run", timeout_s=timeout_s)
        return ended

    @contextlib.asynccontextmanager
    async def _workspace(
        self, hook: HookId, variables: Mapping[str, Content], *, size: int = 0
    ) -> AsyncIterator[Workspace]:
        if size < _LARGE_BYTES:
            workspace = Workspace(self._tmp_dir, hook, variables)
        else:
            workspace = await asyncio.to_thread(Workspace, self._tmp_dir, hook, variables)
        try:
            yield workspace
        finally:
            if not self._keep_files and not workspace.remove():
                await self._remove_tree(workspace)

    async def _remove_tree(self, workspace: Workspace) -> None:
        # A cancellation does not stop the thread, so the files are removed either way.
        try:
            await asyncio.to_thread(workspace.remove_tree)
        except HookUnreachable as error:
            _log.warning("temporary files of a hook are left behind", reason=str(error))


def _check_exit(ended: Exit, hook: HookId, *, what: str, timeout_s: float) -> None:
    stderr = _shortened(ended.stderr_tail)
    if ended.timed_out:
        raise HookTimedOut(f"{hook}: {what} was ended after {timeout_s:g} s, its deadline", stderr=stderr)
    if ended.code:
        raise HookFailed(f"{hook}: {what} ended with {_ending(ended.code)}", stderr=stderr)


def _ending(code: int) -> str:
    if code > 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def _shortened(stderr: str) -> str:
    if not stderr:
        return ""
    if len(stderr) <= _STDERR_CHARS:
        return f": {stderr}"
    tail = stderr[-_STDERR_CHARS:]
    _, _, whole_lines = tail.partition("\n")
    return f": ...{whole_lines or tail}"
