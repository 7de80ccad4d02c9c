"""Which handler of a bash hook is called for which binding context, and what happens if it fails."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.hooks.call import HookId
from addon_operator.hooks.config import model, parser
from tests.component.shell.bench import HookBench
from tests.component.shell.conftest import LIBRARY, RunHandler

POD: JsonObject = {"metadata": {"name": "a"}}

HANDLERS: dict[str, tuple[JsonObject, str]] = {
    "onStartup": ({"binding": "onStartup"}, "__on_startup"),
    "beforeAll": ({"binding": "beforeAll"}, "__before_all __on_before_all"),
    "afterAll": ({"binding": "afterAll", "snapshots": {}}, "__after_all __on_after_all"),
    "beforeHelm": ({"binding": "beforeHelm", "snapshots": {}}, "__before_helm __on_before_helm"),
    "afterHelm": ({"binding": "afterHelm", "snapshots": {}}, "__after_helm __on_after_helm"),
    "beforeDeleteHelm": ({"binding": "beforeDeleteHelm"}, "__before_delete_helm __on_before_delete_helm"),
    "afterDeleteHelm": ({"binding": "afterDeleteHelm"}, "__after_delete_helm __on_after_delete_helm"),
    "schedule": ({"binding": "hourly", "type": "Schedule"}, "__on_schedule::hourly"),
    "schedule without type": ({"binding": "hourly"}, "__on_schedule::hourly"),
    "schedule named like a point": ({"binding": "onStartup", "type": "Schedule"}, "__on_schedule::onStartup"),
    "synchronization": (
        {"binding": "pods", "type": "Synchronization", "objects": []},
        "__on_kubernetes::pods::synchronization __on_kubernetes::pods",
    ),
    "added": (
        {"binding": "pods", "type": "Event", "watchEvent": "Added", "object": POD},
        "__on_kubernetes::pods::added __on_kubernetes::pods::added_or_modified __on_kubernetes::pods",
    ),
    "modified": (
        {"binding": "pods", "type": "Event", "watchEvent": "Modified", "object": POD, "filterResult": None},
        "__on_kubernetes::pods::modified __on_kubernetes::pods::added_or_modified __on_kubernetes::pods",
    ),
    "deleted": (
        {"binding": "pods", "type": "Event", "watchEvent": "Deleted", "object": POD},
        "__on_kubernetes::pods::deleted __on_kubernetes::pods",
    ),
    "v0 event": (
        {"binding": "pods", "resourceEvent": "update", "resourceName": "a"},
        "__on_kubernetes::pods::modified __on_kubernetes::pods::added_or_modified __on_kubernetes::pods",
    ),
    "group": (
        {"binding": "pods", "type": "Group", "groupName": "all", "snapshots": {"pods": []}},
        "__on_group::all",
    ),
    "group without name": ({"binding": "all", "type": "Group", "snapshots": {}}, "__on_group::all"),
    "validating": ({"binding": "a.b.example", "type": "Validating", "review": {}}, "__on_validating::a.b.example"),
    "mutating": ({"binding": "a.b.example", "type": "Mutating", "review": {}}, "__on_mutating::a.b.example"),
    "conversion": (
        {"binding": "tabs", "type": "Conversion", "fromVersion": "x.io/v1", "toVersion": "x.io/v2", "review": {}},
        "__on_conversion::tabs::x.io.v1::x.io.v2 __on_conversion::tabs",
    ),
    "name with spaces": (
        {"binding": 'Pods of "tier" (cache)', "type": "Schedule"},
        "__on_schedule::Pods_of__tier___cache_",
    ),
    "name beyond ASCII": ({"binding": "stündlich", "type": "Schedule"}, "__on_schedule::stündlich"),
    "type nobody knows": ({"binding": "x", "type": "Surprise"}, ""),
}


@pytest.mark.parametrize(("context", "names"), HANDLERS.values(), ids=HANDLERS)
def test_order_of_handlers(run_script: RunHandler, context: JsonObject, names: str) -> None:
    """Each choice is taken when those before it are not there."""
    handlers = [*names.split(), "__main__"]
    for place, chosen in enumerate(handlers):
        defined = "\n".join(f"{name}() {{ echo {name}; }}" for name in handlers[place:])
        assert run_script(f"{defined}\nhook::run", contexts=[context]).lines == [chosen]


def test_no_handler_is_an_error_that_lists_them(run_script: RunHandler) -> None:
    run = run_script("__on_startup() { :; }\nhook::run", contexts=[{"binding": "x", "type": "Schedule"}])
    assert run.code == 1
    assert run.stderr == "hook.sh: no handler for binding x, it would be one of: __on_schedule::x, __main__\n"


def test_contexts_in_order_with_their_variables(run_script: RunHandler) -> None:
    contexts: list[JsonObject] = [
        {"binding": "tab\there \\n", "type": "Schedule"},
        {"binding": "onStartup"},
        {"binding": "late", "type": "Group", "groupName": "g", "snapshots": {}},
    ]
    body = """
    __main__() {
      printf '%s|%s|%s|' "$BINDING_CONTEXT_CURRENT_INDEX" "$BINDING_CONTEXT_CURRENT_BINDING" \
        "$BINDING_CONTEXT_CURRENT_TYPE"
      context::get binding
    }
    hook::run "$@"
    """
    assert run_script(body, contexts=contexts).lines == [
        "0|tab\there \\n|Schedule|tab\there \\n",
        "1|onStartup||onStartup",
        "2|late|Group|late",
    ]


def test_no_context_is_no_work(run_script: RunHandler) -> None:
    run = run_script("hook::run; echo rest", contexts=[])
    assert (run.code, run.stdout) == (0, "rest\n")


def test_handlers_cannot_disturb_each_other(run_script: RunHandler) -> None:
    body = "state=0\n__main__() { state=$((state + 1)); cd /; set +e; echo $state; false; true; }\nhook::run; pwd"
    run = run_script(body, contexts=[{"binding": "onStartup"}] * 2)
    assert run.lines == ["1", "1", str(Path.cwd())]


@pytest.mark.parametrize("strict", [True, False])
def test_errexit_of_the_hook_is_kept(run_script: RunHandler, *, strict: bool) -> None:
    run = run_script('__main__() { false; echo on; }\nhook::run\necho "$-" | tr -dc e', strict=strict)
    assert (run.code, run.stdout) == ((1, "") if strict else (0, "on\n"))


def test_config_is_what_the_author_prints(run_script: RunHandler) -> None:
    run = run_script("__config__() { printf 'configVersion: v1\\nbeforeHelm: 10\\n'; }\nhook::run \"$@\"", "--config")
    config = parser.parse_config(run.stdout, scope="module", hook=HookId("my-module", "hooks/hook.sh"))
    assert config.lifecycle == (model.Lifecycle("beforeHelm", 10),)


@pytest.mark.parametrize(
    ("body", "code", "stderr"),
    [
        ("", 1, "hook.sh: there is no function __config__\n"),
        ("__config__() { echo sorry >&2; return 4; }", 4, "sorry\n"),
    ],
    ids=["none", "fails"],
)
def test_config_that_fails(run_script: RunHandler, body: str, code: int, stderr: str) -> None:
    run = run_script(f'{body}\nhook::run "$@"; echo rest', "--config", strict=False)
    assert (run.code, run.stdout, run.stderr) == (code, "", stderr)


FAILURES = {
    "command": ("true\nfalse\necho on", 1, "line 6: exit code 1"),
    "in a function": ("helper() {\n  ls /nowhere 2>/dev/null\n}\nhelper", 2, "line 6: exit code 2"),
    "in a pipeline": ("echo a | grep -q b", 1, "line 5: exit code 1"),
    "in a substitution": ("local x\nx=$(values::get --required myModule.x)", 2, "line 6: exit code 2"),
    "in the library": ("values::set ''\n", 2, "line 5: exit code 2"),
    "value without place": ("values::set myModule.a 1\nvalues::set myModule.a.b 2", 2, "line 6: exit code 2"),
    "exit": ("exit 7", 7, ""),
}


@pytest.mark.parametrize(("body", "code", "place"), FAILURES.values(), ids=FAILURES)
def test_failure_names_handler_and_line_and_writes_nothing_but_changes_to_objects(
    run_handler: RunHandler, body: str, code: int, place: str
) -> None:
    before = "values::set myModule.early 1; kubernetes::delete Pod p; metrics::set m 1"
    run = run_handler(f"{before}; {body}\necho on", contexts=[{"binding": "beforeHelm"}] * 2)
    assert (run.code, run.stdout, run.written) == (code, "", {"KUBERNETES_PATCH_PATH"})
    assert len(run.objects()) == 1
    last = f"hook.sh: handler __before_helm failed for binding beforeHelm: exit code {code}\n"
    assert run.stderr.endswith(f"hook.sh: {place}\n{last}" if place else last)


def test_failure_of_a_later_handler_undoes_the_earlier(run_script: RunHandler) -> None:
    body = "__on_startup() { values::set myModule.a 1; }\n__main__() { return 3; }\nhook::run || true; echo rest"
    run = run_script(body, contexts=[{"binding": "onStartup"}, {"binding": "x"}])
    assert (run.code, run.stdout, run.is_silent) == (3, "", True)


def test_failure_in_another_file_names_the_file(run_script: RunHandler, tmp_path: Path) -> None:
    (tmp_path / "more.sh").write_text("\n\nhelper() { false; }\n")
    run = run_script(f"source {tmp_path}/more.sh\n__main__() {{ helper; }}\nhook::run")
    assert "hook.sh: more.sh, line 3: exit code 1\n" in run.stderr


def test_traps_of_the_author_are_kept(run_script: RunHandler) -> None:
    body = "trap 'echo mine' ERR\ntrap 'echo end' EXIT\n__main__() { trap 'echo inner' EXIT; false; }\nhook::run"
    run = run_script(body)
    assert run.lines.count("inner") == 1
    assert run.lines[-1] == "end"
    assert "mine" in run.lines


def test_jq_is_called_once_for_a_handler_that_needs_nothing(run_handler: RunHandler, tmp_path: Path) -> None:
    """Starting jq is most of what a run costs."""
    real, calls = shutil.which("jq"), tmp_path / "calls"
    wrapper = tmp_path / "bin" / "jq"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\necho >>{calls}\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    path = {"PATH": f"{wrapper.parent}:{os.environ['PATH']}"}
    assert run_handler("true", environment=path).code == 0
    assert calls.read_text().count("\n") == 1
    assert run_handler("values::get global; context::get binding", environment=path).code == 0
    assert calls.read_text().count("\n") == 1 + 3


def test_linked_library(bench: HookBench, tmp_path: Path) -> None:
    link = tmp_path / "shell_lib.sh"
    link.symlink_to(LIBRARY)
    hook = bench.write("hook.sh", f"#!/bin/bash\nsource {link}\n__main__() {{ values::get global; }}\nhook::run")
    assert '"my-module"' in bench.run(hook).stdout


def test_sourcing_all_parts_in_any_order(bench: HookBench) -> None:
    """Hooks for the peer find the parts themselves."""
    load = f"for part in $(find {LIBRARY.parent}/ -name '*.sh' | sort -r); do source $part; done"
    hook = bench.write("hook.sh", f"#!/bin/bash\nset -eu\n{load}\n__main__() {{ module::name; }}\nhook::run")
    assert bench.run(hook).lines == ["my-module"]
