from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime

import pytest
import yaml

from addon_operator.documents.jsondoc import JsonValue
from addon_operator.server.inspector import ExplainView, FlagView, QueueView, TaskView
from addon_operator.server.pages import ROUTES, Format, Page, Query, Route
from addon_operator.server.texts import modules_table
from tests.fakes.inspector import ALPHA, EXPLAIN_ALPHA, GAMMA, StillInspector

BY_PATH = {route.path: route for route in ROUTES}


def _page(path: str, query: Query | None = None, inspector: StillInspector | None = None) -> Page:
    return BY_PATH[path].answer(inspector or StillInspector(), query or Query())


def _text(path: str, query: Query | None = None, inspector: StillInspector | None = None) -> str:
    return _page(path, query, inspector).encode("text").decode()


def _queues(*lengths: tuple[str, int]) -> StillInspector:
    queues = (QueueView(name, "run first task", (TaskView("T:q:m"),) * length) for name, length in lengths)
    return StillInspector(all_queues=tuple(queues))


QUEUES_TEXT = """\
Queue 'main': length 2, status: 'sleep after fail for 5s'

 1. ModuleRun:main:beta-two:OperatorStartup:failures 2:exit code 1
    no such host
 2. ConvergeModules:main:OperatorStartup

Queue 'crontab': length 1, status: 'run first task'

 1. ModuleHookRun:crontab:schedule:alpha/hooks/tick.sh:Schedule

"""
SUMMARY_TEXT = """\
Summary:
- 'main' queue: 2 tasks.
- 2 other queues (1 active, 1 empty): 1 task.
- total 3 tasks to handle.
"""


def test_queue_list_text() -> None:
    assert _text("/queue/list") == QUEUES_TEXT + SUMMARY_TEXT


def test_queue_list_text_names_empty_queues_when_asked() -> None:
    empty = "Empty queues (1):\n- aside\n\n"
    assert _text("/queue/list", Query(show_empty=True)) == QUEUES_TEXT + empty + SUMMARY_TEXT


def test_queue_main_text() -> None:
    assert _text("/queue/main") == QUEUES_TEXT[: QUEUES_TEXT.index("\nQueue 'crontab'")]


def test_queue_main_without_tasks() -> None:
    assert _text("/queue/main", inspector=_queues(("main", 0))) == "Queue 'main': length 0, status: 'empty'\n"


@pytest.mark.parametrize(
    ("lengths", "lines"),
    [
        pytest.param(
            (("main", 0),),
            ["'main' queue: empty.", "0 other queues (0 active, 0 empty): 0 tasks.", "no tasks to handle."],
            id="nothing",
        ),
        pytest.param(
            (("main", 1), ("a", 0)),
            ["'main' queue: 1 task.", "1 other queue (0 active, 1 empty): 0 tasks.", "total 1 task to handle."],
            id="one-task",
        ),
        pytest.param(
            (("main", 0), ("a", 2), ("b", 3), ("c", 0)),
            ["'main' queue: empty.", "3 other queues (2 active, 1 empty): 5 tasks.", "total 5 tasks to handle."],
            id="others-only",
        ),
    ],
)
def test_queue_summary(lengths: tuple[tuple[str, int], ...], lines: list[str]) -> None:
    summary = "Summary:\n" + "".join(f"- {line}\n" for line in lines)
    assert _text("/queue/list", inspector=_queues(*lengths)).endswith(summary)


def test_queue_list_document() -> None:
    task = {"index": 1, "description": "T:q:m", "failures": 0, "ageSeconds": 0.0}
    inspector = _queues(("a", 0), ("b", 1), ("main", 2))
    page = _page("/queue/list", Query(show_empty=True), inspector)
    assert page.document == {
        "active": [
            {"name": "main", "tasksCount": 2, "status": "run first task", "tasks": [task, {**task, "index": 2}]},
            {"name": "b", "tasksCount": 1, "status": "run first task", "tasks": [task]},
        ],
        "empty": [{"name": "a", "tasksCount": 0, "status": "empty", "tasks": []}],
        "summary": {
            "mainQueueTasks": 2,
            "otherQueues": {"active": 1, "empty": 1, "tasks": 1},
            "totalTasks": 3,
        },
        "apiServerAwaySince": None,
    }


def test_queue_list_document_hides_empty_queues_but_counts_them() -> None:
    document = _page("/queue/list").document
    assert isinstance(document, dict)
    assert document["empty"] == []
    assert document["summary"] == {
        "mainQueueTasks": 2,
        "otherQueues": {"active": 1, "empty": 1, "tasks": 1},
        "totalTasks": 3,
    }


