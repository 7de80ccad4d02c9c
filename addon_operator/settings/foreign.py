"""Settings of other addon-operators that have no effect here. Pure."""

from __future__ import annotations

import dataclasses
from typing import Final

# Helm 2 is not supported: its variables are an error.
HELM_2_VARIABLES: Final = ("TILLER_NAMESPACE", "TILLER_LISTEN_PORT", "TILLER_BINARY_PATH", "TILLER_MAX_HISTORY")


@dataclasses.dataclass(frozen=True, slots=True)
class Foreign:
    """A setting of other addon-operators that is accepted and has no effect.

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
        """Returns the name of the option's value among those of the settings."""
        return self.flag.replace("-", "_")


_SHARED_LIMIT = "all requests to the API server share one limit, --kube-client-qps and --kube-client-burst"
_NO_TRACING = "tracing is not supported"

FOREIGN: tuple[Foreign, ...] = (
    Foreign(
        "applied-module-extenders", "ADDON_OPERATOR_APPLIED_MODULE_EXTENDERS", "every source of enable flags is used"
    ),
    Foreign("shell-chroot-dir", "ADDON_OPERATOR_SHELL_CHROOT_DIR", "hooks run in the file system of the operator"),
    Foreign("helm-monitor-kube-client-qps", "HELM_MONITOR_KUBE_CLIENT_QPS", _SHARED_LIMIT),
    Foreign("helm-monitor-kube-client-burst", "HELM_MONITOR_KUBE_CLIENT_BURST", _SHARED_LIMIT),
    Foreign("object-patcher-kube-client-qps", "OBJECT_PATCHER_KUBE_CLIENT_QPS", _SHARED_LIMIT),
    Foreign("object-patcher-kube-client-burst", "OBJECT_PATCHER_KUBE_CLIENT_BURST", _SHARED_LIMIT),
    Foreign(
        "object-patcher-kube-client-timeout",
        "OBJECT_PATCHER_KUBE_CLIENT_TIMEOUT",
        "each request has a deadline of its own",
    ),
    Foreign("ha", "ADDON_OPERATOR_HA", "a second operator waits until the first one has stopped, with or without it"),
    Foreign("tracing-otlp-endpoint", "TRACING_OTLP_ENDPOINT", _NO_TRACING),
    Foreign("tracing-otlp-auth-token", "TRACING_OTLP_AUTH_TOKEN", _NO_TRACING),
    Foreign("use-nelm", "USE_NELM", "releases are installed with helm"),
    Foreign("helm3", "HELM3", ""),
    Foreign("debug-http-addr", "DEBUG_HTTP_SERVER_ADDR", "debug commands use --debug-unix-socket only"),
    Foreign("jq-library-path", "JQ_LIBRARY_PATH", "filters of bindings load no jq modules; hooks get the variable"),
)
