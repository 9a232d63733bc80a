"""Truncation by leader epoch after fast failovers (KIP-279; Kafka 2.0).

The response names the epoch too: the largest one of the leader that is not above the epoch asked for. If the follower
never saw that one, it truncates to the end of its own largest epoch below, and asks again.
The current leader epochs of leader and follower are still not compared: a follower that has missed an election
copies from a leader it does not know of (KAFKA-6880).
Source: AbstractFetcherThread.getOffsetTruncationState, LeaderEpochFileCache.endOffsetFor at 2.0.
"""

from __future__ import annotations

from tidegauge_broker.replica.epoch_cache import EpochCache
from tidegauge_broker.replica.messages import UNDEFINED_EPOCH_END, EpochEnd
from tidegauge_broker.replica.rules.kip_101 import Kip101Rule


class Kip279Rule(Kip101Rule):
    """The rule `kip-279` of `replica.truncation.rule`."""

    name = "kip-279"

    def truncation_offset(
        self, leader_end: EpochEnd, epochs: EpochCache, log_end_offset: int, high_watermark: int
    ) -> tuple[int, bool]:
        """Return the common end of both logs (getOffsetTruncationState).

        Each round but the last drops one of the follower's epochs.
        """
        if leader_end.is_undefined:
            return min(high_watermark, log_end_offset), True
        own = UNDEFINED_EPOCH_END
        if leader_end.epoch >= 0:
            own = self.end_of_epoch(epochs, leader_end.epoch, log_end_offset)
        if own.is_undefined:
            return min(leader_end.end_offset, log_end_offset), True
        if own.epoch != leader_end.epoch:
            return min(own.end_offset, log_end_offset), False
        return min(own.end_offset, leader_end.end_offset, log_end_offset), True

    def end_of_epoch(self, epochs: EpochCache, epoch: int, log_end_offset: int) -> EpochEnd:
        """Return epoch and offset; an unknown epoch gives the next lower one."""
        first = epochs.first_epoch
        if first is None or epoch < first:
            return UNDEFINED_EPOCH_END
        return epochs.end_offset_for(epoch, log_end_offset)