def test_module_list_document_keeps_the_peers_key() -> None:
    inspector = StillInspector(all_modules=(GAMMA, ALPHA), all_held={"gone": "its directory is gone"})
    document = _page("/module/list", inspector=inspector).document
    assert document == {
        "enabledModules": ["alpha"],
        "modules": [
            {
                "name": "gamma",
                "order": 20,
                "enabled": False,
                "state": "disabled",
                "reason": "enabled script: no ingress class",
                "release": None,
                "revision": None,
                "durationSeconds": None,
                "lastError": None,
            },
            {
                "name": "alpha",
                "order": 10,
                "enabled": True,
                "state": "ready",
                "reason": "enabled by the ConfigMap",
                "release": "alpha",
                "revision": 3,
                "durationSeconds": 0.123,
                "lastError": None,
            },
        ],
        "apiServerAwaySince": None,
        "held": [{"name": "gone", "reason": "its directory is gone"}],
    }


def test_enabled_modules_are_sorted_by_name_not_by_order() -> None:
    late = dataclasses.replace(ALPHA, name="zeta", order=1)
    document = _page("/module/list", inspector=StillInspector(all_modules=(late, ALPHA))).document
    assert isinstance(document, dict)
    assert document["enabledModules"] == ["alpha", "zeta"]


# What holds up the main queue holds up all modules, those that are well too.
HELD_UP = (
    "NOTE: queue main is held up: ModuleRun:main:beta-two:OperatorStartup:failures 2:exit code 1\n"
    "      no such host\n\n"
)


def test_module_list_text() -> None:
    assert _text("/module/list") == (
        HELD_UP + "NAME      ORDER  ENABLED  STATE     RELEASE  REVISION  DURATION  REASON                            "
        "LAST ERROR\n"
        "alpha     10     yes      ready     alpha    3         0.12s     enabled by the ConfigMap          -\n"
        "beta-two  20     yes      failed    -        -         4m05s     a hook failed                     "
        "hooks/before.sh: exit code 1 cannot reach \ufffd[31mthe cluster\n"
        "gamma     20     no       disabled  -        -         -         enabled script: no ingress class  -\n"
    )


def test_modules_table_is_what_the_page_shows() -> None:
    inspector = StillInspector(all_modules=(ALPHA, GAMMA), all_queues=())
    assert modules_table([ALPHA, GAMMA]) == _text("/module/list", inspector=inspector)


def test_values_yaml_with_origins() -> None:
    page = _page("/module/{module}/values", Query(module="alpha", with_global=True, with_origin=True))
    assert page.encode("yaml").decode() == (
        "global:\n"
        "  clusterName: main  # ConfigMap, key global\n"
        "alpha:\n"
        "  replicas: 2  # ConfigMap, key alpha\n"
        "  hosts:  # hook hooks/hosts.sh at 2026-11-20T10:00:00Z\n"
        "  - a.example\n"
        "  - b.example\n"
        "  motd: |  # modules/010-alpha/values.yaml:4\n"
        "    one\n"
        "    two\n"
    )


@pytest.mark.parametrize("form", ["yaml", "json"])
@pytest.mark.parametrize("with_global", [True, False], ids=["with-global", "alone"])
def test_values_without_origins(form: Format, with_global: bool) -> None:
    page = _page("/module/{module}/values", Query(module="alpha", with_global=with_global))
    shown = yaml.safe_load(page.encode(form))
    assert shown == StillInspector().module_values("alpha", with_global=with_global)
    assert ("global" in shown) is with_global


def test_origins_as_json_stand_beside_the_values() -> None:
    document = _page("/module/{module}/values", Query(module="alpha", with_origin=True)).document
    inspector = StillInspector()
    assert document == {
        "values": inspector.module_values("alpha", with_global=False),
        "origins": inspector.module_origins("alpha", with_global=False),
    }


@pytest.mark.parametrize(
    ("path", "module", "expected"),
    [
        pytest.param(
            "/global/patches",
            "",
            [{"Operations": [{"op": "add", "path": "/global/discovered", "value": {"nodes": 3}}]}],
            id="global",
        ),
        pytest.param(
            "/module/{module}/patches",
            "alpha",
            [{"Operations": [{"op": "remove", "path": "/alpha/replicas"}]}],
            id="module",
        ),
        pytest.param("/module/{module}/patches", "gamma", [], id="none"),
    ],
)
def test_patches_keep_the_peers_form(path: str, module: str, expected: JsonValue) -> None:
    assert _page(path, Query(module=module)).document == expected


def test_resource_monitor() -> None:
    page = _page("/module/resource-monitor")
    assert page.document == {
        "alpha": ["addons/ConfigMap/alpha", "addons/Deployment/alpha"],
        "beta-two": "No monitor",
    }
    assert page.text == "alpha:\n  addons/ConfigMap/alpha\n  addons/Deployment/alpha\nbeta-two: No monitor\n"


