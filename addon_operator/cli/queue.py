"""`addon-operator queue`: waiting and running tasks. Source: contract.md 2.17."""

from __future__ import annotations

import contextlib
import time

import click

from addon_operator.cli.debug_client import get, socket_option
from addon_operator.cli.output import emit, examples, format_option
from addon_operator.documents.durations import parse_duration


@click.group()
def queue() -> None:
    """Show the task queues of a running operator."""


@queue.command(
    "list",
    epilog=examples(
        "addon-operator queue list",
        "addon-operator queue list -w -t 500ms",
        "addon-operator queue list -o json | jq .summary.totalTasks",
    ),
)
@format_option("text", "yaml", "json", default="text")
@click.option("-e", "--show-empty", is_flag=True, help="Include empty queues.")
@click.option("-w", "--watch", is_flag=True, help="Refresh until Ctrl-C.")
@click.option(
    "-t", "--watch-interval", default="1s", show_default=True, metavar="TIME", help="Interval of --watch, e.g. 2s."
)
@socket_option
def list_(socket_path: str, form: str, *, show_empty: bool, watch: bool, watch_interval: str) -> None:
    """Show the tasks of all queues in their order."""
    query = {"showEmpty": "true"} if show_empty else None
    if not watch:
        emit(get(socket_path, f"/queue/list.{form}", query))
        return
    interval_s = _seconds(watch_interval)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            body = get(socket_path, f"/queue/list.{form}", query)
            click.clear()
            emit(body)
            time.sleep(interval_s)


@queue.command("main", epilog=examples("addon-operator queue main"))
@format_option("text", "yaml", "json", default="text")
@socket_option
def main(socket_path: str, form: str) -> None:
    """Show the tasks of the main queue."""
    emit(get(socket_path, f"/queue/main.{form}"))


def _seconds(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--watch-interval") from error
    if not seconds:
        raise click.BadParameter("the interval must be longer than 0", param_hint="--watch-interval")
    return seconds
