"""Everything that a flag or an environment variable can change, read once and passed down.

Pure. Each field states its names, kind, default and help once; `cli/options.py` makes a click option of it, so that
click's precedence flag > environment > default holds for all. Source: contract.md 1.1, 3.9.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

from addon_operator.errors import SettingsError
from addon_operator.settings.foreign import FOREIGN, HELM_2_VARIABLES
from addon_operator.settings.kinds import (
    BOOLEAN,
    COUNT,
    DNS_LABEL,
    DURATION,
    GRACE,
    INTEGER,
    LABELS,
    LIST,
    NAME,
    NUMBER,
    PATH,
    PATHS,
    PORT,
    PREFIX,
    TEXT,
    choice,
)
from addon_operator.settings.setting import Setting, build, group, optional, required, setting, settings_of

CPU_COUNT = len(os.sched_getaffinity(0))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WebhookServer:
    """One of the two servers that the API server calls.

    Attributes:
        port: that it listens on; 0 lets the system choose.
        service_port: of the Service; 0 for the same number as `port`.
        cert: a PEM file, leaf first; None for a certificate that the operator makes itself.
        ca: what the API server verifies `cert` with; None for the roots that it trusts anyway.
        client_ca: what the API server's own certificate is verified with; none is asked for if empty.
    """

    address: str = setting(TEXT, "LISTEN_ADDRESS", "0.0.0.0", "Listen address of the server for {reviews} reviews.")  # noqa: S104 -- the API server is another host
    port: int = setting(PORT, "LISTEN_PORT", "0", "Port of the server for {reviews} reviews; 0 = any that is free.")
    service: str = setting(
        DNS_LABEL, "SERVICE_NAME", "addon-operator", "Service in front of it, in the operator's namespace."
    )
    service_port: int = setting(PORT, "SERVICE_PORT", "0", "Port of that Service; 0 = the same number as the server's.")
    cert: Path | None = optional(PATH, "SERVER_CERT", "Its certificate (PEM); if not set, the operator makes one.")
    key: Path | None = optional(PATH, "SERVER_KEY", "Key of that certificate.")
    ca: Path | None = optional(PATH, "CA", "CA that the API server verifies that certificate with.")
    client_ca: tuple[Path, ...] = setting(
        PATHS,
        "CLIENT_CA",
        "",
        "CAs that the API server's own certificate is verified with, separated by colons; if not set, it is not asked "
        "for one.",
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings, read and checked. Durations are seconds.

    Attributes:
        without_effect: the settings of `FOREIGN` that were set, and why they have no effect.
    """

    namespace: str = dataclasses.field(
        metadata=required(
            DNS_LABEL,
            "ADDON_OPERATOR_NAMESPACE SHELL_OPERATOR_NAMESPACE",
            "Namespace of the ConfigMap and of all releases.",
        )
    )
    pod: str | None = optional(TEXT, "ADDON_OPERATOR_POD", "Name of the Pod, for the Lease; if not set, the host name.")
    config_map: str = setting(NAME, "ADDON_OPERATOR_CONFIG_MAP", "addon-operator", "Name of the ConfigMap with values.")
    modules_dirs: tuple[Path, ...] = setting(
        PATHS,
        "ADDON_OPERATOR_MODULES_DIR MODULES_DIR",
        "modules",
        "Directories with modules, separated by colons.",
        flag="modules-dir",
    )
    global_hooks_dir: Path = setting(
        PATH,
        "ADDON_OPERATOR_GLOBAL_HOOKS_DIR GLOBAL_HOOKS_DIR SHELL_OPERATOR_HOOKS_DIR",
        "global-hooks",
        "Directory with global hooks; its subdirectory hooks is used if there is one.",
    )
    unnumbered_modules_order: int = setting(
        INTEGER,
        "ADDON_OPERATOR_UNNUMBERED_MODULES_ORDER UNNUMBERED_MODULES_ORDER UNNUMBERED_MODULE_ORDER",
        "1",
        "Order of modules whose directory has no number.",
    )
    tmp_dir: Path = setting(
        PATH,
        "ADDON_OPERATOR_TMP_DIR SHELL_OPERATOR_TMP_DIR",
        "/tmp/addon-operator",  # noqa: S108 -- the documented default; files in it are 0600 in 0700 directories
        "Directory for the files of hook and Helm runs; the operator's own, others must not be able to write to it.",
    )
    keep_tmp_files: bool = setting(
        BOOLEAN,
        "DEBUG_KEEP_TMP_FILES",
        "false",
        "Keep these files after the run (debugging).",
        aliases=("debug-keep-tmp-files",),
    )
    listen_address: str = setting(
        TEXT,
        "ADDON_OPERATOR_LISTEN_ADDRESS SHELL_OPERATOR_LISTEN_ADDRESS",
        "0.0.0.0",  # noqa: S104 -- probes and Prometheus come from other hosts
        "Listen address of the HTTP server.",
        flag="prometheus-listen-address",
    )
    listen_port: int = setting(
        PORT,
        "ADDON_OPERATOR_LISTEN_PORT SHELL_OPERATOR_LISTEN_PORT",
        "9650",
        "Port of the HTTP server.",
        flag="prometheus-listen-port",
    )
    metrics_prefix: str = setting(
        PREFIX,
        "ADDON_OPERATOR_PROMETHEUS_METRICS_PREFIX SHELL_OPERATOR_PROMETHEUS_METRICS_PREFIX",
        "addon_operator_",
        "Prefix of the operator's own metrics.",
        flag="prometheus-metrics-prefix",
    )
    kube_config: Path | None = optional(PATH, "KUBE_CONFIG", "Path of a kubeconfig; not needed inside the cluster.")
    kube_context: str | None = optional(TEXT, "KUBE_CONTEXT", "Context of the kubeconfig.")
    kube_server: str | None = optional(TEXT, "KUBE_SERVER", "Address of the API server, instead of the kubeconfig's.")
    kube_qps: float = setting(
        NUMBER,
        "KUBE_CLIENT_QPS",
        "50",
        "Requests per second to the API server; 0 = no limit.",
        flag="kube-client-qps",
    )
    kube_burst: int = setting(
        INTEGER, "KUBE_CLIENT_BURST", "100", "Burst of requests above that rate.", flag="kube-client-burst"
    )
    readyz_requires_api_server: bool = setting(
        BOOLEAN,
        "READYZ_REQUIRES_API_SERVER",
        "false",
        "/readyz fails while the API server does not answer.",
    )
    helm_bin: Path | None = optional(
        PATH, "HELM_BIN_PATH", "Path of helm 3; if not set, helm is looked up on PATH.", flag="helm-bin-path"
    )
    helm_history_max: int = setting(
        INTEGER, "HELM_HISTORY_MAX", "10", "Revisions that Helm keeps of a release; 0 = all."
    )
    helm_timeout_s: float = setting(
        DURATION, "HELM_TIMEOUT", "20m", "Deadline of one Helm operation.", flag="helm-timeout"
    )
    helm_ignore_release: str | None = optional(
        TEXT, "HELM_IGNORE_RELEASE", "Release that is never purged: the operator's own."
    )
    max_removals: int | None = optional(
        INTEGER,
        "ADDON_OPERATOR_MAX_REMOVALS MAX_REMOVALS",
        "Modules that one converge may uninstall although no enable flag says so; if not set, half of the installed "
        "ones, but at least 3.",
    )
    crd_extra_labels: tuple[tuple[str, str], ...] = setting(
        LABELS,
        "ADDON_OPERATOR_CRD_EXTRA_LABELS",
        "heritage=addon-operator",
        "Labels for CRDs and for the objects of all charts: k=v,k=v.",
    )
    crd_filter_prefixes: tuple[str, ...] = setting(
        LIST,
        "ADDON_OPERATOR_CRD_FILTER_PREFIXES",
        "doc-,_",
        "Prefixes of the names of files in crds/ that are not CRDs.",
        flag="crd-filters",
    )
    strict_values: bool = setting(
        BOOLEAN,
        "ADDON_OPERATOR_STRICT_CHECK_VALUES_MODE_ENABLED",
        "false",
        "A modules directory without values.yaml is an error.",
        flag="strict-check-values-mode-enabled",
    )
    hook_timeout_s: float = setting(
        DURATION,
        "HOOK_TIMEOUT",
        "10m",
        "Deadline of a hook, unless overridden by its configuration.",
        flag="hook-timeout",
    )
    hook_config_timeout_s: float = setting(
        DURATION, "HOOK_CONFIG_TIMEOUT", "30s", "Deadline of `hook --config`.", flag="hook-config-timeout"
    )
    hook_max_series: int = setting(
        COUNT, "HOOK_MAX_SERIES", "10000", "Maximum number of series in the metrics of one hook; more are dropped."
    )
    enabled_timeout_s: float = setting(
        DURATION, "ENABLED_SCRIPT_TIMEOUT", "1m", "Deadline of an enabled script.", flag="enabled-script-timeout"
    )
    kill_grace_s: float = setting(
        GRACE, "HOOK_KILL_GRACE", "5s", "Time from SIGTERM to SIGKILL for a hook.", flag="hook-kill-grace"
    )
    shutdown_grace_s: float = setting(
        GRACE,
        "SHUTDOWN_GRACE",
        "25s",
        "How long a Helm operation in progress may take to finish after SIGTERM.",
        flag="shutdown-grace",
    )
    module_workers: int = setting(
        COUNT, "ADDON_OPERATOR_MODULE_WORKERS", str(CPU_COUNT), "Modules of equal order that run in parallel."
    )
    retry_first_s: float = setting(
        DURATION, "TASK_RETRY_FIRST", "5s", "First delay after a failed task.", flag="task-retry-first"
    )
    retry_most_s: float = setting(
        DURATION, "TASK_RETRY_MOST", "30s", "Longest delay after a failed task.", flag="task-retry-most"
    )
    queue_actions_metrics: bool = setting(
        BOOLEAN, "QUEUE_ACTIONS_METRICS", "true", "Measure how long actions on queues take."
    )
    webhook_host: str | None = optional(
        TEXT,
        "WEBHOOK_HOST",
        "Host name or address at which the API server reaches the webhooks directly; if not set, through Services.",
    )
    validating_webhook_name: str = setting(
        NAME,
        "VALIDATING_WEBHOOK_CONFIGURATION_NAME",
        "addon-operator",
        "Name of the ValidatingWebhookConfiguration; that of the hooks has the suffix -hooks.",
    )
    mutating_webhook_name: str = setting(
        NAME,
        "MUTATING_WEBHOOK_CONFIGURATION_NAME",
        "addon-operator",
        "Name of the MutatingWebhookConfiguration; that of the hooks has the suffix -hooks.",
    )
    validating_webhook: WebhookServer = group(WebhookServer(port=9680), "VALIDATING_WEBHOOK", reviews="admission")
    conversion_webhook: WebhookServer = group(WebhookServer(port=9681), "CONVERSION_WEBHOOK", reviews="conversion")
    log_type: Literal["text", "json", "color"] = setting(
        choice("text", "json", "color"), "LOG_TYPE", "text", "Log format."
    )
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        choice("debug", "info", "warning", "error"), "LOG_LEVEL", "info", "Minimum log level."
    )
    log_no_time: bool = setting(BOOLEAN, "LOG_NO_TIME", "false", "Omit timestamps.")
    log_proxy_hook_json: bool = setting(
        BOOLEAN, "LOG_PROXY_HOOK_JSON", "false", "Pass JSON lines of hooks through unchanged."
    )
    debug_socket: Path = setting(
        PATH,
        "DEBUG_UNIX_SOCKET",
        "/var/run/addon-operator/debug.socket",
        "Unix socket of the debug commands.",
        flag="debug-unix-socket",
    )
    without_effect: tuple[str, ...] = ()


