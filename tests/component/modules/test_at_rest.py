"""Whatever happens, in whatever order: once all hooks succeed and nothing changes any more, nothing is left waiting."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from addon_operator.modules.registry import ModulePhase
from tests.fakes.bench import Answer, Bench, hook_file, play, write_hook
from tests.fakes.bound_kind import BoundKind

MODULES = ("alpha", "beta")
# Each binding has a kind of its own, so that the API server can answer for one and not for another.
HOOKS = {
    "global/x": "beforeAll: 1\nafterAll: 1\nkubernetes: [{name: gm, kind: Gm}, {name: gq, kind: Gq, queue: side}]\n",
    "alpha/x": "onStartup: 1\nbeforeHelm: 1\nafterDeleteHelm: 1\nkubernetes: [{name: am, kind: Am}]\n",
    "alpha/y": (
        "kubernetes:\n- {name: aq, kind: Aq, queue: side}\n"
        "- {name: ap, kind: Ap, queue: other, waitForSynchronization: false}\n"
    ),
    "beta/x": "afterHelm: 1\nbeforeDeleteHelm: 1\nafterDeleteHelm: 1\nkubernetes: [{name: bm, kind: Bm}]\n",
}
BINDINGS = {"gm": "global", "gq": "global", "am": "alpha", "aq": "alpha", "ap": "alpha", "bm": "beta"}

# What happens, to what, and the seconds until the next.
Step = tuple[str, str, float]

WAITS = st.sampled_from((0.0, 0.0, 0.5, 3.0, 7.0, 70.0))


def happenings(kinds: Sequence[str], names: Sequence[str]) -> st.SearchStrategy[Step]:
    return st.tuples(st.sampled_from(kinds), st.sampled_from(names), WAITS)


STEPS = st.lists(
    # What goes on and off most is what a task may wait for, or be overtaken by.
    happenings(("toggle",), MODULES)
    | happenings(("toggle",), MODULES)
    | happenings(("fail", "fail", "succeed", "dawdle"), tuple(HOOKS))
    | happenings(("edit",), ("global", *MODULES))
    | happenings(("converge",), ("",))
    | happenings(("patch",), tuple(HOOKS))
    | happenings(("rewrite", "rewrite", "unlink"), [name for name in HOOKS if not name.startswith("global")])
    | happenings(("undefine", "forbid", "answer", "change"), tuple(BINDINGS)),
    min_size=15,
    max_size=40,
)


class World:
    """Does to an operator what a list of steps says."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._numbers = itertools.count()
        self._acts: Mapping[str, Callable[[str], object]] = {
            "toggle": self._toggle,
            "edit": lambda section: bench.edit(**{section: f"{{a: {next(self._numbers)}}}"}),
            "converge": lambda _: bench.converge_again(),
            "fail": bench.hooks.failing.add,
            "succeed": bench.hooks.failing.discard,
            "dawdle": lambda hook: self._next(hook, Answer(lasts_s=12)),
            "patch": self._patch,
            "rewrite": self._rewrite,
            "unlink": lambda hook: hook_file(bench.root, hook).unlink(missing_ok=True),
            "undefine": self._undefine,
            "forbid": self._forbid,
            "answer": self._answer,
            "change": self._change,
        }

    async def live(self, steps: Sequence[Step]) -> None:
        for act, what, then_s in steps:
            self._acts[act](what)
            await asyncio.sleep(then_s)

    def mend(self) -> None:
        """From now on everything succeeds."""
        self._bench.hooks.failing.clear()
        self._bench.hooks.answers.clear()
        for name, config in HOOKS.items():
            if not hook_file(self._bench.root, name).exists():
                write_hook(self._bench.root, name, config)
        # Also a file that is there may have come after the last converge.
        self._bench.converge_again()
        self._bench.gate.answer_all()
        for name in BINDINGS:
            self._kind(name).answer()

    def _toggle(self, module: str) -> None:
        key = f"{module}Enabled"
        self._bench.edit(**{key: "false" if self._bench.config_map.get(key, "true") == "true" else "true"})

    def _next(self, hook: str, answer: Answer) -> None:
        self._bench.hooks.answers.setdefault(hook, []).append(answer)

    def _patch(self, hook: str) -> None:
        path = f"/{hook.partition('/')[0]}/seen"
        self._next(hook, Answer(({"op": "add", "path": path, "value": next(self._numbers)},)))

    def _rewrite(self, hook: str) -> None:
        write_hook(
            self._bench.root,
            hook,
            f"{HOOKS[hook]}settings: {{executionMinInterval: 1s, executionBurst: {next(self._numbers) + 100}}}\n",
        )

    def _kind(self, binding: str) -> BoundKind:
        return self._bench.kind(binding.capitalize())

    def _undefine(self, binding: str) -> None:
        self._kind(binding).undefine()

    def _forbid(self, binding: str) -> None:
        self._kind(binding).refuse("nothing can be seen")

    def _answer(self, binding: str) -> None:
        self._kind(binding).answer()

    def _change(self, binding: str) -> None:
        if (kind := self._kind(binding)).is_served:
            kind.change("Added", f"o{next(self._numbers)}")


@settings(max_examples=50)
@given(steps=STEPS, lists_at_once=st.booleans())
def test_nothing_waits_for_ever(steps: Sequence[Step], lists_at_once: bool) -> None:
    async def live(bench: Bench) -> None:
        world = World(bench)
        await world.live(steps)
        world.mend()
        await bench.rest()
        assert_at_rest(bench)
        assert_each_life_begins_with_what_exists(bench)
        for binding in alive(bench):
            bench[binding].change("Added", "last")
        await bench.rest()
        heard = ", ".join(what for _, what in bench.runs())
        assert [binding for binding in alive(bench) if f"{binding}: Added last" not in heard] == []

    with tempfile.TemporaryDirectory() as root:
        play(Path(root), HOOKS, live, lists_at_once=lists_at_once, prepare=define)


def define(bench: Bench) -> None:
    for binding in BINDINGS:
        bench.kind(binding.capitalize()).define()


def assert_each_life_begins_with_what_exists(bench: Bench) -> None:
    runs = bench.runs()
    begun = max((place for place, run in enumerate(runs) if run == ("alpha/x", "onStartup")), default=0)
    shown = ", ".join(what for _, what in runs[begun:])
    assert [name for name in alive(bench) if name[0] == "a" and f"{name}: Synchronization" not in shown] == []


def alive(bench: Bench) -> list[str]:
    return [name for name, scope in BINDINGS.items() if scope == "global" or bench.registry.is_enabled(scope)]


def assert_at_rest(bench: Bench) -> None:
    assert bench.converged
    enabled = {name for name in MODULES if bench.config_map.get(f"{name}Enabled", "true") == "true"}
    assert set(bench.registry.enabled) == set(bench.registry.alive) == enabled
    for name in MODULES:
        assert bench.registry.state(name).phase is (ModulePhase.READY if name in enabled else ModulePhase.DISABLED)
        assert bench.registry.state(name).error is None
    hooks = [bench.hook(name).id for name in HOOKS if name.partition("/")[0] in {"global", *enabled}]
    assert bench.monitors.outstanding(hooks) == ()
    assert bench.monitors.synchronized(hooks)
    assert bench.monitors.problems() == ()
