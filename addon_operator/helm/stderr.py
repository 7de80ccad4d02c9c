"""What helm complains about, in its own words but without the values that it quotes.

Pure. Helm itself, the validator of `values.schema.json`, template functions, the YAML reader and the API server each
quote what they refuse, which may be a secret. What a chart says by `fail` or `required` is its own text and stays.
Source: the messages of helm 3.17 to 3.21.
"""

from __future__ import annotations

import re
from typing import Final

_NOISE: Final = re.compile(r"^(WARNING:|walk\.go:|[IWEF]\d{4} |\d{4}/\d\d/\d\d |level=(info|warning))")
_PREFIX: Final = re.compile(r"^(Error: )?((UPGRADE|INSTALLATION) FAILED: )?")
# Only the last 8 KiB of a long message are kept.
_MAY_BE_CUT: Final = 8000
_TOO_LARGE: Final = ("Too long: may not be more than 1048576", "request is too large", "request entity too large")

_DOUBLE: Final = r"\"(?:\\.|[^\"\\])*\""
_SINGLE: Final = r"'(?:\\.|[^'\\])*'"
# Go structures and JSON hold spaces and brackets, but a colon and a space only within quotes.
_STRUCTURE: Final = rf"[^\s:\"{{\[]*[{{\[](?:{_DOUBLE}|[^\"\n])*?[}}\])](?=: |[,\]]*$)"
_QUOTES: Final = (
    # The API server.
    (
        re.compile(rf"(?m)((?:Invalid|Unsupported|Duplicate) value|Not found): (?:{_DOUBLE}|{_STRUCTURE}|[^\s:]+)"),
        r"\1",
    ),
    # The schema: `- at '/a/b': 'value' does not match pattern '^x'`, `- at '/a/b': maximum: got 7, want 5`.
    (re.compile(rf"(?m)^( *- at {_SINGLE}): {_SINGLE} is not valid ([\w-]+).*$"), r"\1: is not valid \2"),
    (re.compile(rf"(?m)^( *- at {_SINGLE}): (?!'(?:allOf|anyOf|oneOf|not)' failed){_SINGLE} "), r"\1: "),
    (re.compile(rf"(?m)^( *- at {_SINGLE}: \w+): got .*, want "), r"\1: want "),
    # Go's templates.
    (re.compile(r"(range can't iterate over) .*"), r"\1 it"),
    (re.compile(r"((?:if|with) can't use) .*"), r"\1 it"),
    # The YAML reader.
    (re.compile(r"(cannot (?:decode|unmarshal) !!\w+) `[^`]*`"), r"\1"),
    (re.compile(rf"(unknown anchor) {_SINGLE}"), r"\1"),
    (re.compile(r"(invalid map key): .*"), r"\1"),
)
_CALLED: Final = re.compile(r"error calling \w+: .*", re.DOTALL)
# Template functions; where they were called from is no value.
_ARGUMENT: Final = re.compile(rf"(executing {_DOUBLE} at <.*?>: )|{_DOUBLE}|`[^`]*`", re.DOTALL)


def explain(stderr: str) -> str:
    """Gives what helm complains about, without warnings, prefixes and quoted values."""
    lines = [line for line in stderr.splitlines() if line.strip() and not _NOISE.match(line)]
    begun = next((at for at, line in enumerate(lines) if line.startswith("Error:")), None)
    if begun is None and len(stderr.encode()) > _MAY_BE_CUT:
        lines[:1] = ["..."]  # what this line is the rest of may have been a value
    text = "\n".join(lines[begun or 0 :])
    for pattern, instead in _QUOTES:
        text = pattern.sub(instead, text)
    text = _CALLED.sub(lambda cause: _ARGUMENT.sub(lambda found: found[1] or "...", cause[0]), text)
    return _PREFIX.sub("", text).strip() or "no error message"


def is_too_large(stderr: str) -> bool:
    """Answers whether the API server refused the record of the release for its size."""
    return any(sign in stderr for sign in _TOO_LARGE)
