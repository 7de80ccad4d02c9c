"""How far the operator is, as its probes and `/status/converge` tell it. Pure; called by `server.public`.

Source: contract.md 2.16.
"""

from __future__ import annotations

import dataclasses
import enum

from addon_operator.documents.jsondoc import JsonObject


class Startup(enum.Enum):
    """Where the first converge is."""

    NOT_STARTED = "not started"
    IN_PROGRESS = "in progress"
    DONE = "done"


@dataclasses.dataclass(frozen=True, slots=True)
class ConvergeStatus:
    """Where the first converge and the present one are.

    Attributes:
        startup: state of the first converge.
        tasks: tasks that the running converge still has in the queues; 0 when none runs.
        held: names of the modules that are neither upgraded nor removed.
        stopping: the operator is on its way out, so nobody should rely on it.
        waits: what has to happen before it starts to work, such as the end of another operator.
    """

    startup: Startup
    tasks: int = 0
    held: tuple[str, ...] = ()
    stopping: bool = False
    waits: str = ""

    @property
    def ready(self) -> bool:
        """Answers whether the operator has brought everything up once and still works."""
        return self.startup is Startup.DONE and not self.stopping

    def readiness(self) -> str:
        """Says the same in a sentence."""
        if self.stopping:
            return "Stopping"
        if self.waits:
            return self.waits
        return "Startup converge done." if self.ready else "Startup converge in progress"

    def text(self) -> str:
        """Gives one line for each fact."""
        first = {
            Startup.NOT_STARTED: "STARTUP_CONVERGE_NOT_STARTED",
            Startup.IN_PROGRESS: f"STARTUP_CONVERGE_IN_PROGRESS: {self.tasks} tasks",
            Startup.DONE: "STARTUP_CONVERGE_DONE",
        }[self.startup]
        second = f"CONVERGE_IN_PROGRESS: {self.tasks} tasks" if self.tasks else "CONVERGE_WAIT_TASK"
        held = f"MODULES_HELD: {', '.join(self.held)}\n" if self.held else ""
        return f"{first}\n{second}\n{held}"

    def document(self) -> JsonObject:
        """Gives the same facts under the peer's keys, and what is held if anything is."""
        document: JsonObject = {
            "CONVERGE_IN_PROGRESS": self.tasks,
            "CONVERGE_WAIT_TASK": self.tasks == 0,
            "STARTUP_CONVERGE_DONE": self.startup is Startup.DONE,
            "STARTUP_CONVERGE_IN_PROGRESS": self.tasks if self.startup is Startup.IN_PROGRESS else 0,
            "STARTUP_CONVERGE_NOT_STARTED": self.startup is Startup.NOT_STARTED,
        }
        return {**document, "MODULES_HELD": [*self.held]} if self.held else document
