"""When to try again: delays that grow up to a bound.

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
