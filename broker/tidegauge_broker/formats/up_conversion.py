"""A message set of a format before record batches, as a producer sent it, as the one batch that a leader stores.

Rules (UnifiedLog.analyzeAndValidateRecords, LogValidator), in Kafka's order, which decides which error is reported:
    1. Of each message, wrappers as they are: max.message.bytes; CRC.
    2. Nothing whole: there is nothing to append, and that is no error.
    3. A compressed message stands alone.
    4. Inside a wrapper: its format, each message's CRC, no compression.
    5. A time that is said to be a broker's: INVALID_TIMESTAMP, if the topic has its own (LogAppendTime), or there is
       no time.
    6. Offsets are assigned again, so the producer's do not count. The batch has the topic's codec, or else the
       wrapper's. Messages of format 0 have no time: -1.

Keys, times and sizes of the batch are checked as in any other batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import MAGIC, NO_PRODUCER_ID, NO_SEQUENCE, BatchHeader, Buffer, make_batch
from tidegauge_broker.formats.compression import NONE, Codec, compress
from tidegauge_broker.formats.large_batches import Pause
from tidegauge_broker.formats.messages import NO_TIMESTAMP, Message, each_unwrapped, read_messages
from tidegauge_broker.formats.records import Encoded, StoredRecord, encode_all

_NO_EPOCH = -1


class UpConversion(NamedTuple):
    """A batch with base offset 0, and how many records it holds."""

    batch: bytes
    record_count: int


def up_convert(
    records: Buffer,
    name: TopicPartition,
    max_message_bytes: int,
    target: Codec | None,
    *,
    log_append_time: bool,
    pause: Pause | None = None,
) -> UpConversion | None:
    """Convert a message set; None if it holds no complete message.

    Args:
        records: of a Produce request of version 0 to 2.
        name: the partition, for errors.
        max_message_bytes: the topic's limit for each message as it came.
        target: the topic's codec; None: the producer's.
        log_append_time: whether the topic's times are the leader's.
        pause: in a thread beside the event loop: lets the loop run (``large_batches``).

    Raises:
        TidegaugeError: why the messages are refused.
    """
    shallow: list[Message] = []
    for message in read_messages(records):
        if message.size_bytes > max_message_bytes:
            raise TidegaugeError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"The record batch size in the append to {name} is {message.size_bytes} bytes which exceeds the "
                f"maximum configured value of {max_message_bytes}.",
            )
        _check_crc(message, name)
        shallow.append(message)
    if not shallow:
        return None
    codec = next((message.codec for message in reversed(shallow) if message.codec), NONE)
    if codec and len(shallow) > 1:
        raise TidegaugeError(ErrorCode.INVALID_RECORD, "Compressed outer record has more than one batch")
    messages = _deep(shallow[0], name, pause) if codec else iter(shallow)
    times = _Times(name, shallow[0].has_append_time, log_append_time=log_append_time)
    found = encode_all(_records(messages, times), 0, pause)
    times.raise_problem()
    return UpConversion(_batch(found, target or Codec(codec)), found.record_count)


class _Times:
    """Checks times (rule 5); the error is raised after all messages were checked (LogValidator)."""

    def __init__(self, name: TopicPartition, has_append_time: bool, *, log_append_time: bool) -> None:
        self._name = name
        self._has_append_time = has_append_time
        self._log_append_time = log_append_time
        self._is_wrong = False

    def look_at(self, message: Message) -> None:
        """Note whether a message's time is wrong."""
        if self._has_append_time or message.has_append_time:
            self._is_wrong |= self._log_append_time or message.timestamp_ms == NO_TIMESTAMP

    def raise_problem(self) -> None:
        """Raise INVALID_TIMESTAMP if one was."""
        if self._is_wrong:
            raise TidegaugeError(
                ErrorCode.INVALID_TIMESTAMP,
                f"Invalid timestamp type in the append to {self._name}: only the leader sets LogAppendTime",
            )


def _records(messages: Iterator[Message], times: _Times) -> Iterator[StoredRecord]:
    for index, message in enumerate(messages):
        times.look_at(message)
        yield StoredRecord(index, message.timestamp_ms, message.key, message.value, ())


def _check_crc(message: Message, name: TopicPartition) -> None:
    if message.crc != message.computed_crc:
        raise TidegaugeError(
            ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {message.crc}) in topic partition {name}"
        )


def _deep(wrapper: Message, name: TopicPartition, pause: Pause | None) -> Iterator[Message]:
    """Yield what a wrapper holds. Rule 4."""
    for message in each_unwrapped(wrapper, pause):
        if message.magic != wrapper.magic:
            raise TidegaugeError(
                ErrorCode.INVALID_RECORD,
                f"A record's magic {message.magic} does not match outer magic {wrapper.magic} in {name}",
            )
        _check_crc(message, name)
        yield message


def _batch(found: Encoded, codec: Codec) -> bytes:
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        leader_epoch=_NO_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=codec.number,
        last_offset_delta=found.record_count - 1,
        base_timestamp_ms=found.base_timestamp_ms,
        max_timestamp_ms=found.max_timestamp_ms,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=_NO_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=found.record_count,
        position=0,
    )
    return make_batch(header, compress(codec.number, found.body, level=codec.level))
