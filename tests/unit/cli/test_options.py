"""Flags, environment variables, defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from addon_operator import settings
from addon_operator.cli import options
from addon_operator.errors import SettingsError
from addon_operator.settings.foreign import FOREIGN, HELM_2_VARIABLES

BASE = {"ADDON_OPERATOR_NAMESPACE": "ns"}
_UNSET = dict.fromkeys(
    [
        *(name for row in settings.TABLE for name in row.variables),
        *(foreign.variable for foreign in FOREIGN),
        *HELM_2_VARIABLES,
    ]
)


def read(arguments: Sequence[str], environment: Mapping[str, str]) -> settings.Settings:
    """Reads the settings of a command line; nothing of this process's environment counts."""
    found: list[settings.Settings] = []

    @click.command()
    @options.with_settings
    def command(**values: object) -> None:
        found.append(options.read(values))

    CliRunner(env={**_UNSET, **environment}).invoke(command, arguments, catch_exceptions=False)
    return found[0]


def test_each_name_belongs_to_one_setting() -> None:
    rows = settings.TABLE
    flags = [*(flag for row in rows for flag in (row.flag, *row.aliases)), *(foreign.flag for foreign in FOREIGN)]
    variables = [*(name for row in rows for name in row.variables), *(foreign.variable for foreign in FOREIGN)]
    assert len(flags) == len(set(flags))
    assert len(variables) == len(set(variables))


def test_defaults() -> None:
    got = read([], BASE)
    assert got.namespace == "ns"
    assert got.modules_dirs == (Path("modules"),)
    assert (got.listen_address, got.listen_port) == ("0.0.0.0", 9650)
    assert got.crd_extra_labels == (("heritage", "addon-operator"),)
    assert got.crd_filter_prefixes == ("doc-", "_")
    assert (got.helm_timeout_s, got.hook_timeout_s) == (1200, 600)
    assert got.kube_config is None
    assert got.without_effect == ()
    assert got.validating_webhook == settings.WebhookServer(port=9680, address="0.0.0.0", service="addon-operator")
    assert got.conversion_webhook == settings.WebhookServer(port=9681, address="0.0.0.0", service="addon-operator")


def test_each_webhook_server_has_its_own_settings() -> None:
    given = {
        "LISTEN_ADDRESS": "::1",
        "LISTEN_PORT": "1",
        "SERVICE_NAME": "svc",
        "SERVICE_PORT": "2",
        "SERVER_CERT": "/c",
        "SERVER_KEY": "/k",
        "CA": "/ca",
        "CLIENT_CA": "/a:/b",
    }
    got = read([], BASE | {f"CONVERSION_WEBHOOK_{name}": value for name, value in given.items()})
    assert got.conversion_webhook == settings.WebhookServer(
        port=1,
        address="::1",
        service="svc",
        service_port=2,
        cert=Path("/c"),
        key=Path("/k"),
        ca=Path("/ca"),
        client_ca=(Path("/a"), Path("/b")),
    )
    assert got.validating_webhook.cert is None


