"""Helm's post-renderer, played by the operator itself.

Helm can only start a program to edit its manifest. The program given to it is a shell of one line that hands the
manifest over through one named pipe and takes it back through another, so that no interpreter has to start for it.

The order of opening makes it safe: the operator holds both pipes open before helm starts, so nobody waits for a
partner; the shell opens the way back before it sends, so what is written there cannot get lost; and a helm that ends
early, or never comes to rendering, leaves only two file descriptors to be closed. A manifest that was cut off, since
the operator died or failed meanwhile, would make helm delete objects: the shell therefore fails unless the operator
has confirmed that it wrote everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from io import FileIO
from pathlib import Path
from typing import Final

_SCRIPT: Final = 'exec 3<"$2" && cat >"$1" && cat <&3 && test -e "$3"'
_CHUNK_BYTES: Final = 64 * 2**10

Edit = Callable[[bytes], bytes]


@contextlib.asynccontextmanager
async def relayed(directory: Path, edit: Edit) -> AsyncIterator[list[str]]:
    """Serves one helm run; gives the flags that make helm send its manifest through `edit`.

    Args:
        directory: an existing private directory for the two pipes.
        edit: gets the manifest and returns what helm shall use. Called at most once, in the event loop. If it raises,
            the helm run fails, and the error is raised when the block is left.
    """
    there, back, whole = directory / "rendered", directory / "labelled", directory / "whole"
    for path in (there, back):
        os.mkfifo(path, 0o600)
    with (
        FileIO(os.open(there, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)) as source,
        # Read and write: a pipe opened so does not wait for a partner (fifo(7)).
        FileIO(os.open(back, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC), "r+") as sink,
    ):
        task = asyncio.create_task(_serve(source, sink, whole, edit), name=f"helm relay {directory.name}")
        try:
            yield _flags(there, back, whole)
        finally:
            task.cancel()
            await asyncio.wait({task})
    if not task.cancelled():
        task.result()


def _flags(*paths: Path) -> list[str]:
    arguments = ["-c", _SCRIPT, "sh", *map(str, paths)]
    return ["--post-renderer", "/bin/sh", *(f"--post-renderer-args={argument}" for argument in arguments)]


async def _serve(source: FileIO, sink: FileIO, whole: Path, edit: Edit) -> None:
    with sink:
        with source:
            manifest = await _read(source.fileno())
        await _write(sink.fileno(), edit(manifest))
        os.close(os.open(whole, os.O_CREAT | os.O_WRONLY, 0o600))


async def _read(fd: int) -> bytes:
    """Reads to the end; a pipe that nobody has opened for writing yet is not at its end."""
    data = bytearray()
    while True:
        await _ready(fd, writing=False)
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(fd, _CHUNK_BYTES)
            if not chunk:
                return bytes(data)
            data += chunk


async def _write(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        await _ready(fd, writing=True)
        with contextlib.suppress(BlockingIOError):
            rest = rest[os.write(fd, rest[:_CHUNK_BYTES]) :]


async def _ready(fd: int, *, writing: bool) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    add, remove = (loop.add_writer, loop.remove_writer) if writing else (loop.add_reader, loop.remove_reader)

    def is_ready() -> None:
        if not ready.done():
            ready.set_result(None)

    add(fd, is_ready)
    try:
        await ready
    finally:
        remove(fd)
