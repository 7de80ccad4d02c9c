from __future__ import annotations

import pytest

from addon_operator.server.status import ConvergeStatus, Startup

NOT_STARTED = ConvergeStatus(Startup.NOT_STARTED)
FIRST = ConvergeStatus(Startup.IN_PROGRESS, tasks=7)
IDLE = ConvergeStatus(Startup.DONE)
LATER = ConvergeStatus(Startup.DONE, tasks=2)
LEAVING = ConvergeStatus(Startup.DONE, stopping=True)


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
    status: ConvergeStatus, text: str, document: tuple[int, bool, bool, int, bool]
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
    ],
)
def test_ready_means_converged_once_and_not_stopping(status: ConvergeStatus, ready: bool, sentence: str) -> None:
    assert (status.ready, status.readiness()) == (ready, sentence)


def test_what_is_held_is_named() -> None:
    status = ConvergeStatus(Startup.DONE, held=("web", "data"))
    assert status.text() == "STARTUP_CONVERGE_DONE\nCONVERGE_WAIT_TASK\nMODULES_HELD: web, data\n"
    assert status.document()["MODULES_HELD"] == ["web", "data"]
