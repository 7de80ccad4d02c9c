"""How the API server finds the two webhook servers.

Pure. The settings are made by `assembly`; an `Address` goes into what is registered.
"""

from __future__ import annotations

from dataclasses import dataclass

from addon_operator.documents.jsondoc import JsonObject, digest
from addon_operator.settings import WebhookServer

_LONGEST_LABEL = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """Everything about webhooks that is set from outside.

    Attributes:
        namespace: the operator's.
        config_map: its name; with `namespace` it identifies the operator among those of one cluster.
        validating_name: the ValidatingWebhookConfiguration is called this and `-hooks`.
        mutating_name: the same for the MutatingWebhookConfiguration.
        admission: the server for validating and mutating webhooks.
        conversion: the other one.
        host: name or address under which the API server reaches this process; None for the Services.
        at_once: reviews of each server that run side by side.
        validity_s: of certificates that the operator makes; they are renewed after two thirds of it.
        forbidden_pause_s: after that time whoever may not watch what is registered tries it again.
    """

    namespace: str
    config_map: str
    validating_name: str
    mutating_name: str
    admission: WebhookServer
    conversion: WebhookServer
    host: str | None = None
    at_once: int = 16
    validity_s: float = 90 * 86400.0
    forbidden_pause_s: float = 60.0

    @property
    def identity(self) -> str:
        """Which operator this is, in a form that fits into a label."""
        text = f"{self.namespace}.{self.config_map}"
        return text if len(text) <= _LONGEST_LABEL else f"operator-{digest(text)[:32]}"

    def names(self, server: WebhookServer) -> tuple[str, ...]:
        """Lists what the API server may call a server by: DNS names and addresses."""
        service = f"{server.service}.{self.namespace}"
        names = (f"{service}.svc", service, f"{service}.svc.cluster.local", self.host)
        return tuple(name for name in names if name)

    def address(self, server: WebhookServer, *, port: int, authority: bytes) -> Address:
        """Returns how the API server reaches a server that listens on `port`."""
        return Address(
            namespace=self.namespace,
            service_name=server.service,
            host=self.host,
            port=port if self.host else server.service_port or port,
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
        """Returns the `clientConfig` of a webhook, without its `caBundle`."""
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
