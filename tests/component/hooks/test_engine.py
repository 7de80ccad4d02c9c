"""Runs of real hooks: what they get, what they hand back, what the log shows."""

from __future__ import annotations

import asyncio
import json
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from addon_operator.documents.jsondoc import JsonValue
from addon_operator.errors import BadReply, HookConfigError, HookFailed, HookTimedOut, HookUnreachable
from addon_operator.hooks.call import EnabledAnswer, HookCall, HookId, HookResult, Response
from addon_operator.hooks.config.model import HookConfig, Lifecycle
from addon_operator.hooks.engine import HookEngine
from addon_operator.values.patches import Operation
from tests.component.hooks.conftest import WriteHook

HOOK = HookId("alpha", "hooks/hook.sh")
VALUES: JsonValue = {"global": {"enabledModules": ["alpha"]}, "alpha": {"a": 1}}
CONFIG_VALUES: JsonValue = {"global": {}, "alpha": {}}


async def _run(engine: HookEngine, path: Path, *, timeout_s: float = 60) -> HookResult:
    return await engine.run(
        HookCall(
            HOOK, path, (b'[{"binding":"beforeHelm","snapshots":{', b"}}]"), VALUES, CONFIG_VALUES, timeout_s,
            binding="beforeHelm", queue="main",
        )
    )  # fmt: skip


def _left(tmp_dir: Path) -> list[Path]:
    return list(tmp_dir.iterdir())


# --- what a hook gets and hands back ----------------------------------------------------------------------------


async def test_input_files(engine: HookEngine, write_hook: WriteHook, tmp_path: Path, tmp_dir: Path) -> None:
    seen = tmp_path / "seen"
    hook = write_hook(
        f"""
        jq -n --slurpfile context $BINDING_CONTEXT_PATH --slurpfile values $VALUES_PATH \
              --slurpfile config $CONFIG_VALUES_PATH '{{$context, $values, $config}}' > {seen}
        """
    )
    await _run(engine, hook)
    assert json.loads(seen.read_text()) == {
        "context": [[{"binding": "beforeHelm", "snapshots": {}}]],
        "values": [VALUES],
        "config": [CONFIG_VALUES],
    }
    assert _left(tmp_dir) == []


async def test_all_that_a_hook_asks_for(engine: HookEngine, write_hook: WriteHook) -> None:
    hook = write_hook(
        """
        echo '[{"op": "add", "path": "/alpha/a", "value": 2}] {"op": "remove", "path": "/alpha/b"}' \
            > $VALUES_JSON_PATCH_PATH
        echo '[{"op": "add", "path": "/alpha/c", "value": null}]' > $CONFIG_VALUES_JSON_PATCH_PATH
        echo '{"name": "m", "set": 1}' > $METRICS_PATH
        echo 'operation: Delete' > $KUBERNETES_PATCH_PATH
        """
    )
    effects = (await _run(engine, hook)).effects
    assert effects.values_patch == (
        Operation("add", "/alpha/a", 2, None),
        Operation("remove", "/alpha/b", None, None),
    )
    assert effects.config_patch == (Operation("add", "/alpha/c", None, None),)
    assert effects.metrics == b'{"name": "m", "set": 1}\n'
    assert effects.object_patch == b"operation: Delete\n"


@pytest.mark.parametrize("text", ["", " \n\t ", "[]"], ids=["empty", "blank", "empty list"])
async def test_a_patch_of_nothing(engine: HookEngine, write_hook: WriteHook, text: str) -> None:
    effects = (await _run(engine, write_hook(f"printf '{text}' > $VALUES_JSON_PATCH_PATH"))).effects
    assert effects.values_patch == ()


