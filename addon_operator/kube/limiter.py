"""How long a request must wait so that the API server is not asked too often.

Pure: the caller hands the clock in. Used by the client only.
"""

from __future__ import annotations


class TokenBucket:
    """Allows `burst` requests at once and `rate` a second after that; waiting requests keep their order.

    Source: contract.md 1.1 (KUBE_CLIENT_QPS, KUBE_CLIENT_BURST).
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
