"""`addon-operator shell-lib`: the path of the bash library for hooks (docs/hook-libraries.md)."""

from __future__ import annotations

from pathlib import Path

import click

from addon_operator.cli.output import examples


@click.command("shell-lib", epilog=examples('source "$(addon-operator shell-lib)"'))
def shell_lib() -> None:
    """Print the path of the bash library, to be sourced by hooks."""
    # The place is also `app.SHELL_LIB`, which is not imported because that takes too long.
    click.echo(Path(__file__).parents[1] / "shell" / "shell_lib.sh")
