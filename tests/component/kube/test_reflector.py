"""The reflector against a scripted server: every way a list or a watch can go wrong, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import KubeError
from addon_operator.kube.client import KubeClient
from addon_operator.kube.informers.known_objects import Handler as EventHandler
from addon_operator.kube.informers.reflector import Reflector
from addon_operator.kube.refs import CONFIG_MAPS, WatchEvent
from tests.component.kube.api import Answer, Asked, Handler, Script, breaks, gives, refuses, serving, streams
from tests.connection import connected
from tests.fakes.background import running

pytestmark = pytest.mark.asyncio(loop_factories=["virtual"])


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


def streamed(version: int, *items: JsonObject, then: bytes = b"", stay: bool = False) -> Handler:
    """The list as the beginning of a watch, and what comes after it."""
    end: JsonObject = {"resourceVersion": str(version), "annotations": {"k8s.io/initial-events-end": "true"}}
    lines = [line("ADDED", item) for item in items]
    return streams(*lines, line("BOOKMARK", {"kind": "ConfigMap", "metadata": end}) + then, stay=stay)


NO_STREAMING = refuses(422, "Invalid", message="sendInitialEvents is forbidden")


class Event(NamedTuple):
    kind: WatchEvent
    object: JsonObject


class Heard:
    """Remembers events as (kind, name, resourceVersion)."""

    def __init__(self, *, fails_for: str = "", fails_on: WatchEvent | None = None, times: int = 1000) -> None:
        self.events: list[Event] = []
        self._fails_for, self._fails_on, self._times = fails_for, fails_on, times

    def __call__(self, kind: WatchEvent, item: JsonObject) -> None:
        event = Event(kind, item)
        self.events.append(event)
        if self._times and text(event, "name") == self._fails_for and self._fails_on in {None, kind}:
            self._times -= 1
            raise RuntimeError("a bug in a handler")

    def short(self) -> list[tuple[str, str, str]]:
        return [(event.kind, text(event, "name"), text(event, "resourceVersion")) for event in self.events]


def text(event: Event, key: str) -> str:
    return str(jsondoc.lookup(event.object, f"/metadata/{key}"))


async def play(
    client: KubeClient,
    api: Script,
    steps: list[Handler],
    *,
    handler: EventHandler | None = None,
    on_error: Callable[[KubeError | None], None] = lambda _error: None,
    watch_timeout_s: float = 300.0,
    streaming: bool = False,
    confirm_s: float = 0.2,
) -> tuple[Reflector, Heard]:
    """Runs a reflector through all steps, until it asks once more than there are steps.

    Unless `streaming`, the server does not stream lists; the request that finds that out is not shown in `api.asked`.
    """
    heard = Heard()
    api.steps = steps if streaming else [NO_STREAMING, *steps]
    requests = len(api.steps) + 1
    reflector = Reflector(
        client,
        CONFIG_MAPS,
        namespace="n",
        handler=handler or heard,
        on_error=on_error,
        watch_timeout_s=watch_timeout_s,
        confirm_s=confirm_s,
    )
    async with running(reflector):
        await api.until_asked(requests)
    if not streaming:
        del api.asked[0]
    return reflector, heard


async def until_heard(heard: Heard, wanted: list[tuple[str, str, str]], *, after: int) -> None:
    """Waits until what was heard, but for the first events, is `wanted`."""
    while heard.short()[after:] != wanted:
        await asyncio.sleep(0.01)


def watches(api: Script) -> list[str]:
    """What each watch resumed from, in order; empty for one that begins with the list."""
    return [asked.query.get("resourceVersion", "") for asked in api.asked if "watch" in asked.query]


def lists(api: Script) -> int:
    return sum("watch" not in asked.query for asked in api.asked)


async def test_pages_are_followed_and_the_watch_starts_from_their_version(client: KubeClient, api: Script) -> None:
    _, heard = await play(client, api, [page(9, config_map("a", 1), more="next page"), page(9, config_map("b", 2))])
    assert heard.short() == [("Added", "a", "1"), ("Added", "b", "2")]
    assert [asked.query.get("continue") for asked in api.asked[:2]] == [None, "next page"]
    assert watches(api) == ["9"]
    assert api.asked[2].query["allowWatchBookmarks"] == "true"


async def test_objects_are_complete_and_lean(client: KubeClient, api: Script) -> None:
    _, heard = await play(client, api, [page(9, config_map("a", 1))])
    [event] = heard.events
    assert (event.object["apiVersion"], event.object["kind"]) == ("v1", "ConfigMap")
    assert event.object["data"] == {"version": "1"}
    assert "managedFields" not in str(event.object)


async def test_next_page_is_under_way_while_one_is_handed_out(client: KubeClient, api: Script) -> None:
    under_way: dict[str, tuple[int, int]] = {}

    def look(kind: WatchEvent, item: JsonObject) -> None:
        under_way[text(Event(kind, item), "name")] = len(page_requests()), len(api.asked)

    await play(client, api, [page(9, config_map("a", 1), more="x"), page(9, config_map("b", 2))], handler=look)
    assert under_way == {"a": (1, 3), "b": (0, 3)}


async def test_page_that_is_under_way_ends_with_the_informer(client: KubeClient, api: Script) -> None:
    reflector = Reflector(client, CONFIG_MAPS, namespace="n", handler=Heard())
    api.steps = [NO_STREAMING, page(9, config_map("a", 1), more="x")]
    async with running(reflector):
        await api.until_asked(3)
        assert len(page_requests()) == 1
    assert page_requests() == []


def page_requests() -> list[str]:
    names = [task.get_name() for task in asyncio.all_tasks() if not task.done()]
    return [name for name in names if name.startswith("next page")]


async def test_list_and_watch_are_one_request_where_the_server_streams(client: KubeClient, api: Script) -> None:
    after = line("MODIFIED", config_map("a", 30))
    steps = [streamed(20, config_map("b", 12), config_map("a", 11), then=after)]
    reflector, heard = await play(client, api, steps, streaming=True)
    assert reflector.synced.is_set()
    assert heard.short() == [("Added", "b", "12"), ("Added", "a", "11"), ("Modified", "a", "30")]
    query = api.asked[0].query
    assert (query["sendInitialEvents"], query["resourceVersionMatch"]) == ("true", "NotOlderThan")
    assert (query["allowWatchBookmarks"], "limit" in query) == ("true", False)
    assert watches(api) == ["", "30"]


async def test_list_in_a_stream_counts_from_its_end(client: KubeClient, api: Script) -> None:
    reflector = Reflector(client, CONFIG_MAPS, namespace="n", handler=(heard := Heard()), watch_timeout_s=60)
    api.steps = [streams(line("ADDED", config_map("a", 1)), bookmark(5), stay=True)]
    async with running(reflector):
        await asyncio.sleep(1)
        assert heard.short() == [("Added", "a", "1")]
        assert not reflector.synced.is_set()
        assert reflector.resource_version == ""


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(breaks, id="connection lost"),
        pytest.param(streams, id="ended by the server"),
        pytest.param(lambda *lines: streams(*lines, trouble(500, "Broken")), id="error in the stream"),
    ],
)
async def test_list_in_a_stream_that_breaks_starts_over(
    client: KubeClient, api: Script, broken: Callable[..., Handler]
) -> None:
    cut = broken(line("ADDED", config_map("a", 1)), line("ADDED", config_map("gone meanwhile", 2)))
    whole = streamed(20, config_map("a", 1), config_map("b", 15))
    _, heard = await play(client, api, [cut, whole], streaming=True)
    assert heard.short() == [
        ("Added", "a", "1"),
        ("Added", "gone meanwhile", "2"),
        ("Added", "b", "15"),
        ("Deleted", "gone meanwhile", "20"),
    ]
    assert watches(api) == ["", "", "20"]


async def test_new_list_in_a_stream_tells_the_difference_only(client: KubeClient, api: Script) -> None:
    before = streamed(9, config_map("same", 1), config_map("changed", 2), config_map("lost", 3))
    after = streamed(50, config_map("same", 1), config_map("changed", 40), config_map("new", 41))
    _, heard = await play(client, api, [before, refuses(410, "Gone"), after], streaming=True)
    assert heard.short()[3:] == [("Modified", "changed", "40"), ("Added", "new", "41"), ("Deleted", "lost", "50")]
    assert watches(api) == ["", "9", "", "50"]


async def test_server_that_does_not_stream_is_asked_for_pages_without_a_word(client: KubeClient, api: Script) -> None:
    told: list[KubeError | None] = []
    steps = [NO_STREAMING, page(9, config_map("a", 1)), refuses(410, "Gone"), page(20, config_map("a", 1))]
    await play(client, api, steps, streaming=True, on_error=told.append)
    assert [asked.query.get("limit") for asked in api.asked] == [None, "500", None, "500", None]
    assert watches(api) == ["", "9", "20"]
    assert statuses(told) == [410, None]


async def test_server_that_cannot_stream_yet_is_asked_for_pages_this_time(client: KubeClient, api: Script) -> None:
    cold = refuses(429, "TooManyRequests", message="storage is (re)initializing", retry_after="60")
    reflector, heard = await play(
        client, api, [cold, page(9, config_map("a", 1)), refuses(410, "Gone")], streaming=True
    )
    assert reflector.synced.is_set()
    assert heard.short() == [("Added", "a", "1")]
    assert watches(api) == ["", "9", ""]


async def test_server_that_does_not_know_streamed_lists_is_asked_for_pages(client: KubeClient, api: Script) -> None:
    told: list[KubeError | None] = []
    endless = streams(line("ADDED", config_map("a", 1)), stay=True)
    steps = [endless, page(9, config_map("a", 1), config_map("b", 2))]
    _, heard = await play(client, api, steps, streaming=True, watch_timeout_s=2, on_error=told.append)
    assert heard.short() == [("Added", "a", "1"), ("Added", "b", "2")]
    assert "no end of the list" in str(told[0])
    assert told[1:] == [None]


def statuses(told: list[KubeError | None]) -> list[int | None]:
    return [None if error is None else error.status for error in told]


@pytest.mark.parametrize(
    ("steps", "wanted"),
    [
        pytest.param([page(9)], [], id="none"),
        pytest.param([refuses(500, ""), refuses(403, ""), page(9)], [500, 403, None], id="list"),
        pytest.param([page(9), refuses(500, ""), streams(bookmark(10))], [500, None, 0], id="watch"),
        pytest.param([page(9), refuses(410, ""), refuses(503, ""), page(9)], [410, 503, None], id="new list"),
        pytest.param([page(9), refuses(403, ""), streams(bookmark(10))], [403, None, 0], id="may list but not watch"),
    ],
)
async def test_trouble_is_told_and_so_is_its_end(
    client: KubeClient, api: Script, steps: list[Handler], wanted: list[int | None]
) -> None:
    told: list[KubeError | None] = []
    await play(client, api, steps, on_error=told.append)
    assert statuses(told) == wanted


async def test_who_may_not_list_any_more_keeps_what_is_known(client: KubeClient, api: Script) -> None:
    forbidden = refuses(403, "Forbidden")
    steps = [page(9, config_map("a", 1)), refuses(410, "Gone"), forbidden, forbidden, page(20, config_map("a", 1))]
    _, heard = await play(client, api, steps)
    assert heard.short() == [("Added", "a", "1")]


NOT_FOUND = refuses(404, "NotFound")
NOTHING_SERVED: list[Handler] = [gives({"kind": "APIGroupDiscoveryList", "items": []})] * 2


def serves_config_maps() -> list[Handler]:
    """The answers of `/api` and `/apis`, whichever is asked first."""
    resource: JsonObject = {"resource": "configmaps", "responseKind": {"kind": "ConfigMap"}, "scope": "Namespaced"}
    core: JsonObject = {"metadata": {}, "versions": [{"version": "v1", "resources": [resource]}]}
    return [gives({"kind": "APIGroupDiscoveryList", "items": [core]})] * 2


async def test_objects_of_a_kind_that_is_gone_are_deleted_until_it_comes_back(client: KubeClient, api: Script) -> None:
    told: list[KubeError | None] = []
    first = page(9, config_map("a", 1), config_map("b", 2))
    steps = [first, NOT_FOUND, *NOTHING_SERVED, NOT_FOUND, page(30, config_map("a", 25, uid="new"))]
    reflector, heard = await play(client, api, steps, on_error=told.append)
    assert heard.short()[2:] == [("Deleted", "a", "9"), ("Deleted", "b", "9"), ("Added", "a", "25")]
    assert statuses(told) == [404, 404, None]
    assert reflector.synced.is_set()
    # The second 404 has nobody left to delete, and asks no further.
    assert [asked.path for asked in api.asked].count("/apis") == 1


async def test_not_found_of_a_proxy_in_front_of_a_server_that_serves_the_kind_deletes_nothing(
    client: KubeClient, api: Script
) -> None:
    steps = [page(9, config_map("a", 1)), NOT_FOUND, *serves_config_maps(), page(9, config_map("a", 1))]
    _, heard = await play(client, api, steps)
    assert heard.short() == [("Added", "a", "1")]


async def test_not_found_of_a_proxy_without_a_server_deletes_nothing(client: KubeClient, api: Script) -> None:
    steps = [page(9, config_map("a", 1)), NOT_FOUND, NOT_FOUND, page(9, config_map("a", 1))]
    _, heard = await play(client, api, steps)
    assert heard.short() == [("Added", "a", "1")]


@pytest.mark.asyncio(loop_factories=["real"])
async def test_credentials_that_cannot_be_read_for_a_while_are_a_passing_trouble(tmp_path: Path) -> None:
    told: list[KubeError | None] = []
    kubeconfig, whole = tmp_path / "kubeconfig", ""

    async def rotate(asked: Asked) -> Answer:
        kubeconfig.write_text("")
        return await refuses(401, "Unauthorized")(asked)

    def mend(error: KubeError | None) -> None:
        told.append(error)
        kubeconfig.write_text(whole.replace("first", "second"))

    refused = refuses(401, "Unauthorized")
    steps = [page(9, config_map("a", 1)), rotate, refused, streams(bookmark(10))]
    async with serving() as api:
        whole = api.kubeconfig(tmp_path, {"token": "first"}).read_text()
        async with connected(kubeconfig) as client:
            _, heard = await play(client, api, steps, on_error=mend)
    assert "kubeconfig" in str(told[0])
    assert heard.short() == [("Added", "a", "1")]
    assert watches(api) == ["9", "9", "9", "10"]
    assert api.asked[-1].headers["Authorization"] == "Bearer second"


async def test_watch_is_resumed_after_the_last_thing_seen(client: KubeClient, api: Script) -> None:
    lost = streams(line("ADDED", config_map("a", 10)), bookmark(20), stay=True)
    broken = breaks(line("MODIFIED", config_map("a", 30)))
    _, heard = await play(client, api, [page(9), lost, broken], watch_timeout_s=3)
    assert heard.short() == [("Added", "a", "10"), ("Modified", "a", "30")]
    assert watches(api) == ["9", "20", "30"]
    assert lists(api) == 1


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([refuses(429, "Busy"), streams(trouble(429, "Busy"))], id="429 for a while"),
        pytest.param([refuses(500, "Busy"), streams(bookmark(9), trouble(500, "Busy"))], id="500 once"),
        pytest.param([refuses(503, "Busy"), streams(bookmark(9), trouble(503, "Busy"))], id="503 once"),
    ],
)
async def test_passing_refusals_keep_the_place(client: KubeClient, api: Script, steps: list[Handler]) -> None:
    await play(client, api, [page(9), *steps])
    assert watches(api) == ["9", "9", "9"]
    assert lists(api) == 1


@pytest.mark.parametrize("status", [500, 502, 503])
async def test_server_that_was_away_is_listed_anew(client: KubeClient, api: Script, status: int) -> None:
    away = refuses(status, "Away")
    await play(client, api, [page(9, config_map("a", 1)), away, away, page(9, config_map("a", 1))])
    assert watches(api) == ["9", "9", "9"]
    assert lists(api) == 2


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(refuses(410, "Gone"), id="refused with 410"),
        pytest.param(streams(trouble(410, "Expired")), id="410 in the stream"),
        pytest.param(streams(trouble(504, "Timeout")), id="version from the future"),
    ],
)
async def test_new_list_tells_the_difference_only(client: KubeClient, api: Script, refusal: Handler) -> None:
    before = page(9, config_map("same", 1), config_map("changed", 2), config_map("lost", 3))
    after = page(50, config_map("same", 1), config_map("changed", 40), config_map("new", 41))
    _, heard = await play(client, api, [before, refusal, after])
    assert heard.short()[3:] == [("Modified", "changed", "40"), ("Added", "new", "41"), ("Deleted", "lost", "50")]
    assert text(heard.events[-1], "uid") == "uid-lost"
    assert text(heard.events[-1], "namespace") == "n"
    assert watches(api)[-1] == "50"


async def test_object_made_again_under_its_name_is_deleted_first(client: KubeClient, api: Script) -> None:
    again = page(50, config_map("a", 40, uid="second"))
    _, heard = await play(client, api, [page(9, config_map("a", 1, uid="first")), refuses(410, "Gone"), again])
    assert [(event.kind, text(event, "uid")) for event in heard.events] == [
        ("Added", "first"),
        ("Deleted", "first"),
        ("Added", "second"),
    ]


async def test_watch_event_of_a_remade_object_is_deleted_first(client: KubeClient, api: Script) -> None:
    gap = streams(line("ADDED", config_map("a", 40, uid="second")), trouble(410, "Expired"))
    _, heard = await play(client, api, [page(9, config_map("a", 1, uid="first")), gap])
    assert [event.kind for event in heard.events] == ["Added", "Deleted", "Added"]


async def test_pages_that_expire_are_listed_again_in_one_piece(client: KubeClient, api: Script) -> None:
    steps = [
        page(9, config_map("a", 1), config_map("gone meanwhile", 2), more="next"),
        refuses(410, "Expired"),
        page(20, config_map("a", 1), config_map("b", 15)),
    ]
    _, heard = await play(client, api, steps)
    assert heard.short() == [
        ("Added", "a", "1"),
        ("Added", "gone meanwhile", "2"),
        ("Added", "b", "15"),
        ("Deleted", "gone meanwhile", "20"),
    ]
    assert "limit" not in api.asked[2].query
    assert "continue" not in api.asked[2].query


async def test_known_states_are_not_told_twice(client: KubeClient, api: Script) -> None:
    again = streams(line("ADDED", config_map("a", 1)), line("DELETED", config_map("never seen", 5)))
    _, heard = await play(client, api, [page(9, config_map("a", 1)), again])
    assert heard.short() == [("Added", "a", "1")]


async def test_deleted_object_is_handed_out_as_it_was(client: KubeClient, api: Script) -> None:
    deleted = streams(line("DELETED", config_map("a", 7)))
    _, heard = await play(client, api, [page(5, config_map("a", 1)), deleted])
    assert heard.short() == [("Added", "a", "1"), ("Deleted", "a", "7")]
    assert heard.events[-1].object["data"] == {"version": "7"}


@pytest.mark.parametrize("streaming", [False, True], ids=["pages", "streamed"])
async def test_object_whose_handler_fails_keeps_no_other_back_and_is_delivered_again(
    client: KubeClient, api: Script, streaming: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    items = [config_map("a", 1), config_map("bad", 2), config_map("c", 3)]
    edit, later = line("MODIFIED", config_map("a", 10)), [config_map("a", 10), *items[1:]]
    if streaming:
        steps = [streamed(9, *items, then=edit, stay=True), streamed(11, *later)]
    else:
        steps = [page(9, *items), streams(edit, stay=True), page(11, *later), streams(bookmark(12))]
    heard = Heard(fails_for="bad", times=1)
    reflector, _ = await play(client, api, steps, handler=heard, streaming=streaming)
    assert reflector.synced.is_set()
    assert heard.short() == [
        ("Added", "a", "1"),
        ("Added", "bad", "2"),
        ("Added", "c", "3"),
        ("Modified", "a", "10"),
        ("Added", "bad", "2"),
    ]
    assert "an event of an object could not be handled" in capsys.readouterr().out


async def test_deletion_whose_handler_fails_is_delivered_again(client: KubeClient, api: Script) -> None:
    deleted = streams(line("DELETED", config_map("a", 10)), stay=True)
    heard = Heard(fails_for="a", times=1, fails_on="Deleted")
    await play(client, api, [page(9, config_map("a", 1)), deleted, page(11), streams(bookmark(12))], handler=heard)
    assert heard.short() == [("Added", "a", "1"), ("Deleted", "a", "10"), ("Deleted", "a", "11")]


async def test_handler_that_always_fails_does_not_cause_lists_without_a_pause(client: KubeClient, api: Script) -> None:
    heard = Heard(fails_for="bad")
    reflector = Reflector(client, CONFIG_MAPS, namespace="n", handler=heard, watch_timeout_s=300)
    api.steps = [streamed(9, config_map("bad", 2), stay=True) for _ in range(9)]
    async with running(reflector):
        await asyncio.sleep(2.5)
    assert len(api.asked) == 2


async def test_server_that_ends_watches_at_once_is_not_asked_in_a_tight_loop(client: KubeClient, api: Script) -> None:
    reflector = Reflector(client, CONFIG_MAPS, namespace="n", handler=Heard())
    api.steps = [streamed(9), *(streams() for _ in range(100))]
    async with running(reflector):
        await asyncio.sleep(1.5)
    assert len(watches(api)) < 15


async def test_retry_after_is_honoured(client: KubeClient, api: Script) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await play(client, api, [page(9), refuses(429, "TooManyRequests", retry_after="1")])
    assert loop.time() - began >= 1


async def test_not_synced_says_what_and_why(client: KubeClient, api: Script) -> None:
    api.steps = [refuses(500, "InternalError", message="no leader") for _ in range(20)]
    reflector = Reflector(client, CONFIG_MAPS, namespace="n", handler=Heard())
    async with running(reflector):
        await api.until_asked(2)
        with pytest.raises(KubeError, match=r"configmaps in n: not listed within 0\.3 s: .*500 InternalError"):
            await reflector.wait_synced(0.3)


async def test_what_is_forbidden_is_not_waited_for(client: KubeClient, api: Script) -> None:
    api.steps = [refuses(403, "Forbidden", message="configmaps is forbidden") for _ in range(20)]
    reflector = Reflector(client, CONFIG_MAPS, namespace="n", handler=Heard())
    async with running(reflector):
        with pytest.raises(
            KubeError, match=r"missing permission: verb list, watch on resource configmaps .* in namespace n"
        ):
            await reflector.wait_synced(60)


async def test_metadata_only_asks_for_no_more(client: KubeClient, api: Script) -> None:
    reflector = Reflector(
        client, CONFIG_MAPS, namespace=None, label_selector="a=b", metadata_only=True, handler=Heard()
    )
    api.steps = [NO_STREAMING, page(9)]
    async with running(reflector):
        await api.until_asked(3)
    streamed, listed, watched = api.asked
    assert {streamed.path, listed.path, watched.path} == {"/api/v1/configmaps"}
    assert "as=PartialObjectMetadata;" in streamed.headers["Accept"]
    assert "as=PartialObjectMetadataList;" in listed.headers["Accept"]
    assert "as=PartialObjectMetadata;" in watched.headers["Accept"]
    assert (listed.query["labelSelector"], watched.query["labelSelector"]) == ("a=b", "a=b")


async def test_long_trouble_is_said_once_and_so_is_its_end(
    client: KubeClient, api: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [page(9), *(refuses(500, "Broken") for _ in range(4)), page(9), streams(bookmark(10))]
    await play(client, api, steps)
    said = capsys.readouterr()
    assert (said.out + said.err).count("the API server is watched again") == 1
