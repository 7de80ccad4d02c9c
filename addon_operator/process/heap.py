"""The heap of the C library: what it does with memory that is freed. Does nothing without glibc.

Large buffers are allocated and freed all the time: a read from a TLS connection takes one of 256 KiB, a read from a
pipe one of 64 KiB. glibc maps blocks of 128 KiB and more one by one, and unmaps them when they are freed; but the first
one that is freed raises this limit to its size, up to 32 MiB, for the life of the process. Blocks below the limit come
from the heap, where what is allocated between them and stays leaves pages that are never empty again: the heap of a
process that runs for months grows.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Final

LARGE_BYTES: Final = 64 * 2**10

# From malloc.h.
_M_MMAP_THRESHOLD: Final = -3


def keep_large_blocks_apart() -> None:
    """Keeps blocks of `LARGE_BYTES` and more out of the heap for good.

    Called once by the app, before it allocates any.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)


def return_freed_memory() -> None:
    """Returns freed memory to the system, which glibc otherwise keeps."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