@pytest.mark.parametrize(
    ("arguments", "environment", "field", "expected"),
    [
        pytest.param(
            ["--prometheus-listen-port", "1"], {"ADDON_OPERATOR_LISTEN_PORT": "2"}, "listen_port", 1, id="flag wins"
        ),
        pytest.param([], {"ADDON_OPERATOR_LISTEN_PORT": "2"}, "listen_port", 2, id="environment"),
        pytest.param([], {"MODULES_DIR": "/a:/b"}, "modules_dirs", (Path("/a"), Path("/b")), id="seed name, list"),
        pytest.param(
            {}, {"MODULES_DIR": "/a", "ADDON_OPERATOR_MODULES_DIR": "/b"}, "modules_dirs", (Path("/b"),), id="long name"
        ),
        pytest.param([], {"UNNUMBERED_MODULE_ORDER": "7"}, "unnumbered_modules_order", 7, id="seed order name"),
        pytest.param([], {"UNNUMBERED_MODULES_ORDER": "7"}, "unnumbered_modules_order", 7, id="documents' order name"),
        pytest.param([], {"DEBUG_KEEP_TMP_FILES": "yes"}, "keep_tmp_files", True, id="yes is true"),
        pytest.param([], {"HELM_TIMEOUT": "1h30m"}, "helm_timeout_s", 5400.0, id="Go duration"),
        pytest.param([], {"LOG_LEVEL": "DEBUG"}, "log_level", "debug", id="case of choices"),
        pytest.param(
            [], {"ADDON_OPERATOR_CRD_EXTRA_LABELS": "a=b,c="}, "crd_extra_labels", (("a", "b"), ("c", "")), id="labels"
        ),
        pytest.param([], {"ADDON_OPERATOR_LISTEN_PORT": ""}, "listen_port", 9650, id="empty counts as unset"),
        pytest.param([], {"ADDON_OPERATOR_LISTEN_PORT": "0"}, "listen_port", 0, id="any port"),
        pytest.param([], {"ADDON_OPERATOR_CONFIG_MAP": "a.b-c"}, "config_map", "a.b-c", id="DNS name"),
        pytest.param([], {"HOOK_KILL_GRACE": "0"}, "kill_grace_s", 0.0, id="no grace"),
        pytest.param([], {"ADDON_OPERATOR_MODULE_WORKERS": "2"}, "module_workers", 2, id="workers"),
        pytest.param(["--prometheus-metrics-prefix", ""], {}, "metrics_prefix", "", id="no prefix"),
        pytest.param(["--crd-filters", ""], {}, "crd_filter_prefixes", (), id="an empty flag is an empty list"),
        pytest.param(["--kube-context", ""], {"KUBE_CONTEXT": "x"}, "kube_context", None, id="an empty flag is none"),
        pytest.param(
            [], {"ADDON_OPERATOR_NAMESPACE": "", "SHELL_OPERATOR_NAMESPACE": "x"}, "namespace", "x", id="former name"
        ),
    ],
)
def test_precedence_and_kinds(arguments: list[str], environment: dict[str, str], field: str, expected: object) -> None:
    assert getattr(read(arguments, BASE | environment), field) == expected


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        pytest.param(
            {"ADDON_OPERATOR_NAMESPACE": ""}, "set ADDON_OPERATOR_NAMESPACE or --namespace", id="no namespace"
        ),
        pytest.param({"HELM_HISTORY_MAX": "x"}, "HELM_HISTORY_MAX (--helm-history-max): 'x' is not an", id="integer"),
        pytest.param({"HELM_HISTORY_MAX": "-1"}, "-1 is below zero", id="negative integer"),
        pytest.param({"KUBE_CLIENT_QPS": "x"}, "KUBE_CLIENT_QPS (--kube-client-qps): 'x' is not a number", id="number"),
        pytest.param({"KUBE_CLIENT_QPS": "-0.1"}, "-0.1 is below zero", id="negative number"),
        pytest.param({"ADDON_OPERATOR_MODULE_WORKERS": "0"}, "must be at least 1", id="no workers"),
        pytest.param({"ADDON_OPERATOR_LISTEN_PORT": "99999"}, "99999 is not a port", id="port"),
        pytest.param({"CONVERSION_WEBHOOK_LISTEN_PORT": "65536"}, "65536 is not a port", id="port of webhooks"),
        pytest.param({"VALIDATING_WEBHOOK_SERVICE_PORT": "-1"}, "-1 is below zero", id="negative port"),
        pytest.param({"HOOK_TIMEOUT": "soon"}, "HOOK_TIMEOUT (--hook-timeout): 'soon' is not a", id="not a duration"),
        pytest.param({"HOOK_TIMEOUT": "-5"}, "'-5' is not a duration", id="negative duration"),
        pytest.param({"HOOK_TIMEOUT": "0"}, "HOOK_TIMEOUT (--hook-timeout): '0' is no time", id="no time"),
        pytest.param({"HELM_TIMEOUT": "0s"}, "HELM_TIMEOUT (--helm-timeout): '0s' is no time", id="no time for helm"),
        pytest.param({"LOG_TYPE": "xml"}, "LOG_TYPE (--log-type): 'xml' is not one of text, json, color", id="choice"),
        pytest.param({"LOG_NO_TIME": "perhaps"}, "'perhaps' is neither true nor false", id="not a boolean"),
        pytest.param({"ADDON_OPERATOR_NAMESPACE": "a.b"}, "'a.b' is not a DNS label", id="namespace"),
        pytest.param({"ADDON_OPERATOR_NAMESPACE": "n" * 64}, "is not a DNS label", id="long namespace"),
        pytest.param({"ADDON_OPERATOR_CONFIG_MAP": "a/b"}, "'a/b' is not a name of an object", id="ConfigMap"),
        pytest.param({"ADDON_OPERATOR_CONFIG_MAP": "a..b"}, "'a..b' is not a name of an object", id="empty part"),
        pytest.param(
            {"MUTATING_WEBHOOK_CONFIGURATION_NAME": "A"}, "'A' is not a name of an object", id="configuration"
        ),
        pytest.param({"CONVERSION_WEBHOOK_SERVICE_NAME": "a."}, "'a.' is not a DNS label", id="Service"),
        pytest.param(
            {"ADDON_OPERATOR_PROMETHEUS_METRICS_PREFIX": "a-b "}, "'a-b ' cannot begin the name", id="metrics prefix"
        ),
        pytest.param({"SHELL_OPERATOR_PROMETHEUS_METRICS_PREFIX": "9"}, "'9' cannot begin the name", id="digit first"),
        pytest.param(
            {"VALIDATING_WEBHOOK_SERVER_KEY": "k"},
            "VALIDATING_WEBHOOK_SERVER_CERT (--validating-webhook-cert) and VALIDATING_WEBHOOK_SERVER_KEY "
            "(--validating-webhook-key) must be given together",
            id="key without certificate",
        ),
        pytest.param({"CONVERSION_WEBHOOK_SERVER_CERT": "c"}, "must be given together", id="certificate without key"),
        pytest.param(
            {"CONVERSION_WEBHOOK_CA": "ca"}, "CONVERSION_WEBHOOK_CA (--conversion-webhook-ca) is for", id="authority"
        ),
        pytest.param({"TILLER_NAMESPACE": "x"}, "Helm 2 is not supported", id="helm 2"),
        pytest.param({"ADDON_OPERATOR_CRD_EXTRA_LABELS": "x"}, "not a label of the form key=value", id="not a label"),
        pytest.param({"ADDON_OPERATOR_CRD_EXTRA_LABELS": "a b=c"}, "'a b=c' is not a label", id="key of a label"),
        pytest.param({"ADDON_OPERATOR_CRD_EXTRA_LABELS": "a=b/c"}, "'a=b/c' is not a label", id="value of a label"),
    ],
)
def test_bad_settings_are_named(environment: dict[str, str], text: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(text)):
        read([], BASE | environment)


