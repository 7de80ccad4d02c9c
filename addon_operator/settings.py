"""Everything that a flag or an environment variable can change, read once and passed down.

Pure: a frozen dataclass and the table of names. `cli/start.py` makes one click option of each row of the table, so that
the precedence flag > environment > default has one home. Source: contract.md 1.1, 3.9.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from addon_operator.errors import SettingsError

Kind = Literal["text", "integer", "number", "duration", "boolean", "path", "paths", "labels", "list"]
Value = str | int | float | bool | Path | tuple[Path, ...] | tuple[str, ...] | tuple[tuple[str, str], ...] | None

CPU_COUNT = len(os.sched_getaffinity(0))
HELM_2_VARIABLES = ("TILLER_NAMESPACE", "TILLER_LISTEN_PORT", "TILLER_BINARY_PATH", "TILLER_MAX_HISTORY")


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table of settings.

    Attributes:
        field: the attribute of `Settings`.
        flag: the name of the option, without dashes in front.
        variables: environment variables, the first one set wins.
        kind: how the text is read.
        default: the text that stands for "not given"; None if the setting is required or absent by default.
        help: one sentence for `--help` and the documents.
        choices: the only texts allowed, if any.
    """

    field: str
    flag: str
    variables: tuple[str, ...]
    kind: Kind
    default: str | None
    help: str
    choices: tuple[str, ...] = ()


def _row(  # noqa: PLR0917 -- reads as one row of a table
    field: str, variables: str, kind: Kind, default: str | None, text: str, flag: str = ""
) -> Setting:
    return Setting(field, flag or field.replace("_", "-"), tuple(variables.split()), kind, default, text)


