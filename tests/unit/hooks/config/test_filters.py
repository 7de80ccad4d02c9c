"""jq filters of bindings."""

from __future__ import annotations

import pytest

from tests.unit.hooks.config.declared import kubernetes, problems, v1

HALTS = "jqFilter: halt and halt_error are not possible here; error(...) makes the filter fail"


@pytest.mark.parametrize(
    "program",
    [
        "halt", "if .a then . else halt_error end", '"bye" | halt_error(1)', "[., halt, 1]", "{a: (1, halt, 2)}",
        "{a: halt}", "{(halt): 1}", '{} | "{", halt',
    ],
    ids=["at once", "sometimes", "with a code", "in a list", "among values", "as a value", "in a key", "after text"],
)  # fmt: skip
def test_a_filter_does_not_end_the_program(program: str) -> None:
    assert problems(v1(kubernetes=[{"kind": "Pod", "jqFilter": program}])) == [f"kubernetes[0].{HALTS}"]


@pytest.mark.parametrize(
    "program",
    [
        '.halt, .a.halt_error, {halt: 1}, "halt \\" halt", .asphalt # halt',
        "{halt}",
        ".status | {halt, x}",
        "{(.k): [1, 2], halt, x: {halt_error}}",
        ". as {halt: $halt} | $halt",
        "{ # {[(\nhalt}",
    ],
    ids=["field, key, text", "short key", "first short key", "nested short keys", "pattern", "after a comment"],
)
def test_a_filter_may_speak_of_halting(program: str) -> None:
    assert kubernetes(jqFilter=program).jq_filter == program


@pytest.mark.parametrize("program", [".a |", "nosuchfunction", 'include "x"; .'])
def test_a_filter_must_compile(program: str) -> None:
    (problem,) = problems(v1(kubernetes=[{"kind": "Pod", "jqFilter": program}]))
    assert problem.startswith("kubernetes[0].jqFilter: jq: error: ")
    assert "\n" not in problem
