"""Random states of the ConfigMap, each before the last has settled: in the end it is as if only the last had been.

Every so many states the operator may settle, and is compared with a new one in another namespace that saw nothing but
the last of them. If they differ, the last few states are played again by themselves: which of them are enough?
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from addon_operator.devcluster import DevCluster
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from tests.cluster.operator import Operator, operator
from tests.robustness import configurable, workload
from tests.robustness.config_churn import ConfigChurn
from tests.robustness.endstate import EndState, capture, differences, paths, unfinished
from tests.robustness.plan import Failure, Plan, report
from tests.robustness.states import State, random_states, read_schemas, shorter_sequences

CHECKPOINT: Final = 50
# Many removals by one edit are what is wanted here; a new operator has nothing to hold back.
NO_GUARD: Final = {"ADDON_OPERATOR_MAX_REMOVALS": "1000"}
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")
_PLAIN: Final[JsonObject] = {"type": "string", "enum": ["one", "two", "three"]}


@dataclasses.dataclass(frozen=True, slots=True)
class Workload:
    """What an operator runs while its ConfigMap changes.

    Attributes:
        files: for the operator's namespace and the path of helm.
        schemas: what of the schemas on disk is made use of.
        writes: section keys of the ConfigMap that hooks write to.
        needed: modules that others cannot be without.
        remains: objects that hooks and Helm hooks leave behind by their design, when their module is switched off.
    """

    files: Callable[[str, str], Mapping[str, str]]
    writes: frozenset[str]
    needed: frozenset[str] = frozenset()
    schemas: Callable[[Mapping[str, JsonObject]], Mapping[str, JsonObject]] = lambda schemas: schemas
    remains: frozenset[str] = frozenset()


def _plain_texts(schemas: Mapping[str, JsonObject]) -> dict[str, JsonObject]:
    """For charts that do not quote: words only."""
    text = json.dumps({key: dict(schema) for key, schema in schemas.items()})
    plain: dict[str, JsonObject] = json.loads(text, object_hook=_plain_text)
    return plain


def _plain_text(schema: JsonObject) -> JsonObject:
    return _PLAIN if schema.get("type") == "string" and "enum" not in schema else schema


CONFIGURABLE: Final = Workload(lambda namespace, _helm: configurable.files(namespace), frozenset({"remember"}))
REFERENCE: Final = Workload(
    lambda namespace, helm: workload.files(namespace, helm=helm),
    frozenset({"keeper"}),
    frozenset({"kinds"}),
    _plain_texts,
    frozenset(
        {
            "ConfigMap/kinds-noted",
            "ConfigMap/ticked",
            "ConfigMap/installed",
            "ConfigMap/before",
            "ConfigMap/upgraded",
            "CustomResourceDefinition/things.NAMESPACE.example.com",
        }
    ),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Settled:
    """What there is when nothing is left to do.

    Attributes:
        cluster: what the operator has brought about.
        says: what it says of itself: modules, values, what is watched for absence. Not the patches of hooks: a `remove`
            stays, since what it hides may come.
        unfinished: what it has not done, against all expectations.
    """

    cluster: EndState
    says: JsonValue
    unfinished: Sequence[str]

    def differs(self, other: Settled) -> list[str]:
        """Says how another one differs, which should be the same."""
        said = [] if self.says == other.says else [f"the operator: {paths(self.says, other.says)}"]
        own = [f"with the last state alone: {problem}" for problem in self.unfinished]
        return [*own, *other.unfinished, *differences(self.cluster, other.cluster), *said]


def settled(made: Operator, churn: ConfigChurn, kind: Workload, states: Sequence[State]) -> Settled:
    """Applies states and looks at the operator when it has nothing to do, or does not come to that."""
    trouble = []
    try:
        churn.follow(states)
        churn.settle()
    except AssertionError as error:
        trouble.append(str(error))
    return look(made, kind, trouble)


def look(made: Operator, kind: Workload, trouble: Sequence[str]) -> Settled:
    """Looks at an operator; `trouble` is what is known to be wrong."""
    found = capture(made)
    objects = {key: item for key, item in found.objects.items() if key not in kind.remains}
    # It is compared as the document that it is: the layout is that of whoever wrote last.
    objects.pop("ConfigMap/addon-operator", None)
    # A release whose objects would be the same is not upgraded for values that make no difference.
    releases = {name: dataclasses.replace(release, values=None) for name, release in found.releases.items()}
    modules = made.modules()
    enabled = [name for name, module in modules.items() if module["enabled"]]
    refused = made.metric("config_values_errors_total")
    says: JsonObject = {
        "modules": {name: _lasting(module) for name, module in modules.items()},
        "values": {name: made.ask(f"/module/{name}/values.json") for name in enabled},
        "config": {name: made.ask(f"/module/{name}/config.json") for name in modules},
        "global": made.ask("/global/values.json"),
        "watched": made.ask("/module/resource-monitor.json"),
    }
    text = json.dumps(says).replace(str(made.root), "ROOT").replace(made.namespace, "NAMESPACE")
    text = _MOMENT.sub("MOMENT", text)
    return Settled(
        dataclasses.replace(found, objects=objects, releases=releases),
        json.loads(text),
        [*trouble, *unfinished(made), *([f"{refused:g} states were refused"] if refused else [])],
    )


def _lasting(module: JsonObject) -> JsonObject:
    return {name: value for name, value in module.items() if name not in {"revision", "durationSeconds"}}


@contextlib.contextmanager
def churning(plane: DevCluster, root: Path, kind: Workload) -> Iterator[tuple[Operator, ConfigChurn]]:
    """An operator of this workload that does not run yet, and who edits its ConfigMap."""
    root.mkdir(parents=True)
    with operator(plane, root, NO_GUARD) as made:
        made.files(kind.files(made.namespace, plane.environment()["HELM_BIN_PATH"]))
        with contextlib.closing(ConfigChurn(made, known=read_schemas(root))) as churn:
            yield made, churn


def play(plane: DevCluster, root: Path, kind: Workload, states: Sequence[State]) -> Settled:
    """What a new operator makes of some states, each before the last has settled."""
    with churning(plane, root, kind) as (made, churn):
        churn.put(states[0].data)
        churn.start()
        return settled(made, churn, kind, states[1:])


def check(
    plane: DevCluster, root: Path, kind: Workload, *, seed: int, count: int, test: str, minutes: float | None = None
) -> str:
    """Plays states, compares at each checkpoint, fails with the first difference; returns what it did, in one line."""
    every = min(CHECKPOINT, count)
    end = math.inf if minutes is None else time.monotonic() + 60 * minutes
    done = 0
    with churning(plane, root / "churned", kind) as (made, churn):
        schemas = kind.schemas(read_schemas(made.root))
        states = list(itertools.islice(random_states(schemas, seed, checkpoint=every, needed=kind.needed), count))
        churn.put(states[0].data)
        churn.start()
        while done < count and time.monotonic() < end:
            start, part, done = done, states[done : done + every], done + every
            ended, last = settled(made, churn, kind, part), part[-1]
            # A hook that ran for an earlier state may have written after the last: that is a part of it then.
            written = {key: text for key, text in churn.data().items() if key in kind.writes}
            kept = {key: text for key, text in last.data.items() if key not in kind.writes}
            wanted = play(plane, root / f"{start}-fresh", kind, [dataclasses.replace(last, data={**kept, **written})])
            problems = wanted.differs(ended)
            if {**kept, **written} != churn.data():
                problems.append("somebody has changed what people had written into the ConfigMap")
            if problems:
                plan, shorter = narrow(plane, root / f"{start}", kind, part, wanted)
                failure = Failure(Plan(test, seed, tuple(map(str, plan))), (*problems, *shorter))
                pytest.fail(report([failure], done=done, known=count, what="states"), pytrace=False)
        tasks = churn.steps()
    return f"{done} of {count} states, {done // every} times compared, {tasks} tasks and helm processes"


def narrow(
    plane: DevCluster, root: Path, kind: Workload, states: Sequence[State], wanted: Settled
) -> tuple[Sequence[State], list[str]]:
    """Looks for the shortest end of some states that makes the difference by itself."""
    for shorter in shorter_sequences(states):
        if problems := wanted.differs(play(plane, root.with_name(f"{root.name}-last-{len(shorter)}"), kind, shorter)):
            return shorter, [f"the last {len(shorter)} by themselves: {problem}" for problem in problems]
    return states, ["none of the shorter sequences at its end makes a difference"]


def test_the_end_is_that_of_the_last_of_a_few_states(
    plane: DevCluster, tmp_path: Path, seed: int, request: pytest.FixtureRequest
) -> None:
    check(plane, tmp_path, CONFIGURABLE, seed=seed, count=8, test=request.node.nodeid)


@pytest.mark.robustness
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(("kind", "count"), [(CONFIGURABLE, 500), (REFERENCE, 150)], ids=["configurable", "reference"])
def test_the_end_is_that_of_the_last_state(
    plane: DevCluster,
    tmp_path: Path,
    seed: int,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    *,
    kind: Workload,
    count: int,
) -> None:
    done = check(
        plane,
        tmp_path,
        kind,
        seed=seed,
        count=count,
        test=request.node.nodeid,
        minutes=request.config.getoption("--minutes"),
    )
    capsys.readouterr()  # the logs of operators that did as they should
    sys.stdout.write(f"seed {seed}: {done}\n")
