"""A replica's response to ListOffsets (Partition.fetchOffsetForTimestamp)."""

from __future__ import annotations

from tidegauge_broker.replica.messages import CONSUMER, OffsetLookup, OffsetResult, TimeLookup
from tidegauge_broker.replica.partition import Partition

LATEST = -1
EARLIEST = -2
EARLIEST_LOCAL = -4
"""Without tiered storage all of the log is local."""
LATEST_TIERED = -5


def list_offset(partition: Partition, lookup: OffsetLookup) -> OffsetResult | TimeLookup:
    """Return the offset of a time: at most the high watermark for a consumer, at most the log end for others.

    For a consumer that reads only what was committed, at most the last stable offset.
    """
    timestamp_ms, is_consumer = lookup.timestamp_ms, lookup.replica_id == CONSUMER
    epoch = partition.leader_epoch
    if timestamp_ms in {EARLIEST, EARLIEST_LOCAL}:
        return OffsetResult(offset=partition.log_start_offset, leader_epoch=epoch)
    leader = partition.leader_role
    nothing_yet = leader.offset_not_available() if leader is not None and is_consumer else None
    upper_bound = partition.log_end_offset
    if is_consumer:
        upper_bound = partition.last_stable_offset if lookup.reads_committed else partition.high_watermark
    if timestamp_ms == LATEST:
        return nothing_yet or OffsetResult(offset=upper_bound, leader_epoch=epoch)
    if timestamp_ms == LATEST_TIERED:
        return OffsetResult()
    nothing = nothing_yet or OffsetResult(leader_epoch=epoch)
    return TimeLookup(timestamp_ms, upper_bound, epoch, nothing)
