"""Whose connection ends when one more comes, and how many there may be."""

from __future__ import annotations

import pytest

from addon_operator.process.file_limit import connections_for
from addon_operator.serving.connection import Occupant, longest_idle, over_limit

A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"


def occupants(*clients: str) -> list[Occupant]:
    return [Occupant(client, float(at)) for at, client in enumerate(clients)]


@pytest.mark.parametrize(
    ("open_ones", "client", "rivals"),
    [
        pytest.param([], A, [], id="nobody"),
        pytest.param([A, B], A, [], id="room"),
        pytest.param([A, A, B], A, [A, A], id="a client with too many gives up one of its own"),
        pytest.param([A, A, B], B, [], id="the others do not feel it"),
        pytest.param([A, A, B, B], C, [A, A, B, B], id="all places are taken"),
        pytest.param([A, A, B, B], A, [A, A], id="both bounds: its own"),
    ],
)
def test_who_has_to_make_room(open_ones: list[str], client: str, rivals: list[str]) -> None:
    found = over_limit(occupants(*open_ones), client, most=4, most_per_client=2)
    assert [occupant.client for occupant in found] == rivals


@pytest.mark.parametrize(
    ("idle_since", "chosen"),
    [([], None), ([None, None], None), ([3.0, 0.0, 2.0], 1), ([None, 5.0], 1), ([1.0, 1.0], 0)],
)
def test_the_longest_idle_goes_and_never_one_that_is_worked_for(
    idle_since: list[float | None], chosen: int | None
) -> None:
    found = [Occupant(A, since) for since in idle_since]
    assert longest_idle(found) is (None if chosen is None else found[chosen])


@pytest.mark.parametrize(
    ("limit", "connections"), [(2**20, 256), (2048, 256), (1024, 128), (256, 32), (16, 4)], ids=str
)
def test_four_servers_leave_half_of_the_descriptors(limit: int, connections: int) -> None:
    assert connections_for(256, limit) == connections
