"""The series that hooks make, read back with the parser of prometheus_client."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.metrics.hooks import HookMetrics
from addon_operator.metrics.operations import MetricOperation, MetricsError, parse
from addon_operator.metrics.operator import Metrics
from tests.unit.metrics.exposition import Samples, samples, types


def operations(*objects: JsonObject) -> tuple[MetricOperation, ...]:
    return parse("\n".join(json.dumps(one) for one in objects).encode(), "m")


class Runs:
    """Hook metrics, and a short way to say what a run wrote.

    Attributes:
        dropped: operations of the last run.
    """

    def __init__(self, max_series: int = 10_000) -> None:
        self.metrics = HookMetrics({}, max_series=max_series)
        self.dropped = 0

    def run(self, *objects: JsonObject, hook: str = "h1", module: str | None = None) -> Samples:
        self.dropped = self.metrics.commit(self.metrics.propose(operations(*objects), module=module, hook=hook))
        return samples(self.metrics.render())


@pytest.fixture
def runs() -> Runs:
    return Runs()


def test_labels_of_the_hook_are_added(runs: Runs) -> None:
    assert runs.run({"name": "g", "set": 1, "labels": {"a": "x", "hook": "mine"}}) == {"g{a=x,hook=h1}": 1}
    found = runs.run({"name": "m", "set": 1, "labels": {"module": "mine"}}, module="mod")
    assert found["m{hook=h1,module=mod}"] == 1


def test_names_stay_as_given_and_both_addresses_show_them() -> None:
    metrics = Metrics()
    metrics.hooks.commit(metrics.hooks.propose(operations({"name": "plain", "add": 2}), module=None, hook="h"))
    assert types(metrics.hooks.render()) == {"plain": "counter"}
    assert samples(metrics.hooks.render()) == {"plain{hook=h}": 2}
    assert samples(metrics.render())["plain{hook=h}"] == 2


def test_without_a_group_series_stay_and_counters_grow(runs: Runs) -> None:
    runs.run({"name": "c", "add": 0.5}, {"name": "c", "add": 0.25}, {"name": "g", "set": 1})
    assert runs.run({"name": "c", "add": 1}) == {"c{hook=h1}": 1.75, "g{hook=h1}": 1}


def test_observations_add_up(runs: Runs) -> None:
    one: JsonObject = {"name": "h", "action": "observe", "buckets": [1, 5], "group": "g"}
    runs.run({**one, "value": 1}, {**one, "value": 5.5})
    assert runs.run({**one, "value": 2}) == {
        "h_bucket{hook=h1,le=1}": 1,
        "h_bucket{hook=h1,le=5}": 2,
        "h_bucket{hook=h1,le=+Inf}": 3,
        "h_sum{hook=h1}": 8.5,
        "h_count{hook=h1}": 3,
    }


def counter(kind: str, *, group: str | None = "g1", amount: float = 1) -> JsonObject:
    return {"group": group, "name": "seen", "action": "add", "value": amount, "labels": {"kind": kind}}


def test_groups_as_in_the_seed(runs: Runs) -> None:
    """The seed's three runs: a group vanishes where it is not mentioned again, a mentioned counter goes on."""
    runs.run(counter("pod"), counter("set"), {"group": "g1", "name": "both", "set": 300, "labels": {"source": "3"}})
    runs.run({"name": "both", "set": 100, "labels": {"source": "1"}})
    runs.run(counter("map", group="g2"), {"name": "both", "set": 200, "labels": {"source": "2"}}, hook="h2")
    lasting: Samples = {"both{hook=h1,source=1}": 100, "both{hook=h2,source=2}": 200}
    second = runs.run(counter("pod"))
    assert second == {"seen{hook=h1,kind=pod}": 2, "seen{hook=h2,kind=map}": 1, **lasting}
    third = runs.run({"group": "g2", "action": "expire"}, hook="h2")
    assert third == {"seen{hook=h1,kind=pod}": 2, **lasting}


