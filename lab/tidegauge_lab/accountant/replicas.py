"""Divergence: below the high watermark all replicas hold the same records.

Rules:
    1. Each replica is compared with the leader's; without a leader, with the one of the highest leader epoch, then the
       highest high watermark.
    2. A member of the ISR must agree below the leader's high watermark, and reach it. Another replica must agree below
       the lower of both high watermarks: records above it may still be truncated.
    3. Records that only one of them keeps, below the other's log start offset, are not compared.
    4. A replica that is in an older epoch than the leader's may have truncation before it, and is held to its own high
       watermark only.
    5. A replica that was read from the disk of a broker that does not respond is held to the high watermark in its
       checkpoint file, and to no more than it has: what it lacks at the end it will fetch.
    6. Each replica of a compacted topic is compacted when its broker comes to it, so two of them may hold different
       records and different batches. Records that they both hold at an offset must be equal. A record that only one of
       them holds must be one that the cleaner may remove (Kafka's Cleaner.shouldRetainRecord): it has no key, it is a
       tombstone, or a later record has its key. A tombstone that is missing from both logs excuses earlier records,
       if it may have been above the end of the log that still has the record.
    7. Unreadable records are reported as damaged and not compared; where the reference's log breaks off, the others
       are compared among themselves.

If nothing is compacted, marks of whole batches are compared: batches are copied unchanged, and the CRC covers their
content. Source: Kafka's ReplicaVerificationTool and LogCleaner; the LogMatching and WeakIsr properties of the public
TLA+ models of Kafka's replication (docs/results/explorations.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tidegauge_lab.accountant.books import Findings, FirstDifference, Kind, Mark, Place, RecordMark, ReplicaLog

Difference = tuple[int, Mark | None, Mark | None]
"""The offset at which two logs begin to differ, and the mark there in each."""


def reference_of(replicas: Sequence[ReplicaLog]) -> ReplicaLog:
    """Return the replica with which the others are compared (rule 1)."""
    return max(replicas, key=lambda replica: (replica.leader_epoch, replica.is_leader, replica.high_watermark))


def bound_of(reference: ReplicaLog, replica: ReplicaLog) -> int:
    """Below which offset the two must agree (rules 2, 4 and 5)."""
    if replica.is_from_disk or reference.is_from_disk:
        ends = (one.log_end_offset for one in (reference, replica) if one.is_from_disk)
        return min(reference.high_watermark, replica.high_watermark, *ends)
    if reference.is_leader and replica.in_isr and replica.leader_epoch == reference.leader_epoch:
        return reference.high_watermark
    return min(reference.high_watermark, replica.high_watermark)


def differences(one: Sequence[Mark], other: Sequence[Mark], begin: int, end: int) -> Iterator[Difference]:
    """Yield a difference for each stretch from ``begin`` to ``end`` that the two logs do not share."""
    if begin >= end:
        return
    left = [mark for mark in one if mark.next_offset > begin and mark.base_offset < end]
    right = [mark for mark in other if mark.next_offset > begin and mark.base_offset < end]
    i = j = 0
    while i < len(left) or j < len(right):
        a = left[i] if i < len(left) else None
        b = right[j] if j < len(right) else None
        if a is not None and b is not None and a.base_offset == b.base_offset:
            i, j = i + 1, j + 1
            if a != b:
                yield max(begin, a.base_offset), a, b
        elif b is None or (a is not None and a.base_offset < b.base_offset):
            i += 1
            if a is not None:
                yield max(begin, a.base_offset), a, None
        else:
            j += 1
            yield max(begin, b.base_offset), None, b


def record_differences(one: ReplicaLog, other: ReplicaLog, begin: int, end: int) -> Iterator[Difference]:
    """Where two logs differ from ``begin`` to ``end`` though either may have been compacted (rule 6)."""
    ours, theirs = (
        {record.offset: record for record in log.records or () if begin <= record.offset < end} for log in (one, other)
    )
    latest: dict[int, int] = {}
    for log in (one, other):
        for record in log.records or ():
            if record.key is not None:
                latest[record.key] = max(record.offset, latest.get(record.key, -1))
    for offset in sorted(ours.keys() | theirs.keys()):
        a, b = ours.get(offset), theirs.get(offset)
        if a is not None and b is not None:
            if a != b:
                yield offset, _mark_of(a), _mark_of(b)
        elif a is not None and not _may_be_cleaned(a, one, other, latest):
            yield offset, _mark_of(a), None
        elif b is not None and not _may_be_cleaned(b, other, one, latest):
            yield offset, None, _mark_of(b)


def _may_be_cleaned(record: RecordMark, holder: ReplicaLog, lacking: ReplicaLog, latest: Mapping[int, int]) -> bool:
    """Whether the cleaner may have removed a record from one log though the other still holds it (rule 6)."""
    if record.offset >= lacking.log_end_offset:
        return False  # the other log never had it
    if record.key is None or record.is_tombstone:
        return True
    return latest[record.key] > record.offset or holder.log_end_offset < lacking.log_end_offset


def _mark_of(record: RecordMark) -> Mark:
    return Mark(record.offset, record.offset + 1, record.leader_epoch, record.content & 0xFFFFFFFF)


def compare(replicas: Sequence[ReplicaLog]) -> Iterator[tuple[ReplicaLog, ReplicaLog, Difference]]:
    """Where the replicas of one partition differ: the reference, the other one, the difference."""
    remaining, begin = list(replicas), 0
    while len(remaining) > 1:
        reference = reference_of(remaining)
        remaining.remove(reference)
        for replica in remaining:
            first = max(begin, reference.log_start_offset, replica.log_start_offset)
            ends = (log.breaks_off_at for log in (reference, replica))
            end = min([bound_of(reference, replica), *(at for at in ends if at is not None)])
            for offset, ours, theirs in _between(reference, replica, first, end):
                if not reference.is_damaged_at(offset) and not replica.is_damaged_at(offset):
                    yield reference, replica, (offset, ours, theirs)
        if reference.breaks_off_at is None:
            return
        begin = max(begin, reference.breaks_off_at)


def _between(one: ReplicaLog, other: ReplicaLog, begin: int, end: int) -> Iterator[Difference]:
    if one.records is not None and other.records is not None:
        return record_differences(one, other, begin, end)
    return differences(one.marks, other.marks, begin, end)


def check_replicas(
    replicas: Sequence[ReplicaLog],
    findings: Findings,
    *,
    first_differences: Mapping[Place, FirstDifference] | None = None,
) -> None:
    """Report where the replicas of one partition differ, and what of them cannot be read.

    Args:
        replicas: of one partition.
        findings: where violations are added.
        first_differences: the records that differ, as far as they were read.
    """
    known = first_differences or {}
    for replica in replicas:
        for damage in replica.damage:
            findings.add(Kind.DAMAGED, replica.partition, damage.offset, "broker {}: {}", replica.broker, damage.words)
    for reference, replica, (offset, ours, theirs) in compare(replicas):
        place = (replica.partition, reference.broker, replica.broker, offset)
        first = known.get(place) or FirstDifference(offset, describe(ours), describe(theirs))
        findings.add(
            Kind.DIVERGED,
            replica.partition,
            first.offset,
            "at offset {} broker {} holds {}, broker {} {}",
            first.offset,
            reference.broker,
            first.ours,
            replica.broker,
            first.theirs,
        )


def describe(mark: Mark | None) -> str:
    """Describe a range of offsets for people."""
    if mark is None:
        return "nothing that begins there"
    last = mark.next_offset - 1
    span = f"offset {last}" if last == mark.base_offset else f"offsets {mark.base_offset} to {last}"
    return f"{span} of epoch {mark.leader_epoch} (CRC {mark.crc:08x})"
