"""What refusals and broken connections are as errors: status, reason, and a message without values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Protocol

import aiohttp

from addon_operator.documents import jsondoc
from addon_operator.errors import KubeError
from addon_operator.redaction.messages import redact_status

_LONGEST_MESSAGE = 1000
_LONGEST_PAUSE_S = 60.0


class Response(Protocol):
    """The beginning of an answer, as aiohttp has it: status, reason phrase, headers."""

    @property
    def status(self) -> int:
        """The status of HTTP."""

    @property
    def reason(self) -> str | None:
        """The words beside it, if any."""

    @property
    def headers(self) -> Mapping[str, str]:
        """By name."""


def refusal(request: str, response: Response, data: bytes, *, is_secret: bool) -> KubeError:
    """Returns what the API server said instead of doing it.

    Args:
        request: its method and path.
        response: with a status that is no success.
        data: its body; a `Status` unless something between us and the API server has answered.
        is_secret: whether the request was about Secrets.
    """
    status = _status(data)
    reason = str(status.get("reason") or response.reason or response.status)
    message = redact_status(status, is_secret=is_secret)[:_LONGEST_MESSAGE]
    said = f": {message}" if message else ""
    retry_after_s = _seconds(response.headers.get("Retry-After"))
    return KubeError(
        f"{request}: {response.status} {reason}{said}",
        status=response.status,
        reason=reason,
        retry_after_s=retry_after_s,
    )


def _status(data: bytes) -> jsondoc.JsonObject:
    try:
        document = jsondoc.loads(data)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _seconds(header: str | None) -> float | None:
    # At least a moment, so that a server that says 0 is not asked in a tight loop; at most a minute, so that nobody who
    # says a day keeps a watch from going on.
    return min(max(float(header), 0.1), _LONGEST_PAUSE_S) if header and header.isdecimal() else None


def unreachable(request: str, host: str, error: Exception) -> KubeError:
    """Returns what an exception of aiohttp or of the socket means: status 0, and why there was no answer."""
    match error:
        case aiohttp.ClientSSLError():
            reason = "TLS"
        case TimeoutError():
            reason = "Timeout"
        case aiohttp.ClientConnectorError():
            reason = "Unreachable"
        case _:
            reason = "ConnectionLost"
    return KubeError(f"{request}: no answer from the API server {host}: {_cause(error)}", status=0, reason=reason)


def _cause(error: Exception) -> str:
    """Returns what went wrong without the internals that aiohttp puts around it."""
    match error:
        case aiohttp.ClientConnectorCertificateError(certificate_error=cause):
            return str(cause)
        case aiohttp.ClientConnectorError(os_error=ConnectionError(errno=int(number))):
            return os.strerror(number)
        case aiohttp.ClientConnectorError(os_error=cause):
            return str(cause)
        case _:
            return str(error) or type(error).__name__
