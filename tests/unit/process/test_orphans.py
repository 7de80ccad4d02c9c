"""Whose a process is that nobody waits for any more."""

from __future__ import annotations

import pytest

from addon_operator.process.orphans import Run, is_to_end

EARLY, LATE = Run("1-2-3-1", since=100), Run("1-2-3-2", since=200)


@pytest.mark.parametrize(
    ("marked", "start", "others", "ends"),
    [
        pytest.param("1-2-3-9", 150, [EARLY, LATE], True, id="of a run that has ended"),
        pytest.param("1-2-3-1", 150, [EARLY], False, id="of a run that goes on"),
        pytest.param("", 150, [], True, id="nobody runs"),
        pytest.param("", 150, [EARLY], False, id="may belong to a run that goes on"),
        pytest.param("", 200, [LATE], False, id="started in the same moment"),
        pytest.param("", 150, [LATE], True, id="older than all that goes on"),
        pytest.param("", 250, [LATE, EARLY], False, id="may belong to several"),
    ],
)
def test_which_orphans_are_ended_with_a_run(marked: str, start: int, others: list[Run], *, ends: bool) -> None:
    assert is_to_end(marked, start, others) == ends
