"""Notes what came of upgrades on the records of their releases, while the next modules are already being worked on."""

from __future__ import annotations

import asyncio
import dataclasses

from addon_operator.errors import AddonOperatorError, KubeError
from addon_operator.helm.client import UpgradeResult
from addon_operator.helm.storage import ReleaseStorage
from addon_operator.logs import get_logger
from addon_operator.values.layers import EnabledBy

_log = get_logger("helm")


@dataclasses.dataclass(frozen=True, slots=True)
class _Outcome:
    """What helm made, and what enables the module."""

    result: UpgradeResult
    enabled_by: EnabledBy


class OutcomeNotes:
    """The outcomes that are not noted yet. Without its note, the next run of a module makes one more revision."""

    def __init__(self, storage: ReleaseStorage) -> None:
        self._storage = storage
        self._writing: dict[str, asyncio.Task[None]] = {}
        self._failed: dict[str, _Outcome] = {}

    def start(self, name: str, result: UpgradeResult, enabled_by: EnabledBy) -> None:
        """Begins to note the outcome of an upgrade."""
        outcome = _Outcome(result, enabled_by)
        self._writing[name] = asyncio.create_task(self._try(name, outcome), name=f"note on release {name}")

    async def note(self, name: str, result: UpgradeResult, enabled_by: EnabledBy) -> None:
        """Notes an outcome at once.

        Raises:
            KubeError: refused, or not seen in time.
        """
        await self._record(name, _Outcome(result, enabled_by))

    def is_pending(self, name: str) -> bool:
        """Returns whether the outcome of the last upgrade of a release is not noted yet."""
        return name in self._writing or name in self._failed

    async def wait(self, name: str) -> None:
        """Waits for the note on a release; tries once more if it has failed, unless the release has moved on.

        Raises:
            KubeError: it cannot be noted; names the module.
        """
        await self._written(name)
        outcome = self._failed.get(name)
        if outcome is not None and self._storage.facts(name).revision == outcome.result.revision:
            try:
                await self._record(name, outcome)
            except KubeError as error:
                text = f"module {name}: what helm did cannot be noted on its release: {error}"
                raise error.with_message(text) from error
        self._failed.pop(name, None)

    async def wait_all(self) -> None:
        """Waits for all notes; to be called at the end of a converge and before the storage stops.

        Raises:
            KubeError: one cannot be noted; names the module.
        """
        for name in (*self._writing, *self._failed):
            await self.wait(name)

    async def try_all(self) -> None:
        """Waits for all notes, and logs those that cannot be written."""
        for name in (*self._writing, *self._failed):
            try:
                await self.wait(name)
            except KubeError as error:
                _log.warning("the outcome of an upgrade cannot be noted on its release yet", module=name, error=error)

    async def forget(self, name: str) -> None:
        """Waits for a note that is being written; one that has failed is not written any more."""
        await self._written(name)
        self._failed.pop(name, None)

    async def close(self) -> None:
        """Cancels what is being written: the next run makes one more revision of those releases."""
        for task in self._writing.values():
            task.cancel()
        await asyncio.gather(*self._writing.values(), return_exceptions=True)

    async def _written(self, name: str) -> None:
        task = self._writing.get(name)
        if task is not None:
            await asyncio.wait({task})

    async def _try(self, name: str, outcome: _Outcome) -> None:
        try:
            await self._record(name, outcome)
        except AddonOperatorError as error:
            self._failed[name] = outcome
            message = "the outcome of an upgrade cannot be noted on its release yet, trying again later"
            _log.warning(message, module=name, error=error)
        finally:
            del self._writing[name]

    async def _record(self, name: str, outcome: _Outcome) -> None:
        await self._storage.record(
            name,
            outcome.result.revision,
            rendered=outcome.result.rendered,
            checksum=outcome.result.checksum,
            objects=outcome.result.objects,
            enabled_by=outcome.enabled_by,
        )
