"""Contexts, metrics, changes to objects and answers to reviews in a bash hook, read with the operator's readers."""

from __future__ import annotations

import base64
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from addon_operator.cli.shell_lib import shell_lib
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.kube import patch_ops
from addon_operator.kube.patch_ops import Common, Create, Delete, JqPatch, JsonPatch, MergePatch, Target
from addon_operator.metrics.operations import Expire, Record
from tests.component.shell.bench import HookBench
from tests.component.shell.conftest import LIBRARY, RunHandler

CONFIG_MAP: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}}


def test_context(run_handler: RunHandler) -> None:
    body = """
    context::jq -r --arg name b '.snapshots.pods[] | select(.object.metadata.name == $name) | .filterResult'
    context::jq -er '.binding'
    context::global::jq -c 'map(.binding)'
    context::get 'snapshots.pods[0].object.metadata.labels."app.kubernetes.io/name"'
    context::get snapshots.none
    """
    pods: JsonValue = [
        {"object": {"metadata": {"name": "a", "labels": {"app.kubernetes.io/name": 'x "y"'}}}, "filterResult": 1},
        {"object": {"metadata": {"name": "b"}}, "filterResult": "zwei\nü"},
    ]
    run = run_handler(body, contexts=[{"binding": "beforeHelm", "snapshots": {"pods": pods}}])
    assert run.lines == ["zwei", "ü", "beforeHelm", '["beforeHelm"]', 'x "y"', "null"]


PODS: JsonValue = [{"name": "a", "my-label": "x y"}, {"name": "b"}]
GETS: dict[str, list[str]] = {
    # Paths, as the document of the libraries says.
    ".binding": ["beforeHelm"],
    '.snapshots."my pods"[0].my-label': ["x y"],
    "snapshots.'my pods'.1.name": ["b"],
    "snapshots.my-pods": ["null"],
    "binding,snapshots": ["null"],
    # Programs.
    'snapshots["my pods"][0].name': ["a"],
    '["snapshots"]["my pods"][-1].name': ["b"],
    ".snapshots[][]?.name": ["a", "b"],
    'snapshots."my pods"[]|.name': ["a", "b"],
    'snapshots["my pods"] | length  # a remark': ["2"],
    'missing // "else"': ["else"],
    "missing?": ["null"],
    " | keys | length": ["2"],
    ".binding | select(. == 1)": [],
}


@pytest.mark.parametrize(("argument", "lines"), GETS.items(), ids=GETS)
def test_context_get(run_handler: RunHandler, argument: str, lines: list[str]) -> None:
    context: JsonObject = {"binding": "beforeHelm", "snapshots": {"my pods": PODS}}
    run = run_handler(f"context::get {shlex.quote(argument)}", contexts=[context])
    assert (run.code, run.lines) == (0, lines)


def test_context_get_of_a_program_that_fails(run_handler: RunHandler) -> None:
    run = run_handler("context::get '.binding | .['")
    assert run.code != 0
    assert "compile error" in run.stderr


def test_large_context(run_script: RunHandler) -> None:
    """Larger than what fits into a pipe or an argument."""
    items: list[JsonValue] = [{"object": {"metadata": {"name": f"ü{n}"}, "data": "x" * 1000}} for n in range(2000)]
    body = "__main__() { context::jq '.objects | length'; context::get objects[1999].object.metadata.name; }\nhook::run"
    run = run_script(body, contexts=[{"binding": "pods", "type": "Synchronization", "objects": items}])
    assert run.lines == ["2000", "ü1999"]


def test_context_outside_of_a_handler(run_script: RunHandler) -> None:
    run = run_script("context::get binding")
    assert run.code != 0
    assert "only a handler has a current context" in run.stderr


def test_context_in_a_script_that_a_handler_starts(run_script: RunHandler, bench: HookBench) -> None:
    text = "set -eu\nsource '{}'\ncontext::get binding\ncontext::is_true yes && context::jq -r .yes\n"
    child = bench.write("child.sh", "#!/usr/bin/env bash\n" + text.format(LIBRARY))
    contexts = [{"binding": "first", "yes": True}, {"binding": "second", "yes": True}]
    run = run_script(f'__main__() {{ "{child}"; }}\nhook::run "$@"', contexts=contexts)
    assert (run.lines, run.stderr) == (["first", "true", "second", "true"], "")


