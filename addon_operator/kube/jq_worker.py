"""The program that runs jq filters for `filters`, in a process of its own: a filter may end it, and nothing else.

Reads requests from stdin and writes replies to stdout until stdin ends. Imports little: it starts in a tenth of a
second.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import struct
import sys
from pathlib import Path
from typing import Final

from addon_operator.kube.jq import compiled

REQUEST: Final = struct.Struct("<II")
"""Lengths of the program and of the document, which follow."""
REPLY: Final = struct.Struct("<BI")
"""Whether there is an error, and the length of what follows: the outputs, one a line, or the message."""
CPU_S: Final = 0.2
"""How much CPU time one run may take, plus `CPU_S_PER_MIB` for the size of the document: far more than the usual."""
CPU_S_PER_MIB: Final = 1.0
MEMORY_BYTES: Final = 512 * 2**20
"""How large the address space of the process may become."""
MOST_OUTPUT_BYTES: Final = 16 * 2**20


def main() -> None:
    """Works until stdin ends."""
    # Ctrl-C in a terminal reaches the whole group; the operator ends when it has stopped, and its worker with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Where memory is short, this process goes rather than the operator.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    while header := _read(REQUEST.size):
        program, document = map(_read, REQUEST.unpack(header))
        # SIGPROF ends the process.
        signal.setitimer(signal.ITIMER_PROF, CPU_S + CPU_S_PER_MIB * len(document) / 2**20)
        failed, data = _run(program.decode(), document)
        signal.setitimer(signal.ITIMER_PROF, 0)
        _write(REPLY.pack(failed, len(data)) + data)


def _run(program: str, document: bytes) -> tuple[bool, bytes]:
    try:
        output = b"\n".join(compiled(program).run(document))
    except ValueError as error:
        return True, str(error).encode(errors="replace")
    if len(output) > MOST_OUTPUT_BYTES:
        return True, b"the result is larger than 16 MiB"
    return False, output


def _read(size: int) -> bytes:
    """Reads so many bytes; ends the process, or returns nothing, where stdin ends."""
    pieces, left = [], size
    while left and (piece := os.read(0, left)):
        pieces.append(piece)
        left -= len(piece)
    if left and left != size:
        sys.exit(1)
    return b"".join(pieces)


def _write(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]
