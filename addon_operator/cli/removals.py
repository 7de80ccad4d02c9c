"""`addon-operator confirm-removals`: uninstall held modules. Source: docs/modules.md, "Held modules"."""

from __future__ import annotations

import json

import click

from addon_operator.cli.debug_client import get, post, socket_option
from addon_operator.cli.output import examples


@click.command(
    "confirm-removals",
    epilog=examples(
        "addon-operator confirm-removals",
        "addon-operator confirm-removals old-dashboard",
        "addon-operator confirm-removals --yes",
    ),
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@socket_option
def confirm_removals(names: tuple[str, ...], socket_path: str, *, yes: bool) -> None:
    """Uninstall held modules: all of them, or those named NAME.

    A module is held, neither upgraded nor removed, if it would be uninstalled only because something is missing: the
    ConfigMap that enabled it, or the directories or flags of many modules at once. The command lists the held modules
    with the reasons, asks for confirmation, and has the operator uninstall exactly the modules that it has listed.
    """
    held = {str(item["name"]): str(item["reason"]) for item in json.loads(get(socket_path, "/removals/list.json"))}
    if unknown := sorted(set(names) - held.keys()):
        raise click.ClickException(
            f"not held: {', '.join(unknown)}; `addon-operator module list` shows the held modules"
        )
    selected = {name: reason for name, reason in held.items() if not names or name in names}
    if not selected:
        click.echo("No module is held.")
        return
    for name, reason in selected.items():
        click.echo(f"{name}: {reason}")
    if not yes:
        click.confirm(f"Uninstall {'it' if len(selected) == 1 else f'these {len(selected)} modules'}?", abort=True)
    post(socket_path, "/removals/confirm", [("name", name) for name in selected])
    click.echo(
        "Confirmed: the next converge uninstalls the listed modules. `addon-operator queue list` shows its progress."
    )
