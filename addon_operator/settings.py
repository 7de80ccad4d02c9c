"""Everything that a flag or an environment variable can change, read once and passed down.

Pure: a frozen dataclass and the table of names. `cli/start.py` makes one click option of each row of the table, so that
the precedence flag > environment > default has one home. Source: contract.md 1.1, 3.9.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from addon_operator.errors import SettingsError

Kind = Literal[
    "text",
    "name",
    "dns-label",
    "prefix",
    "integer",
    "count",
    "port",
    "number",
    "duration",
    "grace",
    "boolean",
    "path",
    "paths",
    "labels",
    "list",
]
Value = str | int | float | bool | Path | tuple[Path, ...] | tuple[str, ...] | tuple[tuple[str, str], ...] | None
Purpose = Literal["validating", "conversion"]

CPU_COUNT = len(os.sched_getaffinity(0))
HELM_2_VARIABLES = ("TILLER_NAMESPACE", "TILLER_LISTEN_PORT", "TILLER_BINARY_PATH", "TILLER_MAX_HISTORY")
PURPOSES: tuple[Purpose, ...] = ("validating", "conversion")
_PORTS: Final = range(2**16)
_LONGEST_NAME: Final = 253
_LONGEST_LABEL: Final = 63
_DNS_LABEL: Final = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_DNS_NAME: Final = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"
_LABEL_NAME: Final = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_LABEL_KEY: Final = rf"({_DNS_NAME}/)?{_LABEL_NAME}"
_LABEL_VALUE: Final = rf"({_LABEL_NAME})?"
_METRICS_PREFIX: Final = r"[a-zA-Z_:][a-zA-Z0-9_:]*"


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table of settings.

    Attributes:
        field: the attribute of `Settings`.
        flag: the name of the option, without dashes in front.
        variables: environment variables, the first one set wins.
        kind: how the text is read, and what is allowed; see `_PARSERS`.
        default: the text that stands for "not given"; None if the setting is required or absent by default.
        help: one sentence for `--help` and the documents.
        choices: the only texts allowed, if any.
        aliases: other names of the option.
    """

    field: str
    flag: str
    variables: tuple[str, ...]
    kind: Kind
    default: str | None
    help: str
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Foreign:
    """A setting of other addon-operators that there is nothing to do for here.

    Attributes:
        flag: the name of the option, without dashes in front.
        variable: the environment variable.
        reason: why it has no effect; empty if that is not worth a line in the log.
    """

    flag: str
    variable: str
    reason: str

    @property
    def field(self) -> str:
        """Answers what the option is called among the others."""
        return self.flag.replace("-", "_")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WebhookServer:
    """One of the two servers that the API server asks.

    Attributes:
        port: that it listens on; 0 lets the system choose.
        address: goes with `port`.
        service: the Service that leads to it, in the operator's namespace.
        service_port: the port of that Service; 0 for the same number as `port`.
        cert: a PEM file, leaf first; None for a certificate of the operator's own making.
        key: goes with `cert`.
        ca: what the API server verifies `cert` with; None for the roots that it trusts anyway.
        client_ca: what the API server's own certificate is verified with; none is asked for if empty.
    """

    port: int
    address: str
    service: str
    service_port: int = 0
    cert: Path | None = None
    key: Path | None = None
    ca: Path | None = None
    client_ca: tuple[Path, ...] = ()


def _row(  # noqa: PLR0917 -- reads as one row of a table
    field: str, variables: str, kind: Kind, default: str | None, text: str, flag: str = ""
) -> Setting:
    return Setting(field, flag or field.replace("_", "-"), tuple(variables.split()), kind, default, text)


def _webhook_rows(purpose: Purpose, reviews: str, port: str) -> Iterator[Setting]:
    """Makes the rows of a `WebhookServer`, one for each of its attributes."""

    def row(attribute: str, variable: str, kind: Kind, default: str | None, text: str) -> Setting:
        return _row(f"{purpose}_webhook_{attribute}", f"{purpose.upper()}_WEBHOOK_{variable}", kind, default, text)

    anywhere = "0.0.0.0"  # noqa: S104 -- the API server is another host
    yield row("address", "LISTEN_ADDRESS", "text", anywhere, f"Address of the server for {reviews} reviews.")
    text = f"Port of the server for {reviews} reviews; 0 = any that is free."
    yield row("port", "LISTEN_PORT", "port", port, text)
    text = "Service that leads to it, in the operator's namespace."
    yield row("service", "SERVICE_NAME", "dns-label", "addon-operator", text)
    text = "Port of that Service; 0 = the same number as the server's."
    yield row("service_port", "SERVICE_PORT", "port", "0", text)
    yield row("cert", "SERVER_CERT", "path", None, "Its certificate (PEM); the operator makes one unless given.")
    yield row("key", "SERVER_KEY", "path", None, "The key of that certificate.")
    yield row("ca", "CA", "path", None, "What the API server verifies that certificate with.")
    text = (
        "What the API server's own certificate is verified with, separated by colons; none is asked for unless given."
    )
    yield row("client_ca", "CLIENT_CA", "paths", "", text)


