"""What helm complains about, without warnings, prefixes and the values that it quotes.

Pure. What a chart says by `fail` or `required` is its own text and stays. Source: the messages of helm 3.17 to 3.21.
"""

from __future__ import annotations

import re
from typing import Final

from addon_operator.redaction.messages import redact

_NOISE: Final = re.compile(r"^(WARNING:|walk\.go:|[IWEF]\d{4} |\d{4}/\d\d/\d\d |level=(info|warning))")
_PREFIX: Final = re.compile(r"^(Error: )?((UPGRADE|INSTALLATION) FAILED: )?")
# Only the last 8 KiB of a long message are kept.
_MAY_BE_CUT: Final = 8000
_TOO_LARGE: Final = ("Too long: may not be more than 1048576", "request is too large", "request entity too large")


def explain(stderr: str) -> str:
    """Returns what helm complains about, without warnings, prefixes and values."""
    lines = [line for line in stderr.splitlines() if line.strip() and not _NOISE.match(line)]
    begun = next((at for at, line in enumerate(lines) if line.startswith("Error:")), None)
    if begun is None and len(stderr.encode()) > _MAY_BE_CUT:
        lines[:1] = ["..."]  # what this line is the rest of may have been a value
    text = _PREFIX.sub("", "\n".join(lines[begun or 0 :]))
    return redact(text) or "no error message"


def is_too_large(stderr: str) -> bool:
    """Returns whether the API server refused the record of the release for its size."""
    return any(sign in stderr for sign in _TOO_LARGE)
