"""What is written into the cluster: webhook configurations and the conversion of CustomResourceDefinitions.

Pure. `registration.py` writes them.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote

from addon_operator.hooks.bindings import Admission, AdmissionKind, AdmissionRule
from addon_operator.jsondoc import JsonObject
from addon_operator.kube.refs import Resource
from addon_operator.webhooks.endpoint import Address

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
    """Answers the path of a binding; a validating and a mutating one of the same name have different ones."""
    path = f"/hooks/{quote(binding.name, safe='')}"
    return path if binding.kind == "kubernetesValidating" else f"{path}/mutate"


def conversion_path(crd_name: str) -> str:
    """Answers the path for the objects of one definition."""
    return f"/{quote(crd_name, safe='')}"


def labels(identity: str) -> JsonObject:
    """Answers the labels of a configuration of ours."""
    return {MANAGED_BY: "addon-operator", OPERATOR: identity}


def webhook(binding: Admission, address: Address) -> JsonObject:
    """Answers the entry of one binding."""
    entry: JsonObject = {
        "name": binding.name,
        "clientConfig": {**address.client_config(admission_path(binding)), **_authority(address)},
        "rules": [_rule(rule) for rule in binding.rules],
        "failurePolicy": binding.failure_policy,
        "sideEffects": binding.side_effects,
        "timeoutSeconds": binding.timeout_s,
        "admissionReviewVersions": ["v1"],
    }
    if binding.match_conditions:
        entry["matchConditions"] = [{"name": name, "expression": text} for name, text in binding.match_conditions]
    if binding.label_selector is not None:
        entry["objectSelector"] = binding.label_selector
    if binding.namespace_labels is not None:
        entry["namespaceSelector"] = binding.namespace_labels
    return entry


def configuration(kind: AdmissionKind, name: str, *, identity: str, webhooks: Iterable[JsonObject]) -> JsonObject:
    """Answers a whole configuration."""
    resource = RESOURCES[kind]
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "labels": labels(identity)},
        "webhooks": list(webhooks),
    }


def conversion(crd_name: str, address: Address) -> JsonObject:
    """Answers the `conversion` of a definition."""
    client = {**address.client_config(conversion_path(crd_name)), **_authority(address)}
    return {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}}


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
