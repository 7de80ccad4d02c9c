"""Seeds and plans (pure): each case is drawn from a seed and a name, says what it does, and how to repeat it."""

from __future__ import annotations

import dataclasses
import random
import shlex
from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def stream(seed: int, name: str) -> random.Random:
    """Random numbers for one purpose: the same seed and name give the same ones, whatever else was drawn before."""
    return random.Random(f"{seed}/{name}")


def shuffled(items: Iterable[T], seed: int, name: str) -> list[T]:
    """The items in an order that the seed chooses."""
    found = list(items)
    stream(seed, name).shuffle(found)
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """One case.

    Attributes:
        test: pytest node id of the test that carries it out.
        seed: what everything random in it is drawn from.
        steps: what is done, in order, in words.
        options: what the test needs besides the seed to do this case alone, as `--case=kill:12`.
    """

    test: str
    seed: int
    steps: tuple[str, ...]
    options: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The shell command that repeats this case, and only it."""
        words = [".venv/bin/pytest", self.test, "--robustness", f"--seed={self.seed}", *self.options]
        return shlex.join(words)

    def __str__(self) -> str:
        steps = "\n".join(f"  {number}. {step}" for number, step in enumerate(self.steps, 1))
        return f"seed: {self.seed}\nplan:\n{steps}\nrepeat: {self.command}"


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """A case whose end state was wrong.

    Attributes:
        plan: the case.
        problems: what was wrong, one a line.
    """

    plan: Plan
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([*(f"- {problem}" for problem in self.problems), str(self.plan)])


def report(failures: Sequence[Failure], *, done: int, known: int, what: str) -> str:
    """What a test with many cases prints: how many of how many were covered, and each failure."""
    lines = [f"{what}: {done} of {known} covered, {len(failures)} failed"]
    lines += [f"--- failure {number} ---\n{failure}" for number, failure in enumerate(failures, 1)]
    return "\n".join(lines)
