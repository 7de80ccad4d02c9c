"""`addon-operator global`: global hooks and the global section. Source: contract.md 2.17."""

from __future__ import annotations

import click

from addon_operator.cli.debug_client import get, socket_option
from addon_operator.cli.output import emit, examples, format_option


@click.group("global")
def global_() -> None:
    """Show global hooks and global values of a running operator."""


@global_.command("list", epilog=examples("addon-operator global list"))
@format_option("yaml", "json", default="yaml")
@socket_option
def list_(socket_path: str, form: str) -> None:
    """List the global hooks."""
    emit(get(socket_path, f"/global/list.{form}"))


@global_.command(
    "values", epilog=examples("addon-operator global values", "addon-operator global values -o json | jq .clusterName")
)
@format_option("yaml", "json", default="yaml")
@socket_option
def values(socket_path: str, form: str) -> None:
    """Show the effective global values, as hooks and charts get them."""
    emit(get(socket_path, f"/global/values.{form}"))


@global_.command("config", epilog=examples("addon-operator global config"))
@format_option("yaml", "json", default="yaml")
@socket_option
def config(socket_path: str, form: str) -> None:
    """Show the global values of the ConfigMap."""
    emit(get(socket_path, f"/global/config.{form}"))


@global_.command("patches", epilog=examples("addon-operator global patches -o json | jq -c '.[].Operations[]'"))
@format_option("yaml", "json", default="yaml")
@socket_option
def patches(socket_path: str, form: str) -> None:
    """Show the patches of hooks to the global values."""
    emit(get(socket_path, f"/global/patches.{form}"))


@global_.command("snapshots", epilog=examples("addon-operator global snapshots"))
@format_option("yaml", "json", default="yaml")
@socket_option
def snapshots(socket_path: str, form: str) -> None:
    """Show the snapshots of global hooks: hook, binding, items."""
    emit(get(socket_path, f"/global/snapshots.{form}"))