def test_a_bad_flag_is_named_with_its_variable() -> None:
    with pytest.raises(SettingsError, match=r"^--log-level \(LOG_LEVEL\): '' is not one of"):
        read(["--log-level", ""], BASE)
    with pytest.raises(SettingsError, match=r"^--hook-timeout \(HOOK_TIMEOUT\): an empty text is not a duration"):
        read(["--hook-timeout", ""], BASE)


def test_all_problems_are_told_together() -> None:
    with pytest.raises(SettingsError) as caught:
        read(["--hook-timeout", "x"], {"LOG_TYPE": "xml", "CONVERSION_WEBHOOK_CA": "ca"})
    assert len(str(caught.value).splitlines()) == 4


def test_settings_of_others_are_told_but_not_their_values() -> None:
    given = {"HELM_MONITOR_KUBE_CLIENT_QPS": "5", "TRACING_OTLP_AUTH_TOKEN": "secret", "HELM3": "yes"}
    got = read(["--applied-module-extenders", "Static"], BASE | given)
    assert [text.split(":")[0] for text in got.without_effect] == [
        "ADDON_OPERATOR_APPLIED_MODULE_EXTENDERS (--applied-module-extenders)",
        "HELM_MONITOR_KUBE_CLIENT_QPS (--helm-monitor-kube-client-qps)",
        "TRACING_OTLP_AUTH_TOKEN (--tracing-otlp-auth-token)",
    ]
    assert "secret" not in str(got.without_effect)