async def test_result_files_are_there_empty_and_private(
    engine: HookEngine, write_hook: WriteHook, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    hook = write_hook(
        f"""
        stat -c '%a %s' $VALUES_JSON_PATCH_PATH $CONFIG_VALUES_JSON_PATCH_PATH $METRICS_PATH $KUBERNETES_PATCH_PATH \
            > {seen}
        stat -c %a $VALUES_PATH "$(dirname $VALUES_PATH)" >> {seen}
        """
    )
    await _run(engine, hook)
    assert seen.read_text().split("\n") == ["600 0"] * 4 + ["600", "700", ""]


async def test_environment_and_directory(
    make_engine: Callable[..., HookEngine], write_hook: WriteHook, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    hook = write_hook(f'echo "$OPERATOR_SETTING $(pwd) $#" > {seen}')
    await _run(make_engine(OPERATOR_SETTING="on"), hook)
    assert seen.read_text() == f"on {Path.cwd()} 0\n"


@pytest.mark.parametrize(
    ("response", "read"),
    [
        ("admission", ["ADMISSION_RESPONSE_PATH", "VALIDATING_RESPONSE_PATH"]),
        ("conversion", ["CONVERSION_RESPONSE_PATH"]),
        (None, []),
    ],
)
async def test_an_answer_for_the_api_server(
    engine: HookEngine, write_hook: WriteHook, response: Response | None, read: list[str]
) -> None:
    """Every hook is given the files, whether somebody waits for an answer or not."""
    hook = write_hook(
        """
        compgen -v | grep RESPONSE_PATH > $METRICS_PATH
        for variable in $(cat $METRICS_PATH); do echo -n "$variable " >> ${!variable}; done
        """
    )
    call = HookCall(HOOK, hook, (b"[]",), VALUES, CONFIG_VALUES, 60, response=response)
    effects = (await engine.run(call)).effects
    assert effects.metrics.decode().split() == [
        "ADMISSION_RESPONSE_PATH",
        "CONVERSION_RESPONSE_PATH",
        "VALIDATING_RESPONSE_PATH",
    ]
    assert effects.response.decode().split() == read  # one file, whatever it is called


async def test_contexts_of_many_megabytes(engine: HookEngine, write_hook: WriteHook) -> None:
    piece = b'{"object":"' + b"x" * 2**20 + b'"}'
    contexts = (b"[", piece, b",", piece, b"]")
    hook = write_hook("wc -c < $BINDING_CONTEXT_PATH > $METRICS_PATH; jq length $BINDING_CONTEXT_PATH >> $METRICS_PATH")
    effects = (await engine.run(HookCall(HOOK, hook, contexts, VALUES, CONFIG_VALUES, 60))).effects
    assert effects.metrics.decode().split() == [str(sum(map(len, contexts))), "2"]


async def test_files_are_kept_on_demand(
    make_engine: Callable[..., HookEngine], write_hook: WriteHook, tmp_dir: Path
) -> None:
    await _run(make_engine(keep_files=True), write_hook("echo kept > $METRICS_PATH"))
    (directory,) = _left(tmp_dir)
    assert (directory / "metrics").read_text() == "kept\n"


async def test_runs_side_by_side_have_their_own_files(engine: HookEngine, write_hook: WriteHook, tmp_dir: Path) -> None:
    hook = write_hook("echo $$ > $METRICS_PATH; sleep 0.1; [ $(cat $METRICS_PATH) = $$ ]")
    results = await asyncio.gather(*(_run(engine, hook) for _ in range(5)))
    assert len({result.effects.metrics for result in results}) == 5
    assert _left(tmp_dir) == []


async def test_a_python_hook_runs_in_the_venv_of_its_module(
    make_engine: Callable[..., HookEngine], write_hook: WriteHook, tmp_path: Path
) -> None:
    venv.create(tmp_path / "001-alpha/hooks/venv", symlinks=True)
    hook = write_hook(
        "import os, sys; open(os.environ['METRICS_PATH'], 'w').write(sys.prefix)",
        "hooks/sub/hook.py",
        shebang=f"#!{sys.executable}",
    )
    result = await _run(make_engine(PYTHONHOME="/somewhere/else"), hook)
    assert result.effects.metrics.decode() == str(tmp_path / "001-alpha/hooks/venv")


# --- how a hook fails -------------------------------------------------------------------------------------------


async def test_a_failure_shows_exit_code_and_stderr(engine: HookEngine, write_hook: WriteHook, tmp_dir: Path) -> None:
    hook = write_hook("echo fine; echo 'no such domain' >&2; exit 3")
    with pytest.raises(HookFailed) as caught:
        await _run(engine, hook)
    assert str(caught.value) == "hook hooks/hook.sh of module alpha: run ended with exit code 3: no such domain"
    assert _left(tmp_dir) == []


async def test_a_failure_with_much_stderr_stays_short(engine: HookEngine, write_hook: WriteHook) -> None:
    with pytest.raises(HookFailed) as caught:
        await _run(engine, write_hook("seq 100000 >&2; exit 1"))
    assert len(str(caught.value)) < 2200
    assert str(caught.value).endswith("\n100000")


async def test_a_signal_is_named(engine: HookEngine, write_hook: WriteHook) -> None:
    with pytest.raises(HookFailed, match=r"run ended with signal SIGSEGV$"):
        await _run(engine, write_hook("kill -SEGV $$"))


@pytest.mark.parametrize(
    ("body", "error"),
    [pytest.param("exit 3", HookFailed, id="exit code"), pytest.param("sleep 1000", HookTimedOut, id="deadline")],
)
async def test_what_a_failed_hook_asks_for_about_objects_is_kept(
    make_engine: Callable[..., HookEngine], write_hook: WriteHook, body: str, error: type[HookFailed]
) -> None:
    before = "echo '{' > $VALUES_JSON_PATCH_PATH; echo 'operation: Delete' > $KUBERNETES_PATCH_PATH"
    with pytest.raises(error) as caught:
        await _run(make_engine(), write_hook(f"{before}; {body}"), timeout_s=1.0)
    assert caught.value.object_patch == b"operation: Delete\n"


async def test_a_hook_that_takes_too_long(engine: HookEngine, write_hook: WriteHook, tmp_dir: Path) -> None:
    with pytest.raises(HookTimedOut, match=r"hook hooks/hook\.sh of module alpha: run was ended after 0\.3 s"):
        await _run(engine, write_hook("sleep 1000"), timeout_s=0.3)
    assert _left(tmp_dir) == []


@pytest.mark.parametrize(
    ("shebang", "mode", "message"),
    [
        pytest.param("#!/bin/bash", 0o644, "the file is not executable", id="no exec bit"),
        pytest.param("#!/opt/no-bash -e", 0o755, "its interpreter /opt/no-bash does not exist$", id="interpreter"),
        pytest.param("#!/bin/bash\r", 0o755, "/bin/bash does not exist, .*carriage return", id="windows"),
        pytest.param("no shebang", 0o755, "neither a program nor a script with a '#!' line", id="no shebang"),
        pytest.param("#!/etc/passwd", 0o755, "its interpreter is not executable", id="interpreter without exec bit"),
    ],
)  # fmt: skip
async def test_what_cannot_be_started(  # noqa: PLR0917 -- fixtures and columns of the table
    engine: HookEngine, write_hook: WriteHook, tmp_dir: Path, shebang: str, mode: int, message: str
) -> None:
    hook = write_hook("true", shebang=shebang, mode=mode)
    with pytest.raises(HookUnreachable, match=rf"^hook hooks/hook\.sh of module alpha: .*hook\.sh: .*{message}"):
        await _run(engine, hook)
    assert _left(tmp_dir) == []


async def test_a_hook_that_is_gone(engine: HookEngine, tmp_path: Path) -> None:
    with pytest.raises(HookUnreachable, match="the file does not exist"):
        await _run(engine, tmp_path / "gone.sh")


async def test_no_room_for_files(make_engine: Callable[..., HookEngine], write_hook: WriteHook, tmp_dir: Path) -> None:
    tmp_dir.parent.write_text("a file where a directory should be")
    with pytest.raises(HookUnreachable, match=r"its files cannot be written: .*: (File exists|Not a directory)"):
        await _run(make_engine(), write_hook("true"))


async def test_a_patch_that_is_none(engine: HookEngine, write_hook: WriteHook) -> None:
    with pytest.raises(BadReply, match=r"hook hooks/hook\.sh of module alpha: VALUES_JSON_PATCH_PATH: .*") as caught:
        await _run(engine, write_hook("echo 'password: [' > $VALUES_JSON_PATCH_PATH"))
    assert "password" not in str(caught.value)


async def test_cancellation_removes_the_files(engine: HookEngine, write_hook: WriteHook, tmp_dir: Path) -> None:
    task = asyncio.create_task(_run(engine, write_hook("echo > $METRICS_PATH; sleep 1000")), name="run")
    while not (tmp_dir.exists() and any(path.stat().st_size for path in tmp_dir.glob("*/metrics"))):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert _left(tmp_dir) == []


# --- the log ----------------------------------------------------------------------------------------------------


async def test_output_goes_to_the_log(engine: HookEngine, write_hook: WriteHook, log: LogCapture) -> None:
    await _run(engine, write_hook("echo 'hello %s'; sleep 0.1; echo; echo trouble >&2"))
    fields = {
        "component": "hook", "hook": "hooks/hook.sh", "module": "alpha", "binding": "beforeHelm", "queue": "main",
        "log_level": "info",
    }  # fmt: skip
    assert log.entries == [
        {"event": "hello %s", "output": "stdout", **fields},
        {"event": "trouble", "output": "stderr", **fields},
    ]


@pytest.mark.parametrize(
    ("line", "level", "event", "fields"),
    [
        pytest.param('{"msg": "m", "level": "error"}', "error", "m", {}, id="level"),
        pytest.param('{"msg": "m"}', "info", "m", {}, id="no level"),
        pytest.param('{"level": "WARN", "msg": "m"}', "warning", "m", {}, id="spelling"),
        pytest.param('{"level": "loud", "msg": "m"}', "info", "m", {}, id="unknown level"),
        pytest.param(
            '{"msg": "m", "time": "t", "event": 1, "deep": {"a": [1]}}',
            "info", "m", {"hook_time": "t", "hook_event": 1, "hook_deep": '{"a":[1]}'}, id="other keys",
        ),
        pytest.param('{"level": "debug", "msg": {"a": 1}}', "debug", '{"a":1}', {}, id="message not text"),
        pytest.param('{"a": 1}', "info", '{"a": 1}', {}, id="some object"),
        pytest.param('{"msg": ', "info", '{"msg": ', {}, id="broken"),
        pytest.param('["msg"]', "info", '["msg"]', {}, id="list"),
    ],
)  # fmt: skip
async def test_json_lines_are_unfolded(  # noqa: PLR0917 -- fixtures and columns of the table
    engine: HookEngine, write_hook: WriteHook, log: LogCapture, line: str, level: str, event: str,
    fields: dict[str, object],
) -> None:  # fmt: skip
    await _run(engine, write_hook(f"echo '{line}'"))
    (entry,) = log.entries
    assert (entry["log_level"], entry["event"]) == (level, event)
    assert {key: value for key, value in entry.items() if key.startswith("hook_")} == fields


async def test_json_lines_are_passed_on_as_they_are(
    make_engine: Callable[..., HookEngine], write_hook: WriteHook, log: LogCapture, capsys: pytest.CaptureFixture[str]
) -> None:
    await _run(make_engine(proxy_json=True), write_hook("""echo '{"msg":  "m"}'; echo text"""))
    assert capsys.readouterr().err == '{"msg":  "m"}\n'
    assert [entry["event"] for entry in log.entries] == ["text"]


# --- enabled ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        pytest.param("echo true > $MODULE_ENABLED_RESULT", EnabledAnswer(True, ""), id="enabled"),
        pytest.param(
            "echo ' false ' > $MODULE_ENABLED_RESULT; echo 'no nodes' > $MODULE_ENABLED_REASON",
            EnabledAnswer(False, "no nodes"),
            id="disabled with a reason",
        ),
        pytest.param(
            "jq '.global.enabledModules | index(\"alpha\") != null' $VALUES_PATH > $MODULE_ENABLED_RESULT",
            EnabledAnswer(True, ""),
            id="computed from values",
        ),
    ],
)
async def test_enabled(
    engine: HookEngine, write_hook: WriteHook, tmp_dir: Path, body: str, answer: EnabledAnswer
) -> None:
    script = write_hook(body, "enabled")
    assert await engine.enabled(script, module="alpha", values=VALUES, config_values=CONFIG_VALUES) == answer
    assert _left(tmp_dir) == []


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        pytest.param("true", BadReply, "MODULE_ENABLED_RESULT must be true or false, but is empty", id="empty"),
        pytest.param("echo yes > $MODULE_ENABLED_RESULT", BadReply, "but holds something else", id="another word"),
        pytest.param("rm $MODULE_ENABLED_RESULT", BadReply, "but is empty", id="removed"),
        pytest.param("echo true > $MODULE_ENABLED_RESULT; exit 2", HookFailed, "exit code 2", id="failed"),
        pytest.param("sleep 1000", HookTimedOut, "was ended after 0.5 s", id="hanging"),
    ],
)
async def test_bad_enabled(
    make_engine: Callable[..., HookEngine], write_hook: WriteHook, body: str, error: type[Exception], message: str
) -> None:
    engine = make_engine(limit_s=0.5 if error is HookTimedOut else 60)
    with pytest.raises(error, match=f"^enabled script of module alpha: .*{message}"):
        await engine.enabled(write_hook(body, "enabled"), module="alpha", values=VALUES, config_values=CONFIG_VALUES)


