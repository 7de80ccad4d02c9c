"""Reading and changing values in a bash hook: what arrives is what was meant, whatever characters it has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from tests.component.shell.bench import HookBench
from tests.component.shell.conftest import LIBRARY, RunHandler

TEXTS = {
    "quotes": """a "double" and 'single' `back`""",
    "lines": "first\nsecond\n",
    "blank": "",
    "spaces": "  ",
    "backslash": "\\n \\ \\\\ \\u0041 $HOME %s",
    "unicode": "ü € 😀 \u2028",
    "control": "\x01\x1f\x7f\t\r",
    "option": "--config",
    "pem": "-----BEGIN CERTIFICATE-----\nMIIB+/=\n-----END CERTIFICATE-----\n",
    "almost number": "007",
    "version": "1.20",
    "nan": "nan",
    "brace": "{not json",
}


def test_texts_survive(run_handler: RunHandler) -> None:
    """All in one run, each through the environment, set and read back."""
    environment = {f"TEXT_{place}": text for place, text in enumerate(TEXTS.values())}
    sets = "\n".join(f'values::set --string myModule.t{place} "$TEXT_{place}"' for place in range(len(TEXTS)))
    gets = "\n".join(
        f"got=$(values::get myModule.t{place}; echo .)\n[[ $got == \"$TEXT_{place}\"$'\\n.' ]] || echo {place}"
        for place in range(len(TEXTS))
    )
    run = run_handler(f"{sets}\n{gets}", environment=environment)
    assert (run.stdout, run.stderr) == ("", "")
    expected = {f"t{place}": text for place, text in enumerate(TEXTS.values())}
    assert run.new_values() == {"global": {"enabledModules": ["my-module"]}, "myModule": expected}


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_large_text_survives(run_handler: RunHandler, locale: str) -> None:
    """Larger than an argument or a pipe may be, with characters across every border of a buffer."""
    body = 'printf -v text "xü€😀%.0s" {1..40000}; values::set myModule.text "$text"; values::get myModule.text | wc -c'
    run = run_handler(body, environment={"LC_ALL": locale})
    assert run.lines == [str(40000 * 10 + 1)]
    assert run.new_values()["myModule"]["text"] == "xü€😀" * 40000  # type: ignore[index,call-overload]


MEANINGS: dict[str, JsonValue] = {
    "5": 5,
    "-1.5e3": -1500,
    "true": True,
    "null": None,
    '"quoted"': "quoted",
    '{"a": [1, {"b": "ü"}]}': {"a": [1, {"b": "ü"}]},
    "[]": [],
    "plain text": "plain text",
    "": "",
    "007": "007",
    "nan": "nan",
    "Infinity": "Infinity",
    "{a: 1}": "{a: 1}",
    "1 2": "1 2",
}


def test_values_are_json_where_they_can_be(run_handler: RunHandler) -> None:
    sets = "\n".join(f"values::set myModule.v{place} '{text}'" for place, text in enumerate(MEANINGS))
    run = run_handler(sets)
    expected = {f"v{place}": value for place, value in enumerate(MEANINGS.values())}
    assert run.new_values()["myModule"] == expected  # type: ignore[index,call-overload]


DOCUMENT: JsonObject = {
    "global": {"on": True, "off": False, "none": None, "enabledModules": ["my-module", "x"], "numbers": [1, 2]},
    "myModule": {
        "a.b": {"c d": 1, "ü": {"it's": "x", 'say "hi"': 2, "[0]": 3}},
        "list": [{"name": "one"}, [10, 20]],
        "0": "zero",
        "": "empty",
    },
}

PATHS: dict[str, str] = {
    'myModule."a.b"."c d"': "1",
    "myModule.'a.b'.'c d'": "1",
    'myModule."a.b".ü."it\'s"': "x",
    'myModule."a.b".ü."say \\"hi\\""': "2",
    "myModule.'a.b'.ü.'[0]'": "3",
    "myModule.list[0].name": "one",
    "myModule.list.0.name": "one",
    "myModule.list[1][0]": "10",
    "myModule.list.2": "null",
    "myModule.list.name": "null",
    "myModule.0": "zero",
    'myModule.""': "empty",
    ".global.none": "null",
    "global.on": "true",
    "global.off": "false",
    "nothing.there": "null",
    "global.on.below": "null",
}


def test_paths(run_handler: RunHandler) -> None:
    environment = {f"PATH_{place}": path for place, path in enumerate(PATHS)}
    gets = "\n".join(f'values::get "$PATH_{place}"' for place in range(len(PATHS)))
    run = run_handler(gets, values=DOCUMENT, environment=environment)
    assert dict(zip(PATHS, run.lines, strict=True)) == PATHS


def test_whole_document(run_handler: RunHandler) -> None:
    assert json.loads(run_handler("values::get", values=DOCUMENT).stdout) == DOCUMENT


QUESTIONS = {
    "values::has global.none": True,
    "values::has global.nothing": False,
    "values::has myModule.list[1]": True,
    "values::has myModule.list[2]": False,
    "values::is_true global.on": True,
    "values::is_true global.off": False,
    "values::is_true global.none": False,
    "values::is_false global.off": True,
    "values::is_false global.nothing": False,
    "values::array_has global.enabledModules x": True,
    "values::array_has global.enabledModules y": False,
    "values::array_has global.numbers 2": True,
    "values::array_has global.on true": False,
    "values::has --config global.on": False,
    "values::is_true --config global.configured": True,
    "values::is_false --config global.configured": False,
    "values::array_has --config global.words 'a b'": True,
    "context::has snapshots.pods": True,
    "context::has snapshots.nodes": False,
    "context::is_true snapshots.pods[0].filterResult": True,
    "context::is_false snapshots.pods[0].filterResult": False,
    "context::is_null snapshots.nodes": True,
}


def test_questions(run_handler: RunHandler) -> None:
    run = run_handler(
        "\n".join(f"if {question}; then echo true; else echo $?; fi" for question in QUESTIONS),
        values=DOCUMENT,
        config_values={"global": {"configured": True, "words": ["a b"]}, "myModule": {}},
        contexts=[{"binding": "beforeHelm", "snapshots": {"pods": [{"filterResult": True}]}}],
    )
    assert dict(zip(QUESTIONS, run.lines, strict=True)) == {
        question: "true" if answer else "1" for question, answer in QUESTIONS.items()
    }


CHANGES: dict[str, tuple[str, JsonValue]] = {
    "new": ("values::set myModule.new 1", {"list": [1, 2], "map": {"x": None}, "new": 1}),
    "over": ("values::set myModule.list '{}'", {"list": {}, "map": {"x": None}}),
    "parents": ("values::set myModule.p.q.r 1", {"list": [1, 2], "map": {"x": None}, "p": {"q": {"r": 1}}}),
    "below null": ("values::set myModule.map.x.y 1", {"list": [1, 2], "map": {"x": {"y": 1}}}),
    "item": ("values::set myModule.list[1] 9", {"list": [1, 9], "map": {"x": None}}),
    "end of list": ("values::set myModule.list.2 3", {"list": [1, 2, 3], "map": {"x": None}}),
    "behind list": ("values::set myModule.list.- 3", {"list": [1, 2, 3], "map": {"x": None}}),
    "whole section": ("values::set myModule '{\"a\": 1}'", {"a": 1}),
    "unset": ("values::unset myModule.map.x", {"list": [1, 2], "map": {}}),
    "unset item": ("values::unset myModule.list.0", {"list": [2], "map": {"x": None}}),
    "unset nothing": ("values::unset myModule.nothing.there", {"list": [1, 2], "map": {"x": None}}),
    "patch add": ("values::json_patch add /myModule/list/0 0", {"list": [0, 1, 2], "map": {"x": None}}),
    "patch remove": ("values::json_patch remove /myModule/map", {"list": [1, 2]}),
    "patch move": (
        "values::json_patch move /myModule/map/y /myModule/list",
        {"map": {"x": None, "y": [1, 2]}},
    ),
    "patch copy": (
        "values::json_patch copy /myModule/list/- /myModule/list/0",
        {"list": [1, 2, 1], "map": {"x": None}},
    ),
    "patch test": (
        "values::json_patch test /myModule/list '[1,2]'; values::json_patch replace /myModule/list ''",
        {"list": "", "map": {"x": None}},
    ),
}


@pytest.mark.parametrize(("body", "section"), CHANGES.values(), ids=CHANGES)
def test_changes(run_handler: RunHandler, body: str, section: JsonValue) -> None:
    """What the hook sees afterwards is what the operator makes of the patch."""
    values: JsonObject = {"global": {}, "myModule": {"list": [1, 2], "map": {"x": None}}}
    run = run_handler(f"{body}\nvalues::jq -c .myModule", values=values)
    assert run.new_values() == {"global": {}, "myModule": section}
    assert json.loads(run.stdout) == section


def test_changes_in_subshells_count(run_handler: RunHandler) -> None:
    body = (
        "printf '%s\\n' a b | while read -r key; do values::set \"myModule.$key\" 1; done\n(values::set myModule.c 1)"
    )
    assert run_handler(body).new_values()["myModule"] == {"a": 1, "b": 1, "c": 1}  # type: ignore[index,call-overload]


def test_changes_are_seen_by_later_handlers(run_script: RunHandler) -> None:
    body = "__on_startup() { values::set myModule.a 1; }\n__main__() { values::get myModule.a; }\nhook::run"
    run = run_script(body, contexts=[{"binding": "onStartup"}, {"binding": "x"}])
    assert run.lines == ["1"]


def test_config_values_are_apart(run_handler: RunHandler) -> None:
    body = """
    values::set --config myModule.ca '{"cert": "x"}'
    values::set --config --string myModule.version 1.20
    values::unset --config myModule.old
    values::has myModule.ca || echo apart
    values::get --config myModule.ca.cert
    values::json_patch --config add /myModule/b 1
    """
    run = run_handler(body, config_values={"global": {}, "myModule": {"old": 1}})
    assert run.lines == ["apart", "x"]
    assert run.patch() == ()
    assert run.new_config_values() == {"global": {}, "myModule": {"ca": {"cert": "x"}, "version": "1.20", "b": 1}}


def test_enable_flags_of_global_hooks(run_handler: RunHandler) -> None:
    """They are beside the sections, and not in the document that the hook reads."""
    run = run_handler("values::set fooEnabled true; values::unset barEnabled", values={"global": {}})
    assert [(one.op, one.path, one.value) for one in run.patch()] == [
        ("add", "/fooEnabled", True),
        ("remove", "/barEnabled", None),
    ]


REFUSED = {
    "values::set": "usage: values::set [--config] [--string] PATH VALUE",
    "values::set myModule": "usage: values::set [--config] [--string] PATH VALUE",
    "values::set '' 1": "the path is empty",
    "values::set a..b 1": "bad path: a..b",
    "values::set 'a\"b' 1": 'bad path: a"b',
    "values::get 'a['": "bad path: a[",
    "values::get --wrong a": "usage: values::get [--config] [--required] PATH",
    "values::get --required myModule.x": "myModule.x is required, but is not there",
    "context::get --required x.y": "x.y is required, but is not there",
    "context::get --required '.x[]?.y'": ".x[]?.y is required, but is not there",
    "context::get --required 'x[\"y\"] | ., null'": 'x["y"] | ., null is required, but is not there',
    "values::set global.enabledModules.5 x": "the path /global/enabledModules/5 does not fit the values",
    "values::set global.enabledModules.x.y x": "the path /global/enabledModules/x does not fit the values",
    "values::set global.enabledModules.0.y x": "/global/enabledModules/0 is no map and no list",
    "values::json_patch remove /myModule/x": "the path /myModule/x does not fit the values",
    "values::json_patch add /a/b/c 1": "the path /a/b/c does not fit the values",
    "values::json_patch add /a": "add needs a value",
    "values::json_patch wrong /a 1": "op must be one of add, remove, replace, move, copy, test",
    "values::json_patch test /global/enabledModules '[]'": "the test of /global/enabledModules failed",
    "values::unset": "usage: values::unset [--config] PATH",
    "values::has": "usage: values::has [--config] PATH",
    "values::array_has a": "usage: values::array_has [--config] PATH VALUE",
    "metrics::add name": "usage: metrics::add [--group GROUP] NAME VALUE [LABEL=TEXT...]",
    "metrics::add name many": "many is not a number",
    "metrics::set name 1 label": "a label is LABEL=TEXT",
    "metrics::set --wrong x name 1": "usage: metrics::set [--group GROUP] NAME VALUE [LABEL=TEXT...]",
    "metrics::observe --buckets 1,x name 1": "x is not a number",
    "metrics::expire": "usage: metrics::expire GROUP",
    "kubernetes::create ''": "there is no document",
    "kubernetes::delete Pod": "usage: kubernetes::delete [OPTION...] KIND NAME",
    "kubernetes::delete Pod p x": "usage: kubernetes::delete [OPTION...] KIND NAME",
    "kubernetes::merge_patch --wrong Pod p": "usage: kubernetes::merge_patch [OPTION...] KIND NAME [PATCH]",
    "kubernetes::merge_patch -n": "usage: kubernetes::merge_patch [OPTION...] KIND NAME [PATCH]",
    "kubernetes::merge_patch Pod p </dev/null": "there is no document",
}


@pytest.mark.parametrize(("call", "message"), REFUSED.items(), ids=REFUSED)
def test_refused(run_handler: RunHandler, call: str, message: str) -> None:
    run = run_handler(call)
    assert (run.code, run.is_silent) == (2, True)
    assert message in run.stderr.splitlines()[0]
    assert "line 5: exit code 2" in run.stderr


def test_values_do_not_appear_in_messages(run_handler: RunHandler) -> None:
    run = run_handler(
        "values::set myModule.password.x 1 || true; values::json_patch test /myModule/password hunter3 || true",
        values={"global": {}, "myModule": {"password": "hunter2"}},
    )
    assert run.stderr.count("\n") == 2
    assert "hunter" not in run.stderr


def test_module_name(run_handler: RunHandler) -> None:
    assert run_handler("module::name", values={"global": {}, "l2LoadBalancer01": {}}).lines == ["l2-load-balancer01"]
    assert "a global hook belongs to no module" in run_handler("module::name", values={"global": {}}).stderr


def test_enabled_scripts_can_use_the_library(bench: HookBench) -> None:
    """There is no hook::run in them, and no context: changes go straight to the files."""
    script = bench.write(
        "enabled",
        f"#!/bin/bash\nset -eu\nsource {LIBRARY}\n"
        "values::array_has global.enabledModules my-module && echo true\nmetrics::set m 1\n",
    )
    run = bench.run(script)
    assert (run.lines, len(run.metrics())) == (["true"], 1)
    only_reads = dict.fromkeys(("VALUES_JSON_PATCH_PATH", "CONFIG_VALUES_JSON_PATCH_PATH"), "")
    assert bench.run(script, environment=only_reads).lines == ["true"]


def test_changes_outside_of_handlers_are_seen_by_later_ones(run_script: RunHandler) -> None:
    body = """
    values::set myModule.internal.a 1
    values::set --config myModule.kept true
    values::set myModule.internal.b 2
    values::jq -c .myModule.internal
    values::is_true --config myModule.kept && echo kept
    """
    run = run_script(body)
    assert run.lines == ['{"a":1,"b":2}', "kept"]
    assert jsondoc.lookup(run.new_values(), "/myModule/internal") == {"a": 1, "b": 2}
    assert jsondoc.lookup(run.new_config_values(), "/myModule/kept") is True


def test_what_the_hook_writes_itself_is_kept(run_handler: RunHandler) -> None:
    body = """
    echo '[{"op": "add", "path": "/myModule/own", "value": 1}]' >"$VALUES_JSON_PATCH_PATH"
    values::set myModule.lib 2
    """
    assert [one.path for one in run_handler(body).patch()] == ["/myModule/own", "/myModule/lib"]


def test_result_that_cannot_be_written(run_handler: RunHandler, tmp_path: Path) -> None:
    run = run_handler("values::set myModule.a 1", environment={"VALUES_JSON_PATCH_PATH": f"{tmp_path}/no/file"})
    assert run.code == 1
    assert "hook.sh: VALUES_JSON_PATCH_PATH cannot be written" in run.stderr
    run = run_handler("values::set myModule.a 1", environment={"VALUES_JSON_PATCH_PATH": ""})
    assert run.code == 1
    assert "VALUES_JSON_PATCH_PATH is not set: this change is not possible here" in run.stderr
