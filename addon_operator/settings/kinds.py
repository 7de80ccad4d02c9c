"""What the text of a setting may be, and which value it stands for. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from addon_operator.documents.durations import parse_duration

_T_co = TypeVar("_T_co", covariant=True)
_Choice = TypeVar("_Choice", bound=str)

_PORTS: Final = range(2**16)
_MAX_NAME_LENGTH: Final = 253
_MAX_LABEL_LENGTH: Final = 63
_DNS_LABEL: Final = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_DNS_NAME: Final = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"
_LABEL_NAME: Final = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_LABEL_KEY: Final = rf"({_DNS_NAME}/)?{_LABEL_NAME}"
_LABEL_VALUE: Final = rf"({_LABEL_NAME})?"
_METRICS_PREFIX: Final = r"[a-zA-Z_:][a-zA-Z0-9_:]*"


@dataclasses.dataclass(frozen=True, slots=True)
class Kind(Generic[_T_co]):
    """A kind of text.

    Attributes:
        name: how `--help` names it.
        parse: returns the value that a text stands for; raises ValueError if it is not of this kind.
        choices: the only texts allowed, if any.
    """

    name: str
    parse: Callable[[str], _T_co]
    choices: tuple[str, ...] = ()


def choice(*choices: _Choice) -> Kind[_Choice]:
    """Returns the kind of text that is one of these, case-insensitive."""

    def parse(text: str) -> _Choice:
        for known in choices:
            if known == text.lower():
                return known
        raise ValueError(f"{text!r} is not one of {', '.join(choices)}")

    return Kind("choice", parse, choices)


def _name(text: str) -> str:
    if len(text) > _MAX_NAME_LENGTH or not re.fullmatch(_DNS_NAME, text):
        raise ValueError(
            f"{text!r} is not a name of an object: small letters, digits, - and . between them, "
            f"at most {_MAX_NAME_LENGTH} characters"
        )
    return text


def _dns_label(text: str) -> str:
    if len(text) > _MAX_LABEL_LENGTH or not re.fullmatch(_DNS_LABEL, text):
        raise ValueError(
            f"{text!r} is not a DNS label: small letters, digits, - between them, "
            f"at most {_MAX_LABEL_LENGTH} characters"
        )
    return text


def _prefix(text: str) -> str:
    if text and not re.fullmatch(_METRICS_PREFIX, text):
        raise ValueError(f"{text!r} cannot begin the name of a metric: letters, digits, _ and :, no digit first")
    return text


def _integer(text: str) -> int:
    try:
        number = int(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not an integer") from error
    if number < 0:
        raise ValueError(f"{number} is below zero")
    return number


def _count(text: str) -> int:
    number = _integer(text)
    if not number:
        raise ValueError("must be at least 1")
    return number


def _port(text: str) -> int:
    number = _integer(text)
    if number not in _PORTS:
        raise ValueError(f"{number} is not a port: the last one is {_PORTS[-1]}")
    return number


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a number") from error
    if not number >= 0:
        raise ValueError(f"{number} is below zero")
    return number


def _duration(text: str) -> float:
    seconds = parse_duration(text)
    if not seconds:
        raise ValueError(f"{text!r} is no time at all: it must be above zero")
    return seconds


def _boolean(text: str) -> bool:
    if text.lower() in {"true", "yes", "1", "on", "t", "y"}:
        return True
    if text.lower() in {"false", "no", "0", "off", "f", "n", ""}:
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def _paths(text: str) -> tuple[Path, ...]:
    return tuple(Path(part) for part in text.split(":") if part)


def _labels(text: str) -> tuple[tuple[str, str], ...]:
    return tuple(_label(part) for part in text.split(",") if part)


def _label(part: str) -> tuple[str, str]:
    key, equals, value = part.partition("=")
    if not equals or not re.fullmatch(_LABEL_KEY, key.strip()) or not re.fullmatch(_LABEL_VALUE, value.strip()):
        raise ValueError(f"{part!r} is not a label of the form key=value")
    return key.strip(), value.strip()


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


TEXT: Final = Kind("text", str)
NAME: Final = Kind("name", _name)
DNS_LABEL: Final = Kind("dns-label", _dns_label)
PREFIX: Final = Kind("prefix", _prefix)
INTEGER: Final = Kind("integer", _integer)
COUNT: Final = Kind("count", _count)
PORT: Final = Kind("port", _port)
NUMBER: Final = Kind("number", _number)
DURATION: Final = Kind("duration", _duration)
# A duration that may be 0.
GRACE: Final = Kind("grace", parse_duration)
BOOLEAN: Final = Kind("boolean", _boolean)
PATH: Final = Kind("path", Path)
PATHS: Final = Kind("paths", _paths)
LABELS: Final = Kind("labels", _labels)
LIST: Final = Kind("list", _list)
