"""What a subscription wants of each object: a filter's result, the whole object, both, or only its name.

Pure. Source: contract.md 2.2, 2.3.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Final

from addon_operator.kube import jq

_TYPE: Final = "(?:null|boolean|number|string|array|object)"
# Those of jq's messages of which we know where they quote the object.
_MESSAGES: Final = tuple(
    (re.compile(pattern, re.DOTALL), words)
    for pattern, words in (
        (
            rf"({_TYPE}) \(.*\) and ({_TYPE}) \(.*\) cannot be (added|subtracted|multiplied|divided)",
            r"\1 and \2 cannot be \3",
        ),
        (rf"Cannot (index|iterate over) ({_TYPE})(?![a-z])", r"cannot \1 \2"),
        (rf"({_TYPE}) \(.*\) (cannot be [a-z]+|has no [a-z]+|is not a [a-z]+)", r"\1 \2"),
    )
)


@dataclasses.dataclass(frozen=True, slots=True)
class Projection:
    """What is kept of each object; equal projections share one store.

    Attributes:
        jq_filter: a program that compiles; empty for none.
        keep_objects: whether whole objects are kept beside the results of the filter.
    """

    jq_filter: str = ""
    keep_objects: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Filtered:
    """What a jq filter made of one object.

    Attributes:
        result: JSON: `null` for no output, the value for one, an array for several.
        error: why it failed, without what the object contains; the result is `null` then.
    """

    result: bytes
    error: str | None = None


def run_filter(run: jq.Run, source: str, document: bytes) -> Filtered:
    """Runs a jq filter on one object."""
    try:
        outputs = run(source, document)
    except jq.Stopped as error:
        return Filtered(b"null", str(error))
    except ValueError as error:
        return Filtered(b"null", _without_contents(str(error)))
    return Filtered(outputs[0] if len(outputs) == 1 else b"[%s]" % b",".join(outputs) if outputs else b"null")


def _without_contents(message: str) -> str:
    for pattern, words in _MESSAGES:
        if match := pattern.match(message):
            return match.expand(words)
    return "the program ends with an error"
