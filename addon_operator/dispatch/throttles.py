"""How often a hook may run: the token buckets of `settings.executionMinInterval` and `executionBurst`.

Pure: no clock is read here. Source: contract.md 1.2, 2.2.
"""

from __future__ import annotations

from collections.abc import Callable

from addon_operator.hooks.call import HookId
from addon_operator.hooks.config.model import Throttle
from addon_operator.retry import TokenBucket


class Throttles:
    """One bucket for each hook with a limit of its own."""

    def __init__(self, exists: Callable[[HookId], bool]) -> None:
        """Starts empty.

        Args:
            exists: returns whether a hook can still run; the buckets of others are dropped when a new one is made.
        """
        self._exists = exists
        self._buckets: dict[HookId, tuple[Throttle, TokenBucket]] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def wait_s(self, hook: HookId, throttle: Throttle | None, now: float) -> float:
        """Returns for how many seconds a run has to wait; 0 takes a token, and the hook may run.

        Args:
            hook: which one.
            throttle: its limit; None for none. A hook whose limit has changed begins with a full bucket.
            now: a monotonic clock in seconds.
        """
        if throttle is None:
            self._buckets.pop(hook, None)
            return 0.0
        known = self._buckets.get(hook)
        if known is None or known[0] != throttle:
            self._buckets = {other: bucket for other, bucket in self._buckets.items() if self._exists(other)}
            known = self._buckets[hook] = (throttle, TokenBucket(1 / throttle.min_interval_s, throttle.burst))
        bucket = known[1]
        wait_s = bucket.wait_s(now)
        if wait_s <= 0:
            bucket.reserve(now)
        return wait_s
