"""The frames of one connection, gathered from what its socket delivers.

Rules (Kafka's NetworkReceive):
    1. A frame is a length of four bytes and as many bytes. A length is from 1 to ``max_bytes``; with any other one
       nothing more is read, and what came before it is whole.
    2. All connections read into one buffer, out of which a read's bytes are copied once; the frames in them are views.
    3. A frame larger than such a read is gathered in a buffer of its own, which grows as bytes come: an announced
       length takes no memory.
"""

from __future__ import annotations

import struct
from collections import deque

READ_BYTES = 256 * 1024
"""Limit of one read, unless it is of a large frame."""
SHARED_FRAME_BYTES = 16 * 1024
"""An incomplete frame that is larger gets a buffer of its own."""
_FIRST_FRAME_BYTES = 32 * 1024
_GROWTH = 4
_LENGTH = struct.Struct(">i")
_HTTP2_PREFACE = int.from_bytes(b"PRI ", "big")
_TLS_HANDSHAKE = 0x1603
"""The first two bytes of a TLS client: a record of the handshake, and the version's major part (RFC 8446, 5.1)."""
_SCRATCH = memoryview(bytearray(READ_BYTES))
"""Between a read into it and the copy of its bytes nothing else runs."""


class FrameReader:
    """Gathers the frames of one connection.

    Args:
        max_bytes: the largest frame.

    Attributes:
        frames: the complete ones, oldest first; the code that handles one takes it out.
        max_bytes: may be raised while frames come.
        problem: why nothing more is read; None: no problem.
    """

    __slots__ = ("_filled_bytes", "_large", "_large_bytes", "_rest", "frames", "max_bytes", "problem")

    def __init__(self, max_bytes: int) -> None:
        self.frames: deque[memoryview] = deque()
        self.max_bytes = max_bytes
        self.problem: str | None = None
        self._rest = b""
        self._large: bytearray | None = None
        self._large_bytes = 0
        self._filled_bytes = 0

    def buffer(self) -> memoryview:
        """Return where the next bytes are to be written; it is never empty."""
        if self._large is None:
            return _SCRATCH
        if self._filled_bytes == len(self._large):
            grown = bytearray(min(self._large_bytes, _GROWTH * len(self._large)))
            grown[: self._filled_bytes] = self._large
            self._large = grown
        return memoryview(self._large)[self._filled_bytes :]

    def take(self, size_bytes: int) -> None:
        """Take in the first bytes of the buffer; ``frames`` and ``problem`` say what came of them."""
        if self._large is not None:
            self._filled_bytes += size_bytes
            if self._filled_bytes == self._large_bytes:
                self.frames.append(memoryview(self._large))
                self._large = None
        else:
            data = bytes(_SCRATCH[:size_bytes])
            self._split(self._rest + data if self._rest else data)

    def _split(self, data: bytes) -> None:
        """Split bytes into frames; an incomplete frame waits for more, a larger one in a buffer of its own."""
        view = memoryview(data)
        at, end = 0, len(data)
        while end - at >= _LENGTH.size and self.problem is None:
            (size,) = _LENGTH.unpack_from(data, at)
            if not 0 < size <= self.max_bytes:
                self.problem = _size_problem(size, self.max_bytes)
                break
            if end - at - _LENGTH.size < size:
                if size > SHARED_FRAME_BYTES:
                    self._filled_bytes = end - at - _LENGTH.size
                    self._large_bytes = size
                    self._large = bytearray(min(size, _FIRST_FRAME_BYTES))
                    self._large[: self._filled_bytes] = view[at + _LENGTH.size :]
                    at = end
                break
            at += _LENGTH.size
            self.frames.append(view[at : at + size])
            at += size
        self._rest = bytes(view[at:]) if at < end else b""


def _size_problem(size: int, max_bytes: int) -> str:
    if size == _HTTP2_PREFACE:
        return "an HTTP/2 client, such as gRPC's, on a listener of Kafka's protocol; use the gRPC listener's port"
    if size >> 16 == _TLS_HANDSHAKE:
        return (
            "a TLS client on a listener of plain text; give the client the port of an SSL listener, or "
            "security.protocol=PLAINTEXT (SASL_PLAINTEXT if it authenticates itself)"
        )
    return f"a frame of {size} bytes; sizes are from 1 to {max_bytes} (socket.request.max.bytes)"
