"""What the benchmarks print. The measurements themselves take minutes and are not tests."""

from __future__ import annotations

from click.testing import CliRunner

from benchmarks.report import Figure, table
from benchmarks.run import NAMES, main


def test_table_shows_figures_beside_their_targets() -> None:
    figures = [
        Figure("a", "cold start", 3.456, "s", 6.5, "50 helm processes"),
        Figure("b", "resident memory", 71, "MiB", 80),
    ]
    assert table(figures).splitlines() == [
        "measure           measured     target  also seen",
        "---------------  ---------  ---------  ---------",
        "cold start          3.46 s   <= 6.5 s  50 helm processes",
        "resident memory  71.00 MiB  <= 80 MiB",
    ]


def test_document_of_a_figure() -> None:
    assert Figure("a", "cold start", 3.5, "s", 6.5, "n").document() == {
        "name": "a",
        "text": "cold start",
        "value": 3.5,
        "unit": "s",
        "target": 6.5,
        "note": "n",
    }


def test_help_names_every_figure() -> None:
    shown = CliRunner().invoke(main, ["--help"])
    assert shown.exit_code == 0
    assert all(name in shown.output for name in NAMES)
