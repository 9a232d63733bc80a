"""Record batches that lie (Kafka's LogValidator): refused, or kept and distinguished from sound ones later."""

from __future__ import annotations

import asyncio
import gzip
import random
from typing import Any

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hostile_broker import NOW_MS, HostileBroker
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import BatchHeader, make_batch, read_header
from tidegauge.record_inflation import inflated
from tidegauge.v1 import fetch_pb2, offsets_pb2, produce_pb2
from tidegauge_broker.replica.messages import TopicRules
from tidegauge_broker.replica.validation import check_batch, only_batch

AT = TopicPartition("t", 0)
LIMIT_BYTES = 1 << 20
CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
ODD = (0, 1, -1, 2, 60, 100, 2**15 - 1, -(2**15), 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
BITS = {"attributes": 16, "producer_epoch": 16, "base_offset": 64, "base_timestamp_ms": 64, "max_timestamp_ms": 64}
BITS |= {"producer_id": 64}
FIELDS = ("base_offset", "leader_epoch", "attributes", "last_offset_delta", "base_timestamp_ms", "max_timestamp_ms")
FIELDS += ("producer_id", "producer_epoch", "base_sequence", "record_count")


def sound(records: int = 3, codec: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=1 << 16,
    )  # fmt: skip
    for index in range(records):
        builder.append(index, NOW_MS + index, b"k%d" % index, b"v" * 20, [])
    return bytes(builder.build())


def with_payload(payload: bytes, codec: int = 0, **fields: int) -> bytes:
    """Return any payload behind a sound header with a fitting CRC."""
    header = read_header(sound())
    return make_batch(header._replace(attributes=codec, **fields), payload)


def mutated(random_: random.Random) -> bytes:
    """One of: bits flipped, bytes removed, another length, or header fields changed under a CRC that fits."""
    data = bytearray(sound(codec=random_.choice([0, 0, *CODECS.values()])))
    match random_.randrange(5):
        case 0:
            data[random_.randrange(len(data))] ^= 1 << random_.randrange(8)
            return bytes(data)
        case 1:
            return bytes(data[: random_.randrange(len(data))])
        case 2:
            data[8:12] = random_.choice(ODD).to_bytes(16, "big", signed=True)[-4:]
            return bytes(data)
        case 3:
            return bytes(data) * random_.randrange(0, 3) + random_.randbytes(random_.randrange(80))
    header: BatchHeader = read_header(bytes(data))
    for _ in range(random_.randrange(1, 4)):
        name = random_.choice(FIELDS)
        bits = BITS.get(name, 32)
        value = (random_.choice(ODD) + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
        header = header._replace(**{name: value})
    payload = bytes(data[61:])
    return make_batch(header, payload if random_.random() < 0.6 else random_.randbytes(random_.randrange(80)))


@settings(max_examples=examples(60), print_blob=True, deadline=None)
@given(st.integers(0, 2**32))
def test_batches_that_lie_leave_a_log_that_can_be_read_searched_and_recovered(seed: int) -> None:
    """A produce gets an error of the table or is appended; look-ups by time and fetches never raise."""

    async def run() -> None:
        random_ = random.Random(seed)
        broker = await HostileBroker().begin()
        for _ in range(20):
            part = produce_pb2.ProducePartition(topic="t", partition=0, records=mutated(random_))
            (response,) = await broker.call("Produce", produce_pb2.ProduceRequest(acks=1, partitions=[part]))
            (result,) = response.partitions
            assert result.error in set(ErrorCode)
            assert bool(result.error) == bool(result.error_message), "an error is told in a sentence"
            for timestamp_ms in (0, NOW_MS, -3, 2**63 - 1, -(2**63)):
                wanted = offsets_pb2.ListOffsetsPartition(topic="t", partition=0, timestamp_ms=timestamp_ms)
                await broker.call("ListOffsets", offsets_pb2.ListOffsetsRequest(partitions=[wanted]))
            look = fetch_pb2.FetchPartition(topic="t", partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
            await broker.call("Fetch", fetch_pb2.FetchRequest(max_bytes=1 << 20, partitions=[look]))
        broker.close()

    asyncio.run(run())


def error_of(data: bytes, **rules: Any) -> ErrorCode:
    with pytest.raises(TidegaugeError) as refusal:
        check_batch(data, only_batch(data), AT, TopicRules(**rules), NOW_MS)
    return refusal.value.code


def test_more_records_than_bytes_can_hold_are_refused() -> None:
    """A few bytes must not use up two thousand million offsets."""
    count = 2**31 - 1
    liar = with_payload(b"xxxxxxx", record_count=count, last_offset_delta=count - 1)
    assert error_of(liar) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_codec_that_does_not_exist_is_refused(codec: int) -> None:
    assert error_of(with_payload(b"xxx", codec)) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


BOMBS = {
    "gzip": lambda data: gzip.compress(data, 9),
    "lz4": lambda data: bytes(cramjam.lz4.compress(data)),
    "zstd": lambda data: bytes(cramjam.zstd.compress(data)),
}


@pytest.mark.parametrize("name", sorted(BOMBS))
def test_a_compressed_bomb_is_refused_at_the_limit(name: str) -> None:
    """However many times it grows, no more than the limit is ever made of it."""
    bomb = with_payload(BOMBS[name](bytes(32 * LIMIT_BYTES)), CODECS[name])
    assert len(bomb) < LIMIT_BYTES
    with pytest.raises(TidegaugeError, match="when decompressed") as refusal:
        inflated(bomb, LIMIT_BYTES)
    assert refusal.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    inflated(bomb, 64 * LIMIT_BYTES)
    inflated(sound(codec=CODECS[name]), LIMIT_BYTES)


def test_a_bomb_is_refused_when_it_is_produced() -> None:
    """100 MiB is the most that a batch's records may be."""
    bomb = with_payload(BOMBS["zstd"](bytes((100 << 20) + 1)), CODECS["zstd"])
    assert error_of(bomb) is ErrorCode.RECORD_LIST_TOO_LARGE


@settings(max_examples=examples(100), print_blob=True, deadline=None)
@given(st.sampled_from(sorted(CODECS)), st.binary(max_size=200))
def test_rubbish_that_claims_to_be_compressed_is_refused_where_records_are_looked_at(name: str, payload: bytes) -> None:
    """A compacted topic wants to see keys (INVALID_RECORD), and a codec that fails is no crash."""
    reported = error_of(with_payload(payload, CODECS[name], last_offset_delta=2, record_count=3), compacted=True)
    assert reported in {ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE, ErrorCode.RECORD_LIST_TOO_LARGE}
