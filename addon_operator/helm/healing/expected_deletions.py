"""What hooks, helm and modules delete on purpose, so that it is not restored.

Pure. An announced deletion has to begin within a minute, else it has failed. An object that goes, or is gone, on
purpose stays so until it exists again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Final

from addon_operator.kube.refs import ObjectKey

_BEGINS_WITHIN_S: Final = 60.0


class ExpectedDeletions:
    """Objects whose deletion was announced, and objects that were deleted as announced.

    Instants are seconds of one monotonic clock.
    """

    def __init__(self) -> None:
        # Until when the deletion may begin; infinity once it has begun.
        self._until: dict[ObjectKey, float] = {}

    def expect(self, key: ObjectKey, now: float) -> None:
        """Notes that an object is about to be deleted."""
        self._until[key] = max(self._until.get(key, 0.0), now + _BEGINS_WITHIN_S)

    def cancel(self, key: ObjectKey) -> None:
        """Notes that the deletion was refused; one that has begun goes on."""
        if self._until.get(key) != math.inf:
            self._until.pop(key, None)

    def confirm(self, key: ObjectKey, now: float) -> bool:
        """Notes that the deletion of an object has begun or is over; returns whether it was expected."""
        expected = self._until.pop(key, -math.inf) >= now
        if expected:
            self._until[key] = math.inf
        return expected

    def exists(self, key: ObjectKey) -> None:
        """Notes that an object exists and is not being deleted: one that was gone on purpose is back."""
        if self._until.get(key) == math.inf:
            del self._until[key]

    def forget(self, keys: Collection[ObjectKey]) -> None:
        """Forgets all announcements about these objects, also of deletions that are over."""
        self.retain(lambda key: key not in keys)

    def retain(self, is_wanted: Callable[[ObjectKey], bool]) -> None:
        """Forgets all objects but these."""
        self._until = {key: until for key, until in self._until.items() if is_wanted(key)}
