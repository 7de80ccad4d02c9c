"""`addon-operator start`: run the operator.

One option for each row of `settings.TABLE`; the operator itself is imported only when the settings are right.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from addon_operator import settings
from addon_operator.errors import AddonOperatorError, SettingsError

if TYPE_CHECKING:  # it comes with the operator
    from structlog.typing import FilteringBoundLogger


def _import_app() -> ModuleType:
    """Imports the operator: half a second that --help and wrong settings do not need."""
    # structlog draws tracebacks with rich where that is installed: 3 MB and 0.1 s for what the log never shows.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]  # Python's way to say that there is no such module
    # What is imported stays for ever: the garbage collector need not look at it, now or later.
    gc.disable()
    app = importlib.import_module("addon_operator.app.lifecycle")
    gc.freeze()
    gc.enable()
    return app


# `--log-no-time` is as good as `--log-no-time true`.
_SWITCH: Mapping[str, Any] = {"is_flag": False, "flag_value": "true"}


def _with_settings(command: Callable[..., None]) -> Callable[..., None]:
    for foreign in settings.FOREIGN:
        # Hidden: only for command lines of other addon-operators.
        option = click.option(f"--{foreign.flag}", foreign.field, hidden=True, **_SWITCH)
        command = option(command)
    for row in reversed(settings.TABLE):
        default = f"default {row.default}" if row.default else "no default"
        option = click.option(
            *(f"--{flag}" for flag in (row.flag, *row.aliases)),
            row.field,
            type=str,
            default=None,
            help=f"{row.help} [{', '.join(row.variables)}; {default}]",
            metavar="|".join(row.choices) or row.kind.upper(),
            **(_SWITCH if row.kind == "boolean" else {}),
        )
        command = option(command)
    return command


@click.command()
@click.option("--once", is_flag=True, help="Stop after the first converge, print what was done; exit 0 if all is well.")
@_with_settings
def start(*, once: bool, **flags: str | None) -> None:
    """Run the operator in the foreground until SIGTERM or Ctrl-C.

    Each option can be given as an environment variable too (named in brackets); the option wins.

    Exit status: 0 stopped or converged, 1 something is wrong (the message says what), 2 wrong usage.
    """
    try:
        chosen = settings.read(flags, os.environ)
    except SettingsError as error:
        for line in str(error).splitlines():
            click.echo(f"Error: {line}", err=True)
        sys.exit(1)
    app = _import_app()
    sys.exit(exit_status(lambda: app.run(chosen, once=once), app.log, json=chosen.log_type == "json"))


def exit_status(run: Callable[[], int], log: FilteringBoundLogger, *, json: bool) -> int:
    """Runs the operator, and says why it cannot go on: by a message without values, never by a bare traceback.

    Args:
        run: returns the exit status.
        log: of the operator.
        json: whether all that is printed must be JSON.
    """
    try:
        return run()
    except AddonOperatorError as error:
        if json:
            log.error("operator cannot go on", error=error)
        else:
            click.echo(f"Error: {error}", err=True)
    except Exception as error:
        log.error("operator cannot go on: internal error", error=error, exc_info=error)
    return 1
