"""An API server that refuses, stalls, cuts connections and goes silent, while people edit: afterwards all is right."""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

import pytest

from addon_operator.devcluster import DevCluster
from tests.cluster.operator import Operator, config_map
from tests.robustness import endstate, workload
from tests.robustness.faults import Faults
from tests.robustness.interruption import Run, prepared
from tests.robustness.plan import Plan, stream

MINUTES = 10.0
# After the last fault: a watch that has gone silent is noticed within a minute, retries wait up to 30 s.
RIGHT_WITHIN_S = 180.0
_BETWEEN_EDITS_S = (1.0, 6.0)
# What the ConfigMap says in the end, whatever was edited before.
FINAL = {
    "global": "text: final\n",
    "discoverEnabled": "true",
    "kinds": "text: final\n",
    "keeper": "text: final\nstored: kept\n",
    "laterEnabled": "true",
    "leavingEnabled": "false",
}


def edits(dice: random.Random) -> tuple[str, dict[str, str | None]]:
    """One edit of the ConfigMap: what it is, and the keys."""
    name = dice.choice(workload.RELEASES)
    match dice.randrange(4):
        case 0:
            return "global", {"global": f"text: t{dice.randrange(9)}\n"}
        case 1:
            return f"{name}Enabled", {f"{name}Enabled": dice.choice(["true", "false", None])}
        case _:
            return name, {name: f"text: t{dice.randrange(9)}\nsize: {dice.randint(1, 9)}\nstored: kept\n"}


class Person:
    """Somebody who changes things while the API server misbehaves, and undoes it in the end."""

    def __init__(self, made: Operator, seed: int) -> None:
        self._made, self._dice = made, stream(seed, "edits")
        self.did: list[str] = []

    def act(self) -> None:
        """One change: the ConfigMap, an object of a release, or an object that a hook watches."""
        match self._dice.randrange(5):
            case 0:
                name = self._dice.choice(["kinds", "discover", "checked", "scripted", "dynamic"])
                self.did.append(f"deletes ConfigMap {name}")
                self._made.delete(name)
            case 1:
                name = f"extra-{self._dice.randrange(3)}"
                self.did.append(f"toggles ConfigMap {name}")
                if self._made.objects.get("configmap", name):
                    self._made.delete(name)
                else:
                    self._made.create(config_map(name, labels={"watched": "yes"}))
            case _:
                title, data = edits(self._dice)
                self.did.append(f"edits {title}: {json.dumps(data)}")
                self._made.configure(data)

    def finish(self) -> None:
        """Leaves `FINAL` behind, and nothing else."""
        self.did.append("restores the ConfigMap")
        present = dict.fromkeys(self._made.config_data())
        self._made.configure({**present, **FINAL})
        self._made.delete(*[f"extra-{number}" for number in range(3)])

    def pause_s(self) -> float:
        """How long until the next change."""
        return self._dice.uniform(*_BETWEEN_EDITS_S)


def undisturbed(plane: DevCluster, root: Path) -> endstate.EndState:
    """What a cluster looks like that only saw the last ConfigMap."""
    with prepared(plane, root) as (made, between):
        made.configure({**dict.fromkeys(workload.START), **FINAL})
        run = Run(made, between, None)
        made.start()
        assert not (problems := run.settle(None)), problems
        return endstate.capture(made)


def break_for(plane: DevCluster, root: Path, *, seed: int, minutes: float) -> tuple[list[str], list[str], list[str]]:
    """Runs the workload behind an API server that misbehaves; returns what is wrong, the faults met, the edits."""
    expected = undisturbed(plane, root / "undisturbed")
    with prepared(plane, root / "broken") as (made, between):
        person, run = Person(made, seed), Run(made, between, None)
        between.set_faults(Faults(seed))
        made.start()
        until = time.monotonic() + 60 * minutes
        while time.monotonic() < until:
            person.act()
            time.sleep(person.pause_s())
            assert made.process is not None
            assert made.process.poll() is None, f"the operator ended with {made.process.poll()}"
        person.finish()
        between.set_faults(None)
        problems = run.settle(expected, RIGHT_WITHIN_S, history=False)
        return problems, between.faults_met, person.did


@pytest.mark.robustness
@pytest.mark.timeout(2400)
def test_all_is_right_after_the_last_fault(plane: DevCluster, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    seed: int = request.getfixturevalue("seed")
    minutes = request.config.getoption("--minutes") or MINUTES
    problems, faults, edited = break_for(plane, tmp_path, seed=seed, minutes=minutes)
    kinds = sorted({fault.partition(":")[0] for fault in faults})
    counted = ", ".join(f"{kind} {sum(fault.startswith(f'{kind}:') for fault in faults)}" for kind in kinds)
    sys.stdout.write(f"API faults: {len(faults)} in {minutes:g} min ({counted}); {len(edited)} edits\n")
    steps = (f"break requests for {minutes:g} min", *edited, "compare")
    assert not problems, f"{problems}\n{Plan(request.node.nodeid, seed, steps, (f'--minutes={minutes:g}',))}"
    assert faults, "nothing was broken"
