"""What clients read that know only older message formats or codecs, and whether they may (KIP-283, KIP-110).

Source: ``KafkaApis.handleFetchRequest``, maybeConvertFetchedData.
"""

from __future__ import annotations

from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_broker.formats.compression import ZSTD
from tidegauge_broker.formats.down_conversion import down_convert
from tidegauge_broker.replica.messages import TopicRules


class ReadRecords(NamedTuple):
    """Records as a client reads them, or why it can't; ``converted_count``: how many were converted."""

    error: ErrorCode = ErrorCode.NONE
    records: bytes = b""
    converted_count: int = 0


def for_old_client(
    rules: TopicRules, records: bytes, magic: int | None, from_offset: int, *, reads_zstd: bool
) -> ReadRecords:
    """Return what a client reads of whole batches.

    Args:
        rules: the topic's.
        records: the batches.
        magic: the message format that the client knows, 0 or 1; None: it knows batches.
        from_offset: what it asked for.
        reads_zstd: whether its version of Fetch may carry zstd.
    """
    if rules.codec is not None and rules.codec.number == ZSTD and not reads_zstd:
        return ReadRecords(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if magic is None:
        return ReadRecords(records=records)
    if not rules.down_converts:
        return ReadRecords(ErrorCode.UNSUPPORTED_VERSION)
    try:
        converted, count = down_convert(records, magic, from_offset)
    except TidegaugeError as problem:
        return ReadRecords(problem.code)
    return ReadRecords(records=converted, converted_count=count)
