"""Selectors: which names, namespaces, labels and fields a binding asks for, checked as the API server checks them.

Pure. Source: contract.md 2.2; Kubernetes: labels and selectors, field selectors, object names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from addon_operator.documents.fields import Fields
from addon_operator.documents.jsondoc import JsonObject

_EQUAL: Final = ("=", "==", "Equals")
_NOT_EQUAL: Final = ("!=", "NotEquals")
_WORD: Final = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_DOMAIN: Final = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
_LABEL_KEY: Final = re.compile(rf"((?=[^/]{{1,253}}/){_DOMAIN}/)?{_WORD}")
_LABEL_VALUE: Final = re.compile(rf"({_WORD})?")
_NAMESPACE_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
# Some kinds allow more than domain names, ClusterRoles for instance `system:node`.
_OBJECT_NAME: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._:@$~+-]{1,253}")
_MEANINGS: Final[Mapping[re.Pattern[str], str]] = {
    _LABEL_KEY: "a label key such as app or example.com/app",
    _LABEL_VALUE: "a label value: at most 63 letters, digits, '-', '_' and '.', a letter or digit at both ends",
    _NAMESPACE_NAME: "a namespace name",
    _OBJECT_NAME: "an object name",
}


def object_name(fields: Fields, key: str) -> tuple[str, ...]:
    """Takes the name of one object; empty for all objects."""
    name = fields.text(key)
    if name:
        _check(fields, key, name, _OBJECT_NAME)
    return (name,) if name else ()


def object_names(fields: Fields) -> tuple[str, ...]:
    """Takes the names in a `nameSelector`."""
    return _names(fields, "matchNames", _OBJECT_NAME, required=True)


def namespace_names(fields: Fields, key: str, *, required: bool = False) -> tuple[str, ...]:
    """Takes a list of namespace names."""
    return _names(fields, key, _NAMESPACE_NAME, required=required)


def namespaces(fields: Fields) -> tuple[tuple[str, ...], str | None]:
    """Takes a `namespace`: names, and the label selector for namespaces (None if there is none)."""
    if not fields.map:
        fields.errors.append(f"{fields.path}: needs nameSelector or labelSelector")
    # The documents show a plain list here, too: contract.md 2.2.
    if isinstance(fields.map.get("nameSelector"), list):
        names = namespace_names(fields, "nameSelector")
    else:
        names = fields.one("nameSelector", lambda item: namespace_names(item, "matchNames", required=True)) or ()
    return names, fields.one("labelSelector", label_selector)


def label_selector(fields: Fields) -> str:
    """Takes a LabelSelector as the API's parameter `labelSelector` wants it."""
    if not fields.map:
        fields.errors.append(f"{fields.path}: needs matchLabels or matchExpressions")
    labels = fields.one("matchLabels", _labels) or ()
    return ",".join((*labels, *fields.each("matchExpressions", _label_requirement, minimum=0)))


def label_selector_object(fields: Fields) -> JsonObject:
    """Takes a LabelSelector, checked, as the object that it is."""
    label_selector(fields)
    return fields.map


def field_selector(fields: Fields) -> str:
    """Takes the `fieldSelector` of a binding as the API's parameter `fieldSelector` wants it; empty for all objects."""
    requirements = (
        fields.one("fieldSelector", lambda item: item.each("matchExpressions", _field_requirement, required=True)) or ()
    )
    if fields.has("nameSelector") and any(field == "metadata.name" for field, _ in requirements):
        fields.fail("fieldSelector", "metadata.name is not possible together with nameSelector")
    return ",".join(field + condition for field, condition in requirements)


def _labels(fields: Fields) -> tuple[str, ...]:
    labels = {key: fields.text(key) for key in sorted(fields.map)}
    for key, value in labels.items():
        _check(fields, key, key, _LABEL_KEY)
        _check(fields, key, value, _LABEL_VALUE)
    return tuple(f"{key}={value}" for key, value in labels.items())


def _label_requirement(fields: Fields) -> str:
    key = fields.text("key", required=True)
    if key:
        _check(fields, "key", key, _LABEL_KEY)
    operator = fields.choice("operator", ("In", "NotIn", "Exists", "DoesNotExist"), required=True)
    values = _names(fields, "values", _LABEL_VALUE)
    if not operator:
        return key
    if operator in {"In", "NotIn"}:
        if not values:
            fields.fail("values", f"is required with operator {operator}")
        return f"{key} {operator.lower()} ({','.join(sorted(values))})"
    if values:
        fields.fail("values", f"is not possible with operator {operator}")
    return key if operator == "Exists" else f"!{key}"


def _field_requirement(fields: Fields) -> tuple[str, str]:
    """Takes a field's name, and the condition that the API wants behind it."""
    operator = fields.choice("operator", (*_EQUAL, *_NOT_EQUAL), required=True)
    field, value = fields.text("field", required=True), fields.take("value", str, "", required=True)
    escaped = "".join(f"\\{letter}" if letter in "\\,=" else letter for letter in value)
    return field, ("=" if operator in _EQUAL else "!=") + escaped


def _names(fields: Fields, key: str, pattern: re.Pattern[str], *, required: bool = False) -> tuple[str, ...]:
    names = fields.texts(key, required=required)
    for index, name in enumerate(names):
        _check(fields, f"{key}[{index}]", name, pattern)
    return names


def _check(fields: Fields, key: str, text: str, pattern: re.Pattern[str]) -> None:
    """Notes what the API server would refuse, or could never match."""
    if not pattern.fullmatch(text):
        fields.fail(key, f"{text!r} is not {_MEANINGS[pattern]}")
