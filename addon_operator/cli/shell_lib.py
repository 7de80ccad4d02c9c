"""`addon-operator shell-lib`: where the bash library for hooks is. docs/hook-libraries.md has its functions."""

from __future__ import annotations

from pathlib import Path

import click

from addon_operator.cli.output import examples


@click.command("shell-lib", epilog=examples('source "$(addon-operator shell-lib)"'))
def shell_lib() -> None:
    """Print the path of the bash library for hooks, to be sourced."""
    # The place is also `app.SHELL_LIB`, which is not imported for the time that it takes.
    click.echo(Path(__file__).parents[1] / "shell" / "shell_lib.sh")
