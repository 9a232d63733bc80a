"""The plain twins of compiled helpers give the same bytes, numbers and records."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from crc32c import crc32c as compiled_crc32c
from hypothesis import given
from hypothesis import strategies as st

from tidegauge import checksum, compressors, record_codec
from tidegauge.checksum import plain_crc32c
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.plain_record_codec import PlainRecordBatch, PlainRecordBatchBuilder
from tidegauge_proof.simulator.story_digest import digest_of

_FIELD = st.none() | st.binary(max_size=300)
_RECORDS = st.lists(
    st.tuples(st.integers(0, 2**41), _FIELD, _FIELD, st.lists(st.tuples(st.text(max_size=8), _FIELD), max_size=3)),
    min_size=1,
    max_size=20,
)
_SETTINGS = {"magic": 2, "is_transactional": 0, "producer_id": 7, "producer_epoch": 3, "base_sequence": 11}


@given(st.binary(max_size=2000), st.binary(max_size=200))
def test_the_plain_checksum_is_the_compiled_one(first: bytes, second: bytes) -> None:
    assert plain_crc32c(first) == compiled_crc32c(first)
    assert plain_crc32c(second, plain_crc32c(first)) == compiled_crc32c(first + second)


def test_the_checksum_of_the_rfc() -> None:
    """RFC 3720, B.4: the CRCs of 32 bytes of zeros, of ones, and of 0 to 31."""
    assert plain_crc32c(bytes(32)) == 0x8A9136AA
    assert plain_crc32c(b"\xff" * 32) == 0x62A8AB43
    assert plain_crc32c(bytes(range(32))) == 0x46DD794E


@given(_RECORDS, st.sampled_from([0, 1]), st.booleans(), st.integers(61, 2000))
def test_the_plain_codec_writes_and_reads_what_the_compiled_one_does(records, codec, transactional, limit) -> None:
    settings = _SETTINGS | {"compression_type": codec, "is_transactional": int(transactional), "batch_size": limit}
    plain, compiled = PlainRecordBatchBuilder(**settings), DefaultRecordBatchBuilder(**settings)
    for index, (time_ms, key, value, headers) in enumerate(records):
        took = plain.append(index, time_ms, key, value, headers) is not None
        assert took == (compiled.append(index, time_ms, key, value, headers) is not None)
        assert plain.size() == compiled.size()
    ours, theirs = plain.build(), bytes(compiled.build())
    if codec == 0:
        assert ours == theirs
    fields = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
    read = [
        [tuple(getattr(one, field) for field in fields) for one in batch]
        for batch in (
            PlainRecordBatch(ours),
            PlainRecordBatch(theirs),
            DefaultRecordBatch(ours),
            DefaultRecordBatch(theirs),
        )
    ]
    assert all(one == read[0] for one in read)


@given(_RECORDS, st.data())
def test_the_plain_codec_never_fails_but_by_an_error_of_values(records, data) -> None:
    builder = PlainRecordBatchBuilder(**_SETTINGS, compression_type=0, batch_size=10_000)
    for index, (time_ms, key, value, headers) in enumerate(records):
        builder.append(index, time_ms, key, value, headers)
    spoilt = bytearray(builder.build())
    spoilt[data.draw(st.integers(61, len(spoilt) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(ValueError):
        list(PlainRecordBatch(bytes(spoilt)))


@pytest.mark.parametrize("codec", [2, 3, 4])
def test_the_plain_codec_refuses_a_compressor_that_it_has_not(codec: int) -> None:
    with pytest.raises(TidegaugeError) as refused:
        PlainRecordBatchBuilder(**_SETTINGS, compression_type=codec, batch_size=1000)
    assert refused.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_where_there_are_compiled_helpers_they_are_in_use() -> None:
    assert checksum.crc32c is compiled_crc32c
    assert record_codec.RecordBatch is DefaultRecordBatch
    assert compressors.cramjam.__name__ == "cramjam"


_WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Absent())
from tidegauge.compressors import cramjam
from tidegauge.errors import TidegaugeError
from tidegauge_proof.simulator.story_digest import digest_of
try:
    cramjam.lz4
except TidegaugeError as refused:
    assert refused.code.name == "UNSUPPORTED_COMPRESSION_TYPE"
print(digest_of(24, "kip-101"))
"""
_ABSENT = ("aiokafka", "click", "cramjam", "crc32c", "fcntl", "google", "grpc", "kazoo", "ssl", "_ssl", "yaml")


def test_a_history_needs_no_compiled_helper_and_is_the_same_without() -> None:
    program = _WITHOUT.format(absent=_ABSENT)
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120)
    assert said.stdout.strip() == digest_of(24, "kip-101")
