"""Output of the debug commands: the format option, examples in help texts, pages to stdout."""

from __future__ import annotations

from collections.abc import Callable

import click

from addon_operator.cli.debug_client import Command


def format_option(*formats: str, default: str) -> Callable[[Command], Command]:
    """Adds `-o/--output` to a command, as its parameter `form`, with the formats that the page is served in."""
    return click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(formats),
        default=default,
        show_default=True,
        help="Output format.",
    )


def examples(*commands: str) -> str:
    """Returns the last paragraph of a help text: example commands, one per line."""
    # The backspace tells click to keep the lines as they are.
    return "\b\nExamples:\n" + "\n".join(f"  {command}" for command in commands)


def emit(body: bytes) -> None:
    """Prints a page as it was received, with a line end after it."""
    click.echo(body, nl=not body.endswith(b"\n"))
