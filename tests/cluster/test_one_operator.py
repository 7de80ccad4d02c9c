"""One operator works in a namespace at a time: the second one waits, and takes over without a pause."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from addon_operator.devcluster import DevCluster
from tests.cluster.operator import Operator, config_map_chart, eventually, operator

LEASE = "addon-operator-leader-election"
HELLO = config_map_chart("hello", "a: b")
TOUCH = """#!/bin/bash
if [[ $1 == --config ]]; then echo '{configVersion: v1, onStartup: 1}'; else echo run >>"$OUT/hook"; fi
"""


@contextlib.contextmanager
def two(cluster: DevCluster, tmp_path: Path) -> Iterator[tuple[Operator, Operator]]:
    """A ready operator with a module and a hook, and one without them for the same namespace, not yet started."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(operator(cluster, tmp_path / "first"))
        same = {"ADDON_OPERATOR_NAMESPACE": first.namespace}
        second = stack.enter_context(operator(cluster, tmp_path / "second", same))
        first.module("010-hello", {**HELLO, "values.yaml": "helloEnabled: true\n"})
        second.files({"global-hooks/touch.sh": TOUCH})
        first.start_ready()
        yield first, second


def holder(made: Operator) -> str:
    """What the Lease says about who holds it."""
    lease = made.objects.get("lease", LEASE)
    assert lease is not None
    spec = lease.get("spec", {})
    assert isinstance(spec, dict)
    return str(spec.get("holderIdentity", ""))


def pid(made: Operator) -> int:
    assert made.process is not None
    return made.process.pid


def waits(made: Operator) -> bool:
    return made.in_log("this operator does nothing until the other one has ended")


def test_the_second_operator_in_a_namespace_says_who_works_there_and_waits(cluster: DevCluster, tmp_path: Path) -> None:
    with two(cluster, tmp_path) as (first, second):
        second.start()
        eventually(lambda: waits(second), what="a second operator that waits")
        about = f"(process {pid(first)}) holds the Lease {LEASE} since "
        assert about in second.text()
        listed = second.cli("module", "list")
        assert listed.returncode == 1
        assert about in listed.stderr
        status, text = second.http("/readyz")
        assert status == 500
        assert about in text
        assert second.metric(f'leader_election_master_status{{name="{LEASE}"}}') == 0
        assert first.metric(f'leader_election_master_status{{name="{LEASE}"}}') == 1
        # It knows no module, so it would purge the release.
        assert first.revisions("hello") == {1: "deployed"}
        assert second.lines("hook") == []
        assert second.stop() == 0
        assert str(pid(first)) in holder(first)


def test_an_operator_that_stops_hands_over_at_once(cluster: DevCluster, tmp_path: Path) -> None:
    with two(cluster, tmp_path) as (first, second):
        second.start()
        eventually(lambda: waits(second), what="a second operator that waits")
        assert first.stop() == 0
        assert first.in_log("Lease released")
        second.wait_ready()
        assert str(pid(second)) in holder(second)
        assert second.lines("hook") == ["run"]
        assert second.stop() == 0
        assert holder(first) == ""


def test_an_operator_that_was_killed_is_not_waited_for_on_the_same_host(cluster: DevCluster, tmp_path: Path) -> None:
    with two(cluster, tmp_path) as (first, _):
        former = pid(first)
        first.stop(signal.SIGKILL)
        assert str(former) in holder(first)
        first.start_ready()
        assert not waits(first)
        assert first.in_log("the former holder of the Lease has ended")
        assert str(pid(first)) in holder(first)


def test_an_operator_that_lost_its_lease_ends(cluster: DevCluster, tmp_path: Path) -> None:
    with two(cluster, tmp_path) as (first, _):
        first.objects.patch("lease", LEASE, {"spec": {"holderIdentity": "other-0_7__ab"}})
        assert first.process is not None
        assert first.process.wait(timeout=60) == 1
        assert f"Error: other-0 (process 7) holds the Lease {first.namespace}/{LEASE} now" in first.text()
        assert holder(first) == "other-0_7__ab"
        assert first.revisions("hello") == {1: "deployed"}


@pytest.mark.parametrize("signals", [(), (signal.SIGKILL,)], ids=["stopped", "killed"])
def test_a_run_with_once_holds_the_lease_too(
    cluster: DevCluster, tmp_path: Path, signals: tuple[signal.Signals, ...]
) -> None:
    with two(cluster, tmp_path) as (first, second):
        second.start("--once")
        eventually(lambda: waits(second), what="a second operator that waits")
        first.stop(*signals)
        assert second.process is not None
        assert second.process.wait(timeout=60) == 0
        assert second.lines("hook") == ["run"]
        assert holder(second) == ""
