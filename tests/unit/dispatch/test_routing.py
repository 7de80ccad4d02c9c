"""From events to tasks; the golden order of a start."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from addon_operator.configmap.document import ConfigChange
from addon_operator.dispatch.routing import (
    absent_objects,
    config_accepted,
    config_applied,
    global_values_changed,
    hook_changed_values,
    hook_tasks,
    object_changed,
    plan_tasks,
    split_main,
    startup_tasks,
    synchronization,
    ticked,
)
from addon_operator.hooks.call import Changes, HookId
from addon_operator.hooks.config.model import (
    Admission,
    Conversion,
    HookConfig,
    Kubernetes,
    Lifecycle,
    Schedule,
    Version,
)
from addon_operator.hooks.context import Context, ObjectEvent, Synchronization, Tick
from addon_operator.hooks.hook import Hook, LoadedHooks
from addon_operator.modules.plan import ConvergePlan
from addon_operator.tasks.task import (
    ApplyConfig,
    Converge,
    ConvergePhase,
    DeleteModule,
    EnableWebhooks,
    Payload,
    PurgeRelease,
    Reason,
    RunHook,
    RunModules,
    Task,
    describe,
)

GLOBAL = ConfigChange(global_changed=True, sections=frozenset(), flags=frozenset(), maintenance=frozenset())
SECTION = ConfigChange(global_changed=False, sections=frozenset({"a"}), flags=frozenset(), maintenance=frozenset())
FLAG = ConfigChange(global_changed=False, sections=frozenset(), flags=frozenset({"a"}), maintenance=frozenset())
STANDBY = Task(Converge(), Reason.RELOAD_ALL, converge=True)
RUNNING = Task(Converge(ConvergePhase.WAIT_DELETE_AND_RUN_MODULES), Reason.RELOAD_ALL, converge=True)


def payloads(tasks: Iterable[Task]) -> list[Payload]:
    return [task.payload for task in tasks]


def hook(
    name: str,
    *,
    module: str | None = None,
    on_startup: int | None = None,
    schedules: tuple[Schedule, ...] = (),
    kubernetes: tuple[Kubernetes, ...] = (),
    admissions: tuple[Admission, ...] = (),
    conversions: tuple[Conversion, ...] = (),
    version: Version = "v1",
) -> Hook:
    lifecycle = () if on_startup is None else (Lifecycle("onStartup", on_startup),)
    config = HookConfig(version, lifecycle, schedules, kubernetes, admissions, conversions)
    return Hook(HookId(module, f"hooks/{name}"), Path(f"/hooks/{name}"), config)


HOURLY = Schedule("hourly", "0 * * * *", allow_failure=False, queue="main", include_snapshots_from=(), group="")
NIGHTLY = Schedule("nightly", "0 0 * * *", allow_failure=False, queue="main", include_snapshots_from=(), group="")
PODS = Kubernetes("pods", "Pod")
SIDE = Kubernetes("side", "Pod", queue="side")
GATE = Admission("kubernetesValidating", "a.b.example", (), "Fail", "None", 10, (), None, None, (), "")
CONVERSION = Conversion("convert", "x.example", (("v1", "v2"),), (), "")
POD_EVENT = ObjectEvent(PODS, "Added", b"{}", None, kind="Pod", namespace="ns", name="a")


def texts(tasks: Iterable[Task]) -> list[str]:
    return [describe(task, queue="main") for task in tasks]


def test_a_start() -> None:
    """The part of contract.md 3.7 that is known before anything runs."""
    hooks = LoadedHooks(
        (
            hook("hook01", on_startup=20, kubernetes=(PODS,)),
            hook("hook02", on_startup=1, schedules=(HOURLY,)),
            hook("hook03", on_startup=10, schedules=(HOURLY, NIGHTLY), kubernetes=(PODS, SIDE)),
        )
    )
    assert texts(startup_tasks(hooks)) == [
        "GlobalHookRun:main:onStartup:hooks/hook02:OperatorStartup",
        "GlobalHookRun:main:onStartup:hooks/hook03:OperatorStartup",
        "GlobalHookRun:main:onStartup:hooks/hook01:OperatorStartup",
        "GlobalHookEnableScheduleBindings:main:hooks/hook02:OperatorStartup",
        "GlobalHookEnableScheduleBindings:main:hooks/hook03:OperatorStartup",
        "GlobalHookEnableKubernetesBindings:main:hooks/hook01:OperatorStartup",
        "GlobalHookEnableKubernetesBindings:main:hooks/hook03:OperatorStartup",
        "GlobalHookWaitKubernetesSynchronization:main:OperatorStartup",
        "ConvergeModules:main:StandBy:OperatorStartup",
    ]


def test_global_hooks_convert_before_anything_is_listed_and_admit_before_the_first_converge() -> None:
    hooks = LoadedHooks(
        (
            hook("a", kubernetes=(PODS,), admissions=(GATE,)),
            hook("b"),
            hook("c", conversions=(CONVERSION,)),
            hook("d", admissions=(GATE,), conversions=(CONVERSION,)),
        )
    )
    tasks = startup_tasks(hooks)
    assert texts(tasks) == [
        "GlobalHookEnableWebhookBindings:main:hooks/c:OperatorStartup",
        "GlobalHookEnableWebhookBindings:main:hooks/d:OperatorStartup",
        "GlobalHookEnableKubernetesBindings:main:hooks/a:OperatorStartup",
        "GlobalHookWaitKubernetesSynchronization:main:OperatorStartup",
        "GlobalHookEnableWebhookBindings:main:hooks/a:OperatorStartup",
        "GlobalHookEnableWebhookBindings:main:hooks/d:OperatorStartup",
        "ConvergeModules:main:StandBy:OperatorStartup",
    ]
    assert [task.payload.conversions_only for task in tasks if isinstance(task.payload, EnableWebhooks)] == [
        True, True, False, False,
    ]  # fmt: skip


def test_without_global_hooks_a_start_is_a_converge_which_may_be_replaced() -> None:
    tasks = startup_tasks(LoadedHooks())
    assert [(task.payload, task.converge) for task in tasks] == [(Converge(), True)]
    assert not any(task.converge for task in startup_tasks(LoadedHooks((hook("a", on_startup=1),)))[:-1])


def test_synchronizations_go_to_the_queues_of_their_bindings() -> None:
    watching = hook("x", kubernetes=(PODS, SIDE))
    other = hook("y", module="m", kubernetes=(PODS,))
    listed = [
        (watching, Synchronization(PODS)), (watching, Synchronization(SIDE)), (other, Synchronization(PODS)),
    ]  # fmt: skip
    main, others = split_main(listed, Reason.OPERATOR_STARTUP)
    assert texts(main) == [
        "GlobalHookRun:main:kubernetes:hooks/x:pods:OperatorStartup",
        "ModuleHookRun:main:kubernetes:hooks/y:pods:OperatorStartup",
    ]
    assert [(queue, describe(task, queue=queue)) for queue, task in others] == [
        ("side", "GlobalHookRun:side:kubernetes:hooks/x:side:OperatorStartup"),
    ]
    assert not any(task.converge for task in main)  # a new converge leaves the gates to be opened


@pytest.mark.parametrize(("version", "combines"), [("v1", True), ("v0", False)])
def test_reactions_of_v1_hooks_may_be_combined(version: Version, combines: bool) -> None:
    one = hook("x", schedules=(HOURLY,), kubernetes=(PODS,), version=version)
    expected: list[tuple[Task | None, Context, Reason]] = [
        (object_changed(one, POD_EVENT), POD_EVENT, Reason.KUBERNETES),
        (ticked(one, HOURLY, ()), Tick(HOURLY), Reason.SCHEDULE),
        (
            synchronization(one, Synchronization(PODS), Reason.OPERATOR_STARTUP),
            Synchronization(PODS),
            Reason.OPERATOR_STARTUP,
        ),
    ]
    for task, context, reason in expected:
        assert task is not None
        assert (task.payload, task.reason) == (RunHook(one.id, (context,), combines=combines), reason)


TIMED = hook("x", schedules=(HOURLY, NIGHTLY), kubernetes=(PODS,))


@pytest.mark.parametrize(
    ("waiting", "made"),
    [
        pytest.param([], True, id="nothing waits"),
        pytest.param([(TIMED.id, Tick(HOURLY))], False, id="the same waits"),
        pytest.param([(TIMED.id, POD_EVENT, Tick(HOURLY))], False, id="the same waits in a joined task"),
        pytest.param([(TIMED.id, Tick(NIGHTLY)), (TIMED.id, POD_EVENT)], True, id="another schedule waits"),
        pytest.param([(HookId("m", TIMED.id.name), Tick(HOURLY))], True, id="another hook of that name waits"),
    ],
)
def test_ticks_that_were_missed_are_one(waiting: list[tuple[HookId, *tuple[Context, ...]]], made: bool) -> None:
    tasks = [STANDBY, *(Task(RunHook(who, tuple(what)), Reason.SCHEDULE) for who, *what in waiting)]
    assert (ticked(TIMED, HOURLY, tasks) is not None) is made


VALUES, FLAGS = Changes(values=True), Changes(enablement=True)
BOTH = Changes(values=True, enablement=True)
RELOAD = "ConvergeModules:main:StandBy:ReloadAll-After-GlobalHookDynamicUpdate"


@pytest.mark.parametrize(
    ("module", "reason", "changes", "expected"),
    [
        pytest.param(None, Reason.KUBERNETES, Changes(), [], id="global, event, nothing changed"),
        pytest.param(
            None,
            Reason.KUBERNETES,
            VALUES,
            ["ConvergeModules:main:StandBy:Kubernetes-Change-GlobalValues"],
            id="global, event",
        ),
        pytest.param(
            None,
            Reason.SCHEDULE,
            VALUES,
            ["ConvergeModules:main:StandBy:Schedule-Change-GlobalValues"],
            id="global, schedule",
        ),
        pytest.param(None, Reason.KUBERNETES, FLAGS, [RELOAD], id="global, event, enable flag"),
        pytest.param(None, Reason.SCHEDULE, BOTH, [RELOAD], id="global, schedule, enable flag and values"),
        pytest.param("m", Reason.KUBERNETES, Changes(), [], id="module, event, nothing changed"),
        pytest.param(
            "m", Reason.KUBERNETES, VALUES, ["ModuleRun:main:m:Kubernetes-Change-ModuleValues"], id="module, event"
        ),
        pytest.param(
            "m", Reason.SCHEDULE, VALUES, ["ModuleRun:main:m:Schedule-Change-ModuleValues"], id="module, schedule"
        ),
        *(
            # onStartup and Synchronization at the start, hooks around a converge: that goes on anyway.
            pytest.param(module, reason, BOTH, [], id=f"{module or 'global'}, during {reason}")
            for module in (None, "m")
            for reason in sorted(set(Reason) - {Reason.KUBERNETES, Reason.SCHEDULE})
        ),
    ],
)
def test_what_follows_when_a_hook_changed_values(
    module: str | None, reason: Reason, changes: Changes, expected: list[str]
) -> None:
    hook_id = HookId(module, "hooks/x")
    made = hook_changed_values(reason, hook_id, changes, ())
    assert texts(made) == expected
    assert all(task.converge == isinstance(task.payload, Converge) for task in made)


@pytest.mark.parametrize(
    ("module", "waiting", "made"),
    [
        pytest.param(None, [STANDBY], False, id="a converge has not begun"),
        pytest.param(None, [RUNNING], True, id="a converge is under way"),
        pytest.param("m", [Task(RunModules(("a", "m")), Reason.RELOAD_ALL)], False, id="the module's run waits"),
        pytest.param("m", [Task(RunModules(("a",)), Reason.RELOAD_ALL)], True, id="the run of another waits"),
    ],
)
def test_what_waits_already_is_not_asked_for_again(module: str | None, waiting: list[Task], made: bool) -> None:
    hook_id = HookId(module, "hooks/x")
    assert bool(hook_changed_values(Reason.KUBERNETES, hook_id, VALUES, waiting)) is made


def test_a_plan_becomes_crds_deletes_runs_and_purges_in_this_order() -> None:
    plan = ConvergePlan(run=(("a",), ("b", "c")), delete=("z", "y"), purge=("old",), crds=("a", "b"))
    tasks = plan_tasks(plan, Reason.RELOAD_ALL, crds_pending={"b"})
    assert [describe(task, queue="main") for task in tasks] == [
        "ModuleEnsureCRDs:main:b:EnsureCRDs",
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
    assert payloads(config_accepted([STANDBY])) == [ApplyConfig()]
    assert payloads(config_accepted([Task(ApplyConfig(), Reason.APPLY_CONFIG), STANDBY])) == []


A, A_AND_B = Task(RunModules(("a",)), Reason.ABSENT_OBJECTS), Task(RunModules(("b", "a")), Reason.RELOAD_ALL)
FIRST = Task(Converge(), Reason.OPERATOR_STARTUP, converge=True)
EVENT = Task(RunHook(HookId("a", "hooks/x"), (POD_EVENT,)), Reason.KUBERNETES)
DELETE = Task(DeleteModule("z"), Reason.RELOAD_ALL, converge=True)


@pytest.mark.parametrize(
    ("change", "enablement_changed", "run", "waiting", "expected"),
    [
        pytest.param(GLOBAL, False, [], [], ([Converge()], []), id="global, idle"),
        pytest.param(GLOBAL, False, [], [EVENT, A], ([Converge()], [A]), id="global, a hook and a module may fail"),
        pytest.param(
            GLOBAL, False, [], [EVENT, STANDBY], ([Converge()], [STANDBY]), id="global, a converge has not begun"
        ),
        pytest.param(
            GLOBAL, False, [], [DELETE, RUNNING], ([Converge()], [DELETE, RUNNING]), id="global, during a converge"
        ),
        pytest.param(GLOBAL, False, [], [EVENT, FIRST], ([], []), id="global, during the start"),
        pytest.param(FLAG, True, [], [], ([Converge()], []), id="enable state changes, idle"),
        pytest.param(FLAG, True, [], [RUNNING], ([Converge()], [RUNNING]), id="enable state changes, converge"),
        pytest.param(FLAG, True, [], [FIRST], ([], []), id="enable state changes, during the start"),
        pytest.param(FLAG, False, [], [EVENT, STANDBY], ([], []), id="flag without effect"),
        pytest.param(SECTION, False, ["a"], [], ([RunModules(("a",))], []), id="section, idle"),
        pytest.param(SECTION, False, ["a"], [RUNNING], ([RunModules(("a",))], []), id="section, converge"),
        pytest.param(SECTION, False, [], [], ([], []), id="section of a disabled module"),
        pytest.param(SECTION, False, ["a"], [A_AND_B], ([], []), id="section, the run waits already among others"),
        pytest.param(
            SECTION, False, ["a"], [EVENT, A], ([RunModules(("a",))], [A]), id="section, the run waits behind others"
        ),
        pytest.param(SECTION, True, ["a"], [], ([Converge()], []), id="section that flips an enabled script"),
    ],
)
def test_the_configmap_table(
    change: ConfigChange,
    enablement_changed: bool,
    run: list[str],
    waiting: list[Task],
    expected: tuple[list[Payload], list[Task]],
) -> None:
    """Contract.md 3.6, but before what fails in all cases: what comes next, and what goes."""
    made = config_applied(change, enablement_changed=enablement_changed, run=run, waiting=waiting)
    assert (payloads(made.head), list(made.drop)) == expected


def test_changed_global_values_ask_for_one_more_converge_at_the_tail() -> None:
    assert payloads(global_values_changed(Reason.AFTER_ALL_CHANGED_VALUES, [])) == [Converge()]
    assert payloads(global_values_changed(Reason.AFTER_ALL_CHANGED_VALUES, [RUNNING])) == [Converge()]
    assert payloads(global_values_changed(Reason.AFTER_ALL_CHANGED_VALUES, [STANDBY])) == []


def test_absent_objects_run_their_module_once() -> None:
    assert payloads(absent_objects("a", [RUNNING])) == [RunModules(("a",))]
    assert payloads(absent_objects("a", [Task(RunModules(("a",)), Reason.RELOAD_ALL)])) == []


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
