r"""Lines to produce, as bytes: split at ``\n`` only, nothing decoded or stripped.

A final newline makes no extra record; an empty line is an empty value. Input that may block (terminal, pipe) is read
by a daemon thread, so that records are sent while the next one is still being typed, and Ctrl-C ends at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import stat
import threading
from collections.abc import AsyncIterator
from typing import IO

CHUNK_BYTES = 1 << 18
CHUNKS_AHEAD = 4


class Splitter:
    """Splits a stream of bytes into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that are complete now."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return lines

    def end(self) -> list[bytes]:
        """Return the last line, if no newline ends it."""
        return [self._rest] if self._rest else []


async def read_lines(stream: IO[bytes]) -> AsyncIterator[list[bytes]]:
    """Read a stream to its end, some lines at a time."""
    splitter = Splitter()
    if _is_regular_file(stream):
        while chunk := stream.read(CHUNK_BYTES):
            yield splitter.feed(chunk)
    else:
        async for chunk in _read_in_thread(stream):
            yield splitter.feed(chunk)
    yield splitter.end()


def _is_regular_file(stream: IO[bytes]) -> bool:
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, io.UnsupportedOperation):
        return True


async def _read_in_thread(stream: IO[bytes]) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue(CHUNKS_AHEAD)
    # Past the buffer, which has not been read from yet: its lock, held by a thread that waits for a line, would make
    # the interpreter abort at its end (Ctrl-C).
    descriptor = stream.fileno()

    def read() -> None:
        # The loop may be closed when a line arrives at last; the line is dropped then.
        with contextlib.suppress(RuntimeError, OSError, ValueError):
            while True:
                chunk = os.read(descriptor, CHUNK_BYTES)
                asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()
                if not chunk:
                    return

    threading.Thread(target=read, name="lines", daemon=True).start()
    while chunk := await chunks.get():
        yield chunk
