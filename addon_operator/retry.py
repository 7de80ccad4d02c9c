"""When to try again, and how often something may be done at all.

Pure: no clock is read here.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Delays that double from `first_s` up to `most_s`.

    Source: contract.md 2.13 (5 s to 30 s for tasks).
    """

    first_s: float = 5.0
    most_s: float = 30.0

    def delay_s(self, failures: int) -> float:
        """Answers how long to wait after the given number of failures in a row (1 for the first)."""
        doublings = min(max(failures - 1, 0), 30)
        return float(min(self.first_s * 2**doublings, self.most_s))


class TokenBucket:
    """Allows `burst` requests, or runs, at once and `rate` a second after that; those that wait keep their order.

    Source: contract.md 1.1 (KUBE_CLIENT_QPS, KUBE_CLIENT_BURST), 2.2 (settings).
    """

    def __init__(self, rate: float, burst: int) -> None:
        """Starts full.

        Args:
            rate: tokens a second; 0 means no limit.
            burst: the most tokens that can be saved up; below 1 counts as 1.
        """
        self._rate = rate
        self._most = float(max(burst, 1))
        self._tokens = self._most
        self._at: float | None = None

    def reserve(self, now: float) -> float:
        """Takes one token, if need be one that does not exist yet; answers the seconds until it does.

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
        """Answers the seconds until there is a token, without taking it."""
        if self._rate <= 0:
            return 0.0
        passed = 0.0 if self._at is None else max(now - self._at, 0.0)
        missing = 1 - min(self._tokens + passed * self._rate, self._most)
        # What rounding leaves would be waited for again and again.
        return missing / self._rate if missing > 1e-9 else 0.0
