"""Informers when the API server goes back to an older state, or a list is only out of date: in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.kube.client import KubeClient
from addon_operator.kube.history import Rewind
from addon_operator.kube.informers.reflector import Reflector
from addon_operator.kube.refs import CONFIG_MAPS
from tests.component.kube.api import Answer, Asked, Handler, Script, gives, refuses, streams
from tests.component.kube.test_reflector import (
    NO_STREAMING,
    NOT_FOUND,
    Heard,
    bookmark,
    config_map,
    line,
    lists,
    page,
    play,
    streamed,
    until_heard,
    watches,
)
from tests.fakes.background import running

pytestmark = pytest.mark.asyncio(loop_factories=["virtual"])

GONE = refuses(410, "Gone")
SAID = "the API server has gone back to an older state"


def shown(version: int, *, streaming: bool) -> Handler:
    """The older state: `edited` as it was, `lost` not made yet, `deleted` still there."""
    items = (config_map("edited", 3), config_map("same", 2), config_map("deleted", 4))
    return (streamed if streaming else page)(version, *items)


def known(*, streaming: bool) -> list[Handler]:
    """What was seen before: version 20."""
    items = (config_map("edited", 10), config_map("same", 2), config_map("lost", 11))
    if streaming:
        return [streamed(12, *items, then=bookmark(20))]
    return [page(12, *items), streams(bookmark(20))]


BACK = [("Modified", "edited", "3"), ("Added", "deleted", "4"), ("Deleted", "lost", "5")]


@pytest.mark.parametrize("streaming", [False, True], ids=["pages", "streamed"])
@pytest.mark.parametrize("newest", [NOT_FOUND, gives(config_map("lost", 2)), refuses(403, "Forbidden")])
async def test_server_that_went_back_is_believed_when_a_second_list_says_so(
    client: KubeClient, api: Script, newest: Handler, streaming: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    older = shown(5, streaming=streaming)
    steps = [*known(streaming=streaming), GONE, older, older, newest]
    reflector, heard = await play(client, api, steps, streaming=streaming)
    assert heard.short()[3:] == BACK
    assert [asked.path for asked in api.asked if asked.path.endswith("/lost")] == [CONFIG_MAPS.path("n", "lost")]
    assert (reflector.resource_version, watches(api)[-1]) == ("5", "5")
    assert capsys.readouterr().out.count(SAID) == 1
    assert client.history.rewinds == 1


@pytest.mark.parametrize("streaming", [False, True], ids=["pages", "streamed"])
async def test_list_that_is_out_of_date_for_a_moment_changes_nothing(
    client: KubeClient, api: Script, streaming: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    items = (config_map("edited", 25), config_map("same", 2), config_map("lost", 11))
    fresh = (streamed if streaming else page)(30, *items)
    steps = [*known(streaming=streaming), GONE, shown(5, streaming=streaming), fresh]
    _, heard = await play(client, api, steps, streaming=streaming)
    assert heard.short()[3:] == [("Modified", "edited", "25")]
    assert SAID not in capsys.readouterr().out


@pytest.mark.parametrize("streaming", [False, True], ids=["pages", "streamed"])
async def test_list_that_stays_out_of_date_deletes_nothing_that_is_still_there(
    client: KubeClient, api: Script, streaming: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    older = shown(5, streaming=streaming)
    edit = streams(line("MODIFIED", config_map("lost", 21)))
    steps = [*known(streaming=streaming), GONE, older, older, gives(config_map("lost", 11)), edit]
    reflector, heard = await play(client, api, steps, streaming=streaming)
    # It goes on where it was.
    assert heard.short()[3:] == [("Modified", "lost", "21")]
    assert reflector.resource_version == "21"
    assert SAID not in capsys.readouterr().out


async def test_what_a_handler_failed_on_is_delivered_again_although_a_list_was_out_of_date(
    client: KubeClient, api: Script
) -> None:
    heard = Heard(fails_for="lost", times=1)
    older = shown(5, streaming=True)
    again = streamed(30, config_map("edited", 10), config_map("same", 2), config_map("lost", 11), config_map("new", 25))
    stale = [older, older, gives(config_map("new", 25))]
    steps = [
        streamed(12, config_map("lost", 11), then=line("ADDED", config_map("new", 25)), stay=True),
        *stale,
        streams(stay=True),
        again,
    ]
    await play(client, api, steps, handler=heard, streaming=True)
    assert heard.short()[:2] == [("Added", "lost", "11"), ("Added", "new", "25")]
    assert ("Added", "lost", "11") in heard.short()[2:]


async def test_server_that_went_back_and_has_overtaken_since_is_noticed(
    client: KubeClient, api: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [*known(streaming=True), GONE, shown(90, streaming=True)]
    _, heard = await play(client, api, steps, streaming=True)
    assert heard.short()[3:] == [*BACK[:2], ("Deleted", "lost", "90")]
    assert capsys.readouterr().out.count(SAID) == 1


async def test_bookmark_below_what_was_seen_leads_to_a_list(client: KubeClient, api: Script) -> None:
    older = shown(5, streaming=True)
    steps = [*known(streaming=True), streams(bookmark(6)), older, older, NOT_FOUND]
    _, heard = await play(client, api, steps, streaming=True)
    assert heard.short()[3:] == BACK
    assert watches(api)[-1] == "5"


async def test_server_whose_versions_are_no_order_is_taken_as_it_is(
    client: KubeClient, api: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    state = (config_map("edited", 3), config_map("same", 2), config_map("lost", 11))
    steps = [
        *known(streaming=True),
        streams(line("MODIFIED", config_map("edited", 3))),
        streamed(20, *state, then=line("MODIFIED", config_map("edited", 4))),
        streams(line("MODIFIED", config_map("edited", 5))),
    ]
    _, heard = await play(client, api, steps, streaming=True)
    assert heard.short()[3:] == [("Modified", "edited", version) for version in ("3", "4", "5")]
    assert SAID not in capsys.readouterr().out


async def test_server_that_went_back_is_said_once_and_leads_to_a_list_everywhere(
    client: KubeClient, api: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Reflector(
        client, CONFIG_MAPS, namespace="n", handler=(heard := Heard()), watch_timeout_s=600, confirm_s=0.2
    )
    api.steps = known(streaming=True)
    async with running(other):
        await api.until_asked(2)
        client.history.rewound(Rewind("secrets", "20", "5"), known=0)
        older = shown(5, streaming=True)
        api.steps = [older, older, NOT_FOUND]
        await until_heard(heard, BACK, after=3)
    assert capsys.readouterr().out.count(SAID) == 1


async def test_own_write_below_what_was_seen_leads_to_a_list(
    client: KubeClient, api: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    reflector = Reflector(client, CONFIG_MAPS, namespace="n", handler=(heard := Heard()), confirm_s=0.2)
    api.steps = known(streaming=True)
    async with running(reflector):
        await api.until_asked(2)
        older = shown(5, streaming=True)
        api.steps = [older, older, NOT_FOUND]
        assert reflector.seen == "20"
        reflector.wrote("6", after=reflector.seen)
        await until_heard(heard, BACK, after=3)
    assert capsys.readouterr().out.count(SAID) == 1


async def test_list_below_an_own_write_is_out_of_date(client: KubeClient, api: Script) -> None:
    reflector = Reflector(client, CONFIG_MAPS, namespace="n", handler=(heard := Heard()), confirm_s=0.2)
    written = asyncio.Event()

    async def ends(asked: Asked) -> Answer:
        await written.wait()
        return await GONE(asked)

    api.steps = [NO_STREAMING, page(9), ends, page(20), page(30, config_map("same", 25))]
    async with running(reflector):
        await reflector.synced.wait()
        reflector.wrote("25", after=reflector.seen)
        written.set()
        await api.until_asked(6)
    assert heard.short() == [("Added", "same", "25")]
    assert lists(api) == 3


async def test_list_that_does_not_resume_is_made_each_time(client: KubeClient, api: Script) -> None:
    reflector = Reflector(client, CONFIG_MAPS, namespace="n", handler=(heard := Heard()), resumes=False)
    one = config_map("same", 2)
    api.steps = [
        streamed(20, one, then=bookmark(21)),
        gives(one),
        streamed(22, one, then=line("MODIFIED", config_map("same", 23))),
        NOT_FOUND,
    ]
    async with running(reflector):
        await api.until_asked(5)
    assert heard.short() == [("Added", "same", "2"), ("Modified", "same", "23")]
    assert watches(api) == ["", "", ""]


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        ([config_map("same", 1)] * 3, 1),
        ([config_map("same", 1), config_map("same", 2), config_map("same", 1)], 0),
        ([config_map("same", 2), config_map("same", 3), config_map("same", 2)], 0),
        ([config_map("same", 3, uid="another")] * 2, 1),
    ],
    ids=["older", "older for a moment", "as listed", "another"],
)
async def test_server_that_lists_what_it_remembers_is_said_once(
    client: KubeClient, api: Script, stored: list[JsonObject], wanted: int, capsys: pytest.CaptureFixture[str]
) -> None:
    reflector = Reflector(client, CONFIG_MAPS, namespace="n", handler=(heard := Heard()), resumes=False)
    listed = streamed(20, config_map("same", 2))
    api.steps = [listed, *(step for one in stored for step in (gives(one), listed))]
    async with running(reflector):
        await api.until_asked(2 * len(stored) + 2)
    assert heard.short() == [("Added", "same", "2")]
    assert capsys.readouterr().out.count("lists what it remembers") == wanted
