"""A batch that is refused names the records because of which it is (KIP-467, LogValidator.processRecordErrors)."""

from __future__ import annotations

from typing import Any

import pytest
from core_harness import AT

from tidegauge.errors import ErrorCode
from tidegauge.record_batch import LOG_APPEND_TIME_BIT, BatchHeader, make_batch
from tidegauge_broker.formats.compression import Codec, compress
from tidegauge_broker.formats.records import StoredRecord, encode_records
from tidegauge_broker.replica import record_errors
from tidegauge_broker.replica.messages import TopicRules
from tidegauge_broker.replica.record_errors import NamedRecords, RecordError, RecordsRefused
from tidegauge_broker.replica.validation import check_batch, only_batch

NOW_MS = 1_700_000_000_000
NO_KEY = f"Compacted topic cannot accept message without key in topic partition {AT}"
GZIP, ZSTD = Codec(1), Codec(4)
LIMITED = {"timestamp_before_max_ms": 100, "timestamp_after_max_ms": 50}


def batch(keys: list[bytes | None], times: list[int] | None = None, attributes: int = 0, max_ms: int = NOW_MS) -> bytes:
    times = times or [NOW_MS] * len(keys)
    records = [StoredRecord(one, time, key, b"vv", ()) for one, (key, time) in enumerate(zip(keys, times, strict=True))]
    header = BatchHeader(0, 0, -1, 2, 0, attributes, len(keys) - 1, NOW_MS, max_ms, -1, -1, -1, len(keys), 0)
    return make_batch(header, encode_records(records, 0, NOW_MS))


def refusal(data: bytes, **rules: Any) -> RecordsRefused:
    with pytest.raises(RecordsRefused) as caught:
        check_batch(data, only_batch(data), AT, TopicRules(**rules), NOW_MS)
    return caught.value


def test_each_record_without_a_key_is_named() -> None:
    """LogValidator.validateKey, and the message of InvalidRecordException."""
    refused = refusal(batch([None, b"k", None, b"", None, None]), compacted=True)
    assert refused.code is ErrorCode.INVALID_RECORD
    assert refused.record_errors == [RecordError(index, NO_KEY) for index in (0, 2, 4, 5)]
    shown = ", ".join(f"RecordError(batchIndex={index}, message='{NO_KEY}')" for index in (0, 2, 4))
    assert refused.message == (
        "One or more records have been rejected due to 4 record errors in total, and only showing the first three "
        f"errors at most: [{shown}]"
    )


def test_one_wrong_time_makes_it_an_invalid_timestamp() -> None:
    """Every record that is wrong is named, for whatever reason; a missing key goes before a wrong time."""
    times = [NOW_MS, NOW_MS - 101, NOW_MS + 51, NOW_MS - 500]
    refused = refusal(batch([None, b"k", b"k", None], times), compacted=True, **LIMITED)
    assert (refused.code, refused.message) == (
        ErrorCode.INVALID_TIMESTAMP,
        "One or more records have been rejected due to invalid timestamp",
    )
    allowed = f"within [{NOW_MS - 100}, {NOW_MS + 50}]"
    late = f"Timestamp {times[1]} of message with offset 1 is out of range. The timestamp should be {allowed}"
    early = f"Timestamp {times[2]} of message with offset 2 is out of range. The timestamp should be {allowed}"
    assert refused.record_errors == [(0, NO_KEY), (1, late), (2, early), (3, NO_KEY)]


def test_a_batch_that_claims_the_brokers_time_names_its_records() -> None:
    """LogValidator.validateTimestamp: the producer must not set LogAppendTime."""
    refused = refusal(batch([b"key"], attributes=LOG_APPEND_TIME_BIT), log_append_time=True)
    message = f"DefaultRecord(offset=0, timestamp={NOW_MS}, key=3 bytes, value=2 bytes)"
    assert refused.code is ErrorCode.INVALID_TIMESTAMP
    assert refused.record_errors == [
        (0, f"Invalid timestamp type in message {message}. Producer should not set timestamp type to LogAppendTime.")
    ]


@pytest.mark.parametrize(
    ("codec", "shown"),
    [
        (None, "PartialDefaultRecord(offset=0, timestamp={}, key=-1 bytes, value=2 bytes)"),
        (GZIP, "PartialDefaultRecord(offset=0, timestamp={}, key=-1 bytes, value=2 bytes)"),
        (ZSTD, "DefaultRecord(offset=0, timestamp={}, key=0 bytes, value=2 bytes)"),
    ],
)
def test_a_record_of_a_batch_that_stays_compressed_is_shown_by_its_sizes(codec: Codec | None, shown: str) -> None:
    """Its key and value are skipped (DefaultRecordBatch.skipKeyValueIterator); another codec needs them."""
    records = encode_records([StoredRecord(0, NOW_MS, None, b"vv", ())], 0, NOW_MS)
    attributes = LOG_APPEND_TIME_BIT | GZIP.number
    header = BatchHeader(0, 0, -1, 2, 0, attributes, 0, NOW_MS, NOW_MS, -1, -1, -1, 1, 0)
    refused = refusal(make_batch(header, bytes(compress(GZIP.number, records))), log_append_time=True, codec=codec)
    ((_, message),) = refused.record_errors
    assert f"in message {shown.format(NOW_MS)}. Producer" in message


def test_a_batch_names_no_more_than_the_limit_and_counts_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_errors, "MAX_RECORD_ERRORS", 3)
    refused = refusal(batch([None] * 5), compacted=True)
    assert [index for index, _ in refused.record_errors] == [0, 1, 2]
    assert "due to 5 record errors in total" in refused.message


def test_a_request_names_no_more_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that would exceed it names none, so that none of its records looks sound."""
    monkeypatch.setattr(record_errors, "MAX_RECORD_ERRORS", 3)
    named, two = NamedRecords(), [RecordError(0, ""), RecordError(1, "")]
    assert [len(named.within_limit(one)) for one in (two, two, two[:1], two[:1])] == [2, 0, 1, 0]
