"""Truncation by leader epoch, first version (KIP-101; Kafka 0.11 to 1.1).

A replica that starts to follow asks the leader where the latest epoch of its own log ends, and truncates there: one
request, and an offset in the response. For an epoch that the leader never had it is the start of its next one,
counted in the leader's offsets; so after two quick elections a follower keeps records that the leader never had
(KIP-279). A leader notes its epoch only with its first record.
Source: LeaderEpochFileCache and ReplicaFetcherThread at 0.11.
"""

from __future__ import annotations

from tidegauge_broker.replica.epoch_cache import EpochCache
from tidegauge_broker.replica.messages import UNDEFINED_EPOCH_END, EpochEnd
from tidegauge_broker.replica.rules.high_watermark import HighWatermarkRule


class Kip101Rule(HighWatermarkRule):
    """The rule `kip-101` of `replica.truncation.rule`."""

    name = "kip-101"

    def initial_truncation_offset(self, epochs: EpochCache, high_watermark: int) -> int | None:
        """Return the high watermark if the cache is empty; else None."""
        return high_watermark if epochs.latest_epoch is None else None

    def epoch_to_look_up(self, epochs: EpochCache) -> int | None:
        """Return the replica's own latest epoch."""
        return epochs.latest_epoch

    def truncation_offset(
        self, leader_end: EpochEnd, epochs: EpochCache, log_end_offset: int, high_watermark: int
    ) -> tuple[int, bool]:
        """Return the leader's offset, or the high watermark if it is undefined."""
        del epochs
        return min(high_watermark if leader_end.is_undefined else leader_end.end_offset, log_end_offset), True

    def end_of_epoch(self, epochs: EpochCache, epoch: int, log_end_offset: int) -> EpochEnd:
        """Return the offset alone; undefined before the first or after the last epoch."""
        first = epochs.first_epoch
        if first is None or epoch < first:
            return UNDEFINED_EPOCH_END
        return EpochEnd(-1, epochs.end_offset_for(epoch, log_end_offset).end_offset)

    def note_batch(self, epochs: EpochCache, epoch: int, base_offset: int) -> bool:
        """Note the epoch if it is newer than the latest; no entry is ever replaced."""
        return epochs.assign_newer(epoch, base_offset)
