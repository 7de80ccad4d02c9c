"""Killed, shown an older cluster, or not told of what it did, at any point: a converge ends the same."""

from __future__ import annotations

import concurrent.futures
import itertools
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from addon_operator.devcluster import DevCluster
from tests.robustness import plan
from tests.robustness.interruption import MODES, Case, Mode, Reference, Result, play, reference
from tests.robustness.plan import Failure, Plan
from tests.robustness.requests import Point

HERE = "tests/robustness/test_interruptions.py"
# All modes together take about so long, unless --minutes says otherwise.
MINUTES = 10.0
SIDE_BY_SIDE = 3
# A case whose point does not come up has shown nothing; which of two modules of equal order is first is left to chance.
MOST_MISSED = 0.1
# What is found and not mended yet: a part of what is wrong in the end, and why. It is shown, and fails nothing; whoever
# mends it takes it out here and in docs/robustness.md.
OPEN: Mapping[str, str] = {}
# What `make test` plays: one of each mode, where much is under way.
SHORT = (
    "kill:PUT secrets/sh.helm.release.v1.keeper.v1",
    "stale:start helm upgrade later:6",
    "withhold:PUT configmaps/addon-operator",
)


@pytest.fixture(scope="module")
def undisturbed(plane: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return reference(plane, tmp_path_factory.mktemp("reference"))


def cases(mode: Mode, points: Sequence[Point], seed: int) -> list[Case]:
    """All cases of a mode, in the order of the seed."""
    dice = plan.stream(seed, f"{mode} back")
    chosen = [point for point in points if mode != "withhold" or not point.what.startswith("start ")]
    found = [Case(mode, point, dice.randint(1, 8) if mode == "stale" else 0) for point in chosen]
    return plan.shuffled(found, seed, mode)


def carry_out(
    plane: DevCluster, directory: Path, chosen: Sequence[Case], undisturbed: Reference, *, until: float
) -> list[tuple[Case, Result]]:
    """Plays cases, some side by side, until the time is over (`time.monotonic`)."""
    numbers, results, lock = itertools.count(1), list[tuple[Case, Result]](), threading.Lock()

    def work(waiting: Iterator[Case]) -> None:
        while time.monotonic() < until:
            with lock:
                case = next(waiting, None)
                number = next(numbers)
            if case is None:
                return
            result = play(plane, directory / str(number), case, undisturbed)
            with lock:
                results.append((case, result))

    shared = iter(chosen)
    with concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for future in [pool.submit(work, shared) for _ in range(SIDE_BY_SIDE)]:
            future.result()
    return results


def check(seed: int, results: Sequence[tuple[Case, Result]], *, known: int, what: str) -> None:
    """Shows what was covered; fails with the plan of each case that went wrong."""
    failures = []
    for case, result in results:
        problems = tuple(problem for problem in result.problems if problem not in OPEN)
        for problem in sorted(OPEN.keys() & set(result.problems)):
            _say(f"known: {case}: {problem}: {OPEN[problem]}")
        if problems:
            test = f"{HERE}::test_the_end_is_the_same[{case.mode}]"
            failures.append(Failure(Plan(test, seed, case.steps(), (f"--case={case}",)), problems))
            _say(f"==== log of {case}\n{result.log}")
    missed = [str(case) for case, result in results if not result.struck]
    text = plan.report(failures, done=len(results) - len(missed), known=known, what=what)
    _say(f"{text}\nnot reached: {', '.join(missed) or 'none'}")
    assert not failures, text
    assert len(missed) <= MOST_MISSED * len(results) + 1, f"not reached: {missed}"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


@pytest.mark.timeout(900)
def test_one_of_each_mode(plane: DevCluster, tmp_path: Path, undisturbed: Reference, seed: int) -> None:
    chosen = [Case.parse(text) for text in SHORT]
    results = carry_out(plane, tmp_path, chosen, undisturbed, until=float("inf"))
    check(seed, results, known=len(chosen), what="one of each mode")


@pytest.mark.robustness
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("mode", MODES)
def test_the_end_is_the_same(
    plane: DevCluster, tmp_path: Path, undisturbed: Reference, mode: Mode, request: pytest.FixtureRequest
) -> None:
    seed: int = request.getfixturevalue("seed")
    chosen = cases(mode, undisturbed.points, seed)
    known = len(chosen)
    if text := request.config.getoption("--case"):
        chosen = [Case.parse(text)]
        if chosen[0].mode != mode:
            pytest.skip("--case is of another mode")
    minutes = request.config.getoption("--minutes") or MINUTES
    until = time.monotonic() + 60 * minutes / len(MODES)
    results = carry_out(plane, tmp_path, chosen, undisturbed, until=until)
    check(seed, results, known=known, what=mode)