TABLE: Final[tuple[Setting, ...]] = tuple(settings_of(Settings))


@dataclasses.dataclass(frozen=True, slots=True)
class Invalid:
    """Stands for the value of a setting whose text is not of its kind.

    Attributes:
        problem: names the setting, and what is wrong.
    """

    problem: str


def check(values: Mapping[str, object], environment: Mapping[str, str]) -> Settings:
    """Returns the settings, if all of them are valid.

    Args:
        values: `field` of a setting, or of a foreign one -> its value, `Invalid`, or None if it is not set.
        environment: the process's environment.

    Raises:
        SettingsError: all that is wrong, one line for each setting.
    """
    problems = [
        *(f"{name} is set: Helm 2 is not supported, remove it" for name in HELM_2_VARIABLES if name in environment),
        *filter(None, (_problem(row, values.get(row.field)) for row in TABLE)),
        *_unpaired("validating", values),
        *_unpaired("conversion", values),
    ]
    if problems:
        raise SettingsError("\n".join(problems))
    without_effect = tuple(
        f"{foreign.variable} (--{foreign.flag}): {foreign.reason}"
        for foreign in FOREIGN
        if foreign.reason and values.get(foreign.field) is not None
    )
    return build(Settings, {**values, "without_effect": without_effect})


def _problem(row: Setting, value: object) -> str | None:
    if isinstance(value, Invalid):
        return value.problem
    if value is None and row.field == "namespace":
        return f"the namespace is missing: set {row.variables[0]} or --{row.flag}"
    return None


def _unpaired(purpose: Literal["validating", "conversion"], values: Mapping[str, object]) -> Iterator[str]:
    """Yields what is set without what belongs to it."""
    cert, key, ca = (values.get(f"{purpose}_webhook_{field}") for field in ("cert", "key", "ca"))
    variables, flags = f"{purpose.upper()}_WEBHOOK", f"--{purpose}-webhook"
    pair = f"{variables}_SERVER_CERT ({flags}-cert) and {variables}_SERVER_KEY ({flags}-key)"
    if (cert is None) != (key is None):
        yield f"{pair} must be given together"
    if ca is not None and cert is None:
        yield f"{variables}_CA ({flags}-ca) is for the certificate of {pair}, which are not given"
