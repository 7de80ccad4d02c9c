"""The figures of a benchmark run as a table and as JSON. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from addon_operator.documents.jsondoc import JsonObject, JsonValue


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure.

    Attributes:
        name: as `--only` takes it.
        text: what was measured.
        value: in `unit`.
        target: what the figure should be at most, on two cores; None if nothing was promised.
        note: what else was seen, such as the number of helm processes.
    """

    name: str
    text: str
    value: float
    unit: str
    target: float | None
    note: str = ""

    def document(self) -> JsonValue:
        """Gives the figure as JSON."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


def table(figures: Sequence[Figure]) -> str:
    """Lays the figures out for people."""
    rows = [("measure", "measured", "target", "also seen")]
    rows += [(one.text, f"{one.value:.2f} {one.unit}", _target(one), one.note) for one in figures]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    rows.insert(1, tuple("-" * width for width in (*widths, len(rows[0][3]))))  # type: ignore[arg-type]
    return "\n".join(
        f"{text:<{widths[0]}}  {value:>{widths[1]}}  {target:>{widths[2]}}  {note}".rstrip()
        for text, value, target, note in rows
    )


def document(figures: Sequence[Figure], **facts: JsonValue) -> JsonObject:
    """Gives all figures as JSON, with what should be known about the run."""
    return {**facts, "figures": [figure.document() for figure in figures]}


def _target(figure: Figure) -> str:
    return "-" if figure.target is None else f"<= {figure.target:g} {figure.unit}"
