"""The accountant's input, and the form of its findings.

Everything is of one topic. Offsets ending a range are exclusive; times are microseconds since 1970 (``_us``) where
producers noted them, milliseconds (``_ms``) where brokers did.

Rules:
    1. A finding is a violation if no run of a correct cluster can lead to it, given the promises of its acks level;
       only violations make the books unbalanced. A phantom is one only when the history is said to be complete: else
       a producer whose history is not at hand may have written it.
    2. Each kind keeps its count and at most ``MAX_EXAMPLES`` examples, so that a million losses stay readable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from tidegauge_client.sent_record import SentRecord
from tidegauge_client.topic_ids import TopicIds

MAX_EXAMPLES = 10
NO_OFFSET = -1


class Kind(Enum):
    """Kinds of findings; the value is the name that a user sees."""

    LOST = "lost"
    LOST_TAIL = "lost-tail"
    KEPT_THOUGH_FAILED = "kept-though-failed"
    PHANTOM = "phantom"
    MISPLACED = "misplaced"
    DUPLICATED = "duplicated"
    REORDERED = "reordered"
    REORDERED_IN_REAL_TIME = "reordered-in-real-time"
    DIVERGED = "diverged"
    DAMAGED = "damaged"
    HIGH_WATERMARK_BACK = "high-watermark-back"
    LEADER_BELOW_HIGH_WATERMARK = "leader-below-high-watermark"
    EPOCH_BACK = "epoch-back"
    TWO_LEADERS = "two-leaders"
    TOPIC_ID_DIFFERS = "topic-id-differs"
    READ_DIFFERENTLY = "read-differently"
    ACKNOWLEDGED_BELOW_MIN_ISR = "acknowledged-below-min-isr"


MEANINGS: dict[Kind, str] = {
    Kind.LOST: "acknowledged, and not in the committed log, though later records are",
    Kind.LOST_TAIL: "acknowledged at an offset at or above the end of the committed log",
    Kind.KEPT_THOUGH_FAILED: "in the log, though the producer had a definite error",
    Kind.PHANTOM: "in the log, but in no history",
    Kind.MISPLACED: "acknowledged at one offset, but kept at another",
    Kind.DUPLICATED: "in the log more often than it was sent",
    Kind.REORDERED: "a producer's later record has a lower offset than an earlier one of the same partition",
    Kind.REORDERED_IN_REAL_TIME: "handed over after another was acknowledged, but comes before it",
    Kind.DIVERGED: "replicas hold different records at the same offset below the high watermark",
    Kind.DAMAGED: "a replica's file holds bytes that are not a whole, valid batch",
    Kind.HIGH_WATERMARK_BACK: "a leader's high watermark fell within one leader epoch",
    Kind.LEADER_BELOW_HIGH_WATERMARK: (
        "a cleanly elected leader's log ended below the high watermark of an earlier epoch: committed records are lost"
    ),
    Kind.EPOCH_BACK: "a leader epoch fell, in time or along the log",
    Kind.TWO_LEADERS: "two brokers led in the same leader epoch",
    Kind.TOPIC_ID_DIFFERS: "metadata, znode and replicas name different topic ids, so that brokers refuse requests",
    Kind.READ_DIFFERENTLY: "once readable, and later read differently or not at all",
    Kind.ACKNOWLEDGED_BELOW_MIN_ISR: "acknowledged with acks=all while the ISR was below min.insync.replicas",
}


class KeptRecord(NamedTuple):
    """A record of the committed log. ``leader_epoch`` is its batch's."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    leader_epoch: int


@dataclass(slots=True)
class CommittedLog:
    """One partition as a consumer reads it.

    Attributes:
        log_start_offset: records below it are deleted, not lost.
        high_watermark: where the reading ended.
        records: by offset.
        has_own_timestamps: records carry their producers' timestamps (CreateTime).
        is_compacted: an older record of a key may be missing.
        log_end_offset: the leader's; what it holds from the high watermark on may still be committed. -1: none.
    """

    partition: int
    log_start_offset: int
    high_watermark: int
    records: Sequence[KeptRecord]
    has_own_timestamps: bool = True
    is_compacted: bool = False
    log_end_offset: int = NO_OFFSET


Place = tuple[int, int, int, int]
"""Partition, the broker of the reference, the other broker, and the offset at which their batches begin to differ."""


class FirstDifference(NamedTuple):
    """The first record that differs between two replicas, and the record that each of them holds at its offset."""

    offset: int
    ours: str
    theirs: str