TABLE: tuple[Setting, ...] = (
    _row(
        "namespace",
        "ADDON_OPERATOR_NAMESPACE SHELL_OPERATOR_NAMESPACE",
        "dns-label",
        None,
        "Namespace of the ConfigMap and of all releases.",
    ),
    _row("pod", "ADDON_OPERATOR_POD", "text", None, "Name of the Pod, for the Lease; the host name unless given."),
    _row("config_map", "ADDON_OPERATOR_CONFIG_MAP", "name", "addon-operator", "Name of the ConfigMap with values."),
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
        "Directory for the files of hook and helm runs; the operator's own, others must not be able to write to it.",
    ),
    Setting(
        "keep_tmp_files",
        "keep-tmp-files",
        ("DEBUG_KEEP_TMP_FILES",),
        "boolean",
        "false",
        "Keep these files after the run (debugging).",
        aliases=("debug-keep-tmp-files",),
    ),
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
        "port",
        "9650",
        "Port of the HTTP server.",
        "prometheus-listen-port",
    ),
    _row(
        "metrics_prefix",
        "ADDON_OPERATOR_PROMETHEUS_METRICS_PREFIX SHELL_OPERATOR_PROMETHEUS_METRICS_PREFIX",
        "prefix",
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
    _row(
        "readyz_requires_api_server",
        "READYZ_REQUIRES_API_SERVER",
        "boolean",
        "false",
        "/readyz fails while the API server does not answer.",
    ),
    _row("helm_bin", "HELM_BIN_PATH", "path", None, "Path of helm 3; looked up on PATH unless set.", "helm-bin-path"),
    _row("helm_history_max", "HELM_HISTORY_MAX", "integer", "10", "Revisions that helm keeps of a release; 0 = all."),
    _row("helm_timeout_s", "HELM_TIMEOUT", "duration", "20m", "How long one helm operation may take.", "helm-timeout"),
    _row(
        "helm_ignore_release",
        "HELM_IGNORE_RELEASE",
        "text",
        None,
        "A release that is never purged: the operator's own.",
    ),
    _row(
        "max_removals",
        "ADDON_OPERATOR_MAX_REMOVALS MAX_REMOVALS",
        "integer",
        None,
        "Modules that one converge may uninstall without a flag that says so; half of the installed ones, at least 3, "
        "unless given.",
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
        "hook_max_series",
        "HOOK_MAX_SERIES",
        "count",
        "10000",
        "Series that the metrics of one hook may have; more are dropped.",
    ),
    _row(
        "enabled_timeout_s",
        "ENABLED_SCRIPT_TIMEOUT",
        "duration",
        "1m",
        "Deadline of an enabled script.",
        "enabled-script-timeout",
    ),
    _row("kill_grace_s", "HOOK_KILL_GRACE", "grace", "5s", "From SIGTERM to SIGKILL for a hook.", "hook-kill-grace"),
    _row(
        "shutdown_grace_s",
        "SHUTDOWN_GRACE",
        "grace",
        "25s",
        "How long a helm in flight may take to end on SIGTERM.",
        "shutdown-grace",
    ),
    _row(
        "module_workers",
        "ADDON_OPERATOR_MODULE_WORKERS",
        "count",
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
        "name",
        "addon-operator",
        "The ValidatingWebhookConfiguration is called this and -hooks.",
    ),
    _row(
        "mutating_webhook_name",
        "MUTATING_WEBHOOK_CONFIGURATION_NAME",
        "name",
        "addon-operator",
        "The MutatingWebhookConfiguration is called this and -hooks.",
    ),
    *_webhook_rows("validating", "admission", "9680"),
    *_webhook_rows("conversion", "conversion", "9681"),
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

_ONE_LIMIT = "all requests to the API server have one limit, --kube-client-qps and --kube-client-burst"
_NO_TRACING = "nothing is traced"

FOREIGN: tuple[Foreign, ...] = (
    Foreign(
        "applied-module-extenders", "ADDON_OPERATOR_APPLIED_MODULE_EXTENDERS", "every source of enable flags counts"
    ),
    Foreign("shell-chroot-dir", "ADDON_OPERATOR_SHELL_CHROOT_DIR", "hooks see the file system of the operator"),
    Foreign("helm-monitor-kube-client-qps", "HELM_MONITOR_KUBE_CLIENT_QPS", _ONE_LIMIT),
    Foreign("helm-monitor-kube-client-burst", "HELM_MONITOR_KUBE_CLIENT_BURST", _ONE_LIMIT),
    Foreign("object-patcher-kube-client-qps", "OBJECT_PATCHER_KUBE_CLIENT_QPS", _ONE_LIMIT),
    Foreign("object-patcher-kube-client-burst", "OBJECT_PATCHER_KUBE_CLIENT_BURST", _ONE_LIMIT),
    Foreign(
        "object-patcher-kube-client-timeout", "OBJECT_PATCHER_KUBE_CLIENT_TIMEOUT", "each request has its deadline"
    ),
    Foreign("ha", "ADDON_OPERATOR_HA", "a second operator waits for the end of the first one, with or without it"),
    Foreign("tracing-otlp-endpoint", "TRACING_OTLP_ENDPOINT", _NO_TRACING),
    Foreign("tracing-otlp-auth-token", "TRACING_OTLP_AUTH_TOKEN", _NO_TRACING),
    Foreign("use-nelm", "USE_NELM", "releases are made with helm"),
    Foreign("helm3", "HELM3", ""),
    Foreign("debug-http-addr", "DEBUG_HTTP_SERVER_ADDR", "debug commands are answered on --debug-unix-socket only"),
    Foreign("jq-library-path", "JQ_LIBRARY_PATH", "filters of bindings load no jq modules; hooks get the variable"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """All settings, read and checked. Durations are seconds. See `TABLE` for names and defaults.

    Attributes:
        without_effect: what was given of `FOREIGN`, and why it has no effect.
    """

    namespace: str
    pod: str | None
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
    readyz_requires_api_server: bool
    helm_bin: Path | None
    helm_history_max: int
    helm_timeout_s: float
    helm_ignore_release: str | None
    max_removals: int | None
    crd_extra_labels: tuple[tuple[str, str], ...]
    crd_filter_prefixes: tuple[str, ...]
    strict_values: bool
    hook_timeout_s: float
    hook_config_timeout_s: float
    hook_max_series: int
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
    validating_webhook: WebhookServer
    conversion_webhook: WebhookServer
    log_type: Literal["text", "json", "color"]
    log_level: Literal["debug", "info", "warning", "error"]
    log_no_time: bool
    log_proxy_hook_json: bool
    debug_socket: Path
    without_effect: tuple[str, ...]


def read(flags: Mapping[str, str | None], environment: Mapping[str, str]) -> Settings:
    """Reads all settings: flag, else environment, else default.

    Args:
        flags: `field` of a row -> text given on the command line, None if not given.
        environment: the process's environment.

    Raises:
        SettingsError: all that is wrong, one line for each setting.
    """
    problems = [
        f"{name} is set: Helm 2 is not supported, remove it" for name in HELM_2_VARIABLES if name in environment
    ]
    # What is in it is right by the table, which a test holds together with the dataclass.
    values: dict[str, Any] = {}
    for row in TABLE:
        try:
            values[row.field] = _value(row, flags.get(row.field), environment)
        except SettingsError as error:
            problems.append(str(error))
    problems += [problem for purpose in PURPOSES for problem in _unpaired(purpose, values)]
    if problems:
        raise SettingsError("\n".join(problems))
    for purpose in PURPOSES:
        values[f"{purpose}_webhook"] = _webhook_server(purpose, values)
    return Settings(**values, without_effect=_without_effect(flags, environment))


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
    if not text and row.field == "namespace":
        raise SettingsError(f"the namespace is missing: set {row.variables[0]} or --{row.flag}")
    if text is None or (not text and row.default is None):
        return None
    given = f"--{row.flag} ({row.variables[0]})" if flag is not None else f"{variable} (--{row.flag})"
    if row.choices and text.lower() not in row.choices:
        raise SettingsError(f"{given}: {text!r} is not one of {', '.join(row.choices)}")
    try:
        return _PARSERS[row.kind](text.lower() if row.choices else text)
    except ValueError as error:
        raise SettingsError(f"{given}: {error}") from error


def _unpaired(purpose: Purpose, values: Mapping[str, Value]) -> Iterator[str]:
    """Finds what is given without what belongs to it."""
    cert, key, ca = (values.get(f"{purpose}_webhook_{attribute}") for attribute in ("cert", "key", "ca"))
    variables, flags = f"{purpose.upper()}_WEBHOOK", f"--{purpose}-webhook"
    pair = f"{variables}_SERVER_CERT ({flags}-cert) and {variables}_SERVER_KEY ({flags}-key)"
    if (cert is None) != (key is None):
        yield f"{pair} must be given together"
    if ca is not None and cert is None:
        yield f"{variables}_CA ({flags}-ca) is for the certificate of {pair}, which are not given"


def _webhook_server(purpose: Purpose, values: dict[str, Any]) -> WebhookServer:
    """Takes the values of one server out of those of the table."""
    names = [field.name for field in dataclasses.fields(WebhookServer)]
    return WebhookServer(**{name: values.pop(f"{purpose}_webhook_{name}") for name in names})


def _without_effect(flags: Mapping[str, str | None], environment: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(
        f"{one.variable} (--{one.flag}): {one.reason}"
        for one in FOREIGN
        if one.reason and (environment.get(one.variable) or flags.get(one.field) is not None)
    )


def _name(text: str) -> str:
    if len(text) > _LONGEST_NAME or not re.fullmatch(_DNS_NAME, text):
        raise ValueError(
            f"{text!r} is not a name of an object: small letters, digits, - and . between them, "
            f"at most {_LONGEST_NAME} characters"
        )
    return text


def _dns_label(text: str) -> str:
    if len(text) > _LONGEST_LABEL or not re.fullmatch(_DNS_LABEL, text):
        raise ValueError(
            f"{text!r} is not a DNS label: small letters, digits, - between them, at most {_LONGEST_LABEL} characters"
        )
    return text


def _prefix(text: str) -> str:
    if text and not re.fullmatch(_METRICS_PREFIX, text):
        raise ValueError(f"{text!r} cannot begin the name of a metric: letters, digits, _ and :, no digit first")
    return text


def _integer(text: str) -> int:
    try:
        number = int(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not an integer") from error
    if number < 0:
        raise ValueError(f"{number} is below zero")
    return number


def _count(text: str) -> int:
    number = _integer(text)
    if not number:
        raise ValueError("must be at least 1")
    return number


def _port(text: str) -> int:
    number = _integer(text)
    if number not in _PORTS:
        raise ValueError(f"{number} is not a port: the last one is {_PORTS[-1]}")
    return number


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a number") from error
    if not number >= 0:
        raise ValueError(f"{number} is below zero")
    return number


def _duration(text: str) -> float:
    seconds = parse_duration(text)
    if not seconds:
        raise ValueError(f"{text!r} is no time at all: it must be above zero")
    return seconds


def _boolean(text: str) -> bool:
    if text.lower() in {"true", "yes", "1", "on", "t", "y"}:
        return True
    if text.lower() in {"false", "no", "0", "off", "f", "n", ""}:
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def _paths(text: str) -> tuple[Path, ...]:
    return tuple(Path(part) for part in text.split(":") if part)


def _labels(text: str) -> tuple[tuple[str, str], ...]:
    return tuple(_label(part) for part in text.split(",") if part)


def _label(part: str) -> tuple[str, str]:
    key, equals, value = part.partition("=")
    if not equals or not re.fullmatch(_LABEL_KEY, key.strip()) or not re.fullmatch(_LABEL_VALUE, value.strip()):
        raise ValueError(f"{part!r} is not a label of the form key=value")
    return key.strip(), value.strip()


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


_PARSERS: Mapping[Kind, Callable[[str], Value]] = {
    "text": str,
    "name": _name,
    "dns-label": _dns_label,
    "prefix": _prefix,
    "integer": _integer,
    "count": _count,
    "port": _port,
    "number": _number,
    "duration": _duration,
    "grace": parse_duration,
    "boolean": _boolean,
    "path": Path,
    "paths": _paths,
    "labels": _labels,
    "list": _list,
}
