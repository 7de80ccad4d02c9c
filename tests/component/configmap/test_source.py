"""When a ConfigMap that goes away counts as none: an API server in memory, virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest

from addon_operator.configmap.source import ABSENCE_COUNTS_AFTER_S, ConfigMapSource
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import KubeError
from addon_operator.kube.client import KubeClient
from addon_operator.kube.refs import CONFIG_MAPS
from tests.fakes import clock
from tests.fakes.api_server import FakeApiServer

Heard = list[tuple[float, Mapping[str, str] | None]]


class Server:
    """An API server in memory with one ConfigMap, and a client of it.

    Attributes:
        trouble: what the next reads and writes of it get.
    """

    def __init__(self) -> None:
        self.api = FakeApiServer(namespaces=["ns"])
        self.api.fault = lambda method, path: self.trouble if method != "WATCH" and path.endswith("/c") else None
        self.client = KubeClient(self.api)
        self.trouble: KubeError | None = None

    def put(self, **data: str) -> None:
        metadata: JsonObject = {"name": "c", "namespace": "ns"}
        self.api.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {**data}})

    def delete(self) -> None:
        self.api.remove(CONFIG_MAPS, "ns", "c")

    @property
    def data(self) -> JsonValue:
        found = self.api.find(CONFIG_MAPS, "ns", "c")
        return None if found is None else found["data"]


def play(steps: Callable[[Server, ConfigMapSource], Awaitable[None]], *, missing: bool = False) -> Heard:
    """Watches a ConfigMap with `a: 1` while some steps are done, and until all is quiet; gives what was told when."""
    heard: Heard = []

    async def main() -> None:
        server, loop = Server(), asyncio.get_running_loop()
        source = ConfigMapSource(server.client, "ns", "c", on_change=lambda data: heard.append((loop.time(), data)))
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
    noted: list[JsonValue] = []

    async def main() -> None:
        server = Server()

        async def note() -> None:
            noted.append(server.data)

        source = ConfigMapSource(server.client, "ns", "c", on_change=lambda _data: None, before_create=note)
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

        source = ConfigMapSource(server.client, "ns", "c", on_change=told.append, before_create=note)
        server.put(aEnabled="true", b="1")
        running = asyncio.create_task(source.run(), name="source")
        await asyncio.sleep(1)
        server.delete()
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
        source = ConfigMapSource(server.client, "ns", "c", on_change=lambda data: heard.append((loop.time(), data)))
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
        server.api.watch_delay_s = 10
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
        source = ConfigMapSource(server.client, "ns", "c", on_change=lambda _: None)
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
        server.api.watch_delay_s = 10
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
        server.api.watch_delay_s = delay_s
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
        server.api.watch_delay_s = delay_s
        server.delete()
        made = await source.save(lambda data: {**data, "b": "2"})
        saved.append((asyncio.get_running_loop().time(), made))

    heard = play(steps)
    assert saved == [(1 + ABSENCE_COUNTS_AFTER_S, {"b": "2"})]
    assert [data for _, data in heard] == [{"a": "1"}, {"b": "2"}]
