"""What should be registered in the cluster for the bindings that are served.

Pure. A target is the object that a registration is written to: a webhook configuration of this operator, or a
CustomResourceDefinition whose `conversion` it is.
"""

from __future__ import annotations

from collections.abc import Iterable

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.hooks.config.model import Admission, AdmissionKind, Conversion
from addon_operator.kube.refs import CUSTOM_RESOURCE_DEFINITIONS, ObjectKey
from addon_operator.webhooks import configurations
from addon_operator.webhooks.configurations import RESOURCES
from addon_operator.webhooks.endpoint import Address, WebhookSettings
from addon_operator.webhooks.table import Table


def configuration_target(kind: AdmissionKind, settings: WebhookSettings) -> ObjectKey:
    """Returns the webhook configuration for bindings of a kind."""
    resource = RESOURCES[kind]
    name = settings.validating_name if kind == "kubernetesValidating" else settings.mutating_name
    return ObjectKey(resource.api_version, resource.kind, "", f"{name}-hooks")


def conversion_target(crd_name: str) -> ObjectKey:
    """Returns the CustomResourceDefinition of this name."""
    resource = CUSTOM_RESOURCE_DEFINITIONS
    return ObjectKey(resource.api_version, resource.kind, "", crd_name)


def targets(
    admissions: Iterable[Admission], conversions: Iterable[Conversion], settings: WebhookSettings
) -> frozenset[ObjectKey]:
    """Returns the objects that bindings are registered in."""
    return frozenset(
        {
            *(configuration_target(admission.kind, settings) for admission in admissions),
            *(conversion_target(conversion.crd_name) for conversion in conversions),
        }
    )


def registrations(
    table: Table, settings: WebhookSettings, *, admission: Address | None, conversion: Address | None
) -> dict[ObjectKey, JsonObject]:
    """Returns the document of each target: a whole configuration, or the `conversion` of a definition.

    Args:
        table: what is served.
        settings: names of the configurations, and whose they are.
        admission: where admission reviews are answered; needed if some are.
        conversion: likewise.
    """
    wanted: dict[ObjectKey, JsonObject] = {}
    if admission is not None:
        not_own = configurations.not_own(settings.namespace, settings.config_map)
        for kind in sorted(table.admitters):
            target = configuration_target(kind, settings)
            webhooks = [
                configurations.webhook(admitter.binding, admission, not_own=not_own)
                for admitter in table.admitters[kind]
            ]
            wanted[target] = configurations.configuration(
                kind, target.name, identity=settings.identity, webhooks=webhooks
            )
    if conversion is not None:
        for crd_name in table.conversions:
            wanted[conversion_target(crd_name)] = configurations.conversion(crd_name, conversion)
    return wanted
