"""How far the operator is: what its probes, `/status/converge` and `--once` conclude from the same facts. Pure.

Source: contract.md 2.16.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from datetime import datetime

from addon_operator.documents.jsondoc import JsonObject


class Startup(enum.Enum):
    """Where the first converge is."""

    NOT_STARTED = "not started"
    IN_PROGRESS = "in progress"
    DONE = "done"


@dataclasses.dataclass(frozen=True, slots=True)
class OperatorStatus:
    """The facts from which probes, `/status/converge` and `--once` conclude.

    Attributes:
        startup: state of the first converge.
        tasks: tasks that the running converge still has in the queues; 0 when none runs.
        held: names of the modules that are neither upgraded nor removed.
        stopping: the operator is stopping, so nobody should rely on it.
        waits: what has to happen before it starts to work, such as the end of another operator.
        api_server_away_since: since when the API server has not answered, if that makes the operator not ready.
        stuck: a task that the first converge needs has failed too often for `--once` to wait any longer.
        undrained: queue -> tasks that are left in it when `--once` ends.
        failed: names of the modules whose last run or hook run failed.
    """

    startup: Startup
    tasks: int = 0
    held: tuple[str, ...] = ()
    stopping: bool = False
    waits: str = ""
    api_server_away_since: datetime | None = None
    stuck: bool = False
    undrained: Mapping[str, int] = dataclasses.field(default_factory=dict)
    failed: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether the operator has run every module once, still works and can reach what it needs."""
        return self.startup is Startup.DONE and not self.stopping and self.api_server_away_since is None

    def readiness(self) -> str:
        """Returns why it is ready or not, in a sentence."""
        if self.stopping:
            return "Stopping"
        if self.waits:
            return self.waits
        if self.startup is not Startup.DONE:
            return "Startup converge in progress"
        if (since := self.api_server_away_since) is not None:
            return f"The API server has not answered since {since.isoformat(timespec='seconds')}\n"
        return "Startup converge done."

    @property
    def exit_code(self) -> int:
        """What `--once` ends with after the first converge: 0, or 1 if something failed or was left undone."""
        done = self.startup is Startup.DONE and not self.stuck
        return 0 if done and not self.undrained and not self.failed else 1

    def text(self) -> str:
        """Returns the status page of the first and the running converge: one line for each fact."""
        first = {
            Startup.NOT_STARTED: "STARTUP_CONVERGE_NOT_STARTED",
            Startup.IN_PROGRESS: f"STARTUP_CONVERGE_IN_PROGRESS: {self.tasks} tasks",
            Startup.DONE: "STARTUP_CONVERGE_DONE",
        }[self.startup]
        second = f"CONVERGE_IN_PROGRESS: {self.tasks} tasks" if self.tasks else "CONVERGE_WAIT_TASK"
        held = f"MODULES_HELD: {', '.join(self.held)}\n" if self.held else ""
        return f"{first}\n{second}\n{held}"

    def document(self) -> JsonObject:
        """Returns the same facts under the keys of the contract, and what is held if anything is."""
        document: JsonObject = {
            "CONVERGE_IN_PROGRESS": self.tasks,
            "CONVERGE_WAIT_TASK": self.tasks == 0,
            "STARTUP_CONVERGE_DONE": self.startup is Startup.DONE,
            "STARTUP_CONVERGE_IN_PROGRESS": self.tasks if self.startup is Startup.IN_PROGRESS else 0,
            "STARTUP_CONVERGE_NOT_STARTED": self.startup is Startup.NOT_STARTED,
        }
        return {**document, "MODULES_HELD": [*self.held]} if self.held else document
