"""`addon-operator raw`: any page of the debug socket. Source: contract.md 2.17."""

from __future__ import annotations

import click

from addon_operator.cli.debug_client import get, socket_option
from addon_operator.cli.output import emit, examples


@click.command(epilog=examples("addon-operator raw /discovery", "addon-operator raw '/queue/list.json?showEmpty=true'"))
@click.argument("path")
@socket_option
def raw(socket_path: str, path: str) -> None:
    """Print the page at PATH of the debug socket."""
    emit(get(socket_path, "/" + path.lstrip("/")))
