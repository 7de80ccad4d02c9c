"""Where the API server is and who we are: kubeconfig, context, service account, tokens.

The only module that knows the Kubernetes library, of which it uses the configuration loading (kubeconfig, in-cluster,
exec plugins, token files).
"""

from __future__ import annotations

import asyncio
import os
import ssl
from pathlib import Path
from typing import Self

import yaml
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

from addon_operator.errors import SettingsError


class Credentials:
    """The address of the API server and what opens it; made by `load`.

    Attributes:
        kubeconfig: the path in use, or empty in a pod.
        url: of the API server, without a slash at its end.
        host: its host and port.
        tls: how connections are secured, and the client's certificate, if it has one.
        tls_server_name: the name that the server's certificate must have, if it is not the host.
        proxy: its URL, if there is one.
        generation: grows with each refresh, so that many requests refused at once cause only one.
    """

    def __init__(self, kubeconfig: str, context: str | None, server: str | None, configuration: Configuration) -> None:
        """Used by `load` only."""
        self.kubeconfig, self.context, self.server = kubeconfig, context, server
        self.generation = 0
        self._refreshing = asyncio.Lock()
        self._use(configuration)

    @classmethod
    async def load(cls, config_file: Path | None, context: str | None, server: str | None) -> Self:
        """Reads the configuration for the first time.

        Args:
            config_file: a kubeconfig; None takes `$KUBECONFIG` or `~/.kube/config`, and without those the pod's own
                service account.
            context: a context of the kubeconfig; None takes its current one.
            server: the address of the API server, instead of the configured one.

        Raises:
            SettingsError: it cannot be read, or there is none.
        """
        kubeconfig = _kubeconfig(config_file)
        return cls(kubeconfig, context, server, await _configuration(kubeconfig, context, server))

    def child_environment(self) -> dict[str, str]:
        """Returns what helm and hooks need to reach the same cluster: `KUBECONFIG` when one is in use."""
        return {"KUBECONFIG": self.kubeconfig} if self.kubeconfig else {}

    def helm_flags(self) -> list[str]:
        """Returns helm's flags for the chosen context and server; empty if neither was chosen."""
        return [
            *(["--kube-context", self.context] if self.context else []),
            *(["--kube-apiserver", self.server] if self.server else []),
        ]

    async def refresh(self, seen: int) -> None:
        """Reads everything again, tokens and exec plugins included, unless that was done since generation `seen`."""
        async with self._refreshing:
            if self.generation == seen:
                self._use(await _configuration(self.kubeconfig, self.context, self.server))
                self.generation += 1

    async def authorization(self) -> str | None:
        """Returns the Authorization header; a pod's token file is read again each minute.

        Raises:
            SettingsError: that file cannot be read.
        """
        try:
            header: str | None = await self._configuration.get_api_key_with_prefix("BearerToken")
        except (ConfigException, OSError) as error:
            raise SettingsError(f"the service account's token cannot be read: {_brief(error)}") from error
        return header

    def _use(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self.url = (self.server or str(configuration.host)).rstrip("/")
        self.host = self.url.partition("://")[2].partition("/")[0]
        self.tls = _tls(configuration)
        self.tls_server_name: str | None = configuration.tls_server_name
        self.proxy: str | None = configuration.proxy


def _kubeconfig(config_file: Path | None) -> str:
    if config_file is not None:
        return str(config_file.absolute())
    if named := os.environ.get("KUBECONFIG"):
        return named
    usual = Path.home() / ".kube" / "config"
    return str(usual) if usual.is_file() else ""


async def _configuration(kubeconfig: str, context: str | None, server: str | None) -> Configuration:
    configuration = Configuration()
    where = f"kubeconfig {kubeconfig}" if kubeconfig else "service account of the pod"
    try:
        if kubeconfig:
            _check_readable(kubeconfig)
            await load_kube_config(kubeconfig, context, configuration, persist_config=False)  # type: ignore[no-untyped-call]
        elif not server or "KUBERNETES_SERVICE_HOST" in os.environ:
            load_incluster_config(configuration)  # type: ignore[no-untyped-call]
    except yaml.YAMLError as error:
        # The parser quotes the line at fault, which may be a credential.
        raise SettingsError(f"{where}: not YAML") from error
    except (ConfigException, OSError, ValueError) as error:
        raise SettingsError(f"{where}: {_brief(error)}") from error
    except (TypeError, KeyError, AttributeError) as error:
        raise SettingsError(f"{where}: YAML, but not a kubeconfig") from error
    return configuration


def _check_readable(kubeconfig: str) -> None:
    paths = [Path(path).expanduser() for path in kubeconfig.split(os.pathsep) if path]
    if not any(path.exists() for path in paths):
        raise ConfigException("no such file")


def _brief(error: Exception) -> str:
    """Shortens a message of the library, which may go on with a whole entry of the kubeconfig, token included."""
    return str(error).partition("{")[0].rstrip() or type(error).__name__


def _tls(configuration: Configuration) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif configuration.ssl_ca_cert:
        context.load_verify_locations(cafile=configuration.ssl_ca_cert)
    else:
        context.load_default_certs()
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context
