"""Flags, environment variables, defaults."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from addon_operator import settings
from addon_operator.errors import SettingsError

BASE = {"ADDON_OPERATOR_NAMESPACE": "ns"}


def test_the_table_and_the_dataclass_name_the_same_fields() -> None:
    fields = [field.name for field in dataclasses.fields(settings.Settings)]
    servers = [
        f"{purpose}_webhook_{field.name}"
        for purpose in settings.PURPOSES
        for field in dataclasses.fields(settings.WebhookServer)
    ]
    grouped = {"validating_webhook", "conversion_webhook", "without_effect"}
    assert sorted(row.field for row in settings.TABLE) == sorted({*fields, *servers} - grouped)


def test_names_are_given_once() -> None:
    rows = settings.TABLE
    flags = [*(flag for row in rows for flag in (row.flag, *row.aliases)), *(one.flag for one in settings.FOREIGN)]
    variables = [*(name for row in rows for name in row.variables), *(one.variable for one in settings.FOREIGN)]
    assert len(flags) == len(set(flags))
    assert len(variables) == len(set(variables))


def test_defaults() -> None:
    read = settings.read({}, BASE)
    assert read.namespace == "ns"
    assert read.modules_dirs == (Path("modules"),)
    assert (read.listen_address, read.listen_port) == ("0.0.0.0", 9650)
    assert read.crd_extra_labels == (("heritage", "addon-operator"),)
    assert read.crd_filter_prefixes == ("doc-", "_")
    assert (read.helm_timeout_s, read.hook_timeout_s) == (1200, 600)
    assert read.kube_config is None
    assert read.without_effect == ()
    assert read.validating_webhook == settings.WebhookServer(port=9680, address="0.0.0.0", service="addon-operator")
    assert read.conversion_webhook == settings.WebhookServer(port=9681, address="0.0.0.0", service="addon-operator")


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
    read = settings.read({}, BASE | {f"CONVERSION_WEBHOOK_{name}": value for name, value in given.items()})
    assert read.conversion_webhook == settings.WebhookServer(
        port=1,
        address="::1",
        service="svc",
        service_port=2,
        cert=Path("/c"),
        key=Path("/k"),
        ca=Path("/ca"),
        client_ca=(Path("/a"), Path("/b")),
    )
    assert read.validating_webhook.cert is None


@pytest.mark.parametrize(
    ("flags", "environment", "field", "expected"),
    [
        pytest.param({"listen_port": "1"}, {"ADDON_OPERATOR_LISTEN_PORT": "2"}, "listen_port", 1, id="flag wins"),
        pytest.param({}, {"ADDON_OPERATOR_LISTEN_PORT": "2"}, "listen_port", 2, id="environment"),
        pytest.param({}, {"MODULES_DIR": "/a:/b"}, "modules_dirs", (Path("/a"), Path("/b")), id="seed name, list"),
        pytest.param(
            {}, {"MODULES_DIR": "/a", "ADDON_OPERATOR_MODULES_DIR": "/b"}, "modules_dirs", (Path("/b"),), id="long name"
        ),
        pytest.param({}, {"UNNUMBERED_MODULE_ORDER": "7"}, "unnumbered_modules_order", 7, id="seed order name"),
        pytest.param({}, {"UNNUMBERED_MODULES_ORDER": "7"}, "unnumbered_modules_order", 7, id="documents' order name"),
        pytest.param({}, {"DEBUG_KEEP_TMP_FILES": "yes"}, "keep_tmp_files", True, id="yes is true"),
        pytest.param({}, {"HELM_TIMEOUT": "1h30m"}, "helm_timeout_s", 5400.0, id="Go duration"),
        pytest.param({}, {"LOG_LEVEL": "DEBUG"}, "log_level", "debug", id="case of choices"),
        pytest.param(
            {}, {"ADDON_OPERATOR_CRD_EXTRA_LABELS": "a=b,c="}, "crd_extra_labels", (("a", "b"), ("c", "")), id="labels"
        ),
        pytest.param({}, {"ADDON_OPERATOR_LISTEN_PORT": ""}, "listen_port", 9650, id="empty counts as unset"),
        pytest.param({}, {"ADDON_OPERATOR_LISTEN_PORT": "0"}, "listen_port", 0, id="any port"),
        pytest.param({}, {"ADDON_OPERATOR_CONFIG_MAP": "a.b-c"}, "config_map", "a.b-c", id="DNS name"),
        pytest.param({}, {"HOOK_KILL_GRACE": "0"}, "kill_grace_s", 0.0, id="no grace"),
        pytest.param({"metrics_prefix": ""}, {}, "metrics_prefix", "", id="no prefix"),
        pytest.param({"crd_filter_prefixes": ""}, {}, "crd_filter_prefixes", (), id="an empty flag is an empty list"),
        pytest.param({"kube_context": ""}, {"KUBE_CONTEXT": "x"}, "kube_context", None, id="an empty flag is none"),
        pytest.param(
            {}, {"ADDON_OPERATOR_NAMESPACE": "", "SHELL_OPERATOR_NAMESPACE": "x"}, "namespace", "x", id="former name"
        ),
    ],
)
def test_precedence_and_kinds(
    flags: dict[str, str | None], environment: dict[str, str], field: str, expected: object
) -> None:
    assert getattr(settings.read(flags, BASE | environment), field) == expected


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
        settings.read({}, BASE | environment)


def test_a_bad_flag_is_named_with_its_variable() -> None:
    with pytest.raises(SettingsError, match=r"^--log-level \(LOG_LEVEL\): '' is not one of"):
        settings.read({"log_level": ""}, BASE)
    with pytest.raises(SettingsError, match=r"^--hook-timeout \(HOOK_TIMEOUT\): an empty text is not a duration"):
        settings.read({"hook_timeout_s": ""}, BASE)


def test_all_problems_are_told_together() -> None:
    with pytest.raises(SettingsError) as caught:
        settings.read({"hook_timeout_s": "x"}, {"LOG_TYPE": "xml", "CONVERSION_WEBHOOK_CA": "ca"})
    assert len(str(caught.value).splitlines()) == 4


def test_settings_of_others_are_told_but_not_their_values() -> None:
    given = {"HELM_MONITOR_KUBE_CLIENT_QPS": "5", "TRACING_OTLP_AUTH_TOKEN": "secret", "HELM3": "yes"}
    read = settings.read({"applied_module_extenders": "Static"}, BASE | given)
    assert [text.split(":")[0] for text in read.without_effect] == [
        "ADDON_OPERATOR_APPLIED_MODULE_EXTENDERS (--applied-module-extenders)",
        "HELM_MONITOR_KUBE_CLIENT_QPS (--helm-monitor-kube-client-qps)",
        "TRACING_OTLP_AUTH_TOKEN (--tracing-otlp-auth-token)",
    ]
    assert "secret" not in str(read.without_effect)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90.0), ("1.5s", 1.5), ("250ms", 0.25), ("1h2m3s", 3723.0), ("0s", 0.0), ("10us", 1e-5)],
)
def test_durations(text: str, seconds: float) -> None:
    assert settings.parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "5x", "1h-3m", "nan", "inf", "5 m"])
def test_not_durations(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        settings.parse_duration(text)