@pytest.mark.parametrize(
    ("second_run", "expected"),
    [
        pytest.param([], {"seen{hook=h1,kind=a}": 1, "seen{hook=h1,kind=b}": 1}, id="nothing-said"),
        pytest.param([counter("a")], {"seen{hook=h1,kind=a}": 2}, id="mentioned-again"),
        pytest.param([counter("a"), counter("a")], {"seen{hook=h1,kind=a}": 3}, id="mentioned-twice"),
        pytest.param([{"action": "expire", "group": "g1"}], {}, id="expired"),
        pytest.param([counter("a"), {"action": "expire", "group": "g1"}], {}, id="expired-after"),
        pytest.param(
            [{"action": "expire", "group": "g1"}, counter("a")], {"seen{hook=h1,kind=a}": 1}, id="expired-before"
        ),
        pytest.param(
            [{"action": "expire", "group": "other"}],
            {"seen{hook=h1,kind=a}": 1, "seen{hook=h1,kind=b}": 1},
            id="another-group-expired",
        ),
        pytest.param(
            [counter("a", group=None)], {"seen{hook=h1,kind=a}": 2, "seen{hook=h1,kind=b}": 1}, id="leaves-the-group"
        ),
        pytest.param(
            [counter("a", group="g2")], {"seen{hook=h1,kind=a}": 2, "seen{hook=h1,kind=b}": 1}, id="changes-the-group"
        ),
        pytest.param(
            [{"group": "g1", "name": "seen", "set": 7, "labels": {"other": "x"}}],
            {"seen{hook=h1,other=x}": 7},
            id="another-shape-when-nothing-is-left",
        ),
    ],
)
def test_second_run(runs: Runs, second_run: list[JsonObject], expected: Samples) -> None:
    runs.run(counter("a"), counter("b"))
    assert runs.run(*second_run) == expected


def test_group_lost_by_a_series_does_not_take_it_along(runs: Runs) -> None:
    runs.run(counter("a"))
    runs.run(counter("a", group=None))
    assert runs.run({"action": "expire", "group": "g1"}) == {"seen{hook=h1,kind=a}": 2}


@pytest.mark.parametrize(
    ("earlier", "later", "problem"),
    [
        pytest.param(
            {"name": "m", "add": 1},
            {"name": "m", "set": 1},
            "operation 2 (m): action: makes a gauge, but hook mod/first made it a counter",
            id="type",
        ),
        pytest.param(
            {"name": "m", "action": "observe", "value": 1, "buckets": [1]},
            {"name": "m", "action": "observe", "value": 1, "buckets": [2]},
            "operation 2 (m): buckets: differ from those that hook mod/first gave",
            id="buckets",
        ),
        pytest.param(
            {"name": "m", "action": "observe", "value": 1, "buckets": [1]},
            {"name": "m_sum", "set": 1},
            "operation 2 (m_sum): name: taken by the histogram m of hook mod/first",
            id="part-of-a-histogram",
        ),
        pytest.param(
            {"name": "x", "set": 1},
            {"name": "addon_operator_module_run_seconds_count", "set": 1},
            "operation 2 (addon_operator_module_run_seconds_count): name: taken by the operator's own "
            "addon_operator_module_run_seconds",
            id="operator",
        ),
        pytest.param(
            {"name": "x", "set": 1},
            {"name": "process_open_fds", "set": 1},
            "operation 2 (process_open_fds): name: taken by the operator's own process_open_fds",
            id="process",
        ),
    ],
)
def test_contradiction_is_refused_and_nothing_of_the_run_is_applied(
    earlier: JsonObject, later: JsonObject, problem: str
) -> None:
    hooks = Metrics().hooks
    first = operations(earlier, {"name": "in_group", "set": 1, "group": "g"})
    hooks.commit(hooks.propose(first, module="mod", hook="first"))
    before = hooks.render()
    second = operations({"name": "in_group", "set": 2, "group": "g"}, later)
    with pytest.raises(MetricsError) as caught:
        hooks.propose(second, module=None, hook="second")
    assert caught.value.problems == (problem,)
    assert "metrics of hook second: " in str(caught.value)
    assert hooks.render() == before


def test_a_proposal_that_another_hook_has_overtaken_is_made_again(runs: Runs) -> None:
    late = runs.metrics.propose(operations({"name": "a", "add": 1}), module=None, hook="h1")
    runs.run({"name": "b", "add": 1}, {"name": "a", "add": 5}, hook="h2")
    runs.metrics.commit(late)
    assert samples(runs.metrics.render()) == {"a{hook=h1}": 1, "a{hook=h2}": 5, "b{hook=h2}": 1}
    contradicting = runs.metrics.propose(operations({"name": "c", "set": 1}), module=None, hook="h1")
    runs.run({"name": "c", "add": 1}, hook="h2")
    with pytest.raises(MetricsError, match="makes a gauge, but hook h2 made it a counter"):
        runs.metrics.commit(contradicting)


