"""Hooks that are executables beside the operator: how they are started, and why one could not be."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from addon_operator.errors import BadReply, HookUnreachable
from addon_operator.hooks.call import HookId
from addon_operator.process import child
from addon_operator.process.child import Exit
from addon_operator.process.output import LineSink

_MAX_CONFIG_BYTES: Final = 2**20
_MAX_SHEBANG_BYTES: Final = 256


class LocalTransport:
    """Runs executables as child processes (`engine.HookTransport`)."""

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
        """Runs a hook without arguments.

        Raises:
            HookUnreachable: it cannot be started; the message says why.
        """
        argv, env = _command(path, hook, environment)
        try:
            return await child.run(argv, env=env, timeout_s=timeout_s, grace_s=grace_s, on_line=on_line)
        except OSError as error:
            raise _unreachable(path, hook, error) from error

    async def ask_config(
        self, path: Path, *, hook: HookId, environment: Mapping[str, str], timeout_s: float, grace_s: float
    ) -> tuple[Exit, bytes]:
        """Runs a hook with `--config`; returns how it ended and what it printed.

        Raises:
            HookUnreachable: it cannot be started; the message says why.
            BadReply: it printed more than 1 MiB.
        """
        argv, env = _command(path, hook, environment)
        try:
            return await child.capture(
                [*argv, "--config"], env=env, timeout_s=timeout_s, grace_s=grace_s, max_bytes=_MAX_CONFIG_BYTES
            )
        except OSError as error:
            if error.errno == errno.EFBIG:
                raise BadReply(f"{hook}: --config printed {error.strerror}") from error
            raise _unreachable(path, hook, error) from error


def _command(path: Path, hook: HookId, environment: Mapping[str, str]) -> tuple[list[str], Mapping[str, str]]:
    path = path.absolute()
    python = _venv_python(path) if hook.module is not None and path.suffix == ".py" else None
    if python is None:
        return [str(path)], environment
    # The interpreter of a venv finds its home by itself; an inherited PYTHONHOME would be wrong.
    inherited = {name: value for name, value in environment.items() if name != "PYTHONHOME"}
    return [str(python), str(path)], {**inherited, "VIRTUAL_ENV": str(python.parent.parent)}


def _venv_python(path: Path) -> Path | None:
    """Finds the interpreter of the module's `hooks/venv`, if there is one (contract.md 1.1)."""
    hooks = next((parent for parent in path.parents if parent.name == "hooks"), path.parent)
    python = hooks / "venv" / "bin" / "python3"
    return python if os.access(python, os.X_OK) else None


def _unreachable(path: Path, hook: HookId, error: OSError) -> HookUnreachable:
    return HookUnreachable(f"{hook}: {path}: {_reason(path, error)}")


def _reason(path: Path, error: OSError) -> str:
    match error.errno:
        case errno.ENOENT if path.exists():
            return _missing_interpreter(path)
        case errno.ENOENT:
            return "the file does not exist"
        case errno.EACCES if not os.access(path, os.X_OK):
            return "the file is not executable"
        case errno.EACCES:
            return "its interpreter is not executable, or the file system allows no execution"
        case errno.ENOEXEC:
            return "the file is neither a program nor a script with a '#!' line"
        case _:
            return f"cannot be started: {error.strerror}"


def _missing_interpreter(path: Path) -> str:
    with path.open("rb") as file:
        first = file.readline(_MAX_SHEBANG_BYTES)
    words = first.removeprefix(b"#!").split(maxsplit=1)
    name = words[0].decode("utf-8", "replace") if words else "?"
    hint = ", and the line ends in a carriage return (saved on Windows?)" if first.endswith(b"\r\n") else ""
    return f"its interpreter {name} does not exist{hint}"
