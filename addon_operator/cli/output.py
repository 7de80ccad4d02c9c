"""What the debug commands share in printing: the choice of a format, examples in help texts, bytes to stdout."""

from __future__ import annotations

from collections.abc import Callable

import click

from addon_operator.cli.debug_client import Command


def format_option(*formats: str, default: str) -> Callable[[Command], Command]:
    """Adds `-o/--output` to a command, as its parameter `form`; only formats that the page is served in."""
    return click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(formats),
        default=default,
        show_default=True,
        help="Format of the output.",
    )


def examples(*commands: str) -> str:
    """Writes the last paragraph of a help text: commands to try, one a line."""
    # The backspace tells click to keep the lines as they are.
    return "\b\nExamples:\n" + "\n".join(f"  {command}" for command in commands)


def emit(body: bytes) -> None:
    """Prints a page as it came, with a line end after it."""
    click.echo(body, nl=not body.endswith(b"\n"))
