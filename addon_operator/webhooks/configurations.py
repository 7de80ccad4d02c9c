"""What is written into the cluster: webhook configurations and the conversion of CustomResourceDefinitions.

Pure. `registration.py` writes them.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote

from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.hooks.config.model import Admission, AdmissionKind, AdmissionRule
from addon_operator.kube.refs import Resource
from addon_operator.webhooks.endpoint import Address

_CORE: Final = frozenset({"", "*"})
_STORES: Final = frozenset({"configmaps", "secrets", "*", "*/*"})
_MOST_CONDITIONS: Final = 64
_GROUP: Final = "admissionregistration.k8s.io"
RESOURCES: Final[Mapping[AdmissionKind, Resource]] = {
    "kubernetesValidating": Resource(
        _GROUP, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", False
    ),
    "kubernetesMutating": Resource(
        _GROUP, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", False
    ),
}
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
OPERATOR: Final = "addon-operator.io/operator"
"""Label of a webhook configuration: whose it is."""
CONVERTER: Final = "addon-operator.io/converter"
"""Label of a CustomResourceDefinition: which operator converts its objects."""


def admission_path(binding: Admission) -> str:
    """Returns the path of a binding; a validating and a mutating one of the same name have different ones."""
    path = f"/hooks/{quote(binding.name, safe='')}"
    return path if binding.kind == "kubernetesValidating" else f"{path}/mutate"


def conversion_path(crd_name: str) -> str:
    """Returns the path for the objects of one definition."""
    return f"/{quote(crd_name, safe='')}"


def labels(identity: str) -> JsonObject:
    """Returns the labels of a configuration of ours."""
    return {MANAGED_BY: "addon-operator", OPERATOR: identity}


def not_own(namespace: str, config_map: str) -> JsonObject:
    """Returns a match condition: not what the operator itself cannot do without.

    That is its ConfigMap and the Secrets of releases: whoever cannot write these cannot switch a bad hook off.

    Args:
        namespace: the operator's.
        config_map: its ConfigMap there.
    """
    # A request need not have a namespace or a name, and an expression that fails would refuse it.
    expression = (
        f'!(request.resource.group == "" && has(request.namespace) && request.namespace == "{namespace}"'
        f' && has(request.name) && (request.resource.resource == "configmaps" && request.name == "{config_map}"'
        ' || request.resource.resource == "secrets" && request.name.startsWith("sh.helm.release.")))'
    )
    return {"name": "addon-operator.io/not-own", "expression": expression}


def webhook(binding: Admission, address: Address, *, not_own: JsonObject | None = None) -> JsonObject:
    """Returns the entry of one binding.

    Args:
        binding: what the hook declares.
        address: where it is served.
        not_own: added to the conditions of those that could concern what the operator needs itself.
    """
    entry: JsonObject = {
        "name": binding.name,
        "clientConfig": {**address.client_config(admission_path(binding)), **_authority(address)},
        "rules": [_rule(rule) for rule in binding.rules],
        "failurePolicy": binding.failure_policy,
        "sideEffects": binding.side_effects,
        "timeoutSeconds": binding.timeout_s,
        "admissionReviewVersions": ["v1"],
    }
    if conditions := _conditions(binding, not_own):
        entry["matchConditions"] = conditions
    if binding.label_selector is not None:
        entry["objectSelector"] = binding.label_selector
    if binding.namespace_labels is not None:
        entry["namespaceSelector"] = binding.namespace_labels
    return entry


def configuration(kind: AdmissionKind, name: str, *, identity: str, webhooks: Iterable[JsonObject]) -> JsonObject:
    """Returns a whole configuration."""
    resource = RESOURCES[kind]
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "labels": labels(identity)},
        "webhooks": list(webhooks),
    }


def conversion(crd_name: str, address: Address) -> JsonObject:
    """Returns the `conversion` of a definition."""
    client = {**address.client_config(conversion_path(crd_name)), **_authority(address)}
    return {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}}


def _conditions(binding: Admission, not_own: JsonObject | None) -> list[JsonValue]:
    declared: list[JsonValue] = [{"name": name, "expression": text} for name, text in binding.match_conditions]
    # One more than the API server takes would lose the whole configuration.
    if not_own is None or len(declared) >= _MOST_CONDITIONS or not any(map(_concerns_stores, binding.rules)):
        return declared
    return [*declared, not_own]


def _concerns_stores(rule: AdmissionRule) -> bool:
    return not (_CORE.isdisjoint(rule.api_groups) or _STORES.isdisjoint(rule.resources))


def _authority(address: Address) -> JsonObject:
    return {"caBundle": base64.b64encode(address.authority).decode()} if address.authority else {}


def _rule(rule: AdmissionRule) -> JsonObject:
    return {
        "apiGroups": list(rule.api_groups),
        "apiVersions": list(rule.api_versions),
        "resources": list(rule.resources),
        "operations": list(rule.operations),
        "scope": rule.scope,
    }