def test_a_script_that_a_handler_starts_shares_its_changes(run_handler: RunHandler, bench: HookBench) -> None:
    child = bench.write(
        "child.sh",
        f"""#!/usr/bin/env bash
        set -eu
        source '{LIBRARY}'
        values::get myModule.b
        values::get --config myModule.b
        values::set myModule.b 9; values::set myModule.c 3; values::set --config myModule.b x
        metrics::set second 1; admission::allow; conversion::fail no
        """,
    )
    body = f"""
    values::set myModule.b 2; values::set --config myModule.b y; metrics::set first 1; admission::deny no
    {child}
    values::get myModule.c
    values::set myModule.d "$(values::get myModule.b)"; metrics::set third 1; conversion::done '[]'
    """
    run = run_handler(body, values={"global": {}, "myModule": {}})
    assert (run.lines, run.stderr) == (["2", "y", "3"], "")
    assert run.new_values() == {"global": {}, "myModule": {"b": 9, "c": 3, "d": 9}}
    assert run.new_config_values() == {"global": {}, "myModule": {"b": "x"}}
    assert [one.name for one in run.metrics() if isinstance(one, Record)] == ["first", "second", "third"]
    assert (run.answer(ADMISSION), run.answer(CONVERSION)) == ({"allowed": True}, {"convertedObjects": []})


ENDS = {
    "script": "values::set myModule.child 1; exit 3",
    "hook": "__main__() { values::set myModule.child 1; return 3; }\nhook::run",
    "hook without handler": "values::set myModule.child 1; hook::run",
}


@pytest.mark.parametrize("text", ENDS.values(), ids=ENDS)
def test_changes_of_a_script_that_fails_are_those_of_the_handler(
    run_handler: RunHandler, bench: HookBench, text: str
) -> None:
    child = bench.write("child.sh", f"#!/usr/bin/env bash\nset -eu\nsource '{LIBRARY}'\n{text}\n")
    before = "values::set myModule.before 1"
    failed = run_handler(f"{before}; {child}")
    assert (failed.code != 0, failed.is_silent) == (True, True)
    went_on = run_handler(f"{before}; {child} || true; values::set myModule.after 1")
    assert [one.path for one in went_on.patch()] == ["/myModule/before", "/myModule/child", "/myModule/after"]
    failed_later = run_handler(f"{before}; {child} || true; exit 4")
    assert (failed_later.code, failed_later.is_silent) == (4, True)


def test_a_hook_that_a_handler_starts_is_part_of_it(run_handler: RunHandler, bench: HookBench) -> None:
    child = bench.write(
        "child.sh",
        f"#!/usr/bin/env bash\nsource '{LIBRARY}'\n"
        "__main__() { values::get myModule.a; values::set myModule.a 2; }\nhook::run\nvalues::set myModule.b 1\n",
    )
    run = run_handler(f"values::set myModule.a 1; {child}; values::get myModule.a; values::set myModule.c 1")
    assert (run.lines, run.stderr) == (["1", "2"], "")
    assert [one.path for one in run.patch()] == [f"/myModule/{key}" for key in "aabc"]


def test_a_hook_that_a_handler_runs_with_files_of_its_own_is_apart(
    run_handler: RunHandler, bench: HookBench, tmp_path: Path
) -> None:
    other = bench.write(
        "other.sh",
        f"#!/usr/bin/env bash\nsource '{LIBRARY}'\n__main__() {{ values::set myModule.other 1; }}\nhook::run\n",
    )
    body = f"""
    values::set myModule.a 1
    cp "$BINDING_CONTEXT_PATH" {tmp_path}/contexts
    BINDING_CONTEXT_PATH={tmp_path}/contexts VALUES_JSON_PATCH_PATH={tmp_path}/patch {other}
    """
    run = run_handler(body)
    assert [one.path for one in run.patch()] == ["/myModule/a"]
    assert "/myModule/other" in (tmp_path / "patch").read_text()


def test_metrics(run_handler: RunHandler) -> None:
    body = """
    metrics::add runs_total 1
    metrics::add --group g runs_total 2.5 node=a 'text=a=b "c" ü'
    metrics::set --group g temperature -3
    metrics::observe --group g --buckets 0.1,1,5 duration_seconds 0.25 path=/
    metrics::expire old
    """
    assert run_handler(body).metrics() == (
        Record(1, "runs_total", "counter", 1),
        Record(2, "runs_total", "counter", 2.5, (("node", "a"), ("text", 'a=b "c" ü')), group="g"),
        Record(3, "temperature", "gauge", -3, group="g"),
        Record(4, "duration_seconds", "histogram", 0.25, (("path", "/"),), (0.1, 1, 5), group="g"),
        Expire(5, "old"),
    )


def test_objects_to_create(run_handler: RunHandler) -> None:
    body = """
    kubernetes::create_or_update <<YAML
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: a, namespace: b}
YAML
    kubernetes::create "$OBJECT"
    jq -n --argjson object "$OBJECT" '$object' | kubernetes::create_if_not_exists
    """
    run = run_handler(body, environment={"OBJECT": json.dumps(CONFIG_MAP)})
    target = Target("v1", "ConfigMap", "b", "a")
    assert run.objects() == (
        Create(Common(1, target), "CreateOrUpdate", CONFIG_MAP),
        Create(Common(2, target), "Create", CONFIG_MAP),
        Create(Common(3, target), "CreateIfNotExists", CONFIG_MAP),
    )


