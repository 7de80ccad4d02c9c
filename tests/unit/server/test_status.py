from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

import pytest

from addon_operator.server.status import OperatorStatus, Startup

NOT_STARTED = OperatorStatus(Startup.NOT_STARTED)
FIRST = OperatorStatus(Startup.IN_PROGRESS, tasks=7)
IDLE = OperatorStatus(Startup.DONE)
LATER = OperatorStatus(Startup.DONE, tasks=2)
AWAY = OperatorStatus(Startup.DONE, api_server_away_since=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
LEAVING = OperatorStatus(Startup.DONE, stopping=True)


@pytest.mark.parametrize(
    ("status", "text", "document"),
    [
        pytest.param(
            NOT_STARTED,
            "STARTUP_CONVERGE_NOT_STARTED\nCONVERGE_WAIT_TASK\n",
            (0, True, False, 0, True),
            id="not-started",
        ),
        pytest.param(
            FIRST,
            "STARTUP_CONVERGE_IN_PROGRESS: 7 tasks\nCONVERGE_IN_PROGRESS: 7 tasks\n",
            (7, False, False, 7, False),
            id="first-converge",
        ),
        pytest.param(IDLE, "STARTUP_CONVERGE_DONE\nCONVERGE_WAIT_TASK\n", (0, True, True, 0, False), id="idle"),
        pytest.param(
            LATER,
            "STARTUP_CONVERGE_DONE\nCONVERGE_IN_PROGRESS: 2 tasks\n",
            (2, False, True, 0, False),
            id="later-converge",
        ),
    ],
)
def test_converge_status_has_the_keys_of_the_contract(
    status: OperatorStatus, text: str, document: tuple[int, bool, bool, int, bool]
) -> None:
    keys = (
        "CONVERGE_IN_PROGRESS",
        "CONVERGE_WAIT_TASK",
        "STARTUP_CONVERGE_DONE",
        "STARTUP_CONVERGE_IN_PROGRESS",
        "STARTUP_CONVERGE_NOT_STARTED",
    )
    assert status.text() == text
    assert status.document() == dict(zip(keys, document, strict=True))


@pytest.mark.parametrize(
    ("status", "ready", "sentence"),
    [
        pytest.param(NOT_STARTED, False, "Startup converge in progress", id="not-started"),
        pytest.param(FIRST, False, "Startup converge in progress", id="first-converge"),
        pytest.param(IDLE, True, "Startup converge done.", id="idle"),
        pytest.param(LATER, True, "Startup converge done.", id="later-converge"),
        pytest.param(LEAVING, False, "Stopping", id="stopping"),
        pytest.param(dataclasses.replace(AWAY, stopping=True), False, "Stopping", id="stopping, API server away"),
        pytest.param(
            AWAY, False, "The API server has not answered since 2026-01-02T03:04:05+00:00\n", id="API server away"
        ),
        pytest.param(
            dataclasses.replace(AWAY, startup=Startup.IN_PROGRESS),
            False,
            "Startup converge in progress",
            id="API server away in the first converge",
        ),
        pytest.param(
            OperatorStatus(Startup.NOT_STARTED, waits="another operator works"),
            False,
            "another operator works",
            id="waits",
        ),
    ],
)
def test_ready_means_converged_once_and_not_stopping(status: OperatorStatus, ready: bool, sentence: str) -> None:
    assert (status.ready, status.readiness()) == (ready, sentence)


def test_what_is_held_is_named() -> None:
    status = OperatorStatus(Startup.DONE, held=("web", "data"))
    assert status.text() == "STARTUP_CONVERGE_DONE\nCONVERGE_WAIT_TASK\nMODULES_HELD: web, data\n"
    assert status.document()["MODULES_HELD"] == ["web", "data"]


@pytest.mark.parametrize(
    ("status", "code"),
    [
        pytest.param(IDLE, 0, id="done"),
        pytest.param(dataclasses.replace(IDLE, held=("web",)), 0, id="held modules wait for a person"),
        pytest.param(dataclasses.replace(FIRST, stuck=True), 1, id="a task keeps failing"),
        pytest.param(dataclasses.replace(IDLE, stuck=True), 1, id="done, and another task keeps failing"),
        pytest.param(dataclasses.replace(IDLE, undrained={"side": 2}), 1, id="tasks are left"),
        pytest.param(dataclasses.replace(IDLE, failed=("web",)), 1, id="a module failed"),
        pytest.param(NOT_STARTED, 1, id="not started"),
    ],
)
def test_once_ends_with_0_only_if_nothing_is_left_to_do(status: OperatorStatus, code: int) -> None:
    assert status.exit_code == code
