"""`addon-operator module`: modules, their values, and the reasons of their state. Source: contract.md 2.17."""

from __future__ import annotations

import click

from addon_operator.cli.debug_client import get, page_path, socket_option
from addon_operator.cli.output import emit, examples, format_option

_GLOBAL_OPTION = click.option("-g", "--global", "with_global", is_flag=True, help="Include the global section.")


@click.group()
def module() -> None:
    """Show the modules of a running operator."""


@module.command(
    "list",
    epilog=examples(
        "addon-operator module list -o text",
        "addon-operator module list -o json | jq -r '.enabledModules[]'",
        "addon-operator module list -o json | jq '.modules[] | select(.lastError)'",
    ),
)
@format_option("text", "yaml", "json", default="yaml")
@socket_option
def list_(socket_path: str, form: str) -> None:
    """List all modules, including disabled ones, with state, reason, release and last error."""
    emit(get(socket_path, f"/module/list.{form}"))


@module.command("explain", epilog=examples("addon-operator module explain nginx-ingress"))
@click.argument("name")
@format_option("text", "yaml", "json", default="text")
@socket_option
def explain(socket_path: str, name: str, form: str) -> None:
    """Explain why a module is enabled, disabled, waiting or failed.

    Shows the enable flag of each source and which one decides, the result and the reason of the enabled script, the
    Helm release with the last decision about it, and the last error.
    """
    emit(get(socket_path, page_path("module", name, "explain", form=form)))


@module.command(
    "values",
    epilog=examples(
        "addon-operator module values nginx-ingress",
        "addon-operator module values nginx-ingress --origin",
        "addon-operator module values -g nginx-ingress -o json | jq .global",
    ),
)
@click.argument("name")
@_GLOBAL_OPTION
@click.option("--origin", is_flag=True, help="Show the origin of each value: file, ConfigMap, schema default, hook.")
@format_option("yaml", "json", default="yaml")
@socket_option
def values(socket_path: str, name: str, form: str, *, with_global: bool, origin: bool) -> None:
    """Show the effective values of a module, as its hooks and chart get them."""
    query = _flags({"global": with_global, "origin": origin})
    emit(get(socket_path, page_path("module", name, "values", form=form), query))


@module.command("config", epilog=examples("addon-operator module config nginx-ingress"))
@click.argument("name")
@_GLOBAL_OPTION
@format_option("yaml", "json", default="yaml")
@socket_option
def config(socket_path: str, name: str, form: str, *, with_global: bool) -> None:
    """Show the values of a module in the ConfigMap."""
    emit(get(socket_path, page_path("module", name, "config", form=form), _flags({"global": with_global})))


@module.command("patches", epilog=examples("addon-operator module patches nginx-ingress | jq -c '.[].Operations[]'"))
@click.argument("name")
@format_option("yaml", "json", default="json")
@socket_option
def patches(socket_path: str, name: str, form: str) -> None:
    """Show the patches of hooks to the values of a module."""
    emit(get(socket_path, page_path("module", name, "patches", form=form)))


@module.command("snapshots", epilog=examples("addon-operator module snapshots nginx-ingress"))
@click.argument("name")
@format_option("yaml", "json", default="yaml")
@socket_option
def snapshots(socket_path: str, name: str, form: str) -> None:
    """Show the snapshots of a module's hooks: hook, binding, items."""
    emit(get(socket_path, page_path("module", name, "snapshots", form=form)))


@module.command("resource-monitor", epilog=examples("addon-operator module resource-monitor -o text"))
@format_option("text", "yaml", "json", default="yaml")
@socket_option
def resource_monitor(socket_path: str, form: str) -> None:
    """Show the objects that are restored when they are deleted."""
    emit(get(socket_path, f"/module/resource-monitor.{form}"))


def _flags(flags: dict[str, bool]) -> dict[str, str]:
    return {name: "true" for name, enabled in flags.items() if enabled}
