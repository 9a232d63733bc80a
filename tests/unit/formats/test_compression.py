"""Codecs as Kafka's brokers use them: others can decompress the results, and gzip and LZ4 have Kafka's headers."""

from __future__ import annotations

import contextlib
import gzip

import pytest
from aiokafka import codec as aiokafka_codec
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.errors import TidegaugeError
from tidegauge_broker.formats.compression import GZIP, LZ4, SNAPPY, ZSTD, compress, decompress

data = st.binary(min_size=1, max_size=300) | st.integers(1, 300).map(lambda times: bytes(range(256)) * times)
DECODE = {
    GZIP: gzip.decompress,
    SNAPPY: aiokafka_codec.snappy_decode,
    LZ4: aiokafka_codec.lz4_decode,
    ZSTD: aiokafka_codec.zstd_decode,
}


@given(number=st.sampled_from(list(DECODE)), content=data, level=st.none() | st.integers(1, 9))
def test_others_decompress_what_is_compressed(number: int, content: bytes, level: int | None) -> None:
    assert bytes(DECODE[number](compress(number, content, level=level))) == content


@given(number=st.sampled_from([GZIP, SNAPPY, LZ4]), magic=st.sampled_from([0, 1]), content=data)
def test_what_is_compressed_is_decompressed(number: int, magic: int, content: bytes) -> None:
    assert bytes(decompress(number, compress(number, content, magic), magic)) == content


def test_gzip_is_javas() -> None:
    """GZIPOutputStream writes neither a time nor an operating system; Kafka 3.9.1 gave these bytes for this record."""
    record = bytes.fromhex("0e00000001027600")
    assert compress(GZIP, record)[:10] == bytes.fromhex("1f8b08000000000000ff")


def test_lz4_blocks_are_kafkas() -> None:
    """Blocks of 64 KB, independent, stored if they would grow; no checksums, no content size."""
    incompressible = bytes((index * 7919 >> 3 ^ index * 31) & 0xFF for index in range(20))
    frame = compress(LZ4, incompressible)
    assert frame == bytes.fromhex("04224d18604082") + b"\x14\0\0\x80" + incompressible + bytes(4)


def test_format_0_has_the_checksum_of_kafka_0_8() -> None:
    """KAFKA-3160: over the frame's magic number, too. Kafka 3.9.1 writes these bytes."""
    assert compress(LZ4, b"x", 0)[:7] == bytes.fromhex("04224d1860401a")


def test_any_checksum_will_do_in_format_0_alone() -> None:
    frame = bytearray(compress(LZ4, b"x" * 99))
    frame[6] ^= 1
    assert bytes(decompress(LZ4, bytes(frame), 0)) == b"x" * 99
    with pytest.raises(TidegaugeError):
        decompress(LZ4, bytes(frame), 1)


@given(st.binary(max_size=60))
def test_any_frame_of_format_0_is_read_or_refused(rest: bytes) -> None:
    with contextlib.suppress(TidegaugeError):
        decompress(LZ4, bytes.fromhex("04224d18604082") + rest, 0)
