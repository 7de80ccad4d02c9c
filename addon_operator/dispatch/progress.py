"""How far converges have come; written by the converge, read by everybody. State only."""

from __future__ import annotations

import asyncio
import dataclasses

from addon_operator.tasks.task import Reason


@dataclasses.dataclass(slots=True)
class Progress:
    """How far converges have come since the operator started.

    Attributes:
        begun: the first one has begun.
        first_done: set when the first one is over.
        count: finished ones.
        started_at: loop time at which the running one began; None if none runs.
        activation: the reason of the first converge while it runs, else empty (the label of contract.md 2.15).
    """

    begun: bool = False
    first_done: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    count: int = 0
    started_at: float | None = None

    @property
    def activation(self) -> str:
        """The reason of tasks while the first converge runs; empty afterwards."""
        return "" if self.first_done.is_set() else Reason.OPERATOR_STARTUP
