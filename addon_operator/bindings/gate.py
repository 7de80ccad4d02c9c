"""When events of a binding reach its hook: its first context is the Synchronization.

Pure. Source: contract.md 2.3, 2.13, 3.1.
"""

from __future__ import annotations

from typing import Literal

from addon_operator.hooks.compaction import MOST_CONTEXTS, compact
from addon_operator.hooks.context import Context, ObjectEvent


class Gate:
    """Lets the events of one binding through, holds them back, or drops them.

    Attributes:
        state: `closed` before the Synchronization is asked for, `due` when it is asked for and nothing can be listed
            yet: what happens only concerns the snapshot; `held` until that run is over: events wait in order; then
            `open`.
    """

    def __init__(self) -> None:
        self.state: Literal["closed", "due", "held", "open"] = "closed"
        self._held: list[Context] = []
        self._most_held = MOST_CONTEXTS

    @property
    def drops(self) -> bool:
        """Whether what happens only concerns the snapshot."""
        return self.state in {"closed", "due"}

    def hold(self, event: ObjectEvent) -> None:
        """Holds an event back; many of them are compacted object by object."""
        self._held.append(event)
        if len(self._held) > self._most_held:
            self._held = list(compact(tuple(self._held), maybe_seen=0))
            self._most_held = max(MOST_CONTEXTS, 2 * len(self._held))

    def open(self) -> tuple[ObjectEvent, ...]:
        """Opens it; returns the events that were held back, in order."""
        self.state = "open"
        held, self._held = self._held, []
        return tuple(event for event in held if isinstance(event, ObjectEvent))

    def close(self) -> None:
        """Closes it, and forgets the events that were held back."""
        self.state = "closed"
        self._held = []
