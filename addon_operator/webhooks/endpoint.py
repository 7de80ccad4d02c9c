"""Where the two webhook servers listen, and how the API server finds them.

Pure. The settings are made by `app`; an `Address` goes into what is registered.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from addon_operator.errors import SettingsError
from addon_operator.jsondoc import JsonObject, digest

_LONGEST_LABEL = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSettings:
    """One server.

    Attributes:
        listen_port: 0 lets the system choose, for tests.
        service_name: the Service that leads to it, in the operator's namespace.
        service_port: the port of that Service; 0 for the same number as `listen_port`.
        server_cert: a PEM file, leaf first; None for a certificate of the operator's own making.
        server_key: goes with `server_cert`.
        ca: what the API server verifies `server_cert` with; None for the roots that it trusts anyway.
        client_ca: what the API server's own certificate is verified with; none is asked for if empty.
    """

    listen_port: int
    listen_address: str = "0.0.0.0"  # noqa: S104 -- the API server is another host
    service_name: str = "addon-operator"
    service_port: int = 0
    server_cert: Path | None = None
    server_key: Path | None = None
    ca: Path | None = None
    client_ca: tuple[Path, ...] = ()

    def check(self, purpose: str) -> None:
        """Checks that what belongs together is given together.

        Args:
            purpose: `VALIDATING` or `CONVERSION`, as the variables begin.

        Raises:
            SettingsError: names the variables.
        """
        names = f"{purpose}_WEBHOOK_SERVER_CERT and {purpose}_WEBHOOK_SERVER_KEY"
        if (self.server_cert is None) != (self.server_key is None):
            raise SettingsError(f"{names} must be given together")
        if self.ca is not None and self.server_cert is None:
            raise SettingsError(f"{purpose}_WEBHOOK_CA is for the certificate of {names}, which are not given")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """Everything about webhooks that is set from outside.

    Attributes:
        namespace: the operator's.
        config_map: together with `namespace` it tells the operators of one cluster apart.
        validating_name: the ValidatingWebhookConfiguration is called this and `-hooks`.
        mutating_name: the same for the MutatingWebhookConfiguration.
        host: name or address under which the API server reaches this process; None for the Services.
        at_once: reviews of each server that run side by side.
        validity_s: of certificates that the operator makes; they are renewed after two thirds of it.
    """

    namespace: str
    config_map: str
    validating_name: str = "addon-operator"
    mutating_name: str = "addon-operator"
    host: str | None = None
    admission: EndpointSettings = EndpointSettings(listen_port=9680)
    conversion: EndpointSettings = EndpointSettings(listen_port=9681)
    at_once: int = 16
    validity_s: float = 90 * 86400.0

    @property
    def identity(self) -> str:
        """Answers which operator this is, in a form that fits into a label."""
        text = f"{self.namespace}.{self.config_map}"
        return text if len(text) <= _LONGEST_LABEL else f"operator-{digest(text)[:32]}"

    def names(self, endpoint: EndpointSettings) -> tuple[str, ...]:
        """Lists what the API server may call a server by: DNS names and addresses."""
        service = f"{endpoint.service_name}.{self.namespace}"
        names = (f"{service}.svc", service, f"{service}.svc.cluster.local", self.host)
        return tuple(name for name in names if name)

    def address(self, endpoint: EndpointSettings, *, port: int, authority: bytes) -> Address:
        """Answers how the API server reaches a server that listens on `port`."""
        return Address(
            namespace=self.namespace,
            service_name=endpoint.service_name,
            host=self.host,
            port=port if self.host else endpoint.service_port or port,
            authority=authority,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """How the API server reaches one server.

    Attributes:
        service_name: used unless there is a `host`.
        port: of the Service or the host.
        authority: certificates in PEM; empty for the roots that the API server trusts anyway.
    """

    namespace: str
    service_name: str
    host: str | None
    port: int
    authority: bytes

    def client_config(self, path: str) -> JsonObject:
        """Answers the `clientConfig` of a webhook, without its `caBundle`."""
        if self.host:
            host = f"[{self.host}]" if ":" in self.host else self.host
            return {"url": f"https://{host}:{self.port}{path}"}
        service: JsonObject = {
            "namespace": self.namespace,
            "name": self.service_name,
            "path": path,
            "port": self.port,
        }
        return {"service": service}
