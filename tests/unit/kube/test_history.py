"""What versions tell about a server that may have gone back."""

from __future__ import annotations

import pytest

from addon_operator.kube.history import History, Progress, Rewind, is_older, newest


@pytest.mark.parametrize(
    ("version", "than", "wanted"),
    [
        ("9", "10", True),
        ("10", "10", False),
        ("11", "10", False),
        ("", "10", False),
        ("9", "", False),
        (None, "10", False),
        ("9", "1a", False),
        ("-9", "10", False),
    ],
)
def test_versions_are_compared_as_numbers_if_they_are(version: object, than: object, wanted: bool) -> None:
    assert is_older(version, than) is wanted


@pytest.mark.parametrize(
    ("known", "beyond", "wanted"),
    [
        ({}, "5", None),
        ({"n/a": "u/5"}, "5", None),
        ({"n/a": "u/6", "n/b": "v/10", "n/c": "w/9"}, "5", "n/b"),
        ({"n/a": "u/x"}, "5", None),
        ({"n/a": "u/6"}, "x", None),
    ],
)
def test_newest_object_that_is_known(known: dict[str, str], beyond: str, wanted: str | None) -> None:
    assert newest(known, beyond=beyond) == wanted


def seen(version: str, *, written: str = "") -> Progress:
    progress = Progress(confirm_s=3)
    progress.listed(version, doubtful=False)
    if written:
        assert progress.wrote(written, after=version)
    return progress


@pytest.mark.parametrize(
    ("progress", "version", "wanted"),
    [
        pytest.param(Progress(confirm_s=3), "1", ["goes on"] * 3, id="the first list"),
        pytest.param(seen("10"), "10", ["goes on"] * 3, id="nothing new"),
        pytest.param(seen("10"), "9", ["older", "older", "confirmed"], id="older"),
        pytest.param(seen("10", written="20"), "19", ["older", "older", "confirmed"], id="older than an own write"),
        pytest.param(seen("10", written="20"), "20", ["goes on"] * 3, id="with the own write"),
        pytest.param(seen("a"), "1", ["goes on"] * 3, id="no numbers"),
    ],
)
def test_list_that_is_older_has_to_be_confirmed(progress: Progress, version: str, wanted: list[str]) -> None:
    assert [progress.judge(version, now) for now in (100.0, 102.9, 103.0)] == wanted


def test_confirming_begins_again_when_a_list_was_out_of_date() -> None:
    progress = seen("10")
    assert progress.judge("9", 0) == "older"
    progress.stays()
    assert progress.judge("9", 10) == "older"
    progress.listed("11", doubtful=False)
    assert progress.judge("9", 20) == "older"


@pytest.mark.parametrize(
    ("version", "doubtful", "wanted"),
    [("9", False, True), ("9", True, True), ("10", False, False), ("10", True, True), ("11", True, True)],
)
def test_list_shows_that_the_server_has_gone_back(version: str, doubtful: bool, wanted: bool) -> None:
    progress = seen("10")
    assert progress.listed(version, doubtful=doubtful) is wanted
    assert (progress.version, progress.newest) == (version, version)


def test_lower_event_is_cleared_up_by_a_list() -> None:
    for listed, ordered in (("5", True), ("10", False)):
        progress = seen("10")
        assert not progress.advance("4")
        assert progress.version == "10"
        assert progress.is_doubtful("4")
        assert progress.listed(listed, doubtful=True) is ordered
        assert progress.advance("1") is not ordered


def test_own_write_is_higher_than_what_was_seen_before_it() -> None:
    progress = seen("10")
    assert progress.wrote("11", after="10")
    assert (progress.newest, progress.version) == ("11", "10")
    assert progress.advance("12")
    assert progress.newest == "12"
    assert not progress.wrote("7", after="12")
    assert progress.newest == "12"


def test_what_is_served_again_begins_again() -> None:
    progress = seen("10", written="12")
    progress.forget()
    assert progress.newest == ""
    assert progress.judge("3", 0) == "goes on"
    assert not progress.is_doubtful("1")


def test_server_that_goes_back_is_said_once_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    history, rewind = History(), Rewind("pods", "10", "5")
    for known in (0, 0, 1, 1, 0):
        history.rewound(rewind, known=known)
    assert history.rewinds == 2
    assert capsys.readouterr().out.count("has gone back") == 2
