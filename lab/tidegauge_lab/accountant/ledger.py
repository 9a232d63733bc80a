"""Finds each sent record in the log, and each record of the log in the history: lost, kept, duplicated, phantom.

Rules:
    1. An acknowledged record is found where it was acknowledged, if that offset holds its key and value. If several
       were acknowledged at one offset with equal ones (a failover gave it again), the one whose timestamp is there.
    2. All others are looked for elsewhere: the same key, value and timestamp (not the timestamp where the log has its
       own, LogAppendTime), acknowledged before unknown before failed ones, and within their partition if it is known.
       Acknowledged ones that rule 4 does not call lost come last: a match is rather another record of equal content.
    3. A record of the log that is left over is duplicated where the same key and value was sent and found, whoever
       wrote it, and a phantom otherwise. Values are best unique; if they are not, all histories must be given.
    4. Not lost: a record below the log start offset, a record above the leader's high watermark, which may still
       commit, and a record sent with acks=0, since nothing was acknowledged. Compaction may remove a record
       without a key, a tombstone, and a record whose key was sent or is kept again later; a tombstone of unknown
       outcome counts as later than all of its key.
    5. A place is certain if no equal record may have it: acknowledged there, and no equal one at the same offset; or
       the only free place for its only candidate, whatever the rank but failed. Only a certain place is judged
       for its order: else one of several equal records of unknown outcome would be convicted in another's stead.
    6. Lost tail: the acknowledged offset is at or above the end of the committed log. Comparing reads alone can't tell
       it from lag; the log was read to its end here, so it is.

Near-linear: one look at each record of both sides, and a dictionary of contents.
Source: Jepsen's Kafka checker (duplicate, lost write, lost tail, phantom read, inconsistent offsets).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidegauge_client.sent_record import FAIL, INFO, SentRecord
from tidegauge_lab.accountant.books import NO_OFFSET, CommittedLog, Findings, KeptRecord, Kind, Named, show

Content = tuple[bytes | None, bytes | None]
ACKNOWLEDGED, UNKNOWN, FAILED, GONE = range(4)
"""Ranks of records that are looked for elsewhere (rule 2)."""
ANY_PARTITION = -1
NO_END = 1 << 62


@dataclass(slots=True)
class Account:
    """The fate of the records of one acks level."""

    sent: int = 0
    acknowledged: int = 0
    failed: int = 0
    unknown: int = 0
    kept: int = 0
    kept_unknown: int = 0
    lost: int = 0
    lost_tail: int = 0
    deleted: int = 0
    uncommitted: int = 0
    unreadable: int = 0


@dataclass(slots=True)
class Matching:
    """The place of each sent record.

    Attributes:
        offsets: by index in the history; None if it is not in the log.
        partitions: the same.
        uncertain: indexes of records whose place may belong to an equal one (rule 5).
        accounts: by acks level.
    """

    offsets: list[int | None]
    partitions: list[int]
    uncertain: set[int]
    accounts: dict[str, Account] = field(default_factory=dict)


class Ledger:
    """The matching of a history with committed logs."""

    def __init__(self, sent: Sequence[SentRecord], logs: Mapping[int, CommittedLog], findings: Findings) -> None:
        self._sent = sent
        self._logs = logs
        self._findings = findings
        self._has_own_timestamps = all(log.has_own_timestamps for log in logs.values())
        self._offsets: list[int | None] = [None] * len(sent)
        self._partitions = [record.partition for record in sent]
        self._claimed = {partition: bytearray(len(log.records)) for partition, log in logs.items()}
        # One record of each content that was found, and the records not found yet, by all that must match.
        self._found: dict[Content, int] = {}
        self._open: dict[tuple[Content, int, int, int], deque[int]] = {}
        # For rule 5: slots that were acknowledged several times, and the number of free slots for each content.
        self._contested: set[tuple[int, int]] = set()
        self._candidates: Counter[tuple[Content, int, int]] = Counter()
        self._free: Counter[tuple[Content, int, int]] = Counter()
        self._uncertain: set[int] = set()
        self._latest_of_keys = self._find_latest_of_keys()

    def match(self) -> Matching:
        """Find everything, and report what does not fit."""
        if self._has_own_timestamps:
            for index, record in enumerate(self._sent):
                self._find_where_acknowledged(index, record, record.timestamp_ms)
        for index, record in enumerate(self._sent):
            if self._offsets[index] is None and not self._find_where_acknowledged(index, record):
                self._open.setdefault(self._open_key(record), deque()).append(index)
        self._count_candidates()
        for partition, log in sorted(self._logs.items()):
            claimed = self._claimed[partition]
            for position, kept in enumerate(log.records):
                if not claimed[position]:
                    self._place(log, position, kept)
        if self._contested:
            places = enumerate(zip(self._partitions, self._offsets, strict=True))
            self._uncertain.update(index for index, place in places if place in self._contested)
        matching = Matching(self._offsets, self._partitions, self._uncertain)
        self._account(matching)
        return matching

    def _find_where_acknowledged(self, index: int, record: SentRecord, timestamp_ms: int | None = None) -> bool:
        """Return whether the record's offset holds it, with the timestamp if given (rule 1)."""
        log = self._logs.get(record.partition) if record.is_acknowledged else None
        position = None if log is None else position_of(log, record.offset)
        if log is None or position is None:
            return False
        kept = log.records[position]
        if kept.value != record.value or kept.key != record.key or timestamp_ms not in {None, kept.timestamp_ms}:
            return False
        if self._claimed[record.partition][position]:
            self._contested.add((record.partition, kept.offset))
            self._uncertain.add(index)
            return False
        self._claim(index, record.partition, position)
        return True

    def _claim(self, index: int, partition: int, position: int) -> None:
        self._claimed[partition][position] = 1
        self._partitions[index] = partition
        self._offsets[index] = self._logs[partition].records[position].offset
        record = self._sent[index]
        self._found.setdefault((record.key, record.value), index)

    # Elsewhere

    def _open_key(self, record: SentRecord) -> tuple[Content, int, int, int]:
        """Return what must match: content, timestamp, rank, and the partition (-1: any)."""
        timestamp_ms = record.timestamp_ms if self._has_own_timestamps else 0
        if record.is_acknowledged:
            rank = GONE if self._is_deleted(record) or self._is_uncommitted(record) else ACKNOWLEDGED
            return (record.key, record.value), timestamp_ms, rank, ANY_PARTITION
        rank = FAILED if record.outcome == FAIL else UNKNOWN
        return (record.key, record.value), timestamp_ms, rank, record.partition

    def _count_candidates(self) -> None:
        """Count the records still to be found, and the free places that equal them (rule 5)."""
        for (content, timestamp_ms, rank, where), queue in self._open.items():
            if rank != FAILED:
                self._candidates[content, timestamp_ms, where] += len(queue)
        contents = {(content, timestamp_ms) for content, timestamp_ms, _ in self._candidates}
        for partition, log in self._logs.items() if contents else ():
            claimed = self._claimed[partition]
            for position, kept in enumerate(log.records):
                alike = ((kept.key, kept.value), kept.timestamp_ms if self._has_own_timestamps else 0)
                if not claimed[position] and alike in contents:
                    self._free[*alike, partition] += 1
                    self._free[*alike, ANY_PARTITION] += 1

    def _is_certain(self, index: int, partition: int) -> bool:
        """Return whether a free place and the record match no other (rule 5)."""
        content, timestamp_ms, _, where = self._open_key(self._sent[index])
        if self._free[content, timestamp_ms, where] != 1:
            return False
        alike = (content, timestamp_ms)
        return self._candidates[*alike, partition] + self._candidates[*alike, ANY_PARTITION] == 1

    def _candidate(self, partition: int, kept: KeptRecord) -> int | None:
        """Which of the records still to be found this one is, if any (rule 2)."""
        content = (kept.key, kept.value)
        timestamp_ms = kept.timestamp_ms if self._has_own_timestamps else 0
        for rank in (ACKNOWLEDGED, UNKNOWN, FAILED, GONE):
            for where in (partition, ANY_PARTITION):
                queue = self._open.get((content, timestamp_ms, rank, where))
                if queue:
                    return queue.popleft()
        return None

    def _place(self, log: CommittedLog, position: int, kept: KeptRecord) -> None:
        index = self._candidate(log.partition, kept)
        if index is not None:
            if not self._is_certain(index, log.partition):
                self._uncertain.add(index)
            self._claim(index, log.partition, position)
            self._judge_elsewhere(index, log.partition, kept)
            return
        first = self._found.get((kept.key, kept.value))
        if first is not None:
            self._report_duplicate(log.partition, kept, first)
        else:
            self._findings.add(
                Kind.PHANTOM,
                log.partition,
                kept.offset,
                "offset {} holds {}, which no history sent",
                kept.offset,
                show(kept.value),
            )

    def _judge_elsewhere(self, index: int, partition: int, kept: KeptRecord) -> None:
        record = self._sent[index]
        if record.outcome == FAIL:
            self._findings.add(
                Kind.KEPT_THOUGH_FAILED,
                partition,
                kept.offset,
                "{} failed with {}, yet offset {} holds it",
                Named(record),
                record.error,
                kept.offset,
                acks=record.acks,
            )
        elif record.is_acknowledged:
            self._findings.add(
                Kind.MISPLACED,
                partition,
                kept.offset,
                "{} was acknowledged at partition {} offset {}, but is at partition {} offset {}",
                Named(record),
                record.partition,
                record.offset,
                partition,
                kept.offset,
                acks=record.acks,
            )

    def _report_duplicate(self, partition: int, kept: KeptRecord, first: int) -> None:
        record = self._sent[first]
        is_same = not self._has_own_timestamps or record.timestamp_ms == kept.timestamp_ms
        self._findings.add(
            Kind.DUPLICATED,
            partition,
            kept.offset,
            "{} is at partition {} offset {} and again at partition {} offset {}{}",
            Named(record),
            self._partitions[first],
            self._offsets[first],
            partition,
            kept.offset,
            "" if is_same else " with another timestamp: sent a second time, by a producer whose history is not here",
            acks=record.acks,
        )

    # Records that are not in the log

    def _account(self, matching: Matching) -> None:
        for index, record in enumerate(self._sent):
            account = matching.accounts.setdefault(record.acks, Account())
            account.sent += 1
            is_kept = self._offsets[index] is not None
            if record.is_acknowledged:
                account.acknowledged += 1
                if is_kept:
                    account.kept += 1
                else:
                    self._missing(record, account)
            elif record.outcome == FAIL:
                account.failed += 1
            else:
                account.unknown += record.outcome == INFO
                account.kept_unknown += is_kept

    def _find_latest_of_keys(self) -> dict[int, dict[bytes | None, int]]:
        """Of each compacted log, the last offset at which a key is known to have been written (rule 4)."""
        latest = {
            partition: {record.key: record.offset for record in log.records}
            for partition, log in self._logs.items()
            if log.is_compacted
        }
        for record in self._sent if latest else ():
            is_tombstone = record.value is None
            if record.key is None or record.outcome == FAIL or not (record.is_acknowledged or is_tombstone):
                continue
            at = record.offset if record.is_acknowledged else NO_END
            for partition in [record.partition] if record.partition >= 0 else list(latest):
                if partition in latest:
                    latest[partition][record.key] = max(at + is_tombstone, latest[partition].get(record.key, NO_OFFSET))
        return latest

    def _is_deleted(self, record: SentRecord) -> bool:
        """Return whether retention, deletion or compaction may have removed a record (rule 4)."""
        log = self._logs.get(record.partition)
        if log is None or record.offset < log.log_start_offset:
            return log is not None
        if not log.is_compacted or record.offset >= log.high_watermark:
            return False
        return record.key is None or record.offset < self._latest_of_keys[record.partition].get(record.key, NO_OFFSET)

    def _is_uncommitted(self, record: SentRecord) -> bool:
        """Return whether the leader may still commit an acknowledged record (rule 4)."""
        log = self._logs.get(record.partition)
        return log is not None and log.high_watermark <= record.offset < log.log_end_offset

    def _missing(self, record: SentRecord, account: Account) -> None:
        log = self._logs.get(record.partition)
        if log is None:
            account.unreadable += 1
        elif self._is_deleted(record):
            account.deleted += 1
        elif self._is_uncommitted(record):
            account.uncommitted += 1
        elif record.offset >= log.high_watermark:
            account.lost_tail += 1
            self._findings.add(
                Kind.LOST_TAIL, record.partition, record.offset,
                "{} was acknowledged at offset {}, but the log ends at {}",
                Named(record), record.offset, log.high_watermark, acks=record.acks,
            )  # fmt: skip
        else:
            account.lost += 1
            position = position_of(log, record.offset)
            instead = "nothing" if position is None else show(log.records[position].value)
            self._findings.add(
                Kind.LOST, record.partition, record.offset, "{} was acknowledged at offset {}, which holds {}",
                Named(record), record.offset, instead, acks=record.acks,
            )  # fmt: skip


def position_of(log: CommittedLog, offset: int) -> int | None:
    """Return the index of the record at an offset, if there is one."""
    records = log.records
    if not records:
        return None
    # Offsets are dense as a rule.
    guess = offset - records[0].offset
    if 0 <= guess < len(records) and records[guess].offset == offset:
        return guess
    found = bisect_left(records, offset, key=lambda record: record.offset)
    return found if found < len(records) and records[found].offset == offset else None
