"""Large blocks and the heap, in a process of its own."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

SCRIPT = """
import ctypes
from addon_operator.process import heap

class Info(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info
{prepare}
freed = bytearray(16 * heap.LARGE_BYTES)
del freed
before = libc.mallinfo2()
kept = bytearray(2 * heap.LARGE_BYTES)
print(libc.mallinfo2().hblks - before.hblks)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc 2.33 or newer")
@pytest.mark.parametrize(
    ("prepare", "mapped_apart"),
    [
        # What would happen otherwise: the first line of this table is why the second is needed.
        ("", 0),
        ("heap.keep_large_blocks_apart()", 1),
    ],
)
def test_a_large_block_that_was_freed_brings_no_others_into_the_heap(prepare: str, mapped_apart: int) -> None:
    script = SCRIPT.format(prepare=prepare)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert int(done.stdout) == mapped_apart
