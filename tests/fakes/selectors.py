"""Which objects the label and field selectors of the API mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.kube.refs import metadata_of

_TERM = re.compile(r"(!?)\s*([\w./-]+)\s*(?:(==|=|!=|\bnotin\b|\bin\b)\s*(?:\(([^)]*)\)|([^,()]*)))?\s*(?:,|$)")

Matches = Callable[[JsonObject], bool]


def selector(query: Mapping[str, str]) -> Matches:
    """Returns what tells whether an object is meant by `labelSelector` and `fieldSelector`."""
    labels = _terms(query.get("labelSelector", ""))
    fields = _terms(query.get("fieldSelector", ""))

    def matches(item: JsonObject) -> bool:
        found = metadata_of(item).get("labels")
        values = found if isinstance(found, dict) else {}
        return all(_holds(values.get(key), operator, wanted) for key, operator, wanted in labels) and all(
            _holds(_field(item, path) or "", operator, wanted) for path, operator, wanted in fields
        )

    return matches


def _terms(text: str) -> list[tuple[str, str, frozenset[str]]]:
    found = []
    for negation, key, operator, several, single in _TERM.findall(text):
        values = frozenset(value.strip() for value in several.split(",")) if several else frozenset({single.strip()})
        found.append((key, operator or ("absent" if negation else "exists"), values))
    return found


def _holds(value: JsonValue, operator: str, values: frozenset[str]) -> bool:
    match operator:
        case "exists":
            return value is not None
        case "absent":
            return value is None
        case "=" | "==" | "in":
            return value is not None and str(value) in values
        case _:
            return value is None or str(value) not in values


def _field(item: JsonObject, path: str) -> JsonValue:
    here: JsonValue = item
    for name in path.split("."):
        here = here.get(name) if isinstance(here, dict) else None
    return here
