"""`addon-operator dev up|down|status|run`: local control planes, and the operator in one.

A cluster has a name, and its files are in a directory of that name below the home directory (`.dev`), so that several
clusters can run in parallel.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from addon_operator.cli.debug_client import Command
from addon_operator.cli.output import emit, examples
from addon_operator.errors import AddonOperatorError

if TYPE_CHECKING:
    from addon_operator.devcluster import DevCluster
    from addon_operator.devcluster.daemon import Status

_INTERRUPTED = 130
_HEADINGS = ("NAME", "STATE", "PID", "VERSION", "UPTIME", "KUBECONFIG")


class _Name(click.ParamType[str]):
    name = "name"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value or value.startswith((".", "-")) or "/" in value:
            self.fail(f"{value!r} cannot be the name of a directory", param, ctx)
        return value


class _Progress:
    """Shows the progress on stderr: on a terminal in one line, otherwise one line per step."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._live = sys.stderr.isatty()

    def step(self, text: str) -> None:
        """Shows the next step."""
        line = f"control plane: {text} ({time.monotonic() - self._started:.1f} s)"
        click.echo(f"\r\x1b[K{line}" if self._live else line, err=True, nl=not self._live)

    def done(self, text: str) -> None:
        """Shows the last step."""
        self.step(text)
        if self._live:
            click.echo(err=True)


def _with_home(command: Command) -> Command:
    return click.option(
        "--home",
        type=click.Path(path_type=Path, file_okay=False),
        default=".dev",
        show_default=True,
        envvar="ADDON_OPERATOR_DEV_HOME",
        show_envvar=True,
        help="Directory of all clusters.",
    )(command)


def _with_name(command: Command) -> Command:
    return click.option(
        "--name", type=_Name(), default="dev", show_default=True, help="Name of the cluster, and of its directory."
    )(command)


@click.group()
def dev() -> None:
    """Run a local control plane to try modules out: real API server, etcd and controllers, simulated nodes."""


@dev.command(epilog=examples("addon-operator dev up", 'eval "$(addon-operator dev up --name other)"'))
@_with_name
@_with_home
def up(*, name: str, home: Path) -> None:
    """Start a cluster in the background and print its kubeconfig.

    A running cluster is left as it is; a stopped one continues with its data.
    """
    from addon_operator.devcluster import daemon  # noqa: PLC0415 -- the other commands start without it

    progress = _Progress()
    try:
        found = daemon.up(home / name, on_progress=progress.step)
    except AddonOperatorError as error:
        raise click.ClickException(str(error)) from error
    progress.done(f"{found.version} is ready at {found.server}")
    click.echo(f"export KUBECONFIG={shlex.quote(str(found.kubeconfig))}")


@dev.command(epilog=examples("addon-operator dev down", "addon-operator dev down --delete"))
@_with_name
@_with_home
@click.option("--delete", is_flag=True, help="Also delete its directory with all data.")
def down(*, name: str, home: Path, delete: bool) -> None:
    """Stop a cluster, also one of `dev run`; its data are kept."""
    from addon_operator.devcluster import daemon, files  # noqa: PLC0415

    try:
        stopped = daemon.down(home / name)
    except AddonOperatorError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{name}: {'stopped' if stopped else 'was not running'}", err=True)
    if delete:
        files.remove(home / name)


@dev.command(epilog=examples("addon-operator dev status", "addon-operator dev status -o json"))
@_with_home
@click.option("-o", "--output", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def status(*, home: Path, form: str) -> None:
    """List the clusters."""
    from addon_operator.devcluster import daemon  # noqa: PLC0415

    found = daemon.statuses(home)
    if form == "json":
        emit(json.dumps([_document(cluster) for cluster in found], indent=2).encode())
        return
    rows = [_HEADINGS, *(_row(cluster) for cluster in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@dev.command(
    context_settings={"ignore_unknown_options": True},
    epilog=examples("addon-operator dev run", "addon-operator dev run --once --modules-dir modules:more-modules"),
)
@_with_name
@_with_home
@click.option(
    "--namespace",
    default="addon-operator",
    show_default=True,
    envvar="ADDON_OPERATOR_NAMESPACE",
    show_envvar=True,
    help="Namespace of the ConfigMap and of all releases; created if missing.",
)
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS OF START]...")
def run(*, name: str, home: Path, namespace: str, options: tuple[str, ...]) -> None:
    """Start a cluster and the operator in it; Ctrl-C stops both.

    All other options are passed to `addon-operator start`: with --once it exits after the first converge. The data of
    the cluster are kept; `dev down --delete` deletes them.
    """
    # A closed terminal and `dev down` have the effect of Ctrl-C.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        code = _run(home / name, namespace, options)
    except AddonOperatorError as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        click.echo("stopped", err=True)
        code = _INTERRUPTED if "--once" in options else 0
    sys.exit(code)


def _run(directory: Path, namespace: str, options: tuple[str, ...]) -> int:
    from addon_operator.devcluster import DevCluster, operator  # noqa: PLC0415

    progress = _Progress()
    with DevCluster(directory, on_progress=progress.step) as cluster:
        cluster.create_namespace(namespace)
        progress.done(f"{cluster.version} is ready at {cluster.server}, logs in {directory}")
        environment = operator.environment(cluster, namespace=namespace, inherited=os.environ)
        click.echo(_hints(cluster, environment), err=True)
        return operator.run(cluster, options, env=environment)


def _hints(cluster: DevCluster, environment: dict[str, str]) -> str:
    """Returns the commands to inspect it from another terminal."""
    programs = f"{Path(sys.executable).parent}:{Path(environment['PATH'].split(os.pathsep)[0])}"
    namespace, port = environment["ADDON_OPERATOR_NAMESPACE"], environment["ADDON_OPERATOR_LISTEN_PORT"]
    return "\n".join(
        [
            "in a second terminal:",
            f"  export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}",
            f"  export DEBUG_UNIX_SOCKET={shlex.quote(environment['DEBUG_UNIX_SOCKET'])}",
            f'  export PATH={shlex.quote(programs)}:"$PATH"',
            "  addon-operator module list -o text",
            f"  kubectl -n {namespace} get all",
            f"  curl -s http://127.0.0.1:{port}/status/converge",
        ]
    )


def _row(status: Status) -> tuple[str, ...]:
    running = status.state == "running"
    pid = str(status.pid) if status.pid is not None else "-"
    uptime = f"{status.uptime_s:.0f}s" if running else "-"
    return (status.name, status.state, pid, status.version or "-", uptime, str(status.kubeconfig))


def _document(status: Status) -> dict[str, object]:
    return {
        "name": status.name,
        "state": status.state,
        "directory": str(status.directory),
        "kubeconfig": str(status.kubeconfig),
        "pid": status.pid,
        "version": status.version,
        "server": status.server,
        "uptimeSeconds": round(status.uptime_s, 1),
        "components": status.components,
    }
