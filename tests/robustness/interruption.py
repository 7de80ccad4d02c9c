"""One case: the reference workload, disturbed at one point; and the undisturbed run that it is compared with."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from addon_operator.devcluster import DevCluster
from addon_operator.devcluster.errors import DevClusterError
from addon_operator.kube.refs import metadata_of
from tests.cluster.operator import Operator, eventually, operator
from tests.robustness import endstate, workload
from tests.robustness.endstate import EndState
from tests.robustness.proxy import Proxy, Trap, proxy
from tests.robustness.requests import Point, Target

# A DevCluster makes namespaces on one connection.
_one_at_a_time = threading.Lock()

Mode = Literal["kill", "stale", "withhold"]
MODES: Final[tuple[Mode, ...]] = ("kill", "stale", "withhold")

# Nothing was written and no process started for so long: what was to come has come.
QUIET_S: Final = 1.0
SETTLED_WITHIN_S: Final = 300.0
# How long an older view or withheld events last if the operator never goes quiet over them.
_LONGEST_FAULT_S: Final = 6.0
# Settled, but wrong: so long it may take until a retry or a watch puts it right.
_WRONG_FOR_S: Final = 20.0
_SECRET_OF: Final = "secrets/sh.helm.release.v1."


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """What is done.

    Attributes:
        mode: `kill` right after the point, and start again; `stale`: the same, but what starts again sees the cluster
            as it was some writes earlier, for a while; `withhold` nothing is killed, but no watch shows what the write
            has changed, for a while.
        point: where.
        back: `stale`: how many writes earlier; more than there were means before the first.
    """

    mode: Mode
    point: Point
    back: int = 0

    def __str__(self) -> str:
        return f"{self.mode}:{self.point}" + (f":{self.back}" if self.mode == "stale" else "")

    @classmethod
    def parse(cls, text: str) -> Case:
        """Reads what `str` gives."""
        mode, _, rest = text.partition(":")
        assert mode in MODES, f"{text}: begins with none of {', '.join(MODES)}"
        if mode == "stale":
            rest, _, back = rest.rpartition(":")
            return cls("stale", Point.parse(rest), int(back))
        return cls("kill" if mode == "kill" else "withhold", Point.parse(rest))

    def steps(self) -> tuple[str, ...]:
        """What is done, in words."""
        fault: tuple[str, ...]
        match self.mode:
            case "kill":
                fault = (f"kill -9 right after {self.point}", "start again")
            case "stale":
                fault = (
                    f"kill -9 right after {self.point}",
                    f"start again, with lists and watches as they were {self.back} writes earlier, until it is quiet",
                )
            case "withhold":
                fault = (f"no watch shows the object of {self.point} until the operator is quiet",)
        return ("start the reference workload, edit its ConfigMap when it has settled", *fault, "compare")


@dataclasses.dataclass(frozen=True, slots=True)
class Reference:
    """An undisturbed run.

    Attributes:
        points: in their order.
        state: in the end.
    """

    points: tuple[Point, ...]
    state: EndState


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """What came of a case.

    Attributes:
        problems: what was wrong in the end.
        struck: the point was reached; else nothing was disturbed.
        log: the operator's.
    """

    problems: tuple[str, ...]
    struck: bool
    log: str


def allowed_revisions(
    case: Case, *, expected: EndState, at_fault: EndState | None, hidden: frozenset[str], config_hidden: bool
) -> dict[str, int]:
    """How many revisions each release may have more than in an undisturbed run (pure); all others are needless.

    - One for a release that an interrupted helm left pending, or failed, if it could still write that its request got
      no answer: only a further revision can finish that.
    - One for a release whose values depend on objects of other modules: it may have seen them earlier or later.
    - Two for a release of which the older view shows another record, or all if it shows another ConfigMap: one for
      acting on what it was shown, and one for what is.

    Args:
        case: what was done.
        expected: of the undisturbed run.
        at_fault: right after the kill.
        hidden: releases that were written after the older view.
        config_hidden: so was the ConfigMap.
    """
    allowed = dict.fromkeys(workload.DEPENDENT, 1)
    for name, release in (at_fault.releases if at_fault is not None else {}).items():
        if release.status.startswith("pending") or release.status == "failed":
            allowed[name] = allowed.get(name, 0) + 1
    if case.mode == "stale":
        for name in expected.releases if config_hidden else hidden:
            allowed[name] = allowed.get(name, 0) + 2
    return allowed


@contextlib.contextmanager
def prepared(plane: DevCluster, root: Path) -> Iterator[tuple[Operator, Proxy]]:
    """An operator with the reference workload, not started, behind a proxy of its own."""
    root.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        with _one_at_a_time:
            made = stack.enter_context(operator(plane, root))
        between = stack.enter_context(proxy(plane, made.namespace))
        made.environment |= between.environment(root)
        made.files(workload.files(made.namespace, helm=plane.environment()["HELM_BIN_PATH"]))
        made.configure(workload.START)
        try:
            yield made, between
        finally:
            if made.process is not None:
                made.process.kill()
                made.process.wait()
            with contextlib.suppress(DevClusterError):
                _remove_cluster_wide(made)


def _remove_cluster_wide(made: Operator) -> None:
    """Spares the control plane what nobody needs any more; a webhook without its operator would be in the way."""
    for kind, name in (
        ("validatingwebhookconfigurations", f"{made.namespace}-hooks"),
        ("customresourcedefinitions", f"things.{workload.group(made.namespace)}"),
    ):
        made.cluster.kubectl("delete", kind, name, "--ignore-not-found", "--wait=false")


class Run:
    """A run of the workload under one case, or none."""

    def __init__(self, made: Operator, between: Proxy, case: Case | None) -> None:
        self._made, self._between, self._case = made, between, case
        self._began_at = _version_of_config(made)
        self._struck_at = 0.0
        self._flows = True
        self.at_fault: EndState | None = None
        self.hidden: frozenset[str] = frozenset()
        self.config_hidden = False
        if case is not None:
            process_start = case.point.what.startswith("start ")
            before = process_start or case.mode == "withhold"
            between.set_trap(Trap(case.point, self._withhold if case.mode == "withhold" else self._kill, before))

    def _kill(self) -> None:
        assert self._made.process is not None
        os.kill(self._made.process.pid, signal.SIGKILL)

    def _withhold(self) -> None:
        assert self._case is not None
        _, _, path = self._case.point.what.partition(" ")
        resource, name, *_ = [*path.replace("NAMESPACE", self._made.namespace).split("/"), ""]
        self._between.withhold(Target(resource=resource, name=name))
        self._flows, self._struck_at = False, time.monotonic()

    def settle(self, done: EndState | None, within_s: float = SETTLED_WITHIN_S, *, history: bool = True) -> list[str]:
        """Waits until nothing is left to do; returns what is wrong if it never is.

        Args:
            done: what the state must be then; None for any.
            within_s: how long it may take.
            history: whether the way there is compared, too: revisions, and objects of Helm hooks.
        """
        deadline = time.monotonic() + within_s
        problems = ["not looked at yet"]
        while time.monotonic() < deadline:
            self._go_on()
            problems = self._unfinished()
            if self._made.process is not None and self._made.process.poll() not in {None, -signal.SIGKILL}:
                return [f"the operator ended with {self._made.process.poll()}"]
            if not problems and self._between.quiet_for_s() > QUIET_S:
                problems = self._compare(done, history=history) if done is not None else []
                # Reading took its time: what was changed meanwhile was not the end.
                if not problems and self._between.quiet_for_s() > QUIET_S and not self._unfinished():
                    return []
                if problems and self._between.quiet_for_s() > _WRONG_FOR_S:
                    return problems
            time.sleep(0.05)
        return problems

    def _unfinished(self) -> list[str]:
        if not self._flows:
            return ["the fault is not over"]
        try:
            return endstate.unfinished(self._made)
        except (OSError, ValueError, AssertionError) as error:
            return [f"the operator does not answer: {error}"]

    def _compare(self, done: EndState, *, history: bool) -> list[str]:
        actual = endstate.capture(self._made)
        if self._case is None:
            return endstate.differences(done, actual, extra_revisions={} if history else None)
        allowed = allowed_revisions(
            self._case,
            expected=done,
            at_fault=self.at_fault,
            hidden=self.hidden,
            config_hidden=self.config_hidden,
        )
        lost = endstate.recreated(self.at_fault, actual) if self.at_fault is not None else []
        return [*endstate.differences(done, actual, extra_revisions=allowed), *lost]

    def _go_on(self) -> None:
        """Starts again what was killed; ends an older view, or withholding, once the operator is quiet."""
        process = self._made.process
        assert process is not None
        if self._between.struck.is_set() and process.poll() == -signal.SIGKILL and self.at_fault is None:
            self.at_fault = endstate.capture(self._made)
            if self._case is not None and self._case.mode == "stale":
                self._freeze(self._case.back)
            self._made.start()
        lasted_s = time.monotonic() - self._struck_at
        quiet_s = min(self._between.quiet_for_s(), lasted_s)
        if not self._flows and (quiet_s > QUIET_S or lasted_s > _LONGEST_FAULT_S):
            self._between.flow()
            self._flows = True

    def _freeze(self, back: int) -> None:
        versions = self._between.versions
        # The answer to a deletion has no version: it is the one before it then.
        old = range(max(len(versions) - back, 0))
        last = max((place for place in old if versions[place][1]), default=-1)
        at = versions[last][1] if last >= 0 else self._began_at
        late = [point for place, (point, version) in enumerate(versions) if place > last or version > at]
        self.hidden = frozenset(
            point.what.split(_SECRET_OF)[1].rpartition(".v")[0] for point in late if _SECRET_OF in point.what
        )
        self.config_hidden = _version_of_config(self._made) > at
        self._between.freeze(at)
        self._flows, self._struck_at = False, time.monotonic()


def _version_of_config(made: Operator) -> int:
    stored = made.objects.get("configmap", "addon-operator")
    assert stored is not None
    return int(str(metadata_of(stored)["resourceVersion"]))


def reference(plane: DevCluster, root: Path) -> Reference:
    """Runs the workload undisturbed, with its edit.

    Raises:
        AssertionError: it does not settle.
    """
    with prepared(plane, root) as (made, between):
        run = Run(made, between, None)
        made.start()
        assert not (problems := run.settle(None)), problems
        made.configure(workload.EDIT)
        eventually(lambda: Point("start helm upgrade later", 1) in between.points)
        assert not (problems := run.settle(None)), problems
        return Reference(tuple(between.points), endstate.capture(made))


def play(plane: DevCluster, root: Path, case: Case, compared_with: Reference) -> Result:
    """Runs the workload with one disturbance, and compares the end."""
    with prepared(plane, root) as (made, between):
        run = Run(made, between, case)
        made.start()
        problems = run.settle(None)
        if not problems:
            made.configure(workload.EDIT)
            problems = run.settle(compared_with.state)
        return Result(tuple(problems), between.struck.is_set(), made.text())
