"""A watch that goes silent: an API server in memory, virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from typing import cast

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import KubeError
from addon_operator.kube.client import ApiServer, KubeClient
from addon_operator.kube.informers.reflector import Reflector
from addon_operator.kube.reachability import Reachability
from addon_operator.kube.refs import CONFIG_MAPS, WatchEvent
from tests.fakes import clock

A_MINUTE_S = 60.0
HOUR_S = 3600.0


class Server:
    """Stands in for the client as well. Watches bring what happens while they last, unless they have gone silent.

    Attributes:
        silent: what is watched now brings nothing any more, and does not end; what is asked later does.
        begun: when each watch began.
    """

    def __init__(self) -> None:
        self.reachability = Reachability()
        self.begun: list[float] = []
        self.silent = asyncio.Event()
        self._version = 1
        self._lines: list[tuple[int, bytes]] = []

    def edit(self) -> None:
        self._version += 1
        item: JsonObject = {"metadata": {"name": "c", "uid": "u", "resourceVersion": str(self._version)}}
        self._lines.append((self._version, jsondoc.dumps({"type": "MODIFIED", "object": item})))

    async def request(self, *_: object, **__: object) -> bytes:
        item: JsonObject = {"metadata": {"name": "c", "uid": "u", "resourceVersion": "1"}}
        return jsondoc.dumps({"metadata": {"resourceVersion": str(self._version)}, "items": [item]})

    async def stream(
        self, _path: str, *, query: Mapping[str, str], idle_timeout_s: float, **_: object
    ) -> AsyncIterator[bytes]:
        if "sendInitialEvents" in query:
            raise KubeError("lists are not streamed here", status=422, reason="Invalid")
        seen, now = int(query["resourceVersion"]), asyncio.get_running_loop().time
        self.begun.append(now())
        silent, until = self.silent, now() + int(query["timeoutSeconds"])
        while now() < until:
            if silent.is_set():
                await asyncio.sleep(idle_timeout_s)
                raise KubeError("no answer", status=0, reason="Timeout")
            for version, line in [entry for entry in self._lines if entry[0] > seen]:
                seen = version
                yield line
            await asyncio.sleep(0.5)


def heard_at(silent_at: float, edited_at: float) -> float:
    """Says when an edit is heard of, if the watch of then has gone silent."""

    async def main() -> float:
        server, heard = Server(), asyncio.Event()

        def take(event: WatchEvent, _item: JsonObject) -> None:
            if event == "Modified":
                heard.set()

        reflector = Reflector(KubeClient(cast("ApiServer", server)), CONFIG_MAPS, namespace="n", handler=take)
        running = asyncio.create_task(reflector.run(), name="reflector")
        await asyncio.sleep(silent_at)
        before, server.silent = server.silent, asyncio.Event()
        before.set()
        await asyncio.sleep(edited_at - silent_at)
        server.edit()
        await heard.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return asyncio.get_running_loop().time()

    return clock.run(main())


def test_edit_is_heard_of_within_a_minute_after_a_watch_has_gone_silent() -> None:
    for silent_at in (1.0, 20.0, 41.0, 100.0, 555.0):
        for later_s in (0.0, 0.3, 30.0):
            assert heard_at(silent_at, silent_at + later_s) - silent_at <= A_MINUTE_S


def test_idle_watch_is_renewed_about_once_a_minute_and_not_more() -> None:
    async def main() -> list[float]:
        server = Server()
        troubles: list[KubeError | None] = []
        reflector = Reflector(
            KubeClient(cast("ApiServer", server)),
            CONFIG_MAPS,
            namespace="n",
            handler=lambda _event, _item: None,
            on_error=troubles.append,
        )
        running = asyncio.create_task(reflector.run(), name="reflector")
        await asyncio.sleep(HOUR_S)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert troubles == []
        return server.begun

    begun = clock.run(main())
    assert 60 <= len(begun) <= 90
    assert min(later - earlier for earlier, later in itertools.pairwise(begun)) >= 0.6 * A_MINUTE_S
