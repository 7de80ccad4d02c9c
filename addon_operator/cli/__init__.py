"""The command line: `addon-operator [start]` runs the operator, the other commands inspect a running one.

Each command lives in a file of its own and is imported only when it is called, so that the debug commands start fast.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click

from addon_operator import __version__

_COMMANDS = {
    "start": ("addon_operator.cli.start", "start", "Run the operator (the default command)."),
    "module": ("addon_operator.cli.module", "module", "Inspect modules: list, explain, values, patches."),
    "global": ("addon_operator.cli.global_", "global_", "Inspect global hooks and values."),
    "queue": ("addon_operator.cli.queue", "queue", "Inspect the task queues."),
    "config": ("addon_operator.cli.config", "config", "Show and change settings of a running operator."),
    "confirm-removals": (
        "addon_operator.cli.removals",
        "confirm_removals",
        "Confirm the removal of held modules.",
    ),
    "raw": ("addon_operator.cli.raw", "raw", "Print any page of the debug socket."),
    "dev": ("addon_operator.cli.dev", "dev", "Run a local control plane to try modules out."),
    "shell-lib": ("addon_operator.cli.shell_lib", "shell_lib", "Print the path of the library for bash hooks."),
    "version": ("addon_operator.cli", "version", "Show the version."),
}


class _Commands(click.Group):
    """Imports commands from `_COMMANDS`; arguments that begin with an option are those of `start`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's interface
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in _COMMANDS.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in {"--help", "-h", "--version"}):
            args = ["start", *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="`addon-operator COMMAND --help` explains a command. Flags take precedence over environment variables.",
)
@click.version_option(__version__, prog_name="addon-operator")
def cli() -> None:
    """Installs modules into a Kubernetes cluster: Helm releases whose values are computed by hooks."""


@click.command()
def version() -> None:
    """Show the version."""
    click.echo(f"addon-operator {__version__}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits with its status."""
    cli.main(args=list(arguments) if arguments is not None else sys.argv[1:], prog_name="addon-operator")
