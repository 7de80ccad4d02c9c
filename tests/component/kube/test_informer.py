"""The informer against a scripted server: every way a list or a watch can go wrong."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from addon_operator import jsondoc
from addon_operator.errors import KubeError
from addon_operator.jsondoc import JsonObject
from addon_operator.kube.client import KubeClient
from addon_operator.kube.informer import Event, Informer
from addon_operator.kube.refs import CONFIG_MAPS
from tests.component.kube.api import Api, Handler, breaks, gives, refuses, serving, streams


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving() as running:
        yield running


@pytest.fixture
async def client(api: Api, tmp_path: Path) -> AsyncIterator[KubeClient]:
    made = await KubeClient.connect(config_file=api.kubeconfig(tmp_path), context=None, server=None, qps=0, burst=1)
    yield made
    await made.close()


def config_map(name: str, version: int, *, uid: str = "") -> JsonObject:
    metadata: JsonObject = {
        "namespace": "n",
        "name": name,
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(version),
        "managedFields": [{"manager": "x"}],
    }
    return {"metadata": metadata, "data": {"version": str(version)}}


def page(version: int, *items: JsonObject, more: str = "") -> Handler:
    metadata: JsonObject = {"resourceVersion": str(version), "continue": more}
    return gives({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": [*items]})


def line(kind: str, item: JsonObject) -> bytes:
    return jsondoc.dumps({"type": kind, "object": item}) + b"\n"


def bookmark(version: int) -> bytes:
    return line("BOOKMARK", {"kind": "ConfigMap", "metadata": {"resourceVersion": str(version)}})


def trouble(code: int, reason: str) -> bytes:
    return line("ERROR", {"kind": "Status", "code": code, "reason": reason})


class Heard:
    """Remembers events as (kind, name, resourceVersion)."""

    def __init__(self, *, fails_for: str = "") -> None:
        self.events: list[Event] = []
        self._fails_for = fails_for

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if self._fails_for and text(event, "name") == self._fails_for:
            raise RuntimeError("a bug in a handler")

    def short(self) -> list[tuple[str, str, str]]:
        return [(event.kind, text(event, "name"), text(event, "resourceVersion")) for event in self.events]


def text(event: Event, key: str) -> str:
    return str(jsondoc.lookup(event.object, f"/metadata/{key}"))


async def play(
    client: KubeClient,
    api: Api,
    steps: list[Handler],
    *,
    handler: Callable[[Event], None] | None = None,
    watch_timeout_s: float = 300.0,
) -> tuple[Informer, Heard]:
    """Runs an informer through all steps, until it asks once more than there are steps."""
    heard = Heard()
    api.steps = list(steps)
    informer = Informer(client, CONFIG_MAPS, namespace="n", handler=handler or heard, watch_timeout_s=watch_timeout_s)
    task = asyncio.create_task(informer.run(), name="informer under test")
    try:
        await api.until_asked(len(steps) + 1)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    return informer, heard


def watches(api: Api) -> list[str]:
    """What each watch resumed from, in order."""
    return [asked.query["resourceVersion"] for asked in api.asked if "watch" in asked.query]


def lists(api: Api) -> int:
    return sum("watch" not in asked.query for asked in api.asked)


async def test_pages_are_followed_and_the_watch_starts_from_their_version(client: KubeClient, api: Api) -> None:
    _, heard = await play(client, api, [page(9, config_map("a", 1), more="next page"), page(9, config_map("b", 2))])
    assert heard.short() == [("ADDED", "a", "1"), ("ADDED", "b", "2")]
    assert [asked.query.get("continue") for asked in api.asked[:2]] == [None, "next page"]
    assert watches(api) == ["9"]
    assert api.asked[2].query["allowWatchBookmarks"] == "true"


async def test_objects_are_complete_and_lean(client: KubeClient, api: Api) -> None:
    _, heard = await play(client, api, [page(9, config_map("a", 1))])
    [event] = heard.events
    assert (event.object["apiVersion"], event.object["kind"]) == ("v1", "ConfigMap")
    assert event.object["data"] == {"version": "1"}
    assert "managedFields" not in str(event.object)


async def test_watch_is_resumed_after_the_last_thing_seen(client: KubeClient, api: Api) -> None:
    lost = streams(line("ADDED", config_map("a", 10)), bookmark(20), stay=True)
    broken = breaks(line("MODIFIED", config_map("a", 30)))
    _, heard = await play(client, api, [page(9), lost, broken], watch_timeout_s=1)
    assert heard.short() == [("ADDED", "a", "10"), ("MODIFIED", "a", "30")]
    assert watches(api) == ["9", "20", "30"]
    assert lists(api) == 1


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_passing_refusals_keep_the_place(client: KubeClient, api: Api, status: int) -> None:
    await play(client, api, [page(9), refuses(status, "Busy"), streams(trouble(status, "Busy"))])
    assert watches(api) == ["9", "9", "9"]
    assert lists(api) == 1


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(refuses(410, "Gone"), id="refused with 410"),
        pytest.param(streams(trouble(410, "Expired")), id="410 in the stream"),
        pytest.param(streams(trouble(504, "Timeout")), id="version from the future"),
    ],
)
async def test_new_list_tells_the_difference_only(client: KubeClient, api: Api, refusal: Handler) -> None:
    before = page(9, config_map("same", 1), config_map("changed", 2), config_map("lost", 3))
    after = page(50, config_map("same", 1), config_map("changed", 40), config_map("new", 41))
    _, heard = await play(client, api, [before, refusal, after])
    assert heard.short()[3:] == [("MODIFIED", "changed", "40"), ("ADDED", "new", "41"), ("DELETED", "lost", "50")]
    assert text(heard.events[-1], "uid") == "uid-lost"
    assert text(heard.events[-1], "namespace") == "n"
    assert watches(api)[-1] == "50"


async def test_object_made_again_under_its_name_is_deleted_first(client: KubeClient, api: Api) -> None:
    again = page(50, config_map("a", 40, uid="second"))
    _, heard = await play(client, api, [page(9, config_map("a", 1, uid="first")), refuses(410, "Gone"), again])
    assert [(event.kind, text(event, "uid")) for event in heard.events] == [
        ("ADDED", "first"),
        ("DELETED", "first"),
        ("ADDED", "second"),
    ]


async def test_watch_event_of_a_remade_object_is_deleted_first(client: KubeClient, api: Api) -> None:
    gap = streams(line("ADDED", config_map("a", 40, uid="second")), trouble(410, "Expired"))
    _, heard = await play(client, api, [page(9, config_map("a", 1, uid="first")), gap])
    assert [event.kind for event in heard.events] == ["ADDED", "DELETED", "ADDED"]


async def test_pages_that_expire_are_listed_again_in_one_piece(client: KubeClient, api: Api) -> None:
    steps = [
        page(9, config_map("a", 1), config_map("gone meanwhile", 2), more="next"),
        refuses(410, "Expired"),
        page(20, config_map("a", 1), config_map("b", 15)),
    ]
    _, heard = await play(client, api, steps)
    assert heard.short() == [
        ("ADDED", "a", "1"),
        ("ADDED", "gone meanwhile", "2"),
        ("ADDED", "b", "15"),
        ("DELETED", "gone meanwhile", "20"),
    ]
    assert "limit" not in api.asked[2].query
    assert "continue" not in api.asked[2].query


async def test_known_states_are_not_told_twice(client: KubeClient, api: Api) -> None:
    again = streams(line("ADDED", config_map("a", 1)), line("DELETED", config_map("never seen", 5)), stay=True)
    _, heard = await play(client, api, [page(9, config_map("a", 1)), again], watch_timeout_s=1)
    assert heard.short() == [("ADDED", "a", "1")]


async def test_deleted_object_is_handed_out_as_it_was(client: KubeClient, api: Api) -> None:
    deleted = streams(line("DELETED", config_map("a", 7)), stay=True)
    _, heard = await play(client, api, [page(5, config_map("a", 1)), deleted], watch_timeout_s=1)
    assert heard.short() == [("ADDED", "a", "1"), ("DELETED", "a", "7")]
    assert heard.events[-1].object["data"] == {"version": "7"}


async def test_failing_handler_costs_its_own_event_only(client: KubeClient, api: Api) -> None:
    heard = Heard(fails_for="bad")
    items = [config_map("a", 1), config_map("bad", 2), config_map("c", 3)]
    steps = [
        page(9, *items),
        page(9, *items),
        streams(line("MODIFIED", config_map("bad", 10)), line("MODIFIED", config_map("a", 11))),
        page(11, config_map("a", 11), config_map("bad", 10), config_map("c", 3)),
    ]
    informer, _ = await play(client, api, steps, handler=heard)
    assert informer.synced.is_set()
    assert heard.short() == [
        ("ADDED", "a", "1"),
        ("ADDED", "bad", "2"),
        ("ADDED", "c", "3"),
        ("MODIFIED", "bad", "10"),
        ("MODIFIED", "a", "11"),
    ]


async def test_server_that_ends_watches_at_once_is_not_asked_in_a_tight_loop(client: KubeClient, api: Api) -> None:
    informer = Informer(client, CONFIG_MAPS, namespace="n", handler=Heard())
    api.steps = [page(9), *(streams() for _ in range(100))]
    task = asyncio.create_task(informer.run(), name="informer under test")
    await asyncio.sleep(1.5)
    task.cancel()
    await asyncio.wait([task])
    assert len(watches(api)) < 15


async def test_retry_after_is_honoured(client: KubeClient, api: Api) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await play(client, api, [page(9), refuses(503, "Busy", retry_after="1")])
    assert loop.time() - began >= 1


async def test_not_synced_says_what_and_why(client: KubeClient, api: Api) -> None:
    api.steps = [refuses(403, "Forbidden", message="configmaps is forbidden") for _ in range(20)]
    informer = Informer(client, CONFIG_MAPS, namespace="n", handler=Heard())
    task = asyncio.create_task(informer.run(), name="informer under test")
    with pytest.raises(KubeError, match=r"configmaps in n: not listed within 0\.3 s: .*403 Forbidden"):
        await informer.wait_synced(0.3)
    task.cancel()
    await asyncio.wait([task])


async def test_metadata_only_asks_for_no_more(client: KubeClient, api: Api) -> None:
    informer = Informer(client, CONFIG_MAPS, namespace=None, label_selector="a=b", metadata_only=True, handler=Heard())
    api.steps = [page(9)]
    task = asyncio.create_task(informer.run(), name="informer under test")
    await api.until_asked(2)
    task.cancel()
    await asyncio.wait([task])
    listed, watched = api.asked
    assert {listed.path, watched.path} == {"/api/v1/configmaps"}
    assert "as=PartialObjectMetadataList;" in listed.headers["Accept"]
    assert "as=PartialObjectMetadata;" in watched.headers["Accept"]
    assert (listed.query["labelSelector"], watched.query["labelSelector"]) == ("a=b", "a=b")


async def test_long_trouble_is_said_once_and_so_is_its_end(
    client: KubeClient, api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [page(9), *(refuses(500, "Broken") for _ in range(4)), streams(bookmark(10), stay=True)]
    await play(client, api, steps, watch_timeout_s=1)
    said = capsys.readouterr()
    assert (said.out + said.err).count("the API server is watched again") == 1
