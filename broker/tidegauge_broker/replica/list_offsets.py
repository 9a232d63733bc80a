"""A replica's response to ListOffsets (Partition.fetchOffsetForTimestamp)."""

from __future__ import annotations

from tidegauge_broker.replica.messages import CONSUMER, OffsetLookup, OffsetResult, TimeLookup
from tidegauge_broker.replica.partition import Partition

NO_EPOCH = -1

LATEST = -1
EARLIEST = -2
EARLIEST_LOCAL = -4
"""Without tiered storage all of the log is local."""
LATEST_TIERED = -5


def list_offset(partition: Partition, lookup: OffsetLookup) -> OffsetResult | TimeLookup:
    """Return the offset of a time, up to the requester's bound.

    It is the high watermark for a consumer, the log end for others.

    For a consumer that reads only committed records, it is the last stable offset. The epoch is the record's:
    a client compares it with the leader's log (KIP-320). Only the log end has the present one.
    """
    timestamp_ms, is_consumer = lookup.timestamp_ms, lookup.replica_id == CONSUMER
    if timestamp_ms in {EARLIEST, EARLIEST_LOCAL}:
        start = partition.log_start_offset
        return OffsetResult(offset=start, leader_epoch=epoch_at(partition, start))
    leader = partition.leader_role
    nothing_yet = leader.offset_not_available() if leader is not None and is_consumer else None
    upper_bound = partition.log_end_offset
    if is_consumer:
        upper_bound = partition.last_stable_offset if lookup.reads_committed else partition.high_watermark
    if timestamp_ms == LATEST:
        return nothing_yet or OffsetResult(offset=upper_bound, leader_epoch=partition.leader_epoch)
    if timestamp_ms == LATEST_TIERED:
        return OffsetResult()
    return TimeLookup(timestamp_ms, upper_bound, nothing_yet or OffsetResult())


def epoch_at(partition: Partition, offset: int) -> int:
    """Return the epoch of the record at an offset; -1: unknown."""
    epoch = partition.epochs.epoch_at(offset)
    return NO_EPOCH if epoch is None else epoch