def test_a_proposal_changes_nothing(runs: Runs) -> None:
    runs.run(counter("a"))
    before = runs.metrics.render()
    runs.metrics.propose(operations(counter("b")), module=None, hook="h1")
    assert runs.metrics.render() == before


def test_global_and_module_hooks_may_share_a_metric(runs: Runs) -> None:
    runs.run(counter("a", group=None))
    found = runs.run(counter("a", group=None), module="mod")
    assert found == {"seen{hook=h1,kind=a,module=}": 1, "seen{hook=h1,kind=a,module=mod}": 1}


def gauge(value: float, *, group: str | None = None, **labels: str | None) -> JsonObject:
    return {"name": "m", "set": value, "group": group, "labels": dict(labels)}


def test_label_names_are_united(runs: Runs) -> None:
    runs.run(gauge(1, a="x"), gauge(2))
    found = runs.run(gauge(3, b="y"), hook="h2")
    assert found == {"m{a=x,b=,hook=h1}": 1, "m{a=,b=,hook=h1}": 2, "m{a=,b=y,hook=h2}": 3}


def test_label_names_of_histograms_are_united(runs: Runs) -> None:
    one: JsonObject = {"name": "h", "action": "observe", "buckets": [1], "value": 1}
    found = runs.run(one, {**one, "labels": {"a": "x"}}, {**one, "labels": {"a": ""}})
    assert {line: value for line, value in found.items() if "_count" in line} == {
        "h_count{a=,hook=h1}": 2,
        "h_count{a=x,hook=h1}": 1,
    }


@pytest.mark.parametrize("labels", [{}, {"b": ""}, {"b": None}, {"b": "", "c": None}], ids=str)
def test_a_label_that_is_empty_is_as_good_as_none(runs: Runs, labels: dict[str, str | None]) -> None:
    """Whichever way a run says it, it is the same series: a counter goes on, a group keeps it or lets it go."""
    other: JsonObject = {"name": "m", "add": 5, "labels": {"b": "y", "c": "z"}}
    first: JsonObject = {"name": "m", "add": 1, "group": "g", "labels": {"a": "x"}}
    runs.run(other, first)
    again: JsonObject = {**first, "labels": {"a": "x", **labels}}
    assert runs.run(again) == {"m{a=,b=y,c=z,hook=h1}": 5, "m{a=x,b=,c=,hook=h1}": 2}
    assert runs.run(first)["m{a=x,b=,c=,hook=h1}"] == 3
    assert runs.run({"action": "expire", "group": "g"}) == {"m{a=,b=y,c=z,hook=h1}": 5}


def test_label_names_go_with_the_last_series(runs: Runs) -> None:
    runs.run(gauge(1, group="g", a="x"))
    assert runs.run({"action": "expire", "group": "g"}, gauge(2, b="y")) == {"m{b=y,hook=h1}": 2}


def test_label_names_of_a_refused_run_are_forgotten(runs: Runs) -> None:
    runs.run(gauge(1, a="x"))
    with pytest.raises(MetricsError):
        runs.run(gauge(2, b="y"), {"name": "m", "add": 1})
    assert runs.run(gauge(3, a="x")) == {"m{a=x,hook=h1}": 3}


TEXTS = st.text(max_size=8)


@given(st.lists(st.tuples(TEXTS, st.floats(allow_nan=False, allow_infinity=False)), max_size=6))
def test_any_text_and_number_survives_the_trip(pairs: list[tuple[str, float]]) -> None:
    runs = Runs()
    found = [
        (sample.labels["a"], sample.value)
        for family in text_string_to_metric_families(_rendered(runs, pairs))
        for sample in family.samples
    ]
    assert dict(found) == dict(pairs)


def _rendered(runs: Runs, pairs: list[tuple[str, float]]) -> str:
    for text, number in pairs:
        runs.run({"name": "m", "set": number, "labels": {"a": text}})
    return runs.metrics.render().decode()


RUN = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["g1", "g2"])), max_size=4)


