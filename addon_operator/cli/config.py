"""`addon-operator config`: settings that can be changed while the operator runs. Source: contract.md 2.17."""

from __future__ import annotations

import click

from addon_operator.cli.debug_client import get, post, socket_option
from addon_operator.cli.output import emit, examples, format_option


@click.group()
def config() -> None:
    """Show and change settings of a running operator, such as the log level."""


@config.command("list", epilog=examples("addon-operator config list"))
@format_option("text", "yaml", "json", default="text")
@socket_option
def list_(socket_path: str, form: str) -> None:
    """Show the settings that can be changed at run time."""
    emit(get(socket_path, f"/config/list.{form}"))


@config.command(
    "set",
    epilog=examples(
        "addon-operator config set log.level debug",
        "addon-operator config set log.level debug 10m",
    ),
)
@click.argument("name")
@click.argument("value")
@click.argument("duration", default="")
@socket_option
def set_(socket_path: str, name: str, value: str, duration: str) -> None:
    """Change a setting until the operator restarts, or for a DURATION such as 10m."""
    emit(post(socket_path, "/config/set", {"name": name, "value": value, "duration": duration}))
