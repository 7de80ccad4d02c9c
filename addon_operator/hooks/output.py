"""What hooks print, line by line, as lines of the operator's log (contract.md 2.4)."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from structlog.typing import FilteringBoundLogger

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.process.output import Stream

_Level: TypeAlias = Literal["debug", "info", "warning", "error"]
_LEVELS: Final[Mapping[str, _Level]] = {
    "trace": "debug",
    "debug": "debug",
    "info": "info",
    "warn": "warning",
    "warning": "warning",
    "error": "error",
    "fatal": "error",
    "panic": "error",
    "critical": "error",
}


class HookOutput:
    """Takes the lines of one run; called while it runs."""

    def __init__(self, log: FilteringBoundLogger, *, proxy_json: bool) -> None:
        """Prepares for one run.

        Args:
            log: carries the fields of the run.
            proxy_json: whether JSON lines go to the operator's stderr as they are.
        """
        self._log = log
        self._proxy_json = proxy_json

    def __call__(self, stream: Stream, line: str) -> None:
        """Logs one line."""
        if not line.strip():
            return
        record = _record(line)
        if record is None:
            self._log.info(line, output=stream)
        elif self._proxy_json:
            # As for the log itself: a closed or full stderr does not end the operator.
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(line + "\n")
                sys.stderr.flush()
        else:
            self._unfold(stream, record)

    def _unfold(self, stream: Stream, record: JsonObject) -> None:
        level = _LEVELS.get(str(record.get("level", "info")).lower(), "info")
        fields = {f"hook_{key}": _flat(value) for key, value in record.items() if key not in {"level", "msg"}}
        message = record.get("msg", "")
        text = message if isinstance(message, str) else jsondoc.dumps(message).decode()
        self._log.log(_NUMBERS[level], text, output=stream, **fields)


_NUMBERS: Final[Mapping[_Level, int]] = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def _record(line: str) -> JsonObject | None:
    """Returns the object that a line holds, None if it is text."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        value = jsondoc.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) and ("msg" in value or "level" in value) else None


def _flat(value: JsonValue) -> JsonValue:
    return jsondoc.dumps(value).decode() if isinstance(value, list | dict) else value
