"""The options of `start`."""

from __future__ import annotations

import io
import json

import pytest
from click.testing import CliRunner

from addon_operator import settings
from addon_operator.cli import cli
from addon_operator.cli.start import exit_status, start
from addon_operator.errors import ConfigMapError
from addon_operator.logs import LogType, configure, get_logger
from addon_operator.settings.foreign import FOREIGN

# Nothing is started: one setting that is read last is wrong.
WRONG = ["--log-level", "loud"]
ONLY_PROBLEM = "Error: --log-level (LOG_LEVEL): 'loud' is not one of debug, info, warning, error\n"
OF_THE_CONTRACT = """
    --namespace ns --config-map cm --modules-dir m --global-hooks-dir g --tmp-dir t --unnumbered-modules-order 2
    --prometheus-listen-address a --prometheus-listen-port 1 --prometheus-metrics-prefix p_ --helm-history-max 3
    --helm-timeout 1m --helm-ignore-release r --helm-monitor-kube-client-qps 5 --helm-monitor-kube-client-burst 10
    --crd-extra-labels a=b --crd-filters doc- --shell-chroot-dir / --strict-check-values-mode-enabled
    --applied-module-extenders Static,KubeConfig --kube-context c --kube-config k --kube-server s --kube-client-qps 5
    --kube-client-burst 10 --log-type json --log-no-time --log-proxy-hook-json --debug-unix-socket d
    --debug-keep-tmp-files --debug-http-addr h
"""


@pytest.mark.parametrize("command", [["start"], []], ids=["named", "by default"])
def test_flags_of_the_contract_are_known(command: list[str]) -> None:
    done = CliRunner(env={"LOG_LEVEL": ""}).invoke(cli, [*command, *OF_THE_CONTRACT.split(), *WRONG])
    assert (done.exit_code, done.output) == (1, ONLY_PROBLEM)


@pytest.mark.parametrize("text", [[], ["true"], ["no"]], ids=["alone", "true", "no"])
def test_a_switch_may_stand_alone(text: list[str]) -> None:
    done = CliRunner().invoke(start, ["--namespace", "ns", "--log-no-time", *text, *WRONG])
    assert done.output == ONLY_PROBLEM


def test_help_does_not_show_what_has_no_effect() -> None:
    shown = CliRunner().invoke(start, ["--help"]).output
    assert [foreign.flag for foreign in FOREIGN if f"--{foreign.flag} " in shown] == []
    assert [row.flag for row in settings.TABLE if f"--{row.flag}" not in shown] == []


MARKER = "hunter2"


def _broken() -> int:
    try:
        return {"true": 1}[MARKER]
    except KeyError as error:
        raise ExceptionGroup(MARKER, [ValueError(MARKER)]) from error


@pytest.mark.parametrize("kind", ["json", "text"])
def test_an_internal_error_is_one_line_of_the_log_without_values(
    kind: LogType, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = io.StringIO()
    configure(kind, "info", with_time=False, stream=stream)
    assert exit_status(_broken, get_logger("operator"), json=kind == "json") == 1
    (line,) = stream.getvalue().splitlines()
    assert "operator cannot go on: internal error" in line
    assert all(word in line for word in ("_broken", "KeyError", "ValueError", "ExceptionGroup"))
    assert MARKER not in line
    assert capsys.readouterr() == ("", "")


def test_an_error_of_ours_at_the_start_is_its_message(capsys: pytest.CaptureFixture[str]) -> None:
    def refused() -> int:
        raise ConfigMapError("ConfigMap ns/cm, key global:1: bad")

    stream = io.StringIO()
    configure("text", "info", with_time=False, stream=stream)
    assert exit_status(refused, get_logger("operator"), json=False) == 1
    assert (stream.getvalue(), capsys.readouterr().err) == ("", "Error: ConfigMap ns/cm, key global:1: bad\n")
    configure("json", "info", with_time=False, stream=stream)
    assert exit_status(refused, get_logger("operator"), json=True) == 1
    assert json.loads(stream.getvalue())["error"] == "ConfigMap ns/cm, key global:1: bad"
    assert capsys.readouterr() == ("", "")
