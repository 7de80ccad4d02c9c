"""The log: one JSON, text or coloured line for each event, constant message plus fields.

Fields come from one list: event_id task_id queue task hook scope binding module release config_map path attempt
duration_s outcome reason; hooks' own keys arrive as hook_*. Values, Secrets and patches are never logged. `error` holds
the text of an exception of ours, whose messages keep the same promise; for other exceptions it holds the type.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import sys
import threading
import time
from collections.abc import Iterable
from typing import Literal, TextIO

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from addon_operator.logs import event_id, traces
from addon_operator.logs.repeats import Repeats

LogType = Literal["text", "json", "color"]
LogLevel = Literal["debug", "info", "warning", "error"]

LEVELS: dict[str, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_COLORS = {"debug": "\x1b[90m", "info": "\x1b[36m", "warning": "\x1b[33m", "error": "\x1b[31m"}
_RESET = "\x1b[0m"
# What hooks print may hold anything, and terminals obey it.
_VISIBLE = {code: f"\\x{code:02x}" for code in (*range(9), *range(10, 32), *range(127, 160))}


class _Threshold:
    """The level in force; it can be changed while the operator runs."""

    def __init__(self) -> None:
        self.level: LogLevel = "info"

    def drop_below(self, _logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        """Drops events below the level in force (a structlog processor)."""
        if LEVELS.get(method, 20) < LEVELS[self.level]:
            raise structlog.DropEvent
        return event


_threshold = _Threshold()


class _Printer:
    """Writes whole lines; a closed or full stderr does not end the operator."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(line + "\n")
            self._stream.flush()

    debug = info = warning = error = exception = critical = log = msg


def get_logger(name: str) -> FilteringBoundLogger:
    """Returns a logger whose lines carry `component=name` (left out of text)."""
    logger: FilteringBoundLogger = structlog.get_logger(component=name)
    return logger


def set_level(level: LogLevel) -> None:
    """Changes the level from now on."""
    _threshold.level = level


def level() -> LogLevel:
    """Returns the level in force."""
    return _threshold.level


def configure(
    kind: LogType,
    log_level: LogLevel,
    *,
    with_time: bool,
    stream: TextIO | None = None,
    repeats: Repeats | None = None,
) -> None:
    """Sets the log up, also for what libraries log; called once, before anything is logged.

    Args:
        kind: `text` (key=value), `json`, or `color` (text with a coloured level).
        log_level: events below it are dropped.
        with_time: whether lines carry a time stamp (UTC, milliseconds).
        stream: where to; stderr if None.
        repeats: the limit for repeated lines; the default one if None.
    """
    _threshold.level = log_level
    holding_back = _HoldBack(repeats or Repeats())
    processors: list[Processor] = [
        _threshold.drop_below,
        structlog.processors.add_log_level,
        _event,
        _error_text,
        holding_back,
    ]
    if with_time:
        processors.append(structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"))
    processors += _renderers(kind)
    structlog.configure(
        processors=processors,
        logger_factory=lambda *_args: _Printer(stream or sys.stderr),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=logging.WARNING, handlers=[_OfLibraries()], force=True)
    atexit.register(holding_back.flush, at_once=True)


def lines_dropped(count: int) -> None:
    """Logs that lines are missing, because the output was not read in time."""
    get_logger("log").warning("log lines were dropped: the output was not read in time", lines=count)


class _HoldBack:
    """Drops lines that repeat too often, and logs later how many there were (a structlog processor)."""

    def __init__(self, repeats: Repeats) -> None:
        self._repeats = repeats
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        if "repeated" in event or "similar" in event or self._repeats.passes(event, time.monotonic()):
            return event
        self._start_timer()
        raise structlog.DropEvent

    def _start_timer(self) -> None:
        with self._lock:
            if self._timer is None:
                self._timer = threading.Timer(self._repeats.interval_s, self._after_interval)
                self._timer.daemon = True
                # No thread can be had: the next line that is held back tries again.
                try:
                    self._timer.start()
                except RuntimeError:
                    self._timer = None

    def _after_interval(self) -> None:
        with self._lock:
            self._timer = None
        self.flush()
        if self._repeats.holds_back():
            self._start_timer()

    def flush(self, *, at_once: bool = False) -> None:
        """Logs what was held back in intervals that are over, or (`at_once`) until now."""
        for event in self._repeats.due(math.inf if at_once else time.monotonic()):
            level, text = LEVELS.get(str(event.pop("level")), LEVELS["error"]), str(event.pop("event"))
            structlog.get_logger().log(level, text, **event)


class _OfLibraries(logging.Handler):
    """Logs what libraries log, without arguments and further lines, which may quote anything."""

    def emit(self, record: logging.LogRecord) -> None:
        """Logs it like a line of our own."""
        text = str(record.msg).partition("\n")[0]
        level = max((level for level in LEVELS.values() if level <= record.levelno), default=LEVELS["debug"])
        error = record.exc_info[1] if record.exc_info else None
        get_logger(record.name).log(level, text, error=error, exc_info=error)


def _event(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    if current := event_id.current():
        event.setdefault("event_id", current)
    return event


def _error_text(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    error = event.get("error")
    if isinstance(error, BaseException):
        event["error"] = traces.text(error)
    raised = event.pop("exc_info", None)
    if isinstance(raised, BaseException):
        event["stack"] = traces.stack(raised)
    return event


def _renderers(kind: LogType) -> list[Processor]:
    if kind == "json":
        as_json = structlog.processors.JSONRenderer(sort_keys=False, ensure_ascii=False, default=str)
        return [structlog.processors.EventRenamer("msg"), as_json]
    return [_TextRenderer(colored=kind == "color")]


class _TextRenderer:
    """`time level message key=value ...`; values with spaces are quoted, line breaks stay visible as escapes."""

    def __init__(self, *, colored: bool) -> None:
        self._colored = colored

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> str:
        time, severity, message = event.pop("time", None), str(event.pop("level", "info")), event.pop("event", "")
        event.pop("component", None)
        shown = f"{_COLORS[severity]}{severity.upper():7}{_RESET}" if self._colored else f"{severity.upper():7}"
        text = " ".join([str(message), *_pairs(event.items())]).translate(_VISIBLE)
        return " ".join([*([str(time)] if time else []), shown, text])


def _pairs(items: Iterable[tuple[str, object]]) -> Iterable[str]:
    for key, value in items:
        if value is None or value in ("", [], ()):
            continue
        text = f"{value:.3f}" if isinstance(value, float) else str(value)
        if isinstance(value, list | tuple):
            text = ",".join(map(str, value))
        quoted = any(letter in text for letter in ' "=\n')
        yield f"{key}={_quote(text)}" if quoted else f"{key}={text}"


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
