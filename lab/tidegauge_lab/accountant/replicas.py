"""Divergence: below the high watermark all replicas hold the same records.

Rules:
    1. Each replica is compared with the leader's; where nobody leads, with the one of the highest leader epoch, then
       the highest high watermark.
    2. A member of the ISR must agree below the leader's high watermark, and reach it. Another replica must agree below
       the lower of both high watermarks: what is above it may still be truncated.
    3. What only one of them keeps, below the other's log start offset, is not compared; nor, in a compacted log, a
       stretch that one of them has cleaned.
    4. A replica that is in an older epoch than the leader's may have truncation before it, and is held to its own high
       watermark only.
    5. A replica that was read from the disk of a broker that does not answer is held to the high watermark in its
       checkpoint file, and to no more than it has: what it lacks at the end it will fetch.

Marks of whole batches are compared, not records: batches are copied unchanged, and the CRC covers their content.
Source: Kafka's ReplicaVerificationTool; verification.md section 3 (replica digest), section 1.2 (WeakIsr, LogMatching).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tidegauge_lab.accountant.books import Findings, Kind, Mark, ReplicaLog, Stretch

Difference = tuple[int, Mark | None, Mark | None]
"""Where two logs begin to differ, and what stands there in each."""


def reference_of(replicas: Sequence[ReplicaLog]) -> ReplicaLog:
    """The replica with which the others are compared (rule 1)."""
    return max(replicas, key=lambda replica: (replica.leader_epoch, replica.is_leader, replica.high_watermark))


def bound_of(reference: ReplicaLog, replica: ReplicaLog) -> int:
    """Below which offset the two must agree (rules 2, 4 and 5)."""
    if replica.is_from_disk or reference.is_from_disk:
        ends = (one.log_end_offset for one in (reference, replica) if one.is_from_disk)
        return min(reference.high_watermark, replica.high_watermark, *ends)
    if reference.is_leader and replica.in_isr and replica.leader_epoch == reference.leader_epoch:
        return reference.high_watermark
    return min(reference.high_watermark, replica.high_watermark)


def differences(
    one: Sequence[Mark], other: Sequence[Mark], begin: int, end: int, *, is_compacted: bool = False
) -> Iterator[Difference]:
    """Where two logs differ from ``begin`` to ``end``, once for each stretch that does not stand in both.

    With ``is_compacted`` only stretches that begin at the same offset are compared.
    """
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
            if not is_compacted and a is not None:
                yield max(begin, a.base_offset), a, None
        else:
            j += 1
            if not is_compacted:
                yield max(begin, b.base_offset), None, b


def compare(
    replicas: Sequence[ReplicaLog], *, is_compacted: bool = False
) -> Iterator[tuple[ReplicaLog, ReplicaLog, Difference]]:
    """Where the replicas of one partition differ: the reference, the other one, the difference."""
    if not replicas:
        return
    reference = reference_of(replicas)
    for replica in replicas:
        if replica is not reference:
            begin = max(reference.log_start_offset, replica.log_start_offset)
            end = bound_of(reference, replica)
            for difference in differences(reference.marks, replica.marks, begin, end, is_compacted=is_compacted):
                yield reference, replica, difference


def check_replicas(
    replicas: Sequence[ReplicaLog],
    findings: Findings,
    *,
    is_compacted: bool = False,
    previews: Mapping[Stretch, str] | None = None,
) -> None:
    """Report where the replicas of one partition differ."""
    known = previews or {}
    for reference, replica, (offset, ours, theirs) in compare(replicas, is_compacted=is_compacted):
        findings.add(
            Kind.DIVERGED,
            replica.partition,
            offset,
            "at offset {} broker {} holds {}, broker {} {}",
            offset,
            reference.broker,
            describe(reference, ours, known),
            replica.broker,
            describe(replica, theirs, known),
        )


def describe(replica: ReplicaLog, mark: Mark | None, previews: Mapping[Stretch, str]) -> str:
    """A stretch for people."""
    if mark is None:
        return "nothing that begins there"
    preview = previews.get((replica.partition, replica.broker, mark.base_offset))
    if preview is not None:
        return preview
    last = mark.next_offset - 1
    span = f"offset {last}" if last == mark.base_offset else f"offsets {mark.base_offset} to {last}"
    return f"{span} of epoch {mark.leader_epoch} (CRC {mark.crc:08x})"
