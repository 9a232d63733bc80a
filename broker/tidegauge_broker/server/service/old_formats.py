"""Records for clients that know only older message formats or codecs, and whether they may read (KIP-283, KIP-110).

Source: ``KafkaApis.handleFetchRequest``, maybeConvertFetchedData.
"""

from __future__ import annotations

from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.record_batch import iterate_headers
from tidegauge_broker.formats.compression import ZSTD
from tidegauge_broker.formats.down_conversion import down_convert
from tidegauge_broker.formats.large_batches import Pause
from tidegauge_broker.replica.messages import TopicRules

LIGHT_BYTES = 16 * 1024


class ReadRecords(NamedTuple):
    """Records as a client reads them, or why it can't; ``converted_count``: how many were converted."""

    error: ErrorCode = ErrorCode.NONE
    records: bytes = b""
    converted_count: int = 0


def is_light(records: bytes, magic: int | None) -> bool:
    """Whether records are few enough to be converted on the event loop: a compressed batch may hold any number.

    Args:
        records: whole batches.
        magic: the message format that the client knows; None: it knows batches.
    """
    if magic is None:
        return True
    return len(records) <= LIGHT_BYTES and not any(header.compression for header in iterate_headers(records))


def for_old_client(
    rules: TopicRules,
    records: bytes,
    magic: int | None,
    from_offset: int,
    *,
    reads_zstd: bool,
    pause: Pause | None = None,
) -> ReadRecords:
    """Return what a client reads of whole batches.

    Args:
        rules: the topic's.
        records: the batches.
        magic: the message format that the client knows, 0 or 1; None: it knows batches.
        from_offset: what it asked for.
        reads_zstd: whether its version of Fetch may carry zstd.
        pause: in a thread beside the event loop: lets the loop run (``large_batches``).
    """
    if rules.codec is not None and rules.codec.number == ZSTD and not reads_zstd:
        return ReadRecords(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if magic is None:
        return ReadRecords(records=records)
    if not rules.down_converts:
        return ReadRecords(ErrorCode.UNSUPPORTED_VERSION)
    try:
        converted, count = down_convert(records, magic, from_offset, pause)
    except TidegaugeError as problem:
        return ReadRecords(problem.code)
    return ReadRecords(records=converted, converted_count=count)
