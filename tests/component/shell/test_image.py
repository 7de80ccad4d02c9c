"""image/shell_lib.sh, which is /shell_lib.sh in the image: the library with options that make failures count."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from addon_operator.documents.jsondoc import JsonObject
from tests.component.shell.bench import PROJECT, HookBench, HookRun
from tests.component.shell.conftest import LIBRARY

IMAGE_LIBRARY = PROJECT / "image" / "shell_lib.sh"
ENVIRONMENT = {"ADDON_OPERATOR_SHELL_LIB": str(LIBRARY)}

EVERYTHING = """
context::get binding; context::get 'snapshots.pods[0].name'; context::get --required '.snapshots.pods[] | .name'
context::jq -r .binding; context::global::jq length
for question in has is_true is_false is_null; do
  if "context::$question" nothing; then echo yes; else echo no; fi
done
if context::is_null none.at.all && ! context::has none; then echo null; fi
for question in has is_true is_false; do
  if "values::$question" --config global.on; then echo yes; else echo no; fi
done
values::array_has global.enabledModules other || echo no
values::set myModule.a 1; values::set --config myModule.b 'x * [y]'; values::get myModule.a; values::unset myModule.a
values::json_patch add /myModule/c '{"d": [1]}'; values::jq -c .myModule; values::get none; module::name
echo "none: $(values::get --required myModule.none 2>/dev/null || echo there)"
metrics::add runs 1; metrics::set --group g size 2 'a=b *'; metrics::expire g
metrics::observe --buckets 1,2 seconds 1.5
object='{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}'
kubernetes::create "$object"; kubernetes::create_or_update <<<"$object"; kubernetes::create_if_not_exists "$object"
kubernetes::delete Pod p; kubernetes::delete_in_background -n b Pod p; kubernetes::delete_non_cascading Pod p
kubernetes::merge_patch Pod p '{"a": 1}'; kubernetes::json_patch Pod p '[]'; kubernetes::jq_patch Pod p '.a = [.b[]]'
admission::deny no; admission::allow --warning 'w *' '[{"op": "remove", "path": "/a"}]'
conversion::fail no; conversion::done '[{"a": 1}]'
"""


def run(bench: HookBench, library: Path, body: str, *, times: int = 2) -> HookRun:
    handler = f"__main__() {{\n{body}\n}}\nhook::run\n"
    hook = bench.write("hook.sh", f"#!/usr/bin/env bash\nsource '{library}'\n{handler}")
    contexts: list[JsonObject] = [{"binding": "pods", "snapshots": {"pods": [{"name": "a b"}, {"name": "c"}]}}] * times
    return bench.run(hook, contexts=contexts, config_values={"global": {"on": True}}, environment=ENVIRONMENT)


def test_everything_does_the_same_with_the_options(bench: HookBench) -> None:
    plain, strict = (run(bench, library, EVERYTHING, times=1) for library in (LIBRARY, IMAGE_LIBRARY))
    assert (strict.code, strict.stderr) == (0, "")
    assert (strict.stdout, strict.files) == (plain.stdout, plain.files)
    assert all(strict.files.values())


def test_everything_is_everything() -> None:
    """The questions in EVERYTHING are put together, so their names are not in it."""
    program = f"source '{LIBRARY}'; compgen -A function"
    names = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True).stdout.split()
    public = {name for name in names if not re.search(r"::_|::has$|::is_|^hook::run$", name)}
    assert {name for name in public if not re.search(rf"\b{name}\b", EVERYTHING)} == set()


FAILURES = {
    "command": ("true\nfalse\necho on", 1, [":6: exit code 1: false"]),
    "pipeline": ("false | cat", 1, [":5: exit code 1: false | cat"]),
    "in a function": ("look() {\n  ls /nowhere 2>&-\n}\nlook", 2, [":6: exit code 2: ls /nowhere 2>&-"]),
    "function": ("say() { return 3; }\nif true; then\n\t say 'a'\nfi", 3, [":7: exit code 3: say 'a'"]),
    "substitution": ("x=$(false; echo on)", 1, [":5: exit code 1: x=$(false; echo on)"] * 2),
    "library": ("values::set a 1 2", 2, [" usage: values::set ", ":5: exit code 2: values::set a 1 2"]),
    "in the library": ("\nvalues::get 'a['", 2, ["bad path: a[", ":6: exit code 2: values::get 'a['"]),
    "glob without match": ("echo nowhere/*; echo on", 1, [": line 5: no match: nowhere/*"]),
    "unset variable": ('echo "$nothing"; echo on', 1, [": line 5: nothing: unbound variable"]),
    "errexit off": ("set +e\nfalse\nexit 7", 7, []),
}


@pytest.mark.parametrize(("body", "code", "lines"), FAILURES.values(), ids=FAILURES)
def test_failures_count_and_are_named(bench: HookBench, body: str, code: int, lines: list[str]) -> None:
    failed = run(bench, IMAGE_LIBRARY, f"values::set myModule.early 1\n{body}")
    assert (failed.code, failed.stdout, failed.is_silent) == (code, "", True)
    *found, last = failed.stderr.splitlines()
    assert len(found) == len(lines)
    assert all(line in text for line, text in zip(lines, found, strict=True))
    assert last == f"hook.sh: handler __main__ failed for binding pods: exit code {code}"


def test_failure_outside_of_handlers(bench: HookBench) -> None:
    hook = bench.write("hook.sh", f"#!/usr/bin/env bash\nsource '{IMAGE_LIBRARY}'\nfalse # why\necho on")
    failed = bench.run(hook, environment=ENVIRONMENT)
    assert (failed.code, failed.stdout, failed.stderr) == (1, "", f"{hook}:3: exit code 1: false # why\n")


def test_the_library_alone_sets_no_options(bench: HookBench) -> None:
    options = 'echo "$-"; shopt inherit_errexit failglob; set -o; trap'
    hook = bench.write(
        "hook.sh",
        f"#!/usr/bin/env bash\nbefore=$({options})\nsource '{LIBRARY}'\nafter=$({options})\n"
        'diff <(echo "$before") <(echo "$after")',
    )
    assert bench.run(hook).stdout == ""


def test_the_image_has_it() -> None:
    """Links would not do: `find /frameworks/shell -type f` is how hooks look for the library."""
    built = (PROJECT / "Dockerfile").read_text()
    assert "\nCOPY image/shell_lib.sh /shell_lib.sh\n" in built
    assert 'cp -r "$shell" /frameworks/shell && cp -r "$shell" /framework/shell' in built
    assert "!image\n" in (PROJECT / ".dockerignore").read_text()


def test_shellcheck() -> None:
    shellcheck = Path(sys.executable).parent / "shellcheck"
    done = subprocess.run([shellcheck, IMAGE_LIBRARY], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
