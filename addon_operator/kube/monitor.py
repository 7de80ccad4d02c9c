"""What kubernetes bindings watch: the objects that a binding selects, and how they change.

Informers are shared by all monitors that watch the same, and so is what is remembered of their objects. It knows
nothing of hooks: a listener hears of changes, and what follows from them is the caller's business.
Source: contract.md 2.2, 2.3; design.md 5.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Protocol

from addon_operator.kube import jq
from addon_operator.kube.client import KubeClient
from addon_operator.kube.discovery import Discovery
from addon_operator.kube.kinds import Kinds
from addon_operator.kube.refs import ObjectKey, Resource
from addon_operator.kube.snapshot import (
    Item,
    Key,
)
from addon_operator.kube.watches import Change, Names, Part, Pool, Scope, Wish
from addon_operator.logs import get_logger

__all__ = ["Change", "Listener", "Monitor", "Monitors", "WatchSpec"]

_log = get_logger("monitor")

# So often the server may deny a kind that it has just named: what it says about new kinds lags behind.
_MOST_LOSSES = 5
_NAMESPACES = Resource("", "v1", "Namespace", "namespaces", False)


@dataclasses.dataclass(frozen=True, slots=True)
class WatchSpec:
    """Which objects one binding watches, and what of them it keeps.

    Attributes:
        kind: kind, plural or short name, in any case of letters.
        api_version: `apps/v1`; None for the server's preferred one.
        names: only objects with these names; empty for all.
        label_selector: as in the API.
        field_selector: as in the API, in addition to `names`.
        namespaces: only objects in these; empty for all, unless `namespace_labels` is given. Both mean nothing for
            objects that have no namespace.
        namespace_labels: as in the API; objects in the namespaces that match, as these come and go, in addition to
            those in `namespaces`.
        jq_filter: a program that compiles; empty for none.
        keep_objects: False if snapshots shall hold filter results only.
    """

    kind: str
    api_version: str | None = None
    names: tuple[str, ...] = ()
    label_selector: str = ""
    field_selector: str = ""
    namespaces: tuple[str, ...] = ()
    namespace_labels: str | None = None
    jq_filter: str = ""
    keep_objects: bool = True


class Listener(Protocol):
    """Who hears of one monitor's changes; called in the event loop, must not block.

    What it raises is logged, and hurts nobody else. Nothing is called before `Monitors.start` has returned, nor after
    `Monitor.stop`.
    """

    def changed(self, change: Change) -> None:
        """Something happened to an object after everything was listed."""

    def filter_failed(self, about: ObjectKey, error: str) -> None:
        """The jq filter failed on an object that came or changed; `changed` follows, with the result `null`."""

    def filtered(self, seconds: float) -> None:
        """A run of the jq filter took that long; of several monitors that share it, one is told."""

    def blocked(self, reason: str | None) -> None:
        """Nothing can be listed or watched for a reason that somebody has to mend; None: that is over."""


class Monitor(Protocol):
    """What one binding watches. Made by `Monitors.start`."""

    @property
    def listed(self) -> bool:
        """Whether everything was listed once, and the filter worked on all of it; stays true."""

    @property
    def blocked_reason(self) -> str | None:
        """Why nothing can be listed or watched; None if nothing is wrong, or if a server is just away."""

    @property
    def kind_missing(self) -> bool:
        """Whether it is blocked because the server does not name the kind: there are no such objects."""

    @property
    def last_error(self) -> Exception | None:
        """How the last attempt to find, list or watch failed; None if none did, or it was made good since."""

    async def settled(self) -> None:
        """Returns as soon as everything is listed, or the monitor is blocked or stopped."""

    async def wait_listed(self) -> None:
        """Returns as soon as everything is listed, or the monitor is stopped, however long it is blocked before."""

    def items(self) -> list[Item]:
        """Gives the snapshot of now, ordered by namespace, then name; empty until `listed` and after `stop`."""

    def stats(self) -> tuple[int, int]:
        """Counts the objects, and the bytes of JSON that are kept of them."""

    def stop(self) -> None:
        """Ends it; may be called again."""


class Monitors:
    """All monitors, and the informers that they share."""

    def __init__(
        self,
        client: KubeClient,
        discover: Callable[[], Awaitable[Discovery]],
        *,
        on_watch_error: Callable[[str], None] | None = None,
        run_jq: jq.Run = jq.run,
    ) -> None:
        """Prepares it; `run` does the work.

        Args:
            client: the connection.
            discover: asks what the server serves; each call must really ask, answers are kept here.
            on_watch_error: told the reason (`KubeError.reason`) of each list or watch that failed.
            run_jq: runs the filters.
        """
        self._pool = Pool(client, on_watch_error or _ignore, run_jq)
        self._kinds = Kinds(discover, self._pool)

    async def run(self) -> None:
        """Lists and watches for all monitors until it is cancelled; they may be started before and meanwhile."""
        async with asyncio.TaskGroup() as group:
            self._pool.open(group)
            try:
                await self._kinds.run()
            finally:
                self._pool.close()

    def start(self, spec: WatchSpec, listener: Listener, *, title: str) -> Monitor:
        """Begins to watch.

        Args:
            spec: what.
            listener: hears of changes.
            title: for the log, such as `hook hooks/x.sh of module m, binding pods`.

        Raises:
            ValueError: the jq filter does not compile.
        """
        if spec.jq_filter:
            jq.compiled(spec.jq_filter)
        monitor = _Monitor(spec, listener, title=title, pool=self._pool, kinds=self._kinds)
        self._kinds.seek(monitor)
        return monitor

    @property
    def watches(self) -> int:
        """Counts the informers in use."""
        return self._pool.running


class _Monitor:
    """The parts of one monitor, which change with the namespaces it follows and with its kind."""

    def __init__(self, spec: WatchSpec, listener: Listener, *, title: str, pool: Pool, kinds: Kinds) -> None:
        self.spec, self.title = spec, title
        self._listener = listener
        self._pool, self._kinds = pool, kinds
        self._wish = Wish(spec.jq_filter, spec.keep_objects)
        self._resource: Resource | None = None
        # By namespace, None for all of them.
        self._parts: dict[str | None, list[Part]] = {}
        self._followed: Names | None = None
        self._missing: str | None = None
        # Whether it is missing because discovery does not name it.
        self._unknown = False
        self._losses = 0
        self._listed = self._stopped = False
        self._blocked: str | None = None
        self._is_settled, self._is_listed = asyncio.Event(), asyncio.Event()

    # What everybody may ask.

    @property
    def listed(self) -> bool:
        return self._listed

    @property
    def blocked_reason(self) -> str | None:
        return self._blocked

    @property
    def kind_missing(self) -> bool:
        return self._unknown

    @property
    def last_error(self) -> Exception | None:
        errors = [self._followed.error if self._followed else None, *(part.watch.error for part in self._all_parts())]
        return next(filter(None, errors), None if self._resource else self._kinds.error)

    async def settled(self) -> None:
        await self._is_settled.wait()

    async def wait_listed(self) -> None:
        await self._is_listed.wait()

    def items(self) -> list[Item]:
        if not self._listed:
            return []
        entries = [entry for part in self._all_parts() for entry in part.view.entries()]
        if len(self._all_parts()) > 1:
            entries.sort(key=lambda entry: entry[0])
        return [item for _, item in entries]

    def stats(self) -> tuple[int, int]:
        views = [part.view for part in self._all_parts()]
        return sum(map(len, views)), sum(view.kept_bytes for view in views)

    def stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        self._kinds.forget(self)
        self._detach(aloud=False)
        self._is_settled.set()
        self._is_listed.set()

    # What the search for kinds asks and tells.

    @property
    def kind(self) -> str:
        return self.spec.kind

    @property
    def api_version(self) -> str | None:
        return self.spec.api_version

    def attach(self, resource: Resource) -> None:
        """Begins to list and watch."""
        if self._stopped:
            return
        self._resource = resource
        if self._unknown:
            # It has just come, and what there is of it will be known in a moment.
            self._missing, self._unknown = None, False
        if resource.namespaced and self.spec.namespace_labels is not None:
            scope = Scope(_NAMESPACES, None, self.spec.namespace_labels)
            self._followed = Names(self._pool, scope, self.follow)
        self.follow()

    def missing(self, reason: str, *, named: bool) -> None:
        """Notes that there is no such kind, or that it cannot be listed."""
        if self._listed and self._missing is None:
            _log.warning("what a binding watches is not served any more", binding=self.title, reason=reason)
        self._missing, self._unknown = reason, not named
        self.look()

    # What the watches tell.

    def changed(self, change: Change) -> None:
        self._call(lambda: self._listener.changed(change))

    def filter_failed(self, key: Key, error: str) -> None:
        assert self._resource is not None
        about = ObjectKey(self._resource.api_version, self._resource.kind, *key)
        self._call(lambda: self._listener.filter_failed(about, error))

    def filtered(self, seconds: float) -> None:
        self._call(lambda: self._listener.filtered(seconds))

    def kind_lost(self) -> None:
        self._detach(aloud=True)
        if self._stopped:
            return
        self._losses += 1
        if self._losses >= _MOST_LOSSES:
            self.missing(f"the API server names the kind {self.kind}, but does not serve it; trying again", named=True)
        self._kinds.lose(self, times=self._losses)

    def follow(self) -> None:
        """Watches in the namespaces that are to be watched now, and in no others."""
        if self._stopped or self._resource is None:
            return
        wanted = self._wanted(self._resource)
        for namespace in [known for known in self._parts if known not in wanted]:
            for part in self._parts.pop(namespace, ()):
                part.leave(aloud=True)
        for namespace in wanted:
            if namespace not in self._parts and not self._stopped:
                self._watch(self._resource, namespace)
        self.look()

    def look(self) -> None:
        if self._stopped:
            return
        if any(part.watch.listed for part in self._all_parts()):
            self._missing, self._losses = None, 0
        if not self._listed and self._is_complete():
            self._listed = True
            self._is_listed.set()
            for part in self._all_parts():
                part.hear(from_start=False)
        reason = self._reason()
        if reason != self._blocked:
            self._blocked = reason
            self._call(lambda: self._listener.blocked(reason))
        if self._listed or self._blocked is not None:
            self._is_settled.set()
        else:
            self._is_settled.clear()

    def _watch(self, resource: Resource, namespace: str | None) -> None:
        parts = self._parts.setdefault(namespace, [])
        for name in dict.fromkeys(self.spec.names) or (None,):
            fields = ",".join(filter(None, [self.spec.field_selector, f"metadata.name={name}" if name else ""]))
            scope = Scope(resource, namespace, self.spec.label_selector, fields)
            parts.append(self._pool.join(scope, self._wish, self, replay=self._listed))
        for part in tuple(parts) if self._listed else ():
            part.hear(from_start=True)

    def _wanted(self, resource: Resource) -> list[str | None]:
        if not resource.namespaced or (self._followed is None and not self.spec.namespaces):
            return [None]
        followed = self._followed.names() if self._followed else []
        return [*dict.fromkeys([*self.spec.namespaces, *followed])]

    def _is_complete(self) -> bool:
        if self._resource is None or (self._followed and not self._followed.listed):
            return False
        return all(part.watch.listed and not part.view.failing for part in self._all_parts())

    def _reason(self) -> str | None:
        troubles = [self._followed.trouble if self._followed else None]
        troubles += [part.watch.trouble for part in self._all_parts()]
        return next(filter(None, troubles), None) or (None if self._listed else self._missing or self._failing())

    def _failing(self) -> str | None:
        for part in self._all_parts():
            if part.watch.listed and part.view.failing:
                (namespace, name), error = min(part.view.failing.items())
                where = f"{namespace}/{name}" if namespace else name
                return f"jqFilter fails on {where}: {error}"
        return None

    def _detach(self, *, aloud: bool) -> None:
        parts, followed = self._all_parts(), self._followed
        self._parts, self._followed, self._resource = {}, None, None
        if followed:
            followed.end()
        for part in parts:
            part.leave(aloud=aloud)

    def _all_parts(self) -> list[Part]:
        return [part for parts in self._parts.values() for part in parts]

    def _call(self, call: Callable[[], None]) -> None:
        if self._stopped:
            return
        try:
            call()
        except Exception as error:  # noqa: BLE001 -- a broken listener must not cost the others their event
            _log.error("a change could not be passed on", binding=self.title, exc_info=error)


def _ignore(_reason: str) -> None:
    pass