class Mark(NamedTuple):
    """A stretch of a replica's log that is copied as a whole (a batch), and what tells its content."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    crc: int


class RecordMark(NamedTuple):
    """A record of a replica, for logs that compaction may have rewritten batch by batch.

    Attributes:
        leader_epoch: of its batch.
        key: what tells keys apart; None for a record without one.
        content: what tells records apart: key, value, timestamp and headers.
        is_tombstone: it has no value.
    """

    offset: int
    leader_epoch: int
    key: int | None
    content: int
    is_tombstone: bool


class Damage(NamedTuple):
    """An unreadable stretch of a replica.

    Attributes:
        offset: the first offset that is in doubt.
        next_offset: where what can be read goes on; -1: nothing after it was readable.
        words: the file, the byte position and the defect.
    """

    offset: int
    next_offset: int
    words: str


@dataclass(slots=True)
class ReplicaLog:
    """One replica as its broker holds it.

    Attributes:
        in_isr: in the leader's view, just before the log was read.
        marks: by offset.
        records: by offset, read where the log may have been compacted; None: compare the marks.
        has_sparse_batches: a batch holds fewer records than offsets, which compaction alone makes.
        damage: what could not be read, by offset.
        is_from_disk: read from the files of a broker that does not respond: the high watermark is the one in the
            checkpoint file, and records missing at the end are fetched once the broker is back.
    """

    partition: int
    broker: int
    is_leader: bool
    in_isr: bool
    leader_epoch: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    marks: Sequence[Mark]
    is_from_disk: bool = False
    records: Sequence[RecordMark] | None = None
    has_sparse_batches: bool = False
    damage: Sequence[Damage] = ()

    @property
    def breaks_off_at(self) -> int | None:
        """The offset from which on nothing could be read; None: it was read to its end."""
        return min((one.offset for one in self.damage if one.next_offset < 0), default=None)

    def is_damaged_at(self, offset: int) -> bool:
        """Whether the record at an offset could not be read."""
        return any(one.offset <= offset and (offset < one.next_offset or one.next_offset < 0) for one in self.damage)


class ReadRecord(NamedTuple):
    """A record that a consumer once read. ``timestamp_ms`` is the record's; -1: not known."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int = -1


@dataclass(slots=True)
class Books:
    """All that is known of a topic.

    Attributes:
        sent: histories; None if there are none, so that nothing is known of producers.
        logs: committed logs by partition; a partition that can't be read is missing.
        reads: what consumers read, in the order of reading; None: nothing is known of that.
        events: the brokers' event logs, in causal order; events of other topics are passed over. None: not at hand.
        is_complete: the histories hold everything that was written to the topic.
        topic_ids: the topic's id wherever it is kept, by partition.
        first_differences: the first record that differs, where two replicas hold different batches.
    """

    topic: str
    sent: Sequence[SentRecord] | None = None
    logs: Mapping[int, CommittedLog] = field(default_factory=dict)
    replicas: Sequence[ReplicaLog] = ()
    reads: Sequence[ReadRecord] | None = None
    events: Sequence[Mapping[str, Any]] | None = None
    is_complete: bool = False
    first_differences: Mapping[Place, FirstDifference] = field(default_factory=dict)
    topic_ids: Mapping[int, TopicIds] = field(default_factory=dict)


class Example(NamedTuple):
    """One finding."""

    partition: int
    offset: int
    message: str


@dataclass(slots=True)
class Tally:
    """How often a kind was found, by acks level if one applies, with some examples."""

    count: int = 0
    by_acks: Counter[str] = field(default_factory=Counter)
    examples: list[Example] = field(default_factory=list)


class Findings:
    """Collects findings."""

    def __init__(self) -> None:
        self.tallies: dict[Kind, Tally] = {}

    def add(self, kind: Kind, partition: int, offset: int, message: str, *parts: object, acks: str = "") -> None:
        """Note a finding; ``message`` is a format whose ``{}`` are filled only if it becomes an example."""
        tally = self.tallies.setdefault(kind, Tally())
        tally.count += 1
        if acks:
            tally.by_acks[acks] += 1
        if len(tally.examples) < MAX_EXAMPLES:
            tally.examples.append(Example(partition, offset, message.format(*parts)))

    def count(self, kind: Kind) -> int:
        """How often it was found."""
        tally = self.tallies.get(kind)
        return 0 if tally is None else tally.count


def show(content: bytes | None, limit: int = 40) -> str:
    """Shorten a key or value to one readable line."""
    if content is None:
        return "null"
    text = content[: limit * 4].decode(errors="backslashreplace")
    return repr(text if len(text) <= limit else text[:limit] + "...")


class Named:
    """A sent record whose name is made only if it is shown."""

    __slots__ = ("_record",)

    def __init__(self, record: SentRecord) -> None:
        self._record = record

    def __str__(self) -> str:
        record = self._record
        key = "" if record.key is None else f"{show(record.key)}: "
        return f"record {record.number} of producer {record.producer} ({key}{show(record.value)})"