def test_explain_text_of_an_enabled_module() -> None:
    assert _text("/module/{module}/explain", Query(module="alpha")) == (
        HELD_UP + "Module:    alpha\n"
        "Directory: modules/010-alpha\n"
        "Order:     10\n"
        "Enabled:   yes\n"
        "State:     ready\n"
        "Reason:    enabled by the ConfigMap\n"
        "Last run:  0.12s\n"
        "\n"
        "Enable flag (the last source that says anything decides):\n"
        "  SOURCE                         SAYS   WHERE\n"
        "  modules/values.yaml            false  modules/values.yaml:2\n"
        "  modules/010-alpha/values.yaml  -      -\n"
        "  global hooks                   -      -\n"
        "  ConfigMap                      true   addons/addon-operator, key alphaEnabled  decides\n"
        "\n"
        "Release alpha in namespace addons: revision 3, deployed\n"
        "  last decision at 2026-11-20T10:00:00+00:00: upgrade: 1 object is absent\n"
        "  absent in the cluster: addons/Deployment/alpha\n"
    )


def test_explain_text_of_a_failed_module() -> None:
    text = _text("/module/{module}/explain", Query(module="beta-two"))
    assert text[text.index("\nEnabled script") :] == (
        "\nEnabled script modules/020-beta-two/enabled:\n"
        "  failed: exit code 3\n"
        "  no reason written\n"
        "\n"
        "Release beta-two in namespace addons: not installed\n"
        "\n"
        "Last error:\n"
        "  hooks/before.sh: exit code 1\n"
        "    cannot reach \ufffd[31mthe cluster\n"
    )


def test_explain_text_of_a_disabled_module() -> None:
    text = _text("/module/{module}/explain", Query(module="gamma"))
    assert text.endswith("Enabled script modules/020-gamma/enabled:\n  says disabled, reason: no ingress class\n")


def test_explain_says_so_when_nobody_says_anything() -> None:
    silent = dataclasses.replace(EXPLAIN_ALPHA, flags=(FlagView("ConfigMap", value=None),))

    class Silent(StillInspector):
        def module_explain(self, name: str) -> ExplainView:
            return silent

    page = _page("/module/{module}/explain", Query(module="alpha"), Silent())
    assert "  ConfigMap  -     -\n  No source says anything, so the module is disabled.\n" in page.text


def test_explain_document_names_the_deciding_source() -> None:
    document = _page("/module/{module}/explain", Query(module="alpha")).document
    assert isinstance(document, dict)
    flags = document["flags"]
    assert isinstance(flags, list)
    assert [flag["source"] for flag in flags if isinstance(flag, dict) and flag["decides"]] == ["ConfigMap"]
    assert document["helmRelease"] == {
        "name": "alpha",
        "namespace": "addons",
        "status": "deployed",
        "revision": 3,
        "absent": ["addons/Deployment/alpha"],
        "decision": "upgrade",
        "decisionReason": "1 object is absent",
        "decidedAt": "2026-11-20T10:00:00.000123+00:00",
    }


def test_config_list() -> None:
    page = _page("/config/list")
    assert page.text == (
        "NAME       VALUE  EXPIRES IN  DESCRIPTION\nlog.level  debug  1m30s       lowest level shown\n"
    )
    assert page.document == [
        {"name": "log.level", "value": "debug", "description": "lowest level shown", "expiresInSeconds": 90.0}
    ]


every_route = pytest.mark.parametrize(
    "route", ROUTES, ids=[route.path.strip("/").replace("/", "-") for route in ROUTES]
)


@every_route
def test_yaml_and_json_say_the_same(route: Route) -> None:
    page = route.answer(StillInspector(), Query(module="alpha", show_empty=True, with_global=True))
    assert yaml.safe_load(page.encode("yaml")) == json.loads(page.encode("json"))


@every_route
def test_every_format_that_a_route_names_is_there_and_ends_with_a_line_end(route: Route) -> None:
    page = route.answer(StillInspector(), Query(module="alpha"))
    assert [form for form in route.formats if not page.encode(form).endswith(b"\n")] == []


def test_what_everybody_should_know_comes_first() -> None:
    inspector = StillInspector()
    inspector.all_notices = ("the ConfigMap is refused:\n  - a: must be a number",)
    for route in ("/module/list", "/module/{module}/explain"):
        page = next(known for known in ROUTES if known.path == route).answer(inspector, Query(module="prometheus"))
        assert page.text.startswith("NOTE: the ConfigMap is refused:\n        - a: must be a number\n\n"), page.text


def test_lists_say_since_when_the_api_server_is_away() -> None:
    inspector = StillInspector(away_since=datetime(2026, 3, 1, 9, 30, tzinfo=UTC))
    for path in ("/module/list", "/queue/list"):
        document = _page(path, inspector=inspector).document
        assert isinstance(document, dict)
        assert document["apiServerAwaySince"] == "2026-03-01T09:30:00+00:00"
