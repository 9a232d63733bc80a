"""Frames of Kafka's protocol are the whole stream's, wherever reads end (NetworkReceive)."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge_broker.server.wire.kafka.frame_reader import READ_BYTES, SHARED_FRAME_BYTES, FrameReader

MAX_BYTES = 1_000_000
SIZES = st.one_of(
    st.integers(1, 9),
    st.integers(1, 3 * SHARED_FRAME_BYTES),
    st.sampled_from([SHARED_FRAME_BYTES, SHARED_FRAME_BYTES + 1, 32 * 1024, 32 * 1024 + 1, 128 * 1024]),
    st.integers(READ_BYTES - 8, READ_BYTES + 8),
    st.just(MAX_BYTES),
)
WRONG = st.one_of(st.none(), st.integers(-(2**31), 0), st.integers(MAX_BYTES + 1, 2**31 - 1))


def feed(reader: FrameReader, stream: bytes, piece: int) -> None:
    """Write a stream into the reader's buffers as a socket does: up to a piece, and up to the buffer's end."""
    at = 0
    while at < len(stream) and reader.problem is None:
        buffer = reader.buffer()
        part = stream[at : at + min(piece, len(buffer))]
        assert part, "there is room for the next bytes"
        buffer[: len(part)] = part
        reader.take(len(part))
        at += len(part)


def split(stream: bytes) -> tuple[list[bytes], bool]:
    """Split a whole stream, the plain way; and whether a wrong length ended it."""
    frames, at = [], 0
    while len(stream) - at >= 4:
        size = int.from_bytes(stream[at : at + 4], "big", signed=True)
        if not 0 < size <= MAX_BYTES:
            return frames, True
        if len(stream) - at - 4 < size:
            break
        frames.append(stream[at + 4 : at + 4 + size])
        at += 4 + size
    return frames, False


@given(st.lists(SIZES, max_size=5), WRONG, st.integers(0, 40_000), st.sampled_from([1, 7, 4_096, 65_536, 10**9]))
def test_frames_are_those_of_the_whole_stream(
    sizes: list[int], wrong: int | None, missing_bytes: int, piece: int
) -> None:
    """Frames of all sizes, a wrong length or an incomplete frame behind them, in reads of any size."""
    if piece < 4_096:
        sizes = [min(size, 40_000) for size in sizes]
    stream = b"".join(struct.pack(">i", size) + bytes([place + 1]) * size for place, size in enumerate(sizes))
    stream = stream[: len(stream) - missing_bytes] if wrong is None else stream + struct.pack(">i", wrong) + b"rest"
    reader = FrameReader(MAX_BYTES)
    feed(reader, stream, piece)
    frames, has_problem = split(stream)
    assert list(map(bytes, reader.frames)) == frames
    assert (reader.problem is not None) == has_problem


def test_frames_stay_what_they_were_while_others_are_read() -> None:
    """Rule 2: the buffer of all connections is written again; frames are views of a copy."""
    first, second = FrameReader(MAX_BYTES), FrameReader(MAX_BYTES)
    feed(first, struct.pack(">i", 3) + b"abc", 100)
    feed(second, struct.pack(">i", 3) + b"xyz", 100)
    assert bytes(first.frames[0]) == b"abc"


@pytest.mark.parametrize("come", [4, 40_000, 300_000])
def test_a_buffer_is_as_large_as_bytes_have_come(come: int) -> None:
    """Rule 3: of an announced length no more than four times as much is held as was sent, and 32 KiB."""
    reader = FrameReader(2**31 - 1)
    feed(reader, struct.pack(">i", 2**31 - 1) + bytes(come), 10**9)
    assert come + len(reader.buffer()) <= max(32 * 1024, 4 * come)