def test_objects_to_change(run_handler: RunHandler) -> None:
    body = """
    kubernetes::delete -n ns Pod p
    kubernetes::delete_in_background --api-version apps/v1 --namespace ns Deployment d
    kubernetes::delete_non_cascading Node n
    kubernetes::merge_patch --ignore-missing --subresource status --ignore-hook-error Node n '{"status": {"ü": 1}}'
    kubernetes::merge_patch Node n <<<'metadata: {labels: {a: "b"}}'
    kubernetes::json_patch Node n '[{"op": "remove", "path": "/metadata/labels/a"}]'
    """
    assert run_handler(body).objects() == (
        Delete(Common(1, Target(None, "Pod", "ns", "p")), "Delete"),
        Delete(Common(2, Target("apps/v1", "Deployment", "ns", "d")), "DeleteInBackground"),
        Delete(Common(3, Target(None, "Node", None, "n")), "DeleteNonCascading"),
        MergePatch(
            Common(4, Target(None, "Node", None, "n"), "status", ignore_missing=True, ignore_hook_error=True),
            {"status": {"ü": 1}},
        ),
        MergePatch(Common(5, Target(None, "Node", None, "n")), {"metadata": {"labels": {"a": "b"}}}),
        JsonPatch(
            Common(6, Target(None, "Node", None, "n")), [{"op": "remove", "path": "/metadata/labels/a"}]
        ),
    )  # fmt: skip


def test_jq_patches(run_handler: RunHandler) -> None:
    body = """
    kubernetes::jq_patch Pod p '.metadata.labels."a b" = "ü"'
    kubernetes::jq_patch Pod p <<'JQ'
    .x = 1  # a remark
JQ
    """
    first, second = run_handler(body).objects()
    assert isinstance(first, JqPatch)
    assert isinstance(second, JqPatch)
    assert first.program.run(b'{"metadata": {}}') == ('{"metadata":{"labels":{"a b":"ü"}}}'.encode(),)
    assert second.program.run(b"{}") == (b'{"x":1}',)


def test_objects_the_operator_refuses(run_handler: RunHandler) -> None:
    """What only the operator can judge is left to it."""
    run = run_handler("kubernetes::create <<<'kind: [unclosed'")
    assert run.code == 0
    with pytest.raises(patch_ops.ObjectPatchError):
        run.objects()


ADMISSION, CONVERSION = "ADMISSION_RESPONSE_PATH", "CONVERSION_RESPONSE_PATH"
ANSWERS: dict[str, tuple[str, str, JsonValue]] = {
    "allow": ("admission::allow", ADMISSION, {"allowed": True}),
    "deny": ("admission::deny 'no \"way\"'", ADMISSION, {"allowed": False, "message": 'no "way"'}),
    "allow with warnings": (
        "admission::allow --warning 'one ü' --warning -x",
        ADMISSION,
        {"allowed": True, "warnings": ["one ü", "-x"]},
    ),
    "deny with a warning": (
        "admission::deny --warning 2>/dev/null || admission::deny --warning w no",
        ADMISSION,
        {"allowed": False, "message": "no", "warnings": ["w"]},
    ),
    "last one": ("admission::deny no; admission::allow", ADMISSION, {"allowed": True}),
    "done": (
        "context::jq .review.request.objects | conversion::done",
        CONVERSION,
        {"convertedObjects": [{"kind": "X"}]},
    ),
    "fail": ("conversion::fail 'not ü'", CONVERSION, {"failedMessage": "not ü"}),
}


@pytest.mark.parametrize(("body", "variable", "answer"), ANSWERS.values(), ids=ANSWERS)
def test_answers(run_handler: RunHandler, body: str, variable: str, answer: JsonValue) -> None:
    contexts: list[JsonObject] = [{"binding": "beforeHelm", "review": {"request": {"objects": [{"kind": "X"}]}}}]
    assert run_handler(body, contexts=contexts).answer(variable) == answer


def test_answer_with_patch(run_handler: RunHandler) -> None:
    body = """admission::allow --warning w '[{"op": "add", "path": "/a", "value": "ü"}]'"""
    answer = run_handler(body).answer(ADMISSION)
    assert isinstance(answer, dict)
    assert answer["warnings"] == ["w"]
    assert json.loads(base64.b64decode(str(answer["patch"]))) == [{"op": "add", "path": "/a", "value": "ü"}]


def test_the_command_names_the_library() -> None:
    result = CliRunner().invoke(shell_lib)
    assert (result.exit_code, result.output) == (0, f"{LIBRARY}\n")


def test_shellcheck() -> None:
    parts = sorted(LIBRARY.parent.glob("*.sh"))
    shellcheck = Path(sys.executable).parent / "shellcheck"
    done = subprocess.run([shellcheck, "-x", *parts], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
