"""Whether the API server answers, as the requests show that are made anyway.

The transport reports every exchange to it. Nothing is asked in order to find out: watches that break, and what tries to
watch again, show it soon enough, and while all is quiet their renewals do, which come within a minute.
"""

from __future__ import annotations

import asyncio
import datetime

from addon_operator.logs import get_logger

_log = get_logger("kube")

# One may be a long list that took too long; a server that is away fails everybody.
_FAILURES = 3
_REMIND_S = 60.0


class Reachability:
    """Whether the API server answers.

    Attributes:
        failures: exchanges without an answer since the last answer.
        reason: why the last one failed; empty if it did not.
    """

    def __init__(self, *, remind_s: float = _REMIND_S) -> None:
        """Begins with a server that answers.

        Args:
            remind_s: how often the log says that the server does not answer, while `run` runs.
        """
        self.failures = 0
        self.reason = ""
        self._remind_s = remind_s
        self._since: datetime.datetime | None = None
        self._began = 0.0
        self._changed = asyncio.Event()

    @property
    def away_since(self) -> datetime.datetime | None:
        """When the API server began not to answer (aware, UTC); None while it answers."""
        return self._since if self.failures >= _FAILURES else None

    @property
    def away_s(self) -> float:
        """For how many seconds the API server has not answered; 0 while it does."""
        return _now() - self._began if self.failures >= _FAILURES else 0.0

    def answered(self) -> None:
        """The API server has answered, whatever it said."""
        if self.failures:
            was_away = self.failures >= _FAILURES
            self.failures = 0
            if was_away:
                self._changed.set()

    def failed(self, reason: str) -> None:
        """There was no answer of an API server."""
        self.failures += 1
        self.reason = reason
        if self.failures == 1:
            self._since, self._began = datetime.datetime.now(datetime.UTC), _now()
        if self.failures == _FAILURES:
            self._changed.set()

    async def run(self) -> None:
        """Logs that the API server does not answer, repeatedly, and when it answers again, until cancelled."""
        while True:
            while self.away_since is None:
                await self._change()
            began = self._began
            while self.away_since is not None:
                _log.warning(
                    "the API server does not answer: nothing can be changed or noticed until it does; trying again",
                    since=self.away_since.isoformat(timespec="seconds"),
                    away_s=round(self.away_s),
                    reason=self.reason,
                )
                try:
                    async with asyncio.timeout(self._remind_s):
                        await self._change()
                except TimeoutError:
                    continue
            _log.info("the API server answers again", away_s=round(_now() - began))

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


def _now() -> float:
    return asyncio.get_running_loop().time()
