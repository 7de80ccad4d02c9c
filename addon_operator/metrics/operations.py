"""What a hook says in the file named by METRICS_PATH, as typed operations.

Pure: text in, operations or a list of problems out. What the operations do is in `hook_metrics.HookMetrics`; hook runs
call both. Source: contract.md 2.5, 6.3.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import Literal, TypeAlias

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
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

    Keys that nobody knows are passed over, as the peer does.

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
            found = _Fields(value)
            operation = found.operation(index)
            problems += [f"operation {index}{found.title}: {problem}" for problem in found.problems]
            operations += [operation] if operation else []
    except ValueError as error:
        problems.append(str(error))
    if problems:
        raise MetricsError(where, tuple(problems))
    return tuple(operations)


class _Fields:
    """The fields of one operation and what is wrong with them."""

    def __init__(self, value: JsonValue) -> None:
        self.problems: list[str] = []
        self._fields: JsonObject = value if isinstance(value, dict) else {}
        if not isinstance(value, dict):
            self.problems.append("must be an object")

    @property
    def title(self) -> str:
        """The metric's name in brackets, if there is one."""
        name = self._fields.get("name")
        return f" ({name})" if isinstance(name, str) and _NAME.fullmatch(name) else ""

    def operation(self, index: int) -> MetricOperation | None:
        """Answers the operation; None if there are problems."""
        if self.problems:
            return None
        action = self._action()
        if action == "expire":
            group = self._required("group")
            return Expire(index, group) if group else None
        group = self._text("group")
        name, value, labels = self._name(), self._value(action), self._labels(action)
        buckets = self._buckets() if action == "observe" else ()
        if self.problems or action is None:
            return None
        return Record(index, name, _KINDS[action], value, labels, buckets, group)

    def _action(self) -> str | None:
        shortcuts = [name for name in ("add", "set") if self._fields.get(name) is not None]
        action = self._text("action")
        if len(shortcuts) == 2:
            self.problems.append("add, set: only one of them may be given")
        elif shortcuts and action not in {None, shortcuts[0]}:
            self.problems.append(f"action: contradicts the field {shortcuts[0]}")
        elif shortcuts:
            return shortcuts[0]
        elif action is None:
            self.problems.append("action: is required: one of " + ", ".join(_ACTIONS))
        elif action not in _ACTIONS:
            self.problems.append("action: must be one of " + ", ".join(_ACTIONS))
        else:
            return action
        return None

    def _text(self, field: str) -> str | None:
        value = self._fields.get(field)
        if value is None or isinstance(value, str):
            return value or None
        self.problems.append(f"{field}: must be a string")
        return None

    def _required(self, field: str) -> str | None:
        if self._fields.get(field) in (None, ""):
            self.problems.append(f"{field}: is required")
            return None
        return self._text(field)

    def _name(self) -> str:
        name = self._required("name") or ""
        if name and not _NAME.fullmatch(name):
            self.problems.append("name: must be letters, digits, _ and :, not starting with a digit")
        return name

    def _value(self, action: str | None) -> float:
        shortcut = action if action in {"add", "set"} and self._fields.get(action) is not None else None
        given = self._fields.get("value")
        if shortcut and given is not None:
            self.problems.append(f"value: the field {shortcut} gives it already")
        field = shortcut or "value"
        raw = self._fields.get(field)
        if raw is None:
            if action is not None:
                self.problems.append("value: is required")
            return 0.0
        number = self._number(raw, field)
        if action == "add" and number < 0:
            self.problems.append(f"{field}: must not be negative, a counter only grows")
        return number

    def _number(self, raw: JsonValue, field: str) -> float:
        if isinstance(raw, bool) or not isinstance(raw, int | float):
            self.problems.append(f"{field}: must be a number")
            return 0.0
        return float(raw)

    def _labels(self, action: str | None) -> tuple[tuple[str, str], ...]:
        labels = self._fields.get("labels")
        if labels is None:
            return ()
        if not isinstance(labels, dict):
            self.problems.append("labels: must be an object")
            return ()
        return tuple(sorted(self._label(name, value, action) for name, value in labels.items()))

    def _label(self, name: str, value: JsonValue, action: str | None) -> tuple[str, str]:
        if not _LABEL.fullmatch(name) or name.startswith("__"):
            self.problems.append(f"labels: {name!r} is not a label name")
        elif name == "le" and action == "observe":
            self.problems.append("labels: le belongs to the buckets of a histogram")
        if value is None:
            return name, ""
        if isinstance(value, str):
            return name, value.encode("utf-8", "replace").decode()
        self.problems.append(f"labels.{name}: must be a string")
        return name, ""

    def _buckets(self) -> tuple[float, ...]:
        buckets = self._fields.get("buckets")
        if not isinstance(buckets, list) or not buckets:
            self.problems.append("buckets: a list of numbers is required for observe")
            return ()
        bounds = tuple(self._number(bound, f"buckets[{place}]") for place, bound in enumerate(buckets))
        if any(low >= high for low, high in itertools.pairwise(bounds)):
            self.problems.append("buckets: must rise")
        return bounds
