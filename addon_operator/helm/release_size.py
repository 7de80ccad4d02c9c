"""How large a release is in etcd, and which of its objects make it so.

Pure. Helm stores chart, values and manifest of a release in one Secret, which the API server takes up to 1 MiB.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Final

from addon_operator.helm import manifest
from addon_operator.helm.manifest import Document

RELEASE_LIMIT: Final = 2**20
"""Bytes of a release Secret."""
_WORTH_A_WARNING: Final = 900_000
_SHOWN_OBJECTS: Final = 5


def stored_size(parts: Iterable[bytes]) -> int:
    """Returns how many bytes a release Secret needs for a release document: base64 of gzip."""
    packer, size = zlib.compressobj(9, wbits=zlib.MAX_WBITS | 16), 0
    for part in parts:
        size += len(packer.compress(part))
    return (size + len(packer.flush()) + 2) // 3 * 4


def warning(size: int, parts: Sequence[Document]) -> str:
    """Returns why a release is almost too large to be stored; empty if it is not.

    Args:
        size: as `stored_size` returns it.
        parts: of its manifest.
    """
    return f"{size} of {RELEASE_LIMIT} bytes; largest objects: {_largest(parts)}" if size > _WORTH_A_WARNING else ""


def explain_excess(parts: Sequence[Document], files: Sequence[bytes]) -> str:
    """Returns what makes a release too large that the API server has refused.

    Args:
        parts: of its manifest.
        files: of its chart, as they are stored: base64.
    """
    rendered = [part.text.encode() for part in parts]
    size, chart_bytes = stored_size([*rendered, *files]), sum(len(file) * 3 // 4 for file in files)
    return (
        f"the release is too large to be stored: about {size} bytes, the limit is {RELEASE_LIMIT}; "
        f"manifest {sum(map(len, rendered))} bytes, chart files {chart_bytes} bytes; "
        f"largest objects: {_largest(parts)}"
    )


def _largest(parts: Iterable[Document]) -> str:
    found = sorted(manifest.objects(parts), key=lambda item: item.size, reverse=True)[:_SHOWN_OBJECTS]
    return ", ".join(f"{item.key} ({item.size} bytes)" for item in found) or "none"
