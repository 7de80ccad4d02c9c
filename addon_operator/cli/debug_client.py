"""The client side of the debug socket: one HTTP request over a unix socket, with errors for people.

Standard library and click only: the debug commands must start in a fraction of a second.

Source: contract.md 2.17, 6.3 ("debug commands on an error").
"""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import click

DEFAULT_SOCKET = "/var/run/addon-operator/debug.socket"
_SILENCE_S = 10.0

Command = TypeVar("Command", bound=Callable[..., Any])


def socket_option(command: Command) -> Command:
    """Adds `--debug-unix-socket` to a command, as its parameter `socket_path`."""
    return click.option(
        "--debug-unix-socket",
        "socket_path",
        envvar="DEBUG_UNIX_SOCKET",
        default=DEFAULT_SOCKET,
        show_default=True,
        show_envvar=True,
        metavar="PATH",
        help="Debug socket of the operator.",
    )(command)


def get(socket_path: str, path: str, query: Mapping[str, str] | None = None) -> bytes:
    """Fetches one page.

    Args:
        socket_path: that the operator listens on.
        path: starts with `/`, and may have a query of its own; characters that a URL cannot contain are escaped.
        query: parameters to append.

    Raises:
        click.ClickException: no operator listens there, no response in time, or an error response.
    """
    target = quote(path, safe="/?&=%:+,~") + ("?" + urlencode(query) if query else "")
    return _exchange(socket_path, "GET", target)


def post(socket_path: str, path: str, form: Mapping[str, str] | Sequence[tuple[str, str]]) -> bytes:
    """Sends a form and returns the response.

    Args:
        socket_path: that the operator listens on.
        path: starts with `/`.
        form: field -> text; pairs if a field occurs more than once.

    Raises:
        click.ClickException: as `get`.
    """
    return _exchange(socket_path, "POST", path, urlencode(form))


def page_path(*segments: str, form: str) -> str:
    """Builds `/a/b.form`, each segment escaped."""
    return "".join("/" + quote(segment, safe="") for segment in segments) + f".{form}"


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_SILENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_SILENCE_S)
        self.sock.connect(self._path)


def _exchange(socket_path: str, method: str, target: str, form: str | None = None) -> bytes:
    headers = {"Content-Type": "application/x-www-form-urlencoded"} if form is not None else {}
    connection = _UnixConnection(socket_path)
    try:
        connection.request(method, target, body=form, headers=headers)
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise click.ClickException(_problem(socket_path, error)) from error
    finally:
        connection.close()
    if response.status >= 400:
        raise click.ClickException(body.decode(errors="replace").strip() or f"{target}: HTTP {response.status}")
    return body


def _problem(socket_path: str, error: Exception) -> str:
    match error:
        case FileNotFoundError() | ConnectionRefusedError() | NotADirectoryError():
            return (
                f"no operator listens on {socket_path}: is it running? set DEBUG_UNIX_SOCKET if its socket is elsewhere"
            )
        case PermissionError():
            return f"{socket_path}: permission denied: only the user that runs the operator, and root, may connect"
        case TimeoutError():
            return f"the operator at {socket_path} did not respond for {_SILENCE_S:g} s"
        case _:
            return f"{socket_path}: no response from an operator: {error or type(error).__name__}"
