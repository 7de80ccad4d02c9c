"""The few requests that a starting cluster needs, on one connection. Operators and tests use `kube.client`."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final

from addon_operator.devcluster.errors import DevClusterError

if TYPE_CHECKING:  # this package is used before anything is installed
    from addon_operator.documents.jsondoc import JsonObject, JsonValue

_TIMEOUT_S: Final = 5.0


class Api:
    """A JSON client for one API server on loopback, as administrator."""

    def __init__(self, *, port: int, bearer: str, authority: Path) -> None:
        self._port = port
        self._bearer = bearer
        self._context = ssl.create_default_context(cafile=str(authority))
        self._connection: http.client.HTTPSConnection | None = None

    def request(
        self, method: str, path: str, body: JsonValue = None, *, content_type: str = "application/json"
    ) -> tuple[int, bytes]:
        """Sends one request; returns status and body. The status is 0 if there is no response."""
        reused = self._connection is not None
        status, answer = self._exchange(method, path, body, content_type)
        # The server closes connections that have been idle for long.
        return self._exchange(method, path, body, content_type) if status == 0 and reused else (status, answer)

    def _exchange(self, method: str, path: str, body: JsonValue, content_type: str) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = http.client.HTTPSConnection(
                "127.0.0.1", self._port, timeout=_TIMEOUT_S, context=self._context
            )
        try:
            headers = {"Authorization": f"Bearer {self._bearer}", "Content-Type": content_type}
            self._connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            self.close()
            return 0, b""

    def get(self, path: str) -> JsonObject | None:
        """Reads one object; None unless the status is 200."""
        status, body = self.request("GET", path)
        found = json.loads(body) if status == http.HTTPStatus.OK else None
        return found if isinstance(found, dict) else None

    def ready(self) -> bool:
        """Returns whether the API server reports that it is ready."""
        return self.request("GET", "/readyz")[0] == http.HTTPStatus.OK

    def create(self, path: str, body: JsonObject) -> None:
        """Creates an object unless it exists.

        Raises:
            DevClusterError: it was refused.
        """
        status, answer = self.request("POST", path, body)
        if status not in {http.HTTPStatus.CREATED, http.HTTPStatus.CONFLICT}:
            raise DevClusterError(f"POST {path}: status {status}: {answer.decode('utf-8', 'replace')[:500]}")

    def close(self) -> None:
        """Closes the connection; the next request opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
