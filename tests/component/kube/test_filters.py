"""jq programs in a process of their own, those that behave and those that do not."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
from collections.abc import Iterator

import pytest

from addon_operator.kube import jq
from addon_operator.kube.filters import Filters
from tests.fakes.children import children


@pytest.fixture
def filters() -> Iterator[Filters]:
    before = children()
    made = Filters()
    yield made
    made.close()
    assert children() <= before


def worker(before: set[str]) -> int:
    [pid] = children() - before
    return int(pid)


@pytest.mark.parametrize(
    "program",
    [".", ".a", ".a, .b", "empty", "{b, big}", ".b[]", '"\\(.a)\\n"', "$ENV | type", "[.b[] | select(. > 1)]"],
)
def test_the_outputs_are_those_of_a_run_in_this_process(filters: Filters, program: str) -> None:
    document = '{"a":"ä","b":[1,2.0,1E3],"big":1732200000123456789}'.encode()
    assert filters.run(program, document) == jq.run(program, document)


def test_a_program_that_fails_is_no_program_that_was_stopped(filters: Filters) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match=r"^no\b") as caught:
            filters.run('error("no")', b"{}")
        assert not isinstance(caught.value, jq.Stopped)


def test_documents_and_outputs_may_be_larger_than_a_pipe(filters: Filters) -> None:
    document = json.dumps({"text": "x" * 3_000_000}).encode()
    assert filters.run(".text, .text", document) == (b'"%s"' % (b"x" * 3_000_000),) * 2


@pytest.mark.parametrize(
    "program",
    [
        "def f: f; f",
        "range(infinite)",
        "repeat(.)",
        "[range(infinite)]",
        "def f: 1 + f; f",
        '"x" * 2000000000 | length',
        "until(false; .)",
        "last(range(1e12))",
    ],
)
def test_a_program_without_end_is_stopped_and_others_go_on(filters: Filters, program: str) -> None:
    assert filters.run(".a", b'{"a":1}') == (b"1",)
    with pytest.raises(jq.Stopped, match=r"the program (does not end|ends the process)"):
        filters.run(program, b'{"a":1}')
    assert filters.run(".a", b'{"a":1}') == (b"1",)


def test_a_program_that_was_stopped_is_not_run_again(filters: Filters) -> None:
    before = children()
    for _ in range(3):
        with pytest.raises(jq.Stopped, match="not run again until it is changed"):
            filters.run("def f: f; f", b"{}")
        # It would have needed a process.
        assert children() == before


def test_a_result_without_measure_is_an_error(filters: Filters) -> None:
    with pytest.raises(ValueError, match="larger than 16 MiB"):
        filters.run("range(6) as $_ | .", json.dumps("x" * 3_000_000).encode())


def test_a_worker_that_somebody_kills_is_replaced(filters: Filters) -> None:
    before = children()
    assert filters.run(".", b"1") == (b"1",)
    os.kill(worker(before), signal.SIGKILL)
    assert filters.run(".", b"2") == (b"2",)


def test_ctrl_c_does_not_reach_the_worker(filters: Filters) -> None:
    before = children()
    filters.run(".", b"1")
    pid = worker(before)
    os.kill(pid, signal.SIGINT)
    assert filters.run(".", b"2") == (b"2",)
    assert worker(before) == pid


def test_a_worker_that_cannot_be_started_fails_the_filter_this_time(filters: Filters) -> None:
    limits, taken = resource.getrlimit(resource.RLIMIT_NOFILE), []
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        with pytest.raises(jq.Stopped, match="cannot be started: Too many open files"):
            filters.run(".a", b'{"a": 1}')
    finally:
        for number in taken:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert filters.run(".a", b'{"a": 1}') == (b"1",)
