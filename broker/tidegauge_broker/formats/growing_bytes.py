"""Bytes that grow in a thread beside the event loop, and are given back without a moment that would stop the others.

Up to ``_MAPPED_FROM_BYTES`` they are a ``bytearray``. A larger one would be given back to the system in one step while
no other thread runs: 90 MiB take some 10 ms of CPU, and hundreds of milliseconds on a busy machine. Mapped memory is
given back while the other threads run.
"""

from __future__ import annotations

import mmap

from tidegauge.record_batch import Buffer

_MAPPED_FROM_BYTES = 1 << 20


class GrowingBytes:
    """Append with ``extend``, then take the ``content``."""

    def __init__(self) -> None:
        self._room: bytearray | mmap.mmap = bytearray()
        self._size_bytes = 0

    def extend(self, data: Buffer) -> None:
        """Append some bytes."""
        end = self._size_bytes + len(data)
        if isinstance(self._room, bytearray) and end <= _MAPPED_FROM_BYTES:
            self._room.extend(data)
        else:
            self._with_room_for(end)[self._size_bytes : end] = data
        self._size_bytes = end

    def _with_room_for(self, size_bytes: int) -> mmap.mmap:
        room = self._room
        if isinstance(room, bytearray):
            mapped = mmap.mmap(-1, 2 * size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            mapped[: len(room)] = bytes(room)
            self._room = mapped
            return mapped
        if size_bytes > len(room):
            room.resize(2 * size_bytes)  # only pages that were written to take memory
        return room

    def __len__(self) -> int:
        """Return how many bytes were appended."""
        return self._size_bytes

    @property
    def content(self) -> memoryview:
        """All bytes; none may be appended while the view is held."""
        return memoryview(self._room)[: self._size_bytes]
