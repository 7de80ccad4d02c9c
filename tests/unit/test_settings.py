"""Flags, environment variables, defaults."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from addon_operator import settings
from addon_operator.errors import SettingsError

BASE = {"ADDON_OPERATOR_NAMESPACE": "ns"}


def test_the_table_and_the_dataclass_name_the_same_fields() -> None:
    assert [row.field for row in settings.TABLE] == [field.name for field in dataclasses.fields(settings.Settings)]


def test_defaults() -> None:
    read = settings.read({}, BASE)
    assert read.namespace == "ns"
    assert read.modules_dirs == (Path("modules"),)
    assert (read.listen_address, read.listen_port) == ("0.0.0.0", 9650)
    assert read.crd_extra_labels == (("heritage", "addon-operator"),)
    assert read.crd_filter_prefixes == ("doc-", "_")
    assert (read.helm_timeout_s, read.hook_timeout_s) == (1200, 600)
    assert read.kube_config is None


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
        pytest.param({"ADDON_OPERATOR_LISTEN_PORT": "http"}, "ADDON_OPERATOR_LISTEN_PORT: ", id="not a number"),
        pytest.param({"HOOK_TIMEOUT": "soon"}, "HOOK_TIMEOUT: 'soon' is not a duration", id="not a duration"),
        pytest.param({"HOOK_TIMEOUT": "-5"}, "HOOK_TIMEOUT: '-5' is not a duration", id="negative duration"),
        pytest.param({"LOG_TYPE": "xml"}, "LOG_TYPE: 'xml' is not one of text, json, color", id="not a choice"),
        pytest.param(
            {"LOG_NO_TIME": "perhaps"}, "LOG_NO_TIME: 'perhaps' is neither true nor false", id="not a boolean"
        ),
        pytest.param({"TILLER_NAMESPACE": "x"}, "Helm 2 is not supported", id="helm 2"),
        pytest.param({"ADDON_OPERATOR_CRD_EXTRA_LABELS": "x"}, "not a label of the form key=value", id="not a label"),
    ],
)
def test_bad_settings_are_named(environment: dict[str, str], text: str) -> None:
    with pytest.raises(SettingsError, match=text.replace("(", r"\(")):
        settings.read({}, BASE | environment)


def test_all_problems_are_told_together() -> None:
    with pytest.raises(SettingsError) as caught:
        settings.read({"hook_timeout_s": "x"}, {"LOG_TYPE": "xml"})
    assert len(str(caught.value).splitlines()) == 3


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
