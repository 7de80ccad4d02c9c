"""`addon-operator start`: run the operator.

One option for each row of `settings.TABLE`; the operator itself is imported only when the settings are right.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import click

from addon_operator import settings
from addon_operator.errors import AddonOperatorError, SettingsError


def _with_settings(command: Callable[..., None]) -> Callable[..., None]:
    for row in reversed(settings.TABLE):
        default = f"default {row.default}" if row.default else "no default"
        text = f"{row.help} [{', '.join(row.variables)}; {default}]"
        flags = [f"--{row.flag}", row.field]
        option = click.option(
            *flags, type=str, default=None, help=text, metavar="|".join(row.choices) or row.kind.upper()
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
    from addon_operator import app, logs  # noqa: PLC0415 -- half a second that --help and errors do not need

    try:
        sys.exit(app.run(chosen, once=once))
    except AddonOperatorError as error:
        if chosen.log_type == "json":
            logs.get_logger("operator").error("operator cannot go on", error=error)
        else:
            click.echo(f"Error: {error}", err=True)
        sys.exit(1)
