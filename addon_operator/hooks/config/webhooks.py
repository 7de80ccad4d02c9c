"""Admission and conversion bindings. Pure. Source: contract.md 2.2, 2.14."""

from __future__ import annotations

import re

from addon_operator.documents.fields import Fields
from addon_operator.hooks.config import selectors, snapshots
from addon_operator.hooks.config.model import CONVERSION, Admission, AdmissionKind, AdmissionRule, Conversion


def admission(fields: Fields, kind: AdmissionKind) -> Admission:
    """Takes one binding to admission reviews."""
    name = fields.text("name", required=True)
    if name and not re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?){2,}", name):
        fields.fail("name", "must be a domain name of at least three parts")
    timeout_s = fields.integer("timeoutSeconds", 10)
    if not 1 <= timeout_s <= 30:
        fields.fail("timeoutSeconds", "must be from 1 to 30")
    return Admission(
        kind=kind,
        name=name,
        rules=fields.each("rules", _rule, required=True),
        failure_policy=fields.choice("failurePolicy", ("Fail", "Ignore"), "Fail"),
        side_effects=fields.choice("sideEffects", ("None", "NoneOnDryRun"), "None"),
        timeout_s=timeout_s,
        match_conditions=fields.each("matchConditions", _match_condition, minimum=0),
        label_selector=fields.one("labelSelector", selectors.label_selector_object),
        namespace_labels=fields.one(
            "namespace", lambda item: item.one("labelSelector", selectors.label_selector_object)
        ),
        include_snapshots_from=snapshots.includes(fields),
        group=fields.text("group"),
    )


def conversion(fields: Fields) -> Conversion:
    """Takes one binding to conversion reviews."""
    return Conversion(
        name=fields.text("name", CONVERSION) or CONVERSION,
        crd_name=fields.text("crdName", required=True),
        steps=fields.each("conversions", _step, required=True),
        include_snapshots_from=snapshots.includes(fields),
        group=fields.text("group"),
    )


def _rule(fields: Fields) -> AdmissionRule:
    return AdmissionRule(
        api_groups=fields.texts("apiGroups", minimum=1, required=True),
        api_versions=fields.texts("apiVersions", minimum=1, required=True),
        resources=fields.texts("resources", minimum=1, required=True),
        operations=fields.texts(
            "operations", allowed=("CREATE", "UPDATE", "DELETE", "CONNECT", "*"), minimum=1, required=True
        ),
        scope=fields.choice("scope", ("Cluster", "Namespaced", "*"), "*"),
    )


def _match_condition(fields: Fields) -> tuple[str, str]:
    return fields.text("name", required=True), fields.text("expression", required=True)


def _step(fields: Fields) -> tuple[str, str]:
    return fields.text("fromVersion", required=True), fields.text("toVersion", required=True)
