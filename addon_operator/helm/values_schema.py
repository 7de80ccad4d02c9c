"""What of the values a chart's `values.schema.json` can take at all.

Pure. Helm checks the values itself; this is only about what the operator adds although it says nothing: charts that
were not written for it may allow no other keys than their own. Source: contract.md 2.7 (values for helm), 2.12.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue


@dataclasses.dataclass(frozen=True, slots=True)
class ClosedRoot:
    """The keys that a schema allows at its root: by name, and by regular expression."""

    names: frozenset[str]
    patterns: tuple[str, ...]

    def allows(self, key: str) -> bool:
        """Returns whether the schema names a key; a pattern that only helm can read is none here."""
        return key in self.names or any(_matches(pattern, key) for pattern in self.patterns)


def closed_root(schema: JsonValue) -> ClosedRoot | None:
    """Reads what closes the root of a schema, also behind references; None if it is open."""
    part, seen = schema, set[str]()
    while isinstance(part, dict) and part.get("additionalProperties") is not False:
        reference = str(part.get("$ref") or "")
        if not reference.startswith("#/") or reference in seen:
            return None
        seen.add(reference)
        try:
            part = jsondoc.lookup(schema, reference[1:])
        except KeyError:
            return None
    if not isinstance(part, dict):
        return None
    names, patterns = part.get("properties"), part.get("patternProperties")
    return ClosedRoot(
        frozenset(names if isinstance(names, dict) else ()), tuple(patterns if isinstance(patterns, dict) else ())
    )


def without_disallowed(root: ClosedRoot | None, values: JsonObject) -> JsonObject:
    """Returns the values without those that a closed root does not allow: `global`, and what is empty.

    A section that says something stays, so that helm refuses it in its own words.
    """
    if root is None:
        return values
    return {key: value for key, value in values.items() if root.allows(key) or (key != "global" and value != {})}


def _matches(pattern: str, key: str) -> bool:
    with contextlib.suppress(re.error):
        return re.search(pattern, key) is not None
    return False
