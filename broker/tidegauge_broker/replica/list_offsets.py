"""A leader's response to ListOffsets (Partition.fetchOffsetForTimestamp)."""

from __future__ import annotations

from tidegauge_broker.replica.messages import OffsetResult, TimeLookup
from tidegauge_broker.replica.partition import Partition

LATEST = -1
EARLIEST = -2
EARLIEST_LOCAL = -4
"""Without tiered storage all of the log is local."""
LATEST_TIERED = -5


def list_offset(partition: Partition, timestamp_ms: int) -> OffsetResult | TimeLookup:
    """Return the offset of a time in a partition that this broker leads, at most what consumers may read."""
    assert partition.leader_role is not None, "only a leader is asked"
    epoch = partition.leader_epoch
    if timestamp_ms in {EARLIEST, EARLIEST_LOCAL}:
        return OffsetResult(offset=partition.log_start_offset, leader_epoch=epoch)
    nothing_yet = partition.leader_role.offset_not_available()
    if timestamp_ms == LATEST:
        return nothing_yet or OffsetResult(offset=partition.high_watermark, leader_epoch=epoch)
    if timestamp_ms == LATEST_TIERED:
        return OffsetResult()
    nothing = nothing_yet or OffsetResult(leader_epoch=epoch)
    return TimeLookup(timestamp_ms, partition.high_watermark, epoch, nothing)
