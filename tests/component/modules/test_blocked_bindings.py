"""Bindings that cannot watch, and neighbours in trouble: who waits for whom; in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from tests.component.modules.configurations import BEFORE_HELM, SEE_PODS, SEE_WIDGETS, SYNCHRONIZATION, Play
from tests.fakes.bench import Answer, Bench


@pytest.mark.parametrize("wrong", [Answer(breaks=True), Answer(fails=True)], ids=["a bug", "a failed hook"])
def test_a_neighbour_in_trouble_does_not_cost_a_module_its_synchronization(play: Play, wrong: Answer) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        assert bench.converged

    hooks = {"alpha/x": f"{SEE_PODS}\nbeforeHelm: 1", "beta/x": "beforeHelm: 1"}
    bench = play(hooks, steps, answers={"beta/x": [wrong] * 3})
    assert [run for run in bench.hooks.runs if run[0] == "alpha/x"] == [SYNCHRONIZATION, BEFORE_HELM]


SEE_PORTS = "kubernetes: [{name: pods, kind: Pod, jqFilter: '.spec.ports[]'}]"
CANNOT_LIST = "kubernetes[0]: missing permission: verb list, watch on resource pods"
CANNOT_FILTER = "kubernetes[0]: jqFilter fails on default/a: "


@pytest.mark.parametrize(
    ("config", "reason", "holds"),
    [
        pytest.param(f"{SEE_PODS}\nbeforeHelm: 1", CANNOT_LIST, True, id="works with snapshots"),
        pytest.param(f"{SEE_PODS}\nafterDeleteHelm: 1", CANNOT_LIST, True, id="works with snapshots at the end"),
        pytest.param(f"{SEE_PODS}\nonStartup: 1", CANNOT_LIST, False, id="only reacts"),
        pytest.param(f"{SEE_PORTS}\nbeforeHelm: 1", CANNOT_FILTER, True, id="works with filtered snapshots"),
        pytest.param(f"{SEE_PORTS}\nonStartup: 1", CANNOT_FILTER, False, id="only reacts, filters"),
    ],
)
def test_a_binding_that_cannot_watch_holds_up_those_who_would_take_nothing_for_the_truth(
    play: Play, config: str, reason: str, holds: bool
) -> None:
    async def steps(bench: Bench) -> None:
        await asyncio.sleep(100)
        assert bench.converged is not holds
        assert (bench.registry.state("alpha").error is not None) is holds
        [trouble] = bench.monitors.problems()
        assert trouble.startswith(f"hook hooks/x of module alpha, binding pods, {reason}")
        assert bench.registry.state("alpha").error == (trouble if holds else None)
        bench["pods"].answer()
        bench["pods"].change("Modified", "a", spec={"ports": [80]})
        await bench.rest()
        assert bench.converged

    def prepare(bench: Bench) -> None:
        bench.kind("Pod").change("Added", "a")
        if reason == CANNOT_LIST:
            bench.kind("Pod").refuse("User cannot list")

    assert SYNCHRONIZATION in play({"alpha/x": config}, steps, prepare=prepare).hooks.runs


@pytest.mark.parametrize("config", [f"{SEE_WIDGETS}\nbeforeHelm: 1", SEE_WIDGETS], ids=["snapshots", "only reacts"])
def test_a_kind_that_does_not_exist_holds_up_nobody(play: Play, config: str) -> None:
    async def steps(bench: Bench) -> None:
        await asyncio.sleep(100)
        assert bench.converged
        assert bench.registry.state("alpha").error is None
        [trouble] = bench.monitors.problems()
        assert "the API server does not serve the kind Widget" in trouble
        bench["widgets"].answer()
        await bench.rest()

    assert ("alpha/x", "widgets: Synchronization") in play({"alpha/x": config}, steps).hooks.runs
