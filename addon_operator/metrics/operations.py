"""The operations in the file named by METRICS_PATH.

Pure: text in, operations or a list of problems out. `hooks.HookMetrics` applies them; hook runs call both.
Source: contract.md 2.5, 6.3.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from typing import Literal, TypeAlias

from addon_operator.documents import jsondoc
from addon_operator.documents.fields import Fields, parse_map
from addon_operator.documents.jsondoc import JsonValue
from addon_operator.errors import InputError

SeriesKind = Literal["counter", "gauge", "histogram"]

_KINDS: dict[str, SeriesKind] = {"add": "counter", "set": "gauge", "observe": "histogram"}
_ACTIONS = (*_KINDS, "expire")
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class MetricsError(InputError):
    """What a hook wrote about metrics cannot be used.

    Attributes:
        problems: one line for each, each naming the operation and the field.
    """

    def __init__(self, where: str, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(f"{where}: {problem}" for problem in problems))
        self.problems = problems


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """One value for one series.

    Attributes:
        index: which operation of the file it was, from 1; for messages.
        name: of the metric, without any prefix.
        kind: what `add`, `set` and `observe` make: counter, gauge, histogram.
        value: finite; not negative for a counter.
        labels: as the hook gave them, sorted by name; null is the empty text.
        buckets: upper bounds, rising, without infinity; empty unless a histogram.
        group: the group that the series lives and expires with; None if it stays for good.
    """

    index: int
    name: str
    kind: SeriesKind
    value: float
    labels: tuple[tuple[str, str], ...] = ()
    buckets: tuple[float, ...] = ()
    group: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Expire:
    """Drops every series of a group.

    Attributes:
        index: which operation of the file it was, from 1; for messages.
        group: its name.
    """

    index: int
    group: str


MetricOperation: TypeAlias = Record | Expire


def parse(data: bytes, where: str) -> tuple[MetricOperation, ...]:
    """Reads a stream of operations, in the order of the file; an empty file is none.

    Unknown fields are ignored, and null counts as absent.

    Args:
        data: JSON objects one after another.
        where: what to call the file in errors: the hook and the file.

    Raises:
        MetricsError: every problem of every operation.

    Source: contract.md 2.5.
    """
    operations: list[MetricOperation] = []
    problems: list[str] = []
    try:
        for index, value in enumerate(jsondoc.stream(data), start=1):
            errors: list[str] = []
            operations.append(parse_map(value, "", errors, functools.partial(_operation, index=index), lenient=True))
            problems += [f"operation {index}{_title(value)}: {error}" for error in errors]
    except ValueError as error:
        problems.append(str(error))
    if problems:
        raise MetricsError(where, tuple(problems))
    return tuple(operations)


def _title(value: JsonValue) -> str:
    """Returns the metric's name in brackets, if it has one."""
    name = value.get("name") if isinstance(value, dict) else None
    return f" ({name})" if isinstance(name, str) and _NAME.fullmatch(name) else ""


def _operation(fields: Fields, index: int) -> MetricOperation:
    action = _action(fields)
    if action == "expire":
        return Expire(index, fields.text("group", required=True))
    group = fields.text("group") or None
    name, value = _name(fields), _value(fields, action)
    labels = fields.one("labels", functools.partial(_labels, action=action)) or ()
    buckets = _buckets(fields) if action == "observe" else ()
    return Record(index, name, _KINDS.get(action, "gauge"), value, labels, buckets, group)


def _action(fields: Fields) -> str:
    """Takes the action, which the field `add` or `set` may stand for; empty if that is the problem."""
    shortcuts = [name for name in ("add", "set") if fields.has(name)]
    if not shortcuts:
        return fields.choice("action", _ACTIONS, required=True)
    if len(shortcuts) == 2:
        fields.errors.append("add, set: only one of them is possible")
    elif (fields.text("action") or shortcuts[0]) != shortcuts[0]:
        fields.fail("action", f"contradicts the field {shortcuts[0]}")
    else:
        return shortcuts[0]
    return ""


def _name(fields: Fields) -> str:
    name = fields.text("name", required=True)
    if name and not _NAME.fullmatch(name):
        fields.fail("name", "must be letters, digits, _ and :, not starting with a digit")
    return name


def _value(fields: Fields, action: str) -> float:
    key = action if action in {"add", "set"} and fields.has(action) else "value"
    if key != "value" and fields.has("value"):
        fields.fail("value", f"the field {key} gives it already")
    number = fields.number(key, required=bool(action))
    if action == "add" and number < 0:
        fields.fail(key, "must not be negative, a counter only grows")
    return number


def _labels(fields: Fields, action: str) -> tuple[tuple[str, str], ...]:
    for name in fields.map:
        if not _LABEL.fullmatch(name) or name.startswith("__"):
            fields.errors.append(f"{fields.path}: {name!r} is not a label name")
        elif name == "le" and action == "observe":
            fields.errors.append(f"{fields.path}: le belongs to the buckets of a histogram")
    return tuple((name, fields.text(name).encode("utf-8", "replace").decode()) for name in sorted(fields.map))


def _buckets(fields: Fields) -> tuple[float, ...]:
    bounds = fields.numbers("buckets", minimum=1, required=True)
    if any(low >= high for low, high in itertools.pairwise(bounds)):
        fields.fail("buckets", "must be in ascending order")
    return bounds