TABLE: tuple[Setting, ...] = (
    _row("namespace", "ADDON_OPERATOR_NAMESPACE", "text", None, "Namespace of the ConfigMap and of all releases."),
    _row("config_map", "ADDON_OPERATOR_CONFIG_MAP", "text", "addon-operator", "Name of the ConfigMap with values."),
    _row(
        "modules_dirs",
        "ADDON_OPERATOR_MODULES_DIR MODULES_DIR",
        "paths",
        "modules",
        "Directories with modules, separated by colons.",
        "modules-dir",
    ),
    _row(
        "global_hooks_dir",
        "ADDON_OPERATOR_GLOBAL_HOOKS_DIR GLOBAL_HOOKS_DIR SHELL_OPERATOR_HOOKS_DIR",
        "path",
        "global-hooks",
        "Directory with global hooks; its subdirectory hooks is used if there is one.",
    ),
    _row(
        "unnumbered_modules_order",
        "ADDON_OPERATOR_UNNUMBERED_MODULES_ORDER UNNUMBERED_MODULES_ORDER UNNUMBERED_MODULE_ORDER",
        "integer",
        "1",
        "Order of modules whose directory has no number.",
    ),
    _row(
        "tmp_dir",
        "ADDON_OPERATOR_TMP_DIR SHELL_OPERATOR_TMP_DIR",
        "path",
        "/tmp/addon-operator",  # noqa: S108 -- the documented default; files in it are 0600 in 0700 directories
        "Directory for the files of hook and helm runs.",
    ),
    _row("keep_tmp_files", "DEBUG_KEEP_TMP_FILES", "boolean", "false", "Keep these files after the run (debugging)."),
    _row(
        "listen_address",
        "ADDON_OPERATOR_LISTEN_ADDRESS SHELL_OPERATOR_LISTEN_ADDRESS",
        "text",
        "0.0.0.0",  # noqa: S104 -- probes and Prometheus come from other hosts
        "Address of the HTTP server.",
        "prometheus-listen-address",
    ),
    _row(
        "listen_port",
        "ADDON_OPERATOR_LISTEN_PORT SHELL_OPERATOR_LISTEN_PORT",
        "integer",
        "9650",
        "Port of the HTTP server.",
        "prometheus-listen-port",
    ),
    _row(
        "metrics_prefix",
        "ADDON_OPERATOR_PROMETHEUS_METRICS_PREFIX SHELL_OPERATOR_PROMETHEUS_METRICS_PREFIX",
        "text",
        "addon_operator_",
        "Prefix of the operator's own metrics.",
        "prometheus-metrics-prefix",
    ),
    _row("kube_config", "KUBE_CONFIG", "path", None, "Path of a kubeconfig; in the cluster none is needed."),
    _row("kube_context", "KUBE_CONTEXT", "text", None, "Context of the kubeconfig."),
    _row("kube_server", "KUBE_SERVER", "text", None, "Address of the API server, instead of the kubeconfig's."),
    _row(
        "kube_qps",
        "KUBE_CLIENT_QPS",
        "number",
        "50",
        "Requests a second to the API server; 0 = no limit.",
        "kube-client-qps",
    ),
    _row("kube_burst", "KUBE_CLIENT_BURST", "integer", "100", "Requests at once above that.", "kube-client-burst"),
    _row("helm_bin", "HELM_BIN_PATH", "path", None, "Path of helm 3; looked up on PATH unless set.", "helm-bin-path"),
    _row("helm_history_max", "HELM_HISTORY_MAX", "integer", "10", "Revisions that helm keeps of a release."),
    _row("helm_timeout_s", "HELM_TIMEOUT", "duration", "20m", "How long one helm operation may take.", "helm-timeout"),
    _row(
        "helm_ignore_release",
        "HELM_IGNORE_RELEASE",
        "text",
        None,
        "A release that is never purged: the operator's own.",
    ),
    _row(
        "crd_extra_labels",
        "ADDON_OPERATOR_CRD_EXTRA_LABELS",
        "labels",
        "heritage=addon-operator",
        "Labels for CRDs and for the objects of all charts: k=v,k=v.",
    ),
    _row(
        "crd_filter_prefixes",
        "ADDON_OPERATOR_CRD_FILTER_PREFIXES",
        "list",
        "doc-,_",
        "Files in crds/ whose names start so are not CRDs.",
        "crd-filters",
    ),
    _row(
        "strict_values",
        "ADDON_OPERATOR_STRICT_CHECK_VALUES_MODE_ENABLED",
        "boolean",
        "false",
        "A modules directory without values.yaml is an error.",
        "strict-check-values-mode-enabled",
    ),
    _row(
        "hook_timeout_s",
        "HOOK_TIMEOUT",
        "duration",
        "10m",
        "Deadline of a hook, unless its configuration says else.",
        "hook-timeout",
    ),
    _row(
        "hook_config_timeout_s",
        "HOOK_CONFIG_TIMEOUT",
        "duration",
        "30s",
        "Deadline of `hook --config`.",
        "hook-config-timeout",
    ),
    _row(
        "enabled_timeout_s",
        "ENABLED_SCRIPT_TIMEOUT",
        "duration",
        "1m",
        "Deadline of an enabled script.",
        "enabled-script-timeout",
    ),
    _row("kill_grace_s", "HOOK_KILL_GRACE", "duration", "5s", "From SIGTERM to SIGKILL for a hook.", "hook-kill-grace"),
    _row(
        "shutdown_grace_s",
        "SHUTDOWN_GRACE",
        "duration",
        "25s",
        "How long a helm in flight may take to end on SIGTERM.",
        "shutdown-grace",
    ),
    _row(
        "module_workers",
        "ADDON_OPERATOR_MODULE_WORKERS",
        "integer",
        str(CPU_COUNT),
        "Modules of equal order that run side by side.",
    ),
    _row("retry_first_s", "TASK_RETRY_FIRST", "duration", "5s", "First delay after a failed task.", "task-retry-first"),
    _row("retry_most_s", "TASK_RETRY_MOST", "duration", "30s", "Longest delay after a failed task.", "task-retry-most"),
    _row(
        "queue_actions_metrics",
        "QUEUE_ACTIONS_METRICS",
        "boolean",
        "true",
        "Count how long actions on queues take.",
    ),
    _row(
        "webhook_host",
        "WEBHOOK_HOST",
        "text",
        None,
        "Name or address by which the API server reaches the webhooks directly; without it, by Services.",
    ),
    _row(
        "validating_webhook_name",
        "VALIDATING_WEBHOOK_CONFIGURATION_NAME",
        "text",
        "addon-operator",
        "The ValidatingWebhookConfiguration is called this and -hooks.",
    ),
    _row(
        "mutating_webhook_name",
        "MUTATING_WEBHOOK_CONFIGURATION_NAME",
        "text",
        "addon-operator",
        "The MutatingWebhookConfiguration is called this and -hooks.",
    ),
    _row(
        "validating_webhook_address",
        "VALIDATING_WEBHOOK_LISTEN_ADDRESS",
        "text",
        "0.0.0.0",  # noqa: S104 -- the API server is another host
        "Address of the server for admission reviews.",
    ),
    _row(
        "validating_webhook_port",
        "VALIDATING_WEBHOOK_LISTEN_PORT",
        "integer",
        "9680",
        "Port of the server for admission reviews; 0 = any that is free.",
    ),
    _row(
        "validating_webhook_service",
        "VALIDATING_WEBHOOK_SERVICE_NAME",
        "text",
        "addon-operator",
        "Service that leads to it, in the operator's namespace.",
    ),
    _row(
        "validating_webhook_service_port",
        "VALIDATING_WEBHOOK_SERVICE_PORT",
        "integer",
        "0",
        "Port of that Service; 0 = the same number as the server's.",
    ),
    _row(
        "validating_webhook_cert",
        "VALIDATING_WEBHOOK_SERVER_CERT",
        "path",
        None,
        "Its certificate (PEM); the operator makes one unless given.",
    ),
    _row("validating_webhook_key", "VALIDATING_WEBHOOK_SERVER_KEY", "path", None, "The key of that certificate."),
    _row(
        "validating_webhook_ca",
        "VALIDATING_WEBHOOK_CA",
        "path",
        None,
        "What the API server verifies that certificate with.",
    ),
    _row(
        "validating_webhook_client_ca",
        "VALIDATING_WEBHOOK_CLIENT_CA",
        "paths",
        None,
        "What the API server's own certificate is verified with, separated by colons; none is asked for unless given.",
    ),
    _row(
        "conversion_webhook_address",
        "CONVERSION_WEBHOOK_LISTEN_ADDRESS",
        "text",
        "0.0.0.0",  # noqa: S104 -- the API server is another host
        "Address of the server for conversion reviews.",
    ),
    _row(
        "conversion_webhook_port",
        "CONVERSION_WEBHOOK_LISTEN_PORT",
        "integer",
        "9681",
        "Port of the server for conversion reviews; 0 = any that is free.",
    ),
    _row(
        "conversion_webhook_service",
        "CONVERSION_WEBHOOK_SERVICE_NAME",
        "text",
        "addon-operator",
        "Service that leads to it, in the operator's namespace.",
    ),
    _row(
        "conversion_webhook_service_port",
        "CONVERSION_WEBHOOK_SERVICE_PORT",
        "integer",
        "0",
        "Port of that Service; 0 = the same number as the server's.",
    ),
    _row(
        "conversion_webhook_cert",
        "CONVERSION_WEBHOOK_SERVER_CERT",
        "path",
        None,
        "Its certificate (PEM); the operator makes one unless given.",
    ),
    _row("conversion_webhook_key", "CONVERSION_WEBHOOK_SERVER_KEY", "path", None, "The key of that certificate."),
    _row(
        "conversion_webhook_ca",
        "CONVERSION_WEBHOOK_CA",
        "path",
        None,
        "What the API server verifies that certificate with.",
    ),
    _row(
        "conversion_webhook_client_ca",
        "CONVERSION_WEBHOOK_CLIENT_CA",
        "paths",
        None,
        "What the API server's own certificate is verified with, separated by colons; none is asked for unless given.",
    ),
    Setting("log_type", "log-type", ("LOG_TYPE",), "text", "text", "Form of the log.", ("text", "json", "color")),
    Setting(
        "log_level",
        "log-level",
        ("LOG_LEVEL",),
        "text",
        "info",
        "Lowest level shown.",
        ("debug", "info", "warning", "error"),
    ),
    _row("log_no_time", "LOG_NO_TIME", "boolean", "false", "Leave time stamps out."),
    _row("log_proxy_hook_json", "LOG_PROXY_HOOK_JSON", "boolean", "false", "Pass JSON lines of hooks on as they are."),
    _row(
        "debug_socket",
        "DEBUG_UNIX_SOCKET",
        "path",
        "/var/run/addon-operator/debug.socket",
        "Socket of the debug commands.",
        "debug-unix-socket",
    ),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """All settings, read and checked. Durations are seconds. See `TABLE` for names and defaults."""

    namespace: str
    config_map: str
    modules_dirs: tuple[Path, ...]
    global_hooks_dir: Path
    unnumbered_modules_order: int
    tmp_dir: Path
    keep_tmp_files: bool
    listen_address: str
    listen_port: int
    metrics_prefix: str
    kube_config: Path | None
    kube_context: str | None
    kube_server: str | None
    kube_qps: float
    kube_burst: int
    helm_bin: Path | None
    helm_history_max: int
    helm_timeout_s: float
    helm_ignore_release: str | None
    crd_extra_labels: tuple[tuple[str, str], ...]
    crd_filter_prefixes: tuple[str, ...]
    strict_values: bool
    hook_timeout_s: float
    hook_config_timeout_s: float
    enabled_timeout_s: float
    kill_grace_s: float
    shutdown_grace_s: float
    module_workers: int
    retry_first_s: float
    retry_most_s: float
    queue_actions_metrics: bool
    webhook_host: str | None
    validating_webhook_name: str
    mutating_webhook_name: str
    validating_webhook_address: str
    validating_webhook_port: int
    validating_webhook_service: str
    validating_webhook_service_port: int
    validating_webhook_cert: Path | None
    validating_webhook_key: Path | None
    validating_webhook_ca: Path | None
    validating_webhook_client_ca: tuple[Path, ...] | None
    conversion_webhook_address: str
    conversion_webhook_port: int
    conversion_webhook_service: str
    conversion_webhook_service_port: int
    conversion_webhook_cert: Path | None
    conversion_webhook_key: Path | None
    conversion_webhook_ca: Path | None
    conversion_webhook_client_ca: tuple[Path, ...] | None
    log_type: Literal["text", "json", "color"]
    log_level: Literal["debug", "info", "warning", "error"]
    log_no_time: bool
    log_proxy_hook_json: bool
    debug_socket: Path


def read(flags: Mapping[str, str | None], environment: Mapping[str, str]) -> Settings:
    """Reads all settings: flag, else environment, else default.

    Args:
        flags: field -> text given on the command line, None if not given.
        environment: the process's environment.

    Raises:
        SettingsError: all that is wrong, one line for each setting.
    """
    problems = [
        f"{name} is set: Helm 2 is not supported, remove it" for name in HELM_2_VARIABLES if name in environment
    ]
    values: dict[str, Value] = {}
    for row in TABLE:
        try:
            values[row.field] = _value(row, flags.get(row.field), environment)
        except SettingsError as error:
            problems.append(str(error))
    if problems:
        raise SettingsError("\n".join(problems))
    return Settings(**values)  # type: ignore[arg-type]  # the table and the dataclass are held together by a test


def parse_duration(text: str) -> float:
    """Reads a duration as Go writes it (`1h30m`, `250ms`) or plain seconds; answers seconds.

    Raises:
        ValueError: it is neither, or negative.
    """
    units = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
    rest, total, seen = text.strip(), 0.0, False
    if rest and not rest[-1].isalpha():
        return _seconds(rest, text)
    while rest:
        digits = len(rest) - len(rest.lstrip("0123456789."))
        letters = digits + len(rest[digits:]) - len(rest[digits:].lstrip("hmsuµn"))
        unit = rest[digits:letters]
        if not digits or unit not in units:
            raise ValueError(f"{text!r} is not a duration such as 90s or 1h30m")
        total, rest, seen = total + float(rest[:digits]) * units[unit], rest[letters:], True
    if not seen:
        raise ValueError("an empty text is not a duration")
    return total


def _seconds(number: str, text: str) -> float:
    try:
        seconds = float(number)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a duration such as 90s or 1h30m") from error
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{text!r} is not a duration such as 90s or 1h30m")
    return seconds


def _value(row: Setting, flag: str | None, environment: Mapping[str, str]) -> Value:
    variable = next((name for name in row.variables if environment.get(name)), None)
    text = flag if flag is not None else environment[variable] if variable else row.default
    given = f"--{row.flag}" if flag is not None else variable or f"--{row.flag}"
    if text is None or not text:
        if row.field == "namespace":
            raise SettingsError("the namespace is missing: set ADDON_OPERATOR_NAMESPACE or --namespace")
        return None if row.default is None else _parse(row, "")
    if row.choices and text.lower() not in row.choices:
        raise SettingsError(f"{given}: {text!r} is not one of {', '.join(row.choices)}")
    try:
        return _parse(row, text.lower() if row.choices else text)
    except ValueError as error:
        raise SettingsError(f"{given}: {error}") from error


def _parse(row: Setting, text: str) -> Value:
    match row.kind:
        case "text":
            return text
        case "integer":
            return _at_least_zero(_number(int, text))
        case "number":
            return _at_least_zero(_number(float, text))
        case "duration":
            return parse_duration(text)
        case "boolean":
            return _boolean(text)
        case "path":
            return Path(text)
        case "paths":
            return tuple(Path(part) for part in text.split(":") if part)
        case "labels":
            return tuple(_label(part) for part in text.split(",") if part)
        case "list":
            return tuple(part.strip() for part in text.split(",") if part.strip())


def _number(kind: type[int] | type[float], text: str) -> float:
    try:
        return kind(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not {'an integer' if kind is int else 'a number'}") from error


def _at_least_zero(number: float) -> float:
    if not number >= 0:
        raise ValueError(f"{number} is below zero")
    return number


def _boolean(text: str) -> bool:
    if text.lower() in {"true", "yes", "1", "on", "t", "y"}:
        return True
    if text.lower() in {"false", "no", "0", "off", "f", "n", ""}:
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def _label(part: str) -> tuple[str, str]:
    key, equals, value = part.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"{part!r} is not a label of the form key=value")
    return key.strip(), value.strip()
