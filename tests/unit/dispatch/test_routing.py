"""From events to tasks; the golden order of a start."""

from __future__ import annotations

import pytest

from addon_operator.configmap.document import ConfigChange
from addon_operator.dispatch.routing import (
    FollowUp,
    absent_objects,
    config_accepted,
    config_applied,
    global_values_changed,
    hook_tasks,
    plan_tasks,
    startup_tasks,
)
from addon_operator.hooks.call import HookId
from addon_operator.modules.plan import ConvergePlan
from addon_operator.tasks.task import (
    ApplyConfig,
    Converge,
    ConvergePhase,
    DeleteModule,
    Payload,
    PurgeRelease,
    Reason,
    RunModules,
    Task,
    describe,
)

GLOBAL = ConfigChange(global_changed=True, sections=frozenset(), flags=frozenset(), maintenance=frozenset())
SECTION = ConfigChange(global_changed=False, sections=frozenset({"a"}), flags=frozenset(), maintenance=frozenset())
FLAG = ConfigChange(global_changed=False, sections=frozenset(), flags=frozenset({"a"}), maintenance=frozenset())
STANDBY = Task(Converge(), Reason.RELOAD_ALL, converge=True)
RUNNING = Task(Converge(ConvergePhase.WAIT_DELETE_AND_RUN_MODULES), Reason.RELOAD_ALL, converge=True)


def shape(follow_up: FollowUp) -> tuple[list[Payload], list[Payload], bool]:
    head, tail = ([task.payload for task in tasks] for tasks in (follow_up.head, follow_up.tail))
    return head, tail, follow_up.drop_converge


def test_a_start_runs_the_onstartup_hooks_in_order_and_then_the_first_converge() -> None:
    hooks = [HookId(None, name) for name in ("hooks/02.sh", "hooks/03.sh", "hooks/01.sh")]
    assert [describe(task, queue="main") for task in startup_tasks(hooks)] == [
        "GlobalHookRun:main:onStartup:hooks/02.sh:OperatorStartup",
        "GlobalHookRun:main:onStartup:hooks/03.sh:OperatorStartup",
        "GlobalHookRun:main:onStartup:hooks/01.sh:OperatorStartup",
        "ConvergeModules:main:StandBy:OperatorStartup",
    ]


def test_a_plan_becomes_crds_deletes_runs_and_purges_in_this_order() -> None:
    plan = ConvergePlan(run=(("a",), ("b", "c")), delete=("z", "y"), purge=("old",), crds=("a", "b"))
    tasks = plan_tasks(plan, Reason.RELOAD_ALL, crds_pending={"b"})
    assert [describe(task, queue="main") for task in tasks] == [
        "ModuleEnsureCRDs:main:b:ReloadAllModules",
        "ModuleDelete:main:z:ReloadAllModules",
        "ModuleDelete:main:y:ReloadAllModules",
        "ModuleRun:main:a:ReloadAllModules",
        "ParallelModuleRun:main:b,c:ReloadAllModules",
        "ModulePurge:main:old:ReloadAllModules",
    ]
    assert all(task.converge for task in tasks)


def test_hooks_around_the_converge_belong_to_it() -> None:
    (task,) = hook_tasks([HookId(None, "hooks/x.sh")], "beforeAll", Reason.RELOAD_ALL)
    assert task.converge
    assert describe(task, queue="main") == "GlobalHookRun:main:beforeAll:hooks/x.sh:ReloadAllModules"


def test_an_accepted_configmap_is_applied_next_and_only_once() -> None:
    assert shape(config_accepted([STANDBY])) == ([ApplyConfig()], [], False)
    assert shape(config_accepted([Task(ApplyConfig(), Reason.APPLY_CONFIG), STANDBY])) == ([], [], False)


@pytest.mark.parametrize(
    ("change", "enablement_changed", "run", "waiting", "expected"),
    [
        pytest.param(GLOBAL, False, [], [], ([], [Converge()], False), id="global, idle"),
        pytest.param(GLOBAL, False, [], [STANDBY], ([], [], False), id="global, a converge has not begun"),
        pytest.param(GLOBAL, False, [], [RUNNING], ([Converge()], [], True), id="global, during a converge"),
        pytest.param(FLAG, True, [], [], ([], [Converge()], False), id="enable state changes, idle"),
        pytest.param(FLAG, True, [], [RUNNING], ([Converge()], [], True), id="enable state changes, converge"),
        pytest.param(FLAG, False, [], [], ([], [], False), id="flag without effect"),
        pytest.param(SECTION, False, ["a"], [], ([RunModules(("a",))], [], False), id="section, idle"),
        pytest.param(SECTION, False, ["a"], [RUNNING], ([RunModules(("a",))], [], False), id="section, converge"),
        pytest.param(SECTION, False, [], [], ([], [], False), id="section of a disabled module"),
        pytest.param(
            SECTION,
            False,
            ["a"],
            [Task(RunModules(("b", "a")), Reason.RELOAD_ALL)],
            ([], [], False),
            id="section, the run waits already",
        ),
        pytest.param(SECTION, True, ["a"], [], ([], [Converge()], False), id="section that flips an enabled script"),
    ],
)
def test_the_configmap_table(
    change: ConfigChange,
    enablement_changed: bool,
    run: list[str],
    waiting: list[Task],
    expected: tuple[list[Payload], list[Payload], bool],
) -> None:
    made = config_applied(change, enablement_changed=enablement_changed, run=run, waiting=waiting)
    assert shape(made) == expected


@pytest.mark.parametrize("waiting", [[], [STANDBY], [RUNNING]], ids=["idle", "a converge waits", "a converge runs"])
def test_a_converge_makes_single_runs_needless_so_that_a_failing_one_cannot_hold_it_up(waiting: list[Task]) -> None:
    assert config_applied(FLAG, enablement_changed=True, run=[], waiting=waiting).drop_runs
    assert not config_applied(SECTION, enablement_changed=False, run=["a"], waiting=waiting).drop_runs


def test_changed_global_values_ask_for_one_more_converge_at_the_tail() -> None:
    assert shape(global_values_changed(Reason.AFTER_ALL_CHANGED_VALUES, [])) == ([], [Converge()], False)
    assert shape(global_values_changed(Reason.AFTER_ALL_CHANGED_VALUES, [RUNNING])) == ([], [Converge()], False)
    assert shape(global_values_changed(Reason.AFTER_ALL_CHANGED_VALUES, [STANDBY])) == ([], [], False)


def test_absent_objects_run_their_module_once() -> None:
    assert shape(absent_objects("a", [RUNNING])) == ([], [RunModules(("a",))], False)
    assert shape(absent_objects("a", [Task(RunModules(("a",)), Reason.RELOAD_ALL)])) == ([], [], False)


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (DeleteModule("a"), "ModuleDelete:main:a:ReloadAllModules"),
        (PurgeRelease("a"), "ModulePurge:main:a:ReloadAllModules"),
        (ApplyConfig(), "ApplyKubeConfigValues:main:ReloadAllModules"),
    ],
)
def test_task_texts(payload: Payload, text: str) -> None:
    assert describe(Task(payload, Reason.RELOAD_ALL), queue="main") == text


def test_a_failed_task_tells_its_failures_in_one_line() -> None:
    task = Task(RunModules(("a",)), Reason.RELOAD_ALL)
    text = describe(task, queue="main", failures=2, error="chart: line 1\nline 2")
    assert text == "ModuleRun:main:a:ReloadAllModules:failures 2:chart: line 1 line 2"
