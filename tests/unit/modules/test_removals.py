"""What is uninstalled, and what is held since nobody asked for that."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from addon_operator.modules.removals import Mark, Removal, enabled_by, hold
from addon_operator.values.layers import EnabledBy, EnableFlag

CONFIG_MAP = "ConfigMap ns/addon-operator"


def flag(value: bool, source: str) -> EnableFlag:
    return EnableFlag(value, source, "somewhere")


def holds(
    *removals: Removal,
    missing: bool = False,
    confirmed: tuple[str, ...] = (),
    installed: int = 6,
    limit: int | None = None,
) -> Mapping[str, str]:
    return hold(
        removals,
        missing_config_map=CONFIG_MAP if missing else None,
        confirmed=confirmed,
        installed=installed,
        limit=limit,
    )


BY_CONFIG_MAP = Mark(EnabledBy({"ConfigMap": True}, "u1"))
BY_CONFIG_MAP_AGAINST_FILE = Mark(EnabledBy({"values file": False, "ConfigMap": True}, "u1"))
BY_FILE = Mark(EnabledBy({"values file": True}))
BY_FILE_BESIDE_CONFIG_MAP = Mark(EnabledBy({"values file": True}, "u1"))
UNKNOWN = Mark(None)
NO_FILE = flag(False, "values file")


@pytest.mark.parametrize(
    ("mark", "decides", "held"),
    [
        pytest.param(BY_CONFIG_MAP, None, True, id="only the ConfigMap enabled it"),
        pytest.param(BY_CONFIG_MAP_AGAINST_FILE, NO_FILE, True, id="the file said no before, and was overruled"),
        pytest.param(UNKNOWN, None, True, id="nobody noted what enabled it"),
        pytest.param(UNKNOWN, NO_FILE, True, id="nobody noted, so the file may have said no before"),
        pytest.param(BY_CONFIG_MAP, NO_FILE, False, id="the file says no, and did not before"),
        pytest.param(
            BY_CONFIG_MAP, flag(False, "global hook"), True, id="a hook says no, which may read the ConfigMap"
        ),
        pytest.param(BY_FILE_BESIDE_CONFIG_MAP, None, True, id="a file enabled it, but there was a ConfigMap"),
        pytest.param(BY_FILE_BESIDE_CONFIG_MAP, NO_FILE, False, id="the file that enabled it says no"),
        pytest.param(BY_FILE, None, False, id="the file enabled it, and does not any more"),
        pytest.param(BY_FILE, NO_FILE, False, id="the file enabled it, and says no"),
    ],
)
def test_without_the_configmap_modules_that_it_enabled_are_held(
    mark: Mark, decides: EnableFlag | None, *, held: bool
) -> None:
    reasons = holds(Removal("web", mark, decides), missing=True)
    reason = f"{CONFIG_MAP} was missing, which existed when the module was enabled"
    assert reasons == ({"web": reason} if held else {})


@pytest.mark.parametrize(
    ("mark", "held"),
    [
        pytest.param(BY_FILE_BESIDE_CONFIG_MAP, True, id="there was a ConfigMap"),
        pytest.param(BY_FILE, False, id="there was none"),
    ],
)
def test_a_script_may_say_no_since_it_misses_values_of_the_configmap(mark: Mark, *, held: bool) -> None:
    assert ("web" in holds(Removal("web", mark, script="enabled script says false"), missing=True)) is held


def test_a_directory_that_is_gone_has_nothing_to_do_with_the_configmap() -> None:
    assert holds(Removal("web", BY_CONFIG_MAP, has_directory=False), missing=True) == {}


@pytest.mark.parametrize(
    ("mark", "decides"),
    [
        pytest.param(BY_CONFIG_MAP, None, id="its key was taken out"),
        pytest.param(BY_CONFIG_MAP_AGAINST_FILE, NO_FILE, id="its key was taken out, the file says no as before"),
        pytest.param(BY_CONFIG_MAP, flag(False, "ConfigMap"), id="it says no"),
        pytest.param(UNKNOWN, NO_FILE, id="nobody noted what enabled it, the file says no"),
        pytest.param(UNKNOWN, None, id="nobody noted what enabled it"),
    ],
)
def test_an_edit_of_a_configmap_that_exists_is_a_wish(mark: Mark, decides: EnableFlag | None) -> None:
    assert holds(Removal("web", mark, decides)) == {}


def test_what_is_held_stays_held_until_somebody_decides() -> None:
    mark = Mark(EnabledBy({"ConfigMap": True}), held="because")
    assert holds(Removal("web", mark)) == {"web": "because"}, "the ConfigMap is back, and says nothing of it"
    assert holds(Removal("web", mark, flag(False, "ConfigMap"))) == {}
    assert holds(Removal("web", mark), confirmed=("web",)) == {}
    assert holds(Removal("web", mark), missing=True, confirmed=("web",)) == {}


def many(count: int, *, script: str = "", has_directory: bool = True) -> list[Removal]:
    return [Removal(f"m{number}", BY_FILE, script=script, has_directory=has_directory) for number in range(count)]


@pytest.mark.parametrize(
    ("count", "installed", "limit", "held"),
    [
        pytest.param(3, 3, None, 0, id="three of three: at least three may go"),
        pytest.param(4, 4, None, 4, id="four of four"),
        pytest.param(4, 8, None, 0, id="half of eight"),
        pytest.param(5, 8, None, 5, id="more than half of eight: not one of them goes"),
        pytest.param(1, 8, 0, 1, id="the setting says none"),
        pytest.param(8, 8, 8, 0, id="the setting says all"),
    ],
)
@pytest.mark.parametrize(
    ("script", "has_directory"),
    [
        pytest.param("", False, id="directories"),
        pytest.param("enabled script says false", True, id="scripts"),
        pytest.param("", True, id="flags"),
    ],
)
def test_many_removals_that_nobody_asked_for_are_held(
    count: int, installed: int, limit: int | None, held: int, script: str, *, has_directory: bool
) -> None:
    reasons = holds(*many(count, script=script, has_directory=has_directory), installed=installed, limit=limit)
    assert len(reasons) == held
    assert all("ADDON_OPERATOR_MAX_REMOVALS" in reason for reason in reasons.values())


def test_those_that_are_asked_for_do_not_count() -> None:
    asked_for = [Removal(f"off{number}", BY_CONFIG_MAP, flag(False, "ConfigMap")) for number in range(9)]
    assert holds(*many(3), *asked_for, installed=12, limit=3) == {}
    assert sorted(holds(*many(4), *asked_for, installed=13, limit=3)) == ["m0", "m1", "m2", "m3"]


def test_those_that_are_confirmed_do_not_count() -> None:
    assert sorted(holds(*many(4), confirmed=("m0",), limit=3)) == []


def test_the_reason_says_what_vanished() -> None:
    (reason,) = holds(Removal("web", Mark(EnabledBy({"global hook": True}))), limit=0).values()
    assert reason == (
        "no source enables it any more (global hook did); "
        "one converge would uninstall 1 modules, more than 0 (ADDON_OPERATOR_MAX_REMOVALS)"
    )


def test_the_strongest_flag_of_a_source_is_noted() -> None:
    chain = (flag(True, "values file"), flag(False, "values file"), flag(True, "ConfigMap"))
    assert enabled_by(chain, config_map="u1") == EnabledBy({"values file": False, "ConfigMap": True}, "u1")
    assert enabled_by(chain[:1], config_map="") == EnabledBy({"values file": True})
