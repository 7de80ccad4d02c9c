"""The Lease that lets one operator at a time work in a namespace: acquire, hold, release.

As in client-go's leaderelection: optimistic locking by resourceVersion, and clocks are never compared. A Lease has run
out when it was seen unchanged for as long as it says, by the clock of whoever looks. Two things are added: a holder on
the same host whose process has ended (`holder`) is not waited for, and a change is noticed by a watch rather than at
the next look.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Final

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import AddonOperatorError, KubeError, LeaseLost
from addon_operator.kube.client import KubeClient
from addon_operator.kube.holder import Holder, title
from addon_operator.kube.lease import LEASE, Record, next_lease
from addon_operator.kube.refs import LEASES, ObjectRef, permission
from addon_operator.kube.retries import retry_until_answered
from addon_operator.logs import get_logger

_log = get_logger("election")

_RELEASED_WITHIN_S: Final = 5.0
_UNGUARDED: Final = "no Lease: nothing keeps a second operator from working in this namespace at the same time"


@dataclasses.dataclass(frozen=True, slots=True)
class Timing:
    """How long things take. Source: contract.md 1.1 (High availability).

    Attributes:
        duration_s: a Lease that was not renewed for so long is free.
        renew_deadline_s: the holder warns when it could not renew for so long.
        retry_s: between two renewals, and between two looks at somebody else's Lease.
        failed_retry_s: between two attempts to renew after one that failed.
        reminder_s: between two lines of the log about the same state.
    """

    duration_s: float = 35.0
    renew_deadline_s: float = 30.0
    retry_s: float = 10.0
    failed_retry_s: float = 2.0
    reminder_s: float = 60.0


class _NoLeasesError(AddonOperatorError):
    """There are no Leases, or not in this namespace."""


class Election:
    """One candidate for the Lease of one namespace.

    Attributes:
        held: whether this process holds it now.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        holder: Holder,
        on_wait: Callable[[str], None],
        timing: Timing = Timing(),
    ) -> None:
        """Takes its dependencies; nothing is sent yet.

        Args:
            client: the connection; its limit must not hold up renewals.
            namespace: of the Lease.
            holder: this process.
            on_wait: called with a sentence on whom it waits for, each time it has looked; not called when it is over.
            timing: shorter in tests.
        """
        self.held = False
        self._client, self._namespace, self._holder = client, namespace, holder
        self._ref = ObjectRef(LEASES, namespace, LEASE)
        self._on_wait, self._timing = on_wait, timing
        self._me = str(holder.identity)
        self._record: Record | None = None
        self._seen_at = 0.0
        self._acquired = ""
        # Whether it was written, or may have been.
        self._claimed = False
        self._said_at = -math.inf

    @contextlib.asynccontextmanager
    async def holding(self) -> AsyncIterator[None]:
        """Waits for the Lease, holds it for the length of the block, and releases it.

        Without the permission, or where the API server serves no Leases, the block runs without one, and a warning says
        so.

        Raises:
            ExceptionGroup: with `LeaseLost` in it: another operator holds it, the block was cancelled.
            KubeError: as `retry_until_answered`.
        """
        try:
            guarded = await self._acquire()
            async with asyncio.TaskGroup() as group:
                renewing = group.create_task(self._renew_forever(), name="renewal of the Lease") if guarded else None
                try:
                    yield
                finally:
                    if renewing is not None:
                        renewing.cancel()
                        await asyncio.wait([renewing])
        finally:
            if self._claimed:
                await self._release()

    # --- acquire

    async def _acquire(self) -> bool:
        """Returns when it is ours (True) or cannot be had at all (False)."""
        while True:
            try:
                if await retry_until_answered(self._attempt):
                    _log.info("Lease acquired", lease=self._name, holder=title(self._me))
                    return True
            except KubeError as error:
                if error.status == 409:
                    continue  # somebody was quicker: look again
                if error.status != 403:
                    raise
                needed = permission("get, create, update", LEASES, namespace=self._namespace)
                _log.warning(_UNGUARDED, reason=f"{error}; the Role needs {needed}")
                return False
            except _NoLeasesError as error:
                _log.warning(_UNGUARDED, error=error)
                return False
            await self._wait()

    async def _attempt(self) -> bool:
        """Takes the Lease if it is free; returns whether it is ours."""
        await self._look()
        record = self._record
        if record is not None and not self._may_take(record):
            return False
        try:
            await self._write(record)
        except KubeError as error:
            if error.status != 405:
                await self._client.confirm_absent(error, LEASES)
            raise _NoLeasesError(str(error)) from error
        return True

    def _may_take(self, record: Record) -> bool:
        if record.is_free(self._me, seen_for_s=_now() - self._seen_at):
            return True
        if dead := self._holder.knows_dead(record.holder):
            _log.info("the former holder of the Lease has ended", lease=self._name, holder=title(record.holder))
        return dead

    async def _wait(self) -> None:
        """Waits until the Lease has changed, has run out, or it is time for the next look."""
        record = self._record
        assert record is not None
        waits = (
            f"another operator works in namespace {self._namespace}: {title(record.holder)} holds the Lease {LEASE} "
            f"since {record.acquired}"
        )
        self._on_wait(waits)
        if _now() - self._said_at >= self._timing.reminder_s:
            self._said_at = _now()
            _log.warning("this operator does nothing until the other one has ended", reason=waits)
        runs_out_s = max(self._seen_at + record.duration_s - _now(), 0.05)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(self._timing.retry_s, runs_out_s)):
                if not await self._is_changed(record.version):
                    await asyncio.Event().wait()

    async def _is_changed(self, version: str) -> bool:
        """Returns True after a change; False if the Lease cannot be watched."""
        with contextlib.suppress(KubeError):
            watch = self._client.watch(self._ref, resource_version=version, timeout_s=2 * self._timing.retry_s)
            async with contextlib.aclosing(watch) as events:
                async for event in events:
                    return event.get("type") != "ERROR"
        return False

    # --- hold

    async def _renew_forever(self) -> None:
        """Renews until it is cancelled.

        Raises:
            LeaseLost: somebody else holds it.
        """
        timing = self._timing
        renewed_at, pause_s, warned_at = _now(), timing.retry_s, -math.inf
        while True:
            await asyncio.sleep(pause_s)
            try:
                await self._renew()
            except LeaseLost:
                self.held = False
                raise
            except AddonOperatorError as error:
                pause_s, late_s = timing.failed_retry_s, _now() - renewed_at
                if late_s >= timing.renew_deadline_s and _now() - warned_at >= timing.reminder_s:
                    warned_at = _now()
                    _log.warning(
                        "the Lease cannot be renewed: another operator may take it", lease=self._name,
                        duration_s=late_s, error=error,
                    )  # fmt: skip
            else:
                if warned_at > 0:
                    _log.info("the Lease is renewed again", lease=self._name, duration_s=_now() - renewed_at)
                renewed_at, pause_s, warned_at = _now(), timing.retry_s, -math.inf

    async def _renew(self) -> None:
        try:
            await self._write(self._record)
        except KubeError as error:
            if error.status not in {403, 404, 409, 422}:
                raise
        else:
            return
        # Written by somebody else, or deleted.
        await self._look()
        if self._record is not None and self._record.holder not in {"", self._me}:
            raise LeaseLost(
                f"{title(self._record.holder)} holds the Lease {self._name} now: this operator has lost it and ends, "
                "since two operators must not work in one namespace"
            )
        await self._write(self._record)

    # --- release

    async def _release(self) -> None:
        """Gives it back, so that the next one need not wait; does nothing if it is not ours."""
        try:
            async with asyncio.timeout(_RELEASED_WITHIN_S):
                await self._look()
                record = self._record
                if record is not None and record.holder == self._me:
                    await self._write(record, release=True)
                    _log.info("Lease released", lease=self._name)
        except (AddonOperatorError, TimeoutError) as error:
            if self.held:
                _log.warning("the Lease could not be released: it runs out by itself", lease=self._name, error=error)
        self.held = False

    # --- the Lease itself

    async def _look(self) -> None:
        """Reads the Lease, and notes since when it has been as it is."""
        lease = await self._client.get(self._ref, timeout_s=self._timing.retry_s)
        if lease is None:
            self._record = None
        else:
            self._note(lease)

    async def _write(self, record: Record | None, *, release: bool = False) -> None:
        """Creates or replaces the Lease, with this process as its holder.

        Raises:
            KubeError: 409 if somebody else has written it since `record` was read.
        """
        self._claimed = True
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        if record is None or record.holder != self._me:
            self._acquired = now
        lease = next_lease(
            record,
            namespace=self._namespace,
            me=self._me,
            acquired=self._acquired,
            now=now,
            duration_s=self._timing.duration_s,
            release=release,
        )
        write = self._client.create if record is None else self._client.replace
        self._note(await write(self._ref, lease, timeout_s=self._timing.retry_s))
        self.held = not release

    def _note(self, lease: JsonObject) -> None:
        record = Record.of(lease)
        if not record.same_term(self._record):
            self._seen_at = _now()
        self._record = record

    @property
    def _name(self) -> str:
        return f"{self._namespace}/{LEASE}"


def _now() -> float:
    return asyncio.get_running_loop().time()
