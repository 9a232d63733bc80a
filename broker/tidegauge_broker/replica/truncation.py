"""Where a follower cuts its log, given the leader's answer about an epoch (KIP-101, KIP-279, KIP-320).

Source: AbstractFetcherThread.getOffsetTruncationState (kafka-behaviour 3.6), rules 1 to 5. If the leader names an
epoch that this replica never saw, the cut is at the end of its largest older epoch, and it must ask again: every
round takes away at least one of its own epochs, so it ends.
"""

from __future__ import annotations

from tidegauge_broker.replica.epoch_cache import EpochCache
from tidegauge_broker.replica.messages import EpochEnd


def truncation_offset(
    leader: EpochEnd, epochs: EpochCache, log_end_offset: int, high_watermark: int
) -> tuple[int, bool]:
    """The new log end offset, and whether the question is settled."""
    if leader.is_undefined:
        return min(high_watermark, log_end_offset), True
    if leader.epoch < 0:
        return min(leader.end_offset, log_end_offset), True
    own = epochs.end_offset_for(leader.epoch, log_end_offset)
    if own.is_undefined:
        return min(leader.end_offset, log_end_offset), True
    if own.epoch != leader.epoch:
        return min(own.end_offset, log_end_offset), False
    return min(own.end_offset, leader.end_offset, log_end_offset), True
