"""`addon-operator start`: run the operator.

The operator itself is imported only when the settings are valid.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

import click

from addon_operator.cli import options
from addon_operator.errors import AddonOperatorError, SettingsError

if TYPE_CHECKING:  # it comes with the operator
    from structlog.typing import FilteringBoundLogger


def import_app() -> ModuleType:
    """Imports the operator, which takes half a second that --help and wrong settings do not need."""
    # structlog draws tracebacks with rich if that is installed: 3 MB and 0.1 s for what the log never shows.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]  # Python's way to mark a module as missing
    # Imported modules are never freed: the garbage collector need not examine them, now or later.
    gc.disable()
    app = importlib.import_module("addon_operator.app.lifecycle")
    gc.freeze()
    gc.enable()
    return app


@click.command()
@click.option(
    "--once",
    is_flag=True,
    help="Stop after the first converge and print its result; exit status 0 if all modules succeeded.",
)
@options.with_settings
def start(*, once: bool, **values: object) -> None:
    """Run the operator in the foreground until SIGTERM or Ctrl-C.

    Each option can also be set by an environment variable (named in brackets); the option wins.

    Exit status: 0 stopped or converged, 1 error (see the message), 2 wrong usage.
    """
    try:
        settings = options.read(values)
    except SettingsError as error:
        for line in str(error).splitlines():
            click.echo(f"Error: {line}", err=True)
        sys.exit(1)
    app = import_app()
    sys.exit(exit_status(lambda: app.run(settings, once=once), app.log, json=settings.log_type == "json"))


def exit_status(run: Callable[[], int], log: FilteringBoundLogger, *, json: bool) -> int:
    """Runs the operator; if it fails, logs or prints a message without values instead of a traceback.

    Args:
        run: returns the exit status.
        log: of the operator.
        json: whether all output must be JSON.
    """
    try:
        return run()
    except AddonOperatorError as error:
        if json:
            log.error("operator cannot go on", error=error)
        else:
            click.echo(f"Error: {error}", err=True)
    except Exception as error:
        log.error("operator cannot go on: internal error", error=error, exc_info=error)
    return 1
