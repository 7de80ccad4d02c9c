"""When a ConfigMap that goes away counts as none: an API server in memory, virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import cast

import pytest

from addon_operator.configmap.source import ABSENCE_COUNTS_AFTER_S, ConfigMapSource
from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import KubeError
from addon_operator.kube.client import KubeClient
from addon_operator.kube.history import History
from addon_operator.kube.reachability import Reachability
from tests.fakes import clock

Heard = list[tuple[float, Mapping[str, str] | None]]


class Server:
    """Holds one ConfigMap and stands in for the client as well; watches are told `delay_s` later."""

    def __init__(self) -> None:
        self.history, self.reachability = History(), Reachability()
        self.data: dict[str, str] | None = None
        self.delay_s = 0.0
        self.uid = "u"
        self.trouble: KubeError | None = None
        self._version = 10
        self._log: list[tuple[int, bytes]] = []
        self._more = asyncio.Event()

    def put(self, **data: str) -> JsonObject:
        return self._change("ADDED" if self.data is None else "MODIFIED", data)

    def delete(self) -> None:
        self._change("DELETED", None)

    def _change(self, kind: str, data: dict[str, str] | None) -> JsonObject:
        shown = self.data if data is None else data
        self.data, self._version = data, self._version + 1
        item = self._object(shown or {})
        self._log.append((self._version, jsondoc.dumps({"type": kind, "object": item})))
        self._more.set()
        return item

    def _object(self, data: Mapping[str, str]) -> JsonObject:
        return {
            "metadata": {"name": "c", "namespace": "ns", "uid": self.uid, "resourceVersion": str(self._version)},
            "data": {**data},
        }

    async def request(self, method: str, path: str, *, body: bytes = b"", **_: object) -> bytes:
        await asyncio.sleep(0)
        if method in {"POST", "PUT"}:
            return jsondoc.dumps(self.put(**cast("dict[str, str]", jsondoc.lookup(jsondoc.loads(body), "/data"))))
        if not path.endswith("/c"):
            items = [] if self.data is None else [self._object(self.data)]
            return jsondoc.dumps({"metadata": {"resourceVersion": str(self._version)}, "items": [*items]})
        if self.trouble is not None:
            raise self.trouble
        if self.data is None:
            raise KubeError("GET: not found", status=404, reason="NotFound")
        return jsondoc.dumps(self._object(self.data))

    async def stream(self, _path: str, *, query: Mapping[str, str], **_: object) -> AsyncIterator[bytes]:
        if "sendInitialEvents" in query:
            raise KubeError("lists are not streamed here", status=422, reason="Invalid")
        seen = int(query["resourceVersion"])
        while True:
            self._more.clear()
            for version, line in [entry for entry in self._log if entry[0] > seen]:
                await asyncio.sleep(self.delay_s)
                seen = version
                yield line
            await self._more.wait()


def play(steps: Callable[[Server, ConfigMapSource], Awaitable[None]], *, missing: bool = False) -> Heard:
    """Watches a ConfigMap with `a: 1` while some steps are done, and until all is quiet; gives what was told when."""
    heard: Heard = []

    async def main() -> None:
        server, loop = Server(), asyncio.get_running_loop()
        source = ConfigMapSource(
            cast("KubeClient", server), "ns", "c", on_change=lambda data: heard.append((loop.time(), data))
        )
        if not missing:
            server.put(a="1")
        running = asyncio.create_task(source.run(), name="source")
        await asyncio.sleep(1)
        await steps(server, source)
        await asyncio.sleep(60)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    clock.run(main())
    return heard


def test_only_the_api_server_itself_can_say_that_it_is_missing() -> None:
    async def steps(server: Server, source: ConfigMapSource) -> None:
        # A proxy that has lost its API server, or one that restarts: 404, and no Status.
        server.trouble = KubeError("GET: 404 Not Found", status=404, reason="Not Found")
        with pytest.raises(KubeError, match="404"):
            await source.read()
        with pytest.raises(KubeError, match="404"):
            await source.save(lambda data: {**data, "b": "2"})
        server.delete()
        await asyncio.sleep(3 * ABSENCE_COUNTS_AFTER_S)
        server.put(a="2")
        server.trouble = None

    told = [data for _, data in play(steps)]
    assert None not in told
    assert told[-1] == {"a": "2"}


def test_what_must_not_be_lost_is_noted_before_a_missing_one_is_created() -> None:
    noted: list[dict[str, str] | None] = []

    async def main() -> None:
        server = Server()

        async def note() -> None:
            noted.append(server.data)

        source = ConfigMapSource(
            cast("KubeClient", server), "ns", "c", on_change=lambda _data: None, before_create=note
        )
        await source.save(lambda data: {**data, "a": "1"})
        await source.save(lambda data: {**data, "b": "2"})
        assert server.data == {"a": "1", "b": "2"}

    clock.run(main())
    assert noted == [None]


@pytest.mark.parametrize(
    ("new", "noted"),
    [
        pytest.param({"aEnabled": "true", "b": "2"}, False, id="with all flags"),
        pytest.param({"b": "1"}, True, id="without a flag"),
        pytest.param({}, True, id="empty"),
    ],
)
@pytest.mark.parametrize("by", ["somebody", "a hook"])
def test_what_must_not_be_lost_is_noted_before_another_one_in_its_place_counts(
    by: str, new: dict[str, str], *, noted: bool
) -> None:
    told: list[object] = []

    async def main() -> None:
        server = Server()
        troubles = (
            [KubeError("PATCH: unavailable", status=503, reason="ServiceUnavailable")] if by == "somebody" else []
        )

        async def note() -> None:
            if troubles:
                raise troubles.pop()
            told.append("noted")

        source = ConfigMapSource(cast("KubeClient", server), "ns", "c", on_change=told.append, before_create=note)
        server.put(aEnabled="true", b="1")
        running = asyncio.create_task(source.run(), name="source")
        await asyncio.sleep(1)
        server.delete()
        server.uid = "another"
        server.put(**new)
        if by == "a hook":
            told.append(await source.save(lambda data: {**data, "c": "3"}))
        await asyncio.sleep(60)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    clock.run(main())
    assert told[0] == {"aEnabled": "true", "b": "1"}
    assert told[1] == ("noted" if noted else new if by == "somebody" else {**new, "c": "3"})
    assert told[-1] == (new if by == "somebody" else {**new, "c": "3"})
    assert ("noted" in told) is noted


def test_one_that_stays_away_counts_as_none_later() -> None:
    async def steps(server: Server, _source: ConfigMapSource) -> None:
        server.delete()

    assert play(steps) == [(0, {"a": "1"}), (1 + ABSENCE_COUNTS_AFTER_S, None)]


@pytest.mark.parametrize("again", ["1", "2"], ids=["the same", "another"])
def test_one_that_comes_back_was_never_away(again: str) -> None:
    async def steps(server: Server, _source: ConfigMapSource) -> None:
        for _ in range(3):
            server.delete()
            await asyncio.sleep(ABSENCE_COUNTS_AFTER_S - 0.1)
            server.put(a=again)
            await asyncio.sleep(0.5)

    heard = play(steps)
    assert [data for _, data in heard] == [{"a": "1"}, *[{"a": again}] * 3]


def test_one_that_is_not_there_at_the_start_counts_as_none_at_once() -> None:
    async def steps(server: Server, _source: ConfigMapSource) -> None:
        server.put(a="1")

    assert play(steps, missing=True) == [(0, None), (1, {"a": "1"})]


def test_one_that_was_read_at_the_start_and_is_gone_when_the_watch_begins() -> None:
    heard: Heard = []

    async def main() -> None:
        server, loop = Server(), asyncio.get_running_loop()
        source = ConfigMapSource(
            cast("KubeClient", server), "ns", "c", on_change=lambda data: heard.append((loop.time(), data))
        )
        server.put(a="1")
        assert await source.read() == {"a": "1"}
        server.delete()
        running = asyncio.create_task(source.run(), name="source")
        await asyncio.sleep(60)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    clock.run(main())
    assert heard == [(ABSENCE_COUNTS_AFTER_S, None)]


def test_one_that_is_back_before_the_watch_tells_was_never_away() -> None:
    """What the watch brings afterwards begins with what is history by then."""

    async def steps(server: Server, _source: ConfigMapSource) -> None:
        server.delete()
        await asyncio.sleep(1)
        server.delay_s = 10
        server.put(a="2")
        server.delete()
        server.put(a="3")

    heard = play(steps)
    assert heard[:2] == [(0, {"a": "1"}), (1 + ABSENCE_COUNTS_AFTER_S, {"a": "3"})]
    assert [data for _, data in heard[2:]] == [{"a": "3"}]


@pytest.mark.parametrize("status", [0, 403, 503])
def test_absence_does_not_count_while_the_server_cannot_say(status: int) -> None:
    async def steps(server: Server, _source: ConfigMapSource) -> None:
        server.delete()
        server.trouble = KubeError("GET: no", status=status, reason="Trouble")
        await asyncio.sleep(2.5 * ABSENCE_COUNTS_AFTER_S)
        server.trouble = None

    assert play(steps) == [(0, {"a": "1"}), (1 + 3 * ABSENCE_COUNTS_AFTER_S, None)]


def test_absence_that_is_not_over_leaves_no_task_behind() -> None:
    async def main() -> set[str]:
        server = Server()
        source = ConfigMapSource(cast("KubeClient", server), "ns", "c", on_change=lambda _: None)
        server.put(a="1")
        running = asyncio.create_task(source.run(), name="source")
        await asyncio.sleep(1)
        server.delete()
        await asyncio.sleep(1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return {task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()}

    assert clock.run(main()) == set()


def test_a_save_that_changes_nothing_does_not_make_an_absence_count() -> None:
    async def steps(server: Server, source: ConfigMapSource) -> None:
        server.delay_s = 10
        server.delete()
        saving = asyncio.create_task(source.save(lambda data: data), name="save")
        await asyncio.sleep(1)
        server.put(a="1")
        assert await saving == {"a": "1"}

    assert [data for _, data in play(steps)] == [{"a": "1"}] * 3


@pytest.mark.parametrize("delay_s", [0.0, 0.5, 10.0], ids=["told at once", "told later", "told too late"])
def test_a_save_waits_for_one_that_comes_back(delay_s: float) -> None:
    saved: list[Mapping[str, str]] = []

    async def steps(server: Server, source: ConfigMapSource) -> None:
        server.delay_s = delay_s
        server.delete()
        saving = asyncio.create_task(source.save(lambda data: {**data, "b": "2"}), name="save")
        await asyncio.sleep(1)
        assert not saving.done()
        server.put(a="1")
        saved.append(await saving)

    heard = play(steps)
    assert saved == [{"a": "1", "b": "2"}]
    assert None not in [data for _, data in heard]
    assert heard[-1][1] == {"a": "1", "b": "2"}


@pytest.mark.parametrize("delay_s", [0.0, 0.5, 10.0], ids=["told at once", "told later", "told too late"])
def test_a_save_makes_one_anew_that_stays_away(delay_s: float) -> None:
    saved: list[tuple[float, Mapping[str, str]]] = []

    async def steps(server: Server, source: ConfigMapSource) -> None:
        server.delay_s = delay_s
        server.delete()
        made = await source.save(lambda data: {**data, "b": "2"})
        saved.append((asyncio.get_running_loop().time(), made))

    heard = play(steps)
    assert saved == [(1 + ABSENCE_COUNTS_AFTER_S, {"b": "2"})]
    assert [data for _, data in heard] == [{"a": "1"}, {"b": "2"}]