# --- --config ---------------------------------------------------------------------------------------------------


async def test_configure(engine: HookEngine, write_hook: WriteHook) -> None:
    hook = write_hook(
        """
        [ "$*" = --config ] && [ -z "$VALUES_PATH" ] || exit 1
        echo noise >&2
        echo 'configVersion: v1'; echo 'beforeHelm: 5'
        """
    )
    assert await engine.configure(hook, HOOK, "module") == HookConfig("v1", (Lifecycle("beforeHelm", 5),))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param("echo broken >&2; exit 1", "--config ended with exit code 1: broken", id="failed"),
        pytest.param("sleep 1000", "--config was ended after 0.5 s", id="hanging"),
        pytest.param("yes", "--config printed more than 1048576 bytes on standard output", id="too much"),
        pytest.param("printf '\\xff'", "--config printed something that is not UTF-8 text", id="not text"),
        pytest.param("true", "bad configuration:\n  - must be a map, not null", id="nothing"),
        pytest.param("echo 'a: ['", "bad configuration:\n  - output:2: ", id="bad yaml"),
        pytest.param(
            "echo '{configVersion: v1, beforeAll: 1}'",
            "bad configuration:\n  - beforeAll: not possible in a module hook",
            id="wrong place",
        ),
    ],
)
async def test_bad_config(
    make_engine: Callable[..., HookEngine], write_hook: WriteHook, body: str, message: str
) -> None:
    engine = make_engine(limit_s=0.5 if body.startswith("sleep") else 60)
    with pytest.raises(HookConfigError) as caught:
        await engine.configure(write_hook(body), HOOK, "module")
    assert str(caught.value).startswith(f"{HOOK}: {message}")


async def test_a_hook_that_cannot_be_asked(engine: HookEngine, write_hook: WriteHook) -> None:
    with pytest.raises(HookConfigError, match="the file is not executable"):
        await engine.configure(write_hook("true", mode=0o600), HOOK, "module")
