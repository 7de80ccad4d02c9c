"""Verdicts and plans."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path

import pytest

from addon_operator.hooks.call import EnabledAnswer
from addon_operator.modules.module import Module, split_directory_name
from addon_operator.modules.plan import ConvergePlan, Installed, RemovalRules, Verdict, flag_chain, flag_says, make_plan
from addon_operator.modules.removals import Mark
from addon_operator.values.layers import EnabledBy, EnableFlag
from addon_operator.values.schema import parse_schemas
from addon_operator.values.store import SectionSpec

NO_SCHEMAS = parse_schemas(None, None, config_file="config-values.yaml", values_file="values.yaml")


def module(name: str, order: int = 1, *, flags: tuple[EnableFlag, ...] = (), crds: bool = False) -> Module:
    return Module(
        name=name,
        key=name,
        order=order,
        path=Path(name),
        has_chart=True,
        has_templates=True,
        has_hooks=False,
        enabled_script=None,
        has_crds=crds,
        section=SectionSpec(name, (), NO_SCHEMAS),
        flags=flags,
    )


def flag(value: bool, source: str = "values file") -> EnableFlag:
    return EnableFlag(value, source, "somewhere")


@pytest.mark.parametrize(
    ("files", "dynamic", "config", "expected"),
    [
        pytest.param((), None, None, False, id="nothing said means disabled"),
        pytest.param((True,), None, None, True, id="values file enables"),
        pytest.param((True, False), None, None, False, id="the module's own file wins over the common one"),
        pytest.param((False,), True, None, True, id="a hook's patch wins over files"),
        pytest.param((False,), True, False, False, id="the ConfigMap wins over a hook's patch"),
        pytest.param((True,), False, None, False, id="a hook's patch disables"),
    ],
)
def test_the_last_source_that_says_anything_decides(
    files: tuple[bool, ...], dynamic: bool | None, config: bool | None, expected: bool
) -> None:
    chain = flag_chain(
        module("a", flags=tuple(flag(value) for value in files)),
        dynamic={} if dynamic is None else {"a": flag(dynamic, "global hooks")},
        config={} if config is None else {"a": flag(config, "ConfigMap")},
    )
    assert flag_says(chain) is expected


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        pytest.param(Verdict((), None, enabled=False), "disabled: no source enables it", id="nothing"),
        pytest.param(
            Verdict((flag(True), flag(False, "ConfigMap")), None, enabled=False),
            "disabled by ConfigMap somewhere",
            id="flag",
        ),
        pytest.param(
            Verdict((flag(True),), EnabledAnswer(False, "no GPU nodes"), enabled=False),
            "enabled script says false: no GPU nodes",
            id="script",
        ),
    ],
)
def test_a_verdict_says_why(verdict: Verdict, reason: str) -> None:
    assert verdict.reason == reason


def plan(
    *modules: Module,
    enabled: Collection[str],
    alive: Collection[str] = (),
    releases: Collection[str] = (),
    unread: Collection[str] = (),
    missing: str | None = None,
    limit: int | None = None,
) -> ConvergePlan:
    verdicts = {item.name: Verdict((), None, enabled=item.name in enabled) for item in modules}
    installed = Installed(alive=alive, releases=releases, unread=unread, ignored_release="operator")
    return make_plan(modules, verdicts, installed, RemovalRules(missing_config_map=missing, limit=limit))


def test_modules_of_equal_order_are_one_group_and_sorted_by_name() -> None:
    made = plan(module("c", 20), module("b", 10), module("a", 20), enabled={"a", "b", "c"})
    assert made.run == (("b",), ("a", "c"))


def test_a_disabled_module_between_two_of_equal_order_does_not_split_their_group() -> None:
    made = plan(module("a", 10), module("b", 10), module("c", 10), enabled={"a", "c"})
    assert made.run == (("a", "c"),)


def test_deletes_are_the_exact_reverse_of_the_run_order_and_only_for_what_lives() -> None:
    modules = (module("a", 1), module("b", 2), module("c", 3), module("d", 4))
    assert plan(*modules, enabled=set(), alive={"a"}, releases={"b", "d"}).delete == ("d", "b", "a")


def test_purge_takes_our_releases_without_a_module_in_reverse_order_but_never_the_ignored_one() -> None:
    made = plan(module("a"), enabled={"a"}, releases={"a", "old", "older", "operator"})
    assert made.purge == ("older", "old")


def test_what_is_there_but_cannot_be_read_is_not_purged() -> None:
    assert plan(module("a"), enabled={"a"}, releases={"a", "old", "linked"}, unread={"linked"}).purge == ("old",)


def test_a_held_module_whose_directory_cannot_be_read_stays_held_until_somebody_decides() -> None:
    marks = {"held": Mark(EnabledBy({"ConfigMap": True}), held="the ConfigMap was missing"), "linked": Mark()}
    installed = Installed(releases={"held", "linked"}, marks=marks, unread={"held", "linked"})
    assert make_plan((), {}, installed, RemovalRules()).held == {"held": "the ConfigMap was missing"}
    assert make_plan((), {}, installed, RemovalRules(confirmed={"held"})).held == {}


def test_everything_is_held_if_there_is_no_module_at_all() -> None:
    made = plan(enabled=(), releases={"a", "b", "operator"})
    assert made.purge == ()
    what = "its directory has no chart any more, or is gone; no module is found at all"
    assert made.held == {"a": what, "b": what}


def test_what_is_held_is_neither_deleted_nor_purged() -> None:
    modules = (module("a", 1), module("b", 2))
    made = plan(*modules, enabled={"a"}, releases={"a", "b", "gone"}, missing="ConfigMap", limit=0)
    assert (made.run, made.delete, made.purge, sorted(made.held)) == ((("a",),), (), (), ["b", "gone"])


def test_a_module_that_lost_its_chart_loses_its_release() -> None:
    bare = dataclasses.replace(module("a"), has_chart=False, has_templates=False)
    made = plan(bare, enabled={"a"}, releases={"a"})
    assert (made.run, made.purge) == ((("a",),), ("a",))


def test_crds_come_from_enabled_modules_only() -> None:
    made = plan(module("a", 1, crds=True), module("b", 2, crds=True), enabled={"b"})
    assert made.crds == ("b",)


@pytest.mark.parametrize(
    ("directory", "expected"),
    [
        ("020-simple-module", (20, "simple-module")),
        ("simple-module", (7, "simple-module")),
        ("2-module-name", (2, "module-name")),
        ("001-l2-load-balancer", (1, "l2-load-balancer")),
        ("20", (7, "20")),
    ],
)
def test_directory_names(directory: str, expected: tuple[int, str]) -> None:
    assert split_directory_name(directory, 7) == expected
