"""When to retry, when a failure is worth a warning, and how often something may be done at all.

Pure: no clock is read here. The clock of the operator is that of the event loop: everything that waits uses the loop's
timers and `loop.time()`, and tests replace the loop by one whose time is virtual (`tests/fakes/clock.py`), so there is
no Protocol for a clock. The exceptions are wall clocks, which their users take as a parameter: `schedule/timer.py`
(when a crontab is due), `files/digests.py` (what the kernel dates changes by).
"""

from __future__ import annotations

import dataclasses
from typing import Final

# The first failures of a series are mostly over before a person could look.
WORTH_A_WARNING: Final = 3


@dataclasses.dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Delays that double from `first_s` up to `most_s`.

    Source: contract.md 2.13 (5 s to 30 s for tasks).
    """

    first_s: float = 5.0
    most_s: float = 30.0

    def delay_s(self, failures: int) -> float:
        """Returns the seconds to wait after a number of failures in a row (1 for the first)."""
        doublings = min(max(failures - 1, 0), 30)
        return float(min(self.first_s * 2**doublings, self.most_s))


class Backoff:
    """Counts the failures of a series; says when to retry, and which failure to log as a warning.

    Attributes:
        failures: in a row, the last one included.
        warned: whether one of the series was worth a warning, so that its end is worth a line in the log as well.
    """

    def __init__(
        self, policy: RetryPolicy, *, warns_at: int = WORTH_A_WARNING, warns_again_every: int | None = None
    ) -> None:
        """Begins without failures.

        Args:
            policy: the delays.
            warns_at: the number of the failure that is worth a warning.
            warns_again_every: each failure whose number is a multiple of this one is worth another warning.
        """
        self.failures = 0
        self.warned = False
        self._policy = policy
        self._warns_at = warns_at
        self._warns_again_every = warns_again_every

    @property
    def delay_s(self) -> float:
        """The seconds between the last failure and the next attempt; 0 without a failure."""
        return self._policy.delay_s(self.failures) if self.failures else 0.0

    def failed(self) -> float:
        """Counts a failure; returns the seconds to wait before the next attempt."""
        self.failures += 1
        return self.delay_s

    def take_warning(self) -> bool:
        """Returns whether to log the last failure as a warning: once, unless again after so many failures."""
        repeats = self._warns_again_every is not None and self.failures % self._warns_again_every == 0
        due = self.failures >= self._warns_at and (not self.warned or repeats)
        self.warned = self.warned or due
        return due

    def restart(self) -> None:
        """Begins the delays anew; the series goes on, since it is not known to have ended."""
        self.failures = 0

    def succeeded(self) -> None:
        """Ends the series."""
        self.failures, self.warned = 0, False


class TokenBucket:
    """Allows a burst of requests, or runs, and `rate` per second after that; those that wait keep their order.

    Source: contract.md 1.1 (KUBE_CLIENT_QPS, KUBE_CLIENT_BURST), 2.2 (settings).
    """

    def __init__(self, rate: float, burst: int) -> None:
        """Starts full.

        Args:
            rate: tokens per second; 0 means no limit.
            burst: the maximum number of tokens; below 1 counts as 1.
        """
        self._rate = rate
        self._most = float(max(burst, 1))
        self._tokens = self._most
        self._at: float | None = None

    def reserve(self, now: float) -> float:
        """Takes one token, if need be one that does not exist yet; returns the seconds until it does.

        Args:
            now: a monotonic clock in seconds.
        """
        if self._rate <= 0:
            return 0.0
        passed = 0.0 if self._at is None else max(now - self._at, 0.0)
        self._at = now
        self._tokens = min(self._tokens + passed * self._rate, self._most) - 1
        return max(-self._tokens / self._rate, 0.0)

    def wait_s(self, now: float) -> float:
        """Returns the seconds until there is a token, without taking it."""
        if self._rate <= 0:
            return 0.0
        passed = 0.0 if self._at is None else max(now - self._at, 0.0)
        missing = 1 - min(self._tokens + passed * self._rate, self._most)
        # What rounding leaves would be waited for again and again.
        return missing / self._rate if missing > 1e-9 else 0.0