@given(st.lists(RUN, max_size=6))
def test_groups_hold_what_their_last_mention_held(history: list[list[tuple[str, str]]]) -> None:
    """A model in five lines: per group the kinds of the last run that mentioned it, a count for each unbroken life."""
    runs, model = Runs(), dict[tuple[str, str], float]()
    found: Samples = {}
    for run in history:
        groups = {group for _, group in run}
        kept = {key: count for key, count in model.items() if key[1] not in groups}
        for key in run:
            kept[key] = kept.get(key, model.get(key, 0.0)) + 1
        model = kept
        found = runs.run(*(counter(f"{kind}-{group}", group=group) for kind, group in run))
    assert found == {f"seen{{hook=h1,kind={kind}-{group}}}": count for (kind, group), count in model.items()}


# --- more series than a hook may have ---


def numbered(*numbers: int, group: str | None = None) -> list[JsonObject]:
    return [{"name": "m", "add": 1, "group": group, "labels": {"n": str(number)}} for number in numbers]


def test_series_of_a_hook_are_bounded_and_those_it_has_go_on() -> None:
    runs = Runs(max_series=3)
    assert len(runs.run(*numbered(*range(10)))) == 3
    assert runs.dropped == 7
    found = runs.run(*numbered(9, 2, 1, 0))
    assert found == {f"m{{hook=h1,n={n}}}": 2 for n in range(3)}
    assert runs.dropped == 1


def test_the_bound_is_for_each_hook_alone() -> None:
    runs = Runs(max_series=2)
    runs.run(*numbered(*range(5)))
    assert len(runs.run(*numbered(1, 2), hook="h2")) == 4
    assert len(runs.run(*numbered(1, 2), hook="h1", module="mod")) == 6
    assert runs.dropped == 0


def test_a_name_of_which_nothing_was_taken_does_not_exist() -> None:
    runs = Runs(max_series=1)
    runs.run({"name": "a", "add": 1}, {"name": "b", "add": 1})
    assert types(runs.metrics.render()) == {"a": "counter"}
    runs.run({"name": "b", "set": 1}, hook="h2")
    assert types(runs.metrics.render()) == {"a": "counter", "b": "gauge"}


@pytest.mark.parametrize("whose", ["h1", "h2"])
def test_series_that_expire_or_are_not_mentioned_again_make_room(whose: str) -> None:
    runs = Runs(max_series=3)
    runs.run(*numbered(1, 2, 3, group="g"))
    runs.run(*numbered(4, group="g"))
    assert len(runs.run(*numbered(5, 6))) == 3
    assert runs.dropped == 0
    runs.run({"action": "expire", "group": "g"}, hook=whose)
    assert len(runs.run(*numbered(7))) == 3
    assert runs.dropped == 0
    runs.run(*numbered(8))
    assert runs.dropped == 1


def test_each_bucket_of_a_histogram_counts() -> None:
    runs = Runs(max_series=10)
    observed: list[JsonObject] = [
        {"name": "d", "observe": None, "action": "observe", "value": 1, "buckets": [1, 2], "labels": {"n": str(n)}}
        for n in range(3)
    ]
    assert len(runs.run(*observed)) == 10
    assert runs.dropped == 1


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 5), st.sampled_from([None, "g", "h", "expire"])), max_size=8), max_size=8
    )
)
def test_what_is_counted_is_what_is_there(steps: list[list[tuple[int, str | None]]]) -> None:
    runs = Runs(max_series=4)
    for at, step in enumerate(steps):
        written: list[JsonObject] = [
            {"action": "expire", "group": "g"} if group == "expire" else numbered(number, group=group)[0]
            for number, group in step
        ]
        hook = f"h{at % 2}"
        found = runs.run(*written, hook=hook)
        there = {name: sum(f"hook={name}," in line for line in found) for name in ("h0", "h1")}
        assert max(there.values()) <= 4
        assert dict(runs.metrics._content.counts) == {name: count for name, count in there.items() if count}


def test_what_is_written_in_pieces_is_of_one_moment() -> None:
    runs = Runs()
    runs.run(*numbered(*range(1000)), {"name": "z", "add": 1})
    before = runs.metrics.render()
    blocks = runs.metrics.blocks()
    text = next(blocks)
    runs.run(*numbered(*range(500, 1500)), {"name": "z", "add": 1}, {"name": "a", "add": 1})
    pieces = list(blocks)
    assert text + b"".join(pieces) == before
    assert len(pieces) > 3
    assert before.count(b"# TYPE m counter") == 1
