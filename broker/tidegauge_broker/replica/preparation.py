"""Preparation of a producer's batch before it is appended, and whether the event loop may do it.

Rules:
    1. Checks, conversion of an old format, and recompression need the batch and the partition's rules and nothing else;
       so a batch that takes long is prepared in a thread, and appended as prepared (``ProducePartition.prepared``).
    2. A request is light, and is prepared on the loop while it is appended, if its batches are of at most
       ``LIGHT_BYTES`` together, decompressed, and need no conversion of more than ``LIGHT_CONVERSIONS`` records.
    3. Whether compressed records are few is known when they are decompressed; a light one is decompressed once, for
       both (``ProducePartition.inflated``).
Kafka does the same in its request handler threads, so that a large batch keeps one of several busy.
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.record_batch import COMPRESSION_MASK, HEADER_BYTES, LOG_APPEND_TIME_BIT, BatchHeader, Buffer, read_header
from tidegauge.record_inflation import inflated
from tidegauge_broker.formats.large_batches import Pause
from tidegauge_broker.formats.recompression import recompress
from tidegauge_broker.formats.times import with_create_time
from tidegauge_broker.formats.up_conversion import up_convert
from tidegauge_broker.replica.messages import Prepared, ProducePartition, ProduceRequest, TopicRules
from tidegauge_broker.replica.validation import check_batch, check_size, only_batch

LIGHT_BYTES = 256 * 1024
LIGHT_CONVERSIONS = 500
_SURELY_LIGHT_BYTES = 32 * 1024
_ATTRIBUTES_AT = 22
_CODEC_OF_MESSAGE_AT = 17
_LEAST_MESSAGE_BYTES = 26


class Preparation:
    """The preparation of one heavy batch by the rules that its topic has now.

    Args:
        item: the batch; it is ``prepared`` afterwards.
        rules: the topic's.
        wall_ms: the wall-clock time, by which the records' times are judged.
    """

    def __init__(self, item: ProducePartition, rules: TopicRules, wall_ms: int) -> None:
        self.item = item
        self._rules = rules
        self._wall_ms = wall_ms

    def run(self, pause: Pause) -> Prepared:
        """Prepare the batch; call it in a thread.

        Args:
            pause: lets the event loop run.
        """
        return prepare(self.item, self._rules, self._wall_ms, pause=pause)


def prepare(
    item: ProducePartition,
    rules: TopicRules,
    wall_ms: int,
    *,
    header: BatchHeader | None = None,
    from_coordinator: bool = False,
    pause: Pause | None = None,
) -> Prepared:
    """Check a batch, and convert it if the topic or the log requires it.

    Args:
        item: the batch.
        rules: the topic's.
        wall_ms: the wall-clock time.
        header: of the batch, if that is at hand.
        from_coordinator: whether a coordinator of this broker appends it.
        pause: in a thread beside the event loop: lets the loop run (``large_batches``).
    """
    records, name, converted_count = item.records, item.topic_partition, 0
    try:
        if item.is_message_set:
            conversion = up_convert(
                records,
                name,
                rules.max_message_bytes,
                rules.codec,
                log_append_time=rules.log_append_time,
                pause=pause,
            )
            if conversion is None:
                return Prepared()
            records, converted_count = conversion
        if header is None:
            header = only_batch(records)
        whole = None if item.is_message_set else item.inflated
        check_batch(records, header, name, rules, wall_ms, from_coordinator=from_coordinator, whole=whole, pause=pause)
        if header.attributes & LOG_APPEND_TIME_BIT:
            records = with_create_time(records, header)
            header = only_batch(records)
        changed = None if rules.codec is None else recompress(records, header, rules.codec, pause)
        if changed is not None:
            check_size(changed.header, name, rules)
            records, converted_count = changed.batch(), changed.header.record_count
            header = only_batch(records)
    except TidegaugeError as refusal:
        return Prepared(header=header, refusal=refusal)
    return Prepared(records, header, converted_count)


class Allowance:
    """The rest of one request's allowance on the event loop; rule 2."""

    def __init__(self) -> None:
        self._bytes = LIGHT_BYTES

    def is_heavy(self, item: ProducePartition, rules: TopicRules) -> bool:
        """Whether a batch must be prepared elsewhere; else it is counted, and decompressed by rule 3."""
        records = item.records
        if len(records) > self._bytes:
            return True
        if item.is_message_set:
            return self._is_heavy_set(records)
        if len(records) < HEADER_BYTES:
            return False
        if rules.codec is not None and read_count(records) > LIGHT_CONVERSIONS:
            return True
        if records[_ATTRIBUTES_AT] & COMPRESSION_MASK:
            try:
                item.inflated = inflated(records, self._bytes)
            except TidegaugeError as problem:
                return problem.code is ErrorCode.RECORD_LIST_TOO_LARGE
            records = item.inflated
        self._bytes -= len(records)
        return False

    def _is_heavy_set(self, records: Buffer) -> bool:
        if len(records) > _CODEC_OF_MESSAGE_AT and records[_CODEC_OF_MESSAGE_AT] & COMPRESSION_MASK:
            return True
        if len(records) > LIGHT_CONVERSIONS * _LEAST_MESSAGE_BYTES:
            return True
        self._bytes -= len(records)
        return False


def read_count(records: Buffer) -> int:
    """Return a batch's record count by its header; 0 if malformed."""
    try:
        return read_header(records).record_count
    except TidegaugeError:
        return 0


def is_surely_light(request: ProduceRequest) -> bool:
    """Whether a request is light under any rules of its topic, as most are; a cheap look."""
    if len(request.partitions) != 1:
        return False
    item = request.partitions[0]
    records = item.records
    return (
        _ATTRIBUTES_AT < len(records) <= _SURELY_LIGHT_BYTES
        and not item.is_message_set
        and not records[_ATTRIBUTES_AT] & COMPRESSION_MASK
    )
