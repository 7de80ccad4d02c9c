"""Stands in for everything that watches the API server: each monitor does what it is told."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from addon_operator.kube.informers.monitor import MonitorHandler, WatchSpec
from addon_operator.kube.informers.store import Item
from addon_operator.kube.refs import ObjectKey, WatchEvent


class Change(NamedTuple):
    """What a handler of a monitor receives."""

    kind: WatchEvent
    about: ObjectKey
    object: bytes
    filter_result: bytes | None

    @property
    def namespace(self) -> str:
        return self.about.namespace

    @property
    def name(self) -> str:
        return self.about.name


class FakeMonitor:
    """What one binding watches; empty and not listed at first.

    Attributes:
        snapshot: what `items` gives while it runs.
    """

    def __init__(self, spec: WatchSpec, handler: MonitorHandler, title: str) -> None:
        self.spec, self.handler, self.title = spec, handler, title
        self.snapshot: list[Item] = []
        self.listed = self.stopped = False
        self.blocked_reason: str | None = None
        self.kind_missing = False
        self.last_error: Exception | None = None
        self._settled, self._listed = asyncio.Event(), asyncio.Event()

    async def settled(self) -> None:
        await self._settled.wait()

    async def wait_listed(self) -> None:
        await self._listed.wait()

    def items(self) -> list[Item]:
        return self.snapshot if self.listed and not self.stopped else []

    def stats(self) -> tuple[int, int]:
        return len(self.snapshot), sum(len(item.object or b"") for item in self.snapshot)

    def stop(self) -> None:
        self.stopped = True
        self._settled.set()
        self._listed.set()

    def list(self) -> None:
        """Everything is listed, and nothing is wrong any more."""
        self.listed = True
        self._listed.set()
        self.block(None)

    def block(self, reason: str | None, *, kind_missing: bool = True) -> None:
        """Somebody has to mend something, or has."""
        self.kind_missing = kind_missing and reason is not None
        if reason != self.blocked_reason:
            self.blocked_reason = reason
            self.handler.on_blocked(reason)
        if self.listed or reason is not None:
            self._settled.set()
        else:
            self._settled.clear()

    def change(self, event: WatchEvent, name: str, result: bytes | None = None) -> None:
        """Something happens to an object."""
        self.handler.on_event(event, ObjectKey("v1", "Pod", "ns", name), b'{"name":"%s"}' % name.encode(), result)


class FakeMonitors:
    """Gives each binding a fake.

    Attributes:
        started: by title, the newest of each.
        lists_at_once: whether they are listed from the beginning.
    """

    def __init__(self, *, lists_at_once: bool = True) -> None:
        self.started: dict[str, FakeMonitor] = {}
        self.lists_at_once = lists_at_once

    async def run(self) -> None:
        await asyncio.Event().wait()

    def start(self, spec: WatchSpec, handler: MonitorHandler, *, title: str) -> FakeMonitor:
        monitor = self.started[title] = FakeMonitor(spec, handler, title)
        if self.lists_at_once:
            monitor.list()
        return monitor
