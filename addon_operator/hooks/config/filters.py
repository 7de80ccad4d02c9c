"""jq filters of bindings: they compile, and do not end the program. Pure; the same in all versions of the format."""

from __future__ import annotations

import re
from typing import Final

from addon_operator.documents.fields import Fields
from addon_operator.kube import jq

_TOKEN: Final = re.compile(r'"(?:\\.|[^"\\])*"|#[^\n]*|[\w.$@]+|\S', re.DOTALL)
# They would end the program with success and without a result.
_HALT: Final = ("halt", "halt_error")


def jq_filter(fields: Fields) -> str:
    """Takes the `jqFilter` of a binding, which must compile; empty for none."""
    program = fields.text("jqFilter")
    if program:
        try:
            jq.compiled(program)
        except ValueError as error:
            fields.fail("jqFilter", " ".join(str(error).split()))
        if _halts(program):
            fields.fail("jqFilter", "halt and halt_error are not possible here; error(...) makes the filter fail")
    return program


def _halts(program: str) -> bool:
    """Returns whether a jq program calls one of these; a field or a key of an object may have such a name."""
    opened: list[str] = []
    before = ""
    for token in _TOKEN.findall(program):
        if token.startswith("#"):
            continue
        is_key = opened[-1:] == ["{"] and before in ("{", ",")
        if token in _HALT and not is_key:
            return True
        if token in ("{", "[", "("):
            opened.append(token)
        elif token in ("}", "]", ")"):
            del opened[-1:]
        before = token
    return False
